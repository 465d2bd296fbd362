//! What a new cluster begins with: namespaces, the bootstrap roles and bindings, and a few objects that programs expect.
//!
//! `rbac.json` holds the policy that Kubernetes itself bootstraps (v1.36), as the API shows it.

use std::sync::LazyLock;

use serde_json::{Value, json};
use writ_authz::{Aggregation, Index, Kind};

use crate::auth::apply;
use crate::controllers::aggregate;
use crate::state::State;
use crate::store::{Expect, TableId, key_of, new_uid};

static POLICY: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut policy: Vec<Value> = serde_json::from_str(include_str!("rbac.json")).unwrap_or_default();
    // The aggregated roles start out complete, as if the controller had run.
    let unions: Vec<(usize, Value)> = policy
        .iter()
        .enumerate()
        .filter_map(|(index, role)| Some((index, aggregate::union(role, policy.iter())?)))
        .collect();
    for (index, rules) in unions {
        if let Some(map) = policy.get_mut(index).and_then(Value::as_object_mut) {
            map.insert("rules".into(), rules);
        }
    }
    policy
});

/// The policy compiled: a clone shares the compiled objects, so a thousand clusters hold them once.
static INDEX: LazyLock<Index> = LazyLock::new(|| {
    let mut index = Index::new(Aggregation::Stored);
    for object in POLICY.iter() {
        apply(&mut index, kind_of(object).1, object);
    }
    index
});

fn kind_of(object: &Value) -> (&'static str, Kind) {
    match object.get("kind").and_then(Value::as_str) {
        Some("ClusterRole") => ("clusterroles.rbac.authorization.k8s.io", Kind::ClusterRole),
        Some("ClusterRoleBinding") => (
            "clusterrolebindings.rbac.authorization.k8s.io",
            Kind::ClusterRoleBinding,
        ),
        Some("Role") => ("roles.rbac.authorization.k8s.io", Kind::Role),
        _ => ("rolebindings.rbac.authorization.k8s.io", Kind::RoleBinding),
    }
}

/// Fills in what is not there yet; after a restart that is usually nothing.
pub(crate) fn fill(state: &State) {
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        add(
            state,
            "namespaces",
            json!({
                "apiVersion": "v1", "kind": "Namespace",
                "metadata": { "name": name, "labels": { "kubernetes.io/metadata.name": name } },
                "spec": { "finalizers": ["kubernetes"] },
                "status": { "phase": "Active" },
            }),
        );
    }
    let fresh = state.store.count("clusterroles.rbac.authorization.k8s.io") == 0;
    if fresh {
        state.authorizer.fill(INDEX.clone());
    }
    for object in POLICY.iter() {
        add(state, kind_of(object).0, object.clone());
    }
    state.authorizer.filled();
    for (name, value, description) in [
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
        (
            "system-node-critical",
            2_000_001_000,
            "Used for system critical pods that must not be moved from their current node.",
        ),
    ] {
        add(
            state,
            "priorityclasses.scheduling.k8s.io",
            json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass",
                "metadata": { "name": name, "generation": 1 },
                "value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority",
            }),
        );
    }
    add(
        state,
        "services",
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "kubernetes", "namespace": "default",
                "labels": { "component": "apiserver", "provider": "kubernetes" },
            },
            "spec": {
                "ports": [{ "name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443 }],
                "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"], "type": "ClusterIP", "sessionAffinity": "None",
                "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack", "internalTrafficPolicy": "Cluster",
            },
            "status": { "loadBalancer": {} },
        }),
    );
    add(
        state,
        "configmaps",
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "extension-apiserver-authentication", "namespace": "kube-system" },
            "data": { "client-ca-file": state.authority.pem },
        }),
    );
}

/// Creates an object of the server's own, unless there is one.
pub(crate) fn add(state: &State, table: &str, mut object: Value) {
    let text = |name: &str| object.pointer(name).and_then(Value::as_str).unwrap_or_default();
    let key = key_of(text("/metadata/namespace"), text("/metadata/name"));
    if state.store.get(table, &key).is_some() {
        return;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".into(), new_uid().into());
        metadata.insert("creationTimestamp".into(), state.clock.rfc3339().into());
    }
    let table: TableId = state
        .registry
        .snapshot()
        .by_table(table)
        .map_or_else(|| table.into(), |resource| resource.table.clone());
    // Somebody else may have made it at the same moment; then it is there, which is what we want.
    drop(state.store.put(&table, Expect::Absent, object));
}

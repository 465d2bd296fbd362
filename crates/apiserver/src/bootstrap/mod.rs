//! What a new cluster begins with: namespaces, the bootstrap roles and bindings, and a few objects that programs expect.
//!
//! `rbac.json` holds the policy that Kubernetes itself bootstraps (v1.36), as the API shows it.

use std::sync::{Arc, LazyLock};

use jiff::Timestamp;
use serde_json::{Value, json};
use writ_authz::{Aggregation, Index, Kind};

use crate::auth::apply;
use crate::controllers::{CRDS, Task, aggregate};
use crate::schema::Schema;
use crate::ssa::{self, Manager, Others};
use crate::state::State;
use crate::store::{Expect, Object, TableId, key_of, new_uid};

static POLICY: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let mut policy: Vec<Value> = serde_json::from_str(include_str!("rbac.json")).unwrap_or_default();
    // The aggregated roles start out complete, as if the controller had run: `admin` holds what `edit` holds, which
    // holds what `view` does, so that it takes a few rounds.
    loop {
        let unions: Vec<(usize, Value)> = policy
            .iter()
            .enumerate()
            .filter_map(|(index, role)| Some((index, aggregate::union(role, policy.iter())?)))
            .filter(|(index, rules)| policy.get(*index).and_then(|role| role.get("rules")) != Some(rules))
            .collect();
        if unions.is_empty() {
            policy.iter_mut().for_each(own_policy);
            return policy;
        }
        for (index, rules) in unions {
            if let Some(map) = policy.get_mut(index).and_then(Value::as_object_mut) {
                map.insert("rules".into(), rules);
            }
        }
    }
});

/// Who owns what the server itself makes.
const MANAGER: &str = "kube-apiserver";

fn own(object: &mut Value, schema: &Schema, name: &str, time: Timestamp) {
    let api_version = object.get("apiVersion").and_then(Value::as_str);
    let api_version = api_version.unwrap_or_default().to_owned();
    let manager = Manager {
        name,
        subresource: "",
        time,
        force: false,
        api_version: &api_version,
        ignored: &["status"],
        versions: &[],
        variants: &[],
        others: Others::Forgotten,
    };
    ssa::track_update(None, object, &manager, schema);
}

/// Records the owners once per process; the time is each cluster's own. The rules of aggregated roles are the controller's.
fn own_policy(object: &mut Value) {
    let plural = kind_of(object).0.split('.').next().unwrap_or_default();
    let Some(kind) = crate::builtin::find("rbac.authorization.k8s.io", "v1", plural) else {
        return;
    };
    let time = Timestamp::UNIX_EPOCH;
    let aggregated = object.get("aggregationRule").is_some_and(|rule| !rule.is_null());
    let rules = object
        .as_object_mut()
        .filter(|_| aggregated)
        .and_then(|map| map.remove("rules"));
    own(object, &kind.schema(), MANAGER, time);
    if let Some(rules) = rules {
        *object = aggregate::with_rules(object, rules, time);
    }
}

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

/// CustomResourceDefinitions as a server stores them, for further servers to begin with: what is equal for all is
/// checked and written once.
#[derive(Clone)]
pub struct Definitions(Arc<[Value]>);

impl Definitions {
    /// The definitions that a server has now.
    pub(crate) fn of(state: &State) -> Self {
        let (objects, _) = state.store.list(CRDS, None);
        let anybody = |object: &Arc<Object>| {
            let mut value = object.value();
            if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
                for own in ["uid", "resourceVersion", "creationTimestamp"] {
                    metadata.remove(own);
                }
            }
            value
        };
        let settled = objects.iter().filter(|object| !object.deleting);
        Self(settled.map(anybody).collect())
    }

    pub(crate) fn fill(&self, state: &State) {
        for definition in self.0.iter() {
            add(state, MANAGER, CRDS, definition.clone());
        }
    }
}

/// Fills in what is not there yet; after a restart that is usually nothing.
pub(crate) fn fill(state: &State) {
    for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
        add(
            state,
            MANAGER,
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
    let now = state.clock.rfc3339();
    for object in POLICY.iter() {
        let mut object = object.clone();
        let owners = object
            .pointer_mut("/metadata/managedFields")
            .and_then(Value::as_array_mut);
        for owner in owners.into_iter().flatten().filter_map(Value::as_object_mut) {
            owner.insert("time".into(), now.clone().into());
        }
        add(state, MANAGER, kind_of(&object).0, object);
    }
    state.authorizer.filled();
    if fresh {
        // The policy is complete as it is.
        state.work.forget(&Task::Aggregate);
    }
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
            MANAGER,
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
        MANAGER,
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
        MANAGER,
        "configmaps",
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": { "name": "extension-apiserver-authentication", "namespace": "kube-system" },
            "data": { "client-ca-file": state.authority.pem },
        }),
    );
}

/// Creates an object of the server's own, unless there is one. Its fields are `manager`'s, if it does not say whose.
pub(crate) fn add(state: &State, manager: &str, table: &str, mut object: Value) {
    let text = |name: &str| object.pointer(name).and_then(Value::as_str).unwrap_or_default();
    let key = key_of(text("/metadata/namespace"), text("/metadata/name"));
    if state.store.get(table, &key).is_some() {
        return;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("uid".into(), new_uid().into());
        metadata.insert("creationTimestamp".into(), state.clock.rfc3339().into());
    }
    let snapshot = state.registry.snapshot();
    let resource = snapshot.by_table(table);
    if let Some(kind) = resource.and_then(|resource| resource.builtin)
        && object.pointer("/metadata/managedFields").is_none()
    {
        // Nobody owns what a namespace waits for: the server adds it to what was asked for.
        let spec = object
            .as_object_mut()
            .filter(|_| kind.kind == "Namespace")
            .and_then(|map| map.remove("spec"));
        own(&mut object, &kind.schema(), manager, state.clock.now());
        if let (Some(spec), Some(map)) = (spec, object.as_object_mut()) {
            map.insert("spec".into(), spec);
        }
    }
    let table: TableId = resource.map_or_else(|| table.into(), |resource| resource.table.clone());
    // Somebody else may have made it at the same moment; then it is there, which is what we want.
    drop(state.store.put(&table, Expect::Absent, object));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aggregated_roles_start_out_complete() {
        let mut aggregated = 0;
        for role in POLICY.iter() {
            if let Some(union) = aggregate::union(role, POLICY.iter()) {
                assert_eq!(role.get("rules"), Some(&union), "{}", role["metadata"]["name"]);
                aggregated += 1;
            }
        }
        assert!(aggregated >= 3, "admin, edit and view");
    }
}

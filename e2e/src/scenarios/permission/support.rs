//! What the scenarios of permissions share.

use anyhow::{Result, anyhow};
use k8s_openapi::api::authorization::v1::ResourceAttributes;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use writ_api::rbac::ClusterPermission;
use writ_runtime::condition;

use crate::{Fleet, fleet::Running, wait, yaml};

/// What runs in a scenario; it stops when it is dropped.
pub struct Parts {
    /// The hub.
    pub hub: Running,
    /// The agent of `cluster1`.
    _agent: Running,
}

/// Accepts `cluster1` as registration does, and starts hub and agent with the parts that permissions need.
pub async fn start(fleet: &Fleet) -> Result<Parts> {
    let admin = fleet.hub.admin().await?;
    fleet.hub.namespace("cluster1").await?;
    yaml::apply(
        &admin,
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: "e2e:agent", namespace: cluster1}
rules:
- apiGroups: [work.open-cluster-management.io]
  resources: [manifestworks, manifestworks/status]
  verbs: [get, list, watch, update, patch]
- apiGroups: [authentication.open-cluster-management.io]
  resources: [managedserviceaccounts, managedserviceaccounts/status]
  verbs: [get, list, watch, update, patch]
- apiGroups: [addon.open-cluster-management.io]
  resources: [managedclusteraddons, managedclusteraddons/status]
  verbs: [get, list, watch, update, patch]
- apiGroups: [""]
  resources: [secrets, events]
  verbs: [get, list, watch, create, update, patch, delete]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: "e2e:agent", namespace: cluster1}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: "e2e:agent"}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:open-cluster-management:cluster1"}
---
apiVersion: cluster.open-cluster-management.io/v1
kind: ManagedCluster
metadata: {name: cluster1}
spec: {hubAcceptsClient: true}
"#,
    )
    .await?;
    let clusters: Api<writ_api::cluster::ManagedCluster> = Api::all(admin);
    let status = json!({"status": {
        "clusterClaims": [{"name": "agent.writ.dev", "value": "grants,tokens,work"}],
        "conditions": [{"type": "ManagedClusterConditionAvailable", "status": "True", "reason": "Up", "message": "up",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    clusters
        .patch_status("cluster1", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let hub = fleet
        .run_hub(writ_hub::Options {
            controllers: vec!["cluster_permission".into()],
            ..writ_hub::Options::default()
        })
        .await?;
    let agent = fleet
        .run_agent(
            1,
            writ_agent::Options {
                controllers: vec!["grants".into(), "tokens".into(), "work".into()],
                ..writ_agent::Options::default()
            },
        )
        .await?;
    Ok(Parts { hub, _agent: agent })
}

/// Writes a permission in `cluster1`.
pub async fn permission(fleet: &Fleet, name: &str, spec: Value) -> Result<()> {
    annotated(fleet, name, &json!({}), spec).await
}

/// Writes a permission with annotations.
pub async fn annotated(fleet: &Fleet, name: &str, annotations: &Value, spec: Value) -> Result<()> {
    let api: Api<ClusterPermission> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    let object = json!({
        "apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission",
        "metadata": {"name": name, "annotations": annotations}, "spec": spec,
    });
    api.patch(name, &PatchParams::apply("e2e").force(), &Patch::Apply(object))
        .await?;
    Ok(())
}

/// Deletes a permission.
pub async fn delete(fleet: &Fleet, name: &str) -> Result<()> {
    let api: Api<ClusterPermission> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Waits for a condition of this generation, with these words in its message or as its reason.
pub async fn condition(
    fleet: &Fleet,
    name: &str,
    type_: &str,
    status: &str,
    words: &str,
) -> Result<ClusterPermission> {
    let api: Api<ClusterPermission> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    wait::until(&format!("{type_}={status} of {name} with {words:?}"), || async {
        let object = api.get(name).await?;
        let conditions = object.status.clone().unwrap_or_default().conditions;
        let found = condition::find(&conditions, type_).is_some_and(|c| {
            c.status == status
                && c.observed_generation == object.metadata.generation
                && (c.message.contains(words) || c.reason == words)
        });
        if found {
            Ok(Some(object))
        } else {
            Err(anyhow!("it has {conditions:?}"))
        }
    })
    .await
}

/// Waits until the managed cluster's authorizer answers like this when this user asks for pods in a namespace.
pub async fn allowed(fleet: &Fleet, user: &str, verb: &str, namespace: &str, wanted: bool) -> Result<()> {
    let cluster = fleet.cluster(1)?;
    wait::until_true(
        &format!("{user} may {verb} pods in {namespace}: {wanted}"),
        || async {
            let what = ResourceAttributes {
                verb: Some(verb.into()),
                resource: Some("pods".into()),
                namespace: Some(namespace.into()).filter(|ns: &String| !ns.is_empty()),
                ..ResourceAttributes::default()
            };
            Ok(cluster.allows(user, &["system:authenticated"], what).await? == wanted)
        },
    )
    .await
}

/// A client of `cluster1` with all rights.
pub async fn spoke(fleet: &Fleet) -> Result<Client> {
    fleet.cluster(1)?.admin().await
}

/// A subject.
pub fn user(name: &str) -> Value {
    json!({"kind": "User", "name": name, "apiGroup": "rbac.authorization.k8s.io"})
}

/// Rules about pods.
pub fn pods(verb: &str) -> Value {
    json!([{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}])
}

/// A reference to a ClusterRole of the managed cluster.
pub fn cluster_role(name: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name})
}

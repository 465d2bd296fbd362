//! Which role is the permission's own: that decides what is held back, and what must never be bound under its name.

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, Role};
use kube::{Api, api::PostParams};
use serde_json::json;

use super::support::{allowed, cluster_role, condition, may, permission, pods, spoke, start, user};
use crate::Fleet;

/// A role that the cluster has is bound, though the permission makes one of that name elsewhere or refers to it.
pub async fn elsewhere(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    for namespace in ["a", "b"] {
        fleet.cluster(1)?.namespace(namespace).await?;
    }
    let theirs: Role = serde_json::from_value(json!({"metadata": {"name": "p"}, "rules": pods("list")}))?;
    let roles: Api<Role> = Api::namespaced(spoke(&fleet).await?, "b");
    roles.create(&PostParams::default(), &theirs).await?;
    let there = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "p"});
    let mut spec = json!({
        "roles": [{"namespace": "a", "rules": pods("get")}],
        "roleRefs": [{"kind": "ClusterRole", "name": "view"}],
        "roleBindings": [
            {"namespace": "a", "roleRef": {"kind": "Role"}, "subject": user("alice")},
            {"namespace": "b", "roleRef": there, "subject": user("bob")},
            {"namespace": "a", "name": "viewers", "roleRef": cluster_role("view"), "subject": user("carol")},
        ],
    });
    permission(&fleet, "p", spec.clone()).await?;
    for (who, verb, namespace) in [
        ("alice", "get", "a"),
        ("bob", "list", "b"),
        ("carol", "watch", "a"),
    ] {
        allowed(&fleet, who, verb, namespace, true).await?;
    }
    condition(
        &fleet,
        "p",
        "Ready",
        "False",
        "spec.roleRefs[0]: ClusterRole view is built into Kubernetes",
    )
    .await?;
    if let Some(spec) = spec.as_object_mut() {
        spec.remove("roleRefs");
    }
    permission(&fleet, "p", spec).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "carol", "watch", "a", true).await
}

/// A role that cannot be made because every cluster has one of its name: whoever was to get it does not get that one.
pub async fn refused(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let kept =
        json!({"namespace": "a", "name": "kept", "roleRef": cluster_role("view"), "subject": user("kept")});
    let mut spec = json!({
        "clusterRole": {"rules": pods("get")},
        "clusterRoleBinding": {"subject": user("eve")},
        "roleBindings": [{"namespace": "a", "roleRef": {"kind": "ClusterRole"}, "subject": user("eve")}, kept],
    });
    permission(&fleet, "admin", spec.clone()).await?;
    allowed(&fleet, "kept", "get", "a", true).await?;
    for words in [
        "spec.clusterRole: ClusterRole admin is built into Kubernetes",
        "spec.clusterRoleBinding: ClusterRoleBinding admin is not delivered: spec.clusterRole cannot make its role ClusterRole admin",
        "spec.roleBindings[0]: RoleBinding a/admin is not delivered: spec.clusterRole cannot make its role ClusterRole admin",
    ] {
        let found = condition(&fleet, "admin", "Ready", "False", words).await?;
        let conditions = found.status.unwrap_or_default().conditions;
        ensure!(
            conditions.iter().all(|c| !c.message.contains("writ.dev/adopt")),
            "what every cluster has is never adopted: {conditions:?}"
        );
    }
    let client = spoke(&fleet).await?;
    let wide: Api<ClusterRoleBinding> = Api::all(client.clone());
    ensure!(wide.get_opt("admin").await?.is_none());
    for verb in ["get", "delete"] {
        ensure!(
            !may(&client, "eve", verb, "a").await?,
            "eve got the cluster's own role"
        );
    }
    // Whoever names it gets it.
    if let Some(binding) = spec.pointer_mut("/clusterRoleBinding") {
        *binding = json!({"roleRef": cluster_role("admin"), "subject": user("eve")});
    }
    permission(&fleet, "admin", spec).await?;
    allowed(&fleet, "eve", "delete", "", true).await
}

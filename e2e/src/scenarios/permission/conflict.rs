//! An object of our name that somebody else made.

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::json;

use super::support::{allowed, annotated, cluster_role, condition, permission, spoke, start, user};
use crate::Fleet;

pub async fn left_alone(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let client = spoke(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "a");
    let hand: RoleBinding = serde_json::from_value(
        json!({"metadata": {"name": "p"}, "roleRef": cluster_role("view"), "subjects": [user("old")]}),
    )?;
    bindings.create(&PostParams::default(), &hand).await?;
    let all: Api<ClusterRoleBinding> = Api::all(client);
    let hand: ClusterRoleBinding = serde_json::from_value(
        json!({"metadata": {"name": "p"}, "roleRef": cluster_role("view"), "subjects": [user("old")]}),
    )?;
    all.create(&PostParams::default(), &hand).await?;

    let spec = json!({
        "clusterRoleBinding": {"roleRef": cluster_role("edit"), "subject": user("new")},
        "roleBindings": [
            {"namespace": "a", "roleRef": cluster_role("edit"), "subject": user("new")},
            {"namespace": "a", "name": "fine", "roleRef": cluster_role("view"), "subject": user("fine")},
        ],
    });
    permission(&fleet, "p", spec.clone()).await?;
    allowed(&fleet, "fine", "get", "a", true).await?;
    condition(&fleet, "p", "Ready", "False", "RoleBinding a/p").await?;
    condition(&fleet, "p", "Ready", "False", "was not put there by a work").await?;
    ensure!(
        bindings
            .get("p")
            .await?
            .subjects
            .unwrap_or_default()
            .first()
            .is_some_and(|s| s.name == "old"),
        "it was overwritten"
    );
    ensure!(all.get("p").await?.role_ref.name == "view", "it was overwritten");

    // Somebody removes the one; the other is adopted, explicitly.
    bindings.delete("p", &DeleteParams::default()).await?;
    allowed(&fleet, "new", "create", "a", true).await?;
    allowed(&fleet, "new", "create", "", false).await?;
    annotated(&fleet, "p", &json!({"writ.dev/adopt": "true"}), spec).await?;
    allowed(&fleet, "new", "create", "", true).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    ensure!(all.get("p").await?.role_ref.name == "edit");
    Ok(())
}

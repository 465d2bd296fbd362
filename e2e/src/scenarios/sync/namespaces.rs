//! Namespaces that objects are in and that nobody declares.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{Api, ResourceExt, api::DeleteParams};
use serde_json::json;

use crate::Fleet;

use super::support::{Case, apply, config_map, namespace, until};

/// What lets a reconciler manage ConfigMaps and these other resources, in the whole cluster.
fn role(others: &str) -> String {
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: used}}\nrules:\n- apiGroups: ['']\n  resources: [configmaps{others}]\n  verbs: [get, list, watch, create, patch, delete]\n"
    )
}

/// A namespace that somebody deletes, or that could not be made for lack of a right, is made as soon as it can be.
pub async fn missing(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &role("")).await?;
    apply(&case.admin, &namespace("there")).await?;
    let commit = case.repo.commit(
        "main",
        &[
            ("a.yaml", config_map("there", "a", "1")),
            ("b.yaml", config_map("absent", "b", "1")),
        ],
    )?;
    case.root_sync(
        "used",
        json!({ "spec": { "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "used" }]}}}),
    )
    .await?;
    case.when("used", "the namespace is missing", |status| {
        status["sync"]["errors"].to_string().contains("absent")
    })
    .await?;
    apply(&case.admin, &role(", namespaces")).await?;
    case.synced("used", &commit).await?;

    let namespaces: Api<Namespace> = Api::all(case.admin.clone());
    let before = namespaces.get("there").await?.uid();
    namespaces.delete("there", &DeleteParams::default()).await?;
    until("the namespace is there again, and what is in it", || async {
        let Some(now) = namespaces.get_opt("there").await? else {
            return Ok(None);
        };
        let map = Api::<ConfigMap>::namespaced(case.admin.clone(), "there")
            .get_opt("a")
            .await?;
        Ok((now.uid() != before && map.is_some()).then_some(()))
    })
    .await?;
    Ok(())
}

/// Another strategy is followed at once, and what it leaves to others is not taken for a mistake.
pub async fn strategy(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    let commit = case.repo.commit(
        "main",
        &[
            ("a.yaml", config_map("one", "a", "1")),
            ("b.yaml", config_map("two", "b", "1")),
        ],
    )?;
    case.root_sync("strategy", json!({})).await?;
    case.synced("strategy", &commit).await?;
    let namespaces: Api<Namespace> = Api::all(case.admin.clone());
    let managed = |name: &'static str| {
        let namespaces = namespaces.clone();
        async move {
            let found = namespaces.get(name).await?;
            anyhow::Ok(found.annotations().contains_key("configsync.gke.io/manager"))
        }
    };
    ensure!(managed("one").await? && managed("two").await?);
    let of = |strategy: &str| json!({ "spec": { "override": { "namespaceStrategy": strategy }}});
    case.root_sync("strategy", of("explicit")).await?;
    until("both are nobody's", || async {
        Ok((!managed("one").await? && !managed("two").await?).then_some(()))
    })
    .await?;
    let status = case
        .when("strategy", "all is well", |status| {
            status["sync"]["errors"].is_null()
        })
        .await?;
    ensure!(status["lastSyncedCommit"] == commit.as_str(), "{status:#}");

    // Those that are declared are not given up all at once.
    let both = format!("{}---\n{}", namespace("one"), namespace("two"));
    let map = ("a.yaml", config_map("one", "a", "1"));
    let commit = case.repo.commit("main", &[map.clone(), ("both.yaml", both)])?;
    case.synced("strategy", &commit).await?;
    case.repo.commit("main", &[map])?;
    case.when("strategy", "the mistake is told", |status| {
        status["sync"]["errors"].to_string().contains("all 2 namespaces")
    })
    .await?;
    ensure!(managed("two").await?);
    Ok(())
}

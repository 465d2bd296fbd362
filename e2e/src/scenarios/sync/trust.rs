//! What somebody who may change a managed object, or takes rights away, cannot bring about.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use writ_api::kpt::ResourceGroup;

use crate::Fleet;

use super::support::{Case, SYSTEM, apply, config_map, config_map_role, namespace, until, value};

const MANAGER: &str = "configsync.gke.io/manager";

fn codes(status: &Value) -> Vec<&str> {
    let errors = status["sync"]["errors"].as_array().into_iter().flatten();
    errors.filter_map(|error| error["code"].as_str()).collect()
}

/// The names of the objects that a sync holds.
async fn held(case: &Case, namespace: &str, name: &str) -> Result<Vec<String>> {
    let groups: Api<ResourceGroup> = Api::namespaced(case.admin.clone(), namespace);
    let held = groups.get(name).await?.spec.resources.unwrap_or_default();
    Ok(held.into_iter().map(|object| object.name).collect())
}

/// Somebody writes another sync's name on an object: nobody, one that does not have it, a RootSync on a RepoSync's.
pub async fn forged(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    let other = case.another()?;
    apply(&case.admin, &namespace("forged")).await?;
    apply(&case.admin, &config_map_role("Role", "maps", "forged")).await?;
    apply(
        &case.admin,
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: maps, namespace: forged}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: maps}\nsubjects: [{kind: ServiceAccount, name: ns-reconciler-forged, namespace: config-management-system}]\n",
    )
    .await?;
    let first = case
        .repo
        .commit("main", &[("a.yaml", config_map("forged", "a", "ours"))])?;
    let second = other
        .repo
        .commit("main", &[("b.yaml", config_map("forged", "b", "ours"))])?;
    case.root_sync("forged", json!({})).await?;
    case.synced("forged", &first).await?;
    other.sync("RepoSync", "forged", "repo-sync", json!({})).await?;
    other
        .when_of(
            "RepoSync",
            "forged",
            "repo-sync",
            "the tenant's object",
            |status| status["lastSyncedCommit"] == second.as_str(),
        )
        .await?;
    let bystander = case.another()?;
    let nothing = bystander.repo.commit("main", &[("a.txt", "")])?;
    bystander.root_sync("bystander", json!({})).await?;
    bystander.synced("bystander", &nothing).await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "forged");
    let as_mallory = PatchParams {
        field_manager: Some("mallory".into()),
        ..PatchParams::default()
    };
    for (name, liar) in [
        ("a", ":root_nobody"),
        ("a", ":root_bystander"),
        ("a", "forged"),
        ("b", ":root_nobody"),
        ("b", ":root_bystander"),
    ] {
        let before = maps.get(name).await?;
        let forged = json!({ "metadata": { "annotations": { MANAGER: liar }}, "data": { "key": "theirs" }});
        maps.patch(name, &as_mallory, &Patch::Merge(forged)).await?;
        until(&format!("{name} is put right after {liar}"), || async {
            let live = maps.get(name).await?;
            let same = live.annotations().get(MANAGER) == before.annotations().get(MANAGER);
            Ok((same && value(&live) == "ours").then_some(()))
        })
        .await?;
    }
    ensure!(held(&case, SYSTEM, "forged").await? == ["a"]);
    ensure!(held(&case, "forged", "repo-sync").await? == ["b"]);
    let status = case.status("RootSync", SYSTEM, "forged").await?;
    ensure!(!codes(&status).contains(&"1060"), "{status:#}");
    Ok(())
}

/// Rights that went with their namespace, or were taken away together with the files: a sync that lives on comes to rest.
pub async fn rights_gone(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    let all = ["goes", "taken", "stays"];
    for name in all {
        apply(&case.admin, &namespace(name)).await?;
        apply(&case.admin, &config_map_role("Role", "maps", name)).await?;
    }
    let roles = |names: &[&str]| {
        let refs: Vec<Value> = names
            .iter()
            .map(|name| json!({ "kind": "Role", "name": "maps", "namespace": name }))
            .collect();
        json!({ "spec": { "override": { "roleRefs": refs }}})
    };
    let file = |name: &str| (format!("{name}.yaml"), config_map(name, name, "1"));
    let commit = |names: &[&str]| {
        let files: Vec<(String, String)> = names.iter().map(|name| file(name)).collect();
        let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (&**path, text.clone())).collect();
        case.repo.commit("main", &files)
    };
    let first = commit(&all)?;
    case.root_sync("gone", roles(&all)).await?;
    case.synced("gone", &first).await?;
    // The tenant's namespace goes, and with it the right to ask for what was there.
    let namespaces: Api<Namespace> = Api::all(case.admin.clone());
    namespaces.delete("goes", &DeleteParams::default()).await?;
    until("the namespace is gone", || async {
        Ok(namespaces.get_opt("goes").await?.is_none().then_some(()))
    })
    .await?;
    let second = commit(&["taken", "stays"])?;
    case.synced("gone", &second).await?;
    ensure!(held(&case, SYSTEM, "gone").await? == ["stays", "taken"]);
    // A role is taken away before its file: the object cannot be pruned any more, until somebody says to leave it.
    case.root_sync("gone", roles(&["stays"])).await?;
    let account = case.as_reconciler("root-reconciler-gone").await?;
    until("the right is gone", || async {
        let maps = Api::<ConfigMap>::namespaced(account.clone(), "taken");
        Ok(maps.get("taken").await.is_err().then_some(()))
    })
    .await?;
    let third = commit(&["stays"])?;
    case.when("gone", "the prune is refused", |status| {
        status["sync"]["commit"] == third.as_str() && codes(status).contains(&"2013")
    })
    .await?;
    let note = json!({ "metadata": { "annotations": { "writ.dev/abandon-managed-objects": "true" }}});
    case.syncs("RootSync", SYSTEM)
        .patch("gone", &PatchParams::default(), &Patch::Merge(note))
        .await?;
    case.synced("gone", &third).await?;
    ensure!(held(&case, SYSTEM, "gone").await? == ["stays"]);
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "taken");
    ensure!(maps.get_opt("taken").await?.is_some());
    Ok(())
}

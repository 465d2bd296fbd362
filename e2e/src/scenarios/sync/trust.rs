//! What somebody who may change a managed object, or takes rights away, cannot bring about.

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Namespace, Secret},
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
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

/// An inventory that looks like one of a sync, with a time that the definition lets through and no client reads.
async fn unreadable_inventory(case: &Case, namespace: &str) -> Result<()> {
    let resource = ApiResource::erase::<ResourceGroup>(&());
    let groups: Api<DynamicObject> = Api::namespaced_with(case.admin.clone(), namespace, &resource);
    let mut odd = DynamicObject::new("odd", &resource).data(json!({ "spec": {} }));
    let label = (
        "configsync.gke.io/managed-by".to_owned(),
        "reconciler-manager".to_owned(),
    );
    odd.metadata.labels = Some([label].into());
    groups.create(&PostParams::default(), &odd).await?;
    let condition =
        json!({ "type": "Odd", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00+99:99" });
    let status = Patch::Merge(json!({ "status": { "observedGeneration": 1, "conditions": [condition] }}));
    groups
        .patch_status("odd", &PatchParams::default(), &status)
        .await?;
    Ok(())
}

/// Somebody deletes an inventory, empties it, or puts another's object in: it is what it was at once, and the deletion of
/// the sync forgets nothing. That somewhere else is one which nobody can read stops none of that.
pub async fn inventory(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("kept")).await?;
    unreadable_inventory(&case, "kept").await?;
    apply(&case.admin, &config_map("kept", "theirs", "1")).await?;
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("kept", "a", "1"))])?;
    let foreground = json!({ "metadata": { "annotations": { "configsync.gke.io/deletion-propagation-policy": "Foreground" }}});
    case.root_sync("kept", foreground).await?;
    case.synced("kept", &commit).await?;
    let groups: Api<ResourceGroup> = Api::namespaced(case.admin.clone(), SYSTEM);
    let restored = |what: &'static str| {
        let case = &case;
        async move {
            until(what, || async {
                let held = held(case, SYSTEM, "kept").await.unwrap_or_default();
                Ok((held == ["a"]).then_some(()))
            })
            .await
        }
    };
    let list = |names: &[&str]| {
        let all: Vec<Value> = names
            .iter()
            .map(|name| json!({ "group": "", "kind": "ConfigMap", "namespace": "kept", "name": name }))
            .collect();
        Patch::Merge(json!({ "spec": { "resources": all }}))
    };
    restored("the inventory").await?;
    groups.delete("kept", &DeleteParams::default()).await?;
    restored("the deleted inventory").await?;
    for names in [vec![], vec!["theirs"], vec!["a", "theirs"]] {
        groups
            .patch("kept", &PatchParams::default(), &list(&names))
            .await?;
        restored("the changed inventory").await?;
    }
    groups.delete("kept", &DeleteParams::default()).await?;
    case.delete("RootSync", SYSTEM, "kept").await?;
    case.gone("RootSync", SYSTEM, "kept").await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "kept");
    ensure!(maps.get_opt("a").await?.is_none());
    ensure!(maps.get_opt("theirs").await?.is_some());
    Ok(())
}

/// Everybody can write labels: what has those of a sync and is not made for it stays, only its account gets nothing by it.
pub async fn labels(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("labels")).await?;
    apply(&case.admin, &config_map_role("Role", "maps", "labels")).await?;
    case.repo.commit("main", &[("a.txt", "")])?;
    let view = json!({ "spec": { "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "view", "namespace": "labels" }]}}});
    case.root_sync("labels", view).await?;
    let labels = |kind: &str, space: &str, name: &str| {
        json!({
            "configsync.gke.io/managed-by": "reconciler-manager", "configsync.gke.io/sync-kind": kind,
            "configsync.gke.io/sync-name": name, "configsync.gke.io/sync-namespace": space,
        })
    };
    let root = labels("RootSync", SYSTEM, "labels");
    let alice = json!({ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice" });
    let account = |name: &str| json!({ "kind": "ServiceAccount", "name": name, "namespace": SYSTEM });
    let reconciler = account("root-reconciler-labels");
    let bind = async |name: &str, labels: &Value, subjects: Value| {
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": name, "namespace": "labels", "labels": labels },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps" },
            "subjects": subjects,
        });
        apply(&case.admin, &binding.to_string()).await
    };
    bind("theirs", &root, json!([alice])).await?;
    bind("mixed", &root, json!([alice, reconciler])).await?;
    bind("more", &root, json!([reconciler])).await?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": { "name": "theirs", "namespace": "labels", "labels": root }, "rules": [],
    });
    apply(&case.admin, &role.to_string()).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(case.admin.clone(), "labels");
    let subjects = async |name: &str| {
        let found = bindings.get_opt(name).await?;
        let subjects = found.map(|binding| binding.subjects.unwrap_or_default());
        anyhow::Ok(subjects.map(|all| all.into_iter().map(|subject| subject.name).collect::<Vec<_>>()))
    };
    until("the account has nothing but its role", || async {
        let none = subjects("more").await?.is_none();
        Ok((none && subjects("mixed").await? == Some(vec!["alice".into()])).then_some(()))
    })
    .await?;
    // A tenant who copies the labels with the rest of a binding.
    let tenant = case.another()?;
    let commit = tenant
        .repo
        .commit("main", &[("a.yaml", config_map("labels", "a", "1"))])?;
    let repo = labels("RepoSync", "labels", "repo-sync");
    bind("copied", &repo, json!([account("ns-reconciler-labels")])).await?;
    tenant.sync("RepoSync", "labels", "repo-sync", json!({})).await?;
    tenant
        .when_of("RepoSync", "labels", "repo-sync", "it has its role", |status| {
            status["lastSyncedCommit"] == commit.as_str()
        })
        .await?;
    // Deleted syncs leave them, too.
    for (kind, space, name) in [
        ("RootSync", SYSTEM, "labels"),
        ("RepoSync", "labels", "repo-sync"),
    ] {
        case.delete(kind, space, name).await?;
        case.gone(kind, space, name).await?;
    }
    let mut left: Vec<String> = bindings
        .list(&ListParams::default().labels("configsync.gke.io/managed-by"))
        .await?
        .into_iter()
        .map(|binding| binding.name_any())
        .collect();
    left.sort();
    ensure!(left == ["copied", "mixed", "theirs"], "{left:?}");
    let roles: Api<Role> = Api::namespaced(case.admin.clone(), "labels");
    ensure!(roles.get_opt("theirs").await?.is_some());
    Ok(())
}

/// A Secret that the API server does not understand is reported without what is in it.
pub async fn secrets(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("quoted")).await?;
    let secret = |name: &str, data: &str| {
        format!("apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: quoted}}\n{data}\n")
    };
    case.repo.commit(
        "main",
        &[
            (
                "number.yaml",
                secret("number", "stringData: {password: 31415926}"),
            ),
            (
                "bytes.yaml",
                secret("bytes", "data: {password: \"no base64: hunter2\"}"),
            ),
            ("field.yaml", secret("field", "stringdata: {password: hunter2}")),
            ("good.yaml", secret("good", "stringData: {password: hunter2}")),
        ],
    )?;
    case.root_sync("quoted", json!({})).await?;
    let status = case
        .when("quoted", "the Secrets are reported", |status| {
            let all = status["sync"]["errors"].as_array().map_or(0, Vec::len);
            all >= 2 && status["sync"]["objectCount"].as_i64() >= Some(1)
        })
        .await?;
    let text = status.to_string();
    ensure!(text.contains("Secret quoted/number"), "{status:#}");
    ensure!(
        !text.contains("31415926") && !text.contains("hunter2"),
        "{status:#}"
    );
    let secrets: Api<Secret> = Api::namespaced(case.admin.clone(), "quoted");
    ensure!(secrets.get_opt("good").await?.is_some());
    Ok(())
}

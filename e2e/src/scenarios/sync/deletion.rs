//! The end of a sync.

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
};
use serde_json::json;

use crate::Fleet;

use super::support::{Case, SYSTEM, apply, condition, config_map, config_map_role, namespace, until};

const FOREGROUND: &str = "configsync.gke.io/deletion-propagation-policy";

impl Case {
    /// Everything that was made for a RootSync and is still there.
    async fn leftovers(&self, name: &str) -> Result<Vec<String>> {
        let list = ListParams::default().labels(&format!("configsync.gke.io/sync-name={name}"));
        let mut left = Vec::new();
        for object in Api::<ClusterRoleBinding>::all(self.admin.clone())
            .list(&list)
            .await?
        {
            left.push(format!("ClusterRoleBinding {}", object.name_any()));
        }
        for object in Api::<RoleBinding>::all(self.admin.clone()).list(&list).await? {
            left.push(format!("RoleBinding {}", object.name_any()));
        }
        for object in Api::<Role>::all(self.admin.clone()).list(&list).await? {
            left.push(format!("Role {}", object.name_any()));
        }
        for object in Api::<ServiceAccount>::all(self.admin.clone()).list(&list).await? {
            left.push(format!("ServiceAccount {}", object.name_any()));
        }
        for object in Api::<writ_api::kpt::ResourceGroup>::all(self.admin.clone())
            .list(&list)
            .await?
        {
            left.push(format!("ResourceGroup {}", object.name_any()));
        }
        Ok(left)
    }
}

/// Foreground: the objects go, then the rights, and nothing is left. Orphan: the objects stay, and nobody owns them.
pub async fn policies(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("ends")).await?;
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("ends", "a", "1"))])?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "ends");
    case.root_sync(
        "ends",
        json!({ "metadata": { "annotations": { FOREGROUND: "Foreground" }}}),
    )
    .await?;
    case.synced("ends", &commit).await?;
    case.delete("RootSync", SYSTEM, "ends").await?;
    case.gone("RootSync", SYSTEM, "ends").await?;
    ensure!(maps.get_opt("a").await?.is_none());
    ensure!(
        case.leftovers("ends").await?.is_empty(),
        "{:?}",
        case.leftovers("ends").await?
    );

    case.root_sync(
        "orphans",
        json!({ "metadata": { "annotations": { FOREGROUND: "Orphan" }}}),
    )
    .await?;
    case.synced("orphans", &commit).await?;
    case.delete("RootSync", SYSTEM, "orphans").await?;
    case.gone("RootSync", SYSTEM, "orphans").await?;
    let left = maps.get("a").await?;
    ensure!(left.annotations().is_empty(), "{:?}", left.annotations());
    ensure!(case.leftovers("orphans").await?.is_empty());

    // What is not understood is not acted on.
    let policy = json!({ "metadata": { "annotations": { FOREGROUND: "Background" }}});
    let format = json!({ "spec": { "sourceFormat": "tree" }});
    for (name, wrong) in [("policy", policy), ("format", format)] {
        case.root_sync(name, wrong).await?;
        let status = case
            .when(name, "it is refused", |status| {
                let refused =
                    |message: &serde_json::Value| message.as_str().unwrap_or_default().contains("KNV1061");
                refused(&condition(status, "Stalled")["message"])
                    && refused(&status["source"]["errors"][0]["errorMessage"])
            })
            .await?;
        ensure!(status["sync"]["commit"].is_null(), "{status:#}");
    }

    // Nothing can be made for a name that is too long, so nothing keeps it.
    for name in ["n".repeat(60), "n".repeat(80)] {
        case.root_sync(&name, json!({})).await?;
        case.when(&name, "the name is refused", |status| {
            condition(status, "Stalled")["message"]
                .as_str()
                .unwrap_or_default()
                .contains("at most 38 characters")
        })
        .await?;
        if name.len() == 60 {
            ensure!(
                case.leftovers(&name).await?.is_empty(),
                "{:?}",
                case.leftovers(&name).await?
            );
        }
        case.delete("RootSync", SYSTEM, &name).await?;
        case.gone("RootSync", SYSTEM, &name).await?;
    }
    Ok(())
}

/// Puts a finalizer on a ConfigMap, or takes it off.
async fn hold(maps: &Api<ConfigMap>, name: &str, held: bool) -> Result<()> {
    let finalizers = if held { vec!["example.com/held"] } else { vec![] };
    let patch = json!({ "metadata": { "finalizers": finalizers }});
    maps.patch(name, &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    Ok(())
}

/// A definition stays until what it may define is gone, and an object that never goes can be left behind.
pub async fn order(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("order")).await?;
    let definition = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: orders.example.com}\nspec:\n  group: example.com\n  scope: Namespaced\n  names: {plural: orders, singular: order, kind: Order}\n  versions:\n  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}\n";
    let commit = case.repo.commit(
        "main",
        &[
            ("crd.yaml", definition.to_owned()),
            ("a.yaml", config_map("order", "a", "1")),
        ],
    )?;
    case.root_sync(
        "order",
        json!({ "metadata": { "annotations": { FOREGROUND: "Foreground" }}}),
    )
    .await?;
    case.synced("order", &commit).await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "order");
    hold(&maps, "a", true).await?;
    case.delete("RootSync", SYSTEM, "order").await?;
    case.when("order", "the object that is held is named", |status| {
        condition(status, "ReconcilerFinalizerFailure")["message"]
            .as_str()
            .unwrap_or_default()
            .contains("ConfigMap order/a is still being deleted")
    })
    .await?;
    let definitions = Api::<CustomResourceDefinition>::all(case.admin.clone());
    let definition = definitions.get("orders.example.com").await?;
    ensure!(definition.metadata.deletion_timestamp.is_none());
    let note = json!({ "metadata": { "annotations": { "writ.dev/abandon-managed-objects": "true" }}});
    case.syncs("RootSync", SYSTEM)
        .patch("order", &PatchParams::default(), &Patch::Merge(note))
        .await?;
    case.gone("RootSync", SYSTEM, "order").await?;
    // Asked to leave things behind, a sync waits two seconds for each: a busy API server takes longer for a definition.
    until("the definition is gone", || async {
        Ok(definitions
            .get_opt("orders.example.com")
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    ensure!(maps.get_opt("a").await?.is_some());
    hold(&maps, "a", false).await?;
    ensure!(
        case.leftovers("order").await?.is_empty(),
        "{:?}",
        case.leftovers("order").await?
    );
    Ok(())
}

/// Whatever keeps an object from being deleted, it can be left behind; what was never made keeps nothing.
pub async fn abandoned(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("fails")).await?;
    let review = "apiVersion: authorization.k8s.io/v1\nkind: SelfSubjectAccessReview\nmetadata: {name: x}\nspec: {resourceAttributes: {verb: get, resource: pods}}\n";
    let map = ("a.yaml", config_map("fails", "a", "1"));
    case.repo
        .commit("main", &[map.clone(), ("review.yaml", review.to_owned())])?;
    case.root_sync(
        "fails",
        json!({ "metadata": { "annotations": { FOREGROUND: "Foreground" }}}),
    )
    .await?;
    case.when("fails", "what cannot be kept is refused", |status| {
        status["sync"]["errors"]
            .to_string()
            .contains("SelfSubjectAccessReview")
    })
    .await?;
    let groups = Api::<writ_api::kpt::ResourceGroup>::namespaced(case.admin.clone(), SYSTEM);
    until("the inventory has what was made", || async {
        let listed = groups.get("fails").await?.spec.resources.unwrap_or_default();
        Ok((listed.len() == 1).then_some(()))
    })
    .await?;
    let commit = case.repo.commit("main", &[map])?;
    case.synced("fails", &commit).await?;

    // As where a webhook fails.
    case.env
        .front
        .refuse(Some("/api/v1/namespaces/fails/configmaps/a"));
    case.delete("RootSync", SYSTEM, "fails").await?;
    case.when("fails", "what failed is named", |status| {
        condition(status, "ReconcilerFinalizerFailure")["message"]
            .as_str()
            .unwrap_or_default()
            .contains("cannot get ConfigMap fails/a")
    })
    .await?;
    let note = json!({ "metadata": { "annotations": { "writ.dev/abandon-managed-objects": "true" }}});
    case.syncs("RootSync", SYSTEM)
        .patch("fails", &PatchParams::default(), &Patch::Merge(note))
        .await?;
    case.gone("RootSync", SYSTEM, "fails").await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "fails");
    ensure!(maps.get_opt("a").await?.is_some());
    Ok(())
}

/// A role is removed in the middle of the deletion: said so, healed when it is back; or the objects are left behind.
pub async fn role_removed(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("middle")).await?;
    apply(&case.admin, &config_map_role("ClusterRole", "middle", "")).await?;
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("middle", "a", "1"))])?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "middle");
    let roles = Api::<ClusterRole>::all(case.admin.clone());
    for abandon in [false, true] {
        let name = if abandon { "middle-abandoned" } else { "middle" };
        apply(&case.admin, &config_map_role("ClusterRole", "middle", "")).await?;
        case.root_sync(
            name,
            json!({
                "metadata": { "annotations": { FOREGROUND: "Foreground" }},
                "spec": { "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "middle", "namespace": "middle" }]}},
            }),
        )
        .await?;
        case.synced(name, &commit).await?;
        // Somebody holds the object, so that its deletion has begun when the role goes.
        hold(&maps, "a", true).await?;
        case.delete("RootSync", SYSTEM, name).await?;
        until("the deletion has begun", || async {
            let map = maps.get("a").await?;
            Ok(map.metadata.deletion_timestamp)
        })
        .await?;
        roles.delete("middle", &DeleteParams::default()).await?;
        // RBAC forgets a role a moment later.
        let account = case.as_reconciler(&format!("root-reconciler-{name}")).await?;
        until("the right is gone", || async {
            let maps = Api::<ConfigMap>::namespaced(account.clone(), "middle");
            Ok(maps.get("a").await.is_err().then_some(()))
        })
        .await?;
        // The reconciler tells the one, the manager the other.
        case.when(name, "the missing right is named", |status| {
            let text = condition(status, "ReconcilerFinalizerFailure")["message"]
                .as_str()
                .unwrap_or_default();
            text.contains("ConfigMap middle/a")
                && text.contains("may not get configmaps")
                && condition(status, "Reconciling")["reason"] == "Teardown"
        })
        .await?;
        // The rights are still kept up meanwhile.
        let bindings = Api::<RoleBinding>::namespaced(case.admin.clone(), "middle");
        let list = ListParams::default().labels(&format!("configsync.gke.io/sync-name={name}"));
        let binding = bindings.list(&list).await?.items.remove(0).name_any();
        bindings.delete(&binding, &DeleteParams::default()).await?;
        until("the binding is back", || async {
            Ok(bindings.get_opt(&binding).await?)
        })
        .await?;
        ensure!(maps.get_opt("a").await?.is_some());
        if abandon {
            let note = json!({ "metadata": { "annotations": { "writ.dev/abandon-managed-objects": "true" }}});
            case.syncs("RootSync", SYSTEM)
                .patch(name, &PatchParams::default(), &Patch::Merge(note))
                .await?;
            case.gone("RootSync", SYSTEM, name).await?;
            ensure!(maps.get_opt("a").await?.is_some());
            hold(&maps, "a", false).await?;
        } else {
            apply(&case.admin, &config_map_role("ClusterRole", "middle", "")).await?;
            hold(&maps, "a", false).await?;
            case.gone("RootSync", SYSTEM, name).await?;
            ensure!(maps.get_opt("a").await?.is_none());
        }
        ensure!(
            case.leftovers(name).await?.is_empty(),
            "{:?}",
            case.leftovers(name).await?
        );
    }
    // A sync whose finalizers were torn off leaves nothing either.
    case.root_sync("torn", json!({})).await?;
    case.when("torn", "it runs", |status| status["sync"]["commit"].is_string())
        .await?;
    case.delete("RootSync", SYSTEM, "torn").await.ok();
    let none = json!({ "metadata": { "finalizers": [] }});
    let _ = case
        .syncs("RootSync", SYSTEM)
        .patch("torn", &PatchParams::default(), &Patch::Merge(none))
        .await;
    until("nothing is left", || async {
        Ok(case.leftovers("torn").await?.is_empty().then_some(()))
    })
    .await?;
    // One in the wrong namespace is refused, and its deletion touches no namesake.
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("middle", "b", "1"))])?;
    case.root_sync("namesake", json!({})).await?;
    case.synced("namesake", &commit).await?;
    case.sync("RootSync", "middle", "namesake", json!({})).await?;
    case.when_of(
        "RootSync",
        "middle",
        "namesake",
        "the place is refused",
        |status| {
            condition(status, "Stalled")["message"]
                .as_str()
                .unwrap_or_default()
                .contains(SYSTEM)
        },
    )
    .await?;
    case.delete("RootSync", "middle", "namesake").await?;
    case.gone("RootSync", "middle", "namesake").await?;
    ensure!(
        case.leftovers("namesake").await?.len() == 5,
        "{:?}",
        case.leftovers("namesake").await?
    );
    Ok(())
}

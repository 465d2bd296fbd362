//! The bindings of a RootSync.

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::{
    core::v1::{ConfigMap, ServiceAccount},
    rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{Fleet, repair::repaired};

use super::support::{
    Case, SYSTEM, apply, condition, config_map, config_map_role, json_merge, namespace, until,
};

fn labels(name: &str) -> ListParams {
    ListParams::default().labels(&format!(
        "configsync.gke.io/sync-kind=RootSync,configsync.gke.io/sync-name={name},configsync.gke.io/sync-namespace={SYSTEM},configsync.gke.io/managed-by=reconciler-manager"
    ))
}

impl Case {
    /// What the account of a RootSync is bound to: `namespace/kind/name`, the base role left out.
    async fn bound(&self, name: &str) -> Result<Vec<String>> {
        let mut all = Vec::new();
        for binding in Api::<ClusterRoleBinding>::all(self.admin.clone())
            .list(&labels(name))
            .await?
        {
            all.push(format!("/{}/{}", binding.role_ref.kind, binding.role_ref.name));
        }
        for binding in Api::<RoleBinding>::all(self.admin.clone())
            .list(&labels(name))
            .await?
        {
            if !binding.role_ref.name.starts_with("configsync.gke.io:") {
                let namespace = binding.namespace().unwrap_or_default();
                all.push(format!(
                    "{namespace}/{}/{}",
                    binding.role_ref.kind, binding.role_ref.name
                ));
            }
        }
        all.sort();
        Ok(all)
    }

    async fn until_bound(&self, name: &str, wanted: &[&str]) -> Result<()> {
        let last = std::cell::RefCell::new(Vec::new());
        until(&format!("{name} is bound to {wanted:?}"), || async {
            let bound = self.bound(name).await?;
            let same = bound == wanted;
            *last.borrow_mut() = bound;
            Ok(same.then_some(()))
        })
        .await
        .map_err(|error| error.context(format!("it is bound to {:?}", last.borrow())))
    }
}

/// The design document's guide, as it is written there, with rules for its roles and a repository.
pub async fn user_guide(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("my-ns")).await?;
    // Each role allows something else, so that an object that is there shows which binding works.
    let rules = |group: &str, resource: &str| json!([{ "apiGroups": [group], "resources": [resource], "verbs": ["get", "list", "watch", "create", "patch", "delete"] }]);
    let guide = include_str!("../../../fixtures/design/root-sync-2.yaml");
    let mut objects: Vec<Value> = writ_runtime::yaml::documents(guide)?;
    let commit = case.repo.commit(
        "main",
        &[
            ("prio.yaml", "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata:\n  name: guide\nvalue: 7\n".to_owned()),
            ("a.yaml", config_map("my-ns", "guide", "1")),
            ("b.yaml", "apiVersion: v1\nkind: Secret\nmetadata:\n  name: guide\n  namespace: my-ns\nstringData:\n  a: b\n".to_owned()),
        ],
    )?;
    for object in &mut objects {
        match object["metadata"]["name"].as_str().unwrap_or_default() {
            "my-root-sync" => json_merge(object, case.source()),
            "my-cluster-role" => object["rules"] = rules("scheduling.k8s.io", "priorityclasses"),
            "my-tenant-role" => object["rules"] = rules("", "configmaps"),
            "my-role" => object["rules"] = rules("", "secrets"),
            other => bail!("the guide has an object {other:?}"),
        }
        apply(&case.admin, &object.to_string()).await?;
    }
    case.synced("my-root-sync", &commit).await?;
    case.until_bound(
        "my-root-sync",
        &[
            "/ClusterRole/my-cluster-role",
            "my-ns/ClusterRole/my-tenant-role",
            "my-ns/Role/my-role",
        ],
    )
    .await?;
    // The manager says so when it has seen the role, which the reconciler may already use.
    let status = case
        .when("my-root-sync", "every role is bound", roles_bound)
        .await?;
    ensure!(status["sync"]["objectCount"] == 3, "{status:#}");
    let refs = status["roleRefs"].as_array().context("no roleRefs")?;
    ensure!(
        refs.len() == 3 && refs.iter().all(|r| r["state"] == "Bound"),
        "{status:#}"
    );
    // The account is found by its labels.
    let accounts = Api::<ServiceAccount>::namespaced(case.admin.clone(), SYSTEM)
        .list(&labels("my-root-sync"))
        .await?;
    let names: Vec<String> = accounts.iter().map(ResourceExt::name_any).collect();
    ensure!(names == ["root-reconciler-my-root-sync"], "{names:?}");
    // Its base rights are on its own objects only.
    let base = Api::<Role>::namespaced(case.admin.clone(), SYSTEM)
        .list(&labels("my-root-sync"))
        .await?;
    ensure!(base.items.len() == 1);
    for rule in base.iter().flat_map(|role| role.rules.iter().flatten()) {
        ensure!(
            rule.resource_names.as_deref() == Some(&["my-root-sync".to_owned()][..]),
            "{rule:?}"
        );
        let on_sync = rule.resources.as_deref() == Some(&["rootsyncs".to_owned()][..]);
        ensure!(!on_sync || !rule.verbs.iter().any(|verb| verb == "patch" || verb == "update"));
    }
    let base = base.items.first().context("no base role")?.name_any();
    changes_are_put_right(&case, "my-root-sync", &base).await
}

/// Somebody changes the role, the account and the binding of a sync.
async fn changes_are_put_right(case: &Case, sync: &str, base: &str) -> Result<()> {
    let roles: Api<Role> = Api::namespaced(case.admin.clone(), SYSTEM);
    repaired(&roles, base, "/rules", json!([])).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(case.admin.clone(), SYSTEM);
    repaired(
        &accounts,
        &format!("root-reconciler-{sync}"),
        "/metadata/labels/configsync.gke.io~1sync-kind",
        json!("RepoSync"),
    )
    .await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(case.admin.clone());
    let binding = bindings.list(&labels(sync)).await?;
    let binding = binding.items.first().context("no binding")?.name_any();
    repaired(&bindings, &binding, "/subjects", json!([])).await
}

fn roles_bound(status: &Value) -> bool {
    condition(status, "RolesBound")["status"] == "True"
}

pub async fn switch_and_back(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("switch")).await?;
    apply(&case.admin, &config_map_role("ClusterRole", "switch", "")).await?;
    let one = case
        .repo
        .commit("main", &[("a.yaml", config_map("switch", "a", "1"))])?;
    case.root_sync("switch", json!({})).await?;
    case.synced("switch", &one).await?;
    case.when("switch", "cluster-admin is told", |status| {
        condition(status, "RolesBound")["reason"] == "ClusterAdmin"
    })
    .await?;
    case.until_bound("switch", &["/ClusterRole/cluster-admin"])
        .await?;

    case.root_sync(
        "switch",
        json!({ "spec": { "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "switch", "namespace": "switch" }]}}}),
    )
    .await?;
    case.until_bound("switch", &["switch/ClusterRole/switch"]).await?;
    let two = case
        .repo
        .commit("main", &[("a.yaml", config_map("switch", "a", "2"))])?;
    case.synced("switch", &two).await?;

    case.syncs("RootSync", SYSTEM)
        .patch(
            "switch",
            &PatchParams::default(),
            &Patch::Merge(json!({ "spec": { "override": { "roleRefs": [] }}})),
        )
        .await?;
    case.until_bound("switch", &["/ClusterRole/cluster-admin"])
        .await?;
    let three = case
        .repo
        .commit("main", &[("a.yaml", config_map("switch", "a", "3"))])?;
    case.synced("switch", &three).await?;
    Ok(())
}

pub async fn removal_and_duplicates(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("removal")).await?;
    case.repo.commit("main", &[("a.txt", "")])?;
    let view = json!({ "kind": "ClusterRole", "name": "view", "namespace": "removal" });
    let edit = json!({ "kind": "ClusterRole", "name": "edit", "namespace": "removal" });
    case.root_sync(
        "removal",
        json!({ "spec": { "override": { "roleRefs": [view, edit, view, view] }}}),
    )
    .await?;
    case.until_bound(
        "removal",
        &["removal/ClusterRole/edit", "removal/ClusterRole/view"],
    )
    .await?;
    case.when("removal", "two roles are reported", |status| {
        roles_bound(status) && status["roleRefs"].as_array().is_some_and(|r| r.len() == 2)
    })
    .await?;
    case.root_sync("removal", json!({ "spec": { "override": { "roleRefs": [view] }}}))
        .await?;
    case.until_bound("removal", &["removal/ClusterRole/view"]).await?;

    // The two spellings must agree: of a contradiction only what both name counts, and never cluster-admin.
    case.syncs("RootSync", SYSTEM)
        .patch(
            "removal",
            &PatchParams::default(),
            &Patch::Merge(json!({ "spec": { "overrides": { "roleRefs": [edit] }}})),
        )
        .await?;
    case.when("removal", "the contradiction is reported", |status| {
        let stalled = condition(status, "Stalled");
        stalled["reason"] == "Validation"
            && stalled["message"].as_str().unwrap_or_default().contains("differ")
    })
    .await?;
    case.until_bound("removal", &[]).await?;
    // A misspelt field never means cluster-admin without saying so.
    let refused = case
        .root_sync("misspelt", json!({ "spec": { "overide": { "roleRefs": [view] }}}))
        .await;
    ensure!(refused.is_err());
    Ok(())
}

pub async fn missing_things(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("there")).await?;
    let commit = case.repo.commit(
        "main",
        &[
            ("a.yaml", config_map("there", "a", "1")),
            ("b.yaml", config_map("later", "b", "1")),
        ],
    )?;
    // It starts as cluster-admin, and is narrowed to roles of which one cannot be bound.
    case.root_sync(
        "missing",
        json!({ "spec": { "override": { "namespaceStrategy": "explicit" } } }),
    )
    .await?;
    case.until_bound("missing", &["/ClusterRole/cluster-admin"])
        .await?;
    case.root_sync(
        "missing",
        json!({ "spec": { "override": { "namespaceStrategy": "explicit", "roleRefs": [
            { "kind": "ClusterRole", "name": "missing-role", "namespace": "there" },
            { "kind": "ClusterRole", "name": "missing-role", "namespace": "later" },
        ]}}}),
    )
    .await?;
    // Nothing is kept alive: cluster-admin goes although a namespace is missing, and the other one is bound.
    case.until_bound("missing", &["there/ClusterRole/missing-role"])
        .await?;
    let status = case
        .when("missing", "both states are reported", |status| {
            let states: Vec<_> = status["roleRefs"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|r| r["state"].clone())
                .collect();
            states == [json!("WaitingForNamespace"), json!("RoleMissing")]
        })
        .await?;
    ensure!(
        condition(&status, "RolesBound")["status"] == "False",
        "{status:#}"
    );
    case.when("missing", "the refusal is reported", |status| {
        status["sync"]["errors"]
            .as_array()
            .is_some_and(|errors| errors.iter().any(|e| e["code"] == "2013"))
    })
    .await?;
    // The role appears, then the namespace.
    apply(&case.admin, &config_map_role("ClusterRole", "missing-role", "")).await?;
    let maps = |namespace: &str| Api::<ConfigMap>::namespaced(case.admin.clone(), namespace);
    until("the first object", || async {
        Ok(maps("there").get_opt("a").await?)
    })
    .await?;
    apply(&case.admin, &namespace("later")).await?;
    case.synced("missing", &commit).await?;
    ensure!(maps("later").get_opt("b").await?.is_some());
    case.when("missing", "every role is bound", roles_bound).await?;
    Ok(())
}

pub async fn tampering(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("tenant")).await?;
    case.repo.commit("main", &[("a.txt", "")])?;
    case.root_sync(
        "tamper",
        json!({ "spec": { "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "view", "namespace": "tenant" }]}}}),
    )
    .await?;
    case.until_bound("tamper", &["tenant/ClusterRole/view"]).await?;
    let bindings = Api::<RoleBinding>::namespaced(case.admin.clone(), "tenant");
    let original = bindings.list(&labels("tamper")).await?.items.remove(0);
    let name = original.name_any();
    let healed = |what: &'static str| {
        let (bindings, original, name) = (bindings.clone(), original.clone(), name.clone());
        async move {
            until(what, || async {
                let live = bindings.get_opt(&name).await?;
                Ok(live.filter(|live| {
                    live.role_ref == original.role_ref
                        && live.subjects == original.subjects
                        && live.metadata.labels == original.metadata.labels
                }))
            })
            .await
        }
    };
    bindings.delete(&name, &DeleteParams::default()).await?;
    healed("the deleted binding").await?;
    let subjects = json!({ "subjects": [{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "mallory" }] });
    bindings
        .patch(&name, &PatchParams::default(), &Patch::Merge(subjects))
        .await?;
    healed("the changed subjects").await?;
    let labels = json!({ "metadata": { "labels": { "configsync.gke.io/sync-name": "other" }}});
    bindings
        .patch(&name, &PatchParams::default(), &Patch::Merge(labels))
        .await?;
    healed("the changed label").await?;
    let labels = json!({ "metadata": { "labels": { "configsync.gke.io/managed-by": null }}});
    bindings
        .patch(&name, &PatchParams::default(), &Patch::Merge(labels))
        .await?;
    healed("the removed label").await?;
    // Replaced by one with another role, under the same name. Ours may be back first: then once more.
    let mut other = original.clone();
    other.metadata.resource_version = None;
    other.metadata.uid = None;
    other.role_ref.name = "edit".into();
    until("the binding is replaced", || async {
        bindings.delete(&name, &DeleteParams::default()).await?;
        Ok(bindings.create(&PostParams::default(), &other).await.ok())
    })
    .await?;
    healed("the replaced role").await?;
    case.until_bound("tamper", &["tenant/ClusterRole/view"]).await?;
    // The account itself: its tokens end with it, and the reconciler asks for one of the account that takes its place.
    let accounts = Api::<ServiceAccount>::namespaced(case.admin.clone(), SYSTEM);
    let account = "root-reconciler-tamper";
    let before = accounts.get(account).await?.uid();
    accounts.delete(account, &DeleteParams::default()).await?;
    until("another account", || async {
        let now = accounts.get_opt(account).await?.and_then(|account| account.uid());
        Ok(now.filter(|now| Some(now) != before.as_ref()))
    })
    .await?;
    let commit = case.repo.commit("main", &[("b.txt", "")])?;
    case.synced("tamper", &commit).await?;
    Ok(())
}

//! What a reconciler may not do, and how that is reported.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    core::v1::{ConfigMap, Secret},
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};

use crate::Fleet;

use super::support::{Case, SYSTEM, apply, config_map, config_map_role, namespace, until, value};

fn errors(status: &Value) -> String {
    let list = |part: &str| status[part]["errors"].as_array().cloned().unwrap_or_default();
    let all = [list("source"), list("rendering"), list("sync")].concat();
    let lines: Vec<&str> = all
        .iter()
        .filter_map(|error| error["errorMessage"].as_str())
        .collect();
    lines.join("\n")
}

fn root_sync_yaml(name: &str) -> String {
    format!(
        "apiVersion: configsync.gke.io/v1beta1\nkind: RootSync\nmetadata:\n  name: {name}\n  namespace: {SYSTEM}\nspec:\n  git: {{repo: 'file:///nowhere', auth: none}}\n  override:\n    roleRefs: [{{kind: ClusterRole, name: cluster-admin}}]\n"
    )
}

/// From Git, a narrow RootSync tries to change another one, itself, and its own rights.
pub async fn escalation(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("narrow")).await?;
    apply(&case.admin, &config_map_role("ClusterRole", "narrow", "")).await?;
    let victim = case.another()?;
    victim.repo.commit("main", &[("a.txt", "")])?;
    let roles = json!({ "spec": { "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "narrow", "namespace": "narrow" }]}}});
    victim.root_sync("victim", roles.clone()).await?;
    let binding = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\nmetadata:\n  name: narrow-more\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}\nsubjects: [{kind: ServiceAccount, name: root-reconciler-narrow, namespace: config-management-system}]\n";
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: more, namespace: narrow}\nrules: [{apiGroups: ['*'], resources: ['*'], verbs: ['*']}]\n";
    let inventory = format!(
        "apiVersion: kpt.dev/v1alpha1\nkind: ResourceGroup\nmetadata: {{name: narrow, namespace: {SYSTEM}}}\nspec: {{}}\n"
    );
    case.repo.commit(
        "main",
        &[
            ("victim.yaml", root_sync_yaml("victim")),
            ("self.yaml", root_sync_yaml("narrow")),
            ("inventory.yaml", inventory),
            ("binding.yaml", binding.to_owned()),
            ("role.yaml", role.to_owned()),
            ("good.yaml", config_map("narrow", "good", "1")),
        ],
    )?;
    case.root_sync("narrow", roles).await?;
    let status = case
        .when("narrow", "everything is refused", |status| {
            let errors = errors(status);
            [
                "patch rootsyncs.configsync.gke.io",
                "declares itself in its own source",
                "KNV1069",
                "declares its own inventory in its own source",
                "patch clusterrolebindings",
                "patch roles",
            ]
            .iter()
            .all(|text| errors.contains(text))
        })
        .await?;
    ensure!(
        errors(&status).contains("system:serviceaccount:config-management-system:root-reconciler-narrow")
    );
    // The allowed object is there all the same.
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "narrow");
    until("the allowed object", || async { Ok(maps.get_opt("good").await?) }).await?;
    // Nothing was changed.
    let victim = case.syncs("RootSync", SYSTEM).get("victim").await?;
    ensure!(victim.data["spec"]["override"]["roleRefs"][0]["name"] == "narrow");
    ensure!(
        Api::<ClusterRoleBinding>::all(case.admin.clone())
            .get_opt("narrow-more")
            .await?
            .is_none()
    );
    // The account itself, by hand: not another sync, not its own spec, not another's inventory or status.
    let account = case.as_reconciler("root-reconciler-narrow").await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("configsync.gke.io", "v1beta1", "RootSync"));
    let syncs: Api<kube::api::DynamicObject> = Api::namespaced_with(account.clone(), SYSTEM, &resource);
    ensure!(syncs.get("narrow").await.is_ok());
    let spec = Patch::Merge(json!({ "spec": { "override": { "roleRefs": [] }}}));
    for name in ["narrow", "victim"] {
        let refused = syncs.patch(name, &PatchParams::default(), &spec).await;
        ensure!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    }
    let refused = syncs
        .patch_status(
            "victim",
            &PatchParams::default(),
            &Patch::Merge(json!({ "status": { "reconciler": "x" }})),
        )
        .await;
    ensure!(matches!(refused, Err(kube::Error::Api(status)) if status.code == 403));
    let groups: Api<writ_api::kpt::ResourceGroup> = Api::namespaced(account.clone(), SYSTEM);
    ensure!(groups.get("narrow").await.is_ok());
    ensure!(groups.get("victim").await.is_err());
    ensure!(
        Api::<Secret>::namespaced(account, SYSTEM)
            .list(&ListParams::default())
            .await
            .is_err()
    );
    Ok(())
}

/// A RoleBinding-only sync works without any right in the cluster, and its drift is corrected.
pub async fn role_bindings_only(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    // More than a few: then a watch on all namespaces is tried, and refused.
    let all = ["only-a", "only-b", "only-c", "only-d", "only-e"];
    for name in all {
        apply(&case.admin, &namespace(name)).await?;
        apply(&case.admin, &config_map_role("Role", "only", name)).await?;
    }
    let files = all.map(|name| (name, config_map(name, "x", "1")));
    let files = files.map(|(name, text)| (format!("{name}.yaml"), text));
    let files: Vec<(&str, String)> = files.iter().map(|(path, text)| (&**path, text.clone())).collect();
    let commit = case.repo.commit("main", &files)?;
    let refs = all.map(|name| json!({ "kind": "Role", "name": "only", "namespace": name }));
    case.root_sync("only", json!({ "spec": { "override": { "roleRefs": refs }}}))
        .await?;
    case.synced("only", &commit).await?;
    let maps = Api::<ConfigMap>::namespaced(case.admin.clone(), "only-b");
    let drift = Patch::Merge(json!({ "data": { "key": "drift" }}));
    maps.patch("x", &PatchParams::default(), &drift).await?;
    until("the drift is corrected", || async {
        Ok((value(&maps.get("x").await?) == "1").then_some(()))
    })
    .await?;
    maps.delete("x", &DeleteParams::default()).await?;
    until("the object is back", || async { Ok(maps.get_opt("x").await?) }).await?;
    // A sync that has nothing to do comes to rest, and then writes nothing.
    let versions = async || {
        let sync = case.syncs("RootSync", SYSTEM).get("only").await?;
        let map = maps.get("x").await?;
        anyhow::Ok((sync.resource_version(), map.resource_version()))
    };
    until("three seconds without a write", || async {
        let before = versions().await?;
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        Ok((versions().await? == before).then_some(()))
    })
    .await?;
    Ok(())
}

/// Two syncs over one object: the first keeps it. A RootSync wins over a RepoSync.
pub async fn conflicts(fleet: Fleet) -> Result<()> {
    let one = Case::new(fleet).await?;
    let two = one.another()?;
    apply(&one.admin, &namespace("shared")).await?;
    let commit = one
        .repo
        .commit("main", &[("a.yaml", config_map("shared", "x", "one"))])?;
    one.root_sync("conflict-one", json!({})).await?;
    one.synced("conflict-one", &commit).await?;
    two.repo
        .commit("main", &[("a.yaml", config_map("shared", "x", "two"))])?;
    two.root_sync("conflict-two", json!({})).await?;
    let status = two
        .when("conflict-two", "the conflict is reported", |status| {
            errors(status).contains("KNV1060")
        })
        .await?;
    ensure!(errors(&status).contains(":root_conflict-one"));
    let maps = Api::<ConfigMap>::namespaced(one.admin.clone(), "shared");
    ensure!(value(&maps.get("x").await?) == "one");
    // The first gives it up; the second takes it.
    one.repo
        .commit("main", &[("b.yaml", config_map("shared", "other", "one"))])?;
    until("the second has it", || async {
        let live = maps.get_opt("x").await?;
        Ok(live.filter(|live| value(live) == "two"))
    })
    .await?;
    two.when("conflict-two", "no error is left", |status| {
        errors(status).is_empty()
    })
    .await?;

    // A RepoSync made the object first; the RootSync takes it.
    let three = one.another()?;
    three
        .repo
        .commit("main", &[("a.yaml", config_map("shared", "z", "repo"))])?;
    apply(&three.admin, &config_map_role("Role", "repo", "shared")).await?;
    three.sync("RepoSync", "shared", "repo-sync", json!({})).await?;
    apply(
        &three.admin,
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {name: repo, namespace: shared}\nroleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: repo}\nsubjects: [{kind: ServiceAccount, name: ns-reconciler-shared, namespace: config-management-system}]\n",
    )
    .await?;
    until("the RepoSync's object", || async { Ok(maps.get_opt("z").await?) }).await?;
    two.repo
        .commit("main", &[("a.yaml", config_map("shared", "z", "root"))])?;
    until("the RootSync has it", || async {
        Ok((value(&maps.get("z").await?) == "root").then_some(()))
    })
    .await?;
    three
        .when_of(
            "RepoSync",
            "shared",
            "repo-sync",
            "the RepoSync reports it",
            |status| errors(status).contains("KNV1060"),
        )
        .await?;
    Ok(())
}

/// A tenant's RepoSync: nothing but what the tenant binds, and never another namespace.
pub async fn repo_sync(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    for name in ["tenant-a", "tenant-b"] {
        apply(&case.admin, &namespace(name)).await?;
        apply(&case.admin, &config_map_role("Role", "maps", name)).await?;
    }
    case.repo.commit(
        "main",
        &[
            ("mine.yaml", config_map("tenant-a", "mine", "1")),
            ("theirs.yaml", config_map("tenant-b", "theirs", "1")),
            ("cluster.yaml", namespace("tenant-c")),
        ],
    )?;
    let refused = case
        .sync("RepoSync", "tenant-a", "team", json!({ "spec": { "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "cluster-admin" }]}}}))
        .await;
    let refused = refused.err().context("roleRefs on a RepoSync were accepted")?;
    ensure!(format!("{refused:#}").contains("bind roles to its ServiceAccount"));
    case.sync("RepoSync", "tenant-a", "team", json!({})).await?;
    // The manager tells the account, the reconciler the errors: either can be the first.
    let account = "ns-reconciler-tenant-a-team-4";
    case.when_of(
        "RepoSync",
        "tenant-a",
        "team",
        "everything is refused",
        |status| {
            let errors = errors(status);
            let refused = errors.contains("KNV2013") && errors.matches("KNV1058").count() == 2;
            refused && status["reconciler"] == account
        },
    )
    .await?;
    // The tenant binds what he may.
    apply(
        &case.admin,
        &format!("apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: maps, namespace: tenant-a}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: maps}}\nsubjects: [{{kind: ServiceAccount, name: {account}, namespace: {SYSTEM}}}]\n"),
    )
    .await?;
    let maps = |namespace: &str| Api::<ConfigMap>::namespaced(case.admin.clone(), namespace);
    until("the object", || async {
        Ok(maps("tenant-a").get_opt("mine").await?)
    })
    .await?;
    case.when_of(
        "RepoSync",
        "tenant-a",
        "team",
        "only the others are refused",
        |status| !errors(status).contains("KNV2013") && errors(status).matches("KNV1058").count() == 2,
    )
    .await?;
    ensure!(maps("tenant-b").get_opt("theirs").await?.is_none());
    // Not even with rights there.
    apply(
        &case.admin,
        &format!("apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\nmetadata: {{name: maps, namespace: tenant-b}}\nroleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: maps}}\nsubjects: [{{kind: ServiceAccount, name: {account}, namespace: {SYSTEM}}}]\n"),
    )
    .await?;
    let commit = case.repo.commit(
        "main",
        &[
            ("mine.yaml", config_map("tenant-a", "mine", "2")),
            ("theirs.yaml", config_map("tenant-b", "theirs", "2")),
        ],
    )?;
    until("the new commit", || async {
        Ok((value(&maps("tenant-a").get("mine").await?) == "2").then_some(()))
    })
    .await?;
    // What is not there and not said counts only once the reconciler has told how the commit went.
    let status = case
        .when_of(
            "RepoSync",
            "tenant-a",
            "team",
            "the commit is told of",
            |status| status["sync"]["commit"] == commit.as_str() && errors(status).contains("KNV1058"),
        )
        .await?;
    ensure!(status["lastSyncedCommit"] != commit.as_str(), "{status:#}");
    ensure!(maps("tenant-b").get_opt("theirs").await?.is_none());
    // The older version is the same.
    let older = json!({
        "apiVersion": "configsync.gke.io/v1alpha1", "kind": "RepoSync",
        "metadata": { "name": "older", "namespace": "tenant-b" }, "spec": case.source()["spec"],
    });
    apply(&case.admin, &older.to_string()).await?;
    case.when_of("RepoSync", "tenant-b", "older", "it is worked on", |status| {
        status["reconciler"] == "ns-reconciler-tenant-b-older-5" && errors(status).contains("KNV1058")
    })
    .await?;
    // Its deletion leaves nothing.
    case.delete("RepoSync", "tenant-a", "team").await?;
    case.gone("RepoSync", "tenant-a", "team").await?;
    let left = Api::<k8s_openapi::api::rbac::v1::RoleBinding>::namespaced(case.admin.clone(), "tenant-a")
        .list(&ListParams::default().labels("configsync.gke.io/sync-kind=RepoSync"))
        .await?;
    ensure!(left.items.is_empty());
    // Orphan is the default: the object stays, and nobody owns it.
    let map = maps("tenant-a").get("mine").await?;
    ensure!(!map.annotations().contains_key("configsync.gke.io/manager"));
    Ok(())
}

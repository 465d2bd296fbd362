//! The other ways to run: asked for `bind`, in pods, without a default role. Each has a control plane of its own.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{apps::v1::Deployment, core::v1::ConfigMap, rbac::v1::ClusterRoleBinding};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
    config::AuthInfo,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_runtime::health::Health;
use writ_sync::{DefaultRole, Isolation, Options, SyncId};
use writ_testenv::git::Repository;

use crate::env::{
    Case, Env, SYSTEM, apply, condition, config, config_map, config_map_role, namespace, start, token, until,
};

fn case(options: Options) -> Result<Case> {
    let env: &'static Env = Box::leak(Box::new(start(options)?));
    Ok(Case {
        env,
        admin: env.plane.client()?,
        repo: Repository::new()?,
    })
}

/// `--require-bind --default-role=none`: an editor needs `bind` on every role in force.
pub async fn require_bind() -> Result<()> {
    let case = case(Options {
        require_bind: true,
        webhook_listen: ([127, 0, 0, 1], 0).into(),
        ..Options::default()
    })?;
    // Carol may edit RootSyncs, and bind `view` in one namespace.
    apply(
        &case.admin,
        r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: carol}
rules:
- {apiGroups: [configsync.gke.io], resources: [rootsyncs], verbs: ['*']}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: carol}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: carol}
subjects: [{kind: User, name: carol}]
---
apiVersion: v1
kind: Namespace
metadata: {name: team}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: binder, namespace: team}
rules:
- {apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], resourceNames: [view], verbs: [bind]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: binder, namespace: team}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: binder}
subjects: [{kind: User, name: carol}]
",
    )
    .await?;
    let carol = case.env.plane.client_as("carol", &["system:authenticated"])?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("configsync.gke.io", "v1beta1", "RootSync"));
    let syncs: Api<kube::api::DynamicObject> = Api::namespaced_with(carol, SYSTEM, &resource);
    let edit = |name: &'static str, roles: Value, repo: &'static str| {
        let syncs = syncs.clone();
        async move {
            let object = json!({
                "apiVersion": "configsync.gke.io/v1beta1", "kind": "RootSync",
                "metadata": { "name": name, "namespace": SYSTEM },
                "spec": { "sourceFormat": "unstructured", "git": { "repo": repo, "auth": "none" }, "override": { "roleRefs": roles }},
            });
            syncs
                .patch(name, &PatchParams::apply("carol").force(), &Patch::Apply(&object))
                .await
        }
    };
    let view = json!([{ "kind": "ClusterRole", "name": "view", "namespace": "team" }]);
    edit("carols", view.clone(), "/a")
        .await
        .context("carol may bind view in her namespace")?;
    for (what, roles, repo) in [
        ("an empty list", json!([]), "/a"),
        (
            "another role",
            json!([{ "kind": "ClusterRole", "name": "admin", "namespace": "team" }]),
            "/a",
        ),
        (
            "the same role elsewhere",
            json!([{ "kind": "ClusterRole", "name": "view", "namespace": "default" }]),
            "/a",
        ),
        (
            "the same role everywhere",
            json!([{ "kind": "ClusterRole", "name": "view" }]),
            "/a",
        ),
    ] {
        let refused = edit("carols", roles, repo).await;
        let text = refused
            .err()
            .with_context(|| format!("{what} was not refused"))?
            .to_string();
        ensure!(text.contains("carol may not bind ClusterRole"), "{what}: {text}");
    }
    edit("carols", view, "/b")
        .await
        .context("her own roles, another repository")?;
    // A sync of the admin's with cluster-admin: she may not point it at her repository.
    case.root_sync("admins", json!({})).await?;
    let swap = json!({ "spec": { "git": { "repo": "/mine" }}});
    let refused = syncs
        .patch("admins", &PatchParams::default(), &Patch::Merge(&swap))
        .await;
    ensure!(refused.unwrap_err().to_string().contains("cluster-admin"));
    // What is not the spec is not asked about: the manager itself must be able to write finalizers.
    let note = json!({ "metadata": { "annotations": { "note": "x" }}});
    syncs
        .patch("admins", &PatchParams::default(), &Patch::Merge(&note))
        .await?;
    private_folders(&case).await?;
    case.when("admins", "the manager works on it", |status| {
        condition(status, "RolesBound")["reason"] == "ClusterAdmin"
    })
    .await?;
    Ok(())
}

/// Another sync's clone, and for a tenant any folder, is not a repository.
async fn private_folders(case: &Case) -> Result<()> {
    let cache = case.env.cache.join("someone");
    std::fs::create_dir_all(&cache)?;
    let repo = format!("file://{}", cache.display());
    case.root_sync("prying", json!({ "spec": { "git": { "repo": repo }}}))
        .await?;
    case.when("prying", "the clone is refused", |status| {
        status["source"]["errors"][0]["errorMessage"]
            .as_str()
            .unwrap_or_default()
            .contains("where clones are kept")
    })
    .await?;
    case.sync("RepoSync", "team", "tenant", json!({})).await?;
    case.when_of("RepoSync", "team", "tenant", "the folder is refused", |status| {
        status["source"]["errors"][0]["errorMessage"]
            .as_str()
            .unwrap_or_default()
            .contains("must not be a folder")
    })
    .await?;
    Ok(())
}

/// `--isolation=pod --default-role=none`: a Deployment per sync, whose command works with that account's token.
pub async fn pods() -> Result<()> {
    let case = case(Options {
        isolation: Isolation::Pod,
        default_role: DefaultRole::None,
        ..Options::default()
    })?;
    apply(&case.admin, &namespace("pods")).await?;
    apply(&case.admin, &config_map_role("ClusterRole", "pods", "")).await?;
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("pods", "a", "1"))])?;
    case.root_sync("pods", json!({})).await?;
    let deployments = Api::<Deployment>::namespaced(case.admin.clone(), SYSTEM);
    let deployment = until("the Deployment", || async {
        Ok(deployments.get_opt("root-reconciler-pods").await?)
    })
    .await?;
    let pod = deployment.spec.unwrap().template.spec.unwrap();
    ensure!(pod.service_account_name.as_deref() == Some("root-reconciler-pods"));
    let command = pod.containers[0].command.clone().unwrap();
    ensure!(command[..3] == ["writ", "sync", "--reconcile"], "{command:?}");
    // Without a default role it is bound to nothing.
    case.when("pods", "no roles", |status| {
        condition(status, "RolesBound")["reason"] == "NoRoles"
    })
    .await?;
    let bindings = Api::<ClusterRoleBinding>::all(case.admin.clone());
    ensure!(bindings.list(&ListParams::default()).await?.iter().all(|b| {
        b.subjects
            .iter()
            .flatten()
            .all(|subject| subject.name != "root-reconciler-pods")
    }));
    // What the command runs, with that account's token and nothing else.
    let token = token(&case.admin, SYSTEM, "root-reconciler-pods").await?;
    let account = config(case.env.plane.kubeconfig_with(AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    }))
    .await?;
    let id: SyncId = command[3].parse().map_err(anyhow::Error::msg)?;
    let stop = CancellationToken::new();
    let options = Options {
        cache: std::env::temp_dir().join(format!("writ-sync-pod-{}", std::process::id())),
        ..Options::default()
    };
    let health = Health::default();
    let running = tokio::spawn(writ_sync::reconciler::run_one(
        account,
        options,
        id,
        health,
        stop.clone(),
    ));
    case.when("pods", "the refusal", |status| {
        status["sync"]["errors"][0]["code"] == "2013"
    })
    .await?;
    case.root_sync(
        "pods",
        json!({ "spec": { "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "pods", "namespace": "pods" }]}}}),
    )
    .await?;
    case.synced("pods", &commit).await?;
    ensure!(
        Api::<ConfigMap>::namespaced(case.admin.clone(), "pods")
            .get_opt("a")
            .await?
            .is_some()
    );
    case.delete("RootSync", SYSTEM, "pods").await?;
    case.gone("RootSync", SYSTEM, "pods").await?;
    ensure!(deployments.get_opt("root-reconciler-pods").await?.is_none());
    stop.cancel();
    running.await??;
    Ok(())
}

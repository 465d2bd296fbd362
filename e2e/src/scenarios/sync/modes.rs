//! The other ways to run: asked for `bind`, in pods, without a default role.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::ValidatingWebhookConfiguration, apps::v1::Deployment, core::v1::Secret,
    rbac::v1::ClusterRoleBinding,
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use writ_sync::{DefaultRole, Isolation, Options};

use crate::{Fleet, repair::repaired};

use super::support::{Case, SYSTEM, apply, condition, config_map, namespace, until};

/// `--require-bind --default-role=none`: an editor needs `bind` on every role in force.
pub async fn require_bind(fleet: Fleet) -> Result<()> {
    // A certificate authority that nobody can use is in the way.
    fleet.hub.namespace(SYSTEM).await?;
    let secrets: Api<Secret> = Api::namespaced(fleet.hub.admin().await?, SYSTEM);
    let broken = serde_json::from_value(json!({"metadata": {"name": "writ-sync-webhook"}}))?;
    secrets.create(&PostParams::default(), &broken).await?;
    let case = Case::with(
        fleet,
        Options {
            require_bind: true,
            webhook_listen: ([127, 0, 0, 1], 0).into(),
            ..Options::default()
        },
    )
    .await?;
    // Carol may edit RootSyncs, and bind `view` in one namespace.
    apply(
        &case.admin,
        r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: carol}
rules:
- {apiGroups: [configsync.gke.io], resources: [rootsyncs, reposyncs], verbs: ['*']}
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
    let carol = case
        .env
        .cluster()
        .user("carol", &["system:authenticated"])
        .await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("configsync.gke.io", "v1beta1", "RootSync"));
    let syncs: Api<DynamicObject> = Api::namespaced_with(carol, SYSTEM, &resource);
    let as_carol = PatchParams::apply("carol").force();
    let edit_as = |params: &PatchParams, name: &'static str, roles: Value, repo: &'static str| {
        let (syncs, params) = (syncs.clone(), params.clone());
        async move {
            let object = json!({
                "apiVersion": "configsync.gke.io/v1beta1", "kind": "RootSync",
                "metadata": { "name": name, "namespace": SYSTEM },
                "spec": { "sourceFormat": "unstructured", "git": { "repo": repo, "auth": "none" }, "override": { "roleRefs": roles }},
            });
            syncs.patch(name, &params, &Patch::Apply(&object)).await
        }
    };
    let edit = |name, roles, repo| edit_as(&as_carol, name, roles, repo);
    // The API server hears a moment later of carol's rights, and of whom it is to ask.
    let trial = as_carol.clone().dry_run();
    let asked = async || {
        until("carol is asked what she may bind", || async {
            let answer = edit_as(&trial, "probe", json!([]), "/a").await;
            let refused = answer.is_err_and(|error| error.to_string().contains("carol may not bind"));
            Ok(refused.then_some(()))
        })
        .await
    };
    asked().await?;
    let view = json!([{ "kind": "ClusterRole", "name": "view", "namespace": "team" }]);
    until("carol may bind view in her namespace", || async {
        Ok(Some(edit("carols", view.clone(), "/a").await?))
    })
    .await?;
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
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(case.admin.clone());
    repaired(&configurations, "writ-sync", "/webhooks", json!([])).await?;
    secrets
        .delete("writ-sync-webhook", &DeleteParams::default())
        .await?;
    until("a certificate authority is there again, and trusted", || async {
        let authority = secrets.get("writ-sync-webhook").await?.data;
        let authority = authority.and_then(|mut data| data.remove("ca.crt"));
        let hooks = configurations.get("writ-sync").await?.webhooks;
        let hooks = hooks.unwrap_or_default().into_iter();
        let trusted: Vec<_> = hooks.map(|hook| hook.client_config.ca_bundle).collect();
        Ok((authority.is_some() && trusted == [authority]).then_some(()))
    })
    .await?;
    asked().await?;
    until("her own roles, another repository", || async {
        Ok(Some(edit("carols", view.clone(), "/b").await?))
    })
    .await?;
    // The other spelling, the other version, a new sync: the same questions are asked.
    let swapped = json!({ "spec": { "override": null, "overrides": { "roleRefs": [{ "kind": "ClusterRole", "name": "cluster-admin" }]}}});
    let older = ApiResource::from_gvk(&GroupVersionKind::gvk(
        "configsync.gke.io",
        "v1alpha1",
        "RootSync",
    ));
    let carol = case
        .env
        .cluster()
        .user("carol", &["system:authenticated"])
        .await?;
    let olds: Api<DynamicObject> = Api::namespaced_with(carol.clone(), SYSTEM, &older);
    for (what, answer) in [
        (
            "the other spelling",
            syncs
                .patch("carols", &PatchParams::default(), &Patch::Merge(&swapped))
                .await,
        ),
        (
            "the other version",
            olds.patch("carols", &PatchParams::default(), &Patch::Merge(&swapped))
                .await,
        ),
        (
            "no roles at all",
            olds.patch(
                "carols",
                &PatchParams::default(),
                &Patch::Merge(json!({ "spec": { "override": null }})),
            )
            .await,
        ),
        ("a sync without roles", edit("fresh", json!([]), "/a").await),
    ] {
        let text = answer
            .err()
            .with_context(|| format!("{what} was not refused"))?
            .to_string();
        ensure!(
            text.contains("carol may not bind ClusterRole cluster-admin"),
            "{what}: {text}"
        );
    }
    // A list that holds both what she may and what she may not bind.
    let mixed = json!([
        { "kind": "ClusterRole", "name": "view", "namespace": "team" },
        { "kind": "Role", "name": "binder", "namespace": "team" },
    ]);
    let text = edit("carols", mixed, "/a")
        .await
        .err()
        .context("one role too many")?
        .to_string();
    ensure!(text.contains("carol may not bind Role binder"), "{text}");
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("configsync.gke.io", "v1beta1", "RepoSync"));
    let repos = Api::namespaced_with(carol, "team", &resource);
    others_secrets(&case, &syncs, &repos).await?;
    // A sync of the admin's with cluster-admin: she may not point it at her repository.
    case.root_sync("admins", json!({})).await?;
    let swap = json!({ "spec": { "git": { "repo": "/mine" }}});
    let refused = syncs
        .patch("admins", &PatchParams::default(), &Patch::Merge(&swap))
        .await;
    let refused = refused.err().context("the repository was swapped")?.to_string();
    ensure!(refused.contains("cluster-admin"), "{refused}");
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
    // Whoever takes the flag away is not left with a gate that nobody keeps.
    let without = Options {
        require_bind: false,
        ..case.env.options.clone()
    };
    case.restart_with(without, async { Ok(()) }).await?;
    until("nobody is asked any more", || async {
        Ok(edit("carols", json!([]), "/c").await.ok())
    })
    .await?;
    ensure!(configurations.get_opt("writ-sync").await?.is_none());
    Ok(())
}

/// A Secret that the editor may not read is not sent to her server either, be it by a RootSync or by a RepoSync.
async fn others_secrets(case: &Case, syncs: &Api<DynamicObject>, repos: &Api<DynamicObject>) -> Result<()> {
    let none = json!({ "git": { "repo": "https://carol.example.com/x", "auth": "none" }});
    let tenants = json!({
        "apiVersion": "configsync.gke.io/v1beta1", "kind": "RepoSync",
        "metadata": { "name": "carols", "namespace": "team" }, "spec": none,
    });
    let params = PatchParams::apply("carol").force();
    repos
        .patch("carols", &params, &Patch::Apply(&tenants))
        .await
        .context("a RepoSync without a Secret asks for nothing")?;
    let token = json!({ "spec": { "git": { "repo": "https://carol.example.com/x", "auth": "token", "secretRef": { "name": "others-token" }}}});
    for (syncs, space, kind) in [(syncs, SYSTEM, "RootSync"), (repos, "team", "RepoSync")] {
        let edit = async || {
            syncs
                .patch("carols", &PatchParams::default(), &Patch::Merge(&token))
                .await
        };
        let text = edit()
            .await
            .err()
            .context("another's Secret was named")?
            .to_string();
        ensure!(
            text.contains(&format!(
                "carol may not get Secret {space}/others-token, which this {kind}"
            )),
            "{text}"
        );
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": "carol", "namespace": space },
            "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": ["others-token"], "verbs": ["get"] }],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": "carol", "namespace": space },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "carol" },
            "subjects": [{ "kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "carol" }],
        });
        for object in [role, binding] {
            apply(&case.admin, &object.to_string()).await?;
        }
        until("she may read it", || async { Ok(edit().await.ok()) }).await?;
    }
    Ok(())
}

/// Another sync's clone, and for a tenant any folder, is not a repository.
async fn private_folders(case: &Case) -> Result<()> {
    let cache = case.env.cache().join("someone");
    std::fs::create_dir_all(&cache)?;
    let repo = format!("file://{}", cache.display());
    case.root_sync("prying", json!({ "spec": { "git": { "repo": repo }}}))
        .await?;
    case.when("prying", "the clone is refused", |status| {
        status["source"]["errors"][0]["errorMessage"]
            .as_str()
            .unwrap_or_default()
            .contains("in the folder of the clones")
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

/// `--isolation=pod --default-role=none`: a Deployment per sync, kept as it shall be.
pub async fn pods(fleet: Fleet) -> Result<()> {
    let case = Case::with(
        fleet,
        Options {
            isolation: Isolation::Pod,
            default_role: DefaultRole::None,
            ..Options::default()
        },
    )
    .await?;
    case.repo.commit("main", &[("a.txt", "")])?;
    case.root_sync("pods", json!({})).await?;
    let deployments = Api::<Deployment>::namespaced(case.admin.clone(), SYSTEM);
    let image = |deployment: &Deployment| -> Option<String> {
        let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
        pod.containers.first()?.image.clone()
    };
    let first = until("the Deployment", || async {
        Ok(deployments.get_opt("root-reconciler-pods").await?)
    })
    .await?;
    // Nobody runs it here: that is said, until it does.
    case.when("pods", "it does not run", |status| {
        let reconciling = condition(status, "Reconciling");
        reconciling["status"] == "True" && reconciling["reason"] == "Deployment"
    })
    .await?;
    let runs = json!({ "status": { "replicas": 1, "readyReplicas": 1, "availableReplicas": 1 }});
    deployments
        .patch_status(
            "root-reconciler-pods",
            &PatchParams::default(),
            &Patch::Merge(runs),
        )
        .await?;
    case.when("pods", "it runs", |status| {
        condition(status, "Reconciling")["status"] == "False"
    })
    .await?;
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
    // Deleted, or made to run something else: put back at once.
    deployments
        .delete("root-reconciler-pods", &DeleteParams::default())
        .await?;
    until("the deleted Deployment", || async {
        let live = deployments.get_opt("root-reconciler-pods").await?;
        Ok(live.filter(|live| live.uid() != first.uid()))
    })
    .await?;
    let other = json!({ "spec": { "template": { "spec": { "containers": [{ "name": "reconciler", "image": "example.com/other" }]}}}});
    deployments
        .patch(
            "root-reconciler-pods",
            &PatchParams::default(),
            &Patch::Strategic(other),
        )
        .await?;
    until("the edited Deployment", || async {
        let live = deployments.get("root-reconciler-pods").await?;
        Ok((image(&live) == image(&first)).then_some(()))
    })
    .await?;
    Ok(())
}

/// Fields that Config Sync knows and that do nothing here are accepted, and named as long as they are set.
pub async fn ignored(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    apply(&case.admin, &namespace("ignored")).await?;
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("ignored", "a", "1"))])?;
    let set = json!({"spec": {"override": {"statusMode": "enabled", "reconcileTimeout": "5m"}}});
    case.root_sync("ignored", set).await?;
    case.synced("ignored", &commit).await?;
    case.when("ignored", "both fields are named", |status| {
        let ignored = condition(status, "FieldsIgnored");
        ignored["status"] == "True"
            && ignored["message"]
                == "spec.override.reconcileTimeout, spec.override.statusMode have no effect here"
    })
    .await?;
    case.root_sync(
        "ignored",
        json!({"spec": {"override": {"statusMode": "disabled"}}}),
    )
    .await?;
    case.when("ignored", "none is named any more", |status| {
        condition(status, "FieldsIgnored")["status"] == "False"
    })
    .await?;
    Ok(())
}

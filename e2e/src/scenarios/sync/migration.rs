//! Clusters on which Config Sync's own manager ran before.

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
    rbac::v1::{ClusterRoleBinding, RoleBinding},
};
use kube::{Api, api::ListParams};
use serde_json::json;

use crate::Fleet;

use super::support::{Case, SYSTEM, apply, config_map, config_map_role, namespace, until};

fn shared_binding(name: &str, role: &str, accounts: &[&str]) -> String {
    let subjects: Vec<_> = accounts
        .iter()
        .map(|account| json!({ "kind": "ServiceAccount", "name": account, "namespace": SYSTEM }))
        .collect();
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": { "name": name, "labels": { "configsync.gke.io/managed-by": "reconciler-manager", "configsync.gke.io/sync-kind": "RootSync" }},
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
        "subjects": subjects,
    })
    .to_string()
}

/// The binding to cluster-admin that all syncs shared, the pod and the randomly named bindings: none outlives the move.
pub async fn from_config_sync(fleet: Fleet) -> Result<()> {
    let case = Case::new(fleet).await?;
    for text in [namespace("moved"), config_map_role("ClusterRole", "moved", "")] {
        apply(&case.admin, &text).await?;
    }
    let commit = case
        .repo
        .commit("main", &[("a.yaml", config_map("moved", "a", "1"))])?;
    let admin = "configsync.gke.io:root-reconciler";
    let base = "configsync.gke.io:root-reconciler-base";
    let ours = "root-reconciler-moved";
    apply(
        &case.admin,
        &shared_binding(admin, "cluster-admin", &["root-reconciler-other", ours]),
    )
    .await?;
    apply(&case.admin, &shared_binding(base, admin, &[ours])).await?;
    let labels = json!({
        "configsync.gke.io/managed-by": "reconciler-manager", "configsync.gke.io/sync-kind": "RootSync",
        "configsync.gke.io/sync-name": "moved", "configsync.gke.io/sync-namespace": SYSTEM,
    });
    let random = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": { "name": "root-reconciler-moved-x7k2p", "namespace": "moved", "labels": labels },
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "admin" },
        "subjects": [{ "kind": "ServiceAccount", "name": ours, "namespace": SYSTEM }],
    });
    apply(&case.admin, &random.to_string()).await?;
    let pod = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": ours, "namespace": SYSTEM, "labels": labels },
        "spec": {
            "selector": { "matchLabels": { "configsync.gke.io/deployment-name": ours }},
            "template": {
                "metadata": { "labels": { "configsync.gke.io/deployment-name": ours }},
                "spec": { "containers": [{ "name": "reconciler", "image": "example.com/reconciler" }]},
            },
        },
    });
    apply(&case.admin, &pod.to_string()).await?;
    let narrow = json!({ "spec": { "override": { "roleRefs": [{ "kind": "ClusterRole", "name": "moved", "namespace": "moved" }]}}});
    case.root_sync("moved", narrow).await?;
    case.synced("moved", &commit).await?;
    let bindings = Api::<ClusterRoleBinding>::all(case.admin.clone());
    let subjects = |binding: ClusterRoleBinding| -> Vec<String> {
        binding
            .subjects
            .into_iter()
            .flatten()
            .map(|subject| subject.name)
            .collect()
    };
    let out = async |round: &str| {
        until(
            &format!("the account is out of the shared binding: {round}"),
            || async {
                let left = bindings.get_opt(admin).await?.map(subjects).unwrap_or_default();
                Ok((left == ["root-reconciler-other"]).then_some(()))
            },
        )
        .await
    };
    out("what was there").await?;
    apply(
        &case.admin,
        &shared_binding(admin, "cluster-admin", &["root-reconciler-other", ours]),
    )
    .await?;
    out("what comes back").await?;
    until("the binding without subjects is gone", || async {
        Ok(bindings.get_opt(base).await?.is_none().then_some(()))
    })
    .await?;
    until("the binding with a random name is gone", || async {
        let list = ListParams::default().labels("configsync.gke.io/sync-name=moved");
        let all = Api::<RoleBinding>::namespaced(case.admin.clone(), "moved")
            .list(&list)
            .await?;
        let roles: Vec<String> = all.into_iter().map(|binding| binding.role_ref.name).collect();
        Ok((roles == ["moved"]).then_some(()))
    })
    .await?;
    until("the pod of the other manager is gone", || async {
        let pods = Api::<Deployment>::namespaced(case.admin.clone(), SYSTEM);
        Ok(pods.get_opt(ours).await?.is_none().then_some(()))
    })
    .await?;
    // What the API server says in the end.
    let account = case.as_reconciler(ours).await?;
    until("the account is as narrow as its roleRefs", || async {
        let secrets = Api::<Secret>::all(account.clone())
            .list(&ListParams::default())
            .await;
        Ok(secrets.is_err().then_some(()))
    })
    .await?;
    ensure!(
        Api::<ConfigMap>::namespaced(account, "moved")
            .get_opt("a")
            .await?
            .is_some()
    );
    // The other account is untouched by the deletion of this sync.
    case.delete("RootSync", SYSTEM, "moved").await?;
    case.gone("RootSync", SYSTEM, "moved").await?;
    ensure!(bindings.get_opt(admin).await?.map(subjects).unwrap_or_default() == ["root-reconciler-other"]);
    Ok(())
}

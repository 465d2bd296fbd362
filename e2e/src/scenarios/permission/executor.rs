//! The hub's right to write works: exactly the design document's rule, asked for by admission.

use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};
use k8s_openapi::api::{events::v1::Event, rbac::v1::ClusterRoleBinding};
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
};
use serde_json::json;
use writ_api::work::ManifestWork;
use writ_hub::options::NilExecutor;

use super::support::{
    agent_options, allowed, cluster_role, condition, delete, hub_controllers, permission, spoke, start_all,
    start_with, user,
};
use crate::{Fleet, fleet::Running, wait, yaml};

const WRITER: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-work-writer}
rules:
- {apiGroups: [work.open-cluster-management.io], resources: [manifestworks], verbs: ["create"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-work-writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-work-writer}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
"#;

fn options() -> writ_hub::Options {
    let mut options = Fleet::hub_options();
    options.controllers = hub_controllers();
    options.admission.nil_executor = NilExecutor::Check;
    options
}

/// Waits until admission refuses a work of somebody who may write works but not as the agent.
async fn asked(fleet: &Fleet) -> Result<()> {
    let bob = fleet.hub.user("bob", &["system:authenticated"]).await?;
    let works: Api<ManifestWork> = Api::namespaced(bob, "cluster1");
    let manifest =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "default"}});
    let work: ManifestWork = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "probe"}, "spec": {"workload": {"manifests": [manifest]}},
    }))?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait::until_true("admission asks for execute-as", || async {
        let answer = works.create(&params, &work).await;
        Ok(answer.is_err_and(|error| error.to_string().contains("with executor /klusterlet-work-sa")))
    })
    .await
}

async fn restarted(fleet: &Fleet, hub: Running, options: writ_hub::Options) -> Result<Running> {
    hub.stop().await?;
    let hub = fleet.run_hub(options).await?;
    asked(fleet).await?;
    Ok(hub)
}

pub async fn exactly_the_rule(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    yaml::apply(&admin, WRITER).await?;
    // Only the design document's rule is left.
    let bindings: Api<ClusterRoleBinding> = Api::all(admin.clone());
    let executors = bindings.get("writ:hub:execute-as-executors").await?;
    bindings
        .delete("writ:hub:execute-as-executors", &DeleteParams::default())
        .await?;
    let parts = start_with(&fleet, options()).await?;
    asked(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let spec = |who: &str| json!({"roleBindings": [{"namespace": "a", "roleRef": cluster_role("view"), "subject": user(who)}]});
    permission(&fleet, "p", spec("alice")).await?;
    allowed(&fleet, "alice", "get", "a", true).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;

    // Without it, admission refuses the hub as it refuses everybody, the condition says so, and it heals.
    let rule = bindings.get("writ:hub:execute-as-agent").await?;
    bindings
        .delete("writ:hub:execute-as-agent", &DeleteParams::default())
        .await?;
    let hub = "system:serviceaccount:open-cluster-management-hub:writ-hub";
    let refused = format!("user {hub} cannot manipulate the Manifestwork with executor /klusterlet-work-sa");
    let changed = AtomicUsize::new(0);
    wait::until_true("the hub is refused", || async {
        // The authorizer of the API server hears of the deletion a moment later.
        let number = changed.fetch_add(1, Ordering::Relaxed);
        permission(&fleet, "p", spec(&format!("carol{number}"))).await?;
        condition_now(&fleet, &refused).await
    })
    .await?;
    // Whoever describes the permission reads it too.
    let events: Api<Event> = Api::namespaced(admin.clone(), "cluster1");
    wait::until_true("an event says so", || async {
        let events = events.list(&ListParams::default()).await?;
        Ok(events.iter().any(|event| {
            event.regarding.as_ref().is_some_and(|about| {
                about.kind.as_deref() == Some("ClusterPermission") && about.name.as_deref() == Some("p")
            }) && event.note.as_deref().is_some_and(|note| note.contains(&refused))
        }))
    })
    .await?;
    let restored = ClusterRoleBinding {
        metadata: kube::api::ObjectMeta {
            name: rule.metadata.name.clone(),
            ..kube::api::ObjectMeta::default()
        },
        ..rule
    };
    bindings.create(&PostParams::default(), &restored).await?;
    permission(&fleet, "p", spec("dave")).await?;
    allowed(&fleet, "dave", "get", "a", true).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;

    // An executor of the administrator's choice needs the second role.
    let named = writ_hub::Options {
        permission_executor: Some("open-cluster-management-agent/writ-agent".into()),
        ..options()
    };
    let hub = restarted(&fleet, parts.hub, named).await?;
    let refused = "with executor open-cluster-management-agent/writ-agent";
    condition(&fleet, "p", "Ready", "False", refused).await?;
    let restored = ClusterRoleBinding {
        metadata: kube::api::ObjectMeta {
            name: executors.metadata.name.clone(),
            ..kube::api::ObjectMeta::default()
        },
        ..executors
    };
    bindings.create(&PostParams::default(), &restored).await?;
    let works: Api<ManifestWork> = Api::namespaced(admin, "cluster1");
    wait::until_true("the work names the executor", || async {
        let list = works.list(&ListParams::default()).await?;
        let mut ours = list.items.iter().filter(|work| {
            work.metadata
                .name
                .as_deref()
                .is_some_and(|name| name.starts_with("p-"))
        });
        Ok(ours.any(|work| work.spec.executor.is_some()))
    })
    .await?;
    hub.stop().await
}

/// Whether the permission says now that its work was refused with these words.
async fn condition_now(fleet: &Fleet, words: &str) -> Result<bool> {
    let api: Api<writ_api::rbac::ClusterPermission> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    let conditions = api.get("p").await?.status.unwrap_or_default().conditions;
    ensure!(!conditions.is_empty());
    Ok(conditions
        .iter()
        .any(|c| c.reason == "ManifestWorkRefused" && c.message.contains(words)))
}

const EXECUTOR: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-executor}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects:
- {kind: ServiceAccount, name: executor, namespace: default}
";

/// The agent takes no work without an executor: the hub is told which one to name.
pub async fn named(fleet: Fleet) -> Result<()> {
    let mut agent = agent_options(&["grants", "registration", "work"]);
    agent.work.nil_executor = writ_agent::options::NilExecutor::Deny;
    let hub = |executor: Option<&str>| writ_hub::Options {
        controllers: hub_controllers(),
        permission_executor: executor.map(ToOwned::to_owned),
        ..writ_hub::Options::default()
    };
    let parts = start_all(&fleet, hub(None), agent).await?;
    fleet.cluster(1)?.namespace("a").await?;
    yaml::apply(&spoke(&fleet).await?, EXECUTOR).await?;
    let entry = json!({"namespace": "a", "roleRef": cluster_role("view"), "subject": user("alice")});
    permission(&fleet, "p", json!({ "roleBindings": [entry] })).await?;
    condition(&fleet, "p", "Ready", "False", "AppliedManifestWorkFailed").await?;
    allowed(&fleet, "alice", "get", "a", false).await?;
    parts.hub.stop().await?;
    let _hub = fleet.run_hub(hub(Some("default/executor"))).await?;
    allowed(&fleet, "alice", "get", "a", true).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    delete(&fleet, "p").await?;
    allowed(&fleet, "alice", "get", "a", false).await
}

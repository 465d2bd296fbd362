//! OCM's agent under writ's hub.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use writ_agent::options::WorkOptions;
use writ_api::{
    cluster::PlacementDecision,
    work::{AppliedManifestWork, ManifestWorkReplicaSet},
};
use writ_e2e::{
    Fleet,
    fleet::AGENT_NAMESPACE,
    scenarios::work::support::{
        accept, change, condition, config_map, config_maps, create, delete, gone, holds, manifest_condition,
        spoke, works,
    },
    wait, yaml,
};

use crate::ocm::{self, Part};

/// Both agents say that they are this one, so that one can take over from the other.
const AGENT_ID: &str = "interop";

/// Starts OCM's agent of `cluster1`, with the identity on the hub that writ's has.
pub async fn agent(fleet: &Fleet, folder: &Path) -> Result<Part> {
    accept(fleet, "cluster1").await?;
    let groups = ["system:open-cluster-management:cluster1", "system:authenticated"];
    let identity = fleet
        .hub
        .kubeconfig_as("system:open-cluster-management:cluster1:agent", &groups);
    let hub = ocm::write(folder, "hub.kubeconfig", &identity)?;
    let spoke = ocm::write(folder, "spoke.kubeconfig", fleet.cluster(1)?.kubeconfig())?;
    let args = [
        "--spoke-cluster-name=cluster1".into(),
        format!("--agent-id={AGENT_ID}"),
        format!("--hub-kubeconfig={hub}"),
        format!("--workload-source-config={hub}"),
        format!("--spoke-kubeconfig={spoke}"),
        format!("--kubeconfig={spoke}"),
        format!("--namespace={AGENT_NAMESPACE}"),
        format!("--listen=127.0.0.1:{}", ocm::free_port()?),
        "--disable-leader-election".into(),
        "--status-sync-interval=1s".into(),
    ];
    Part::start(folder, "agent", &args, &[])
}

/// Delivered, changed, pruned, reported and deleted; a replica set of writ's hub counts what OCM's agent reports.
pub async fn delivery(fleet: Fleet) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut options = Fleet::hub_options();
    options.controllers = vec!["replica_set".into()];
    let _hub = fleet.run_hub(options).await?;
    let theirs = agent(&fleet, folder.path()).await?;
    let outcome = deliver(&fleet).await;
    outcome.with_context(|| theirs.tail())
}

async fn deliver(fleet: &Fleet) -> Result<()> {
    let (works, client) = (works(fleet).await?, spoke(fleet).await?);
    let maps = config_maps(&client, "default");
    let refused = create(&works, "empty", json!({"workload": {"manifests": []}})).await;
    ensure!(refused.is_err_and(|error| format!("{error:?}").contains("manifests should not be empty")));
    let feedback = json!([{"resourceIdentifier": {"resource": "configmaps", "namespace": "default", "name": "a"},
        "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "key", "path": ".data.key"}]}],
        "conditionRules": [{"condition": "Fine", "type": "CEL", "celExpressions": ["object.data.key == '1'"]}]}]);
    create(
        &works,
        "web",
        json!({"workload": {"manifests": [config_map("default", "a", "1"), config_map("default", "b", "1")]},
            "manifestConfigs": feedback}),
    )
    .await?;
    condition(&works, "web", "Applied", "True").await?;
    let work = condition(&works, "web", "Fine", "True").await?;
    ensure!(manifest_condition(&work, 0, "StatusFeedbackSynced")?.0 == "True");
    change(
        &works,
        "web",
        json!({"spec": {"workload": {"manifests": [config_map("default", "a", "2")]}}}),
    )
    .await?;
    holds(&maps, "a", "2").await?;
    gone(&maps, "b").await?;
    delete(&works, "web").await?;
    gone(&maps, "a").await?;

    let admin = fleet.hub.admin().await?;
    let decisions: Api<PlacementDecision> = Api::namespaced(admin.clone(), "default");
    let decision: PlacementDecision = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "PlacementDecision",
        "metadata": {"name": "all-1", "labels": {"cluster.open-cluster-management.io/placement": "all",
            "cluster.open-cluster-management.io/decision-group-index": "0"}}}))?;
    decisions.create(&PostParams::default(), &decision).await?;
    let chosen = json!({"status": {"decisions": [{"clusterName": "cluster1", "reason": ""}]}});
    decisions
        .patch_status("all-1", &PatchParams::default(), &Patch::Merge(&chosen))
        .await?;
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(admin, "default");
    let set: ManifestWorkReplicaSet = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "set"},
        "spec": {"manifestWorkTemplate": {"workload": {"manifests": [config_map("default", "set", "1")]}},
            "placementRefs": [{"name": "all"}]}}))?;
    sets.create(&PostParams::default(), &set).await?;
    holds(&maps, "set", "1").await?;
    wait::until_true("the set counts the work as applied", || async {
        let status = sets.get("set").await?.status.unwrap_or_default();
        Ok(status.summary.applied == 1 && status.summary.available == 1)
    })
    .await
}

/// What writ's admission lets through, OCM's agent checks against the executor's rights.
pub async fn executor(fleet: Fleet) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut options = Fleet::hub_options();
    options.controllers = vec!["replica_set".into()];
    let _hub = fleet.run_hub(options).await?;
    let theirs = agent(&fleet, folder.path()).await?;
    let outcome = async {
        let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
        yaml::apply(
            &client,
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: robot, namespace: default}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [create, update, patch, get, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: robot, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: robot}
subjects:
- {kind: ServiceAccount, name: robot, namespace: default}
"#,
        )
        .await?;
        let spec = |account: &str| {
            json!({"workload": {"manifests": [config_map("default", account, "1")]}, "executor": {"subject": {
                "type": "ServiceAccount", "serviceAccount": {"namespace": "default", "name": account}}}})
        };
        create(&works, "granted", spec("robot")).await?;
        condition(&works, "granted", "Applied", "True").await?;
        create(&works, "refused", spec("robot2")).await?;
        let work = condition(&works, "refused", "Applied", "False").await?;
        ensure!(
            manifest_condition(&work, 0, "Applied")?
                .2
                .contains("not allowed to apply")
        );
        let bob = fleet.hub.user("bob", &["system:authenticated"]).await?;
        let by_bob = Api::namespaced(bob, "cluster1");
        yaml::apply(&fleet.hub.admin().await?, BOB).await?;
        let answer = create(&by_bob, "bob", spec("robot")).await;
        ensure!(
            answer.is_err_and(|error| format!("{error:?}").contains("cannot manipulate the Manifestwork")),
            "bob may not execute as robot"
        );
        Ok(())
    }
    .await;
    outcome.with_context(|| theirs.tail())
}

const BOB: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: interop-writer}
rules:
- {apiGroups: [work.open-cluster-management.io], resources: [manifestworks], verbs: [get, create, update, patch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: interop-writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: interop-writer}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
";

/// One agent goes, the other comes, on the same cluster and the same hub: nothing is deleted or made anew.
pub async fn hand_over(fleet: Fleet) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let anchors: Api<AppliedManifestWork> = Api::all(client.clone());
    let anchor = || async {
        let mut found = anchors.list(&ListParams::default()).await?.items;
        ensure!(found.len() == 1, "one AppliedManifestWork, not {}", found.len());
        found.pop().context("an AppliedManifestWork")
    };
    let spec = |value: &str| json!({"workload": {"manifests": [config_map("default", "a", value)]}});

    let theirs = agent(&fleet, folder.path()).await?;
    let mut first = spec("1");
    if let Some(data) = first.pointer_mut("/workload/manifests/0/data") {
        *data = json!({"key": "1", "leaves": "later"});
    }
    create(&works, "web", first).await?;
    condition(&works, "web", "Available", "True")
        .await
        .with_context(|| theirs.tail())?;
    let (map, before) = (maps.get("a").await?, anchor().await?);
    drop(theirs);

    let options = writ_agent::Options {
        controllers: vec!["work".into()],
        work: WorkOptions {
            hub_server: fleet.hub.url(),
            agent_id: Some(AGENT_ID.into()),
            ..WorkOptions::default()
        },
        ..writ_agent::Options::default()
    };
    let ours = fleet.run_agent(1, options).await?;
    change(&works, "web", json!({"spec": spec("2")})).await?;
    holds(&maps, "a", "2").await?;
    condition(&works, "web", "Applied", "True").await?;
    ensure!(
        maps.get("a").await?.uid() == map.uid(),
        "the object was made anew"
    );
    let after = anchor().await?;
    ensure!(
        (after.name_any(), after.uid()) == (before.name_any(), before.uid()),
        "the AppliedManifestWork was made anew"
    );
    ours.stop().await?;

    let theirs = agent(&fleet, folder.path()).await?;
    let outcome = async {
        change(&works, "web", json!({"spec": spec("3")})).await?;
        holds(&maps, "a", "3").await?;
        ensure!(
            maps.get("a").await?.uid() == map.uid(),
            "the object was made anew"
        );
        delete(&works, "web").await?;
        gone(&maps, "a").await?;
        ensure!(anchors.list(&ListParams::default()).await?.items.is_empty());
        Ok(())
    }
    .await;
    outcome.with_context(|| theirs.tail())
}

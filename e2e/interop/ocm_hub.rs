//! writ's agent under OCM's hub.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::{
    cluster::{Placement, PlacementDecision},
    work::{ManifestWork, ManifestWorkReplicaSet},
};
use writ_e2e::{
    Fleet,
    scenarios::work::support::{
        agent, change, condition, config_map, config_maps, create, delete, gone, holds, spoke, works,
    },
    wait, yaml,
};

use crate::ocm::{self, Part};

/// OCM's manager makes works of a replica set, writ's agent delivers them, OCM's manager counts what it reports.
pub async fn replica_set(fleet: Fleet) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let hub = ocm::write(folder.path(), "hub.kubeconfig", fleet.hub.kubeconfig())?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let args = [
        format!("--kubeconfig={hub}"),
        "--namespace=default".into(),
        format!("--listen=127.0.0.1:{}", ocm::free_port()?),
        "--disable-leader-election".into(),
        "--feature-gates=ManifestWorkReplicaSet=true".into(),
    ];
    let manager = Part::start(folder.path(), "manager", &args, &[])?;
    let outcome = roll_out(&fleet).await;
    outcome.with_context(|| manager.tail())
}

async fn roll_out(fleet: &Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    let placements: Api<Placement> = Api::namespaced(admin.clone(), "default");
    let placement: Placement = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"name": "all"}, "spec": {}}))?;
    placements.create(&PostParams::default(), &placement).await?;
    let decisions: Api<PlacementDecision> = Api::namespaced(admin.clone(), "default");
    let decision: PlacementDecision = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "PlacementDecision",
        "metadata": {"name": "all-1", "labels": {"cluster.open-cluster-management.io/placement": "all",
            "cluster.open-cluster-management.io/decision-group-index": "0",
            "cluster.open-cluster-management.io/decision-group-name": ""}}}))?;
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
            "placementRefs": [{"name": "all", "rolloutStrategy": {"type": "All", "all": {}}}]}}))?;
    sets.create(&PostParams::default(), &set).await?;
    let maps = config_maps(&spoke(fleet).await?, "default");
    holds(&maps, "set", "1").await?;
    wait::until_true(
        "OCM's manager counts the work as applied and available",
        || async {
            let status = serde_json::to_value(sets.get("set").await?.status)?;
            let count = |name: &str| {
                status
                    .pointer(&format!("/summary/{name}"))
                    .and_then(Value::as_i64)
            };
            ensure!(
                (count("applied"), count("available"), count("total")) == (Some(1), Some(1), Some(1)),
                "{status}"
            );
            Ok(true)
        },
    )
    .await?;
    sets.delete("set", &DeleteParams::default()).await?;
    gone(&maps, "set").await
}

/// OCM's webhook says who may write what; what writ's agent writes on the hub passes it.
pub async fn webhook(fleet: Fleet) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let hub = ocm::write(folder.path(), "hub.kubeconfig", fleet.hub.kubeconfig())?;
    let serving = rcgen::generate_simple_self_signed(vec!["127.0.0.1".into()])?;
    std::fs::write(folder.path().join("tls.crt"), serving.cert.pem())?;
    std::fs::write(folder.path().join("tls.key"), serving.signing_key.serialize_pem())?;
    let port = ocm::free_port()?;
    let args = [
        format!("--port={port}"),
        format!("--certdir={}", folder.path().display()),
    ];
    let server = Part::start(folder.path(), "webhook-server", &args, &[("KUBECONFIG", &hub)])?;
    install(&fleet, port, &serving.cert.pem()).await?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let outcome = guarded(&fleet).await;
    outcome.with_context(|| server.tail())
}

/// As OCM's operator installs it.
async fn install(fleet: &Fleet, port: u16, ca: &str) -> Result<()> {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let path = "validate-work-open-cluster-management-io-v1-manifestwork";
    let configuration: ValidatingWebhookConfiguration = serde_json::from_value(json!({
    "metadata": {"name": "manifestworkvalidators.admission.work.open-cluster-management.io"},
    "webhooks": [{
        "name": "manifestworkvalidators.admission.work.open-cluster-management.io",
        "failurePolicy": "Fail", "sideEffects": "None", "timeoutSeconds": 10,
        "admissionReviewVersions": ["v1"],
        "clientConfig": {"url": format!("https://127.0.0.1:{port}/{path}"), "caBundle": STANDARD.encode(ca)},
        "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": ["work.open-cluster-management.io"],
            "apiVersions": ["*"], "resources": ["manifestworks"]}],
    }]}))?;
    Api::all(fleet.hub.admin().await?)
        .create(&PostParams::default(), &configuration)
        .await?;
    Ok(())
}

const WRITERS: &str = r#"
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
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: interop-execute, namespace: cluster1}
rules:
- apiGroups: [work.open-cluster-management.io]
  resources: [manifestworks]
  verbs: [execute-as]
  resourceNames: ["system:serviceaccount:default:robot"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: interop-execute, namespace: cluster1}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: interop-execute}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
"#;

async fn guarded(fleet: &Fleet) -> Result<()> {
    let (works, client) = (works(fleet).await?, spoke(fleet).await?);
    wait::until_true("OCM's webhook refuses an empty work", || async {
        let answer = create(&works, "empty", json!({"workload": {"manifests": []}})).await;
        let text = answer.err().map(|error| format!("{error:?}")).unwrap_or_default();
        ensure!(text.contains("manifests should not be empty"), "{text}");
        Ok(true)
    })
    .await?;
    yaml::apply(&fleet.hub.admin().await?, WRITERS).await?;
    let spec = |value: &str| {
        json!({"workload": {"manifests": [config_map("default", "a", value)]}, "executor": {"subject": {
            "type": "ServiceAccount", "serviceAccount": {"namespace": "default", "name": "robot"}}}})
    };
    let bob: Api<ManifestWork> = Api::namespaced(
        fleet.hub.user("bob", &["system:authenticated"]).await?,
        "cluster1",
    );
    let answer = create(&bob, "web", spec("1")).await;
    ensure!(
        answer.is_err_and(|error| format!("{error:?}").contains("cannot manipulate the Manifestwork")),
        "bob may not execute as robot"
    );
    let alice: Api<ManifestWork> = Api::namespaced(
        fleet.hub.user("alice", &["system:authenticated"]).await?,
        "cluster1",
    );
    create(&alice, "web", spec("1")).await?;
    // The executor has no rights yet: writ's gate refuses, and applies when it is granted.
    condition(&works, "web", "Applied", "False").await?;
    yaml::apply(
        &client,
        r"
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: robot, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects:
- {kind: ServiceAccount, name: robot, namespace: default}
",
    )
    .await?;
    condition(&works, "web", "Applied", "True").await?;
    change(&alice, "web", json!({"spec": spec("2")})).await?;
    let maps = config_maps(&client, "default");
    holds(&maps, "a", "2").await?;
    delete(&works, "web").await?;
    gone(&maps, "a").await
}

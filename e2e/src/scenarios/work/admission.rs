//! Admission on the hub: who may name which executor.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccountBinding,
    cluster::PlacementDecision,
    work::{ManifestWork, ManifestWorkReplicaSet},
};
use writ_hub::options::{AdmissionOptions, ExecutorAuthorization, NilExecutor};
use writ_process::webhook;

use super::support::{accept, agent, condition, config_map, create, works};
use crate::{Fleet, fleet::Running, wait, yaml};

async fn hub(fleet: &Fleet, executor_authorization: ExecutorAuthorization) -> Result<Running> {
    hub_with(fleet, executor_authorization, NilExecutor::Allow).await
}

async fn hub_with(
    fleet: &Fleet,
    executor_authorization: ExecutorAuthorization,
    nil_executor: NilExecutor,
) -> Result<Running> {
    let defaults = AdmissionOptions::default();
    let options = writ_hub::Options {
        // Nothing but admission.
        controllers: vec!["replica_set".into()],
        admission: AdmissionOptions {
            webhooks: true,
            executor_authorization,
            nil_executor,
            server: webhook::Options {
                listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                target: webhook::Target::Url(None),
                ..defaults.server.clone()
            },
            ..defaults
        },
        ..writ_hub::Options::default()
    };
    let running = fleet.run_hub(options).await?;
    // An API server reads what webhooks there are a moment after they were written.
    let works = works(fleet).await?;
    let empty: ManifestWork = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "empty"}, "spec": {"workload": {"manifests": []}},
    }))?;
    let trial = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    wait::until_true("admission is asked", || async {
        let answer = works.create(&trial, &empty).await;
        Ok(answer.is_err_and(|error| error.to_string().contains("manifests should not be empty")))
    })
    .await?;
    Ok(running)
}

const WRITERS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: e2e-writer}
rules:
- {apiGroups: [work.open-cluster-management.io], resources: [manifestworks, manifestworkreplicasets], verbs: ["get", "create", "update", "patch"]}
- {apiGroups: [authentication.open-cluster-management.io], resources: [managedserviceaccountbindings], verbs: ["create"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: e2e-writer}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: dave}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: e2e-execute, namespace: cluster1}
rules:
- apiGroups: [work.open-cluster-management.io]
  resources: [manifestworks]
  verbs: [execute-as]
  resourceNames: ["system:serviceaccount:accounts:robot"]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: e2e-execute, namespace: cluster1}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: e2e-execute}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
"#;

fn spec(namespace: &str, name: &str, value: &str) -> Value {
    json!({"workload": {"manifests": [config_map("default", "a", value)]},
        "executor": {"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}}})
}

fn refused<T>(answer: Result<T, kube::Error>, words: &str) -> Result<()> {
    match answer {
        Ok(_) => anyhow::bail!("it was accepted, and should have been refused with {words:?}"),
        Err(error) => {
            ensure!(
                error.to_string().contains(words),
                "{error} does not say {words:?}"
            );
            Ok(())
        }
    }
}

/// `execute-as` on every change of the spec, for replica sets everywhere; bindings where they are allowed to count.
pub async fn execute_as(fleet: Fleet) -> Result<()> {
    accept(&fleet, "cluster1").await?;
    let admin = fleet.hub.admin().await?;
    yaml::apply(&admin, WRITERS).await?;
    let running = hub(&fleet, ExecutorAuthorization::ExecuteAs).await?;
    let alice = fleet.hub.user("alice", &["system:authenticated"]).await?;
    let bob = fleet.hub.user("bob", &["system:authenticated"]).await?;
    let dave = fleet.hub.user("dave", &["system:authenticated", "team"]).await?;
    let (alices, bobs): (Api<ManifestWork>, Api<ManifestWork>) = (
        Api::namespaced(alice.clone(), "cluster1"),
        Api::namespaced(bob.clone(), "cluster1"),
    );
    wait::until_true("the webhook refuses", || async {
        let answer = create(&bobs, "probe", json!({"workload": {"manifests": []}})).await;
        Ok(answer.is_err_and(|error| format!("{error:?}").contains("manifests should not be empty")))
    })
    .await?;
    create(&alices, "w", spec("accounts", "robot", "1")).await?;
    let words = "cannot manipulate the Manifestwork with executor accounts/robot in namespace cluster1";
    let work: ManifestWork =
        serde_json::from_value(json!({"apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWork", "metadata": {"name": "b"}, "spec": spec("accounts", "robot", "1")}))?;
    refused(bobs.create(&PostParams::default(), &work).await, words)?;
    // The executor stays, the payload or the delete option changes.
    for patch in [
        json!({"spec": {"workload": {"manifests": [config_map("default", "evil", "1")]}}}),
        json!({"spec": {"deleteOption": {"propagationPolicy": "Orphan"}}}),
    ] {
        refused(
            bobs.patch("w", &PatchParams::default(), &Patch::Merge(&patch))
                .await,
            words,
        )?;
    }
    // Labels are not the webhook's business; without an executor nothing is asked.
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    bobs.patch("w", &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    create(
        &bobs,
        "nil",
        json!({"workload": {"manifests": [config_map("default", "nil", "1")]}}),
    )
    .await?;
    // A similar name, and the same name in another namespace.
    for (namespace, name) in [("accounts", "robot2"), ("kube-system", "robot")] {
        let patch = json!({"spec": spec(namespace, name, "1")});
        refused(
            alices
                .patch("w", &PatchParams::default(), &Patch::Merge(&patch))
                .await,
            "cannot manipulate",
        )?;
    }
    let patch = json!({"spec": {"executor": {"subject": null}}});
    refused(
        alices
            .patch("w", &PatchParams::default(), &Patch::Merge(&patch))
            .await,
        "spec.executor.subject is missing",
    )?;

    // A replica set reaches all clusters: what alice has in one is not enough.
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(alice.clone(), "default");
    let set: ManifestWorkReplicaSet = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
        "metadata": {"name": "all"},
        "spec": {"manifestWorkTemplate": spec("accounts", "robot", "1"), "placementRefs": [{"name": "all"}]}}))?;
    refused(
        sets.create(&PostParams::default(), &set).await,
        "execute-as is needed in all namespaces",
    )?;
    running.stop().await?;

    let running = hub(&fleet, ExecutorAuthorization::Either).await?;
    let add_ons: Api<ManagedClusterAddOn> = Api::namespaced(admin.clone(), "cluster1");
    let add_on: ManagedClusterAddOn = serde_json::from_value(json!({
        "apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterAddOn",
        "metadata": {"name": "managed-serviceaccount"}, "spec": {"installNamespace": "accounts"}}))?;
    add_ons.create(&PostParams::default(), &add_on).await?;
    let binding: ManagedServiceAccountBinding = serde_json::from_value(json!({
        "apiVersion": "authentication.open-cluster-management.io/v1alpha1", "kind": "ManagedServiceAccountBinding",
        "metadata": {"name": "robot"},
        "spec": {"ref": {"name": "robot"}, "subjects": [{"kind": "Group", "name": "team"}]}}))?;
    // Whoever lets others execute as an account must be allowed to.
    let by_dave: Api<ManagedServiceAccountBinding> = Api::namespaced(dave.clone(), "cluster1");
    wait::until_true("admission of the new hub refuses it", || async {
        // Each webhook has a configuration of its own, and the API server reads them one after the other.
        let answer = by_dave.create(&PostParams::default(), &binding).await;
        refused(answer, "needs execute-as itself").map(|()| true)
    })
    .await?;
    let by_alice: Api<ManagedServiceAccountBinding> = Api::namespaced(alice.clone(), "cluster1");
    by_alice.create(&PostParams::default(), &binding).await?;
    let daves: Api<ManifestWork> = Api::namespaced(dave.clone(), "cluster1");
    create(&daves, "dave", spec("accounts", "robot", "1")).await?;
    // The binding is about the add-on's account, not about others of that name.
    let work: ManifestWork =
        serde_json::from_value(json!({"apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWork", "metadata": {"name": "d"}, "spec": spec("kube-system", "robot", "1")}))?;
    refused(
        daves.create(&PostParams::default(), &work).await,
        "cannot manipulate",
    )?;
    // And a replica set needs execute-as, never a binding.
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(dave, "default");
    refused(
        sets.create(&PostParams::default(), &set).await,
        "execute-as is needed in all namespaces",
    )?;
    running.stop().await
}

/// Where only bindings count, the hub itself still writes the works of a set whose author was asked; nobody else does.
/// And where no executor is an executor, it takes `execute-as`.
pub async fn by_binding_only(fleet: Fleet) -> Result<()> {
    accept(&fleet, "cluster1").await?;
    let admin = fleet.hub.admin().await?;
    yaml::apply(&admin, WRITERS).await?;
    let running = hub_with(&fleet, ExecutorAuthorization::Binding, NilExecutor::Check).await?;
    let alice = fleet.hub.user("alice", &["system:authenticated"]).await?;
    let alices: Api<ManifestWork> = Api::namespaced(alice, "cluster1");
    wait::until_true("the webhook refuses", || async {
        let answer = create(&alices, "probe", json!({"workload": {"manifests": []}})).await;
        Ok(answer.is_err_and(|error| format!("{error:?}").contains("manifests should not be empty")))
    })
    .await?;
    let work = |name: &str, spec: Value| -> Result<ManifestWork> {
        Ok(serde_json::from_value(
            json!({"apiVersion": "work.open-cluster-management.io/v1",
            "kind": "ManifestWork", "metadata": {"name": name}, "spec": spec}),
        )?)
    };
    // What alice has is the permission, and no binding.
    let robots = work("robots", spec("accounts", "robot", "1"))?;
    refused(
        alices.create(&PostParams::default(), &robots).await,
        "cannot manipulate the Manifestwork with executor accounts/robot",
    )?;
    let plain = json!({"workload": {"manifests": [config_map("default", "nil", "1")]}});
    refused(
        alices
            .create(&PostParams::default(), &work("nil", plain.clone())?)
            .await,
        "cannot manipulate the Manifestwork with executor /klusterlet-work-sa",
    )?;
    // The admin may do all, and so name any executor of a set; the hub writes its works.
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
    let sets: Api<ManifestWorkReplicaSet> = Api::namespaced(admin.clone(), "default");
    for (name, template) in [("with", spec("accounts", "robot", "1")), ("without", plain)] {
        let set: ManifestWorkReplicaSet = serde_json::from_value(json!({
            "apiVersion": "work.open-cluster-management.io/v1alpha1", "kind": "ManifestWorkReplicaSet",
            "metadata": {"name": name},
            "spec": {"manifestWorkTemplate": template, "placementRefs": [{"name": "all"}]}}))?;
        sets.create(&PostParams::default(), &set).await?;
    }
    let works: Api<ManifestWork> = Api::namespaced(admin, "cluster1");
    wait::until_true("the hub has written both works", || async {
        Ok(works.list(&ListParams::default()).await?.items.len() == 2)
    })
    .await?;
    running.stop().await
}

/// With the webhook down a new spec is refused, and an agent still finishes a deletion.
pub async fn down(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let works = works(&fleet).await?;
    let running = hub(&fleet, ExecutorAuthorization::ExecuteAs).await?;
    create(
        &works,
        "w",
        json!({"workload": {"manifests": [config_map("default", "a", "1")]}}),
    )
    .await?;
    condition(&works, "w", "Applied", "True").await?;
    running.stop().await?;
    let refusal = create(
        &works,
        "late",
        json!({"workload": {"manifests": [config_map("default", "b", "1")]}}),
    )
    .await
    .err()
    .context("it was accepted without the webhook")?;
    let text = format!("{refusal:?}");
    ensure!(text.contains("manifestworkvalidators"), "{text}");
    super::support::delete(&works, "w").await
}

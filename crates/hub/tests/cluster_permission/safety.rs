//! What must hold when the hub refuses writes, or when works are edited.

use anyhow::{Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::{rbac::ClusterPermission, work::ManifestWork};
use writ_hub::Options;

use crate::support::{Hub, binding, cluster, condition, holds, install, permission, put, until, user};

fn options() -> Options {
    Options {
        controllers: vec!["cluster_permission".into()],
        ..Options::default()
    }
}

/// The hub refuses the new content of a work: what the old one granted and the new one does not is revoked, and what
/// both grant stays. Also where the work's owner reference was removed.
pub async fn reduced() -> Result<()> {
    let hub = Hub::start().await?;
    let client = hub.client.clone();
    cluster(&client, "c1").await?;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "no-mallory"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": ["work.open-cluster-management.io"],
                "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE"], "resources": ["manifestworks"]}]},
            "validations": [{"message": "mallory gets nothing",
                "expression": "object.spec.workload.manifests.all(m, !has(m.subjects) || m.subjects.all(s, s.name != 'mallory'))"}]}});
    put(&client, policy).await?;
    let bound = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "no-mallory"}, "spec": {"policyName": "no-mallory", "validationActions": ["Deny"]}});
    put(&client, bound).await?;
    let works: Api<ManifestWork> = Api::namespaced(client.clone(), "c1");
    let bad: ManifestWork = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork", "metadata": {"name": "probe"},
        "spec": {"workload": {"manifests": [{"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "subjects": [{"name": "mallory"}]}]}},
    }))?;
    let trial = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    until("the policy is in force", || async {
        ensure!(works.create(&trial, &bad).await.is_err());
        Ok(())
    })
    .await?;

    let running = hub.run(options()).await?;
    let spec = |second: Value| json!({"roleBindings": [binding("a", "kept", &user("u")), second]});
    permission(&client, "c1", "p", spec(binding("a", "old", &user("u")))).await?;
    holds(&client, "c1", &["RoleBinding a/kept u", "RoleBinding a/old u"]).await?;
    let name = works.list(&ListParams::default()).await?.items[0].name_any();
    permission(&client, "c1", "p", spec(binding("a", "new", &user("mallory")))).await?;
    holds(&client, "c1", &["RoleBinding a/kept u"]).await?;
    condition(&client, "c1", "p", "Ready", "False", "mallory gets nothing").await?;

    // The owner is replaced by another controller.
    let thief = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "thief", "uid": "1-2-3", "controller": true}]);
    let patch = Patch::Merge(json!({"metadata": {"ownerReferences": thief}}));
    works.patch(&name, &PatchParams::default(), &patch).await?;
    until("the owner is back", || async {
        let owners = works
            .get(&name)
            .await?
            .metadata
            .owner_references
            .unwrap_or_default();
        ensure!(
            owners.len() == 1 && owners[0].kind == "ClusterPermission",
            "{owners:?}"
        );
        Ok(())
    })
    .await?;
    holds(&client, "c1", &["RoleBinding a/kept u"]).await?;
    running.stop().await
}

/// The hub refuses every change of a work: a work that must lose something is deleted, and made again with the rest.
pub async fn not_even_reduced() -> Result<()> {
    let hub = Hub::start().await?;
    let client = hub.client.clone();
    cluster(&client, "c1").await?;
    let running = hub.run(options()).await?;
    let (kept, old) = (binding("a", "kept", &user("u")), binding("a", "old", &user("u")));
    permission(&client, "c1", "p", json!({"roleBindings": [kept, old]})).await?;
    holds(&client, "c1", &["RoleBinding a/kept u", "RoleBinding a/old u"]).await?;
    let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "frozen"}, "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": ["work.open-cluster-management.io"],
                "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["manifestworks"]}]},
            "validations": [{"message": "works are frozen", "expression": "false"}]}});
    put(&client, policy).await?;
    let bound = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "frozen"}, "spec": {"policyName": "frozen", "validationActions": ["Deny"]}});
    put(&client, bound).await?;
    let works: Api<ManifestWork> = Api::namespaced(client.clone(), "c1");
    let name = works.list(&ListParams::default()).await?.items[0].name_any();
    let trial = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    until("the policy is in force", || async {
        ensure!(works.patch(&name, &trial, &label).await.is_err());
        Ok(())
    })
    .await?;
    permission(&client, "c1", "p", json!({ "roleBindings": [kept] })).await?;
    holds(&client, "c1", &["RoleBinding a/kept u"]).await?;
    running.stop().await
}

/// Admission allows less than usual: the works are smaller, and there are more of them.
pub async fn small_works() -> Result<()> {
    let hub = Hub::start().await?;
    let client = hub.client.clone();
    cluster(&client, "c1").await?;
    let mut options = options();
    options.admission.manifest_limit = 1000;
    let running = hub.run(options).await?;
    let bindings = ["b1", "b2", "b3", "b4"].map(|name| binding("a", name, &user("u")));
    permission(&client, "c1", "p", json!({ "roleBindings": bindings })).await?;
    let wanted = ["b1 u", "b2 u", "b3 u", "b4 u"].map(|name| format!("RoleBinding a/{name}"));
    holds(&client, "c1", &wanted.each_ref().map(String::as_str)).await?;
    let works: Api<ManifestWork> = Api::namespaced(client.clone(), "c1");
    for work in works.list(&ListParams::default()).await? {
        let manifests = work.spec.workload.manifests.iter();
        let size: usize = manifests.map(|manifest| manifest.0.to_string().len()).sum();
        ensure!(size < 1000, "{} has {size} bytes", work.name_any());
    }
    running.stop().await
}

/// A permission is deleted and made again while no hub runs: the works of the first go, without a garbage collector.
pub async fn made_again() -> Result<()> {
    let hub = Hub::start().await?;
    let client = hub.client.clone();
    cluster(&client, "c1").await?;
    let running = hub.run(options()).await?;
    let spec = |name: &str| json!({"roleBindings": [binding("a", name, &user("u"))]});
    permission(&client, "c1", "p", spec("first")).await?;
    holds(&client, "c1", &["RoleBinding a/first u"]).await?;
    running.stop().await?;
    let permissions: Api<ClusterPermission> = Api::namespaced(client.clone(), "c1");
    permissions.delete("p", &DeleteParams::default()).await?;
    permission(&client, "c1", "p", spec("second")).await?;
    let running = hub.run(options()).await?;
    holds(&client, "c1", &["RoleBinding a/second u"]).await?;
    // And while it runs.
    permissions.delete("p", &DeleteParams::default()).await?;
    permission(&client, "c1", "p", spec("third")).await?;
    holds(&client, "c1", &["RoleBinding a/third u"]).await?;
    running.stop().await
}

/// There are no ManagedServiceAccounts on this hub yet.
pub async fn cannot_be_read() -> Result<()> {
    let hub = Hub::start().await?;
    let client = hub.client.clone();
    cluster(&client, "c1").await?;
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let missing = "managedserviceaccounts.authentication.open-cluster-management.io";
    definitions.delete(missing, &DeleteParams::default()).await?;
    until("the definition is gone", || async {
        ensure!(definitions.get_opt(missing).await?.is_none());
        Ok(())
    })
    .await?;
    let (health, running) = hub.spawn(options());
    let robot = json!({"kind": "ManagedServiceAccount", "name": "robot", "apiGroup": "authentication.open-cluster-management.io"});
    let spec = |who: &str| json!({"roleBindings": [binding("a", "people", &user(who)), binding("a", "robots", &robot)]});
    permission(&client, "c1", "p", spec("one")).await?;
    holds(&client, "c1", &["RoleBinding a/people one"]).await?;
    condition(
        &client,
        "c1",
        "p",
        "Ready",
        "False",
        "has not been able to read ManagedServiceAccounts",
    )
    .await?;
    ensure!(health.closed() == ["cluster_permission: watch ManagedServiceAccounts"]);
    permission(&client, "c1", "p", spec("two")).await?;
    holds(&client, "c1", &["RoleBinding a/people two"]).await?;
    let back = writ_api::crds()
        .iter()
        .filter(|crd| crd.name_any() == missing)
        .cloned();
    install(&client, back.collect()).await?;
    condition(
        &client,
        "c1",
        "p",
        "Ready",
        "False",
        "ManagedServiceAccount c1/robot does not exist",
    )
    .await?;
    running.stop().await
}

//! What the status says while something cannot be written: on the hub, on the managed cluster, or because it ends.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{
        ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, ValidatingWebhookConfiguration,
    },
    rbac::v1::RoleBinding,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::{
    authentication::ManagedServiceAccount,
    rbac::{ClusterPermission, cluster_permission::CONDITION_PENDING},
    work::ManifestWork,
};

use super::support::{
    agent_options, allowed, cluster_role, condition, delete, join, may, permission, spoke, start, user,
};
use crate::{Fleet, wait};

fn shared(subjects: &[Value]) -> Value {
    json!({"roleBindings": [
        {"namespace": "a", "name": "shared", "roleRef": cluster_role("view"), "subjects": subjects}]})
}

/// The hub cannot write the work: no object is called applied with the content that is wanted now.
pub async fn work_not_written(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    permission(&fleet, "p", shared(&[user("alice")])).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let hub = fleet.hub.admin().await?;
    let hooks: Api<ValidatingWebhookConfiguration> = Api::all(hub.clone());
    // Nobody answers there.
    let hook: ValidatingWebhookConfiguration = serde_json::from_value(json!({
        "metadata": {"name": "nobody"},
        "webhooks": [{"name": "nobody.example.com", "admissionReviewVersions": ["v1"], "sideEffects": "None",
            "timeoutSeconds": 1, "failurePolicy": "Fail", "clientConfig": {"url": "https://127.0.0.1:1/"},
            "rules": [{"apiGroups": ["work.open-cluster-management.io"], "apiVersions": ["v1"],
                "operations": ["UPDATE"], "resources": ["manifestworks"]}]}],
    }))?;
    hooks.create(&PostParams::default(), &hook).await?;
    let works: Api<ManifestWork> = Api::namespaced(hub, "cluster1");
    let all = works.list(&ListParams::default()).await?;
    let name = all.items.first().and_then(|work| work.metadata.name.clone());
    let name = name.context("no work")?;
    let trial = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    wait::until_true("works cannot be written", || async {
        Ok(works.patch(&name, &trial, &label).await.is_err())
    })
    .await?;

    permission(&fleet, "p", shared(&[user("bob")])).await?;
    let found = condition(&fleet, "p", "Ready", "False", "nobody.example.com").await?;
    let generation = found.metadata.generation;
    let objects = found
        .status
        .unwrap_or_default()
        .resource_status
        .unwrap_or_default();
    let said = objects.role_bindings.first().and_then(|o| o.condition.first());
    let said = said.context("the binding is not listed")?;
    ensure!(
        said.status == "Unknown" && said.reason == "ApplyPending" && said.observed_generation == generation,
        "{said:?}"
    );
    ensure!(!may(&spoke(&fleet).await?, "bob", "get", "a").await?);
    hooks.delete("nobody", &DeleteParams::default()).await?;
    allowed(&fleet, "bob", "get", "a", true).await?;
    let found = condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let objects = found
        .status
        .unwrap_or_default()
        .resource_status
        .unwrap_or_default();
    let said = objects.role_bindings.first().and_then(|o| o.condition.first());
    ensure!(said.is_some_and(|said| said.status == "True"), "{said:?}");
    Ok(())
}

/// The agent cannot take the subject that is gone out of a binding: nobody calls it revoked.
pub async fn not_narrowed(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    let robot: ManagedServiceAccount =
        serde_json::from_value(json!({"metadata": {"name": "robot"}, "spec": {"rotation": {}}}))?;
    accounts.create(&PostParams::default(), &robot).await?;
    let account = json!({"kind": "ManagedServiceAccount", "name": "robot", "apiGroup": "authentication.open-cluster-management.io"});
    permission(&fleet, "p", shared(&[user("alice"), account])).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let client = spoke(&fleet).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "a");
    let subjects = async || -> Result<usize> {
        let binding = bindings.get("shared").await?;
        Ok(binding.subjects.unwrap_or_default().len())
    };
    ensure!(subjects().await? == 2);

    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let bound: Api<ValidatingAdmissionPolicyBinding> = Api::all(client);
    let policy: ValidatingAdmissionPolicy = serde_json::from_value(json!({
        "metadata": {"name": "frozen"},
        "spec": {
            "matchConstraints": {"resourceRules": [{"apiGroups": ["rbac.authorization.k8s.io"], "apiVersions": ["v1"],
                "operations": ["UPDATE"], "resources": ["rolebindings"]}]},
            "validations": [{"message": "it is frozen", "expression": "object.metadata.name != 'shared'"}]},
    }))?;
    policies.create(&PostParams::default(), &policy).await?;
    let binding: ValidatingAdmissionPolicyBinding = serde_json::from_value(json!({
        "metadata": {"name": "frozen"}, "spec": {"policyName": "frozen", "validationActions": ["Deny"]}}))?;
    bound.create(&PostParams::default(), &binding).await?;
    let trial = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    wait::until_true("the binding cannot be written", || async {
        Ok(bindings.patch("shared", &trial, &label).await.is_err())
    })
    .await?;

    accounts.delete("robot", &DeleteParams::default()).await?;
    let words =
        "the agent could not apply RoleBinding a/shared, so what that granted before may still be in force";
    let found = condition(&fleet, "p", "SubjectPresent", "False", words).await?;
    ensure!(subjects().await? == 2);
    let conditions = found.status.unwrap_or_default().conditions;
    ensure!(
        conditions.iter().all(|c| !c.message.contains("is revoked")),
        "{conditions:?}"
    );
    bound.delete("frozen", &DeleteParams::default()).await?;
    policies.delete("frozen", &DeleteParams::default()).await?;
    wait::until_true("the robot is out of the binding", || async {
        Ok(subjects().await? == 1)
    })
    .await?;
    let words = "what was granted to it is revoked until it exists";
    condition(&fleet, "p", "SubjectPresent", "False", words).await?;
    Ok(())
}

/// A permission that is deleted and that somebody's finalizer keeps says what is left of it.
pub async fn kept(fleet: Fleet) -> Result<()> {
    let parts = start(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    permission(&fleet, "p", shared(&[user("alice")])).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "alice", "get", "a", true).await?;
    let api: Api<ClusterPermission> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    let finalizers = async |names: Value| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": names}}));
        api.patch("p", &PatchParams::default(), &patch).await
    };
    finalizers(json!(["example.com/keep"])).await?;
    parts.agent.stop().await?;
    delete(&fleet, "p").await?;
    condition(&fleet, "p", "Ready", "False", "Deleting").await?;
    let found = condition(
        &fleet,
        "p",
        "Ready",
        "False",
        "is still there: what it grants ends",
    )
    .await?;
    let status = found.status.unwrap_or_default();
    let (pending, others): (Vec<_>, Vec<_>) = status
        .conditions
        .iter()
        .partition(|c| c.type_ == CONDITION_PENDING);
    ensure!(
        pending.len() == 1 && others.iter().all(|c| c.reason == "Deleting"),
        "{:?}",
        status.conditions
    );
    ensure!(status.resource_status.is_none());

    let _agent = join(
        &fleet,
        1,
        agent_options(&["grants", "registration", "tokens", "work"]),
    )
    .await?;
    allowed(&fleet, "alice", "get", "a", false).await?;
    let words = "everything that it granted is gone; its finalizers keep it: example.com/keep";
    condition(&fleet, "p", "Ready", "False", words).await?;
    finalizers(Value::Null).await?;
    wait::until_true("it is gone", || async { Ok(api.get_opt("p").await?.is_none()) }).await
}

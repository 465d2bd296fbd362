//! What an agent may not do on the hub.

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
    core::v1::{Secret, ServiceAccount},
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use writ_api::authentication::ManagedServiceAccount;

use super::{Stage, forbidden};
use crate::{Fleet, wait::until};

pub async fn an_agent_reaches_nothing_else(fleet: Fleet) -> Result<()> {
    let stage = Stage::set(fleet).await?;
    for cluster in ["cluster1", "cluster2"] {
        stage.create(cluster, "robot", json!({ "rotation": {} })).await?;
        stage.token(cluster, "robot", &[]).await?;
    }
    let other: Secret = secret("import-credentials", "Opaque", &json!({}))?;
    stage
        .secrets("cluster1")
        .create(&PostParams::default(), &other)
        .await?;
    // The policy is about agents: others write Secrets of any kind, in namespaces of clusters and elsewhere.
    stage
        .secrets("default")
        .create(&PostParams::default(), &other)
        .await?;
    let agent = stage.fleet.agent_identity("cluster1").await?;
    let (own, foreign): (Api<Secret>, Api<Secret>) = (
        Api::namespaced(agent.clone(), "cluster1"),
        Api::namespaced(agent.clone(), "cluster2"),
    );
    ensure!(own.get("robot").await.is_ok(), "its own account's Secret");

    // Nothing of another cluster.
    forbidden("read another cluster's Secret", foreign.get("robot").await)?;
    forbidden(
        "list another cluster's Secrets",
        foreign.list(&ListParams::default()).await,
    )?;
    let touch = Patch::Merge(json!({ "metadata": { "labels": { "x": "y" } } }));
    forbidden(
        "change another cluster's Secret",
        foreign.patch("robot", &PatchParams::default(), &touch).await,
    )?;
    forbidden(
        "create a Secret for another cluster",
        foreign
            .create(&PostParams::default(), &owned("robot2", "Opaque")?)
            .await,
    )?;
    let accounts = Api::<ManagedServiceAccount>::namespaced(agent.clone(), "cluster2");
    forbidden(
        "list another cluster's accounts",
        accounts.list(&ListParams::default()).await,
    )?;
    forbidden(
        "report for another cluster",
        accounts
            .patch_status("robot", &PatchParams::default(), &touch)
            .await,
    )?;

    // Nothing else in its own namespace.
    forbidden("read another Secret", own.get("import-credentials").await)?;
    forbidden("list Secrets", own.list(&ListParams::default()).await)?;
    forbidden(
        "delete another Secret",
        own.delete("import-credentials", &DeleteParams::default()).await,
    )?;
    let accounts = Api::<ManagedServiceAccount>::namespaced(agent.clone(), "cluster1");
    forbidden(
        "create an account",
        accounts
            .create(
                &PostParams::default(),
                &stage.accounts("cluster1").get("robot").await?,
            )
            .await,
    )?;
    forbidden(
        "delete an account",
        accounts.delete("robot", &DeleteParams::default()).await,
    )?;

    // Its own Secret stays an account's: no ServiceAccount of the hub, no other owner.
    let change = async |patch: Value| {
        own.patch("robot", &PatchParams::default(), &Patch::Merge(patch))
            .await
    };
    forbidden(
        "name a ServiceAccount of the hub in its Secret",
        change(
            json!({ "metadata": { "annotations": { "kubernetes.io/service-account.name": "powerful" } } }),
        )
        .await,
    )?;
    forbidden(
        "take its Secret from its account",
        change(json!({ "metadata": { "ownerReferences": null } })).await,
    )?;
    // Nothing else on the hub.
    let everywhere: Api<Secret> = Api::all(agent.clone());
    forbidden("list all Secrets", everywhere.list(&ListParams::default()).await)?;
    let hub_own: Api<Secret> = Api::namespaced(agent.clone(), crate::fleet::HUB_NAMESPACE);
    forbidden(
        "list the hub's own Secrets",
        hub_own.list(&ListParams::default()).await,
    )?;
    let roles: Api<k8s_openapi::api::rbac::v1::Role> = Api::namespaced(agent.clone(), "cluster1");
    forbidden("list other Roles", roles.list(&ListParams::default()).await)?;
    forbidden(
        "widen its own Role",
        roles
            .patch(
                "managed-serviceaccount-addon-agent",
                &PatchParams::default(),
                &touch,
            )
            .await,
    )?;
    let hub_accounts: Api<ServiceAccount> = Api::namespaced(agent.clone(), "cluster1");
    forbidden(
        "make a ServiceAccount on the hub",
        hub_accounts
            .create(
                &PostParams::default(),
                &serde_json::from_value(json!({ "metadata": { "name": "mine" } }))?,
            )
            .await,
    )?;

    // No Secret of a name, type, annotation or owner that is not an account's; above all no token of the hub.
    let hub_account: ServiceAccount = serde_json::from_value(json!({ "metadata": { "name": "powerful" } }))?;
    Api::namespaced(stage.admin.clone(), "cluster1")
        .create(&PostParams::default(), &hub_account)
        .await?;
    let create = async |secret: Secret| own.create(&PostParams::default(), &secret).await;
    forbidden(
        "create a Secret of no account",
        create(owned("robot2", "Opaque")?).await,
    )?;
    own.delete("robot", &DeleteParams::default()).await?;
    let annotation = json!({ "kubernetes.io/service-account.name": "powerful" });
    let mut theft = owned("robot", "kubernetes.io/service-account-token")?;
    theft.metadata.annotations = serde_json::from_value(annotation.clone())?;
    forbidden("create a Secret for a token of the hub", create(theft).await)?;
    forbidden(
        "create a Secret of another type",
        create(owned("robot", "example.com/other")?).await,
    )?;
    let mut annotated = owned("robot", "Opaque")?;
    annotated.metadata.annotations = serde_json::from_value(annotation)?;
    forbidden(
        "create a Secret that names a ServiceAccount of the hub",
        create(annotated).await,
    )?;
    forbidden(
        "create a Secret without its owner",
        create(secret("robot", "Opaque", &json!({}))?).await,
    )?;
    no_agent_clears_itself(&stage, &agent).await?;
    the_policy_stays_whole(&stage).await
}

/// An account of the name of a foreign Secret: whatever its agent reports, the Secret is not the agent's to read.
async fn no_agent_clears_itself(stage: &Stage, agent: &Client) -> Result<()> {
    let name = "import-credentials";
    stage.create("cluster1", name, json!({ "rotation": {} })).await?;
    let claimed = json!({ "status": { "secretDigest": "sha256:x", "tokenSecretRef": {
        "name": name, "lastRefreshTimestamp": "2026-01-01T00:00:00Z" } } });
    Api::<ManagedServiceAccount>::namespaced(agent.clone(), "cluster1")
        .patch_status(name, &PatchParams::default(), &Patch::Merge(&claimed))
        .await?;
    // The hub has looked at this cluster since, when an account that came later has its token.
    stage
        .create("cluster1", "later", json!({ "rotation": {} }))
        .await?;
    stage.token("cluster1", "later", &[]).await?;
    let own: Api<Secret> = Api::namespaced(agent.clone(), "cluster1");
    forbidden("read a Secret by reporting it", own.get(name).await)
}

/// A policy that somebody makes exceptions to is brought back, with its binding.
async fn the_policy_stays_whole(stage: &Stage) -> Result<()> {
    let name = "managed-serviceaccount-secrets.writ.dev";
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(stage.admin.clone());
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(stage.admin.clone());
    let selector = json!({ "namespaceSelector": { "matchLabels": { "no": "such" } } });
    let (policy, binding) = (
        Patch::Merge(json!({ "spec": { "matchConstraints": selector } })),
        Patch::Merge(json!({ "spec": { "matchResources": selector } })),
    );
    policies.patch(name, &PatchParams::default(), &policy).await?;
    bindings.patch(name, &PatchParams::default(), &binding).await?;
    until("the policy to be whole again", || async {
        let (policy, binding) = (policies.get(name).await?, bindings.get(name).await?);
        let constraints = policy
            .spec
            .unwrap_or_default()
            .match_constraints
            .unwrap_or_default();
        let selects = constraints.namespace_selector.unwrap_or_default();
        Ok((selects.match_labels.is_none() && binding.spec.match_resources.is_none()).then_some(()))
    })
    .await?;
    // The right to create comes back with it.
    stage
        .create("cluster1", "after", json!({ "rotation": {} }))
        .await?;
    stage.token("cluster1", "after", &[]).await.map(drop)
}

fn secret(name: &str, type_: &str, more: &Value) -> Result<Secret> {
    let mut secret = json!({ "metadata": { "name": name }, "type": type_, "stringData": { "token": "x" } });
    if let (Some(metadata), Value::Object(more)) =
        (secret.get_mut("metadata").and_then(Value::as_object_mut), more)
    {
        metadata.extend(more.clone());
    }
    Ok(serde_json::from_value(secret)?)
}

fn owned(name: &str, type_: &str) -> Result<Secret> {
    let owner = json!({ "ownerReferences": [{
        "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
        "name": name, "uid": "00000000-0000-0000-0000-000000000000",
    }] });
    secret(name, type_, &owner)
}

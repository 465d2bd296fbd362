//! Tokens of accounts: issued, spoiled, repaired, renewed.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::authentication::ManagedServiceAccount;
use writ_controller::condition;
use writ_e2e::{Fleet, fleet::AGENT_NAMESPACE, wait};

use crate::marks::Marks;

struct Cluster<'a> {
    accounts: Api<ManagedServiceAccount>,
    secrets: Api<Secret>,
    marks: &'a Marks,
}

impl Cluster<'_> {
    async fn create(&self, name: &str, annotations: Value, spec: Value) -> Result<()> {
        let account = serde_json::from_value(json!({
            "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
            "metadata": {"name": name, "annotations": annotations}, "spec": spec}))?;
        self.accounts.create(&PostParams::default(), &account).await?;
        Ok(())
    }

    /// Waits for a token other than this one, and marks it.
    async fn token(&self, name: &str, not: &str) -> Result<String> {
        let token = wait::until(&format!("a token of {name}"), || async {
            let secret = self.secrets.get_opt(name).await?;
            let token = secret.and_then(|secret| secret.data?.get("token").map(|token| token.0.clone()));
            let token = token.and_then(|token| String::from_utf8(token).ok());
            Ok(token.filter(|token| {
                token.matches('.').count() == 2 && token != not && !token.contains("swordfish")
            }))
        })
        .await?;
        self.marks.token(&token);
        Ok(token)
    }

    async fn spoil(&self, name: &str, patch: Value) -> Result<()> {
        let patch = Patch::Merge(patch);
        self.secrets.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }
}

/// All the cases.
pub async fn keep(fleet: &Fleet, marks: &Marks) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    let cluster = Cluster {
        accounts: Api::namespaced(admin.clone(), "cluster1"),
        secrets: Api::namespaced(admin, "cluster1"),
        marks,
    };
    let keys = json!({"authentication.writ.dev/secret-keys": "kubeconfig,argocd"});
    cluster.create("robot", keys, json!({"rotation": {}})).await?;
    let first = cluster.token("robot", "").await?;
    wait::until_true("the optional keys of the Secret", || async {
        let data = cluster.secrets.get("robot").await?.data.unwrap_or_default();
        let keys = ["kubeconfig", "name", "server", "config"];
        Ok(keys.iter().all(|key| data.contains_key(*key)))
    })
    .await?;

    // Other data, a token that is none, one that only looks like one; each is repaired.
    cluster
        .spoil(
            "robot",
            json!({"stringData": {"more": marks.secret("more data"), "ca.crt": marks.secret("a CA")}}),
        )
        .await?;
    let second = {
        cluster
            .spoil(
                "robot",
                json!({"stringData": {"token": marks.secret("no token")}}),
            )
            .await?;
        cluster.token("robot", &first).await?
    };
    let look_alike = format!(
        "{}.{}.{}",
        marks.secret("header"),
        marks.secret("claims"),
        marks.secret("signature")
    );
    cluster
        .spoil("robot", json!({"stringData": {"token": look_alike}}))
        .await?;
    let third = cluster.token("robot", &second).await?;

    // The ServiceAccount goes: its tokens are dead, and replaced.
    let spoke = fleet.cluster(1)?.admin().await?;
    let service_accounts: Api<ServiceAccount> = Api::namespaced(spoke, AGENT_NAMESPACE);
    service_accounts.delete("robot", &DeleteParams::default()).await?;
    cluster.token("robot", &third).await?;

    // For others, which the API server itself does not accept.
    cluster
        .create(
            "guest",
            json!({}),
            json!({"rotation": {}, "audiences": ["elsewhere"]}),
        )
        .await?;
    cluster.token("guest", "").await?;

    // A Secret of somebody else is in the way.
    let foreign: Secret = serde_json::from_value(
        json!({"metadata": {"name": "taken"}, "stringData": {"token": marks.secret("a foreign token")}}),
    )?;
    cluster.secrets.create(&PostParams::default(), &foreign).await?;
    cluster
        .create("taken", json!({}), json!({"rotation": {}}))
        .await?;
    wait::until_true("the condition to say why", || async {
        let account = cluster.accounts.get("taken").await?;
        let conditions = account.status.unwrap_or_default().conditions;
        Ok(condition::find(&conditions, "SecretCreated").is_some_and(|c| c.reason == "SecretNotOurs"))
    })
    .await?;

    cluster.accounts.delete("robot", &DeleteParams::default()).await?;
    wait::until_true("the Secret to go", || async {
        Ok(cluster.secrets.get_opt("robot").await?.is_none())
    })
    .await
    .context("after its account")
}

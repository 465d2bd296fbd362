//! Tokens are followed and read, against a server.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{Stream, StreamExt};
use k8s_openapi::{
    api::core::v1::{Namespace, Secret},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::{conditions, wait::await_condition},
};
use serde_json::{Value, json};
use writ_api::authentication::{LABEL_MANAGED, ManagedServiceAccount};
use writ_apiserver::Server;
use writ_tokens::{Change, Error, Tokens};

struct Hub {
    client: Client,
    _server: Server,
}

impl Hub {
    async fn start() -> Result<Self> {
        let server = Server::builder().start().await?;
        let client = server.client();
        let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
        for crd in writ_api::authentication::crds() {
            crds.create(&PostParams::default(), &crd).await?;
            await_condition(crds.clone(), &crd.name_any(), conditions::is_crd_established()).await?;
        }
        for cluster in ["c1", "c2"] {
            let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": cluster}}))?;
            Api::all(client.clone())
                .create(&PostParams::default(), &namespace)
                .await?;
        }
        Ok(Self {
            client,
            _server: server,
        })
    }

    fn accounts(&self, cluster: &str) -> Api<ManagedServiceAccount> {
        Api::namespaced(self.client.clone(), cluster)
    }

    fn secrets(&self, cluster: &str) -> Api<Secret> {
        Api::namespaced(self.client.clone(), cluster)
    }

    async fn account(&self, cluster: &str) -> Result<String> {
        let account = serde_json::from_value(json!({
            "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
            "metadata": {"name": "robot"}, "spec": {"rotation": {}},
        }))?;
        let account = self
            .accounts(cluster)
            .create(&PostParams::default(), &account)
            .await?;
        account.uid().context("no uid")
    }

    async fn report(&self, cluster: &str, secret: &str, refreshed: &str) -> Result<()> {
        let status =
            json!({"status": {"tokenSecretRef": {"name": secret, "lastRefreshTimestamp": refreshed}}});
        self.accounts(cluster)
            .patch_status("robot", &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    /// Writes the Secret of an account, changed.
    async fn write(&self, cluster: &str, uid: &str, token: &str, change: Value) -> Result<()> {
        let mut secret = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": "robot", "labels": {LABEL_MANAGED: "true"}, "ownerReferences": [{
                "apiVersion": "authentication.open-cluster-management.io/v1beta1",
                "kind": "ManagedServiceAccount", "name": "robot", "uid": uid}]},
            "stringData": {"token": token, "ca.crt": "CA"},
        });
        for (key, value) in change.as_object().unwrap() {
            secret["metadata"][key] = value.clone();
        }
        let params = PatchParams::apply("test").force();
        self.secrets(cluster)
            .patch("robot", &params, &Patch::Apply(&secret))
            .await?;
        Ok(())
    }
}

async fn next(changes: &mut (impl Stream<Item = Change> + Unpin)) -> Result<Change> {
    let next = tokio::time::timeout(Duration::from_secs(20), changes.next());
    next.await?.context("the stream ended")
}

fn text(change: Change) -> (String, String) {
    match change {
        Change::Fresh(token) => (token.cluster.clone(), token.secret().to_owned()),
        Change::Gone { cluster, .. } => (cluster, "gone".into()),
    }
}

#[tokio::test]
async fn token_that_cannot_be_read_is_retried() -> Result<()> {
    let hub = Hub::start().await?;
    let (one, two) = (hub.account("c1").await?, hub.account("c2").await?);
    hub.write("c1", &one, "t1", json!({})).await?;
    hub.report("c1", "robot", "2026-01-01T00:00:00Z").await?;
    let mut changes = Tokens::new(hub.client.clone()).follow("robot");
    assert_eq!(text(next(&mut changes).await?), ("c1".into(), "t1".into()));

    // The Secret of c2 is missing: other clusters are not blocked, and it is read once it appears.
    hub.report("c2", "robot", "2026-01-01T00:00:00Z").await?;
    hub.write("c1", &one, "t2", json!({})).await?;
    hub.report("c1", "robot", "2026-01-02T00:00:00Z").await?;
    assert_eq!(text(next(&mut changes).await?), ("c1".into(), "t2".into()));
    tokio::time::sleep(Duration::from_millis(700)).await;
    hub.write("c2", &two, "u1", json!({})).await?;
    assert_eq!(text(next(&mut changes).await?), ("c2".into(), "u1".into()));

    hub.accounts("c1")
        .delete("robot", &DeleteParams::default())
        .await?;
    assert_eq!(text(next(&mut changes).await?), ("c1".into(), "gone".into()));
    Ok(())
}

#[tokio::test]
async fn status_that_names_another_secret_is_refused() -> Result<()> {
    let hub = Hub::start().await?;
    let uid = hub.account("c1").await?;
    let foreign: Secret =
        serde_json::from_value(json!({"metadata": {"name": "other"}, "stringData": {"token": "not yours"}}))?;
    hub.secrets("c1").create(&PostParams::default(), &foreign).await?;
    let refused = async |why: &str| {
        let error = writ_tokens::get(&hub.client, "c1", "robot").await.unwrap_err();
        ensure!(matches!(error, Error::NoToken { .. }), "{error}");
        ensure!(error.to_string().contains(why), "{error}");
        anyhow::Ok(())
    };
    hub.report("c1", "other", "2026-01-01T00:00:00Z").await?;
    refused("not the account's").await?;
    hub.report("c1", "robot", "2026-01-02T00:00:00Z").await?;
    for change in [json!({"labels": {"theirs": "x"}}), json!({"ownerReferences": []})] {
        hub.write("c1", &uid, "t", change).await?;
        refused("not made for this account").await?;
        hub.secrets("c1")
            .delete("robot", &DeleteParams::default())
            .await?;
    }
    hub.write("c1", &uid, "t", json!({})).await?;
    let token = writ_tokens::get(&hub.client, "c1", "robot").await?;
    assert_eq!(token.secret(), "t");
    Ok(())
}

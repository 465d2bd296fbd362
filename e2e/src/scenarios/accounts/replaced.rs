//! A name that is given to somebody else: no token of before works for whoever has it now.

use anyhow::{Context, Result, ensure};
use kube::{
    ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use writ_controller::condition;

use super::{Stage, gone};
use crate::{Fleet, fleet::AGENT_NAMESPACE, wait::until, yaml};

const CLUSTER: &str = "cluster1";

impl Stage {
    async fn refused(&self, what: &str, token: &str) -> Result<()> {
        until(&format!("{what} to be refused"), || async {
            Ok(self.user_of(1, token).await?.is_none().then_some(()))
        })
        .await
    }

    async fn uid_of(&self, name: &str) -> Result<String> {
        let found = self.service_accounts(1).await?.get(name).await?;
        found.uid().context("no uid")
    }
}

/// An account is deleted and made again while its agent is away: the agent finds the same name, and it is another account.
pub async fn made_anew(fleet: Fleet) -> Result<()> {
    let stage = Stage::without_agents(fleet).await?;
    let agent = stage.fleet.run_agent(1, writ_agent::Options::default()).await?;
    for name in ["robot", "kept"] {
        stage.create(CLUSTER, name, json!({ "rotation": {} })).await?;
    }
    let first = stage.token(CLUSTER, "robot", &[]).await?;
    let kept = stage.token(CLUSTER, "kept", &[]).await?;
    agent.stop().await?;

    let accounts = stage.accounts(CLUSTER);
    accounts.delete("robot", &DeleteParams::default()).await?;
    gone("the Secret", &stage.secrets(CLUSTER), "robot").await?;
    stage.create(CLUSTER, "robot", json!({ "rotation": {} })).await?;
    ensure!(
        stage.user_of(1, &first).await?.is_some(),
        "nobody was there to end the first token"
    );
    let _agent = stage.fleet.run_agent(1, writ_agent::Options::default()).await?;
    let second = stage.token(CLUSTER, "robot", &[&first]).await?;
    ensure!(stage.user_of(1, &second).await?.is_some());
    stage
        .refused("the token of the account from before", &first)
        .await?;
    // One that nobody touched is as it was.
    ensure!(stage.token(CLUSTER, "kept", &[]).await? == kept);
    ensure!(stage.user_of(1, &kept).await?.is_some());
    Ok(())
}

/// Whoever writes accounts has a token under the name of an add-on that comes later, and that may do everything. What was
/// made for the account goes, and the add-on has a ServiceAccount of its own.
pub async fn taken_by_an_add_on(fleet: Fleet) -> Result<()> {
    let stage = Stage::without_agents(fleet).await?;
    let agent = stage.fleet.run_agent(1, writ_agent::Options::default()).await?;
    for name in ["myaddon", "another"] {
        stage.create(CLUSTER, name, json!({ "rotation": {} })).await?;
    }
    let early = stage.token(CLUSTER, "myaddon", &[]).await?;
    let (before, other) = (
        stage.uid_of("myaddon").await?,
        stage.token(CLUSTER, "another", &[]).await?,
    );
    let work = json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "myaddon", "namespace": CLUSTER},
        "spec": {"workload": {"manifests": [
            {"apiVersion": "v1", "kind": "ServiceAccount",
                "metadata": {"name": "myaddon", "namespace": AGENT_NAMESPACE}},
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
                "metadata": {"name": "myaddon"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
                "subjects": [{"kind": "ServiceAccount", "name": "myaddon", "namespace": AGENT_NAMESPACE}]},
        ]}},
    });
    yaml::apply(&stage.admin, &work.to_string()).await?;
    stage.refused("the token of before the add-on", &early).await?;
    gone("the Secret", &stage.secrets(CLUSTER), "myaddon").await?;
    until("the name to be refused", || async {
        let status = stage
            .accounts(CLUSTER)
            .get("myaddon")
            .await?
            .status
            .unwrap_or_default();
        let said = condition::find(&status.conditions, "AllServiceAccountPresent").cloned();
        let said = said.filter(|said| said.reason == "NameReserved");
        Ok(said.filter(|_| status.token_secret_ref.is_none()).map(drop))
    })
    .await?;
    // The add-on is as it would be without the account, and stays so when that goes.
    let service_accounts = stage.service_accounts(1).await?;
    until("the add-on's own ServiceAccount", || async {
        let found = service_accounts.get_opt("myaddon").await?;
        Ok(found
            .filter(|found| found.uid().as_deref() != Some(before.as_str()) && found.labels().is_empty())
            .map(drop))
    })
    .await?;
    let theirs = stage.uid_of("myaddon").await?;
    let accounts = stage.accounts(CLUSTER);
    accounts.delete("myaddon", &DeleteParams::default()).await?;

    // The same while the agent is away, and the account is deleted before it comes back.
    agent.stop().await?;
    let label = json!({"metadata": {"labels": {"addon.open-cluster-management.io/addon-name": "another"}}});
    service_accounts
        .patch("another", &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    accounts.delete("another", &DeleteParams::default()).await?;
    gone("the account", &accounts, "another").await?;
    let _agent = stage.fleet.run_agent(1, writ_agent::Options::default()).await?;
    stage
        .refused("the token of the account that went", &other)
        .await?;
    ensure!(
        stage.uid_of("myaddon").await? == theirs,
        "the add-on's was deleted"
    );
    Ok(())
}

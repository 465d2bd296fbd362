//! The agent moves to another namespace: the accounts go with it, and the tokens of before die.

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    authorization::v1::ResourceAttributes, core::v1::ServiceAccount, rbac::v1::ClusterRole,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::json;
use writ_controller::condition;

use super::{Stage, gone};
use crate::{
    Fleet,
    fleet::{AGENT_NAMESPACE, Running, start},
    wait::until,
    yaml,
};

/// Where the agent moves, first and then.
const SECOND: &str = "agents";
const THIRD: &str = "more-agents";

const CLUSTER: &str = "cluster1";

impl Stage {
    /// Installs the agent in this namespace, as `deploy/` says.
    async fn install(&self, namespace: &str) -> Result<()> {
        let cluster = self.fleet.cluster(1)?;
        cluster.namespace(namespace).await?;
        for (_, text) in yaml::folder("agent") {
            let text = text.replace(AGENT_NAMESPACE, namespace);
            yaml::apply(&cluster.admin().await?, &text).await?;
        }
        Ok(())
    }

    async fn agent_in(&self, namespace: &str) -> Result<Running> {
        let cluster = self.fleet.cluster(1)?;
        let hub = self.fleet.agent_identity(CLUSTER).await?;
        let spoke = cluster.service_account(namespace, "writ-agent").await?;
        let options = writ_agent::Options {
            cluster_name: CLUSTER.into(),
            agent_namespace: namespace.into(),
            ..writ_agent::Options::default()
        };
        start("the agent", |health, shutdown| {
            writ_agent::run(hub, spoke, options, health, shutdown)
        })
        .await
    }

    async fn dead(&self, what: &str, token: &str) -> Result<()> {
        until(&format!("{what} to be refused"), || async {
            Ok(self.user_of(1, token).await?.is_none().then_some(()))
        })
        .await
    }

    /// Waits until the account says, or no longer says, that the ServiceAccount of before is left.
    async fn says_left(&self, name: &str, wanted: bool) -> Result<String> {
        until("the condition about the former ServiceAccount", || async {
            let status = self.accounts(CLUSTER).get(name).await?.status.unwrap_or_default();
            let said = condition::find(&status.conditions, "FormerServiceAccountGone");
            let message = said.map(|said| said.message.clone());
            Ok((message.is_some() == wanted).then(|| message.unwrap_or_default()))
        })
        .await
    }
}

/// With what is shipped the agent removes what it had before. Where it may deliver less, a condition says what is left,
/// and that goes with the agent's own account of before; so does what was deleted on the hub meanwhile.
pub async fn moved(fleet: Fleet) -> Result<()> {
    let stage = Stage::without_agents(fleet).await?;
    stage.install(AGENT_NAMESPACE).await?;
    let agent = stage.agent_in(AGENT_NAMESPACE).await?;
    stage.create(CLUSTER, "robot", json!({ "rotation": {} })).await?;
    stage.create(CLUSTER, "guest", json!({ "rotation": {} })).await?;
    let first = stage.token(CLUSTER, "robot", &[]).await?;
    let guest = stage.token(CLUSTER, "guest", &[]).await?;
    agent.stop().await?;

    stage.install(SECOND).await?;
    let agent = stage.agent_in(SECOND).await?;
    let second = stage.token(CLUSTER, "robot", &[&first]).await?;
    let user = format!("system:serviceaccount:{SECOND}:robot");
    ensure!(stage.user_of(1, &second).await?.as_deref() == Some(user.as_str()));
    stage.dead("the token of the former namespace", &first).await?;
    let lost = stage.token(CLUSTER, "guest", &[&guest]).await?;
    stage
        .dead("the guest's token of the former namespace", &guest)
        .await?;
    stage.says_left("robot", false).await?;
    agent.stop().await?;

    // An account is deleted while nobody looks, and the next agent may deliver nothing but ConfigMaps.
    stage
        .accounts(CLUSTER)
        .delete("guest", &DeleteParams::background())
        .await?;
    stage.install(THIRD).await?;
    let admin = stage.fleet.cluster(1)?.admin().await?;
    let narrow = json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"],
        "verbs": ["get", "list", "watch", "create", "update", "patch", "delete"]}]});
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    roles
        .patch(
            "writ:agent:deliver",
            &PatchParams::default(),
            &Patch::Merge(&narrow),
        )
        .await?;
    let what = ResourceAttributes {
        verb: Some("delete".into()),
        resource: Some("serviceaccounts".into()),
        namespace: Some(SECOND.into()),
        ..ResourceAttributes::default()
    };
    let user = format!("system:serviceaccount:{THIRD}:writ-agent");
    until("the API server to know that it may not", || async {
        let allowed = stage.fleet.cluster(1)?.allows(&user, &[], what.clone()).await?;
        Ok((!allowed).then_some(()))
    })
    .await?;
    let agent = stage.agent_in(THIRD).await?;
    let third = stage.token(CLUSTER, "robot", &[&first, &second]).await?;
    let left = stage.says_left("robot", true).await?;
    ensure!(left.contains(&format!("{SECOND}/robot")), "{left}");
    ensure!(
        stage.user_of(1, &second).await?.is_some(),
        "it was not told the truth"
    );
    // It is not forgotten.
    agent.stop().await?;
    let _agent = stage.agent_in(THIRD).await?;
    stage.says_left("robot", true).await?;

    // The agent is removed where it was: everything of it goes.
    let accounts: Api<ServiceAccount> = Api::namespaced(admin, SECOND);
    accounts.delete("writ-agent", &DeleteParams::default()).await?;
    stage.dead("the second token", &second).await?;
    stage
        .dead("the token of the account that was deleted", &lost)
        .await?;
    gone("the ServiceAccount", &accounts, "guest").await?;
    // The agent may not look there: who removed it says so.
    let accounts: Api<ServiceAccount> = Api::namespaced(accounts.into_client(), THIRD);
    let done = json!({"metadata": {"annotations": {"authentication.writ.dev/former": null}}});
    accounts
        .patch("robot", &PatchParams::default(), &Patch::Merge(&done))
        .await?;
    stage.says_left("robot", false).await?;
    let user = format!("system:serviceaccount:{THIRD}:robot");
    ensure!(stage.user_of(1, &third).await?.as_deref() == Some(user.as_str()));
    Ok(())
}

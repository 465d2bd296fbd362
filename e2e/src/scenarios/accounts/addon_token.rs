//! The delivered add-on on a hub that signs no certificates: it proves who it is with tokens of an account of its own.

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    authentication::v1::TokenRequest,
    core::v1::{Namespace, Secret, ServiceAccount},
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client,
    api::{DeleteParams, ListParams, PostParams},
    config::{AuthInfo, Kubeconfig},
};
use serde_json::json;
use tempfile::TempDir;
use writ_agent::registration::identity;
use writ_api::{addon::ManagedClusterAddOn, authentication::AGENT_ROLE};
use writ_controller::condition;
use writ_hub::{options::RegistrationDriver, registration::operator_actions};

use super::{
    Stage,
    addon::{NAMESPACE, run},
    forbidden, token_of,
};
use crate::{
    Fleet,
    cluster::client,
    fleet::{AGENT_NAMESPACE, Running, start},
    wait::until,
};

/// The account of the add-on in a cluster's namespace.
const ACCOUNT: &str = "managed-serviceaccount-agent";

/// The agent of cluster1 with a token of its account, which registers the add-on and keeps no accounts.
async fn agent(fleet: &Fleet, hub: Client) -> Result<Running> {
    let spoke = fleet
        .cluster(1)?
        .service_account(AGENT_NAMESPACE, "writ-agent")
        .await?;
    let anybody = fleet.hub.kubeconfig_with(AuthInfo::default());
    let options = writ_agent::Options {
        cluster_name: "cluster1".into(),
        controllers: ["addons", "registration", "work"].map(str::to_owned).into(),
        hub_cluster: Some(identity::cluster(&anybody)?.clone()),
        ..writ_agent::Options::default()
    };
    start("the agent", |health, shutdown| {
        writ_agent::run(hub, spoke, options, health, shutdown)
    })
    .await
}

/// The Secret of the add-on on the managed cluster, once it holds another token than this one.
async fn credential(secrets: &Api<Secret>, not: Option<&str>) -> Result<(Secret, String)> {
    until("the Secret with the token of the add-on", || async {
        let secret = secrets.get_opt("managed-serviceaccount-hub-kubeconfig").await?;
        Ok(secret.and_then(|secret| {
            let token = token_of(&secret).filter(|token| Some(token.as_str()) != not)?;
            Some((secret, token))
        }))
    })
    .await
}

/// What the kubelet mounts. The folder must stay: the token is read from its file again and again.
async fn mounted(secret: &Secret) -> Result<(TempDir, Client)> {
    let folder = tempfile::tempdir()?;
    for (name, bytes) in secret.data.iter().flatten() {
        std::fs::write(folder.path().join(name), &bytes.0)?;
    }
    let hub = client(Kubeconfig::read_from(folder.path().join("kubeconfig"))?).await?;
    Ok((folder, hub))
}

/// Our agent gives the delivered add-on a token of the add-on's account, and of no other; with it the add-on does its work
/// and no more. The token dies with the account: when that is replaced, and when the cluster is denied.
pub async fn by_token(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    // An account that somebody made before: its tokens must not become the add-on's.
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "cluster2"}}))?;
    Api::all(admin.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let theirs: Api<ServiceAccount> = Api::namespaced(admin.clone(), "cluster2");
    let account = serde_json::from_value(json!({"metadata": {"name": ACCOUNT}}))?;
    theirs.create(&PostParams::default(), &account).await?;
    let hub = fleet
        .run_hub(writ_hub::Options {
            controllers: vec!["managed_service_account".into(), "registration".into()],
            registration_driver: RegistrationDriver::Token,
            ..writ_hub::Options::default()
        })
        .await?;
    fleet.accept(1).await?;
    fleet.accept(2).await?;
    let first = until("the first token", || async {
        Ok(operator_actions::first_token(&admin, "cluster1", 3600).await.ok())
    })
    .await?;
    let own = fleet.hub.with_token(&first).await?;
    let stage = Stage {
        running: vec![hub, agent(&fleet, own.clone()).await?],
        admin: admin.clone(),
        fleet,
    };
    let spoke = stage.fleet.cluster(1)?.admin().await?;
    let secrets: Api<Secret> = Api::namespaced(spoke, NAMESPACE);
    let (secret, token) = credential(&secrets, None).await?;
    let keys: Vec<_> = secret
        .data
        .iter()
        .flatten()
        .map(|(key, _)| key.as_str())
        .collect();
    ensure!(keys == ["kubeconfig", "token"], "{keys:?}");
    let (_folder, addon) = mounted(&secret).await?;
    let at_work = run(&stage, addon.clone()).await?;
    stage
        .create("cluster1", "robot", json!({ "rotation": {} }))
        .await?;
    let robot = stage.token("cluster1", "robot", &[]).await?;
    let user = format!("system:serviceaccount:{NAMESPACE}:robot");
    ensure!(stage.user_of(1, &robot).await?.as_deref() == Some(user.as_str()));
    nothing_else(&own, &addon).await?;
    at_work.stop().await?;

    // Made anew, the account has other tokens, and the add-on gets one of them.
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "cluster1");
    accounts.delete(ACCOUNT, &DeleteParams::default()).await?;
    let (second, token) = credential(&secrets, Some(&token)).await?;
    let (_folder, addon) = mounted(&second).await?;
    let robots: Api<Secret> = Api::namespaced(addon, "cluster1");
    // The right is given back when the hub has seen the account that it made.
    until("the new token to have the rights of the former", || async {
        Ok(Some(robots.get("robot").await?))
    })
    .await?;

    foreign(&admin, &theirs).await?;
    operator_actions::deny(&admin, "cluster1").await?;
    until("the token of a denied cluster to be refused", || async {
        let by = stage.fleet.hub.with_token(&token).await?;
        let robots: Api<Secret> = Api::namespaced(by, "cluster1");
        let refused =
            matches!(robots.get("robot").await, Err(kube::Error::Api(status)) if status.code == 401);
        Ok(refused.then_some(()))
    })
    .await
}

/// What the add-on may not do, and what the agent of its cluster may not either.
async fn nothing_else(agent: &Client, addon: &Client) -> Result<()> {
    let secrets = |namespace: &str| Api::<Secret>::namespaced(addon.clone(), namespace);
    forbidden(
        "list Secrets",
        secrets("cluster1").list(&ListParams::default()).await,
    )?;
    forbidden(
        "read another cluster's Secret",
        secrets("cluster2").get("robot").await,
    )?;
    for (type_, name) in [
        ("kubernetes.io/service-account-token", "sneaky"),
        ("Opaque", "other"),
    ] {
        let sneaky = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "managed-cluster-agent"}},
            "type": type_,
        }))?;
        let made = secrets("cluster1").create(&PostParams::default(), &sneaky).await;
        forbidden(&format!("make a Secret of type {type_}"), made)?;
    }
    let request = TokenRequest::default();
    for (who, client, namespace, account) in [
        ("the add-on", addon, "cluster1", ACCOUNT),
        ("the add-on", addon, "cluster1", "managed-cluster-agent"),
        ("the agent", agent, "cluster1", "default"),
        ("the agent", agent, "cluster2", ACCOUNT),
    ] {
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), namespace);
        let token = accounts
            .create_token_request(account, &PostParams::default(), &request)
            .await;
        forbidden(&format!("{who} asks for a token of {namespace}/{account}"), token)?;
    }
    Ok(())
}

/// The account that was there before has no right and is not touched; the add-on says so, and heals when it goes.
async fn foreign(admin: &Client, accounts: &Api<ServiceAccount>) -> Result<()> {
    // An agent reports, as its status says: from then on the add-on is delivered.
    let clusters: Api<writ_api::cluster::ManagedCluster> = Api::all(admin.clone());
    let joined = json!({"status": {"conditions": [{"type": "ManagedClusterJoined", "status": "True", "reason": "Joined",
        "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    clusters
        .patch_status(
            "cluster2",
            &kube::api::PatchParams::default(),
            &kube::api::Patch::Merge(&joined),
        )
        .await?;
    let addons: Api<ManagedClusterAddOn> = Api::namespaced(admin.clone(), "cluster2");
    let says = async |wanted: &'static str, words: &'static str| {
        until("the add-on to say whether its account is there", || async {
            let status = addons.get("managed-serviceaccount").await?.status;
            let said =
                condition::find(&status.unwrap_or_default().conditions, "TokenInfrastructureReady").cloned();
            Ok(said.filter(|said| said.status == wanted && said.message.contains(words)))
        })
        .await
    };
    says("False", "was not made for this add-on").await?;
    let bindings: Api<RoleBinding> = Api::namespaced(admin.clone(), "cluster2");
    let has_right = || async {
        let binding = bindings.get(AGENT_ROLE).await?;
        let mut subjects = binding.subjects.into_iter().flatten();
        anyhow::Ok(subjects.any(|subject| subject.name == ACCOUNT))
    };
    ensure!(!has_right().await?, "somebody's account has the add-on's rights");
    accounts.delete(ACCOUNT, &DeleteParams::default()).await?;
    says("True", "is ready").await?;
    until("the add-on's own account to have the rights", || async {
        Ok(has_right().await?.then_some(()))
    })
    .await
}

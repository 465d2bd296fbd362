//! An agent whose only identity is the token of its account.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    certificates::v1::CertificateSigningRequest,
    coordination::v1::Lease,
    core::v1::{ConfigMap, Secret, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, PostParams},
    config::AuthInfo,
};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use writ_agent::registration::{
    Driver, identity, keep,
    store::{self, Store, auth_of},
};
use writ_api::{authentication::ManagedServiceAccount, cluster::ManagedCluster, work::ManifestWork};
use writ_hub::{options::RegistrationDriver, registration::operator_actions};

use super::{
    create,
    identity::is_approved,
    refused,
    registration::{condition, joining},
    told,
};
use crate::{
    Fleet,
    cluster::client,
    fleet::{AGENT_NAMESPACE, HUB_NAMESPACE, start},
    wait, yaml,
};

/// The agent of a hub without a signer has only its account's token, and does all that an agent does with it: it
/// reports, delivers works and keeps accounts. It gets no other token of the hub, and loses all when it is denied.
pub async fn at_work(fleet: Fleet) -> Result<()> {
    let hub = fleet
        .run_hub(writ_hub::Options {
            registration_driver: RegistrationDriver::Token,
            ..writ_hub::Options::default()
        })
        .await?;
    let admin = fleet.hub.admin().await?;
    create(&admin, "cluster1", json!({})).await?;
    operator_actions::accept(&admin, "cluster1", None).await?;
    let token = wait::until("the first token", || async {
        Ok(operator_actions::first_token(&admin, "cluster1", 3600).await.ok())
    })
    .await?;
    let agent = client(fleet.hub.kubeconfig_with(AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    }))
    .await?;
    let spoke = fleet
        .cluster(1)?
        .service_account(AGENT_NAMESPACE, "writ-agent")
        .await?;
    let options = writ_agent::Options {
        cluster_name: "cluster1".into(),
        ..writ_agent::Options::default()
    };
    let running = start("the agent", |health, shutdown| {
        writ_agent::run(agent.clone(), spoke, options, health, shutdown)
    })
    .await?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    wait::until_true("it reports", || async {
        let available = condition(&clusters, "cluster1", "ManagedClusterConditionAvailable").await?;
        Ok(available.as_deref() == Some("True"))
    })
    .await?;
    yaml::apply(
        &admin,
        "apiVersion: authentication.open-cluster-management.io/v1beta1\nkind: ManagedServiceAccount\n\
         metadata: {name: robot, namespace: cluster1}\nspec: {rotation: {}}\n---\n\
         apiVersion: work.open-cluster-management.io/v1\nkind: ManifestWork\n\
         metadata: {name: hello, namespace: cluster1}\nspec: {workload: {manifests: [\
         {apiVersion: v1, kind: ConfigMap, metadata: {name: hello, namespace: default}}]}}\n",
    )
    .await?;
    let secrets: Api<Secret> = Api::namespaced(admin.clone(), "cluster1");
    wait::until_true("the token of the account is on the hub", || async {
        let data = secrets.get("robot").await?.data.unwrap_or_default();
        Ok(data.contains_key("token"))
    })
    .await?;
    let maps: Api<ConfigMap> = Api::default_namespaced(fleet.cluster(1)?.admin().await?);
    wait::until("the work is delivered", || async {
        Ok(maps.get_opt("hello").await?)
    })
    .await?;
    // A Secret that asks for a token of the hub's own accounts.
    let own: Api<Secret> = Api::namespaced(agent.clone(), "cluster1");
    for name in ["sneaky", "robot"] {
        let sneaky = serde_json::from_value(json!({
            "metadata": {"name": name, "annotations": {"kubernetes.io/service-account.name": "default"}},
            "type": "kubernetes.io/service-account-token",
        }))?;
        ensure!(
            own.create(&PostParams::default(), &sneaky).await.is_err(),
            "{name} was made"
        );
    }
    // Whoever holds the shared bootstrap identity asks for a certificate of this cluster, on a hub that could sign it.
    let bootstrap = fleet
        .hub
        .service_account(HUB_NAMESPACE, "agent-registration-bootstrap")
        .await?;
    let requests: Api<CertificateSigningRequest> = Api::all(bootstrap);
    let thief = identity::request("cluster1", "thief", &identity::new_key()?)?;
    let thief = requests.create(&PostParams::default(), &thief).await?.name_any();
    told(&fleet, "cluster1", "CertificateRequestNotApproved", 1).await?;
    // Even with it nothing is gained: the rights are the account's.
    let by_certificate: Api<Secret> = Api::namespaced(fleet.agent_identity("cluster1").await?, "cluster1");
    refused(by_certificate.get("robot").await.map_err(Into::into), "forbidden")?;
    operator_actions::deny(&admin, "cluster1").await?;
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(agent.clone(), "cluster1");
    let works: Api<ManifestWork> = Api::namespaced(agent, "cluster1");
    wait::until_true("the denied agent can do nothing", || async {
        Ok(accounts.list(&ListParams::default()).await.is_err()
            && works.list(&ListParams::default()).await.is_err()
            && own.get("robot").await.is_err())
    })
    .await?;
    let all: Api<CertificateSigningRequest> = Api::all(admin);
    ensure!(
        !is_approved(&all.get(&thief).await?),
        "a certificate was approved"
    );
    running.stop().await?;
    hub.stop().await
}

/// The account of an agent is deleted: the hub makes it anew, its tokens are refused, and the agent, which learns of
/// that, comes back with the identity to start with, long before the token would have been renewed.
pub async fn made_anew(fleet: Fleet) -> Result<()> {
    let hub = fleet
        .run_hub(writ_hub::Options {
            controllers: vec!["registration".into()],
            registration_driver: RegistrationDriver::Token,
            ..writ_hub::Options::default()
        })
        .await?;
    let admin = fleet.hub.admin().await?;
    create(&admin, "cluster1", json!({})).await?;
    operator_actions::accept(&admin, "cluster1", None).await?;
    let folder = tempfile::tempdir()?;
    let store = Store::File(folder.path().join("own"));
    let mut wanted = joining(&fleet, "cluster1", store.clone()).await?;
    wanted.driver = Driver::Token;
    // Somebody who may ask for tokens of the account; `identity::one_cluster` shows with which rights.
    wanted.bootstrap = fleet.hub.kubeconfig().clone();
    let shutdown = CancellationToken::new();
    let agent = |hub: Client, until: CancellationToken| async move {
        let leases: Api<Lease> = Api::namespaced(hub, "cluster1");
        while until
            .run_until_cancelled(tokio::time::sleep(Duration::from_millis(100)))
            .await
            .is_some()
        {
            // As its heartbeat does, it goes on whatever the hub says.
            let _ = leases.get("managed-cluster-lease").await;
        }
        Ok(())
    };
    let kept = tokio::spawn({
        let (wanted, shutdown) = (wanted.clone(), shutdown.clone());
        async move { keep(&wanted, shutdown, agent).await }
    });
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "cluster1");
    let in_with =
        async |not: Option<String>| {
            wait::until("the agent is in with a token of the account", || async {
                let Some(account) = accounts.get_opt("managed-cluster-agent").await? else {
                    return Ok(None);
                };
                let uid = account.uid().filter(|uid| Some(uid) != not.as_ref());
                let kept = store.load().await?.kubeconfig;
                let token = kept.as_ref().and_then(auth_of).and_then(store::token);
                Ok(uid.filter(|uid| {
                    token.as_deref().and_then(identity::token_account_uid).as_ref() == Some(uid)
                }))
            })
            .await
        };
    let first = in_with(None).await?;
    accounts
        .delete("managed-cluster-agent", &DeleteParams::default())
        .await?;
    in_with(Some(first)).await?;
    shutdown.cancel();
    kept.await??;
    hub.stop().await
}

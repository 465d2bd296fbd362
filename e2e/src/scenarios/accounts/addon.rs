//! The add-on on a cluster whose agent does not keep accounts: delivered by a work, with a credential that the hub grants
//! only for exactly the right request, and then doing its work with nothing but what it was given.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    apps::v1::Deployment,
    certificates::v1::CertificateSigningRequest,
    core::v1::{Namespace, Secret},
    rbac::v1::Role,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::AuthInfo,
};
use serde_json::json;
use writ_agent::registration::identity;
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::{AGENT_ROLE, ManagedServiceAccount},
};
use writ_controller::condition;

use super::{Stage, forbidden, gone};
use crate::{
    Fleet,
    cluster::client,
    fleet::{Running, start},
    wait::until,
};

/// Where the add-on is installed by default.
pub(super) const NAMESPACE: &str = "open-cluster-management-agent-addon";

/// A stage on which the agents deliver works and keep no accounts.
async fn stage(fleet: Fleet, controllers: &[&str]) -> Result<Stage> {
    let admin = fleet.hub.admin().await?;
    let mut running = vec![
        fleet
            .run_hub(writ_hub::Options {
                controllers: vec!["managed_service_account".into(), "registration".into()],
                ..writ_hub::Options::default()
            })
            .await?,
    ];
    for number in 1..=fleet.clusters.len() {
        fleet.accept(number).await?;
        let options = writ_agent::Options {
            controllers: controllers.iter().map(|name| (*name).to_owned()).collect(),
            ..writ_agent::Options::default()
        };
        running.push(fleet.run_agent(number, options).await?);
    }
    Ok(Stage {
        fleet,
        admin,
        running,
    })
}

/// What a klusterlet files for the add-on of a cluster, as its `status.registrations` says.
fn request(cluster: &str, key: &str) -> Result<CertificateSigningRequest> {
    let addon = format!("cluster:{cluster}:addon:managed-serviceaccount");
    let mut request = identity::request(&addon, "agent:addon-agent", key)?;
    request.metadata.generate_name = Some(format!("addon-{cluster}-"));
    request.metadata.labels = Some(
        [
            ("open-cluster-management.io/cluster-name", cluster),
            ("open-cluster-management.io/addon-name", "managed-serviceaccount"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into(),
    );
    Ok(request)
}

async fn file(by: &Client, request: &CertificateSigningRequest) -> Result<String> {
    let api: Api<CertificateSigningRequest> = Api::all(by.clone());
    Ok(api.create(&PostParams::default(), request).await?.name_any())
}

pub async fn delivered(fleet: Fleet) -> Result<()> {
    let stage = stage(fleet, &["registration", "work"]).await?;
    let spoke = stage.fleet.cluster(1)?.admin().await?;
    let deployments: Api<Deployment> = Api::namespaced(spoke, NAMESPACE);
    let deployed = until("the Deployment of the add-on", || async {
        Ok(deployments.get_opt("managed-serviceaccount-addon-agent").await?)
    })
    .await?;
    let pod = deployed
        .spec
        .context("no spec")?
        .template
        .spec
        .context("no pod")?;
    let container = pod.containers.first().context("no container")?;
    ensure!(container.command == Some(vec!["writ-agent".to_owned()]));
    let arguments = container.args.clone().unwrap_or_default();
    for argument in ["--cluster-name=cluster1", "--controllers=tokens"] {
        ensure!(arguments.iter().any(|a| a == argument), "{arguments:?}");
    }
    ensure!(arguments.contains(&format!("--agent-namespace={NAMESPACE}")));
    let addons: Api<ManagedClusterAddOn> = Api::namespaced(stage.admin.clone(), "cluster1");
    let status = until("the add-on to be reported as applied", || async {
        let status = addons
            .get("managed-serviceaccount")
            .await?
            .status
            .unwrap_or_default();
        Ok(condition::is_true(&status.conditions, "ManifestApplied").then_some(status))
    })
    .await?;
    ensure!(status.namespace.as_deref() == Some(NAMESPACE));
    // There is no node: no pod is ready, and the add-on does not say otherwise.
    until("the add-on to be reported as not available", || async {
        let status = addons.get("managed-serviceaccount").await?.status;
        let said = condition::find(&status.unwrap_or_default().conditions, "Available").cloned();
        Ok(said.filter(|said| said.reason == "ProbeUnavailable"))
    })
    .await?;
    ensure!(status.registrations.len() == 1, "{:?}", status.registrations);
    // This agent registers no add-ons: until somebody has asked for the credential, that is said.
    let credential = async |wanted: &'static str| {
        until("the add-on to say who asks for its credential", || async {
            let status = addons.get("managed-serviceaccount").await?.status;
            let said =
                condition::find(&status.unwrap_or_default().conditions, "CredentialRequested").cloned();
            Ok(said.filter(|said| said.status == wanted).map(drop))
        })
        .await
    };
    credential("False").await?;

    // Requests that are not exactly right: by the agent of another cluster, or for another cluster.
    let (one, two) = (
        stage.fleet.agent_identity("cluster1").await?,
        stage.fleet.agent_identity("cluster2").await?,
    );
    let key = identity::new_key()?;
    let stolen = file(&two, &request("cluster1", &key)?).await?;
    let foreign = file(&one, &request("cluster2", &key)?).await?;
    let mut signer = request("cluster1", &key)?;
    signer.spec.signer_name = "example.com/other".into();
    let signer = file(&one, &signer).await?;
    let right = file(&one, &request("cluster1", &key)?).await?;
    let requests: Api<CertificateSigningRequest> = Api::all(stage.admin.clone());
    let certificate = until("the certificate", || async {
        let status = requests.get(&right).await?.status.unwrap_or_default();
        Ok(status.certificate)
    })
    .await?;
    credential("True").await?;
    for wrong in [&stolen, &foreign, &signer] {
        let status = requests.get(wrong).await?.status.unwrap_or_default();
        ensure!(
            status.conditions.unwrap_or_default().is_empty(),
            "{wrong} was decided"
        );
    }

    // The pod, as the kubelet would run it: the credential for the hub, its ServiceAccount for the cluster.
    let hub = client(stage.fleet.hub.kubeconfig_with(AuthInfo {
        client_certificate_data: Some(base64(&certificate.0)),
        client_key_data: Some(base64(key.as_bytes()).into()),
        ..AuthInfo::default()
    }))
    .await?;
    let _agent = run(&stage, hub.clone()).await?;
    stage
        .create("cluster1", "robot", json!({ "rotation": {} }))
        .await?;
    let token = stage.token("cluster1", "robot", &[]).await?;
    let user = format!("system:serviceaccount:{NAMESPACE}:robot");
    ensure!(stage.user_of(1, &token).await?.as_deref() == Some(user.as_str()));
    let secrets: Api<Secret> = Api::namespaced(hub.clone(), "cluster1");
    forbidden("list Secrets", secrets.list(&ListParams::default()).await)?;
    let others: Api<Secret> = Api::namespaced(hub, "cluster2");
    forbidden("read another cluster's Secret", others.get("robot").await)?;
    moves(&stage, &addons, &token).await
}

/// The Secret with the credential on the managed cluster, once it holds another certificate than this one.
async fn credential(secrets: &Api<Secret>, not: Option<&Secret>) -> Result<Secret> {
    until("the Secret with the credential of the add-on", || async {
        let secret = secrets.get_opt("managed-serviceaccount-hub-kubeconfig").await?;
        let certificate = |secret: &Secret| secret.data.as_ref()?.get("tls.crt").cloned();
        Ok(secret.filter(|secret| {
            secret.data.as_ref().is_some_and(|data| data.len() == 3)
                && not.is_none_or(|not| certificate(not) != certificate(secret))
        }))
    })
    .await
}

/// What the kubelet mounts: the Secret as files, from which the pod reads its kubeconfig.
async fn mounted(secret: &Secret) -> Result<Client> {
    let folder = tempfile::tempdir()?;
    for (name, bytes) in secret.data.iter().flatten() {
        std::fs::write(folder.path().join(name), &bytes.0)?;
    }
    client(kube::config::Kubeconfig::read_from(
        folder.path().join("kubeconfig"),
    )?)
    .await
}

/// Our agent without `tokens` registers the delivered add-on, as a klusterlet does: it asks for exactly the credential,
/// keeps it in the Secret that the Deployment mounts, makes it again when it is broken, and takes it away at the end.
pub async fn registered(fleet: Fleet) -> Result<()> {
    let stage = stage(fleet, &["addons", "registration", "work"]).await?;
    let spoke = stage.fleet.cluster(1)?.admin().await?;
    let secrets: Api<Secret> = Api::namespaced(spoke.clone(), NAMESPACE);
    let first = credential(&secrets, None).await?;
    let hub = mounted(&first).await?;
    let agent = run(&stage, hub.clone()).await?;
    stage
        .create("cluster1", "robot", json!({ "rotation": {} }))
        .await?;
    let token = stage.token("cluster1", "robot", &[]).await?;
    let user = format!("system:serviceaccount:{NAMESPACE}:robot");
    ensure!(stage.user_of(1, &token).await?.as_deref() == Some(user.as_str()));
    let others: Api<Secret> = Api::namespaced(hub, "cluster2");
    forbidden("read another cluster's Secret", others.get("robot").await)?;
    agent.stop().await?;
    let addons: Api<ManagedClusterAddOn> = Api::namespaced(stage.admin.clone(), "cluster1");
    until("the add-on to say that its credential was asked for", || async {
        let status = addons.get("managed-serviceaccount").await?.status;
        let said = condition::is_true(&status.unwrap_or_default().conditions, "CredentialRequested");
        Ok(said.then_some(()))
    })
    .await?;
    // One request did it: a good certificate is not asked for again.
    let requests: Api<CertificateSigningRequest> = Api::all(stage.admin.clone());
    let of_addon = ListParams::default()
        .labels("open-cluster-management.io/addon-name,open-cluster-management.io/cluster-name=cluster1");
    let asked = requests.list(&of_addon).await?.items.len();
    ensure!(asked == 1, "{asked} requests");

    let name = "managed-serviceaccount-hub-kubeconfig";
    let broken = json!({"data": {"tls.key": null}});
    secrets
        .patch(name, &PatchParams::default(), &Patch::Merge(&broken))
        .await?;
    let second = credential(&secrets, Some(&first)).await?;
    secrets.delete(name, &DeleteParams::default()).await?;
    let third = credential(&secrets, Some(&second)).await?;
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(mounted(&third).await?, "cluster1");
    accounts.get("robot").await?;

    // The add-on moves: the credential goes along. Then it goes, and the credential too.
    let moved = json!({"spec": {"installNamespace": "elsewhere"}});
    addons
        .patch(
            "managed-serviceaccount",
            &PatchParams::default(),
            &Patch::Merge(&moved),
        )
        .await?;
    let elsewhere: Api<Secret> = Api::namespaced(spoke, "elsewhere");
    credential(&elsewhere, Some(&third)).await?;
    gone("the former Secret", &secrets, name).await?;
    addons
        .delete("managed-serviceaccount", &DeleteParams::default())
        .await?;
    gone("the Secret", &elsewhere, name).await
}

/// A hub that gives nobody the add-on: a cluster has accounts from when somebody makes its ManagedClusterAddOn, and has
/// none any more when it goes.
pub async fn by_hand(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    let mut options = writ_hub::Options::default();
    options.managed_service_account.install_everywhere = false;
    let hub = fleet.run_hub(options).await?;
    fleet.accept(1).await?;
    let mut stage = Stage {
        fleet,
        admin: admin.clone(),
        running: vec![hub],
    };
    stage
        .create("cluster1", "robot", json!({ "rotation": {} }))
        .await?;
    // Once this is said the hub has seen the cluster and its account.
    stage.create("default", "lost", json!({ "rotation": {} })).await?;
    until("the account elsewhere to be told that it is nowhere", || async {
        let status = stage.accounts("default").get("lost").await?.status;
        let said =
            condition::find(&status.unwrap_or_default().conditions, "AllServiceAccountPresent").cloned();
        Ok(said.filter(|said| said.reason == "NamespaceNotBound").map(drop))
    })
    .await?;
    let addons: Api<ManagedClusterAddOn> = Api::namespaced(admin.clone(), "cluster1");
    let roles: Api<Role> = Api::namespaced(admin, "cluster1");
    ensure!(addons.list(&ListParams::default()).await?.items.is_empty());
    ensure!(roles.get_opt(AGENT_ROLE).await?.is_none());
    let addon = serde_json::from_value(json!({
        "apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterAddOn",
        "metadata": {"name": "managed-serviceaccount"}, "spec": {},
    }))?;
    addons.create(&PostParams::default(), &addon).await?;
    let agent = stage.fleet.run_agent(1, writ_agent::Options::default()).await?;
    stage.running.push(agent);
    stage.token("cluster1", "robot", &[]).await?;
    addons
        .delete("managed-serviceaccount", &DeleteParams::default())
        .await?;
    gone("the Role", &roles, AGENT_ROLE).await?;
    ensure!(
        addons.get_opt("managed-serviceaccount").await?.is_none(),
        "it came back by itself"
    );
    Ok(())
}

/// The add-on is installed in another namespace, and then removed: its accounts end with it, and nothing else does.
async fn moves(stage: &Stage, addons: &Api<ManagedClusterAddOn>, token: &str) -> Result<()> {
    let spoke = stage.fleet.cluster(1)?.admin().await?;
    let namespaces: Api<Namespace> = Api::all(spoke.clone());
    let moved = json!({"spec": {"installNamespace": "elsewhere"}});
    addons
        .patch(
            "managed-serviceaccount",
            &PatchParams::default(),
            &Patch::Merge(&moved),
        )
        .await?;
    let deployments: Api<Deployment> = Api::namespaced(spoke, "elsewhere");
    until("the Deployment in the other namespace", || async {
        Ok(deployments.get_opt("managed-serviceaccount-addon-agent").await?)
    })
    .await?;
    until("the token of the former namespace to be refused", || async {
        Ok(stage.user_of(1, token).await?.is_none().then_some(()))
    })
    .await?;
    addons
        .delete("managed-serviceaccount", &DeleteParams::default())
        .await?;
    gone(
        "the Deployment",
        &deployments,
        "managed-serviceaccount-addon-agent",
    )
    .await?;
    for name in [NAMESPACE, "elsewhere"] {
        let left = namespaces.get(name).await?;
        ensure!(
            left.metadata.deletion_timestamp.is_none(),
            "other add-ons live in {name} too"
        );
    }
    Ok(())
}

pub(super) async fn run(stage: &Stage, hub: Client) -> Result<Running> {
    let cluster = stage.fleet.cluster(1)?;
    // The credential may be there before the work that brings the account of the pod.
    let spoke = until("the add-on's account", || async {
        cluster
            .service_account(NAMESPACE, "managed-serviceaccount")
            .await
            .map(Some)
    })
    .await?;
    let options = writ_agent::Options {
        cluster_name: "cluster1".into(),
        agent_namespace: NAMESPACE.into(),
        controllers: vec!["tokens".into()],
        ..writ_agent::Options::default()
    };
    start("the add-on's agent", |health, shutdown| {
        writ_agent::run(hub, spoke, options, health, shutdown)
    })
    .await
}

fn base64(bytes: &[u8]) -> String {
    use base64::{Engine, engine::general_purpose::STANDARD};
    STANDARD.encode(bytes)
}

//! How an agent comes to its identity and keeps it: certificates, tokens, and requests that are not what they seem.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use anyhow::{Context, Result, ensure};
use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::{
    ByteString,
    api::{
        certificates::v1::CertificateSigningRequest, coordination::v1::Lease, core::v1::ServiceAccount,
        rbac::v1::ClusterRole,
    },
};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
    config::{AuthInfo, Kubeconfig},
};
use rcgen::{CertificateParams, DistinguishedName, DnType, DnValue, KeyPair};
use serde_json::json;
use tokio_util::sync::CancellationToken;
use writ_agent::registration::{
    Driver, Joining, identity, join, keep,
    store::{Store, auth_of},
};
use writ_api::cluster::{CLUSTER_NAME_LABEL, ManagedCluster};
use writ_controller::clock::Clock;
use writ_hub::{
    options::RegistrationDriver,
    registration::operator_actions::{self, Accepted},
};

use super::{
    create, grant, refused,
    registration::{condition, joining},
    rule, run_hub, told, user,
};
use crate::{Fleet, cluster::client, fleet::HUB_NAMESPACE, wait, yaml};

/// Joins with the shared bootstrap identity, accepted by an administrator.
async fn let_in(admin: &Client, wanted: &Joining) -> Result<Kubeconfig> {
    let joined = tokio::spawn({
        let wanted = wanted.clone();
        async move { join(&wanted).await }
    });
    wait::until_true("a request is pending", || async {
        Ok(operator_actions::pending(admin, &wanted.cluster).await?.len() == 1)
    })
    .await?;
    operator_actions::accept(admin, &wanted.cluster, None).await?;
    Ok(joined.await??)
}

/// Runs what keeps an identity until it was renewed once; the clock shows a late part of the identity's life.
async fn renew_once(mut wanted: Joining, life: identity::Lifetime) -> Result<()> {
    let late = life
        .from
        .checked_add(life.until.duration_since(life.from).mul_f64(0.85))?;
    wanted.clock = Clock::simulated(late);
    let (rounds, shutdown) = (Arc::new(AtomicUsize::new(0)), CancellationToken::new());
    let kept = tokio::spawn({
        let (rounds, shutdown) = (rounds.clone(), shutdown.clone());
        async move {
            keep(&wanted, shutdown, |_, until| {
                rounds.fetch_add(1, Ordering::Relaxed);
                async move {
                    until.cancelled().await;
                    Ok(())
                }
            })
            .await
        }
    });
    wait::until_true("the agent runs with a renewed identity", || async {
        Ok(rounds.load(Ordering::Relaxed) >= 2)
    })
    .await?;
    shutdown.cancel();
    Ok(kept.await??)
}

fn certificate(config: &Kubeconfig) -> Result<String> {
    let data = auth_of(config).and_then(|auth| auth.client_certificate_data.clone());
    Ok(String::from_utf8(
        STANDARD.decode(data.context("no certificate")?)?,
    )?)
}

/// Only the cluster's own identity renews; a bootstrap request for an accepted cluster needs a person again.
pub async fn renewal(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let folder = tempfile::tempdir()?;
    let store = Store::File(folder.path().join("hub.kubeconfig"));
    let wanted = joining(&fleet, "cluster1", store.clone()).await?;
    let first = certificate(&let_in(&admin, &wanted).await?)?;
    let (life, own) = identity::certificate(&first).context("a certificate")?;

    // Somebody else with the shared bootstrap identity asks for the same cluster.
    let bootstrap = client(wanted.bootstrap.clone()).await?;
    let requests: Api<CertificateSigningRequest> = Api::all(bootstrap);
    let thief = identity::request("cluster1", "thief", &identity::new_key()?)?;
    let thief = requests.create(&PostParams::default(), &thief).await?.name_any();

    renew_once(wanted, life).await?;
    let renewed = store.load().await?.kubeconfig.context("no kubeconfig")?;
    ensure!(
        certificate(&renewed)? != first,
        "the certificate is still the first"
    );
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    let rotated = condition(&clusters, "cluster1", "ClusterCertificateRotated").await?;
    ensure!(rotated.as_deref() == Some("True"), "{rotated:?}");
    let all: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let by_itself: Vec<_> = all
        .list(&ListParams::default())
        .await?
        .items
        .into_iter()
        .filter(|request| request.spec.username.as_deref() == Some(own.user.as_str()))
        .collect();
    ensure!(!by_itself.is_empty() && by_itself.iter().all(is_approved));
    // The request of the thief was there all the time: nobody approved it.
    ensure!(
        !is_approved(&all.get(&thief).await?),
        "a bootstrap request was approved"
    );
    // Denied and accepted again is the agent that had the cluster, not whoever waits.
    operator_actions::deny(&admin, "cluster1").await?;
    let accepted = operator_actions::accept(&admin, "cluster1", None).await?;
    ensure!(
        matches!(&accepted, Accepted::Again(others) if others.len() == 1 && others.iter().all(|p| p.name == thief)),
        "{accepted:?}"
    );
    let agent: Api<Lease> = Api::namespaced(client(renewed).await?, "cluster1");
    wait::until_true("the agent has its rights again", || async {
        Ok(agent.get("managed-cluster-lease").await.is_ok())
    })
    .await?;
    ensure!(!is_approved(&all.get(&thief).await?), "whoever waited was let in");
    // A person may: for an agent that lost its key.
    let accepted = operator_actions::accept(&admin, "cluster1", None).await?;
    ensure!(
        matches!(&accepted, Accepted::Chosen(p) if p.name == thief),
        "{accepted:?}"
    );
    wait::until_true("the request that a person chose is approved", || async {
        Ok(is_approved(&all.get(&thief).await?))
    })
    .await?;
    hub.stop().await
}

pub(super) fn is_approved(request: &CertificateSigningRequest) -> bool {
    let conditions = request.status.as_ref().and_then(|s| s.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|c| c.type_ == "Approved"))
}

/// A right request whose end has another name, and then one for somebody else: who reads blocks by their begin sees
/// the first, who reads them by both sees the second, and signs it.
fn two_in_one(cluster: &str, agent: &str, group: &str) -> Result<CertificateSigningRequest> {
    let mut right = crafted(cluster, agent, &[group])?;
    let other = crafted(cluster, "system:kube-controller-manager", &["platform-admins"])?;
    let text = String::from_utf8(right.spec.request.0)?;
    let text = text.replace("-----END CERTIFICATE REQUEST-----", "-----END X-----");
    right.spec.request.0 = [text.into_bytes(), other.spec.request.0].concat();
    Ok(right)
}

/// A request with any subject, under any label.
fn crafted(label: &str, user: &str, groups: &[&str]) -> Result<CertificateSigningRequest> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    for group in groups {
        // The type keeps one value per kind; a request may hold several.
        let kind = if params.distinguished_name.get(&DnType::OrganizationName).is_some() {
            DnType::CustomDnType(vec![2, 5, 4, 10])
        } else {
            DnType::OrganizationName
        };
        params
            .distinguished_name
            .push(kind, DnValue::Utf8String((*group).to_owned()));
    }
    let pem = params.serialize_request(&key)?.pem()?;
    let mut request = identity::request("any", "agent", &identity::new_key()?)?;
    request.spec.request = ByteString(pem.into_bytes());
    request.metadata.generate_name = Some("attack-".into());
    request
        .labels_mut()
        .insert(CLUSTER_NAME_LABEL.into(), label.into());
    Ok(request)
}

/// Requests that are nearly right are never approved, with the right one beside them.
pub async fn attacks(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let bootstrap = fleet
        .hub
        .service_account(HUB_NAMESPACE, "agent-registration-bootstrap")
        .await?;
    for name in ["prod", "prod1"] {
        create(&bootstrap, name, json!({})).await?;
    }
    operator_actions::accept(&admin, "prod1", None).await?;
    // Whoever brings a cluster in does not decide how it will leave.
    let forced: ManagedCluster =
        serde_json::from_value(json!({"apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster", "spec": {},
        "metadata": {"name": "forced", "annotations": {"writ.dev/force-detach": "true"}}}))?;
    let clusters: Api<ManagedCluster> = Api::all(bootstrap.clone());
    refused(
        clusters
            .create(&PostParams::default(), &forced)
            .await
            .map_err(Into::into),
        "cannot",
    )?;
    role_of_others(&fleet, &admin).await?;
    let prefix = "system:open-cluster-management";
    let (prod, prod1) = (format!("{prefix}:prod"), format!("{prefix}:prod1"));
    let agent = |of: &str| format!("{prefix}:{of}:agent");
    let mut usage = crafted("prod", &agent("prod"), &[&prod])?;
    usage.spec.usages = Some(vec!["server auth".into(), "client auth".into()]);
    let attacks = [
        (
            "a prefix of the name",
            crafted("prod", &agent("prod1"), &[&prod1])?,
        ),
        (
            "the group of another",
            crafted("prod", &agent("prod"), &[&prod1])?,
        ),
        (
            "the label of another",
            crafted("prod1", &agent("prod"), &[&prod])?,
        ),
        (
            "a third organization",
            crafted("prod", &agent("prod"), &[&prod, "platform-admins"])?,
        ),
        ("no organization", crafted("prod", &agent("prod"), &[])?),
        ("no agent", crafted("prod", &format!("{prefix}:prod"), &[&prod])?),
        ("somebody else", crafted("prod", "kubernetes-admin", &[&prod])?),
        ("another usage", usage),
        (
            "two requests in one text",
            two_in_one("prod", &agent("prod"), &prod)?,
        ),
    ];
    let requests: Api<CertificateSigningRequest> = Api::all(bootstrap.clone());
    let mut sent = Vec::new();
    for (what, request) in attacks {
        let made = requests.create(&PostParams::default(), &request).await;
        sent.push((what, made.with_context(|| what.to_owned())?.name_any()));
    }
    // The agent of one cluster asks for another; so does somebody who may not create the cluster.
    let foreign = wait::until("the agent of prod1 asks for prod", || async {
        let agent: Api<CertificateSigningRequest> = Api::all(fleet.agent_identity("prod1").await?);
        let request = identity::request("prod", "agent", &identity::new_key()?)?;
        Ok(agent.create(&PostParams::default(), &request).await.ok())
    })
    .await?;
    sent.push(("the agent of another", foreign.name_any()));
    let rules = json!([{"apiGroups": ["certificates.k8s.io"], "resources": ["certificatesigningrequests"], "verbs": ["create"]}]);
    grant(&fleet, "asker", user("asker"), &rules).await?;
    let asker: Api<CertificateSigningRequest> =
        Api::all(fleet.hub.user("asker", &["system:authenticated"]).await?);
    let request = identity::request("prod", "agent", &identity::new_key()?)?;
    let nobody = asker.create(&PostParams::default(), &request).await?.name_any();
    sent.push(("somebody who may not create the cluster", nobody.clone()));
    // Chosen by a person by mistake, it is still not approved.
    operator_actions::accept(&admin, "prod", Some(&nobody)).await?;
    told(&fleet, "prod", "CertificateRequestNotApproved", 1).await?;

    let right = identity::request("prod", "agent", &identity::new_key()?)?;
    let right = requests.create(&PostParams::default(), &right).await?.name_any();
    operator_actions::accept(&admin, "prod", Some(&right)).await?;
    let all: Api<CertificateSigningRequest> = Api::all(admin);
    wait::until_true("the right one is approved", || async {
        Ok(is_approved(&all.get(&right).await?))
    })
    .await?;
    for (what, name) in sent {
        ensure!(!is_approved(&all.get(&name).await?), "{what} was approved");
    }
    hub.stop().await
}

/// A role that was made for no cluster of that name is not taken over: the cluster gets no rights, and is told.
async fn role_of_others(fleet: &Fleet, admin: &Client) -> Result<()> {
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    let role = serde_json::from_value(
        json!({"metadata": {"name": "open-cluster-management:managedcluster:taken"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}),
    )?;
    let role = roles.create(&PostParams::default(), &role).await?;
    create(admin, "taken", json!({})).await?;
    operator_actions::accept(admin, "taken", None).await?;
    told(fleet, "taken", "Invalid", 1).await?;
    ensure!(roles.get(&role.name_any()).await?.rules == role.rules);
    Ok(())
}

/// A hub that signs no certificates: one account per cluster, and a first token that a person hands over.
pub async fn token_driver(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |options| {
        options.registration_driver = RegistrationDriver::Token;
    })
    .await?;
    let admin = fleet.hub.admin().await?;
    let folder = tempfile::tempdir()?;
    let mut wanted = joining(&fleet, "cluster1", Store::File(folder.path().join("shared"))).await?;
    wanted.driver = Driver::Token;
    // With the shared bootstrap identity it makes its ManagedCluster and waits, for ever.
    let shared = tokio::spawn({
        let wanted = wanted.clone();
        async move { join(&wanted).await }
    });
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    wait::until("the ManagedCluster", || async {
        Ok(clusters.get_opt("cluster1").await?)
    })
    .await?;
    operator_actions::accept(&admin, "cluster1", None).await?;
    account_of_before(&fleet, &admin).await?;
    let token = wait::until("the first token", || async {
        Ok(operator_actions::first_token(&admin, "cluster1", 3600).await.ok())
    })
    .await?;
    let bootstrap = client(wanted.bootstrap.clone()).await?;
    refused(
        operator_actions::first_token(&bootstrap, "cluster1", 3600)
            .await
            .map_err(Into::into),
        "forbidden",
    )?;
    ensure!(!shared.is_finished(), "the shared identity got a token");
    shared.abort();

    // The token that was handed over lets the agent in, and the agent renews it.
    wanted.bootstrap = fleet.hub.kubeconfig_with(AuthInfo {
        token: Some(token.into()),
        ..AuthInfo::default()
    });
    wanted.store = Store::File(folder.path().join("own"));
    let config = join(&wanted).await?;
    let first = auth_of(&config).and_then(writ_agent::registration::store::token);
    let life = first
        .as_deref()
        .and_then(identity::token)
        .context("a token that says how long it lives")?;
    renew_once(wanted.clone(), life).await?;
    let renewed = wanted.store.load().await?.kubeconfig.context("no kubeconfig")?;
    ensure!(auth_of(&renewed).and_then(writ_agent::registration::store::token) != first);

    one_cluster(&fleet, &admin, &wanted, folder.path()).await?;

    // It is its own account and nothing else.
    let agent = client(renewed).await?;
    let own: Api<Lease> = Api::namespaced(agent.clone(), "cluster1");
    wait::until_true("it has its lease", || async {
        Ok(own.get("managed-cluster-lease").await.is_ok())
    })
    .await?;
    let foreign: Api<Lease> = Api::namespaced(agent.clone(), "cluster2");
    refused(
        foreign.get("managed-cluster-lease").await.map_err(Into::into),
        "forbidden",
    )?;
    refused(
        operator_actions::first_token(&agent, "cluster2", 600)
            .await
            .map_err(Into::into),
        "forbidden",
    )?;
    let accounts: Api<ServiceAccount> = Api::namespaced(agent.clone(), "cluster1");
    let other = accounts
        .create_token_request(
            "default",
            &PostParams::default(),
            &serde_json::from_value(json!({"spec": {"audiences": []}}))?,
        )
        .await;
    refused(other.map_err(Into::into), "forbidden")?;
    operator_actions::deny(&admin, "cluster1").await?;
    wait::until_true("the denied account has no rights", || async {
        Ok(own.get("managed-cluster-lease").await.is_err()
            && operator_actions::first_token(&agent, "cluster1", 600)
                .await
                .is_err())
    })
    .await?;
    hub.stop().await
}

/// An account that was there before the cluster is replaced: whoever holds a token of it does not become the agent. What
/// somebody takes off the new one comes back.
async fn account_of_before(fleet: &Fleet, admin: &Client) -> Result<()> {
    fleet.hub.namespace("cluster2").await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "cluster2");
    let account = serde_json::from_value(json!({"metadata": {"name": "managed-cluster-agent"}}))?;
    let before = accounts.create(&PostParams::default(), &account).await?;
    let former = operator_actions::first_token(admin, "cluster2", 3600).await?;
    create(admin, "cluster2", json!({})).await?;
    operator_actions::accept(admin, "cluster2", None).await?;
    let marked = || async {
        let account = accounts.get_opt("managed-cluster-agent").await?;
        let marked = account.filter(|account| account.labels().contains_key(CLUSTER_NAME_LABEL));
        Ok(marked.filter(|account| account.uid() != before.uid()))
    };
    wait::until("an account of the new cluster's own", marked).await?;
    let own: Api<Lease> = Api::namespaced(fleet.hub.with_token(&former).await?, "cluster2");
    wait::until_true("a token of the former account is nobody's", || async {
        let answer = own.get("managed-cluster-lease").await;
        Ok(matches!(answer, Err(kube::Error::Api(status)) if status.code == 401))
    })
    .await?;
    let (params, name) = (PatchParams::default(), "managed-cluster-agent");
    let bare = json!({"metadata": {"labels": {CLUSTER_NAME_LABEL: null}}});
    accounts.patch(name, &params, &Patch::Merge(&bare)).await?;
    wait::until("the account is marked again", marked).await?;
    Ok(())
}

/// A bootstrap identity of one cluster gets the first token itself, once the cluster is accepted, and of no other cluster.
async fn one_cluster(
    fleet: &Fleet,
    admin: &Client,
    wanted: &Joining,
    folder: &std::path::Path,
) -> Result<()> {
    let name = "cluster3";
    create(admin, name, json!({})).await?;
    fleet.hub.namespace(name).await?;
    let rules = json!([rule("managedclusters", &[name], &["get", "list", "watch"])]);
    grant(fleet, "one-cluster", user("one-cluster"), &rules).await?;
    let role = "{apiGroup: rbac.authorization.k8s.io, kind: Role, name: first-token}";
    yaml::apply(
        admin,
        &format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: first-token, namespace: {name}}}\n\
             rules:\n- {{apiGroups: [''], resources: [serviceaccounts/token], resourceNames: [managed-cluster-agent], \
             verbs: [create]}}\n---\n\
             apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
             metadata: {{name: first-token, namespace: {name}}}\nroleRef: {role}\n\
             subjects:\n- {{apiGroup: rbac.authorization.k8s.io, kind: User, name: one-cluster}}\n"
        ),
    )
    .await?;
    let wanted = Joining {
        cluster: name.into(),
        bootstrap: fleet.hub.kubeconfig_as("one-cluster", &["system:authenticated"]),
        store: Store::File(folder.join("one")),
        ..wanted.clone()
    };
    let bootstrap = client(wanted.bootstrap.clone()).await?;
    let mut joined = tokio::spawn(async move { join(&wanted).await });
    refused(
        operator_actions::first_token(&bootstrap, "cluster2", 600)
            .await
            .map_err(Into::into),
        "forbidden",
    )?;
    ensure!(!joined.is_finished(), "nobody has accepted {name}");
    operator_actions::accept(admin, name, None).await?;
    let config = tokio::time::timeout(wait::PATIENCE, &mut joined).await???;
    let own: Api<Lease> = Api::namespaced(client(config).await?, name);
    wait::until_true("it has its lease", || async {
        Ok(own.get("managed-cluster-lease").await.is_ok())
    })
    .await
}

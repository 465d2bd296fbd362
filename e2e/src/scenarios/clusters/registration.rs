//! Joining with a bootstrap identity, reporting, being denied, leaving.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{
    certificates::v1::CertificateSigningRequest, coordination::v1::Lease, core::v1::Secret,
};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    config::Kubeconfig,
};
use serde_json::{Value, json};
use writ_agent::registration::{
    Driver, Joining, identity, join,
    store::{Store, auth_of},
};
use writ_api::{authentication::ManagedServiceAccount, cluster::ManagedCluster};
use writ_hub::registration::operator_actions::{self, Accepted};

use writ_controller::clock::Clock;

use super::{create, refused, relabel, run_hub, told};
use crate::{
    Fleet,
    cluster::client,
    fleet::{AGENT_NAMESPACE, HUB_NAMESPACE, start},
    wait,
};

pub(super) async fn joining(fleet: &Fleet, name: &str, store: Store) -> Result<Joining> {
    let token = fleet
        .hub
        .token(HUB_NAMESPACE, "agent-registration-bootstrap")
        .await?;
    let auth = kube::config::AuthInfo {
        token: Some(token.into()),
        ..kube::config::AuthInfo::default()
    };
    Ok(Joining {
        cluster: name.into(),
        bootstrap: fleet.hub.kubeconfig_with(auth),
        store,
        client_configs: Vec::new(),
        driver: Driver::Csr,
        clock: Clock::System,
    })
}

pub(super) async fn condition(
    clusters: &Api<ManagedCluster>,
    name: &str,
    type_: &str,
) -> Result<Option<String>> {
    let status = clusters.get(name).await?.status.unwrap_or_default();
    Ok(status
        .conditions
        .into_iter()
        .find(|c| c.type_ == type_)
        .map(|c| c.status))
}

/// A whole life: join, accept, report, relabel refused, deny, accept again, detach.
pub async fn lifecycle(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    let spoke = fleet
        .cluster(1)?
        .service_account(AGENT_NAMESPACE, "writ-agent")
        .await?;
    let store = Store::Secret {
        client: spoke.clone(),
        namespace: AGENT_NAMESPACE.into(),
    };
    let wanted = joining(&fleet, "cluster1", store).await?;
    let joined = tokio::spawn({
        let wanted = wanted.clone();
        async move { join(&wanted).await }
    });
    wait::until_true("one request is pending", || async {
        Ok(operator_actions::pending(&admin, "cluster1").await?.len() == 1)
    })
    .await?;
    let accepted = operator_actions::accept(&admin, "cluster1", None).await?;
    ensure!(matches!(accepted, Accepted::Chosen(_)), "{accepted:?}");
    let config = joined.await??;
    let identity = client(config).await?;

    // The agent runs with that identity: it reports, and keeps its lease.
    let options = writ_agent::Options {
        cluster_name: "cluster1".into(),
        controllers: vec!["registration".into()],
        cluster_labels: [("region".to_owned(), "apac".to_owned())].into(),
        ..writ_agent::Options::default()
    };
    let agent = start("the agent", |health, shutdown| {
        writ_agent::run(identity.clone(), spoke, options, health, shutdown)
    })
    .await?;
    for type_ in [
        "HubAcceptedManagedCluster",
        "ManagedClusterJoined",
        "ManagedClusterConditionAvailable",
    ] {
        wait::until_true(type_, || async {
            Ok(condition(&clusters, "cluster1", type_).await?.as_deref() == Some("True"))
        })
        .await?;
    }
    wait::until_true("the cluster is not tainted any more", || async {
        Ok(clusters.get("cluster1").await?.spec.taints.is_empty())
    })
    .await?;
    let status = clusters.get("cluster1").await?.status.context("no status")?;
    ensure!(
        status
            .cluster_claims
            .iter()
            .any(|c| c.name == "agent.writ.dev" && c.value == "registration")
    );
    ensure!(status.version.and_then(|v| v.kubernetes).is_some());
    let leases: Api<Lease> = Api::namespaced(admin.clone(), "cluster1");
    ensure!(
        leases
            .get("managed-cluster-lease")
            .await?
            .spec
            .is_some_and(|s| s.renew_time.is_some())
    );
    // It was told a label that it has no right to: refused, and said so.
    wait::until_true("the refusal is reported", || async {
        Ok(condition(&clusters, "cluster1", "ClusterLabelsApplied")
            .await?
            .as_deref()
            == Some("False"))
    })
    .await?;
    // It sees nothing of another cluster.
    let foreign: Api<Lease> = Api::namespaced(identity.clone(), "cluster2");
    refused(
        foreign.get("managed-cluster-lease").await.map_err(Into::into),
        "forbidden",
    )?;

    operator_actions::deny(&admin, "cluster1").await?;
    let own: Api<ManagedCluster> = Api::all(identity.clone());
    wait::until_true("the denied agent has no rights", || async {
        Ok(own.get("cluster1").await.is_err())
    })
    .await?;
    operator_actions::accept(&admin, "cluster1", None).await?;
    wait::until_true("the accepted agent has them again", || async {
        Ok(own.get("cluster1").await.is_ok())
    })
    .await?;
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(admin.clone(), "cluster1");
    let robot = serde_json::from_value(json!({"metadata": {"name": "robot"}, "spec": {"rotation": {}}}))?;
    accounts.create(&PostParams::default(), &robot).await?;
    operator_actions::detach(&admin, "cluster1", false).await?;
    wait::until_true("the cluster is gone", || async {
        Ok(clusters.get_opt("cluster1").await?.is_none())
    })
    .await?;
    // The next cluster of that name finds no account of this one.
    wait::until_true("its accounts are gone", || async {
        Ok(accounts.get_opt("robot").await?.is_none())
    })
    .await?;
    wait::until_true("its rights are gone", || async {
        Ok(leases_as(&identity, "cluster1").await.is_err())
    })
    .await?;
    agent.stop().await?;

    // It joins again as a cluster that was never here: what it kept is worth nothing any more.
    let certificate = |config: &Kubeconfig| auth_of(config).and_then(|a| a.client_certificate_data.clone());
    let before = wanted.store.load().await?.kubeconfig.context("no kubeconfig")?;
    let joined = tokio::spawn({
        let wanted = wanted.clone();
        async move { join(&wanted).await }
    });
    wait::until_true("a new request is pending", || async {
        Ok(operator_actions::pending(&admin, "cluster1").await?.len() == 1)
    })
    .await?;
    operator_actions::accept(&admin, "cluster1", None).await?;
    let config = joined.await??;
    ensure!(certificate(&before) != certificate(&config));
    hub.stop().await
}

/// A certificate that somebody approves by hand, before anybody accepts the cluster: the agent holds an identity that may
/// do nothing, and notices the acceptance by watching its cluster with the identity that it started with.
pub async fn certificate_first(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let folder = tempfile::tempdir()?;
    let store = Store::File(folder.path().join("hub.kubeconfig"));
    let wanted = joining(&fleet, "early", store.clone()).await?;
    let joined = tokio::spawn(async move { join(&wanted).await });
    let pending = wait::until("the request", || async {
        Ok(operator_actions::pending(&admin, "early").await?.pop())
    })
    .await?;
    let approval = json!({"status": {"conditions": [
        {"type": "Approved", "status": "True", "reason": "ByHand", "message": "e2e"}]}});
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    requests
        .patch_approval(&pending.name, &PatchParams::default(), &Patch::Merge(approval))
        .await?;
    let config = wait::until("the certificate is kept", || async {
        Ok(store.load().await?.kubeconfig)
    })
    .await?;
    let own: Api<ManagedCluster> = Api::all(client(config).await?);
    refused(own.get("early").await.map_err(Into::into), "forbidden")?;
    ensure!(!joined.is_finished(), "nobody has accepted the cluster");
    operator_actions::accept(&admin, "early", None).await?;
    joined.await??;
    own.get("early").await?;
    hub.stop().await
}

/// Nothing is asked for whose key cannot be kept, and what was asked for is not asked for again.
pub async fn one_request(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let folder = tempfile::tempdir()?;
    let place = folder.path().join("not-there");
    let wanted = joining(&fleet, "one", Store::File(place.join("hub.kubeconfig"))).await?;
    for _ in 0..2 {
        refused(join(&wanted).await.map_err(Into::into), "not-there")?;
    }
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let all = ListParams::default();
    ensure!(
        requests.list(&all).await?.items.is_empty(),
        "a key that was not kept"
    );
    std::fs::create_dir(&place)?;
    // Interrupted and started again, it waits with the request that it sent.
    for _ in 0..2 {
        let joined = tokio::spawn({
            let wanted = wanted.clone();
            async move { join(&wanted).await }
        });
        wait::until_true("a request is pending", || async {
            Ok(!operator_actions::pending(&admin, "one").await?.is_empty())
        })
        .await?;
        joined.abort();
        let _ = joined.await;
    }
    // So it does if it was interrupted before it could send it.
    let sent = requests.list(&all).await?.items;
    ensure!(sent.len() == 1, "{} requests", sent.len());
    let name = sent.iter().map(ResourceExt::name_any).collect::<String>();
    requests.delete(&name, &DeleteParams::default()).await?;
    let joined = tokio::spawn(async move { join(&wanted).await });
    wait::until_true("the same request is pending", || async {
        Ok(operator_actions::pending(&admin, "one")
            .await?
            .iter()
            .any(|p| p.name == name))
    })
    .await?;
    operator_actions::accept(&admin, "one", None).await?;
    joined.await??;
    // A cluster in which nothing is installed has no namespace of the agent's.
    let bare = fleet.cluster(1)?.admin().await?;
    let store = Store::Secret {
        client: bare.clone(),
        namespace: "bare".into(),
    };
    let wanted = joining(&fleet, "two", store).await?;
    let joined = tokio::spawn(async move { join(&wanted).await });
    wait::until_true("a request is pending", || async {
        Ok(operator_actions::pending(&admin, "two").await?.len() == 1)
    })
    .await?;
    operator_actions::accept(&admin, "two", None).await?;
    joined.await??;
    let secrets: Api<Secret> = Api::namespaced(bare, "bare");
    secrets.get("hub-kubeconfig-secret").await?;
    hub.stop().await
}

async fn leases_as(client: &Client, namespace: &str) -> Result<()> {
    let api: Api<Lease> = Api::namespaced(client.clone(), namespace);
    api.get("managed-cluster-lease").await?;
    Ok(())
}

/// Agents report what the definition lets through and nobody can read. They are denied like any other, and hold up
/// nobody: neither while the hub runs, nor when it starts anew and reads everything.
pub async fn nonsense(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let condition = json!({
        "type": "Odd", "status": "True", "reason": "Odd", "message": "", "lastTransitionTime": "2026-01-01T00:00:00+99:99",
    });
    let reports = [
        ("large", json!({"capacity": {"x": 5_000_000_000_i64}})),
        ("late", json!({"conditions": [condition]})),
        // Not among what the hub itself writes over.
        (
            "deep",
            json!({"managedNamespaces": [{"name": "odd", "clusterSet": "odd", "conditions": [condition]}]}),
        ),
    ];
    let accept = async |name: &str| -> Result<Client> {
        create(&admin, name, json!({})).await?;
        operator_actions::accept(&admin, name, None).await?;
        let agent = fleet.agent_identity(name).await?;
        let own: Api<ManagedCluster> = Api::all(agent.clone());
        // Those in its namespace and those on its cluster come with two bindings.
        wait::until_true(&format!("{name} has its rights"), || async {
            Ok(leases_as(&agent, name).await.is_ok() && own.get(name).await.is_ok())
        })
        .await?;
        Ok(agent)
    };
    let raw = |client: &Client| -> Api<DynamicObject> {
        Api::all_with(client.clone(), &ApiResource::erase::<ManagedCluster>(&()))
    };
    let report = async |agent: &Client, name: &str, status: &Value| -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        raw(agent)
            .patch_status(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    };
    let mut agents = Vec::new();
    for (name, status) in &reports {
        let agent = accept(name).await?;
        report(&agent, name, status).await?;
        agents.push(agent);
    }
    accept("other").await?;
    hub.stop().await?;
    for ((name, status), agent) in reports.iter().zip(&agents) {
        report(agent, name, status).await?;
    }
    let hub = run_hub(&fleet, |_| {}).await?;
    for ((name, _), agent) in reports.iter().zip(&agents) {
        let patch = Patch::Merge(json!({"spec": {"hubAcceptsClient": false}}));
        raw(&admin).patch(name, &PatchParams::default(), &patch).await?;
        wait::until_true(&format!("{name} has no rights"), || async {
            Ok(leases_as(agent, name).await.is_err())
        })
        .await?;
        wait::until_true(&format!("{name} is told that it was denied"), || async {
            let cluster = raw(&admin).get(name).await?;
            let conditions = cluster
                .data
                .pointer("/status/conditions")
                .and_then(Value::as_array);
            Ok(conditions.into_iter().flatten().any(|condition| {
                condition["type"] == "HubAcceptedManagedCluster" && condition["status"] == "False"
            }))
        })
        .await?;
        raw(&admin).delete(name, &DeleteParams::default()).await?;
        wait::until_true(&format!("{name} is gone"), || async {
            Ok(raw(&admin).get_opt(name).await?.is_none())
        })
        .await?;
    }
    hub.stop().await
}

/// Requests that look alike are not approved; two that match are a question for a person.
pub async fn requests(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let bootstrap = fleet
        .hub
        .service_account(HUB_NAMESPACE, "agent-registration-bootstrap")
        .await?;
    for name in ["prod", "prod1"] {
        create(&bootstrap, name, json!({})).await?;
    }
    let api: Api<CertificateSigningRequest> = Api::all(bootstrap.clone());
    let send = async |request: CertificateSigningRequest| -> Result<String> {
        Ok(api.create(&PostParams::default(), &request).await?.name_any())
    };
    // A request of prod1 with the label of prod; one for another signer.
    let mut lookalike = identity::request("prod1", "agent", &identity::new_key()?)?;
    lookalike
        .labels_mut()
        .insert("open-cluster-management.io/cluster-name".into(), "prod".into());
    let lookalike = send(lookalike).await?;
    let mut signer = identity::request("prod", "agent", &identity::new_key()?)?;
    signer.spec.signer_name = "example.com/other".into();
    let signer = send(signer).await?;
    let first = send(identity::request("prod", "agent", &identity::new_key()?)?).await?;
    let second = send(identity::request("prod", "agent", &identity::new_key()?)?).await?;
    let Accepted::Ambiguous(pending) = operator_actions::accept(&admin, "prod", None).await? else {
        anyhow::bail!("two requests should be a question");
    };
    ensure!(pending.len() == 2 && pending.iter().all(|p| p.fingerprint.len() == 64));
    // Accepted without a choice, as upstream's tools do it: neither is approved, and an event says what to do.
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    for (round, seen) in [("first", 1), ("second", 2)] {
        let patch = json!({"metadata": {"annotations": {"example.com/round": round}}, "spec": {"hubAcceptsClient": true}});
        clusters
            .patch("prod", &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        told(&fleet, "prod", "AmbiguousCertificateRequests", seen).await?;
    }
    let chosen = operator_actions::accept(&admin, "prod", Some(&second)).await?;
    ensure!(matches!(chosen, Accepted::Chosen(_)));
    wait::until_true("the chosen request is answered", || async {
        let status = api.get(&second).await?.status.unwrap_or_default();
        Ok(status.certificate.is_some())
    })
    .await?;
    for other in [&first, &lookalike, &signer] {
        let status = api.get(other).await?.status.unwrap_or_default();
        ensure!(
            status.conditions.unwrap_or_default().is_empty(),
            "{other} was decided"
        );
    }
    // An agent that upstream's rights allow to update its cluster still may not relabel itself.
    let agent = fleet.agent_identity("prod").await?;
    refused(
        relabel(&fleet, &agent, "prod", &[("env", Some("prod"))]).await,
        "cannot update",
    )?;
    hub.stop().await
}

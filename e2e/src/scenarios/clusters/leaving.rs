//! What an agent may do while its cluster is in, and how a cluster goes silent and leaves.

use anyhow::{Context, Result, ensure};
use k8s_openapi::{
    api::{certificates::v1::CertificateSigningRequest, coordination::v1::Lease, core::v1::Namespace},
    apimachinery::pkg::apis::meta::v1::Condition,
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_agent::registration::identity;
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccount,
    cluster::{ManagedCluster, ManagedClusterSet},
    work::ManifestWork,
};
use writ_hub::{
    options::AgentRights,
    registration::operator_actions::{self, Accepted},
};

use super::{
    cluster, create, grant, identity::is_approved, refused, registration::condition, relabel, rule, run_hub,
    set_yaml, told, wait_members,
};
use crate::{Fleet, fleet::HUB_NAMESPACE, wait, yaml};

/// Makes a cluster and accepts it; returns the identity of its agent once it has rights.
async fn member(fleet: &Fleet, name: &str) -> Result<Client> {
    let admin = fleet.hub.admin().await?;
    create(&admin, name, json!({})).await?;
    operator_actions::accept(&admin, name, None).await?;
    let agent = fleet.agent_identity(name).await?;
    let leases: Api<Lease> = Api::namespaced(agent.clone(), name);
    let own: Api<ManagedCluster> = Api::all(agent.clone());
    // Those in its namespace and those on its cluster come with two bindings.
    wait::until_true("the agent has its rights", || async {
        Ok(leases.get("managed-cluster-lease").await.is_ok() && own.get(name).await.is_ok())
    })
    .await?;
    Ok(agent)
}

async fn patch(client: &Client, name: &str, change: Value) -> Result<ManagedCluster> {
    let api: Api<ManagedCluster> = Api::all(client.clone());
    loop {
        // The verb that upstream's agents hold is `update`.
        let mut object = serde_json::to_value(api.get(name).await?)?;
        json_merge(&mut object, &change);
        let object: ManagedCluster = serde_json::from_value(object)?;
        match api.replace(name, &PostParams::default(), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            answer => return Ok(answer?),
        }
    }
}

fn json_merge(target: &mut Value, change: &Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (key, value) in change {
                if value.is_null() {
                    target.remove(key);
                } else {
                    json_merge(target.entry(key.clone()).or_insert(Value::Null), value);
                }
            }
        }
        (target, change) => *target = change.clone(),
    }
}

/// With upstream's rights an agent may update its cluster, and admission lets little of that through.
pub async fn upstream_rights(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |options| options.agent_rights = AgentRights::Ocm).await?;
    let admin = fleet.hub.admin().await?;
    yaml::apply(&admin, &set_yaml("apac", "region")).await?;
    let agent = member(&fleet, "mc1").await?;
    wait::until_true("the agent may update its cluster", || async {
        Ok(patch(
            &agent,
            "mc1",
            json!({"metadata": {"annotations": {"agent.open-cluster-management.io/version": "1"}}}),
        )
        .await
        .is_ok())
    })
    .await?;
    patch(
        &agent,
        "mc1",
        json!({"spec": {"managedClusterClientConfigs": [{"url": "https://10.0.0.1:6443"}]}}),
    )
    .await?;
    let tainted: Api<ManagedCluster> = Api::all(admin.clone());
    wait::until_true("the hub has tainted the silent cluster", || async {
        Ok(!tainted.get("mc1").await?.spec.taints.is_empty())
    })
    .await?;
    for (change, words) in [
        (
            json!({"metadata": {"labels": {"env": "prod"}}}),
            "it is the exclusive key of no set",
        ),
        (
            json!({"metadata": {"labels": {"region": "us"}}}),
            "there is no such set",
        ),
        (
            json!({"metadata": {"labels": {"region": "apac"}}}),
            "ManagedClusterSet \"apac\"",
        ),
        (
            json!({"metadata": {"annotations": {"addon.open-cluster-management.io/x": "y"}}}),
            "may not change the annotation",
        ),
        (
            json!({"metadata": {"annotations": {"writ.dev/accept-csr": "x@y"}}}),
            "may not change the annotation",
        ),
        (
            json!({"spec": {"hubAcceptsClient": false}}),
            "may change nothing in spec",
        ),
        (json!({"spec": {"taints": null}}), "may change nothing in spec"),
        (
            json!({"metadata": {"finalizers": null}}),
            "may not change finalizers",
        ),
    ] {
        refused(patch(&agent, "mc1", change).await, words)?;
    }
    // The status is the agent's to write, and carries nothing else along.
    let own: Api<ManagedCluster> = Api::all(agent.clone());
    let smuggled = json!({"metadata": {"labels": {"region": "apac"}}, "spec": {"taints": []}, "status": {"version": {"kubernetes": "v1"}}});
    let stored = own
        .patch_status("mc1", &PatchParams::default(), &Patch::Merge(smuggled))
        .await?;
    ensure!(!stored.labels().contains_key("region") && !stored.spec.taints.is_empty());
    // What upstream's agents look for before they call themselves connected.
    let requests: Api<CertificateSigningRequest> = Api::all(agent.clone());
    requests.list(&ListParams::default()).await?;
    let leases: Api<Lease> = Api::namespaced(agent.clone(), "mc1");
    leases.list(&ListParams::default()).await?;
    // Labels of a set: with join, in and out again.
    let group = json!({"kind": "Group", "name": "system:open-cluster-management:mc1"});
    grant(
        &fleet,
        "joiner",
        group,
        &json!([rule("managedclustersets/join", &["apac"], &["create"])]),
    )
    .await?;
    wait::until_true("the agent joins the set", || async {
        Ok(relabel(&fleet, &agent, "mc1", &[("region", Some("apac"))])
            .await
            .is_ok())
    })
    .await?;
    wait_members(&fleet, "apac", 1).await?;
    relabel(&fleet, &agent, "mc1", &[("region", None)]).await?;
    wait_members(&fleet, "apac", 0).await?;
    // An agent whose clock is wrong is told so, until it is right.
    for (off, synced) in [(3600, "False"), (0, "True")] {
        let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(off);
        let renewed = json!({"spec": {"renewTime": format!("{at:.6}")}});
        let mut lease = serde_json::to_value(leases.get("managed-cluster-lease").await?)?;
        json_merge(&mut lease, &renewed);
        leases
            .replace(
                "managed-cluster-lease",
                &PostParams::default(),
                &serde_json::from_value(lease)?,
            )
            .await?;
        wait::until_true("the hub has compared the clocks", || async {
            let said = condition(&tainted, "mc1", "ManagedClusterConditionClockSynced").await?;
            Ok(said.as_deref() == Some(synced))
        })
        .await?;
    }
    // An agent that makes its cluster as large as a server stores it keeps nobody from denying and detaching it.
    let claims: Vec<_> = (0..1_300)
        .map(|n| json!({"name": format!("claim{n}"), "value": "x".repeat(1_000)}))
        .collect();
    let large = json!({"status": {"clusterClaims": claims}});
    own.patch_status("mc1", &PatchParams::default(), &Patch::Merge(large))
        .await?;
    operator_actions::deny(&admin, "mc1").await?;
    operator_actions::detach(&admin, "mc1", false).await?;
    wait::until_true("the large cluster is gone", || async {
        Ok(tainted.get_opt("mc1").await?.is_none())
    })
    .await?;
    hub.stop().await
}

fn work(finalizer: &str) -> Result<ManifestWork> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": "held", "finalizers": [finalizer]},
        "spec": {"workload": {"manifests": [
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "default"}},
        ]}},
    }))?)
}

/// A cluster leaves when its works are gone, and its agent may finish them; by force, nobody is waited for.
pub async fn detach(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    for (name, force) in [("mc1", false), ("mc2", true)] {
        let agent = member(&fleet, name).await?;
        let works: Api<ManifestWork> = Api::namespaced(admin.clone(), name);
        works
            .create(
                &PostParams::default(),
                &work("cluster.open-cluster-management.io/manifest-work-cleanup")?,
            )
            .await?;
        // An add-on goes with its cluster, also one that something holds back.
        let addons: Api<ManagedClusterAddOn> = Api::namespaced(admin.clone(), name);
        let addon = json!({
            "apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterAddOn",
            "metadata": {"name": "observer", "finalizers": force.then_some(["example.com/held"])}, "spec": {},
        });
        addons
            .create(&PostParams::default(), &serde_json::from_value(addon)?)
            .await?;
        operator_actions::detach(&admin, name, force).await?;
        if !force {
            wait::until_true("it is said what is left, and the way out", || async {
                let status = clusters.get(name).await?.status.context("no status")?;
                Ok(status.conditions.iter().any(|c| {
                    c.type_ == "Deleting"
                        && c.message.contains("1 ManifestWorks remain")
                        && c.message.contains("writ.dev/force-detach=true")
                }))
            })
            .await?;
            let own: Api<ManifestWork> = Api::namespaced(agent.clone(), name);
            let leases: Api<Lease> = Api::namespaced(agent.clone(), name);
            wait::until_true("it may do nothing but finish", || async {
                Ok(leases.get("managed-cluster-lease").await.is_err() && own.get("held").await.is_ok())
            })
            .await?;
            let release = json!({"metadata": {"finalizers": null}});
            own.patch("held", &PatchParams::default(), &Patch::Merge(release))
                .await?;
        }
        wait::until_true("the cluster is gone", || async {
            Ok(clusters.get_opt(name).await?.is_none())
        })
        .await?;
        ensure!(works.list(&ListParams::default()).await?.items.is_empty());
        ensure!(addons.list(&ListParams::default()).await?.items.is_empty());
        let own: Api<ManifestWork> = Api::namespaced(agent, name);
        wait::until_true("its agent has no rights any more", || async {
            Ok(own.list(&ListParams::default()).await.is_err())
        })
        .await?;
    }
    hub.stop().await
}

/// The first story of the design document, by `--cluster-label`; and a cluster that goes silent and comes back.
pub async fn label_and_silence(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    yaml::apply(&admin, &set_yaml("apac", "region")).await?;
    let mut quick = super::cluster("cluster1", &json!({}))?;
    quick.spec.lease_duration_seconds = Some(1);
    clusters.create(&PostParams::default(), &quick).await?;
    operator_actions::accept(&admin, "cluster1", None).await?;
    let leases: Api<Lease> = Api::namespaced(fleet.agent_identity("cluster1").await?, "cluster1");
    wait::until_true("the agent has its rights", || async {
        Ok(leases.get("managed-cluster-lease").await.is_ok())
    })
    .await?;
    let options = || writ_agent::Options {
        controllers: vec!["registration".into()],
        cluster_labels: [("region".to_owned(), "apac".to_owned())].into(),
        ..writ_agent::Options::default()
    };
    let agent = fleet.run_agent(1, options()).await?;
    let says = async |type_: &str, wanted: &str| -> Result<()> {
        wait::until_true(&format!("{type_} is {wanted}"), || async {
            Ok(condition(&clusters, "cluster1", type_).await?.as_deref() == Some(wanted))
        })
        .await
    };
    says("ClusterLabelsApplied", "False").await?;
    let rules = json!([
        rule("managedclustersets/join", &["apac"], &["create"]),
        rule("managedclusters", &["cluster1"], &["update"]),
    ]);
    let group = json!({"kind": "Group", "name": "system:open-cluster-management:cluster1"});
    grant(&fleet, "clustersetrole", group, &rules).await?;
    says("ClusterLabelsApplied", "True").await?;
    wait_members(&fleet, "apac", 1).await?;
    namespaces_of_sets(&fleet, &clusters).await?;

    agent.stop().await?;
    says("ManagedClusterConditionAvailable", "Unknown").await?;
    let taints = async || -> Result<Vec<String>> {
        let cluster = clusters.get("cluster1").await?;
        Ok(cluster.spec.taints.into_iter().map(|t| t.key).collect())
    };
    wait::until_true("the silent cluster is tainted", || async {
        Ok(taints().await? == ["cluster.open-cluster-management.io/unreachable"])
    })
    .await?;
    let agent = fleet.run_agent(1, options()).await?;
    says("ManagedClusterConditionAvailable", "True").await?;
    wait::until_true("the taint is gone", || async { Ok(taints().await?.is_empty()) }).await?;
    ensure!(
        clusters
            .get("cluster1")
            .await?
            .labels()
            .get("region")
            .is_some_and(|r| r == "apac")
    );
    agent.stop().await?;
    hub.stop().await
}

/// A set asks for a namespace: every member gets it, has it again when somebody deletes it, and keeps it when the set
/// asks no more.
async fn namespaces_of_sets(fleet: &Fleet, clusters: &Api<ManagedCluster>) -> Result<()> {
    let sets: Api<ManagedClusterSet> = Api::all(fleet.hub.admin().await?);
    let spoke: Api<Namespace> = Api::all(fleet.cluster(1)?.admin().await?);
    let ask = async |namespaces: Value| {
        let patch = json!({"spec": {"managedNamespaces": namespaces}});
        sets.patch("apac", &PatchParams::default(), &Patch::Merge(patch))
            .await
    };
    let reported = async || -> Result<Vec<(String, String, String)>> {
        let status = clusters.get("cluster1").await?.status.unwrap_or_default();
        let reason = |conditions: &[Condition]| conditions.first().map(|c| c.reason.clone());
        Ok(status
            .managed_namespaces
            .into_iter()
            .map(|n| (n.cluster_set, n.name, reason(&n.conditions).unwrap_or_default()))
            .collect())
    };
    let marks = async |name: &str| -> Result<Vec<String>> {
        let namespace = spoke.get_opt(name).await?;
        let labels = namespace.map(|n| n.labels().clone()).unwrap_or_default();
        let own = labels.into_iter();
        Ok(own
            .filter(|(key, _)| key.starts_with("clusterset.open-cluster-management.io/"))
            .map(|(_, value)| value)
            .collect())
    };
    ask(json!([{"name": "team-apac"}, {"name": "default"}])).await?;
    let applied = |name: &str| ("apac".to_owned(), name.to_owned(), "NamespaceApplied".to_owned());
    wait::until_true("both namespaces are reported", || async {
        Ok(reported().await? == [applied("default"), applied("team-apac")])
    })
    .await?;
    ensure!(marks("team-apac").await? == ["true"] && marks("default").await? == ["true"]);
    let before = spoke.get("team-apac").await?.uid();
    spoke.delete("team-apac", &DeleteParams::default()).await?;
    wait::until_true("the namespace is there again", || async {
        let now = spoke.get_opt("team-apac").await?.and_then(|n| n.uid());
        Ok(now.is_some() && now != before)
    })
    .await?;
    ask(json!([{"name": "default"}])).await?;
    wait::until_true("it is asked for no more, and stays", || async {
        Ok(marks("team-apac").await? == ["false"] && reported().await? == [applied("default")])
    })
    .await?;
    ask(Value::Null).await?;
    wait::until_true("nothing is asked for", || async {
        Ok(marks("default").await? == ["false"] && reported().await?.is_empty())
    })
    .await
}

/// An agent that no request of this cluster let in is still the one that has it: denied and accepted again, it is in again,
/// and whoever waits with the shared bootstrap identity is not. But what it says of itself does not renew its
/// certificate, unless it had joined before this hub took the cluster over.
pub async fn former(fleet: Fleet) -> Result<()> {
    let admin = fleet.hub.admin().await?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    let mut moved = cluster("moved", &json!({}))?;
    moved.spec.hub_accepts_client = true;
    clusters.create(&PostParams::default(), &moved).await?;
    report_joined(&admin, "moved").await?;
    let hub = run_hub(&fleet, |options| {
        options.controllers.push("managed_service_account".into());
    })
    .await?;
    let requests: Api<CertificateSigningRequest> = Api::all(admin.clone());
    let renewal = wait::until("the agent of a cluster that was taken over renews", || async {
        let agent = fleet.agent_identity("moved").await?;
        Ok(ask(&agent, "moved", "agent").await.ok())
    })
    .await?;
    wait::until_true("its renewal is approved", || async {
        Ok(is_approved(&requests.get(&renewal).await?))
    })
    .await?;

    let agent = member(&fleet, "roam").await?;
    report_joined(&agent, "roam").await?;
    // That right has a binding of its own.
    let renewal = wait::until("the agent asks for a certificate", || async {
        Ok(Some(ask(&agent, "roam", "agent").await?))
    })
    .await?;
    told(&fleet, "roam", "CertificateRequestNotApproved", 1).await?;
    ensure!(
        !is_approved(&requests.get(&renewal).await?),
        "it renewed a certificate of a former cluster"
    );
    let bootstrap = fleet
        .hub
        .service_account(HUB_NAMESPACE, "agent-registration-bootstrap")
        .await?;
    let waiting = ask(&bootstrap, "roam", "other").await?;
    operator_actions::deny(&admin, "roam").await?;
    let accepted = operator_actions::accept(&admin, "roam", None).await?;
    ensure!(
        matches!(&accepted, Accepted::Again(others) if others.iter().any(|p| p.name == waiting)),
        "{accepted:?}"
    );
    let former = agent.clone();
    let leases: Api<Lease> = Api::namespaced(agent, "roam");
    wait::until_true("the agent has its rights again", || async {
        Ok(leases.get("managed-cluster-lease").await.is_ok())
    })
    .await?;
    ensure!(
        !is_approved(&requests.get(&waiting).await?),
        "whoever waited was let in"
    );
    // A person may still choose it.
    operator_actions::accept(&admin, "roam", None).await?;
    wait::until_true("the request that a person chose is approved", || async {
        Ok(is_approved(&requests.get(&waiting).await?))
    })
    .await?;
    // From then on the cluster is that one's: the certificate of before is worth nothing, though it names the group.
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(former, "roam");
    wait::until_true("the former agent has no rights any more", || async {
        Ok(leases.get("managed-cluster-lease").await.is_err()
            && accounts.list(&ListParams::default()).await.is_err())
    })
    .await?;
    let chosen = fleet
        .hub
        .user(
            "system:open-cluster-management:roam:other",
            &["system:open-cluster-management:roam", "system:authenticated"],
        )
        .await?;
    let leases: Api<Lease> = Api::namespaced(chosen.clone(), "roam");
    let accounts: Api<ManagedServiceAccount> = Api::namespaced(chosen, "roam");
    wait::until_true("the one that was chosen has them", || async {
        Ok(leases.get("managed-cluster-lease").await.is_ok()
            && accounts.list(&ListParams::default()).await.is_ok())
    })
    .await?;
    hub.stop().await
}

/// Sends a certificate request for an agent of this name.
async fn ask(client: &Client, cluster: &str, agent: &str) -> Result<String> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let request = identity::request(cluster, agent, &identity::new_key()?)?;
    Ok(api.create(&PostParams::default(), &request).await?.name_any())
}

/// Says of a cluster, as agents do, that its agent has joined.
async fn report_joined(client: &Client, name: &str) -> Result<()> {
    let api: Api<ManagedCluster> = Api::all(client.clone());
    let joined = json!({"status": {"conditions": [{"type": "ManagedClusterJoined", "status": "True",
        "reason": "ManagedClusterJoined", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    api.patch_status(name, &PatchParams::default(), &Patch::Merge(joined))
        .await?;
    Ok(())
}

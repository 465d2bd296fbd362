//! From a ClusterPermission that the hub accepted to the answer of the managed cluster's authorizer, next to a bare client
//! that writes the same objects directly to the managed cluster. Two real control planes, one process, one run. Then the
//! restart of a hub process that has nothing to do.
//!
//! `cargo build --release -p writ -p writ-bench && target/release/permission [rounds]`
//!
//! Each measurement begins when everything before it has settled. With `WRIT_TRACE=1` it prints the requests of the
//! last round instead of the restart.

mod ask;
mod repair;
mod restart;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{core::v1::Namespace, rbac::v1::RoleBinding};
use kube::{
    Api, Client, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_api::{cluster::ManagedCluster, rbac::ClusterPermission, work::ManifestWork};
use writ_bench::trace::Trace;
use writ_controller::{condition, health::Health};
use writ_fleet::cluster::{client, install_crds};
use writ_hub::cluster_permission::naming;
use writ_testenv::{ControlPlane, Options};

use ask::{Asker, From};

#[tokio::main]
async fn main() -> Result<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(100), |n| n.parse())?;
    let mut broken = Vec::new();
    if rounds > 0 {
        broken.extend(latency(rounds).await?);
    }
    if std::env::var_os("WRIT_TRACE").is_none() {
        broken.extend(restart::measure().await?.report());
    }
    ensure!(broken.is_empty(), "limits are broken: {}", broken.join("; "));
    Ok(())
}

/// How many times a bare client's time may pass: median, and the worst of a hundred.
const LIMITS: (f64, f64) = (3.0, 6.0);

/// Grants and revocations; returns the limits that are broken.
#[expect(clippy::too_many_lines, reason = "one measurement, told in order")]
async fn latency(rounds: usize) -> Result<Vec<String>> {
    let (hub, spoke) = tokio::try_join!(
        ControlPlane::start(Options::default()),
        ControlPlane::start(Options::default())
    )?;
    // Clients as writ makes them, for both sides.
    let (to_hub, to_cluster) = (hub.kubeconfig(), spoke.kubeconfig());
    let admin = client(to_hub.clone()).await?;
    let cluster = client(to_cluster.clone()).await?;
    for client in [&admin, &cluster] {
        install_crds(client).await?;
    }
    namespace(&admin, "cluster1").await?;
    namespace(&cluster, "a").await?;
    let object: ManagedCluster = serde_json::from_value(
        json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": {"name": "cluster1"}, "spec": {"hubAcceptsClient": true}}),
    )?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    clusters.create(&PostParams::default(), &object).await?;
    let status = json!({"status": {
        "conditions": [{"type": "ManagedClusterConditionAvailable", "status": "True", "reason": "Bench",
            "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        "clusterClaims": [{"name": "agent.writ.dev", "value": "work"}],
    }});
    clusters
        .patch_status("cluster1", &PatchParams::default(), &Patch::Merge(status))
        .await?;

    let trace = Trace::default();
    let asker = Asker::new(trace.follow("review", cluster.clone()), "a");
    let shutdown = CancellationToken::new();
    let (hub_health, agent_health) = (Health::default(), Health::default());
    let hub_options = writ_hub::Options {
        controllers: vec!["cluster_permission".into()],
        ..writ_hub::Options::default()
    };
    let agent_options = writ_agent::Options {
        cluster_name: "cluster1".into(),
        controllers: vec!["work".into()],
        ..writ_agent::Options::default()
    };
    let running = [
        tokio::spawn(writ_hub::run(
            trace.follow("hub", client(to_hub.clone()).await?),
            hub_options,
            hub_health.clone(),
            shutdown.clone(),
        )),
        tokio::spawn(writ_agent::run(
            trace.follow("agent", client(to_hub.clone()).await?),
            trace.follow("agent", client(to_cluster.clone()).await?),
            agent_options,
            agent_health.clone(),
            shutdown.clone(),
        )),
    ];
    hub_health.ready().await;
    agent_health.ready().await;

    let bindings: Api<RoleBinding> = Api::namespaced(cluster.clone(), "a");
    let works: Api<ManifestWork> = Api::namespaced(admin.clone(), "cluster1");
    let permissions: Api<ClusterPermission> = Api::namespaced(admin, "cluster1");
    let mut times: [Vec<Duration>; 6] = Default::default();
    let mut promises = repair::Measured::default();
    // A server that was just given a definition takes seconds for the first object of it: one round is not counted.
    for round in 0..=rounds {
        if round == 1 {
            times.iter_mut().for_each(Vec::clear);
            promises.clear();
        }
        let [bare_grant, bare_removed, bare_deleted, grant, removed, deleted] = &mut times;
        let user = format!("bare-{round}");
        let one: RoleBinding = serde_json::from_value(binding(&user, &user))?;
        let other: RoleBinding = serde_json::from_value(binding(&format!("{user}-other"), "somebody"))?;
        let create = async |object: &RoleBinding| bindings.create(&PostParams::default(), object).await;
        let delete = async |object: &RoleBinding| {
            bindings
                .delete(&object.name_any(), &DeleteParams::default())
                .await
        };
        let both = async { tokio::try_join!(create(&other), create(&one)).map(drop) };
        bare_grant.push(asker.timed(From::Request, &user, true, both).await?);
        let write = async { delete(&one).await.map(drop) };
        bare_removed.push(asker.timed(From::Request, &user, false, write).await?);
        let write = async { create(&one).await.map(drop) };
        asker.timed(From::Request, &user, true, write).await?;
        let both = async { tokio::try_join!(delete(&other), delete(&one)).map(drop) };
        bare_deleted.push(asker.timed(From::Request, &user, false, both).await?);

        let tell = round == rounds && std::env::var_os("WRIT_TRACE").is_some();
        let user = format!("writ-{round}");
        let object: ClusterPermission = serde_json::from_value(permission(&user, true))?;
        trace.take();
        let began = Instant::now();
        let create = async {
            permissions
                .create(&PostParams::default(), &object)
                .await
                .map(drop)
        };
        grant.push(asker.timed(From::Accepted, &user, true, create).await?);
        let name = naming::work(&settled(&permissions, &user).await?, 1);
        if tell {
            trace.tell("the last grant", grant, began);
        }
        promises.round(&permissions, &bindings, &user).await?;
        let change = async |grants| {
            let patch = Patch::Merge(permission(&user, grants));
            let params = PatchParams::default();
            permissions.patch(&user, &params, &patch).await.map(drop)
        };
        trace.take();
        let began = Instant::now();
        removed.push(asker.timed(From::Accepted, &user, false, change(false)).await?);
        settled(&permissions, &user).await?;
        if tell {
            trace.tell("the last binding that was removed", removed, began);
        }
        asker.timed(From::Accepted, &user, true, change(true)).await?;
        settled(&permissions, &user).await?;
        trace.take();
        let began = Instant::now();
        let delete = async {
            permissions
                .delete(&user, &DeleteParams::default())
                .await
                .map(drop)
        };
        deleted.push(asker.timed(From::Accepted, &user, false, delete).await?);
        let gone = |work: Option<&ManifestWork>| work.is_none();
        await_condition(works.clone(), &name, gone).await?;
        if tell {
            trace.tell("the last permission that was deleted", deleted, began);
        }
    }
    shutdown.cancel();
    for task in running {
        task.await??;
    }
    let mut broken = Vec::new();
    println!("| {rounds} rounds | p50 | p99 | p50 / bare | p99 / bare |");
    println!("| --- | --- | --- | --- | --- |");
    let names = [
        "bare client: two bindings made",
        "bare client: one of them deleted",
        "bare client: both deleted",
        "grant",
        "revoke: binding removed",
        "revoke: permission deleted",
    ];
    let measured = times.map(|mut times| quantiles(&mut times));
    for (index, (name, (p50, p99))) in names.iter().zip(measured).enumerate() {
        let (b50, b99) = measured.get(index % 3).copied().unwrap_or_default();
        let ratio = |a: Duration, b: Duration| a.as_secs_f64() / b.as_secs_f64();
        let (median, worst) = (ratio(p50, b50), ratio(p99, b99));
        println!("| {name} | {p50:.1?} | {p99:.1?} | {median:.1} | {worst:.1} |");
        if median > LIMITS.0 || worst > LIMITS.1 {
            broken.push(format!(
                "{name}: {median:.1} and {worst:.1} times the bare client, at most {} and {} are allowed",
                LIMITS.0, LIMITS.1
            ));
        }
    }
    broken.extend(promises.report());
    Ok(broken)
}

/// Waits until the permission says that everything it asks for is so.
async fn settled(permissions: &Api<ClusterPermission>, name: &str) -> Result<ClusterPermission> {
    let ready = |permission: Option<&ClusterPermission>| {
        permission.is_some_and(|permission| {
            let status = permission.status.as_ref();
            let ready = status.and_then(|status| condition::find(&status.conditions, "Ready"));
            ready.is_some_and(|ready| {
                ready.status == "True" && ready.observed_generation == permission.metadata.generation
            })
        })
    };
    let permission = await_condition(permissions.clone(), name, ready).await?;
    permission.context("the permission is gone")
}

fn quantiles(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort();
    let at = |q: usize| {
        times
            .get((times.len() * q / 100).min(times.len().saturating_sub(1)))
            .copied()
            .unwrap_or_default()
    };
    (at(50), at(99))
}

fn role_ref() -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"})
}

fn subject(user: &str) -> Value {
    json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user})
}

fn binding(name: &str, user: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": role_ref(), "subjects": [subject(user)]})
}

/// A permission that grants something to the user, or only to somebody else.
fn permission(user: &str, grants: bool) -> Value {
    let entry = |name: &str, to: &str| json!({"namespace": "a", "name": name, "roleRef": role_ref(), "subject": subject(to)});
    let mut bindings = vec![entry(&format!("{user}-other"), "somebody")];
    if grants {
        bindings.push(entry(user, user));
    }
    json!({"apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission", "metadata": {"name": user}, "spec": {"roleBindings": bindings}})
}

async fn namespace(client: &Client, name: &str) -> Result<()> {
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

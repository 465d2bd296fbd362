//! From a ClusterPermission on the hub to the answer of the managed cluster's authorizer, next to a bare client that
//! writes the same object directly to the managed cluster. Two real control planes, one process, one run. Then the
//! restart of a hub process that has nothing to do.
//!
//! `cargo build --release -p writ -p writ-bench && target/release/permission [rounds]`

mod restart;

use std::{
    future::Future,
    time::{Duration, Instant},
};

use anyhow::{Result, bail, ensure};
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
    core::v1::Namespace,
    rbac::v1::RoleBinding,
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use writ_api::{cluster::ManagedCluster, rbac::ClusterPermission};
use writ_fleet::cluster::install_crds;
use writ_runtime::health::Health;
use writ_testenv::{ControlPlane, Options};

#[tokio::main]
async fn main() -> Result<()> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(100), |n| n.parse())?;
    let mut broken = Vec::new();
    if rounds > 0 {
        broken.extend(latency(rounds).await?);
    }
    broken.extend(restart::measure().await?.report());
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
    let (admin, cluster) = (hub.client()?, spoke.client()?);
    for client in [&admin, &cluster] {
        install_crds(client).await?;
    }
    namespace(&admin, "cluster1").await?;
    namespace(&cluster, "a").await?;
    let object: ManagedCluster = serde_json::from_value(
        json!({"apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster", "metadata": {"name": "cluster1"}, "spec": {"hubAcceptsClient": true}}),
    )?;
    Api::all(admin.clone())
        .create(&PostParams::default(), &object)
        .await?;

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
            hub.client()?,
            hub_options,
            hub_health.clone(),
            shutdown.clone(),
        )),
        tokio::spawn(writ_agent::run(
            hub.client()?,
            spoke.client()?,
            agent_options,
            agent_health.clone(),
            shutdown.clone(),
        )),
    ];
    hub_health.ready().await;
    agent_health.ready().await;

    let bindings: Api<RoleBinding> = Api::namespaced(cluster.clone(), "a");
    let permissions: Api<ClusterPermission> = Api::namespaced(admin, "cluster1");
    let mut times: [Vec<Duration>; 5] = Default::default();
    let [bare_grant, bare_revoke, grant, removed, deleted] = &mut times;
    for round in 0..rounds {
        let user = format!("bare-{round}");
        let object: RoleBinding = serde_json::from_value(binding(&user))?;
        bare_grant.push(
            timed(&cluster, &user, true, async {
                bindings.create(&PostParams::default(), &object).await.map(drop)
            })
            .await?,
        );
        bare_revoke.push(
            timed(&cluster, &user, false, async {
                bindings.delete(&user, &DeleteParams::default()).await.map(drop)
            })
            .await?,
        );

        let user = format!("writ-{round}");
        let object: ClusterPermission = serde_json::from_value(permission(&user, true))?;
        grant.push(
            timed(&cluster, &user, true, async {
                permissions
                    .create(&PostParams::default(), &object)
                    .await
                    .map(drop)
            })
            .await?,
        );
        let without = Patch::Merge(permission(&user, false));
        removed.push(
            timed(&cluster, &user, false, async {
                permissions
                    .patch(&user, &PatchParams::default(), &without)
                    .await
                    .map(drop)
            })
            .await?,
        );
        let again = Patch::Merge(permission(&user, true));
        timed(&cluster, &user, true, async {
            permissions
                .patch(&user, &PatchParams::default(), &again)
                .await
                .map(drop)
        })
        .await?;
        deleted.push(
            timed(&cluster, &user, false, async {
                permissions
                    .delete(&user, &DeleteParams::default())
                    .await
                    .map(drop)
            })
            .await?,
        );
    }
    shutdown.cancel();
    for task in running {
        task.await??;
    }
    let mut broken = Vec::new();
    println!("| {rounds} rounds | p50 | p99 | p50 / bare | p99 / bare |");
    println!("| --- | --- | --- | --- | --- |");
    let names = [
        "bare client, grant",
        "bare client, revoke",
        "grant",
        "revoke: binding removed",
        "revoke: permission deleted",
    ];
    let bare = [quantiles(&mut times[0].clone()), quantiles(&mut times[1].clone())];
    for (index, (name, times)) in names.iter().zip(&mut times).enumerate() {
        let (p50, p99) = quantiles(times);
        let (b50, b99) = if matches!(index, 0 | 2) { bare[0] } else { bare[1] };
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
    Ok(broken)
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

fn binding(user: &str) -> Value {
    json!({"metadata": {"name": user}, "roleRef": role_ref(), "subjects": [subject(user)]})
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

/// From the request until the managed cluster's authorizer gives the wanted answer.
async fn timed(
    cluster: &Client,
    user: &str,
    wanted: bool,
    write: impl Future<Output = Result<(), kube::Error>>,
) -> Result<Duration> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(user.into()),
            groups: Some(vec!["system:authenticated".into()]),
            resource_attributes: Some(ResourceAttributes {
                verb: Some("get".into()),
                resource: Some("pods".into()),
                namespace: Some("a".into()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let reviews: Api<SubjectAccessReview> = Api::all(cluster.clone());
    let started = Instant::now();
    write.await?;
    loop {
        let answer = reviews.create(&PostParams::default(), &review).await?;
        if answer.status.is_some_and(|status| status.allowed) == wanted {
            return Ok(started.elapsed());
        }
        if started.elapsed() > Duration::from_mins(1) {
            bail!("{user} is not allowed={wanted} after a minute");
        }
    }
}

async fn namespace(client: &Client, name: &str) -> Result<()> {
    let object: Namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &object)
        .await?;
    Ok(())
}

//! What a change of one cluster costs the scheduler: ten thousand clusters, a thousand placements, API writes aside.
//!
//! `cargo run --release -p writ-bench --bin placement [clusters] [placements]`
//!
//! Placements of five shapes, mixed: all clusters of an environment, all that a CEL expression chooses, some of a
//! team's, the biggest, and some spread over regions. Then one label of one cluster changes, in four ways: one that no
//! placement looks at, one that two hundred look at, one that every placement looks at, and one that moves the cluster
//! from one set to another, both bound, whose status then tells their new count. The baseline is the same scheduler that
//! has forgotten everything and looks at the whole fleet.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use anyhow::{Context, Result, bail};
use jiff::Timestamp;
use kube::ResourceExt as _;
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, Placement};
use writ_controller::Name;
use writ_hub::placement::{model::Planned, scheduler::Scheduler};

/// CPU that a label change of one cluster may cost.
const LIMIT: Duration = Duration::from_millis(100);
/// How often each change is measured.
const ROUNDS: u32 = 20;
/// Two sets with a key of their own.
const UNITS: [&str; 2] = ["unit-a", "unit-b"];

fn main() -> Result<()> {
    let number = |at: usize, default: usize| std::env::args().nth(at).map_or(Ok(default), |n| n.parse());
    let (clusters, placements) = (number(1, 10_000)?, number(2, 1_000)?);
    let mut scheduler = Scheduler::new(false);
    let first = cpu()?;
    fill(&mut scheduler, clusters, placements)?;
    let mut chosen = schedule(&mut scheduler);
    let whole = cpu()?.saturating_sub(first);
    println!("{clusters} clusters, {placements} placements, {chosen} decisions");
    println!(
        "{:<46} {:>10.1} ms CPU",
        "all placements, from nothing (the baseline)",
        millis(whole)
    );

    let mut broken = false;
    for (what, key, values) in [
        ("a label that nobody looks at", "note", ["a", "b"]),
        ("a label that a fifth looks at", "team", ["team-1", "team-2"]),
        ("a label that everybody looks at", "env", ["dev", "prod"]),
        ("a label that moves it to another set", "unit", UNITS),
    ] {
        let (mut total, mut touched) = (Duration::ZERO, 0);
        for round in 0..ROUNDS {
            let changed = cluster(
                7,
                &[(
                    key,
                    if round.is_multiple_of(2) {
                        values[0]
                    } else {
                        values[1]
                    },
                )],
            )?;
            let before = cpu()?;
            take_cluster(&mut scheduler, changed);
            chosen = schedule(&mut scheduler);
            if key == "unit" {
                for unit in UNITS {
                    take_set(&mut scheduler, set_of_unit(unit, round)?);
                }
                chosen += schedule(&mut scheduler);
            }
            total += cpu()?.saturating_sub(before);
            touched += chosen;
        }
        let each = total / ROUNDS;
        let verdict = if each < LIMIT { "within" } else { "BROKEN" };
        broken |= each >= LIMIT;
        println!(
            "{what:<46} {:>10.1} ms CPU, {:>6} decisions looked at, 1/{:.0} of the baseline, limit {} ms: {verdict}",
            millis(each),
            touched / ROUNDS as usize,
            whole.as_secs_f64() / each.as_secs_f64().max(1e-9),
            LIMIT.as_millis(),
        );
    }
    if broken {
        bail!("a limit is broken");
    }
    Ok(())
}

/// Schedules what is dirty; returns how many decisions came out.
fn schedule(scheduler: &mut Scheduler) -> usize {
    let now = Timestamp::now();
    let mut decisions = 0;
    for key in scheduler.take_dirty() {
        decisions += match scheduler.schedule(&key, now).map(|schedule| schedule.planned) {
            Some(Planned::Scheduled(outcome, _)) => outcome.selected,
            Some(Planned::Changed { objects, .. }) => objects.iter().map(|o| o.clusters.len()).sum(),
            Some(Planned::Misconfigured(_)) | None => 0,
        };
    }
    decisions
}

fn take_cluster(scheduler: &mut Scheduler, cluster: ManagedCluster) {
    scheduler.take_cluster(&cluster.name_any(), Some(&Arc::new(cluster)));
}

fn take_set(scheduler: &mut Scheduler, set: ManagedClusterSet) {
    scheduler.take_set(&set.name_any(), Some(&Arc::new(set)));
}

fn fill(scheduler: &mut Scheduler, clusters: usize, placements: usize) -> Result<()> {
    let set: ManagedClusterSet = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet", "metadata": {"name": "global"},
        "spec": {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}},
    }))?;
    take_set(scheduler, set);
    for unit in UNITS {
        take_set(scheduler, set_of_unit(unit, 0)?);
    }
    for set in ["global"].into_iter().chain(UNITS) {
        let binding: ManagedClusterSetBinding = serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": {"name": set, "namespace": "team"}, "spec": {"clusterSet": set},
        }))?;
        scheduler.take_binding(&Name::of(&binding), Some(&Arc::new(binding)));
    }
    for number in 0..clusters {
        take_cluster(scheduler, cluster(number, &[])?);
    }
    for number in 0..placements {
        let placement = placement(number)?;
        scheduler.take_placement(&Name::of(&placement), Some(&Arc::new(placement)));
    }
    Ok(())
}

/// A set with its own key, as its controller reports it.
fn set_of_unit(name: &str, count: u32) -> Result<ManagedClusterSet> {
    Ok(serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
        "metadata": {"name": name, "annotations": {"writ.dev/members-confirmed": "true"}},
        "spec": {"exclusiveKey": "unit", "clusterSelector":
            {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"unit": name}}}},
        "status": {"conditions": [], "clusterCount": count},
    }))?)
}

fn cluster(number: usize, changed: &[(&str, &str)]) -> Result<ManagedCluster> {
    let mut labels: BTreeMap<String, String> = BTreeMap::from([
        (
            "env".into(),
            if number.is_multiple_of(2) { "dev" } else { "prod" }.into(),
        ),
        ("team".into(), format!("team-{}", number % 100)),
        ("region".into(), format!("region-{}", number % 20)),
    ]);
    labels.extend(
        changed
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned())),
    );
    Ok(serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": format!("cluster{number}"), "labels": labels}, "spec": {"hubAcceptsClient": true},
        "status": {
            "allocatable": {"cpu": format!("{}", 4 + number % 61), "memory": "64Gi"},
            "clusterClaims": [{"name": "platform", "value": "aws"}], "version": {"kubernetes": "v1.36.3"},
        },
    }))?)
}

fn placement(number: usize) -> Result<Placement> {
    let labels = |key: &str, value: String| json!([{"requiredClusterSelector": {"labelSelector": {"matchLabels": {key: value}}}}]);
    let env = || if number % 4 < 2 { "dev" } else { "prod" }.to_owned();
    let both = |team: String| json!([{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"team": team, "env": env()}}}}]);
    let spec: Value = match number % 5 {
        0 | 1 => json!({"predicates": labels("env", env())}),
        2 => json!({"predicates": [{"requiredClusterSelector": {"celSelector": {"celExpressions": [
            format!("managedCluster.metadata.labels['env'] == '{}'", env())]}}}]}),
        3 => json!({"numberOfClusters": 10, "predicates": both(format!("team-{}", number % 100)),
            "prioritizerPolicy": {"configurations": [{"scoreCoordinate": {"builtIn": "ResourceAllocatableCPU"}}]}}),
        _ => json!({"numberOfClusters": 20, "predicates": both(format!("team-{}", number % 100)),
            "spreadPolicy": {"spreadConstraints": [{"topologyKey": "region", "topologyKeyType": "Label"}]}}),
    };
    Ok(serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"name": format!("p{number}"), "namespace": "team"}, "spec": spec,
    }))?)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// The CPU time that this process has used.
fn cpu() -> Result<Duration> {
    let text = std::fs::read_to_string("/proc/self/schedstat").context("read the CPU time")?;
    let nanos = text.split_whitespace().next().context("no CPU time")?.parse()?;
    Ok(Duration::from_nanos(nanos))
}

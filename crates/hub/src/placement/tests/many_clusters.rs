//! Several placements that weigh each other, and what makes them plan anew.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};
use writ_controller::Name;

use super::scheduler::{named, read};
use crate::placement::{apply::decision, model::Planned, plan::decision_name, scheduler::Scheduler};

/// A hub of several placements: what is stored, by kind, and the scheduler that observes it.
struct Hub {
    scheduler: Scheduler,
    clusters: Vec<Value>,
    sets: Vec<Value>,
    bindings: Vec<Value>,
    placements: BTreeMap<String, Value>,
    decisions: BTreeMap<String, Value>,
}

fn set(name: &str, label: &str, count: usize) -> Value {
    json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
        "metadata": {"name": name},
        "spec": {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"set": label}}}},
        "status": {"conditions": [], "clusterCount": count},
    })
}

fn binding(set: &str, reason: &str) -> Value {
    json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
        "metadata": {"name": set, "namespace": "a"}, "spec": {"clusterSet": set},
        "status": {"conditions": [{"type": "Bound", "status": "True", "reason": reason, "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    })
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn cluster(name: &str, taints: Value) -> Value {
    json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": {"set": "one"}}, "spec": {"hubAcceptsClient": true, "taints": taints},
    })
}

impl Hub {
    fn new(clusters: &[&str]) -> Self {
        let mut hub = Self {
            scheduler: Scheduler::new(false),
            clusters: clusters.iter().map(|name| cluster(name, json!([]))).collect(),
            sets: vec![set("one", "one", 0)],
            bindings: vec![binding("one", "ClusterSetBound")],
            placements: BTreeMap::new(),
            decisions: BTreeMap::new(),
        };
        hub.restart();
        hub
    }

    /// Starts a new scheduler on what is stored.
    fn restart(&mut self) {
        self.scheduler = Scheduler::new(false);
        for set in self.sets.clone() {
            self.take_set(set);
        }
        for binding in self.bindings.clone() {
            self.take_binding(binding);
        }
        for cluster in self.clusters.clone() {
            self.take_cluster(cluster);
        }
        for placement in self.placements.clone().into_values() {
            self.take_placement(placement);
        }
        for decision in self.decisions.clone().into_values() {
            self.take_decision(decision);
        }
    }

    fn take_set(&mut self, set: Value) {
        let (name, set) = named(read(set));
        self.scheduler.take_set(&name.name, Some(&set));
    }

    fn take_binding(&mut self, binding: Value) {
        let (name, binding) = named(read(binding));
        self.scheduler.take_binding(&name, Some(&binding));
    }

    fn take_cluster(&mut self, cluster: Value) {
        let (name, cluster) = named(read(cluster));
        self.scheduler.take_cluster(&name.name, Some(&cluster));
    }

    fn take_placement(&mut self, placement: Value) {
        let (name, placement) = named(read(placement));
        self.scheduler.take_placement(&name, Some(&placement));
    }

    fn take_decision(&mut self, decision: Value) {
        let (name, decision) = named(read(decision));
        self.scheduler.take_decision(&name, Some(&decision));
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
    fn place(&mut self, name: &str, spec: Value) {
        let placement = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
            "metadata": {"name": name, "namespace": "a"}, "spec": spec,
        });
        self.placements.insert(name.into(), placement.clone());
        self.take_placement(placement);
        self.settle();
    }

    fn change(&mut self, cluster: Value) {
        self.take_cluster(cluster);
        self.settle();
    }

    /// Schedules and stores until nothing is to do.
    fn settle(&mut self) {
        for _ in 0..10 {
            let dirty = self.scheduler.take_dirty();
            if dirty.is_empty() {
                return;
            }
            for key in dirty {
                let schedule = self.scheduler.schedule(&key, Timestamp::UNIX_EPOCH).unwrap();
                let objects = match schedule.planned {
                    Planned::Scheduled(outcome, _) => outcome.objects,
                    Planned::Changed { objects, .. } => objects,
                    Planned::Misconfigured(why) => panic!("{key}: {why}"),
                };
                for object in objects {
                    let mut made = decision(&schedule.placement, &object);
                    let decisions: Vec<Value> = object
                        .clusters
                        .iter()
                        .map(|c| json!({"clusterName": c, "reason": ""}))
                        .collect();
                    made.status = Some(read(json!({"decisions": decisions})));
                    let stored = serde_json::to_value(&made).unwrap();
                    if self.decisions.get(&made.metadata.name.clone().unwrap()) != Some(&stored) {
                        self.decisions
                            .insert(made.metadata.name.clone().unwrap(), stored.clone());
                        self.take_decision(stored);
                    }
                }
            }
        }
        panic!("planning does not settle");
    }

    fn chosen(&self, placement: &str) -> Vec<&str> {
        self.decisions[&decision_name(placement, 0)]["status"]["decisions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|d| d["clusterName"].as_str().unwrap())
            .collect()
    }
}

fn one_balanced() -> Value {
    json!({"numberOfClusters": 1, "prioritizerPolicy": {"mode": "Exact", "configurations": [
        {"scoreCoordinate": {"builtIn": "Balance"}, "weight": 1}]}})
}

/// Each placement chose the cluster that the others did not, which a restarted hub reads from the stored decisions.
#[test]
fn restarted_hub_keeps_balanced_decisions() {
    let mut hub = Hub::new(&["c1", "c2", "c3", "c4"]);
    for name in ["z", "y", "x"] {
        hub.place(name, one_balanced());
    }
    let all = |hub: &Hub| ["x", "y", "z"].map(|name| hub.chosen(name).concat());
    assert_eq!(all(&hub), ["c3", "c2", "c1"]);
    hub.restart();
    hub.settle();
    assert_eq!(all(&hub), ["c3", "c2", "c1"]);
    // A changed set makes all of them plan anew: they stay as well.
    hub.take_set(set("one", "other", 0));
    hub.take_set(set("one", "one", 0));
    hub.settle();
    assert_eq!(all(&hub), ["c3", "c2", "c1"]);
}

#[test]
fn decisions_of_another_scheduler_count_for_balance() {
    let mut hub = Hub::new(&["c1", "c2"]);
    hub.place("theirs", one_balanced());
    assert_eq!(hub.chosen("theirs"), ["c1"]);
    hub.placements.get_mut("theirs").unwrap()["metadata"]["annotations"] =
        json!({"cluster.open-cluster-management.io/experimental-scheduling-disable": "true"});
    hub.restart();
    hub.scheduler.take_dirty();
    assert!(
        hub.scheduler
            .schedule(&Name::new("a", "theirs"), Timestamp::UNIX_EPOCH)
            .is_none()
    );
    hub.place("ours", one_balanced());
    assert_eq!(hub.chosen("ours"), ["c2"]);
}

#[test]
fn status_of_set_and_binding_plans_no_placement() {
    let mut hub = Hub::new(&["c1"]);
    hub.place("p", json!({}));
    hub.take_set(set("one", "one", 1));
    hub.take_binding(binding("one", "Checked"));
    // Nor does a set that is bound nowhere.
    hub.take_set(set("unbound", "one", 1));
    assert!(hub.scheduler.take_dirty().is_empty());
    hub.take_set(set("one", "two", 1));
    assert_eq!(Vec::from_iter(hub.scheduler.take_dirty()), [Name::new("a", "p")]);
}

#[test]
fn cluster_that_left_counts_as_new_to_its_taint() {
    let mut hub = Hub::new(&["c1"]);
    let mut spec = one_balanced();
    spec["prioritizerPolicy"]["configurations"] =
        json!([{"scoreCoordinate": {"builtIn": "ResourceAllocatableCPU"}, "weight": 1}]);
    hub.place("p", spec);
    let sized = |name: &str, cpu: &str, taints: Value| {
        let mut cluster = cluster(name, taints);
        cluster["status"] = json!({"allocatable": {"cpu": cpu}});
        cluster
    };
    let taint = || json!([{"key": "k", "effect": "NoSelectIfNew"}]);
    hub.change(sized("c1", "4", taint()));
    assert_eq!(hub.chosen("p"), ["c1"], "it stays");
    hub.change(sized("c2", "8", json!([])));
    assert_eq!(hub.chosen("p"), ["c2"], "a better one comes");
    hub.change(sized("c2", "2", json!([])));
    assert_eq!(hub.chosen("p"), ["c2"], "and the other one is new now");
    hub.change(sized("c1", "4", json!([])));
    assert_eq!(hub.chosen("p"), ["c1"]);
}

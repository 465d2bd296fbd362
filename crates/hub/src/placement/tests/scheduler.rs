//! Following changes one by one ends in the same decisions as planning everything at once.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use jiff::Timestamp;
use kube::Resource;
use proptest::prelude::*;
use serde_json::{Value, json};

use writ_api::cluster::{ManagedCluster, Placement, PlacementDecision};
use writ_controller::Name;

use crate::placement::{
    apply::decision,
    model::{DecisionObject, Planned},
    plan::decision_name,
    scheduler::Scheduler,
};

/// A hub of one placement: what is stored, and the scheduler that observes it.
struct Hub {
    scheduler: Scheduler,
    clusters: BTreeMap<String, &'static str>,
    stored: BTreeMap<String, BTreeSet<String>>,
    /// How many plans changed only some objects.
    changed: usize,
}

pub fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// The name of an object, and the object as a cache has it.
pub fn named<K: Resource>(object: K) -> (Name, Arc<K>) {
    (Name::of(&object), Arc::new(object))
}

fn placement_name() -> Name {
    Name::new("a", "p")
}

fn cluster(name: &str, env: &str) -> ManagedCluster {
    read(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": {"env": env}}, "spec": {"hubAcceptsClient": true},
    }))
}

impl Hub {
    fn new() -> Self {
        let mut scheduler = Scheduler::new(false);
        let (set, global) = named(read(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
            "metadata": {"name": "global"},
            "spec": {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}},
        })));
        scheduler.take_set(&set.name, Some(&global));
        let (name, binding) = named(read(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "global", "namespace": "a"}, "spec": {"clusterSet": "global"},
        })));
        scheduler.take_binding(&name, Some(&binding));
        scheduler.take_placement(&placement_name(), Some(&Arc::new(placement())));
        Self {
            scheduler,
            clusters: BTreeMap::new(),
            stored: BTreeMap::new(),
            changed: 0,
        }
    }

    fn label(&mut self, name: &str, env: &'static str) {
        self.clusters.insert(name.into(), env);
        self.scheduler
            .take_cluster(name, Some(&Arc::new(cluster(name, env))));
    }

    fn remove(&mut self, name: &str) {
        if self.clusters.remove(name).is_some() {
            self.scheduler.take_cluster(name, None);
        }
    }

    /// Plans until nothing changes, storing what is planned and showing it to the scheduler.
    fn settle(&mut self) {
        for _ in 0..10 {
            if self.scheduler.take_dirty().is_empty() {
                return;
            }
            match self
                .scheduler
                .schedule(&placement_name(), Timestamp::UNIX_EPOCH)
                .map(|schedule| schedule.planned)
            {
                Some(Planned::Scheduled(outcome, _)) => {
                    let names: BTreeSet<String> = outcome
                        .objects
                        .iter()
                        .map(|o| decision_name("p", o.slot))
                        .collect();
                    self.store(&outcome.objects);
                    let gone: Vec<String> = self
                        .stored
                        .keys()
                        .filter(|n| !names.contains(*n))
                        .cloned()
                        .collect();
                    self.drop_objects(&gone);
                }
                Some(Planned::Changed {
                    objects, gone, group, ..
                }) => {
                    self.changed += 1;
                    self.store(&objects);
                    self.drop_objects(&gone);
                    let count: usize = self.stored.values().map(BTreeSet::len).sum();
                    assert_eq!(usize::try_from(group.cluster_count).unwrap(), count);
                    assert_eq!(group.decisions.len(), self.stored.len());
                }
                _ => panic!("no plan"),
            }
        }
        panic!("planning does not settle");
    }

    fn store(&mut self, objects: &[DecisionObject]) {
        for object in objects {
            let name = decision_name("p", object.slot);
            let clusters: BTreeSet<String> = object.clusters.iter().cloned().collect();
            if self.stored.get(&name) != Some(&clusters) {
                self.take_decision(made(&name, &clusters));
                self.stored.insert(name, clusters);
            }
        }
    }

    fn drop_objects(&mut self, names: &[String]) {
        for name in names {
            self.stored.remove(name).expect("a deleted object was stored");
            self.scheduler.take_decision(&Name::new("a", name.as_str()), None);
        }
    }

    fn take_decision(&mut self, decision: PlacementDecision) {
        let (name, decision) = named(decision);
        self.scheduler.take_decision(&name, Some(&decision));
    }

    fn check(&self) {
        let wanted: BTreeSet<&String> = self
            .clusters
            .iter()
            .filter(|(_, env)| **env == "prod")
            .map(|(n, _)| n)
            .collect();
        let all: Vec<&String> = self.stored.values().flatten().collect();
        assert_eq!(all.len(), wanted.len(), "no cluster twice");
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), wanted);
        assert!(self.stored.values().all(|clusters| clusters.len() <= 100));
    }
}

fn placement() -> Placement {
    read(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"name": "p", "namespace": "a"},
        "spec": {"predicates": [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"env": "prod"}}}}]},
    }))
}

fn made(name: &str, clusters: &BTreeSet<String>) -> PlacementDecision {
    let mut made = decision(&placement(), &DecisionObject::default());
    made.metadata.name = Some(name.into());
    let decisions: Vec<Value> = clusters
        .iter()
        .map(|c| json!({"clusterName": c, "reason": ""}))
        .collect();
    made.status = Some(read(json!({"decisions": decisions})));
    made
}

#[test]
fn cluster_that_joins_changes_one_decision_object() {
    let mut hub = Hub::new();
    for n in 0..250 {
        hub.label(&format!("c{n:03}"), "prod");
    }
    hub.settle();
    hub.check();
    assert_eq!(hub.changed, 0);
    hub.label("c100", "dev");
    hub.settle();
    hub.label("new", "prod");
    hub.settle();
    hub.check();
    assert_eq!(
        hub.changed, 2,
        "one plan per change, none for the events of our own writes"
    );
    // A decision changed by another writer is repaired.
    hub.stored.insert("p-decision-1".into(), BTreeSet::new());
    hub.take_decision(made("p-decision-1", &BTreeSet::new()));
    hub.settle();
    hub.check();
}

#[test]
fn decision_without_label_is_replanned_by_its_owner() {
    let mut hub = Hub::new();
    hub.label("c", "prod");
    hub.settle();
    let mut stripped = made("p-decision-1", &BTreeSet::from(["c".into()]));
    hub.scheduler.take_decision(&Name::of(&stripped), None);
    hub.scheduler.take_dirty();
    stripped.metadata.labels = None;
    let owner = json!([{"apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement", "name": "p",
        "uid": "u", "controller": true}]);
    stripped.metadata.owner_references = Some(read(owner));
    hub.take_decision(stripped);
    assert!(hub.scheduler.take_dirty().contains(&placement_name()));
}

#[test]
fn decision_object_is_created_with_its_first_cluster_and_deleted_with_its_last() {
    let mut hub = Hub::new();
    for n in 0..200 {
        hub.label(&format!("c{n:03}"), "prod");
    }
    hub.settle();
    hub.label("new", "prod");
    hub.settle();
    assert_eq!(hub.stored.len(), 3);
    hub.label("new", "dev");
    hub.settle();
    hub.check();
    assert_eq!(hub.stored.len(), 2);
    assert_eq!(hub.changed, 2, "the other two hundred were not planned again");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn following_changes_ends_like_a_full_plan(changes in prop::collection::vec((0..120_usize, 0..3_usize, any::<bool>()), 1..150)) {
        let mut hub = Hub::new();
        for n in 0..101 {
            hub.label(&format!("c{n:03}"), "prod");
        }
        hub.settle();
        for (cluster, what, settle) in changes {
            let name = format!("c{cluster:03}");
            match what {
                0 => hub.label(&name, "prod"),
                1 => hub.label(&name, "dev"),
                _ => hub.remove(&name),
            }
            if settle {
                hub.settle();
                hub.check();
            }
        }
        hub.settle();
        hub.check();
    }
}

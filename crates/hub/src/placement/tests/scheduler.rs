//! A scheduler that follows changes one by one comes to what one that looks at everything comes to.

mod many;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::runtime::watcher::Event as Watched;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Event, DecisionObject, Scheduler, Wanted, decision};
use crate::placement::plan::decision_name;

/// A hub of one placement: what is stored, and the scheduler that is told.
struct Hub {
    scheduler: Scheduler,
    clusters: BTreeMap<String, &'static str>,
    stored: BTreeMap<String, BTreeSet<String>>,
    /// How often only some objects were planned anew.
    changed: usize,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn cluster_event(name: &str, env: &str) -> Event {
    Event::Cluster(Watched::Apply(read(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": {"env": env}}, "spec": {"hubAcceptsClient": true},
    }))))
}

impl Hub {
    fn new() -> Self {
        let mut scheduler = Scheduler::new(false);
        scheduler.take(Event::Set(Watched::Apply(read(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
            "metadata": {"name": "global"},
            "spec": {"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}},
        })))));
        scheduler.take(Event::Binding(Watched::Apply(read(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "global", "namespace": "a"}, "spec": {"clusterSet": "global"},
        })))));
        scheduler.take(placement());
        Self {
            scheduler,
            clusters: BTreeMap::new(),
            stored: BTreeMap::new(),
            changed: 0,
        }
    }

    fn label(&mut self, name: &str, env: &'static str) {
        self.clusters.insert(name.into(), env);
        self.scheduler.take(cluster_event(name, env));
    }

    fn remove(&mut self, name: &str) {
        if let Some(env) = self.clusters.remove(name)
            && let Event::Cluster(Watched::Apply(cluster)) = cluster_event(name, env)
        {
            self.scheduler.take(Event::Cluster(Watched::Delete(cluster)));
        }
    }

    /// Schedules until nothing is to do, storing what is wanted and telling the scheduler.
    fn settle(&mut self) {
        for _ in 0..10 {
            if self.scheduler.take_dirty().is_empty() {
                return;
            }
            match self
                .scheduler
                .schedule("a/p", Timestamp::UNIX_EPOCH)
                .map(|(wanted, _)| wanted)
            {
                Some(Wanted::Scheduled(outcome, _)) => {
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
                Some(Wanted::Changed {
                    objects, gone, group, ..
                }) => {
                    self.changed += 1;
                    self.store(&objects);
                    self.drop_objects(&gone);
                    let count: usize = self.stored.values().map(BTreeSet::len).sum();
                    assert_eq!(usize::try_from(group.cluster_count).unwrap(), count);
                    assert_eq!(group.decisions.len(), self.stored.len());
                }
                _ => panic!("nothing was planned"),
            }
        }
        panic!("it never comes to rest");
    }

    fn store(&mut self, objects: &[DecisionObject]) {
        for object in objects {
            let name = decision_name("p", object.slot);
            let clusters: BTreeSet<String> = object.clusters.iter().cloned().collect();
            if self.stored.get(&name) != Some(&clusters) {
                let event = Event::Decision(Watched::Apply(made(&name, &clusters)));
                self.stored.insert(name, clusters);
                self.scheduler.take(event);
            }
        }
    }

    fn drop_objects(&mut self, names: &[String]) {
        for name in names {
            self.stored.remove(name).expect("what goes was there");
            let event = Event::Decision(Watched::Delete(made(name, &BTreeSet::new())));
            self.scheduler.take(event);
        }
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

fn placement() -> Event {
    Event::Placement(Watched::Apply(read(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
        "metadata": {"name": "p", "namespace": "a"},
        "spec": {"predicates": [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"env": "prod"}}}}]},
    }))))
}

fn made(name: &str, clusters: &BTreeSet<String>) -> writ_api::cluster::PlacementDecision {
    let Event::Placement(Watched::Apply(placement)) = placement() else {
        unreachable!()
    };
    let mut made = decision(&placement, &DecisionObject::default());
    made.metadata.name = Some(name.into());
    let decisions: Vec<Value> = clusters
        .iter()
        .map(|c| json!({"clusterName": c, "reason": ""}))
        .collect();
    made.status = Some(read(json!({"decisions": decisions})));
    made
}

#[test]
fn one_cluster_more_is_one_object_changed() {
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
        "each change was one plan, and the write's own event none"
    );
    // Somebody else writes a decision: it is put right.
    hub.stored.insert("p-decision-1".into(), BTreeSet::new());
    hub.scheduler.take(Event::Decision(Watched::Apply(made(
        "p-decision-1",
        &BTreeSet::new(),
    ))));
    hub.settle();
    hub.check();
}

#[test]
fn a_decision_that_was_never_seen_with_its_label_is_its_owners() {
    let mut hub = Hub::new();
    hub.label("c", "prod");
    hub.settle();
    let mut stripped = made("p-decision-1", &BTreeSet::from(["c".into()]));
    hub.scheduler
        .take(Event::Decision(Watched::Delete(stripped.clone())));
    hub.scheduler.take_dirty();
    stripped.metadata.labels = None;
    let owner = json!([{"apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement", "name": "p",
        "uid": "u", "controller": true}]);
    stripped.metadata.owner_references = Some(read(owner));
    hub.scheduler.take(Event::Decision(Watched::Apply(stripped)));
    assert!(hub.scheduler.take_dirty().contains("a/p"));
}

#[test]
fn an_object_comes_with_its_first_cluster_and_goes_with_its_last() {
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
    assert_eq!(hub.changed, 2, "nobody looked at the other two hundred");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn following_changes_comes_to_the_same(changes in prop::collection::vec((0..120_usize, 0..3_usize, any::<bool>()), 1..150)) {
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

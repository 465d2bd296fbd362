//! Several placements that weigh each other, and what makes them look anew.

use super::*;

/// A hub of several placements: what is stored, by kind, and the scheduler that is told.
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

    /// A scheduler that knows nothing is told what is stored.
    fn restart(&mut self) {
        self.scheduler = Scheduler::new(false);
        for set in &self.sets {
            self.scheduler.take(Event::Set(Watched::Apply(read(set.clone()))));
        }
        for binding in &self.bindings {
            self.scheduler
                .take(Event::Binding(Watched::Apply(read(binding.clone()))));
        }
        for cluster in &self.clusters {
            self.scheduler
                .take(Event::Cluster(Watched::Apply(read(cluster.clone()))));
        }
        for placement in self.placements.values() {
            self.scheduler
                .take(Event::Placement(Watched::Apply(read(placement.clone()))));
        }
        for decision in self.decisions.values() {
            self.scheduler
                .take(Event::Decision(Watched::Apply(read(decision.clone()))));
        }
    }

    #[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
    fn place(&mut self, name: &str, spec: Value) {
        let placement = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
            "metadata": {"name": name, "namespace": "a"}, "spec": spec,
        });
        self.placements.insert(name.into(), placement.clone());
        self.scheduler
            .take(Event::Placement(Watched::Apply(read(placement))));
        self.settle();
    }

    fn change(&mut self, cluster: Value) {
        self.scheduler.take(Event::Cluster(Watched::Apply(read(cluster))));
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
                let name = key.split_once('/').unwrap().1.to_owned();
                let placement = read(self.placements[&name].clone());
                let objects = match self.scheduler.schedule(&key, Timestamp::UNIX_EPOCH) {
                    Some((Wanted::Scheduled(outcome, _), _)) => outcome.objects,
                    Some((Wanted::Changed { objects, .. }, _)) => objects,
                    _ => panic!("{key} was not planned"),
                };
                for object in objects {
                    let mut made = decision(&placement, &object);
                    let decisions: Vec<Value> = object
                        .clusters
                        .iter()
                        .map(|c| json!({"clusterName": c, "reason": ""}))
                        .collect();
                    made.status = Some(read(json!({"decisions": decisions})));
                    let stored = serde_json::to_value(&made).unwrap();
                    if self.decisions.get(&made.metadata.name.clone().unwrap()) != Some(&stored) {
                        self.decisions.insert(made.metadata.name.clone().unwrap(), stored);
                        self.scheduler.take(Event::Decision(Watched::Apply(made)));
                    }
                }
            }
        }
        panic!("it never comes to rest");
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

/// Each of them was put where the others are not. A hub that starts knows from the stored decisions where that is.
#[test]
fn a_hub_that_starts_moves_nobody() {
    let mut hub = Hub::new(&["c1", "c2", "c3", "c4"]);
    for name in ["z", "y", "x"] {
        hub.place(name, one_balanced());
    }
    let all = |hub: &Hub| ["x", "y", "z"].map(|name| hub.chosen(name).concat());
    assert_eq!(all(&hub), ["c3", "c2", "c1"]);
    hub.restart();
    hub.settle();
    assert_eq!(all(&hub), ["c3", "c2", "c1"]);
    // A set that changes makes all of them look anew: they stay as well.
    hub.scheduler
        .take(Event::Set(Watched::Apply(read(set("one", "other", 0)))));
    hub.scheduler
        .take(Event::Set(Watched::Apply(read(set("one", "one", 0)))));
    hub.settle();
    assert_eq!(all(&hub), ["c3", "c2", "c1"]);
}

/// Who schedules a placement is nobody's business: its clusters are taken.
#[test]
fn what_somebody_else_chose_counts() {
    let mut hub = Hub::new(&["c1", "c2"]);
    hub.place("theirs", one_balanced());
    assert_eq!(hub.chosen("theirs"), ["c1"]);
    hub.placements.get_mut("theirs").unwrap()["metadata"]["annotations"] =
        json!({"cluster.open-cluster-management.io/experimental-scheduling-disable": "true"});
    hub.restart();
    hub.scheduler.take_dirty();
    assert!(
        hub.scheduler
            .schedule("a/theirs", Timestamp::UNIX_EPOCH)
            .is_none()
    );
    hub.place("ours", one_balanced());
    assert_eq!(hub.chosen("ours"), ["c2"]);
}

/// Sets and bindings are written whenever something is counted or checked: that is no news for placements.
#[test]
fn the_status_of_a_set_is_no_news() {
    let mut hub = Hub::new(&["c1"]);
    hub.place("p", json!({}));
    let scheduler = &mut hub.scheduler;
    scheduler.take(Event::Set(Watched::Apply(read(set("one", "one", 1)))));
    scheduler.take(Event::Binding(Watched::Apply(read(binding("one", "Checked")))));
    // Nor is a set that is bound nowhere.
    scheduler.take(Event::Set(Watched::Apply(read(set("unbound", "one", 1)))));
    assert!(scheduler.take_dirty().is_empty());
    scheduler.take(Event::Set(Watched::Apply(read(set("one", "two", 1)))));
    assert_eq!(Vec::from_iter(scheduler.take_dirty()), ["a/p"]);
}

/// A taint against newcomers spares who is chosen, and nobody who was.
#[test]
fn who_left_is_a_newcomer() {
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

//! Where an account is, by the bindings of its namespace.

use std::{collections::BTreeSet, sync::Arc};

use kube::ResourceExt as _;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding};

use super::super::{model::Place, plan::bound_clusters};
use crate::cluster_set::membership::{CONFIRMED_ANNOTATION, JOINED_ANNOTATION, SetView};

fn parse<K: DeserializeOwned>(objects: Vec<Value>) -> Vec<Arc<K>> {
    let parsed = objects
        .into_iter()
        .map(|object| serde_json::from_value(object).unwrap());
    parsed.map(Arc::new).collect()
}

#[test]
fn namespace_of_an_accepted_cluster_is_a_place_of_its_own() {
    let cluster = |name: &str, accepted: bool| {
        json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": name, "labels": {"cluster.open-cluster-management.io/clusterset": "all"}},
            "spec": {"hubAcceptsClient": accepted},
        })
    };
    let set = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
        "metadata": {"name": "all", "uid": "u1"}, "spec": {},
    });
    let binding = |namespace: &str, set: &str| {
        json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": {"name": set, "namespace": namespace}, "spec": {"clusterSet": set},
        })
    };
    let mut denied = cluster("denied", false);
    denied["status"] = json!({"conditions": [{"type": "HubAcceptedManagedCluster", "status": "False",
        "reason": "HubClusterAdminDenied", "message": "", "lastTransitionTime": "1970-01-01T00:00:00Z"}]});
    let clusters: Vec<Arc<ManagedCluster>> = parse(vec![
        cluster("mc1", true),
        cluster("mc2", true),
        cluster("new", false),
        cluster("asked", false),
        denied,
    ]);
    let sets: Vec<Arc<ManagedClusterSet>> = parse(vec![set]);
    let bindings: Vec<Arc<ManagedClusterSetBinding>> = parse(vec![
        binding("mc1", "all"),
        binding("team", "all"),
        binding("asked", "all"),
        binding("denied", "all"),
        binding("lost", "gone"),
    ]);
    let place = |namespace: &str| {
        let own = clusters.iter().find(|cluster| cluster.name_any() == namespace);
        let bound = bindings
            .iter()
            .filter(|binding| binding.namespace().as_deref() == Some(namespace));
        let set = |name: &str| sets.iter().find(|set| set.name_any() == name).cloned();
        let own = own.map(|cluster| &**cluster);
        bound_clusters::place(
            own,
            bound.map(|binding| &**binding),
            set,
            || clusters.clone(),
            false,
        )
    };
    let both = BTreeSet::from(["mc1".to_owned(), "mc2".to_owned()]);
    for (namespace, wanted) in [
        ("mc1", Place::Cluster),
        ("denied", Place::Cluster),
        ("team", Place::Sets(both.clone())),
        // It was never accepted, so it takes no account away.
        ("asked", Place::Sets(both)),
        ("new", Place::Nowhere),
        ("lost", Place::Nowhere),
        ("elsewhere", Place::Nowhere),
    ] {
        assert_eq!(place(namespace), wanted, "{namespace}");
    }
}

#[test]
fn label_without_confirmation_is_no_membership_of_a_guarded_set() {
    let set = |confirmed: &str| -> ManagedClusterSet {
        serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
            "metadata": {"name": "apac", "uid": "u1", "annotations": {CONFIRMED_ANNOTATION: confirmed}},
            "spec": {"exclusiveKey": "region"},
        }))
        .unwrap()
    };
    let cluster = |joined: &str| -> ManagedCluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": "mc1", "labels": {"region": "apac"}, "annotations": {JOINED_ANNOTATION: joined}},
            "spec": {"hubAcceptsClient": true},
        }))
        .unwrap()
    };
    let member = |set: &ManagedClusterSet, joined: &str| {
        bound_clusters::is_member(&SetView::of(set, false), &cluster(joined))
    };
    assert!(!member(&set("false"), ""));
    assert!(member(&set("false"), "region=u1"));
    assert!(!member(&set("false"), "region=another"));
    assert!(member(&set("true"), ""));
}

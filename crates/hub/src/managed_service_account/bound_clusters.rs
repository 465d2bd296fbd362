//! Which clusters a namespace is bound to.

use std::collections::BTreeSet;

use kube::ResourceExt;
use writ_api::cluster::{
    ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, managed_cluster::CONDITION_HUB_ACCEPTED,
};

use super::{mirror::Mirror, model::Place};
#[cfg(test)]
use crate::cluster_set::membership::CONFIRMED_ANNOTATION;
use crate::cluster_set::membership::{JOINED_ANNOTATION, Membership, SetView};

/// Whether the namespace is a cluster's: of one that was accepted, whether it is denied now or leaves. Whoever may ask for
/// a cluster to be accepted makes no namespace a cluster's by that.
pub fn is_clusters(namespace: &str, clusters: &Mirror<ManagedCluster>) -> bool {
    clusters.get("", namespace).is_some_and(|cluster| {
        let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
        cluster.spec.hub_accepts_client
            || conditions
                .map(|condition| condition.type_.as_str())
                .any(|type_| type_ == CONDITION_HUB_ACCEPTED)
    })
}

/// Where an account in this namespace stands.
pub fn place(
    namespace: &str,
    clusters: &Mirror<ManagedCluster>,
    sets: &Mirror<ManagedClusterSet>,
    bindings: &Mirror<ManagedClusterSetBinding>,
    guard_default_key: bool,
) -> Place {
    if is_clusters(namespace, clusters) {
        return Place::Cluster;
    }
    let bound: Vec<SetView> = bindings
        .within(namespace)
        .filter(|(_, binding)| binding.metadata.deletion_timestamp.is_none())
        .filter_map(|(_, binding)| sets.get("", &binding.spec.cluster_set))
        .filter(|set| set.metadata.deletion_timestamp.is_none())
        .map(|set| SetView::of(set, guard_default_key))
        .collect();
    if bound.is_empty() {
        return Place::Nowhere;
    }
    Place::Sets(
        clusters
            .iter()
            .filter(|(_, cluster)| {
                cluster.spec.hub_accepts_client && cluster.metadata.deletion_timestamp.is_none()
            })
            .filter(|(_, cluster)| bound.iter().any(|set| is_member(set, cluster)))
            .map(|((_, name), _)| name.clone())
            .collect::<BTreeSet<_>>(),
    )
}

/// Whether a cluster is in a set. One that carries the label of a guarded set without anybody's confirmation is not:
/// whoever may label a cluster must not get an account there.
fn is_member(set: &SetView, cluster: &ManagedCluster) -> bool {
    let joined = cluster.annotations().get(JOINED_ANNOTATION).map(String::as_str);
    set.membership(cluster.labels(), joined) == Membership::Member
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn mirror<K>(objects: Vec<serde_json::Value>) -> Mirror<K>
    where
        K: kube::Resource<DynamicType = ()> + Clone + serde::de::DeserializeOwned,
    {
        let mut mirror = Mirror::default();
        for object in objects {
            let object = kube::core::DeserializeGuard(Ok(serde_json::from_value(object).unwrap()));
            mirror.take(kube::runtime::watcher::Event::Apply(object), |object: K| object);
        }
        mirror
    }

    #[test]
    fn the_namespace_of_a_cluster_is_one_whatever_is_bound_there() {
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
        let clusters = mirror(vec![
            cluster("mc1", true),
            cluster("mc2", true),
            cluster("new", false),
            cluster("asked", false),
            denied,
        ]);
        let sets = mirror(vec![set]);
        let bindings = mirror(vec![
            binding("mc1", "all"),
            binding("team", "all"),
            binding("asked", "all"),
            binding("denied", "all"),
            binding("lost", "gone"),
        ]);
        let place = |namespace| place(namespace, &clusters, &sets, &bindings, false);
        let both = BTreeSet::from(["mc1".to_owned(), "mc2".to_owned()]);
        for (namespace, wanted) in [
            ("mc1", Place::Cluster),
            ("denied", Place::Cluster),
            ("team", Place::Sets(both.clone())),
            // Nobody has accepted it: who may only ask takes no account away.
            ("asked", Place::Sets(both)),
            ("new", Place::Nowhere),
            ("lost", Place::Nowhere),
            ("elsewhere", Place::Nowhere),
        ] {
            assert_eq!(place(namespace), wanted, "{namespace}");
        }
    }

    #[test]
    fn a_label_alone_is_no_membership_of_a_guarded_set() {
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
        let member =
            |set: &ManagedClusterSet, joined: &str| is_member(&SetView::of(set, false), &cluster(joined));
        assert!(!member(&set("false"), ""));
        assert!(member(&set("false"), "region=u1"));
        assert!(!member(&set("false"), "region=another"));
        assert!(member(&set("true"), ""));
    }
}

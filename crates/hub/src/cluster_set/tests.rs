use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use writ_api::cluster::ManagedClusterSet;
use writ_controller::condition;

use crate::names::is_subdomain;

use super::{
    index::MembershipIndex,
    membership::{Labels, Membership, SetView},
    plan,
};

fn set(name: &str, spec: &Value, confirmed: &str) -> ManagedClusterSet {
    serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2",
        "kind": "ManagedClusterSet",
        "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 3,
            "annotations": {"writ.dev/members-confirmed": confirmed}},
        "spec": spec,
    }))
    .unwrap()
}

fn labels(pairs: &[(&str, &str)]) -> Labels {
    pairs
        .iter()
        .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
        .collect()
}

fn view(name: &str, spec: &Value, confirmed: &str) -> SetView {
    SetView::of(&set(name, spec, confirmed), false)
}

#[test]
fn who_is_in_a_set() {
    let region = json!({"exclusiveKey": "region"});
    let default = json!({});
    let selector = json!({"clusterSelector": {"selectorType": "LabelSelector",
        "labelSelector": {"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]}}});
    let broken = json!({"clusterSelector": {"selectorType": "LabelSelector",
        "labelSelector": {"matchExpressions": [{"key": "env", "operator": "Near", "values": []}]}}});
    let everything = json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}});
    let nothing = json!({"clusterSelector": {"selectorType": "LabelSelector"}});
    let apac = labels(&[("region", "apac"), ("env", "prod")]);
    for (spec, confirmed, joined, expected) in [
        (&region, "true", None, Membership::Member),
        (&region, "false", None, Membership::Unconfirmed),
        (&region, "", None, Membership::Unconfirmed),
        (&region, "false", Some("region=uid-apac"), Membership::Member),
        (
            &region,
            "false",
            Some("region=uid-other"),
            Membership::Unconfirmed,
        ),
        (&region, "false", Some("vendor=uid-apac"), Membership::Unconfirmed),
        (&default, "false", None, Membership::NotMember),
        (&selector, "false", None, Membership::Member),
        (&broken, "true", None, Membership::NotMember),
        (&everything, "", None, Membership::Member),
        (&nothing, "", None, Membership::NotMember),
    ] {
        assert_eq!(
            view("apac", spec, confirmed).membership(&apac, joined),
            expected,
            "{spec} {confirmed} {joined:?}"
        );
    }
    let member = labels(&[("cluster.open-cluster-management.io/clusterset", "apac")]);
    assert_eq!(
        view("apac", &default, "").membership(&member, None),
        Membership::Member
    );
    // Where the default key is guarded, a set that was made before keeps its members.
    for (confirmed, expected) in [
        ("", Membership::Member),
        ("true", Membership::Member),
        ("false", Membership::Unconfirmed),
    ] {
        let guarded = SetView::of(&set("apac", &default, confirmed), true);
        assert_eq!(guarded.membership(&member, None), expected, "{confirmed:?}");
    }
}

#[test]
fn sets_with_one_key_exclude_each_other_and_sets_with_two_overlap() {
    let mut fleet = MembershipIndex::default();
    fleet.upsert_set(view("apac", &json!({"exclusiveKey": "region"}), "true"));
    fleet.upsert_set(view("us", &json!({"exclusiveKey": "region"}), "true"));
    fleet.upsert_set(view("backup", &json!({"exclusiveKey": "dr"}), "true"));
    fleet.upsert_set(view(
        "global",
        &json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}}),
        "",
    ));
    let both = labels(&[("region", "apac"), ("dr", "backup")]);
    let changed = fleet.upsert_cluster("c1", &both, None);
    assert_eq!(
        changed.into_iter().collect::<Vec<_>>(),
        ["apac", "backup", "global"]
    );
    assert_eq!(
        fleet.sets_of("c1").collect::<Vec<_>>(),
        ["apac", "backup", "global"]
    );
    let moved = labels(&[("region", "us"), ("dr", "backup")]);
    let changed = fleet.upsert_cluster("c1", &moved, None);
    assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["apac", "us"]);
    assert!(fleet.members("apac").unwrap().is_empty());
    assert!(fleet.upsert_cluster("c1", &moved, None).is_empty());
    // The value names a set, but under another key.
    fleet.upsert_cluster("c2", &labels(&[("vendor", "apac")]), None);
    assert_eq!(fleet.sets_of("c2").collect::<Vec<_>>(), ["global"]);
    assert_eq!(fleet.remove_cluster("c1").len(), 3);
    assert_eq!(fleet.remove_set("global").into_iter().collect::<Vec<_>>(), ["c2"]);
    assert!(fleet.members("global").is_none());
}

#[test]
fn a_set_that_comes_later_finds_its_clusters() {
    let mut fleet = MembershipIndex::default();
    fleet.upsert_cluster("c1", &labels(&[("region", "apac")]), None);
    let changed = fleet.upsert_set(view("apac", &json!({"exclusiveKey": "region"}), "false"));
    assert_eq!(changed.len(), 1);
    assert!(fleet.members("apac").unwrap().is_empty());
    assert_eq!(fleet.unconfirmed("apac").unwrap().len(), 1);
    fleet.upsert_set(view("apac", &json!({"exclusiveKey": "region"}), "true"));
    assert_eq!(fleet.members("apac").unwrap().len(), 1);
}

#[test]
fn the_status_uses_upstreams_words() {
    let object = set("apac", &json!({"exclusiveKey": "region"}), "false");
    let mut fleet = MembershipIndex::default();
    fleet.upsert_set(SetView::of(&object, false));
    let now = Timestamp::UNIX_EPOCH;
    let status = plan::set_status(&object, &fleet, now);
    let empty = condition::find(&status.conditions, "ClusterSetEmpty").unwrap();
    assert_eq!(
        (
            empty.status.as_str(),
            empty.reason.as_str(),
            empty.message.as_str()
        ),
        ("True", "NoClusterMatched", "No ManagedCluster selected")
    );
    assert_eq!(empty.observed_generation, Some(3));
    fleet.upsert_cluster("c1", &labels(&[("region", "apac")]), Some("region=uid-apac"));
    fleet.upsert_cluster("c2", &labels(&[("region", "apac")]), None);
    let status = plan::set_status(&object, &fleet, now);
    let empty = condition::find(&status.conditions, "ClusterSetEmpty").unwrap();
    assert_eq!(empty.message, "1 ManagedClusters selected");
    assert_eq!(status.cluster_count, Some(1));
    assert_eq!(status.cluster_label.unwrap().key, "region");
    let conflict = condition::find(&status.conditions, "ClusterSetConflict").unwrap();
    assert_eq!(conflict.status, "True");
    assert!(conflict.message.contains("c2"), "{}", conflict.message);
}

#[test]
fn labels_that_name_no_set_are_reported_on_the_cluster() {
    let mut fleet = MembershipIndex::default();
    fleet.upsert_set(view("apac", &json!({"exclusiveKey": "region"}), "true"));
    fleet.upsert_set(view("aws", &json!({"exclusiveKey": "vendor"}), "true"));
    let problem = |pairs: &[(&str, &str)]| {
        plan::cluster_condition(&labels(pairs), &BTreeSet::new(), "c1", &fleet).map(|wanted| wanted.message)
    };
    assert_eq!(problem(&[("region", "apac"), ("vendor", "aws")]), None);
    assert_eq!(problem(&[("unknown", "APAC")]), None);
    // The last set of its key is gone, and the cluster still says that it is in it.
    let left = plan::cluster_condition(
        &labels(&[("tier", "gold")]),
        &BTreeSet::from(["tier".to_owned()]),
        "c1",
        &fleet,
    );
    let left = left.unwrap();
    assert!(left.message.contains("tier=gold: there is no such set"));
    // Once said, it is known from that; a label that was changed is not what was meant.
    let said = plan::timed(&[], &left, None, Timestamp::UNIX_EPOCH);
    let known = |pairs| {
        let labels = labels(pairs);
        plan::reported_keys(&labels, Some(&said))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(known(&[("tier", "gold"), ("env", "prod")]), ["tier"]);
    assert!(known(&[("tier", "silver")]).is_empty());
    assert!(
        problem(&[("region", "APAC")])
            .unwrap()
            .contains("region=APAC: no set can have that name")
    );
    assert!(
        problem(&[("region", "us")])
            .unwrap()
            .contains("there is no such set")
    );
    assert!(
        problem(&[("region", "aws")])
            .unwrap()
            .contains("there is no such set")
    );
}

#[test]
fn the_roles_of_a_set_name_that_set_only() {
    let roles = plan::roles(&set("apac", &json!({}), ""));
    let names: Vec<_> = roles.iter().filter_map(|r| r.metadata.name.clone()).collect();
    assert_eq!(
        names,
        [
            "open-cluster-management:managedclusterset:admin:apac",
            "open-cluster-management:managedclusterset:bind:apac",
            "open-cluster-management:managedclusterset:view:apac"
        ]
    );
    for rule in roles.iter().filter_map(|r| r.rules.as_ref()).flatten() {
        assert_eq!(
            rule.resource_names.as_deref(),
            Some(["apac".to_owned()].as_slice())
        );
    }
}

#[test]
fn names_of_sets() {
    for (value, legal) in [
        ("apac", true),
        ("a.b-c.9", true),
        ("APAC", false),
        ("", false),
        ("-a", false),
        ("a.", false),
        ("a_b", false),
    ] {
        assert_eq!(is_subdomain(value), legal, "{value}");
    }
}

#[test]
fn agents_are_told_the_namespaces_of_their_sets() {
    let asks = |name: &str, namespaces: &[&str]| {
        let namespaces: Vec<_> = namespaces.iter().map(|n| json!({"name": n})).collect();
        set(name, &json!({"managedNamespaces": namespaces}), "")
    };
    let said: writ_api::cluster::managed_cluster::ReportedNamespace = serde_json::from_value(json!({
        "clusterSet": "b", "name": "kept", "conditions": [{"type": "NamespaceAvailable", "status": "True",
            "reason": "NamespaceApplied", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }))
    .unwrap();
    let mut leaving = asks("c", &["gone"]);
    leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let sets = [asks("b", &["kept", "first"]), asks("a", &["kept"]), leaving];
    let old = serde_json::from_value(json!({"clusterSet": "z", "name": "dropped"})).unwrap();
    let wanted = plan::managed_namespaces(&[old, said.clone()], sets.iter());
    let names: Vec<_> = wanted
        .iter()
        .map(|n| (n.cluster_set.as_str(), n.name.as_str(), n.conditions.len()))
        .collect();
    assert_eq!(names, [("a", "kept", 0), ("b", "first", 0), ("b", "kept", 1)]);
    assert_eq!(wanted[2], said, "what the agent said stays");
    assert_eq!(plan::managed_namespaces(&wanted, sets.iter()), wanted);
}

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet};
use writ_controller::condition;

use super::{
    index::MembershipIndex,
    membership::{Labels, Membership, SetView},
    model::{Item, LabelReport, ObservedCluster},
    observe::Observed,
    plan,
};
use crate::names::is_subdomain;

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
fn membership_depends_on_selection_and_confirmation() {
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
    // Where the default key is guarded, a set that is older than the guard keeps its members.
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
fn sets_of_one_key_exclude_each_other_and_sets_of_two_keys_overlap() {
    let mut index = MembershipIndex::default();
    index.upsert_set(view("apac", &json!({"exclusiveKey": "region"}), "true"));
    index.upsert_set(view("us", &json!({"exclusiveKey": "region"}), "true"));
    index.upsert_set(view("backup", &json!({"exclusiveKey": "dr"}), "true"));
    index.upsert_set(view(
        "global",
        &json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}}),
        "",
    ));
    let both = labels(&[("region", "apac"), ("dr", "backup")]);
    let changed = index.upsert_cluster("c1", &both, None);
    assert_eq!(
        changed.into_iter().collect::<Vec<_>>(),
        ["apac", "backup", "global"]
    );
    assert_eq!(
        index.sets_of("c1").collect::<Vec<_>>(),
        ["apac", "backup", "global"]
    );
    let moved = labels(&[("region", "us"), ("dr", "backup")]);
    let changed = index.upsert_cluster("c1", &moved, None);
    assert_eq!(changed.into_iter().collect::<Vec<_>>(), ["apac", "us"]);
    assert!(index.members("apac").unwrap().is_empty());
    assert!(index.upsert_cluster("c1", &moved, None).is_empty());
    // The value names a set, but under another key.
    index.upsert_cluster("c2", &labels(&[("vendor", "apac")]), None);
    assert_eq!(index.sets_of("c2").collect::<Vec<_>>(), ["global"]);
    assert_eq!(index.remove_cluster("c1").len(), 3);
    assert_eq!(index.remove_set("global").into_iter().collect::<Vec<_>>(), ["c2"]);
    assert!(index.members("global").is_none());
}

#[test]
fn set_created_after_its_clusters_finds_them() {
    let mut index = MembershipIndex::default();
    index.upsert_cluster("c1", &labels(&[("region", "apac")]), None);
    let changed = index.upsert_set(view("apac", &json!({"exclusiveKey": "region"}), "false"));
    assert_eq!(changed.len(), 1);
    assert!(index.members("apac").unwrap().is_empty());
    assert_eq!(index.unconfirmed("apac").unwrap().len(), 1);
    index.upsert_set(view("apac", &json!({"exclusiveKey": "region"}), "true"));
    assert_eq!(index.members("apac").unwrap().len(), 1);
}

#[test]
fn status_of_a_set_counts_members_in_the_words_of_ocm() {
    let object = set("apac", &json!({"exclusiveKey": "region"}), "false");
    let mut index = MembershipIndex::default();
    index.upsert_set(SetView::of(&object, false));
    let now = Timestamp::UNIX_EPOCH;
    let status = plan::set_status(&object, &index, now);
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
    index.upsert_cluster("c1", &labels(&[("region", "apac")]), Some("region=uid-apac"));
    index.upsert_cluster("c2", &labels(&[("region", "apac")]), None);
    let status = plan::set_status(&object, &index, now);
    let empty = condition::find(&status.conditions, "ClusterSetEmpty").unwrap();
    assert_eq!(empty.message, "1 ManagedClusters selected");
    assert_eq!(status.cluster_count, Some(1));
    assert_eq!(status.cluster_label.unwrap().key, "region");
    let conflict = condition::find(&status.conditions, "ClusterSetConflict").unwrap();
    assert_eq!(conflict.status, "True");
    assert!(conflict.message.contains("c2"), "{}", conflict.message);
}

/// The report on a cluster with these labels, where these labels were reported before.
fn report(
    index: &MembershipIndex,
    gone_keys: &[&str],
    pairs: &[(&str, &str)],
    reported: &[(&str, &str)],
) -> LabelReport {
    let labels = labels(pairs);
    let cluster = ObservedCluster {
        name: "c1".into(),
        labels: &labels,
        joined_keys: BTreeSet::new(),
        reported: self::labels(reported),
        generation: None,
        condition: None,
        namespaces: &[],
    };
    let gone_keys = gone_keys.iter().map(|key| (*key).to_owned()).collect();
    plan::label_report(&cluster, &gone_keys, index)
}

#[test]
fn label_that_names_no_set_is_reported() {
    let mut index = MembershipIndex::default();
    index.upsert_set(view("apac", &json!({"exclusiveKey": "region"}), "true"));
    index.upsert_set(view("aws", &json!({"exclusiveKey": "vendor"}), "true"));
    index.upsert_set(view("gcp", &json!({"exclusiveKey": "vendor"}), "false"));
    index.upsert_cluster("c1", &labels(&[("vendor", "gcp")]), None);
    let problem = |pairs: &[(&str, &str)]| {
        let report = report(&index, &[], pairs, &[]);
        report.condition.map(|wanted| wanted.message)
    };
    assert_eq!(problem(&[("region", "apac"), ("vendor", "aws")]), None);
    assert_eq!(problem(&[("unknown", "APAC")]), None);
    for (label, words) in [
        (("region", "APAC"), "label region=APAC: no set can have that name"),
        (("region", "us"), "label region=us: there is no such set"),
        (("region", "aws"), "label region=aws: there is no such set"),
        (("vendor", "gcp"), "not set through the admission webhook"),
    ] {
        let message = problem(&[label]).unwrap();
        assert!(message.contains(words), "{message}");
    }
}

#[test]
fn key_without_sets_is_known_from_what_was_reported() {
    let index = MembershipIndex::default();
    // The last set of the key was just deleted.
    let first = report(&index, &["tier"], &[("tier", "gold"), ("env", "prod")], &[]);
    assert_eq!(first.labels, labels(&[("tier", "gold")]));
    assert!(first.condition.as_ref().unwrap().message.contains("tier=gold"));
    // After a restart, the report itself remembers it.
    let again = report(
        &index,
        &[],
        &[("tier", "gold"), ("env", "prod")],
        &[("tier", "gold")],
    );
    assert_eq!(again, first);
    // A label that was changed or removed is not reported any more, and forgotten.
    for pairs in [&[("tier", "silver")][..], &[]] {
        let none = report(&index, &[], pairs, &[("tier", "gold")]);
        assert_eq!(none, LabelReport::default());
    }
}

#[test]
fn reported_labels_are_read_from_their_annotation_alone() {
    let cluster: ManagedCluster = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": {"name": "c1", "annotations": {
            "writ.dev/reported-set-labels": "example.com/tier=gold,region=us",
            "writ.dev/joined-sets": "vendor=uid-aws"}},
        "spec": {},
        "status": {"conditions": [{"type": "ManagedClusterSetLabelsValid", "status": "False", "reason": "NotInSet",
            "message": "label env=prod: there is no such set with that key", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
    }))
    .unwrap();
    let observed = ObservedCluster::of(&cluster);
    assert_eq!(
        observed.reported,
        labels(&[("example.com/tier", "gold"), ("region", "us")])
    );
    assert_eq!(Vec::from_iter(&observed.joined_keys), ["vendor"]);
    assert!(observed.condition.is_some());
}

#[test]
fn change_of_a_set_concerns_its_clusters_and_the_labels_that_name_it() {
    let observed = Observed::new(false);
    let cluster = |name: &str, region: &str| -> ManagedCluster {
        serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
            "metadata": {"name": name, "labels": {"region": region}}, "spec": {},
        }))
        .unwrap()
    };
    let items = |clusters: &[&str], set: &str| -> Vec<Item> {
        let clusters = clusters.iter().map(|name| Item::Cluster((*name).into()));
        [Item::Set(set.into())].into_iter().chain(clusters).collect()
    };
    assert_eq!(
        observed.take_cluster("c1", Some(&cluster("c1", "apac"))),
        [Item::Cluster("c1".into())]
    );
    observed.take_cluster("c2", Some(&cluster("c2", "us")));
    let apac = set("apac", &json!({"exclusiveKey": "region"}), "true");
    // The key is new: every cluster may carry it.
    assert_eq!(
        observed.take_set("apac", None, Some(&apac)),
        items(&["c1", "c2"], "apac")
    );
    let us = set("us", &json!({"exclusiveKey": "region"}), "true");
    assert_eq!(observed.take_set("us", None, Some(&us)), items(&["c2"], "us"));
    // Its status changed.
    assert_eq!(observed.take_set("us", Some(&us), Some(&us)), items(&[], "us"));
    let asks = set(
        "us",
        &json!({"exclusiveKey": "region", "managedNamespaces": [{"name": "n"}]}),
        "true",
    );
    assert_eq!(
        observed.take_set("us", Some(&us), Some(&asks)),
        items(&["c2"], "us")
    );
    assert_eq!(
        observed.take_cluster("c2", Some(&cluster("c2", "apac"))),
        [
            Item::Cluster("c2".into()),
            Item::Set("apac".into()),
            Item::Set("us".into())
        ]
    );
    observed.take_set("us", Some(&asks), None);
    observed.take_set("apac", Some(&apac), None);
    assert_eq!(Vec::from_iter(&observed.lock().gone_keys), ["region"]);
    let global = set("global", &json!({}), "");
    assert!(
        observed
            .take_set("global", None, Some(&global))
            .contains(&Item::StandingSets)
    );
}

#[test]
fn roles_of_a_set_are_limited_to_that_set() {
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
fn name_of_a_set_is_a_dns_subdomain() {
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
fn namespaces_of_all_sets_are_listed_and_keep_their_conditions() {
    let asks = |name: &str, namespaces: &[&str]| {
        let namespaces: Vec<_> = namespaces.iter().map(|n| json!({"name": n})).collect();
        set(name, &json!({"managedNamespaces": namespaces}), "")
    };
    let reported: writ_api::cluster::managed_cluster::ReportedNamespace = serde_json::from_value(json!({
        "clusterSet": "b", "name": "kept", "conditions": [{"type": "NamespaceAvailable", "status": "True",
            "reason": "NamespaceApplied", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }))
    .unwrap();
    let mut leaving = asks("c", &["gone"]);
    leaving.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let sets = [asks("b", &["kept", "first"]), asks("a", &["kept"]), leaving];
    let old = serde_json::from_value(json!({"clusterSet": "z", "name": "dropped"})).unwrap();
    let wanted = plan::managed_namespaces(&[old, reported.clone()], &sets.each_ref());
    let names: Vec<_> = wanted
        .iter()
        .map(|n| (n.cluster_set.as_str(), n.name.as_str(), n.conditions.len()))
        .collect();
    assert_eq!(names, [("a", "kept", 0), ("b", "first", 0), ("b", "kept", 1)]);
    assert_eq!(wanted[2], reported, "the report of the agent stays");
    assert_eq!(plan::managed_namespaces(&wanted, &sets.each_ref()), wanted);
}

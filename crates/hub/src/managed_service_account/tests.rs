//! Tables against the plans.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use k8s_openapi::{
    api::{
        admissionregistration::v1::{MatchResources, ValidatingAdmissionPolicy},
        rbac::v1::Role,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::ResourceExt;
use serde_json::{Value, json};
use writ_api::{
    authentication::{ManagedServiceAccount, ManagedServiceAccountStatus},
    proxy,
};
use writ_controller::{condition, write};

use super::{
    model::{EXACT_ACCOUNT, Family, Granted, Namesakes, Place, SeenSecret},
    plan::{accounts, children, older_group, policy, rights},
};
use crate::options::RegistrationDriver;

mod addon;
mod bound_clusters;
mod stored_before_bounds;

fn namesakes(accounts: impl IntoIterator<Item = (String, ManagedServiceAccount)>) -> Namesakes {
    let accounts = accounts.into_iter();
    accounts
        .map(|(cluster, account)| (cluster, Arc::new(account)))
        .collect()
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn account(namespace: &str, uid: &str, change: &Value) -> ManagedServiceAccount {
    let mut object = json!({
        "apiVersion": "authentication.open-cluster-management.io/v1beta1",
        "kind": "ManagedServiceAccount",
        "metadata": { "name": "robot", "namespace": namespace, "uid": uid, "generation": 2,
            "creationTimestamp": "1970-01-01T00:01:40Z" },
        "spec": { "rotation": {} },
    });
    json_patch::merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn reported(status: &str, reason: &str) -> Value {
    json!({ "status": { "conditions": [{ "type": "TokenReported", "status": status, "reason": reason, "message": "m",
        "lastTransitionTime": "1970-01-01T00:00:00Z" }] } })
}

fn sets(clusters: &[&str]) -> Place {
    Place::Sets(clusters.iter().map(|name| (*name).to_owned()).collect())
}

#[test]
fn account_with_a_time_to_live_ends_to_the_second() {
    let account = account("c1", "u", &json!({ "spec": { "ttlSecondsAfterCreation": 60 } }));
    assert_eq!(accounts::ends_at(&account), Some(at(160)));
    assert_eq!(accounts::ends_at(&self::account("c1", "u", &json!({}))), None);
}

#[test]
fn children_follow_the_clusters_and_never_adopt() {
    let parent = account(
        "team",
        "p",
        &json!({ "spec": { "ttlSecondsAfterCreation": 60, "audiences": ["x"] } }),
    );
    let mine = |cluster: &str| {
        let mut child = children::child(&parent, cluster);
        child.metadata.uid = Some(format!("child-{cluster}"));
        child
    };
    let found = namesakes([
        ("c1".to_owned(), mine("c1")),
        ("gone".to_owned(), mine("gone")),
        ("c2".to_owned(), account("c2", "theirs", &json!({}))),
        ("other".to_owned(), account("other", "o", &json!({}))),
    ]);
    let family = children::family(&parent, &sets(&["c1", "c2", "c3"]), &found);
    let wanted: Vec<_> = family.wanted.iter().filter_map(ResourceExt::namespace).collect();
    assert_eq!(wanted, ["c1", "c3"]);
    assert!(
        family
            .wanted
            .iter()
            .all(|child| child.spec.ttl_seconds_after_creation.is_none())
    );
    assert_eq!(family.taken.keys().collect::<Vec<_>>(), ["c2"]);
    // A child never adopts, and the annotation is removed from one that has it.
    let adopt = "authentication.writ.dev/adopt";
    let greedy = account(
        "team",
        "p",
        &json!({ "metadata": { "annotations": { adopt: "true" } } }),
    );
    let child = children::child(&greedy, "c1");
    assert!(!child.annotations().contains_key(adopt));
    let mut before = child.clone();
    before.annotations_mut().insert(adopt.into(), "true".into());
    let patch = write::patch(&before, &child, &EXACT_ACCOUNT).unwrap();
    assert_eq!(
        patch,
        Some(json!({ "metadata": { "annotations": { adopt: null } } }))
    );
    let surplus: Vec<_> = family
        .surplus
        .iter()
        .filter_map(|child| child.namespace())
        .collect();
    assert_eq!(surplus, ["gone"]);
    // Without a binding, or in the namespace of a cluster, all children are surplus, and nothing else is.
    for place in [Place::Nowhere, Place::Cluster] {
        let family = children::family(&parent, &place, &found);
        assert!(family.wanted.is_empty());
        let surplus: Vec<_> = family
            .surplus
            .iter()
            .filter_map(|child| child.namespace())
            .collect();
        assert_eq!(surplus, ["c1", "gone"]);
    }
}

#[test]
fn child_without_its_label_is_known_by_its_annotation() {
    let parent = account("team", "p", &json!({}));
    let child = |change: &Value| {
        let mut child = serde_json::to_value(children::child(&parent, "c1")).unwrap();
        let made = json!({ "metadata": { "uid": "c", "creationTimestamp": "1970-01-01T00:01:40Z",
            "labels": { "authentication.writ.dev/parent-uid": null } } });
        json_patch::merge(&mut child, &made);
        json_patch::merge(&mut child, change);
        serde_json::from_value::<ManagedServiceAccount>(child).unwrap()
    };
    let label =
        |uid: &str| json!({ "metadata": { "labels": { "authentication.writ.dev/parent-uid": uid } } });
    for (change, mine) in [
        (label("p"), true),
        (json!({}), true),
        (label("another"), false),
        // It is older than its parent, which was recreated.
        (
            json!({ "metadata": { "creationTimestamp": "1970-01-01T00:01:39Z" } }),
            false,
        ),
        (
            json!({ "metadata": { "annotations": { "authentication.writ.dev/parent": "team-b/robot" } } }),
            false,
        ),
    ] {
        let child = child(&change);
        assert!(children::has_parent(&child));
        assert_eq!(children::is_child(&parent, &child), mine, "{change}");
        let found = namesakes([("c1".to_owned(), child.clone())]);
        let family = children::family(&parent, &sets(&["c1"]), &found);
        assert_eq!(family.wanted.len() == 1, mine, "{change}");
        // The label comes back.
        if let Some(wanted) = family.wanted.first() {
            let patch = write::patch(&child, wanted, &EXACT_ACCOUNT)
                .unwrap()
                .unwrap_or_default();
            assert_eq!(
                patch.pointer("/metadata/labels").is_some(),
                change == json!({}),
                "{change}"
            );
        }
        // It is surplus without a binding.
        let surplus = children::family(&parent, &Place::Nowhere, &found).surplus;
        assert_eq!(surplus.len() == 1, mine, "{change}");
    }
    assert!(!children::has_parent(&account("c1", "hand-made", &json!({}))));
}

#[test]
fn parent_status_counts_children_and_names_the_failing() {
    let parent = account("team", "p", &json!({}));
    let child = |cluster: &str, change: &Value| {
        let mut child = children::child(&parent, cluster);
        child.status = serde_json::from_value(change["status"].clone()).ok();
        (cluster.to_owned(), child)
    };
    let found = namesakes([
        child("c1", &reported("True", "TokenReported")),
        child("c2", &reported("False", "TokenReportFailed")),
        child("c3", &json!({})),
    ]);
    let place = sets(&["c1", "c2", "c3"]);
    let status = |found| {
        children::family_status(
            &parent,
            &place,
            &children::family(&parent, &place, found),
            found,
            at(1),
        )
    };
    let now = status(&found);
    let counts = now.clusters.clone().unwrap();
    assert_eq!((counts.total, counts.ready, counts.failing.len()), (3, 1, 1));
    assert_eq!(
        (counts.failing[0].name.as_str(), counts.failing[0].reason.as_str()),
        ("c2", "TokenReportFailed")
    );
    let present = condition::find(&now.conditions, "AllServiceAccountPresent").unwrap();
    assert_eq!(
        (present.status.as_str(), present.message.as_str()),
        ("False", "on 1 of 3 clusters; 1 fail; no report yet from c3")
    );
    assert_eq!(present.observed_generation, Some(2));
    let good = namesakes(["c1", "c2", "c3"].map(|c| child(c, &reported("True", "TokenReported"))));
    assert!(condition::is_true(
        &status(&good).conditions,
        "AllServiceAccountPresent"
    ));
    // The number of names is bounded.
    let many: Vec<String> = (10..25).map(|number| format!("c{number}")).collect();
    let place_of_many = Place::Sets(many.iter().cloned().collect());
    let none = BTreeMap::new();
    let family = children::family(&parent, &place_of_many, &none);
    let said = children::family_status(&parent, &place_of_many, &family, &none, at(1)).conditions;
    assert!(said[0].message.ends_with("c19 and 5 more"), "{}", said[0].message);
    // One whose account cannot be written is named too, whatever it reported before.
    let mut family = children::family(&parent, &place, &good);
    family.unwritten.insert("c3".into(), "forbidden".into());
    let failing = children::family_status(&parent, &place, &family, &good, at(1))
        .clusters
        .unwrap()
        .failing;
    assert_eq!(
        (failing[0].name.as_str(), failing[0].message.as_str()),
        ("c3", "forbidden")
    );
    let nowhere = children::family_status(&parent, &Place::Nowhere, &Family::default(), &found, at(1));
    assert_eq!(nowhere.clusters, None);
    assert_eq!(nowhere.conditions[0].reason, "NamespaceNotBound");
    // The namespace becomes a cluster's: nothing is left of that, and what the agent says stays.
    let mut was = account("team", "p", &reported("True", "TokenReported"));
    assert_eq!(children::childless_status(&was), None);
    let said = was.status.clone().unwrap().conditions;
    let status = was.status.get_or_insert_default();
    status.clusters = now.clusters;
    status.conditions.extend(now.conditions);
    let left = children::childless_status(&was).unwrap();
    assert_eq!((left.clusters, left.conditions), (None, said));
}

#[test]
fn parent_status_names_ignored_fields() {
    let ignored = |change: &Value| {
        let parent = account("team", "p", change);
        let place = sets(&["c1"]);
        let none = BTreeMap::new();
        let family = children::family(&parent, &place, &none);
        let said = children::family_status(&parent, &place, &family, &none, at(1)).conditions;
        condition::find(&said, "FieldsIgnored").map(|said| said.message.clone())
    };
    assert_eq!(ignored(&json!({})), None);
    let off = ignored(&json!({ "spec": { "rotation": { "enabled": false } } })).unwrap();
    assert!(off.contains("spec.rotation.enabled"), "{off}");
    let adopt = json!({ "metadata": { "annotations": { "authentication.writ.dev/adopt": "true" } } });
    let adopt = ignored(&adopt).unwrap();
    assert!(adopt.contains("authentication.writ.dev/adopt"), "{adopt}");
}

#[test]
fn older_group_owns_its_account_and_shows_its_status() {
    let from: proxy::ManagedServiceAccount = serde_json::from_value(json!({
        "apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "ManagedServiceAccount",
        "metadata": { "name": "robot", "namespace": "c1", "uid": "old", "generation": 7 },
        "spec": { "audiences": ["foo"], "rotation": { "enabled": false, "validity": "1h" } },
    }))
    .unwrap();
    let mut owned = older_group::owned(&from);
    assert!(older_group::owns(&from, &owned));
    assert_eq!(
        owned.annotations()["authentication.writ.dev/rotation"],
        "disabled"
    );
    assert_eq!(
        (
            owned.spec.rotation.validity.as_str(),
            owned.spec.audiences.as_ref().unwrap().len()
        ),
        ("1h", 1)
    );
    owned.metadata.generation = Some(3);
    owned.status = Some(ManagedServiceAccountStatus {
        secret_digest: Some("d".into()),
        ..serde_json::from_value(reported("True", "TokenReported")["status"].clone()).unwrap()
    });
    if let Some(status) = &mut owned.status {
        status.conditions[0].observed_generation = Some(3);
    }
    let shown = older_group::owner_status(&from, Some(&owned), None, at(1));
    assert_eq!(shown.conditions[0].observed_generation, Some(7));
    assert_eq!(shown.secret_digest, None);
    let foreign = account("c1", "x", &json!({}));
    let conflict = older_group::owner_status(&from, Some(&foreign), None, at(1));
    assert!(condition::is_true(&conflict.conditions, "Conflict"));
}

#[test]
fn secret_that_differs_from_the_report_needs_a_repair() {
    let reported = account("c1", "u", &json!({ "status": { "secretDigest": "d" } }));
    let seen = |digest: &str| SeenSecret {
        digest: digest.into(),
        version: "5".into(),
        uid: String::new(),
        orphaned: false,
    };
    assert_eq!(accounts::repair_reason(&reported, Some(&seen("d")), None), None);
    assert_eq!(
        accounts::repair_reason(&reported, Some(&seen("e")), None).as_deref(),
        Some("changed-5")
    );
    assert_eq!(
        accounts::repair_reason(&reported, None, None).as_deref(),
        Some("missing")
    );
    // Deleted, restored and deleted again between two reconciles: the agent is asked again.
    let missing = |went| accounts::repair_reason(&reported, None, Some(went));
    assert_ne!(missing("7"), missing("9"));
    let new = account("c1", "u", &json!({}));
    assert_eq!(
        accounts::repair_reason(&new, None, None),
        None,
        "nothing was reported yet"
    );
}

#[test]
fn role_names_every_secret_and_never_grants_all() {
    let owner = OwnerReference::default();
    let role = |names: &[&str], create: bool| {
        let secrets = names.iter().map(|name| ((*name).to_owned(), uid(name)));
        let granted = Granted {
            secrets: secrets.collect(),
            create,
            server: None,
        };
        rights::role("c1", &owner, &granted)
    };
    // The address comes with its CA.
    let external = Granted {
        server: Some(
            serde_json::from_value(json!({ "url": "https://c1.example", "caBundle": "RVhU" })).unwrap(),
        ),
        ..Granted::default()
    };
    let said = rights::role("c1", &owner, &external);
    assert_eq!(
        said.annotations()["authentication.writ.dev/api-server-url"],
        "https://c1.example"
    );
    assert_eq!(
        said.annotations()["authentication.writ.dev/api-server-ca"],
        "RVhU"
    );
    assert_eq!(
        role(&[], true).annotations()["authentication.writ.dev/api-server-ca"],
        ""
    );
    let rules = |names: &[&str]| role(names, true).rules.unwrap();
    let reads = |rules: &[k8s_openapi::api::rbac::v1::PolicyRule]| -> Vec<Option<Vec<String>>> {
        rules
            .iter()
            .filter(|rule| rule.resources.as_deref() == Some(&["secrets".to_owned()]))
            .filter(|rule| rule.verbs.iter().any(|verb| verb != "create"))
            .map(|rule| rule.resource_names.clone())
            .collect()
    };
    let creates = |role: Role| role.rules.iter().flatten().any(|rule| rule.verbs == ["create"]);
    assert!(creates(role(&["a"], true)) && !creates(role(&["a"], false)));
    // The Role records cleared accounts by uid: a recreated account has to be cleared again.
    let known = role(&["a", "b"], true);
    assert!(rights::is_cleared(Some(&known), &uid("b")));
    assert!(!rights::is_cleared(Some(&known), &uid("c")) && !rights::is_cleared(None, &uid("b")));
    assert!(!rights::is_cleared(Some(&role(&[], true)), ""));
    assert!(reads(&rules(&[])).is_empty(), "no account, no Secret");
    assert_eq!(
        reads(&rules(&["b", "a"])),
        [Some(vec!["a".to_owned(), "b".to_owned()])]
    );
    let (csr, token) = (RegistrationDriver::Csr, RegistrationDriver::Token);
    let known = Some("system:open-cluster-management:c1:abc");
    for (driver, agent, given, expected) in [
        (csr, None, false, ["Group", "User"].as_slice()),
        (csr, known, false, &["User", "User"]),
        (token, known, false, &["ServiceAccount"]),
        (token, None, true, &["ServiceAccount", "ServiceAccount"]),
    ] {
        let binding = rights::role_binding("c1", &owner, driver, agent, given);
        let subjects = binding.subjects.unwrap();
        assert!(
            subjects
                .iter()
                .all(|subject| subject.name.contains(":c1") || subject.namespace.as_deref() == Some("c1")),
            "of this one cluster only: {subjects:?}"
        );
        let kinds: Vec<_> = subjects.iter().map(|subject| subject.kind.as_str()).collect();
        assert_eq!(kinds, expected, "and only the identities that this driver gives");
    }
}

/// As a server makes them: long, and different from the start.
fn uid(name: &str) -> String {
    format!("{name:0>8}-1111-4111-8111-111111111111")
}

#[test]
fn edited_policy_is_restored_exactly() {
    let (policy, binding) = policy::policy().unwrap();
    let edited = |change: Value| -> ValidatingAdmissionPolicy {
        let mut object = serde_json::to_value(&policy).unwrap();
        json_patch::merge(&mut object, &change);
        serde_json::from_value(object).unwrap()
    };
    let exact = ["/spec"];
    let labelled = edited(json!({ "metadata": { "labels": { "theirs": "x" }, "resourceVersion": "7" } }));
    assert_eq!(write::patch(&labelled, &policy, &exact).unwrap(), None);
    let except = json!([{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
        "resources": ["secrets"] }]);
    for (change, cure) in [
        (
            json!({ "matchConstraints": { "excludeResourceRules": except } }),
            json!({ "matchConstraints": { "excludeResourceRules": null } }),
        ),
        (
            json!({ "matchConstraints": { "namespaceSelector": { "matchLabels": { "a": "b" } } } }),
            json!({ "matchConstraints": { "namespaceSelector": { "matchLabels": null } } }),
        ),
        (
            json!({ "failurePolicy": "Ignore" }),
            json!({ "failurePolicy": "Fail" }),
        ),
    ] {
        let have = edited(json!({ "spec": change }));
        let patch = write::patch(&have, &policy, &exact).unwrap();
        assert_eq!(patch, Some(json!({ "spec": cure })));
    }
    let mut narrowed = binding.clone();
    narrowed.spec.match_resources = Some(MatchResources::default());
    let patch = write::patch(&narrowed, &binding, &exact).unwrap();
    assert_eq!(patch, Some(json!({ "spec": { "matchResources": null } })));
}

#[test]
fn secret_without_owner_is_an_orphan() {
    let secret = |metadata: Value| serde_json::from_value(json!({ "metadata": metadata })).unwrap();
    let request = json!({ "authentication.writ.dev/token-request": "x" });
    let owner = json!([{ "apiVersion": "v1", "kind": "x", "name": "x", "uid": "x" }]);
    for (metadata, left) in [
        (json!({ "annotations": request }), true),
        (json!({ "annotations": request, "ownerReferences": owner }), false),
        (json!({}), false),
    ] {
        assert_eq!(
            SeenSecret::of(&secret(metadata.clone())).orphaned,
            left,
            "{metadata}"
        );
    }
}

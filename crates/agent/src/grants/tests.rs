//! Tables against the plan.

mod roles;
mod sharing;
mod watches;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{api::rbac::v1::Role, jiff::Timestamp};
use serde_json::{Value, json};
use writ_api::writ::NamespaceGrant;

use super::{
    model::{Active, Live, Objects, Outcome, Step},
    object::{Kind, Object},
    ownership::{self, classify},
    plan, status,
};

fn grant(name: &str, spec: &Value) -> Active {
    let object = json!({
        "apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "spec": spec,
        "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 2, "creationTimestamp": "2026-01-01T00:00:00Z"},
    });
    Active::new(serde_json::from_value::<NamespaceGrant>(object).unwrap())
}

fn role_grant(name: &str, verb: &str) -> Active {
    grant(
        name,
        &json!({"namespaceSelector": {"matchLabels": {"team": "a"}}, "name": "p", "rules": [{"verbs": [verb]}]}),
    )
}

fn binding_grant(role: &str) -> Active {
    grant(
        "b",
        &json!({"namespaceSelector": {}, "name": "p", "roleRef": {"kind": "Role", "name": role},
            "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]}),
    )
}

fn team(value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([("team".into(), value.into())])
}

fn key(object: &Object) -> (Kind, String) {
    let kind = match object {
        Object::Role(_) => Kind::Role,
        Object::RoleBinding(_) => Kind::RoleBinding,
    };
    (kind, object.meta().name.clone().unwrap())
}

/// The Role `p` that a test changes.
fn role(live: &mut Objects) -> &mut Role {
    match live.get_mut(&(Kind::Role, "p".into())) {
        Some(
            Live::Granted(Object::Role(role))
            | Live::Delivered {
                object: Object::Role(role),
                ..
            },
        ) => role,
        other => panic!("{other:?}"),
    }
}

/// Plans namespace `n`, carries the plan out, and tells the steps in words.
fn act(labels: Option<&BTreeMap<String, String>>, grants: &[&Active], live: &mut Objects) -> Vec<String> {
    let plan = plan::namespace("n", labels, grants, live);
    let mut words = Vec::new();
    for (step, _) in plan.steps {
        let (verb, object) = match step {
            Step::Delete(object) => {
                let key = key(&object);
                words.push(format!("delete {} {}", key.0, key.1));
                live.remove(&key);
                continue;
            }
            Step::Create(object) => ("create", object),
            Step::Change(object) => ("change", object),
            Step::Replace { to, .. } => ("replace", Object::RoleBinding(to)),
            Step::Release(object) => ("release", object),
            Step::Empty(object) => ("empty", object),
        };
        let key = key(&object);
        words.push(format!("{verb} {} {}", key.0, key.1));
        let mut object = object;
        match (verb, live.get(&key)) {
            ("change", Some(Live::Delivered { object: have, .. })) => {
                let ours = object.meta_mut().owner_references.take();
                let theirs = have.meta().owner_references.iter().flatten();
                let theirs = theirs.filter(|o| o.kind == "AppliedManifestWork").cloned();
                object.meta_mut().owner_references = Some(theirs.chain(ours.into_iter().flatten()).collect());
            }
            ("release", _) => {
                object.meta_mut().labels = None;
                let owners = object.meta_mut().owner_references.as_mut().unwrap();
                owners.retain(|owner| owner.kind == "AppliedManifestWork");
            }
            _ => {}
        }
        live.insert(key, classify(object, false));
    }
    words
}

#[test]
fn object_follows_the_label_of_its_namespace() {
    let (grant, mut live) = (role_grant("g", "get"), Objects::new());
    let nothing: [&str; 0] = [];
    assert_eq!(act(Some(&team("b")), &[&grant], &mut live), nothing);
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), ["create Role p"]);
    assert_eq!(
        act(Some(&team("a")), &[&grant], &mut live),
        nothing,
        "nothing to do twice"
    );
    assert_eq!(act(Some(&team("b")), &[&grant], &mut live), ["delete Role p"]);
    assert_eq!(
        act(None, &[&grant], &mut live),
        nothing,
        "a namespace that goes takes everything along"
    );
}

#[test]
fn empty_selector_selects_all_and_invalid_one_nothing() {
    let all = binding_grant("r");
    assert!(all.selects(&BTreeMap::new()) && all.selects(&team("x")));
    for broken in [
        json!({"matchExpressions": [{"key": "a", "operator": "Like", "values": ["b"]}]}),
        json!({"matchExpressions": [{"key": "a", "operator": "NotIn"}]}),
    ] {
        let grant = grant(
            "g",
            &json!({"namespaceSelector": broken, "name": "p", "rules": []}),
        );
        assert!(!grant.selects(&BTreeMap::new()));
        let status =
            status::status(&grant, &BTreeSet::new(), &BTreeMap::new(), Timestamp::UNIX_EPOCH).unwrap();
        assert_eq!(status.conditions[0].reason, "Invalid");
    }
}

#[test]
fn drifted_object_is_repaired() {
    let (grant, mut live) = (role_grant("g", "get"), Objects::new());
    act(Some(&team("a")), &[&grant], &mut live);
    role(&mut live).rules = Some(Vec::new());
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), ["change Role p"]);
    role(&mut live).metadata.labels = None;
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), ["change Role p"]);
    live.clear();
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), ["create Role p"]);
}

#[test]
fn binding_with_changed_role_is_recreated() {
    let mut live = Objects::new();
    assert_eq!(
        act(Some(&team("a")), &[&binding_grant("one")], &mut live),
        ["create RoleBinding p"]
    );
    assert_eq!(
        act(Some(&team("a")), &[&binding_grant("two")], &mut live),
        ["replace RoleBinding p"]
    );
    let Some(Live::Granted(Object::RoleBinding(binding))) = live.get(&(Kind::RoleBinding, "p".into())) else {
        panic!()
    };
    let subjects = json!(binding.subjects);
    assert_eq!(
        subjects[0]["apiGroup"], "rbac.authorization.k8s.io",
        "as the API server would default it"
    );
    assert_eq!(subjects[1].get("apiGroup"), None);
}

#[test]
fn grant_that_takes_over_shares_the_object_meanwhile() {
    let (old, new, mut live) = (role_grant("old", "get"), role_grant("new", "get"), Objects::new());
    act(Some(&team("a")), &[&old], &mut live);
    // While both are in force the object has both owners; it stays when the old grant is deleted.
    assert_eq!(act(Some(&team("a")), &[&new, &old], &mut live), ["change Role p"]);
    assert_eq!(act(Some(&team("a")), &[&new], &mut live), ["change Role p"]);
    assert_eq!(
        role(&mut live).metadata.owner_references.as_ref().unwrap().len(),
        1
    );
    assert_eq!(act(Some(&team("a")), &[], &mut live), ["delete Role p"]);
}

#[test]
fn conflicting_grant_reports_the_older_one() {
    let (one, two) = (role_grant("one", "get"), role_grant("two", "list"));
    let plan = plan::namespace("n", Some(&team("a")), &[&two, &one], &Objects::new());
    assert_eq!(plan.outcomes["one"], None);
    let why = plan.outcomes["two"].as_deref().unwrap();
    assert!(
        why.starts_with("NamespaceGrant one makes the Role p here with another content"),
        "{why}"
    );
}

#[test]
fn foreign_object_is_left_alone_unless_adopted() {
    let foreign = || {
        Objects::from([
            ((Kind::Role, "p".to_owned()), Live::Foreign),
            ((Kind::Role, "other".to_owned()), Live::Foreign),
        ])
    };
    let grant = role_grant("g", "get");
    let plan = plan::namespace("n", Some(&team("a")), &[&grant], &foreign());
    assert!(plan.steps.is_empty());
    assert!(
        plan.outcomes["g"]
            .as_deref()
            .unwrap()
            .contains("the Role p exists and no NamespaceGrant made it")
    );
    let mut adopting = role_grant("g", "get");
    adopting.grant.spec.adopt = Some(true);
    assert_eq!(
        act(Some(&team("a")), &[&adopting], &mut foreign()),
        ["change Role p"]
    );
}

#[test]
fn status_waits_for_every_namespace_and_names_failing_ones_first() {
    let grant = role_grant("g", "get");
    let selected: BTreeSet<String> = (0..1500).map(|i| format!("n{i:04}")).collect();
    let outcome = |failure: Option<&str>| Outcome {
        roleless: false,
        generation: Some(2),
        failure: failure.map(ToOwned::to_owned),
    };
    let mut outcomes: BTreeMap<String, Outcome> =
        selected.iter().map(|n| (n.clone(), outcome(None))).collect();
    outcomes.insert("n1499".into(), outcome(Some("taken")));
    let now = Timestamp::UNIX_EPOCH;
    let status = status::status(&grant, &selected, &outcomes, now).unwrap();
    assert_eq!(
        (status.selected, status.ready, status.failed, status.omitted),
        (Some(1500), Some(1499), Some(1), Some(500))
    );
    assert_eq!(
        (status.namespaces.len(), status.namespaces[0].name.as_str()),
        (1000, "n1499")
    );
    assert_eq!(status.summary.as_deref(), Some("n1499: taken"));
    outcomes.insert(
        "n0003".into(),
        Outcome {
            roleless: false,
            generation: Some(1),
            failure: None,
        },
    );
    assert!(
        status::status(&grant, &selected, &outcomes, now).is_none(),
        "an old outcome is no answer"
    );
    for failing in outcomes.values_mut() {
        *failing = outcome(Some(&"x".repeat(100)));
    }
    let summary = status::status(&grant, &selected, &outcomes, now)
        .unwrap()
        .summary
        .unwrap();
    assert!(
        summary.len() <= 900 && summary.ends_with("1500 of 1500 namespaces fail"),
        "{summary}"
    );
}

#[test]
fn object_kept_by_a_finalizer_is_emptied_and_reported() {
    let grant = role_grant("g", "get");
    let mut live = Objects::new();
    act(Some(&team("a")), &[&grant], &mut live);
    let meta = &mut role(&mut live).metadata;
    meta.uid = Some("1".into());
    meta.deletion_timestamp = Some(serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap());
    meta.finalizers = Some(vec!["example.com/keep".into()]);
    let other = team("b");
    let look = |grants: &[&Active], live: &Objects| plan::namespace("n", Some(&other), grants, live);
    let plan = look(&[&grant], &live);
    let why = plan.outcomes["g"].as_deref().unwrap();
    assert!(
        why.contains("Role p") && why.contains("example.com/keep"),
        "{why}"
    );
    assert!(plan.orphans.is_empty(), "its grant says it");
    let [(Step::Empty(Object::Role(emptied)), makers)] = &plan.steps[..] else {
        panic!("{plan:?}")
    };
    assert_eq!(
        (emptied.rules.as_deref(), makers.as_slice()),
        (Some(&[][..]), &["g".to_owned()][..])
    );
    assert_eq!(
        emptied.metadata.uid.as_deref(),
        Some("1"),
        "this one and no other"
    );
    assert_eq!(
        emptied.metadata.owner_references.as_ref().unwrap().len(),
        1,
        "it stays the grant's"
    );
    // It is empty: nothing more to do, and still reported. Without its grant it is an orphan.
    role(&mut live).rules = Some(Vec::new());
    let plan = look(&[&grant], &live);
    assert!(
        plan.steps.is_empty() && plan.outcomes.contains_key("g"),
        "{plan:?}"
    );
    let plan = look(&[], &live);
    assert_eq!(plan.orphans.len(), 1);
    let grant = role_grant("p-abcde-0a1b2c3d", "get");
    let mut live = Objects::new();
    act(Some(&team("a")), &[&grant], &mut live);
    let made = Object::Role(Box::new(role(&mut live).clone()));
    assert_eq!(ownership::granting_work(&made).as_deref(), Some("p-abcde"));
    // Wanted again: it gets its content back.
    let mut live = Objects::new();
    act(Some(&team("a")), &[&grant], &mut live);
    role(&mut live).rules = Some(Vec::new());
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), ["change Role p"]);
}

#[test]
fn failed_deletion_is_reported_by_the_grant_that_made_the_object() {
    let grant = role_grant("g", "get");
    let mut live = Objects::new();
    act(Some(&team("a")), &[&grant], &mut live);
    let plan = plan::namespace("n", Some(&team("b")), &[&grant], &live);
    assert!(
        matches!(&plan.steps[..], [(Step::Delete(_), makers)] if makers == &["g"]),
        "{plan:?}"
    );
    let outcome = |generation| Outcome {
        generation: Some(generation),
        failure: Some("delete Role p: denied".into()),
        roleless: false,
    };
    let look = |generation| {
        let outcomes = BTreeMap::from([("n".to_owned(), outcome(generation))]);
        status::status(&grant, &BTreeSet::new(), &outcomes, Timestamp::UNIX_EPOCH)
    };
    assert!(
        look(1).is_none(),
        "the namespace is not reconciled for this generation"
    );
    let status = look(2).unwrap();
    assert_eq!(
        (status.selected, status.ready, status.failed),
        (Some(0), Some(0), Some(1))
    );
    assert_eq!(status.conditions[0].reason, "NamespacesFailing");
    let summary = status.summary.unwrap();
    assert!(
        summary.starts_with("n: it is not selected any more, but delete Role p"),
        "{summary}"
    );
}

#[test]
fn built_in_name_is_never_created() {
    let spec = json!({"namespaceSelector": {}, "name": "system:controller:token-cleaner", "adopt": true,
        "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "User", "name": "u"}]});
    let grant = grant("g", &spec);
    let live = Objects::from([((Kind::RoleBinding, grant.grant.spec.name.clone()), Live::Foreign)]);
    let plan = plan::namespace("kube-system", Some(&team("a")), &[&grant], &live);
    assert!(plan.steps.is_empty(), "{plan:?}");
    let status = status::status(&grant, &BTreeSet::new(), &BTreeMap::new(), Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(status.conditions[0].reason, "Invalid");
    assert!(status.summary.unwrap().contains("starts with system:"));
}

#[test]
fn grant_with_validate_reports_missing_roles() {
    let mut grant = binding_grant("reader");
    let missing = |grant: &Active, live: &Objects| {
        let plan = plan::namespace("n", Some(&BTreeMap::new()), &[grant], live);
        plan.roleless.contains("b")
    };
    let mut live = Objects::new();
    assert!(!missing(&grant, &live), "it did not ask");
    grant.grant.spec.validate = Some(true);
    assert!(missing(&grant, &live));
    live.insert((Kind::Role, "reader".into()), Live::Foreign);
    assert!(!missing(&grant, &live));

    let outcome = |roleless| Outcome {
        generation: Some(2),
        failure: None,
        roleless,
    };
    let selected: BTreeSet<String> = ["m".into(), "n".into()].into();
    let missing = |roleless| {
        let outcomes = BTreeMap::from([("m".into(), outcome(false)), ("n".into(), outcome(roleless))]);
        status::status(&grant, &selected, &outcomes, Timestamp::UNIX_EPOCH)
            .unwrap()
            .roles_missing
    };
    assert_eq!(missing(true).as_deref(), Some("n/reader"));
    assert_eq!(missing(false).as_deref(), Some(""), "it heals");
}

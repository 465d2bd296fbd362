//! Roles that a permission defines, and what binds them.

use kube::ResourceExt as _;

use super::*;

fn rules() -> Value {
    json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}])
}

/// A grant of `permission` that makes the Role `p`.
fn defines(permission: &str) -> Active {
    grant(
        &format!("{permission}-00000001"),
        &json!({"namespaceSelector": {}, "name": "p", "rules": rules()}),
    )
}

/// A grant of `permission` that makes a RoleBinding of the same name to the Role `p`.
fn binds(permission: &str) -> Active {
    grant(
        &format!("{permission}-00000002"),
        &json!({"namespaceSelector": {}, "name": permission, "roleRef": {"kind": "Role", "name": "p"},
            "subjects": [{"kind": "User", "name": "u"}]}),
    )
}

#[test]
fn foreign_role_is_not_bound_for_a_permission_that_defines_it() {
    let (role, binding, other) = (defines("mine-abcde"), binds("mine-abcde"), binds("other-abcde"));
    let all = [&role, &binding, &other];
    let stranger = (Kind::Role, "p".to_owned());
    let mut live = Objects::from([(stranger.clone(), Live::Foreign)]);

    let plan = plan::namespace("n", Some(&team("a")), &all, &live);
    let why = plan.outcomes["mine-abcde-00000002"].as_deref().unwrap();
    assert!(why.starts_with("held back: the Role p"), "{why}");
    assert!(plan.outcomes["mine-abcde-00000001"].is_some());
    // A permission that defines no such Role means the existing one.
    assert_eq!(
        act(Some(&team("a")), &all, &mut live),
        ["create RoleBinding other-abcde"]
    );

    live.remove(&stranger);
    assert_eq!(
        act(Some(&team("a")), &all, &mut live),
        ["create Role p", "create RoleBinding mine-abcde"]
    );
    // A foreign one takes its place: the binding to it is deleted.
    live.insert(stranger, Live::Foreign);
    assert_eq!(
        act(Some(&team("a")), &all, &mut live),
        ["delete RoleBinding mine-abcde"]
    );
}

#[test]
fn role_that_a_work_of_the_permission_delivers_counts_as_defined() {
    let mut own = binds("mine-abcde");
    own.grant
        .annotations_mut()
        .insert("work.writ.dev/bound-role".into(), "own".into());
    let stranger = (Kind::Role, "p".to_owned());
    let mut live = Objects::from([(stranger.clone(), Live::Foreign)]);
    assert!(act(Some(&team("a")), &[&own], &mut live).is_empty());
    // One that is not there grants nothing, and comes with a work of the permission.
    live.remove(&stranger);
    assert_eq!(
        act(Some(&team("a")), &[&own], &mut live),
        ["create RoleBinding mine-abcde"]
    );
    live.insert(stranger, Live::Foreign);
    assert_eq!(
        act(Some(&team("a")), &[&own], &mut live),
        ["delete RoleBinding mine-abcde"]
    );
}

#[test]
fn role_delivered_by_a_work_of_the_same_permission_is_bound() {
    let delivered = |work: &str| {
        let role = json!({"metadata": {"name": "p", "uid": "1", "ownerReferences": [{
            "apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
            "name": format!("0a1b2c-{work}"), "uid": "2"}]}, "rules": []});
        let role = Object::Role(Box::new(serde_json::from_value(role).unwrap()));
        Objects::from([((Kind::Role, "p".to_owned()), classify(role, false))])
    };
    let (role, binding) = (defines("mine-abcde"), binds("mine-abcde"));
    for (work, bound) in [
        ("mine-abcde", true),
        ("mine-abcde-2", true),
        ("mine-abcdef", false),
        ("other-abcde", false),
    ] {
        let made = act(Some(&team("a")), &[&role, &binding], &mut delivered(work));
        assert_eq!(!made.is_empty(), bound, "{work}: {made:?}");
    }
}

#[test]
fn empty_list_equals_a_missing_one() {
    let spelt = json!([{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": []}]);
    let spelt = grant(
        "b",
        &json!({"namespaceSelector": {}, "name": "p", "rules": spelt}),
    );
    let plan = plan::namespace("n", Some(&team("a")), &[&defines("a"), &spelt], &Objects::new());
    assert!(plan.outcomes.values().all(Option::is_none), "{:?}", plan.outcomes);
}

#[test]
fn grant_owns_what_it_makes_and_is_blocked_by_it() {
    let made = plan::namespace("n", Some(&team("a")), &[&defines("g")], &Objects::new());
    let [(Step::Create(Object::Role(role)), _)] = &made.steps[..] else {
        panic!("{:?}", made.steps)
    };
    let owner = &role.metadata.owner_references.as_ref().unwrap()[0];
    assert_eq!(owner.block_owner_deletion, Some(true));
}

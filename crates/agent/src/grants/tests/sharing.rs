//! Which grant or work an object belongs to, and what they share.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use writ_controller::Name;

use super::{super::observe::OwnObjects, *};

/// A Role of that uid with these owners.
fn owned(uid: &str, owners: &[&str]) -> Object {
    let reference = |kind: &&str| {
        let (group, name) = match *kind {
            "NamespaceGrant" => ("writ.dev/v1alpha1", "g"),
            _ => ("work.open-cluster-management.io/v1", "0a1b2c-p-abcde"),
        };
        json!({"apiVersion": group, "kind": kind, "name": name, "uid": format!("uid-{name}")})
    };
    let owners: Vec<Value> = owners.iter().map(reference).collect();
    let role = json!({"metadata": {"name": "p", "uid": uid, "ownerReferences": owners}, "rules": [{"verbs": ["get"]}]});
    Object::Role(Box::new(serde_json::from_value(role).unwrap()))
}

/// What the watch shows next of the Role `p`, with what is remembered of it.
fn see(own: &OwnObjects, object: Object) -> Live {
    let name = Name::new("n", "p");
    own.record(Kind::Role, &name, Some(object.meta()));
    let known = own.contains(Kind::Role, &name, object.meta().uid.as_deref());
    classify(object, known)
}

#[test]
fn object_is_classified_by_owner_writer_and_memory() {
    let word = |live: &Live| match live {
        Live::Foreign => "foreign",
        Live::Granted(_) => "granted",
        Live::Delivered { ours: false, .. } => "delivered",
        Live::Delivered { ours: true, .. } => "says that it is delivered",
    };
    let fields = |manager: &str| -> ObjectMeta {
        let entry = |manager: &str| json!({"manager": manager, "operation": "Apply"});
        serde_json::from_value(json!({"managedFields": [entry("kubectl"), entry(manager)]})).unwrap()
    };
    let granted = Live::Granted(owned("1", &["NamespaceGrant"]));
    for (what, object, written, before, wanted) in [
        ("a stranger", owned("1", &[]), false, None, "foreign"),
        (
            "the owner tells",
            owned("1", &["NamespaceGrant"]),
            false,
            None,
            "granted",
        ),
        (
            "the server tells who wrote it",
            owned("1", &[]),
            true,
            None,
            "granted",
        ),
        (
            "it was a grant's a moment ago",
            owned("1", &[]),
            false,
            Some(&granted),
            "granted",
        ),
        (
            "another of the same name",
            owned("2", &[]),
            false,
            Some(&granted),
            "foreign",
        ),
        (
            "a work's",
            owned("1", &["AppliedManifestWork"]),
            true,
            Some(&granted),
            "says that it is delivered",
        ),
        (
            "of both",
            owned("1", &["NamespaceGrant", "AppliedManifestWork"]),
            false,
            None,
            "says that it is delivered",
        ),
    ] {
        let mut object = object;
        if written {
            object.meta_mut().managed_fields = fields("writ-agent-grants").managed_fields;
        }
        let own = OwnObjects::default();
        if let Some(Live::Granted(before)) = before {
            see(&own, before.clone());
        }
        let live = see(&own, object);
        assert_eq!(word(&live), wanted, "{what}");
    }
    for (manager, ours) in [
        ("writ-agent-grants", true),
        ("writ-agent", false),
        ("work-agent-1", false),
    ] {
        let meta = fields(manager);
        assert_eq!(
            ownership::is_written(meta.managed_fields.as_deref()),
            ours,
            "{manager}"
        );
    }
    assert!(!ownership::is_written(None));
}

#[test]
fn delivery_of_a_grants_object_is_confirmed_by_the_record_of_the_work_only() {
    let own = OwnObjects::default();
    see(&own, owned("1", &["NamespaceGrant"]));
    // It stays doubtful, however often it is changed.
    for _ in 0..3 {
        let live = see(&own, owned("1", &["AppliedManifestWork"]));
        assert!(matches!(live, Live::Delivered { ours: true, .. }), "{live:?}");
    }
    let mut role = owned("1", &["AppliedManifestWork"]);
    role.meta_mut().namespace = Some("n".into());
    let record = |name: &str, uid: &str| {
        let one = json!({"group": "rbac.authorization.k8s.io", "version": "v1", "resource": "roles", "namespace": "n", "name": name, "uid": uid});
        serde_json::from_value(json!({"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
            "metadata": {"name": "0a1b2c-p-abcde"}, "spec": {"hubHash": "0a1b2c", "manifestWorkName": "p-abcde"},
            "status": {"appliedResources": [one]}}))
        .unwrap()
    };
    assert!(ownership::confirms(&record("p", "1"), &role));
    assert!(!ownership::confirms(&record("q", "1"), &role));
    assert!(
        !ownership::confirms(&record("p", "2"), &role),
        "another of the same name"
    );
}

#[test]
fn stripped_object_stays_the_grants() {
    let grant = role_grant("g", "get");
    let mut live = Objects::new();
    act(Some(&team("a")), &[&grant], &mut live);
    let own = OwnObjects::default();
    let strip = |live: &mut Objects| {
        let key = (Kind::Role, "p".to_owned());
        let before = live.remove(&key).unwrap();
        let Live::Granted(mut object) = before else {
            panic!()
        };
        see(&own, object.clone());
        object.meta_mut().owner_references = None;
        object.meta_mut().labels = None;
        live.insert(key, see(&own, object));
    };
    strip(&mut live);
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), ["change Role p"]);
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), Vec::<String>::new());
    strip(&mut live);
    assert_eq!(act(Some(&team("b")), &[&grant], &mut live), ["delete Role p"]);
}

#[test]
fn delivered_object_is_shared_and_stays_when_either_lets_go() {
    let grant = role_grant("g", "get");
    let delivered = classify(owned("1", &["AppliedManifestWork"]), false);
    let mut live = Objects::from([((Kind::Role, "p".to_owned()), delivered)]);
    let nothing: [&str; 0] = [];
    assert_eq!(
        act(Some(&team("b")), &[&grant], &mut live),
        nothing,
        "not selected: the work's alone"
    );
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), ["change Role p"]);
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), nothing);
    assert_eq!(act(Some(&team("b")), &[&grant], &mut live), ["release Role p"]);
    assert_eq!(
        role(&mut live).metadata.owner_references.as_ref().unwrap().len(),
        1
    );
    assert_eq!(act(Some(&team("b")), &[&grant], &mut live), nothing);
    // The work leaves it: it is the grant's alone.
    act(Some(&team("a")), &[&grant], &mut live);
    let owners = role(&mut live).metadata.owner_references.as_mut().unwrap();
    owners.retain(|owner| owner.kind == "NamespaceGrant");
    let object = Object::Role(Box::new(role(&mut live).clone()));
    live.insert((Kind::Role, "p".into()), classify(object, true));
    assert_eq!(act(Some(&team("a")), &[&grant], &mut live), nothing);
    assert_eq!(act(Some(&team("b")), &[&grant], &mut live), ["delete Role p"]);
}

#[test]
fn delivered_object_with_other_content_is_the_works_even_with_adopt() {
    let mut grant = role_grant("g", "list");
    for (adopt, owners, steps) in [
        (false, &["AppliedManifestWork"][..], &[][..]),
        (true, &["AppliedManifestWork"], &[]),
        (
            true,
            &["AppliedManifestWork", "NamespaceGrant"],
            &["release Role p"],
        ),
    ] {
        grant.grant.spec.adopt = Some(adopt);
        let mut live = Objects::from([((Kind::Role, "p".to_owned()), classify(owned("1", owners), false))]);
        let plan = plan::namespace("n", Some(&team("a")), &[&grant], &live);
        let why = plan.outcomes["g"].as_deref().unwrap();
        assert!(
            why.starts_with("ManifestWork p-abcde delivers the Role p here with another content"),
            "{why}"
        );
        assert_eq!(act(Some(&team("a")), &[&grant], &mut live), steps);
        assert_eq!(act(Some(&team("a")), &[&grant], &mut live), Vec::<String>::new());
    }
}

use serde_json::json;

use crate::{
    model::{SyncId, SyncKind},
    reconciler::object::*,
};

fn declared(kind: &str, name: &str, depends_on: &str) -> Declared {
    let raw = Raw {
        path: "a.yaml".into(),
        value: json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": { "name": name, "uid": "x", "annotations": { "config.kubernetes.io/depends-on": depends_on }},
            "data": { "a": "1" }, "status": {},
        }),
    };
    let id = SyncId::new(SyncKind::Root, "config-management-system", "root-sync");
    let origin = Origin {
        id: &id,
        commit: "c1",
        context: "{}",
    };
    let key = raw.key("ns");
    Declared::new(raw, key, &origin)
}

#[test]
fn dependencies_come_first_and_circles_are_found() {
    let all = [
        declared("Pod", "late", "/namespaces/ns/Pod/middle"),
        declared("Pod", "middle", "/namespaces/ns/ConfigMap/early"),
        declared("ConfigMap", "early", ""),
        declared("Namespace", "first", ""),
        declared("Pod", "one", "/namespaces/ns/Pod/two"),
        declared("Pod", "two", "/namespaces/ns/Pod/one"),
    ];
    let objects: Vec<&Declared> = all.iter().collect();
    let (groups, circle) = waves(&objects);
    let at = |name: &str| {
        groups
            .iter()
            .position(|group| group.iter().any(|index| objects[*index].key.name == name))
    };
    assert!(at("first") < at("early") && at("early") < at("middle") && at("middle") < at("late"));
    let mut names: Vec<_> = circle
        .iter()
        .map(|index| objects[*index].key.name.as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["one", "two"]);
}

/// A tenant can declare sixty thousand objects that wait for each other; all others wait for whoever sorts them.
#[test]
fn long_chains_and_large_circles_are_sorted_in_one_go() {
    let many = 30_000;
    let chain: Vec<Declared> = (0..many)
        .map(|n| {
            declared(
                "ConfigMap",
                &format!("c{n}"),
                &format!("/namespaces/ns/ConfigMap/c{}", n + 1),
            )
        })
        .collect();
    let objects: Vec<&Declared> = chain.iter().collect();
    let (groups, circle) = waves(&objects);
    assert_eq!((groups.len(), circle.len()), (many, 0));
    assert_eq!(groups[0], [many - 1]);
    let last = declared("ConfigMap", &format!("c{many}"), "/namespaces/ns/ConfigMap/c0");
    let closed: Vec<&Declared> = chain.iter().chain([&last]).collect();
    let (groups, circle) = waves(&closed);
    assert_eq!((groups.len(), circle.len()), (0, many + 1));
}

#[test]
fn what_others_add_is_no_drift_and_what_they_change_is() {
    let object = declared("ConfigMap", "a", "");
    assert!(object.value.pointer("/metadata/uid").is_none() && object.value.get("status").is_none());
    let mut live = object.value.clone();
    live["metadata"]["labels"]["theirs"] = json!("x");
    live["data"]["more"] = json!("x");
    // A later commit that leaves the object alone writes nothing.
    live["metadata"]["annotations"]["configmanagement.gke.io/token"] = json!("c0");
    assert!(settled(&live, &object));
    // Objects in a list do not say what they are.
    live.as_object_mut().unwrap().remove("kind");
    live.as_object_mut().unwrap().remove("apiVersion");
    assert!(settled(&live, &object));
    live["data"]["a"] = json!("2");
    assert!(!settled(&live, &object));
    assert!(covers(
        &json!({"l": [{"a": 1, "b": 2}]}),
        &json!({"l": [{"a": 1}]})
    ));
    assert!(!covers(&json!({"l": [1, 2]}), &json!({"l": [1]})));
    assert!(covers(&json!({}), &json!({"a": {}, "b": null})));
}

#[test]
fn a_field_taken_out_of_the_source_changes_the_digest() {
    let (one, mut two) = (declared("ConfigMap", "a", ""), declared("ConfigMap", "a", ""));
    assert_eq!(one.hash, two.hash);
    let raw = Raw {
        path: "a.yaml".into(),
        value: json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": { "name": "a" }}),
    };
    let id = SyncId::new(SyncKind::Root, "config-management-system", "root-sync");
    let key = raw.key("ns");
    two = Declared::new(
        raw,
        key,
        &Origin {
            id: &id,
            commit: "c2",
            context: "{}",
        },
    );
    assert_ne!(one.hash, two.hash);
}

#[test]
fn a_root_sync_wins_over_a_repo_sync_and_over_nobody_else() {
    let root = SyncId::new(SyncKind::Root, "config-management-system", "a");
    let repo = SyncId::new(SyncKind::Repo, "team", "repo-sync");
    for (id, other, may) in [
        (&root, None, true),
        (&root, Some(":root_a"), true),
        (&root, Some(":root_b"), false),
        (&root, Some("team"), true),
        (&repo, Some("team"), true),
        (&repo, Some(":root"), false),
        (&repo, Some("team_other"), false),
    ] {
        assert_eq!(may_take(id, other), may, "{id} {other:?}");
    }
}

use serde_json::{Value, json};

use crate::{
    model::{SyncId, SyncKind},
    reconciler::object::*,
};

fn declared(commit: &str, value: Value) -> Declared {
    let raw = Raw {
        path: "a.yaml".into(),
        value,
    };
    let id = SyncId::new(SyncKind::Root, "config-management-system", "root-sync");
    let origin = Origin {
        id: &id,
        commit,
        context: "{}",
    };
    let object_id = raw.id("ns");
    Declared::new(raw, object_id, &origin)
}

fn config_map(data: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": { "name": "a", "uid": "x" }, "data": data, "status": {},
    })
}

#[test]
fn live_object_with_additions_of_others_is_as_declared() {
    let object = declared("c1", config_map(&json!({ "a": "1" })));
    assert!(object.value.pointer("/metadata/uid").is_none() && object.value.get("status").is_none());
    let mut live = object.value.clone();
    live["metadata"]["labels"]["theirs"] = json!("x");
    live["data"]["more"] = json!("x");
    // A later commit that does not change the object writes nothing.
    live["metadata"]["annotations"]["configmanagement.gke.io/token"] = json!("c0");
    assert!(is_as_declared(&live, &object));
    // Objects of a list lack kind and version.
    live.as_object_mut().unwrap().remove("kind");
    live.as_object_mut().unwrap().remove("apiVersion");
    assert!(is_as_declared(&live, &object));
    live["data"]["a"] = json!("2");
    assert!(!is_as_declared(&live, &object));
}

#[test]
fn covers_ignores_additions_and_empty_values_only() {
    for (have, want, expected) in [
        (json!({"l": [{"a": 1, "b": 2}]}), json!({"l": [{"a": 1}]}), true),
        (json!({"l": [1, 2]}), json!({"l": [1]}), false),
        (json!({}), json!({"a": {}, "b": null}), true),
        (json!({}), json!({"a": {"b": 1}}), false),
    ] {
        assert_eq!(covers(&have, &want), expected, "{have} {want}");
    }
}

#[test]
fn digest_changes_with_a_removed_field_and_not_with_the_commit() {
    let one = declared("c1", config_map(&json!({ "a": "1" })));
    assert_eq!(one.hash, declared("c2", config_map(&json!({ "a": "1" }))).hash);
    assert_ne!(one.hash, declared("c1", config_map(&json!({}))).hash);
}

#[test]
fn dependencies_are_parsed_with_and_without_namespace() {
    let mut value = config_map(&json!({}));
    value["metadata"]["annotations"] = json!({ "config.kubernetes.io/depends-on": "apps/namespaces/b/Deployment/web, /Namespace/b, nonsense" });
    let names: Vec<String> = declared("c1", value).depends_on.iter().map(full_name).collect();
    assert_eq!(names, ["Deployment.apps b/web", "Namespace b"]);
}

#[test]
fn object_of_a_repo_sync_may_be_taken_over_by_a_root_sync_only() {
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
        assert_eq!(may_take_over(id, other), may, "{id} {other:?}");
    }
}

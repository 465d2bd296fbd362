use proptest::prelude::*;
use serde_json::{Value, json};

use super::{PatchError, json_patch, merge_patch, strategic_merge};
use crate::builtin;

#[test]
fn patches_apply() {
    let document = json!({"a": {"b": [1, 2]}});
    let patch = br#"[{"op":"test","path":"/a/b/0","value":1},{"op":"add","path":"/a/b/-","value":3},{"op":"remove","path":"/a/b/0"}]"#;
    assert_eq!(json_patch(&document, patch).unwrap(), json!({"a": {"b": [2, 3]}}));
    assert_eq!(
        merge_patch(&document, br#"{"a":{"b":null,"c":{"d":null}}}"#).unwrap(),
        json!({"a": {"c": {}}})
    );
}

#[test]
fn bad_patches_are_told_apart() {
    let document = json!({"a": 1});
    assert!(matches!(
        json_patch(&document, b"{}"),
        Err(PatchError::Malformed(_))
    ));
    assert!(matches!(
        json_patch(&document, br#"[{"op":"remove","path":"/x"}]"#),
        Err(PatchError::Unprocessable(_))
    ));
    assert!(matches!(
        json_patch(&document, br#"[{"op":"test","path":"/a","value":2}]"#),
        Err(PatchError::Unprocessable(_))
    ));
    assert!(matches!(
        json_patch(&document, br#"[{"op":"frob","path":"/a"}]"#),
        Err(PatchError::Unprocessable(_))
    ));
    assert!(matches!(
        merge_patch(&document, b"["),
        Err(PatchError::Malformed(_))
    ));
    assert!(matches!(
        merge_patch(&document, b"[]"),
        Err(PatchError::Malformed(_))
    ));
}

proptest! {
    #[test]
    fn patching_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..60), path in "[/a-c0-2~-]{0,8}", op in "(add|remove|replace|move|copy|test)") {
        let document = json!({"a": {"b": [1, {"c": 2}]}});
        let _ = json_patch(&document, &bytes);
        let _ = merge_patch(&document, &bytes);
        let patch = json!([{"op": op, "path": path, "from": "/a/b", "value": {"x": 1}}]).to_string();
        let _ = json_patch(&document, patch.as_bytes());
    }
}

fn pod_patch(original: &Value, patch: &Value) -> Result<Value, PatchError> {
    strategic_merge(
        original,
        patch,
        &builtin::find("", "v1", "pods").unwrap().schema(),
    )
}

#[test]
fn strategic_lists_merge_by_key() {
    let containers = |c: Value| json!({"spec": {"containers": c}});
    let original = containers(
        json!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c", "image": "1"}]),
    );
    let table = [
        (
            json!([{"name": "b", "image": "2"}]),
            json!([{"name": "a", "image": "1"}, {"name": "b", "image": "2"}, {"name": "c", "image": "1"}]),
        ),
        (
            json!([{"name": "b", "$patch": "delete"}]),
            json!([{"name": "a", "image": "1"}, {"name": "c", "image": "1"}]),
        ),
        (
            json!([{"$patch": "replace"}, {"name": "z"}]),
            json!([{"name": "z"}]),
        ),
        (
            json!([{"name": "b", "image": null}]),
            json!([{"name": "a", "image": "1"}, {"name": "b"}, {"name": "c", "image": "1"}]),
        ),
    ];
    for (patch, expected) in table {
        assert_eq!(
            pod_patch(&original, &containers(patch)).unwrap(),
            containers(expected)
        );
    }
    let reorder =
        json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}, {"name": "b"}]}});
    assert_eq!(
        pod_patch(&original, &reorder).unwrap(),
        containers(
            json!([{"name": "c", "image": "1"}, {"name": "a", "image": "1"}, {"name": "b", "image": "1"}])
        )
    );
    assert!(matches!(
        pod_patch(&original, &containers(json!([{"image": "2"}]))),
        Err(PatchError::Internal(_))
    ));
    assert!(matches!(
        pod_patch(&original, &containers(json!([{"name": "a", "$patch": "frob"}]))),
        Err(PatchError::Internal(_))
    ));
}

#[test]
fn strategic_directives() {
    let original = json!({"metadata": {"finalizers": ["a/b", "c/d"], "labels": {"x": "1", "y": "2"}}, "spec": {"volumes": [{"name": "v", "emptyDir": {}}]}});
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"], "labels": {"$patch": "replace", "z": "3"}},
        "spec": {"volumes": [{"name": "v", "$retainKeys": ["name", "secret"], "secret": {"secretName": "s"}}]}});
    assert_eq!(
        pod_patch(&original, &patch).unwrap(),
        json!({"metadata": {"finalizers": ["c/d"], "labels": {"z": "3"}}, "spec": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}})
    );
    assert_eq!(
        pod_patch(&original, &json!({"metadata": {"finalizers": ["e/f"]}})).unwrap()["metadata"]["finalizers"],
        json!(["e/f", "a/b", "c/d"])
    );
    assert!(matches!(
        pod_patch(&original, &json!([])),
        Err(PatchError::Malformed(_))
    ));
}

fn any_patch() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        Just(json!("replace")),
        Just(json!("delete")),
        Just(json!("a")),
        (0..3i64).prop_map(Value::from)
    ];
    let key = prop_oneof![
        Just("spec"),
        Just("containers"),
        Just("name"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/containers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("finalizers"),
        Just("metadata"),
        Just("volumes"),
    ];
    leaf.prop_recursive(5, 40, 4, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..4)
                .prop_map(|f| Value::Object(f.into_iter().map(|(k, v)| (k.to_owned(), v)).collect())),
        ]
    })
}

proptest! {
    #[test]
    fn strategic_merge_never_panics(original in any_patch(), patch in any_patch()) {
        let _ = pod_patch(&original, &patch);
    }
}

/// Small patches that would make huge objects, or such that cannot be read again.
#[test]
fn patches_do_not_explode() {
    let doubling: Vec<Value> = (0..40)
        .map(|n| json!({"op": "copy", "from": "/a", "path": format!("/a/c{n}")}))
        .collect();
    let error = json_patch(
        &json!({"a": {"b": "x".repeat(100)}}),
        json!(doubling).to_string().as_bytes(),
    )
    .unwrap_err();
    assert!(error.to_string().contains("exceeding the limit"), "{error}");
    let nesting: Vec<Value> = (1..200)
        .map(|n| json!({"op": "add", "path": "/a".repeat(n), "value": {}}))
        .collect();
    let error = json_patch(&json!({}), json!(nesting).to_string().as_bytes()).unwrap_err();
    assert!(error.to_string().contains("levels"), "{error}");
}

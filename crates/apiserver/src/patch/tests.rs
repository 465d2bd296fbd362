use proptest::prelude::*;
use serde_json::json;

use super::{PatchError, json_patch, merge_patch};

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

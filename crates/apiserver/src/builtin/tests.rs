use serde_json::json;

use super::{find, kinds};

#[test]
fn every_kind_has_a_schema() {
    for kind in kinds() {
        assert!(kind.definition_name().is_some(), "{}/{}", kind.group, kind.kind);
    }
}

#[test]
fn defaults_give_the_form_of_types() {
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a", "labels": {}}, "stringData": {"k": "v"}});
    let kind = find("", "v1", "secrets").unwrap();
    kind.default(&mut secret);
    assert_eq!(secret["metadata"]["labels"], json!({}));
    assert!(kind.schema().forget_empty(&mut secret));
    assert_eq!(
        secret,
        json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "type": "Opaque", "data": {"k": "dg=="}})
    );

    let mut role = json!({"metadata": {"name": "a"}});
    find("rbac.authorization.k8s.io", "v1", "roles")
        .unwrap()
        .default(&mut role);
    assert_eq!(role, json!({"metadata": {"name": "a"}, "rules": null}));
}

#[test]
fn unknown_fields_of_built_in_kinds_are_dropped() {
    let kind = find("", "v1", "configmaps").unwrap();
    let mut object = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "nope": 1}, "data": {"a": "b"}, "spec": {}});
    assert_eq!(kind.schema().prune(&mut object), ["metadata.nope", "spec"]);
    assert_eq!(
        object,
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"a": "b"}})
    );
}

#[test]
fn wrong_types_are_refused_when_decoding() {
    let kind = find("", "v1", "configmaps").unwrap();
    assert_eq!(
        kind.schema()
            .decode_error(&json!({"kind": "ConfigMap", "data": {"a": 1}}))
            .unwrap(),
        "json: cannot unmarshal number into Go struct field ConfigMap.data.a of type string"
    );
    assert_eq!(
        kind.schema()
            .decode_error(&json!({"kind": "ConfigMap", "data": {"a": "1"}})),
        None
    );
}

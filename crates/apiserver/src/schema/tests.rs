use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Cause, Schema, validate_structural};

fn schema(value: &Value) -> Schema {
    Schema::compile(value).unwrap()
}

fn texts(causes: &[Cause]) -> Vec<String> {
    let mut texts: Vec<String> = causes.iter().map(ToString::to_string).collect();
    texts.sort();
    texts
}

fn widget() -> Schema {
    schema(&json!({
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "minimum": 1, "maximum": 10},
                    "color": {"type": "string", "enum": ["red", "blue"], "default": "red"},
                    "name": {"type": "string", "maxLength": 3, "pattern": "^[a-z]+$"},
                    "port": {"x-kubernetes-int-or-string": true},
                    "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set", "maxItems": 3},
                    "items": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "on": {"type": "boolean", "default": true}}}},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                    "labels": {"type": "object", "additionalProperties": {"type": "string"}},
                    "maybe": {"type": "string", "nullable": true}
                }
            }
        }
    }))
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let mut object = json!({"apiVersion": "a/v1", "kind": "W", "metadata": {"name": "n", "x": 1, "labels": {}}, "spec": {"size": 1, "nope": {"a": 1},
        "items": [{"name": "a", "z": 1}], "free": {"a": {"b": 1}}, "labels": {"k": "v"}}, "extra": 1});
    assert_eq!(
        widget().prune(&mut object),
        ["extra", "metadata.x", "spec.items[0].z", "spec.nope"]
    );
    assert_eq!(object["spec"]["free"]["a"]["b"], 1);
    assert_eq!(object["metadata"], json!({"name": "n"}));
}

#[test]
fn defaults_fill_in_and_nulls_go() {
    let mut object =
        json!({"spec": {"size": 1, "color": null, "name": null, "maybe": null, "items": [{"name": "a"}]}});
    widget().default(&mut object);
    assert_eq!(
        object,
        json!({"spec": {"size": 1, "color": "red", "maybe": null, "items": [{"name": "a", "on": true}]}})
    );
}

#[test]
fn messages_are_those_of_the_real_server() {
    let table = [
        (json!({}), "spec.size: Required value"),
        (
            json!({"size": "1"}),
            "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"",
        ),
        (
            json!({"size": 0}),
            "spec.size: Invalid value: 0: spec.size in body should be greater than or equal to 1",
        ),
        (
            json!({"size": 1, "color": "green"}),
            "spec.color: Unsupported value: \"green\": supported values: \"red\", \"blue\"",
        ),
        (
            json!({"size": 1, "name": "abcd"}),
            "spec.name: Too long: may not be more than 3 bytes",
        ),
        (
            json!({"size": 1, "name": "A"}),
            "spec.name: Invalid value: \"A\": spec.name in body should match '^[a-z]+$'",
        ),
        (
            json!({"size": 1, "tags": ["a", "a"]}),
            "spec.tags[1]: Duplicate value: \"a\"",
        ),
        (
            json!({"size": 1, "tags": ["a", "b", "c", "d"]}),
            "spec.tags: Too many: 4: must have at most 3 items",
        ),
        (
            json!({"size": 1, "items": [{"name": "a"}, {"name": "a"}]}),
            "spec.items[1]: Duplicate value: {\"name\":\"a\"}",
        ),
        (
            json!({"size": 1, "port": true}),
            "spec.port: Invalid value: \"boolean\": spec.port in body must be of type integer,string: \"boolean\"",
        ),
        (
            json!({"size": null}),
            "spec.size: Invalid value: \"null\": spec.size in body must be of type integer: \"null\"",
        ),
    ];
    for (spec, expected) in table {
        assert_eq!(
            texts(&widget().validate(&json!({"spec": spec}), None)),
            [expected]
        );
    }
}

#[test]
fn an_update_is_not_blamed_for_what_it_did_not_change() {
    let old = json!({"spec": {"size": 99, "name": "ok"}});
    let same = json!({"spec": {"size": 99, "name": "no"}});
    assert!(widget().validate(&same, Some(&old)).is_empty());
    let worse = json!({"spec": {"size": 98, "name": "ok"}});
    assert_eq!(widget().validate(&worse, Some(&old)).len(), 1);
}

#[test]
fn cel_rules_run() {
    let schema = schema(&json!({
        "type": "object",
        "properties": {"spec": {
            "type": "object",
            "x-kubernetes-validations": [
                {"rule": "self.min <= self.max", "message": "min must not exceed max"},
                {"rule": "self.max < 100", "messageExpression": "'max is ' + string(self.max)", "fieldPath": ".max"},
                {"rule": "!has(oldSelf.frozen) || self.frozen == oldSelf.frozen", "message": "frozen is immutable", "reason": "FieldValueForbidden", "fieldPath": ".frozen"},
                {"rule": "!oldSelf.hasValue() || oldSelf.value().min <= self.min", "optionalOldSelf": true}
            ],
            "properties": {"min": {"type": "integer"}, "max": {"type": "integer"}, "frozen": {"type": "string"}}
        }}
    }));
    let spec = |spec: Value| json!({"spec": spec});
    let check = |new: Value, old: Option<Value>| texts(&schema.validate(&spec(new), old.map(spec).as_ref()));
    assert!(check(json!({"min": 1, "max": 2}), None).is_empty());
    assert_eq!(
        check(json!({"min": 3, "max": 2}), None),
        ["spec: Invalid value: min must not exceed max"]
    );
    assert_eq!(
        check(json!({"min": 3, "max": 200}), None),
        ["spec.max: Invalid value: max is 200"]
    );
    assert_eq!(
        check(
            json!({"min": 1, "max": 2, "frozen": "b"}),
            Some(json!({"min": 1, "max": 2, "frozen": "a"}))
        ),
        ["spec.frozen: Forbidden: frozen is immutable"]
    );
    assert_eq!(
        check(json!({"min": 0, "max": 2}), Some(json!({"min": 1, "max": 2}))),
        ["spec: Invalid value: failed rule: !oldSelf.hasValue() || oldSelf.value().min <= self.min"]
    );
    assert_eq!(
        check(json!({"max": 2}), None),
        ["spec: Invalid value: \"object\": no such key: min evaluating rule: min must not exceed max"]
    );
}

#[test]
fn equal_schemas_share_one_compiled_form() {
    assert!(
        std::sync::Arc::ptr_eq(&widget().arena, &widget().arena) || {
            let a = widget();
            let b = widget();
            std::sync::Arc::ptr_eq(&a.arena, &b.arena)
        }
    );
}

#[test]
fn schemas_must_be_structural() {
    let bad = json!({"type": "object", "properties": {"spec": {"properties": {"a": {"type": "array"}}, "anyOf": [{"type": "object", "properties": {"b": {"minimum": 1}}}]}}});
    assert_eq!(
        texts(&validate_structural(&bad, "s")),
        [
            "s.properties[spec].anyOf[0].type: Forbidden: must be empty to be structural",
            "s.properties[spec].properties[a].items: Required value: must be specified",
            "s.properties[spec].type: Required value: must not be empty for specified object fields",
        ]
    );
    assert!(validate_structural(&json!({"type": "object", "properties": {"p": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}}}), "s").is_empty());
}

fn any_json(depth: u32) -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-z]{0,6}".prop_map(Value::from),
        prop_oneof![
            Just("object"),
            Just("array"),
            Just("string"),
            Just("integer"),
            Just("map"),
            Just("set")
        ]
        .prop_map(Value::from),
    ];
    let key = prop_oneof![
        Just("type".to_owned()),
        Just("properties".to_owned()),
        Just("items".to_owned()),
        Just("additionalProperties".to_owned()),
        Just("default".to_owned()),
        Just("required".to_owned()),
        Just("allOf".to_owned()),
        Just("pattern".to_owned()),
        Just("x-kubernetes-list-type".to_owned()),
        Just("x-kubernetes-list-map-keys".to_owned()),
        Just("x-kubernetes-preserve-unknown-fields".to_owned()),
        Just("x-kubernetes-validations".to_owned()),
        Just("rule".to_owned()),
        Just("spec".to_owned()),
        Just("a".to_owned()),
    ];
    leaf.prop_recursive(depth, 64, 6, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key.clone(), inner), 0..5)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_schema_and_no_object_panics(openapi in any_json(5), object in any_json(4), old in any_json(4)) {
        let _ = validate_structural(&openapi, "s");
        if let Ok(schema) = Schema::compile(&openapi) {
            let mut object = object;
            schema.prune(&mut object);
            schema.default(&mut object);
            schema.validate(&object, Some(&old));
        }
    }
}

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    ApplyError, Conflict, Manager, Others, ReplicasPaths, SCALE_VERSION, apply, owners_of_object,
    owners_of_scale, track_update,
};
use crate::builtin;
use crate::schema::Schema;

fn manager(name: &str) -> Manager<'_> {
    Manager {
        name,
        subresource: "",
        time: Timestamp::UNIX_EPOCH,
        force: false,
        api_version: "v1",
        ignored: &[],
        versions: &[],
        variants: &[],
        others: Others::Forgotten,
    }
}

fn config_map() -> Schema {
    builtin::find("", "v1", "configmaps").unwrap().schema()
}

fn cm(data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "b"}, "data": data})
}

fn owners(object: &Value) -> Value {
    let entries = object["metadata"]["managedFields"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let entry = |e: &Value| {
        let name = format!(
            "{}:{}",
            e["manager"].as_str().unwrap(),
            e["operation"].as_str().unwrap()
        );
        (name, e["fieldsV1"].clone())
    };
    Value::Object(entries.iter().map(entry).collect())
}

#[test]
fn applying_creates_and_owns() {
    let object = apply(None, &cm(&json!({"x": "1"})), &manager("m"), &config_map()).unwrap();
    assert_eq!(object["data"], json!({"x": "1"}));
    assert_eq!(
        object["metadata"]["managedFields"],
        json!([{"manager": "m", "operation": "Apply", "apiVersion": "v1", "time": "1970-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:x": {}}}}])
    );
}

#[test]
fn fields_no_longer_applied_are_removed_unless_others_own_them() {
    let schema = config_map();
    let one = apply(None, &cm(&json!({"x": "1", "y": "2"})), &manager("m"), &schema).unwrap();
    let two = apply(Some(&one), &cm(&json!({"y": "2"})), &manager("n"), &schema).unwrap();
    let three = apply(Some(&two), &cm(&json!({})), &manager("m"), &schema).unwrap();
    assert_eq!(three["data"], json!({"y": "2"}));
    assert_eq!(
        owners(&three),
        json!({"n:Apply": {"f:data": {"f:y": {}}}, "m:Apply": {"f:data": {}}})
    );
}

#[test]
fn conflicts_name_manager_and_field() {
    let schema = config_map();
    let mut object = cm(&json!({"x": "1"}));
    track_update(None, &mut object, &manager("kubectl-create"), &schema);
    assert_eq!(
        owners(&object),
        json!({"kubectl-create:Update": {"f:data": {".": {}, "f:x": {}}}})
    );
    let error = apply(Some(&object), &cm(&json!({"x": "2"})), &manager("m"), &schema).unwrap_err();
    let conflict = Conflict {
        manager: "\"kubectl-create\" using v1".into(),
        field: ".data.x".into(),
    };
    assert_eq!(error, ApplyError::Conflicts(vec![conflict]));
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"kubectl-create\" using v1: .data.x"
    );
    let forced = apply(
        Some(&object),
        &cm(&json!({"x": "2"})),
        &Manager {
            force: true,
            ..manager("m")
        },
        &schema,
    )
    .unwrap();
    assert_eq!(
        owners(&forced),
        json!({"kubectl-create:Update": {"f:data": {}}, "m:Apply": {"f:data": {"f:x": {}}}})
    );
}

#[test]
fn lists_merge_by_key() {
    let schema = builtin::find("apps", "v1", "deployments").unwrap().schema();
    let deployment = |containers: Value| json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {"template": {"spec": {"containers": containers}}}});
    let apps = |name| Manager {
        api_version: "apps/v1",
        ..manager(name)
    };
    let one = apply(
        None,
        &deployment(json!([{"name": "a", "image": "i"}])),
        &apps("m"),
        &schema,
    )
    .unwrap();
    let two = apply(
        Some(&one),
        &deployment(json!([{"name": "b", "ports": [{"containerPort": 80}]}])),
        &apps("n"),
        &schema,
    )
    .unwrap();
    assert_eq!(
        owners(&two)["n:Apply"],
        json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:ports": {
            "k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}}}})
    );
    let three = apply(Some(&two), &deployment(json!([])), &apps("n"), &schema).unwrap();
    assert_eq!(
        three["spec"]["template"]["spec"]["containers"],
        json!([{"name": "a", "image": "i"}])
    );
}

#[test]
fn objects_without_managers_belong_to_whoever_was_before() {
    let schema = config_map();
    let mut object = cm(&json!({"x": "1"}));
    object["metadata"]["uid"] = "u".into();
    let applied = apply(Some(&object), &cm(&json!({"y": "1"})), &manager("m"), &schema).unwrap();
    assert_eq!(
        owners(&applied),
        json!({"before-first-apply:Update": {"f:data": {".": {}, "f:x": {}}}, "m:Apply": {"f:data": {"f:y": {}}}})
    );
}

#[test]
fn managed_fields_can_be_reset() {
    let schema = config_map();
    let mut object = cm(&json!({"x": "1"}));
    track_update(None, &mut object, &manager("m"), &schema);
    object["metadata"]["uid"] = "u".into();
    let mut next = object.clone();
    next["metadata"]["managedFields"] = json!([{}]);
    track_update(Some(&object), &mut next, &manager("m"), &schema);
    assert!(next["metadata"].get("managedFields").is_none());
}

#[test]
fn undeclared_fields_cannot_be_applied() {
    let mut config = cm(&json!({}));
    config["nope"] = 1.into();
    let error = apply(None, &config, &manager("m"), &config_map()).unwrap_err();
    assert_eq!(error, ApplyError::Type("failed to create typed patch object (b/a; v1, Kind=ConfigMap): .nope: field not declared in schema".into()));
}

fn any_data() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0..3i64).prop_map(Value::from),
        "[ab]{0,2}".prop_map(Value::from)
    ];
    let key = prop_oneof![
        Just("data"),
        Just("metadata"),
        Just("labels"),
        Just("managedFields"),
        Just("fieldsV1"),
        Just("f:a"),
        Just("k:{}"),
        Just("."),
        Just("operation"),
        Just("a")
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
    fn nothing_panics(live in any_data(), config in any_data(), api in prop_oneof![Just("v1"), Just("")]) {
        let crd = Schema::compile(&json!({"type": "object", "properties": {"data": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"],
            "items": {"type": "object", "properties": {"a": {"type": "string"}}}}, "a": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}}})).unwrap();
        for schema in [config_map(), crd, Schema::anything()] {
            let manager = Manager { api_version: api, ..manager("m") };
            let mut config = config.clone();
            if let Some(map) = config.as_object_mut() {
                map.insert("apiVersion".into(), api.into());
            }
            let _ = apply(Some(&live), &config, &manager, &schema);
            track_update(Some(&live), &mut config, &manager, &schema);
        }
    }
}

#[test]
fn the_owners_of_a_scale_are_those_of_the_number() {
    let entry = |manager: &str, operation: &str, version: &str, subresource: &str, fields: Value| {
        let mut entry = json!({"manager": manager, "operation": operation, "apiVersion": version,
            "fieldsType": "FieldsV1", "fieldsV1": fields});
        if subresource.is_empty() {
            entry["time"] = "2020-01-01T00:00:00Z".into();
        } else {
            entry["subresource"] = subresource.into();
        }
        entry
    };
    let paths = ReplicasPaths::from([
        ("g/v1".to_owned(), Some(".spec.size.count".to_owned())),
        ("g/v2".to_owned(), None),
    ]);
    let count = json!({"f:spec": {"f:size": {"f:count": {}}}});
    let replicas = json!({"f:spec": {"f:replicas": {}}});
    let other = json!({"f:spec": {"f:note": {}}});
    let both = json!({"f:spec": {"f:note": {}, "f:size": {"f:count": {}}}});
    let live = json!({"metadata": {"managedFields": [
        entry("applier", "Apply", "g/v1", "", both.clone()),
        entry("gone", "Update", "g/v0", "", count.clone()),
        entry("maker", "Update", "g/v1", "", both.clone()),
        entry("other", "Update", "g/v2", "", count.clone()),
    ]}});
    let mut scale = json!({"metadata": {}});
    owners_of_scale(&live, &mut scale, &paths);
    assert_eq!(
        scale["metadata"]["managedFields"],
        json!([
            entry("applier", "Apply", SCALE_VERSION, "", replicas.clone()),
            entry("maker", "Update", SCALE_VERSION, "", replicas.clone()),
        ])
    );
    // Nobody loses the number: the applier keeps its entry, the updater gets a second one without a time.
    let mut kept = live.clone();
    owners_of_object(&mut kept, &scale, &paths, "g/v1");
    let mut second = entry("maker", "Update", "g/v1", "", count.clone());
    second.as_object_mut().unwrap().remove("time");
    assert_eq!(
        kept["metadata"]["managedFields"],
        json!([
            entry("applier", "Apply", "g/v1", "", both.clone()),
            second,
            entry("maker", "Update", "g/v1", "", other.clone()),
            entry("other", "Update", "g/v2", "", count.clone()),
        ])
    );
    // Somebody else takes it from both.
    let mut taken = live;
    let scale =
        json!({"metadata": {"managedFields": [entry("taker", "Apply", SCALE_VERSION, "scale", replicas)]}});
    owners_of_object(&mut taken, &scale, &paths, "g/v1");
    assert_eq!(
        taken["metadata"]["managedFields"],
        json!([
            entry("taker", "Apply", "g/v1", "scale", count.clone()),
            entry("applier", "Apply", "g/v1", "", other.clone()),
            entry("maker", "Update", "g/v1", "", other),
            entry("other", "Update", "g/v2", "", count),
        ])
    );
}

#[test]
fn owners_of_unknown_versions() {
    let entry = |name: &str, version: &str| {
        json!({"manager": name, "operation": "Update", "apiVersion": version, "fieldsType": "FieldsV1",
               "fieldsV1": {"f:data": {"f:a": {}}}})
    };
    let owners = |others, version: &str| {
        let old = json!({"metadata": {"uid": "u"}, "data": {"a": "1"}});
        let mut new = old.clone();
        new["metadata"]["managedFields"] = json!([entry("bad", version), entry("good", "v1")]);
        let manager = Manager {
            others,
            ..manager("m")
        };
        track_update(Some(&old), &mut new, &manager, &config_map());
        let names = new.pointer("/metadata/managedFields").and_then(Value::as_array);
        let names = names.into_iter().flatten();
        names
            .filter_map(|owner| owner["manager"].as_str().map(str::to_owned))
            .collect::<Vec<_>>()
    };
    for (others, version, left) in [
        (Others::Forgotten, "v9", &["good"] as &[&str]),
        (Others::Forgotten, "apps/v1", &["good"]),
        (Others::Forgotten, "/v1", &["bad", "good"]),
        (Others::Forgotten, "a/b/c", &[]),
        (Others::Fatal, "v9", &[]),
        (Others::Fatal, "a/b/c", &[]),
    ] {
        assert_eq!(owners(others, version), left, "{others:?} {version:?}");
    }
}

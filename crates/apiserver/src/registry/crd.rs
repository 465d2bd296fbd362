//! From a CustomResourceDefinition to a resource that is served, and its conditions.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{Column, Resource, Scale, Snapshot, Version, shared};

/// Why a definition is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CrdProblem(pub String);

fn text(value: &Value, pointer: &str) -> String {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn texts(value: &Value, pointer: &str) -> Vec<String> {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(|list| list.iter().filter_map(Value::as_str).map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Builds the resource. Schemas are compiled once per process for equal definitions.
pub(crate) fn from_crd(crd: &Value) -> Result<Arc<Resource>, CrdProblem> {
    let spec = crd.get("spec").cloned().unwrap_or_default();
    shared::resource(&spec, || build(&spec))
}

fn build(spec: &Value) -> Result<Resource, CrdProblem> {
    let (group, plural) = (text(spec, "/group"), text(spec, "/names/plural"));
    let kind = text(spec, "/names/kind");
    let empty = Vec::new();
    let mut versions = Vec::new();
    let mut storage = String::new();
    for version in spec.get("versions").and_then(Value::as_array).unwrap_or(&empty) {
        let name = text(version, "/name");
        if version.get("storage") == Some(&Value::Bool(true)) {
            storage.clone_from(&name);
        }
        let schema = version
            .pointer("/schema/openAPIV3Schema")
            .map(shared::schema)
            .transpose()?;
        let scale = version.pointer("/subresources/scale").map(|scale| Scale {
            spec: text(scale, "/specReplicasPath"),
            status: text(scale, "/statusReplicasPath"),
            selector: Some(text(scale, "/labelSelectorPath")).filter(|path| !path.is_empty()),
        });
        versions.push(Version {
            served: version.get("served") == Some(&Value::Bool(true)),
            deprecated: (version.get("deprecated") == Some(&Value::Bool(true))).then(|| {
                let given = text(version, "/deprecationWarning");
                if given.is_empty() {
                    format!("{group}/{name} {kind} is deprecated")
                } else {
                    given
                }
            }),
            schema,
            status: version.pointer("/subresources/status").is_some(),
            scale,
            columns: columns(version),
            selectable: version
                .get("selectableFields")
                .and_then(Value::as_array)
                .map(|list| list.iter().map(|field| text(field, "/jsonPath")).collect())
                .unwrap_or_default(),
            name,
        });
    }
    versions.sort_by(|a, b| super::compare_versions(&b.name, &a.name));
    // Equal schemas are one.
    let schemas = || {
        versions
            .iter()
            .map(|version| version.schema.as_ref().map(Arc::as_ptr))
    };
    let differing = schemas().zip(schemas().skip(1)).any(|(one, other)| one != other);
    let singular = text(spec, "/names/singular");
    let list_kind = text(spec, "/names/listKind");
    Ok(Resource {
        table: format!("{plural}.{group}").into(),
        singular: if singular.is_empty() {
            kind.to_lowercase()
        } else {
            singular
        },
        list_kind: if list_kind.is_empty() {
            format!("{kind}List")
        } else {
            list_kind
        },
        short_names: texts(spec, "/names/shortNames"),
        categories: texts(spec, "/names/categories"),
        namespaced: text(spec, "/scope") == "Namespaced",
        group,
        plural,
        kind,
        versions,
        storage,
        builtin: None,
        differing,
        verbs: super::CUSTOM_VERBS,
    })
}

fn columns(version: &Value) -> Vec<Column> {
    let given = version.get("additionalPrinterColumns").and_then(Value::as_array);
    given.map_or_else(
        || {
            vec![Column {
                name: "Age".into(),
                kind: "date".into(),
                format: String::new(),
                description: "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata".into(),
                priority: 0,
                path: ".metadata.creationTimestamp".into(),
            }]
        },
        |list| {
            list.iter()
                .map(|column| Column {
                    name: text(column, "/name"),
                    kind: text(column, "/type"),
                    format: text(column, "/format"),
                    description: {
                        let given = text(column, "/description");
                        if given.is_empty() {
                            format!("Custom resource definition column (in JSONPath format): {}", text(column, "/jsonPath"))
                        } else {
                            given
                        }
                    },
                    priority: column.get("priority").and_then(Value::as_i64).unwrap_or(0),
                    path: text(column, "/jsonPath"),
                })
                .collect()
        },
    )
}

/// Whether the definition is to be served.
pub(crate) fn established(crd: &Value) -> bool {
    crd.pointer("/status/conditions")
        .and_then(Value::as_array)
        .is_some_and(|conditions| {
            conditions.iter().any(|condition| {
                condition.get("type").and_then(Value::as_str) == Some("Established")
                    && condition.get("status").and_then(Value::as_str) == Some("True")
            })
        })
}

/// The status that a definition should have: its names are accepted unless another resource of the group has them.
///
/// Returns `None` when there is nothing to change.
pub(crate) fn accept_names(crd: &Value, served: &Snapshot, now: &str) -> Option<Value> {
    let mut names = crd.pointer("/spec/names").cloned().unwrap_or_default();
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    let kind = text(crd, "/spec/names/kind");
    if let Some(map) = names.as_object_mut() {
        map.entry("singular")
            .or_insert_with(|| kind.to_lowercase().into());
        map.entry("listKind")
            .or_insert_with(|| format!("{kind}List").into());
    }
    let mut problem = None;
    for other in served.group(&group).filter(|other| other.plural != plural) {
        let taken: Vec<&str> = [&other.plural, &other.singular]
            .into_iter()
            .chain(&other.short_names)
            .map(String::as_str)
            .collect();
        let wanted = [
            ("PluralConflict", text(&names, "/plural")),
            ("SingularConflict", text(&names, "/singular")),
        ]
        .into_iter()
        .chain(
            texts(&names, "/shortNames")
                .into_iter()
                .map(|name| ("ShortNamesConflict", name)),
        );
        for (reason, name) in wanted {
            if taken.contains(&name.as_str()) {
                problem = problem.or(Some((reason, format!("\"{name}\" is already in use"))));
            }
        }
        for (reason, name) in [
            ("KindConflict", text(&names, "/kind")),
            ("ListKindConflict", text(&names, "/listKind")),
        ] {
            if other.kind == name || other.list_kind == name {
                problem = problem.or(Some((reason, format!("\"{name}\" is already in use"))));
            }
        }
    }
    let mut status = crd
        .get("status")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let was_established = established(crd);
    let accepted = match &problem {
        None => ("True", "NoConflicts".to_owned(), "no conflicts found".to_owned()),
        Some((reason, message)) => ("False", (*reason).to_owned(), message.clone()),
    };
    let mut changed = set_condition(
        &mut status,
        "NamesAccepted",
        accepted.0,
        &accepted.1,
        &accepted.2,
        now,
    );
    if problem.is_none() {
        if status.get("acceptedNames") != Some(&names) {
            status.insert("acceptedNames".into(), names);
            changed = true;
        }
        changed |= set_condition(
            &mut status,
            "Established",
            "True",
            "InitialNamesAccepted",
            "the initial names have been accepted",
            now,
        );
    } else if !was_established {
        changed |= set_condition(
            &mut status,
            "Established",
            "False",
            "NotAccepted",
            "not all names are accepted",
            now,
        );
    }
    changed.then_some(Value::Object(status))
}

fn set_condition(
    status: &mut Map<String, Value>,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: &str,
) -> bool {
    let list = status.entry("conditions").or_insert_with(|| json!([]));
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else {
        return false;
    };
    let wanted = json!({
        "type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    let Some(old) = list
        .iter_mut()
        .find(|c| c.get("type").and_then(Value::as_str) == Some(kind))
    else {
        list.push(wanted);
        return true;
    };
    if old.get("status").and_then(Value::as_str) == Some(value) {
        return false;
    }
    *old = wanted;
    true
}

//! From a CustomResourceDefinition to a resource that is served, and its conditions.

use std::sync::{Arc, LazyLock};

use serde_json::{Map, Value, json};

use super::{Column, Resource, Scale, Snapshot, Version, shared};
use crate::builtin::approval::Approval;
use crate::schema::Schema;
use crate::ssa::Variant;

/// What the column with the age of objects is, where nobody says.
const CREATED_TEXT: &str = "CreationTimestamp is a timestamp representing the server time when this object was created. It is not guaranteed to be set in happens-before order across separate operations. Clients may not set this value. It is represented in RFC3339 form and is in UTC.\n\nPopulated by the system. Read-only. Null for lists. More info: https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md#metadata";

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
        variants: variants(&group, &versions),
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

/// How owners of each version see an object: as it is, by the schema of that version.
fn variants(group: &str, versions: &[Version]) -> Vec<Variant> {
    if versions.len() < 2 {
        return Vec::new();
    }
    let variant = |version: &Version| Variant {
        api_version: format!("{group}/{}", version.name),
        schema: version
            .schema
            .as_deref()
            .cloned()
            .unwrap_or_else(Schema::anything),
        to: |_| (),
        from: |_| (),
        protected_by: if version.status { &["status"] } else { &[] },
    };
    versions.iter().map(variant).collect()
}

fn columns(version: &Value) -> Vec<Column> {
    let Some(given) = version.get("additionalPrinterColumns").and_then(Value::as_array) else {
        return vec![age()];
    };
    let column = |given: &Value| Column {
        description: match text(given, "/description") {
            none if none.is_empty() => format!(
                "Custom resource definition column (in JSONPath format): {}",
                text(given, "/jsonPath")
            ),
            description => description,
        },
        format: text(given, "/format"),
        priority: given.get("priority").and_then(Value::as_i64).unwrap_or(0),
        ..Column::new(
            &text(given, "/name"),
            &text(given, "/type"),
            "",
            &text(given, "/jsonPath"),
        )
    };
    given.iter().map(column).collect()
}

fn age() -> Column {
    Column::new("Age", "date", CREATED_TEXT, ".metadata.creationTimestamp")
}

/// What the scale of every custom resource has.
pub(crate) fn scale_columns() -> &'static [Column] {
    static COLUMNS: LazyLock<[Column; 3]> = LazyLock::new(|| {
        let number = |name, description, path| Column::new(name, "integer", description, path);
        [
            number("Desired", "Number of desired replicas", ".spec.replicas"),
            number("Available", "Number of actual replicas", ".status.replicas"),
            age(),
        ]
    });
    &*COLUMNS
}

/// Whether the definition is to be served.
pub(crate) fn established(crd: &Value) -> bool {
    has_condition(crd, "Established")
}

/// Whether a condition of a definition is true.
pub(crate) fn has_condition(crd: &Value, kind: &str) -> bool {
    let conditions = crd.pointer("/status/conditions").and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|condition| text(condition, "/type") == kind && text(condition, "/status") == "True")
}

/// The names that other definitions of a group have: those of resources, and those of kinds.
fn taken_names(served: &Snapshot, claims: &[Value], group: &str, plural: &str) -> [Vec<String>; 2] {
    let [mut resources, mut kinds] = [Vec::new(), Vec::new()];
    let others = served.group(group).filter(|other| other.builtin.is_none());
    for other in others.filter(|other| other.plural != plural) {
        resources.extend([other.plural.clone(), other.singular.clone()]);
        resources.extend(other.short_names.iter().cloned());
        kinds.extend([other.kind.clone(), other.list_kind.clone()]);
    }
    for names in claims {
        resources.extend([text(names, "/plural"), text(names, "/singular")]);
        resources.extend(texts(names, "/shortNames"));
        kinds.extend([text(names, "/kind"), text(names, "/listKind")]);
    }
    [resources, kinds]
}

/// The status that a definition should have next: its names are accepted unless another resource of the group has them. Those that
/// nobody else has are accepted even then. When all are, a second step establishes it. `claims` are names that other definitions
/// of the group have, which are not served yet.
///
/// Returns `None` when there is nothing to change.
pub(crate) fn accept_names(crd: &Value, served: &Snapshot, claims: &[Value], now: &str) -> Option<Value> {
    let mut wanted = crd.pointer("/spec/names").cloned().unwrap_or_default();
    let (group, plural) = (text(crd, "/spec/group"), text(crd, "/spec/names/plural"));
    let kind = text(crd, "/spec/names/kind");
    if let Some(map) = wanted.as_object_mut() {
        map.entry("singular")
            .or_insert_with(|| kind.to_lowercase().into());
        map.entry("listKind")
            .or_insert_with(|| format!("{kind}List").into());
    }
    let [resources, kinds] = taken_names(served, claims, &group, &plural);
    let mut next = crd.clone();
    let mut accepted = crd
        .pointer("/status/acceptedNames")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default();
    let mut problem = None;
    for (field, reason, taken) in [
        ("plural", "PluralConflict", &resources),
        ("singular", "SingularConflict", &resources),
        ("shortNames", "ShortNamesConflict", &resources),
        ("kind", "KindConflict", &kinds),
        ("listKind", "ListKindConflict", &kinds),
        ("categories", "", &Vec::new()),
    ] {
        let have = accepted.get(field);
        let is_own = |name: &str| match have {
            Some(Value::Array(list)) => list.iter().any(|own| own == name),
            have => have.and_then(Value::as_str) == Some(name),
        };
        let names = match wanted.get(field) {
            Some(Value::String(name)) => vec![name.clone()],
            _ => texts(&wanted, &format!("/{field}")),
        };
        let conflicts: Vec<String> = names
            .iter()
            .filter(|name| !is_own(name) && !name.is_empty() && taken.contains(name))
            .map(|name| format!("\"{name}\" is already in use"))
            .collect();
        match conflicts.as_slice() {
            [] => match wanted.get(field) {
                Some(name) => drop(accepted.insert(field.to_owned(), name.clone())),
                None => drop(accepted.remove(field)),
            },
            // The last one is told.
            [one] => problem = Some((reason, one.clone())),
            several => problem = Some((reason, format!("[{}]", several.join(", ")))),
        }
    }
    // These are always there.
    for field in ["plural", "kind"] {
        accepted.entry(field).or_insert_with(|| "".into());
    }
    if let Some(status) = status_of(&mut next) {
        status.insert("acceptedNames".into(), accepted.into());
    }
    let (status, reason, message) = match &problem {
        None => ("True", "NoConflicts", "no conflicts found"),
        Some((reason, message)) => ("False", *reason, message.as_str()),
    };
    set_condition(&mut next, "NamesAccepted", status, reason, message, now);
    if !established(crd) {
        let installing = problem.is_none();
        let (reason, message) = if installing {
            ("Installing", INITIAL)
        } else {
            ("NotAccepted", "not all names are accepted")
        };
        set_condition(&mut next, "Established", "False", reason, message, now);
        if installing && next == *crd {
            set_condition(
                &mut next,
                "Established",
                "True",
                "InitialNamesAccepted",
                INITIAL,
                now,
            );
        }
    }
    if let Some(approval) = Approval::of(crd) {
        let (status, reason, message) = approval.condition();
        set_condition(
            &mut next,
            "KubernetesAPIApprovalPolicyConformant",
            status,
            reason,
            &message,
            now,
        );
    }
    (next != *crd).then(|| next.get("status").cloned()).flatten()
}

const INITIAL: &str = "the initial names have been accepted";

fn status_of(crd: &mut Value) -> Option<&mut Map<String, Value>> {
    let status = crd.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
    status.as_object_mut()
}

/// Sets a condition of a definition. The time is that of its last change from true to false or back.
pub(crate) fn set_condition(
    crd: &mut Value,
    kind: &str,
    status: &str,
    reason: &str,
    message: &str,
    now: &str,
) {
    let Some(list) = status_of(crd).map(|status| status.entry("conditions").or_insert_with(|| json!([])))
    else {
        return;
    };
    if list.is_null() {
        *list = json!([]);
    }
    let Some(list) = list.as_array_mut() else {
        return;
    };
    let mut wanted = json!({
        "type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now,
    });
    match list.iter_mut().find(|have| text(have, "/type") == kind) {
        None => list.push(wanted),
        Some(have) => {
            if text(have, "/status") == status
                && let (Some(map), Some(time)) = (wanted.as_object_mut(), have.get("lastTransitionTime"))
            {
                map.insert("lastTransitionTime".into(), time.clone());
            }
            // What else it says, such as the generation it was observed at, stays.
            if let (Some(have), Value::Object(wanted)) = (have.as_object_mut(), wanted) {
                have.extend(wanted);
            }
        }
    }
}

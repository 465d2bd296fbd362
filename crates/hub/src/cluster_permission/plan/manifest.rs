//! The one place where manifests are written as JSON and read from it.

use k8s_openapi::{
    api::rbac::v1::{self as rbac, PolicyRule, Subject},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use writ_api::{
    rbac::cluster_permission::RBAC_GROUP,
    work::{
        FeedbackRule, FeedbackType, JsonPath, ManifestConfig, ResourceIdentifier, ScrapeType, UpdateStrategy,
        UpdateStrategyType,
    },
    writ::{NamespaceGrant, namespace_grant::NamespaceGrantSpec},
};

use crate::cluster_permission::model::{
    Body, Content, GRANT_KIND, Grant, Item, ObjectId, TypedManifest, object_id,
};

/// The object of a manifest.
pub fn id(manifest: &Value) -> ObjectId {
    let text = |pointer: &str| {
        manifest
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    object_id(text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
}

/// Whether a manifest makes a role; the stub of a role has no rules.
pub fn has_rules(manifest: &Value) -> bool {
    manifest.get("rules").is_some()
}

/// The manifest of an item.
pub fn write(item: &Item) -> Value {
    write_typed(&item.id, &item.manifest)
}

/// A manifest as JSON.
pub fn write_typed(id: &ObjectId, manifest: &TypedManifest) -> Value {
    let namespaced = !id.name.namespace.is_empty();
    let metadata = ObjectMeta {
        name: Some(id.name.name.to_string()),
        namespace: namespaced.then(|| id.name.namespace.to_string()),
        annotations: Some(manifest.annotations.clone()).filter(|annotations| !annotations.is_empty()),
        ..ObjectMeta::default()
    };
    match &manifest.body {
        Body::Stub => {
            json!({ "apiVersion": format!("{RBAC_GROUP}/v1"), "kind": &*id.kind, "metadata": metadata })
        }
        Body::Grant(grant) => json!(NamespaceGrant {
            metadata,
            spec: grant_spec(grant),
            status: None,
        }),
        Body::Object(Content::Rules(rules)) if namespaced => json!(rbac::Role {
            metadata,
            rules: Some(without_empty_lists(rules)),
        }),
        Body::Object(Content::Rules(rules)) => json!(rbac::ClusterRole {
            metadata,
            rules: Some(without_empty_lists(rules)),
            aggregation_rule: None,
        }),
        Body::Object(Content::Binding(role, subjects)) if namespaced => json!(rbac::RoleBinding {
            metadata,
            role_ref: role.clone(),
            subjects: Some(subjects.clone()),
        }),
        Body::Object(Content::Binding(role, subjects)) => json!(rbac::ClusterRoleBinding {
            metadata,
            role_ref: role.clone(),
            subjects: Some(subjects.clone()),
        }),
    }
}

fn grant_spec(grant: &Grant) -> NamespaceGrantSpec {
    let spec = NamespaceGrantSpec {
        namespace_selector: grant.selector.clone(),
        name: grant.name.clone(),
        adopt: grant.adopt.then_some(true),
        validate: grant.validate.then_some(true),
        ..NamespaceGrantSpec::default()
    };
    match &grant.content {
        Content::Rules(rules) => NamespaceGrantSpec {
            rules: Some(without_empty_lists(rules)),
            ..spec
        },
        Content::Binding(role, subjects) => NamespaceGrantSpec {
            role_ref: Some(role.clone()),
            subjects: subjects.clone(),
            ..spec
        },
    }
}

/// A manifest that a work carries; `None` if its kind is not one of a permission's. Manifests written by OCM, which have no
/// annotations and times that are null, are read as well.
pub fn read(manifest: &Value) -> Option<TypedManifest> {
    let body = match manifest.get("kind")?.as_str()? {
        GRANT_KIND => Body::Grant(read_grant(parse(manifest.get("spec"))?)?),
        "Role" | "ClusterRole" => match manifest.get("rules") {
            Some(rules) => {
                let rules: Option<Vec<PolicyRule>> = parse(Some(rules))?;
                Body::Object(Content::Rules(rules.unwrap_or_default()))
            }
            None => Body::Stub,
        },
        "RoleBinding" | "ClusterRoleBinding" => {
            let subjects: Option<Vec<Subject>> = match manifest.get("subjects") {
                None => None,
                subjects => parse(subjects)?,
            };
            let role = parse(manifest.get("roleRef"))?;
            Body::Object(Content::Binding(role, subjects.unwrap_or_default()))
        }
        _ => return None,
    };
    let annotations = parse(manifest.pointer("/metadata/annotations")).unwrap_or_default();
    Some(TypedManifest { annotations, body })
}

fn read_grant(spec: NamespaceGrantSpec) -> Option<Grant> {
    let content = match (spec.rules, spec.role_ref) {
        (Some(rules), _) => Content::Rules(rules),
        (None, Some(role)) => Content::Binding(role, spec.subjects),
        (None, None) => return None,
    };
    Some(Grant {
        selector: spec.namespace_selector,
        name: spec.name,
        adopt: spec.adopt == Some(true),
        validate: spec.validate == Some(true),
        content,
    })
}

/// The grant of a manifest, if it is one, with its name.
pub fn read_named_grant(manifest: &Value) -> Option<(String, Grant)> {
    let id = id(manifest);
    match read(manifest).filter(|_| &*id.kind == GRANT_KIND)?.body {
        Body::Grant(grant) => Some((id.name.name.to_string(), grant)),
        Body::Object(_) | Body::Stub => None,
    }
}

fn parse<T: DeserializeOwned>(part: Option<&Value>) -> Option<T> {
    T::deserialize(part?).ok()
}

/// The size of a manifest as OCM counts it: the text, and what encloses it in a binary message.
pub fn size(manifest: &Value) -> usize {
    manifest.to_string().len() + 1 + 5
}

/// Rules as they are delivered. An empty list means the same as none and has to look the same; otherwise two permissions would
/// be in conflict over nothing.
pub fn without_empty_lists(rules: &[PolicyRule]) -> Vec<PolicyRule> {
    let filled = |list: &Option<Vec<String>>| list.clone().filter(|list| !list.is_empty());
    rules
        .iter()
        .map(|rule| PolicyRule {
            api_groups: filled(&rule.api_groups),
            non_resource_urls: filled(&rule.non_resource_urls),
            resource_names: filled(&rule.resource_names),
            resources: filled(&rule.resources),
            verbs: rule.verbs.clone(),
        })
        .collect()
}

/// Content in the form in which equal content looks equal.
pub fn normalized(content: &Content) -> Content {
    match content {
        Content::Rules(rules) => Content::Rules(without_empty_lists(rules)),
        Content::Binding(role, subjects) => {
            let subjects = subjects.iter().cloned().map(|subject| Subject {
                // The API server fills it in.
                api_group: subject
                    .api_group
                    .filter(|group| !group.is_empty())
                    .or_else(|| (subject.kind != "ServiceAccount").then(|| RBAC_GROUP.into())),
                ..subject
            });
            Content::Binding(role.clone(), subjects.collect())
        }
    }
}

/// Whether two manifests of one object grant the same, however the rest of them is written.
pub fn grants_the_same(one: &TypedManifest, other: &TypedManifest) -> bool {
    match (&one.body, &other.body) {
        (Body::Object(one), Body::Object(other)) => normalized(one) == normalized(other),
        (Body::Grant(one), Body::Grant(other)) => {
            let normalized = |grant: &Grant| Grant {
                content: normalized(&grant.content),
                ..grant.clone()
            };
            normalized(one) == normalized(other)
        }
        (Body::Stub, Body::Stub) => true,
        _ => false,
    }
}

/// How the agent treats the manifest of an item, if not by default.
pub fn config(item: &Item) -> Option<ManifestConfig> {
    match &item.manifest.body {
        Body::Object(_) => None,
        Body::Grant(_) => Some(grant_config(&item.id.name.name)),
        Body::Stub => Some(stub_config(&item.id)),
    }
}

/// The agent reports what became of a grant, as soon as it changes.
fn grant_config(name: &str) -> ManifestConfig {
    let path = |name: &str, path: &str| JsonPath {
        name: name.into(),
        version: String::new(),
        path: path.into(),
    };
    ManifestConfig {
        resource_identifier: ResourceIdentifier {
            group: "writ.dev".into(),
            resource: "namespacegrants".into(),
            name: name.into(),
            namespace: String::new(),
        },
        feedback_rules: vec![FeedbackRule {
            type_: FeedbackType::JsonPaths,
            json_paths: vec![
                path("generation", ".metadata.generation"),
                path("observedGeneration", ".status.observedGeneration"),
                path("selected", ".status.selected"),
                path("ready", ".status.ready"),
                path("summary", ".status.summary"),
                path("rolesMissing", ".status.rolesMissing"),
            ],
        }],
        feedback_scrape_type: ScrapeType::Watch,
        ..ManifestConfig::default()
    }
}

/// The agent reports whether the role exists, and never writes it.
fn stub_config(id: &ObjectId) -> ManifestConfig {
    let resource = if id.name.namespace.is_empty() {
        "clusterroles"
    } else {
        "roles"
    };
    ManifestConfig {
        resource_identifier: ResourceIdentifier {
            group: RBAC_GROUP.into(),
            resource: resource.into(),
            name: id.name.name.to_string(),
            namespace: id.name.namespace.to_string(),
        },
        update_strategy: Some(UpdateStrategy {
            type_: UpdateStrategyType::ReadOnly,
            ..UpdateStrategy::default()
        }),
        ..ManifestConfig::default()
    }
}

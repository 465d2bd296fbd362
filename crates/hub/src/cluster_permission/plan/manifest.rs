//! The manifests of a work: roles, bindings, namespace grants, and stubs of roles that are only looked at.

use std::fmt::Write as _;

use k8s_openapi::{
    api::rbac::v1::{self as rbac, PolicyRule, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use writ_api::{
    rbac::cluster_permission::RBAC_GROUP,
    work::{
        FeedbackRule, FeedbackType, JsonPath, ManifestConfig, ResourceIdentifier, ScrapeType, UpdateStrategy,
        UpdateStrategyType,
    },
    writ::{NamespaceGrant, namespace_grant::NamespaceGrantSpec},
};

use super::build::Id;

/// What a role or a binding holds.
#[derive(Clone, Copy, Debug)]
pub enum Content<'a> {
    /// A Role or a ClusterRole.
    Rules(&'a [PolicyRule]),
    /// A RoleBinding or a ClusterRoleBinding.
    Binding(&'a RoleRef, &'a [Subject]),
}

impl<'a> Content<'a> {
    /// Whether it grants anything to anybody.
    pub fn grants(&self) -> bool {
        !matches!(self, Self::Binding(_, []))
    }

    /// The same with these subjects, if any are given; `None` if it then grants nothing.
    pub fn with(self, subjects: Option<&'a [Subject]>) -> Option<Self> {
        match (self, subjects) {
            (Self::Binding(_, _), Some([])) => None,
            (Self::Binding(role, _), Some(subjects)) => Some(Self::Binding(role, subjects)),
            _ => Some(self),
        }
    }
}

/// A role or a binding.
pub fn object(metadata: ObjectMeta, namespaced: bool, content: Content<'_>) -> Value {
    match (content, namespaced) {
        (Content::Rules(rules), true) => json!(rbac::Role {
            metadata,
            rules: Some(without_empty_lists(rules)),
        }),
        (Content::Rules(rules), false) => json!(rbac::ClusterRole {
            metadata,
            rules: Some(without_empty_lists(rules)),
            aggregation_rule: None,
        }),
        (Content::Binding(role, subjects), true) => json!(rbac::RoleBinding {
            metadata,
            role_ref: role.clone(),
            subjects: Some(subjects.to_vec()),
        }),
        (Content::Binding(role, subjects), false) => json!(rbac::ClusterRoleBinding {
            metadata,
            role_ref: role.clone(),
            subjects: Some(subjects.to_vec()),
        }),
    }
}

/// Rules as they are delivered. An empty list says the same as none, and what means the same shall look the same: else two
/// permissions would be in conflict over nothing.
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

/// What a permission asks of its grants.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Take over what was there before.
    pub adopt: bool,
    /// Report roles that are not there.
    pub validate: bool,
}

/// A grant that the agent expands.
pub fn grant(
    metadata: ObjectMeta,
    name: &str,
    labels: &LabelSelector,
    asked: Asked,
    content: Content<'_>,
) -> Value {
    let mut spec = NamespaceGrantSpec {
        namespace_selector: labels.clone(),
        name: name.into(),
        adopt: asked.adopt.then_some(true),
        ..NamespaceGrantSpec::default()
    };
    match content {
        Content::Rules(rules) => spec.rules = Some(without_empty_lists(rules)),
        Content::Binding(role, subjects) => {
            spec.validate = (asked.validate && role.kind == "Role").then_some(true);
            spec.role_ref = Some(role.clone());
            spec.subjects = subjects.to_vec();
        }
    }
    json!(NamespaceGrant {
        metadata,
        spec,
        status: None,
    })
}

/// Eight hexadecimal digits that tell a new grant of a permission from the others: what it selects and what it makes, not
/// its place in the list, so that entries can be inserted and removed without a gap.
pub fn grant_suffix(kind: &str, name: &str, labels: &LabelSelector, salt: u32) -> String {
    let mut hash = Sha256::new();
    hash.update(json!(labels).to_string());
    hash.update(format!("\n{kind}\n{name}"));
    if salt > 0 {
        hash.update(format!("\n{salt}"));
    }
    let mut digits = String::new();
    for byte in hash.finalize().iter().take(4) {
        // Writing to a String cannot fail.
        let _ = write!(digits, "{byte:02x}");
    }
    digits
}

/// Tells the agent to report what became of a grant, as soon as it changes.
pub fn grant_config(name: &str) -> ManifestConfig {
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

/// A role that is only looked at.
pub fn stub(id: &Id) -> (Value, ManifestConfig) {
    let metadata = ObjectMeta {
        name: Some(id.name.clone()),
        namespace: Some(id.namespace.clone()).filter(|ns| !ns.is_empty()),
        ..ObjectMeta::default()
    };
    let manifest = json!({ "apiVersion": format!("{RBAC_GROUP}/v1"), "kind": id.kind, "metadata": metadata });
    let resource = if id.namespace.is_empty() {
        "clusterroles"
    } else {
        "roles"
    };
    let config = ManifestConfig {
        resource_identifier: ResourceIdentifier {
            group: RBAC_GROUP.into(),
            resource: resource.into(),
            name: id.name.clone(),
            namespace: id.namespace.clone(),
        },
        update_strategy: Some(UpdateStrategy {
            type_: UpdateStrategyType::ReadOnly,
            ..UpdateStrategy::default()
        }),
        ..ManifestConfig::default()
    };
    (manifest, config)
}

/// A part of a manifest, if it is there and can be understood.
pub fn parse<T: serde::de::DeserializeOwned>(part: Option<&Value>) -> Option<T> {
    serde_json::from_value(part?.clone()).ok()
}

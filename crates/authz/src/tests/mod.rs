//! Tables against the public functions, and properties against a plain model.

mod allows;
mod covers;
mod escalation;
mod explain;
pub(crate) mod generate;
mod index;
pub(crate) mod model;
mod properties;
mod queries;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding};
use serde_json::{Value, json};

use crate::{Attributes, Index, ResourceAttributes};

/// A rule in short: `get,list apps deployments,pods/log name1,name2`; `-` for the core group or for none.
pub(crate) fn rule(text: &str) -> PolicyRule {
    let mut parts = text.split(' ').map(|part| {
        let words = part
            .split(',')
            .map(|word| if word == "-" { "" } else { word }.to_owned());
        words.collect::<Vec<_>>()
    });
    PolicyRule {
        verbs: parts.next().unwrap(),
        api_groups: parts.next(),
        resources: parts.next(),
        resource_names: parts.next(),
        non_resource_urls: None,
    }
}

/// A rule for URLs in short: `get /healthz,/version/*`.
pub(crate) fn urls(text: &str) -> PolicyRule {
    let (verbs, urls) = text.split_once(' ').unwrap();
    let words = |part: &str| part.split(',').map(str::to_owned).collect::<Vec<_>>();
    PolicyRule {
        verbs: words(verbs),
        non_resource_urls: Some(words(urls)),
        ..PolicyRule::default()
    }
}

fn from<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(crate) fn role(namespace: &str, name: &str, rules: &[PolicyRule]) -> Role {
    from(json!({"metadata": {"name": name, "namespace": namespace}, "rules": rules}))
}

pub(crate) fn cluster_role(name: &str, rules: &[PolicyRule]) -> ClusterRole {
    from(json!({"metadata": {"name": name}, "rules": rules}))
}

pub(crate) fn labelled(mut role: ClusterRole, key: &str, value: &str) -> ClusterRole {
    role.metadata
        .labels
        .get_or_insert_default()
        .insert(key.to_owned(), value.to_owned());
    role
}

/// An aggregated ClusterRole with these selectors and stored rules.
pub(crate) fn aggregated(name: &str, selectors: &Value, stored: &[PolicyRule]) -> ClusterRole {
    from(json!({
        "metadata": {"name": name},
        "aggregationRule": {"clusterRoleSelectors": selectors},
        "rules": stored,
    }))
}

/// A subject in short: `user:alice`, `group:dev`, `sa:name` or `sa:namespace/name`.
fn subject(text: &str) -> Value {
    let api_group = "rbac.authorization.k8s.io";
    match text.split_once(':').unwrap() {
        ("user", name) => json!({"kind": "User", "apiGroup": api_group, "name": name}),
        ("group", name) => json!({"kind": "Group", "apiGroup": api_group, "name": name}),
        ("sa", name) => match name.split_once('/') {
            Some((namespace, name)) => {
                json!({"kind": "ServiceAccount", "namespace": namespace, "name": name})
            }
            None => json!({"kind": "ServiceAccount", "name": name}),
        },
        (kind, name) => json!({"kind": kind, "name": name}),
    }
}

/// A role reference in short: `Role:name` or `ClusterRole:name`.
fn role_ref(text: &str) -> Value {
    let (kind, name) = text.split_once(':').unwrap();
    json!({"kind": kind, "apiGroup": "rbac.authorization.k8s.io", "name": name})
}

pub(crate) fn binding(namespace: &str, name: &str, role: &str, subjects: &[&str]) -> RoleBinding {
    from(json!({
        "metadata": {"name": name, "namespace": namespace},
        "roleRef": role_ref(role),
        "subjects": subjects.iter().map(|text| subject(text)).collect::<Vec<_>>(),
    }))
}

pub(crate) fn cluster_binding(name: &str, role: &str, subjects: &[&str]) -> ClusterRoleBinding {
    from(json!({
        "metadata": {"name": name},
        "roleRef": role_ref(role),
        "subjects": subjects.iter().map(|text| subject(text)).collect::<Vec<_>>(),
    }))
}

/// A request in short: `get apps deployments/scale ns name`, `-` for empty, or `get /path`.
pub(crate) fn ask(text: &str) -> Attributes<'_> {
    let words: Vec<_> = text
        .split(' ')
        .map(|word| if word == "-" { "" } else { word })
        .collect();
    let word = |at: usize| words.get(at).copied().unwrap_or_default();
    if word(1).starts_with('/') {
        return Attributes::non_resource(word(0), word(1));
    }
    let (resource, subresource) = word(2).split_once('/').unwrap_or((word(2), ""));
    ResourceAttributes {
        verb: word(0),
        group: word(1),
        resource,
        subresource,
        namespace: word(3),
        name: word(4),
    }
    .into()
}

pub(crate) fn allows(index: &Index, user: &str, groups: &[&str], text: &str) -> bool {
    index.allows(user, groups, &ask(text)).allowed()
}

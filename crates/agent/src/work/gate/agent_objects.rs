//! The agent's own objects: no executor may touch them, whatever RBAC says.

use k8s_openapi::api::rbac::v1::Subject;
use kube::core::{Selector, SelectorExt as _};
use serde_json::Value;
use writ_api::writ::NamespaceGrant;
use writ_authz::Kind;
use writ_runtime::segment;

use super::lookup::EvaluationInput;
use crate::work::{
    model::{RbacId, TargetObject},
    plan::rbac::{is_namespace_grant, rbac_id},
};

/// The label that every namespace has.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Why this object is the agent's own, if it is.
pub fn why_protected(target: &TargetObject, input: &EvaluationInput<'_>) -> Option<String> {
    let agent = input.agent;
    let resource = &target.kind.resource;
    // On OpenShift a Project is another view of a Namespace, and a ProjectRequest makes one.
    let is_namespace = matches!(
        (resource.group.as_str(), resource.plural.as_str()),
        ("", "namespaces") | ("project.openshift.io", "projects" | "projectrequests")
    );
    let namespace = if is_namespace {
        &target.name
    } else {
        &target.namespace
    };
    if agent.namespaces.contains(namespace) {
        return Some(format!("namespace {namespace} is the agent's own"));
    }
    if is_namespace_grant(target) {
        return why_grant_is_protected(target, input);
    }
    let id = rbac_id(target)?;
    if input.rbac.belongs_to(&id, agent) {
        return Some(format!(
            "{} {} is what the agent's own rights rest on",
            resource.kind, target.name
        ));
    }
    why_subjects_are_protected(target, input, &id, target.object.get("subjects"))
}

fn why_subjects_are_protected(
    target: &TargetObject,
    input: &EvaluationInput<'_>,
    binding: &RbacId,
    subjects: Option<&Value>,
) -> Option<String> {
    let subjects: Vec<Subject> = subjects
        .cloned()
        .and_then(|subjects| serde_json::from_value(subjects).ok())
        .unwrap_or_default();
    input.agent.is_named(binding, &subjects).then(|| {
        format!(
            "{} {} names the agent itself",
            target.kind.resource.kind, target.name
        )
    })
}

/// A grant makes roles or bindings wherever its selector selects. It may not select the agent's namespace, name the agent,
/// or replace what the agent's rights rest on.
fn why_grant_is_protected(target: &TargetObject, input: &EvaluationInput<'_>) -> Option<String> {
    let agent = input.agent;
    let grant: NamespaceGrant = match serde_json::from_value(target.object.clone()) {
        Ok(grant) => grant,
        Err(error) => return Some(format!("the NamespaceGrant cannot be understood: {error}")),
    };
    if let Err(problem) = segment::check("spec.name", &grant.spec.name) {
        return Some(problem);
    }
    let selector = match Selector::try_from(grant.spec.namespace_selector) {
        Ok(selector) => selector,
        Err(error) => return Some(format!("spec.namespaceSelector cannot be understood: {error}")),
    };
    for own in &agent.namespaces {
        let mut labels = input.rbac.own_labels(own);
        labels.insert(NAME_LABEL.into(), own.clone());
        if selector.matches(&labels) {
            return Some(format!(
                "it selects namespace {own}, which is the agent's own; leave it out with the matchExpression \
                 {{key: {NAME_LABEL}, operator: NotIn, values: [{own}]}}"
            ));
        }
    }
    let kind = if grant.spec.rules.is_some() {
        Kind::Role
    } else {
        Kind::RoleBinding
    };
    if input.rbac.name_belongs_to(kind, &grant.spec.name, agent) {
        return Some(format!(
            "a {kind} {:?} is what the agent's own rights rest on",
            grant.spec.name
        ));
    }
    let binding = (Kind::RoleBinding, String::new(), grant.spec.name);
    why_subjects_are_protected(target, input, &binding, target.object.pointer("/spec/subjects"))
}

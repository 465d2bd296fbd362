//! What is the agent's own: nobody touches it under a named executor, whatever RBAC says.

use k8s_openapi::api::rbac::v1::Subject;
use kube::core::{Selector, SelectorExt as _};
use serde_json::Value;
use writ_api::writ::NamespaceGrant;
use writ_authz::Kind;
use writ_runtime::segment;

use super::{escalation, plan::Inputs, rbac::Place};
use crate::work::plan::Target;

/// The label that every namespace has.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Why this object is the agent's own, if it is.
pub fn reason(target: &Target, inputs: &Inputs<'_>) -> Option<String> {
    let agent = inputs.agent;
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
    if escalation::is_namespace_grant(target) {
        return namespace_grant(target, inputs);
    }
    let place = escalation::place(target)?;
    if inputs.rbac.belongs_to(&place, agent) {
        return Some(format!(
            "{} {} is what the agent's own rights rest on",
            resource.kind, target.name
        ));
    }
    names_agent(target, inputs, &place, target.object.get("subjects"))
}

fn names_agent(
    target: &Target,
    inputs: &Inputs<'_>,
    place: &Place,
    subjects: Option<&Value>,
) -> Option<String> {
    let subjects: Vec<Subject> = subjects
        .cloned()
        .and_then(|subjects| serde_json::from_value(subjects).ok())
        .unwrap_or_default();
    inputs.agent.is_named(place, &subjects).then(|| {
        format!(
            "{} {} names the agent itself",
            target.kind.resource.kind, target.name
        )
    })
}

/// A grant makes roles or bindings wherever its selector selects: not in the agent's namespace, not to the agent, and
/// not in place of what the agent's rights rest on.
fn namespace_grant(target: &Target, inputs: &Inputs<'_>) -> Option<String> {
    let agent = inputs.agent;
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
        let mut labels = inputs.rbac.own_labels(own);
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
    if inputs.rbac.name_belongs_to(kind, &grant.spec.name, agent) {
        return Some(format!(
            "a {kind} {:?} is what the agent's own rights rest on",
            grant.spec.name
        ));
    }
    let place = (Kind::RoleBinding, String::new(), grant.spec.name);
    names_agent(target, inputs, &place, target.object.pointer("/spec/subjects"))
}

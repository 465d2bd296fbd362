//! A NamespaceGrant, read: what it makes, and where it is in force.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::{
    ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use writ_api::writ::{
    BOUND_ROLE_ANNOTATION, BOUND_ROLE_OWN, NamespaceGrant, namespace_grant::NamespaceGrantSpec,
};

use super::{
    model::{Active, Content, Live, Objects, RBAC_GROUP},
    object::Kind,
};

impl Content {
    /// The content that this spec makes, with the defaults that the API server would fill in.
    pub fn of(spec: &NamespaceGrantSpec) -> Option<Self> {
        if let Some(rules) = &spec.rules {
            return Some(Self::Rules(
                rules.iter().cloned().map(without_empty_lists).collect(),
            ));
        }
        let mut role = spec.role_ref.clone()?;
        role.api_group = Some(RBAC_GROUP.into());
        let subjects = spec.subjects.iter().cloned().map(|mut subject| {
            subject.api_group = subject.api_group.filter(|group| !group.is_empty());
            if subject.kind != "ServiceAccount" && subject.api_group.is_none() {
                subject.api_group = Some(RBAC_GROUP.into());
            }
            subject.namespace = subject.namespace.filter(|namespace| !namespace.is_empty());
            subject
        });
        Some(Self::Binding(role, subjects.collect()))
    }

    /// The kind that holds it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Rules(_) => Kind::Role,
            Self::Binding(..) => Kind::RoleBinding,
        }
    }
}

/// As the API server returns a rule: without empty lists.
fn without_empty_lists(rule: PolicyRule) -> PolicyRule {
    let filled = |list: Option<Vec<String>>| list.filter(|list| !list.is_empty());
    PolicyRule {
        api_groups: filled(rule.api_groups),
        non_resource_urls: filled(rule.non_resource_urls),
        resource_names: filled(rule.resource_names),
        resources: filled(rule.resources),
        verbs: rule.verbs,
    }
}

impl Active {
    /// A grant as it was read.
    pub fn new(grant: NamespaceGrant) -> Self {
        let selector = selector(&grant.spec);
        let content = Content::of(&grant.spec).filter(|_| !is_built_in(&grant.spec.name));
        Self {
            grant,
            selector,
            content,
        }
    }

    /// Why it makes nothing in any namespace, if so.
    pub fn invalid(&self) -> Option<&'static str> {
        if is_built_in(&self.grant.spec.name) {
            Some("a name that starts with system: belongs to Kubernetes: choose another name")
        } else if self.selector.is_none() || self.content.is_none() {
            Some("the selector or the role is invalid")
        } else {
            None
        }
    }

    /// The work of its permission: grants are named after it.
    pub fn work(&self) -> &str {
        let name = self.grant.metadata.name.as_deref().unwrap_or_default();
        name.rsplit_once('-').map_or(name, |(work, _)| work)
    }

    /// The Role that it binds, if it binds one.
    pub fn bound_role(&self) -> Option<&str> {
        match self.content.as_ref()? {
            Content::Binding(role, _) if role.kind == "Role" => Some(&role.name),
            _ => None,
        }
    }

    /// Returns true if it binds a Role of its own permission, and that Role is foreign here.
    pub fn binds_foreign_role(&self, live: &Objects) -> bool {
        let own = self.grant.annotations().get(BOUND_ROLE_ANNOTATION);
        let role = self
            .bound_role()
            .filter(|_| own.is_some_and(|own| own == BOUND_ROLE_OWN));
        role.is_some_and(|role| matches!(live.get(&(Kind::Role, role.to_owned())), Some(Live::Foreign)))
    }

    /// Returns true if it is in force in a namespace with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.grant.metadata.deletion_timestamp.is_none()
            && self.content.is_some()
            && self
                .selector
                .as_ref()
                .is_some_and(|selector| selector.matches(labels))
    }
}

/// A selector that can be evaluated. A selector with an unknown operator or without values selects nothing.
fn selector(spec: &NamespaceGrantSpec) -> Option<Selector> {
    let requirements = spec.namespace_selector.match_expressions.iter().flatten();
    let complete = requirements.clone().all(|r| {
        !matches!(r.operator.as_str(), "In" | "NotIn") || r.values.as_ref().is_some_and(|v| !v.is_empty())
    });
    Selector::try_from(spec.namespace_selector.clone())
        .ok()
        .filter(|_| complete)
}

/// Returns true for names of roles and bindings that belong to Kubernetes.
fn is_built_in(name: &str) -> bool {
    name.starts_with("system:")
}

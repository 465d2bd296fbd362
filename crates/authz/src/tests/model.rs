//! RBAC once more, as plainly as it can be said: lists, loops and texts. The properties compare the index with it, and
//! it can be asked what the answer would be without one feature.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use writ_authz::{Attributes, ResourceAttributes};

/// Objects that belong together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Policy {
    pub(crate) roles: Vec<Role>,
    pub(crate) cluster_roles: Vec<ClusterRole>,
    pub(crate) role_bindings: Vec<RoleBinding>,
    pub(crate) cluster_role_bindings: Vec<ClusterRoleBinding>,
}

/// A question with its own texts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    pub(crate) verb: String,
    pub(crate) group: String,
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) namespace: String,
    pub(crate) name: String,
    /// Set for a question about a path; then the fields of resources are empty.
    pub(crate) path: Option<String>,
}

impl Asked {
    pub(crate) fn attributes(&self) -> Attributes<'_> {
        match &self.path {
            Some(path) => Attributes::non_resource(&self.verb, path),
            None => Attributes::Resource(ResourceAttributes {
                verb: &self.verb,
                group: &self.group,
                resource: &self.resource,
                subresource: &self.subresource,
                namespace: &self.namespace,
                name: &self.name,
            }),
        }
    }
}

/// What can be taken away from RBAC. An answer is decided by a feature if it changes when the feature is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Feature {
    /// Rules for subresources grant nothing.
    SubresourceRules,
    /// A request for a subresource is taken for one of its resource.
    SubresourceRequests,
    /// Rules with names grant nothing.
    NamedRules,
    /// Names of rules are not looked at.
    NameChecks,
    /// A star is a text like any other.
    Wildcards,
    /// Aggregated ClusterRoles have no rules.
    Aggregation,
    /// Subjects of kind Group match nobody.
    Groups,
    /// Subjects of kind ServiceAccount match nobody.
    ServiceAccounts,
    /// The namespace of a ServiceAccount subject is not defaulted.
    DefaultedNamespace,
    /// Rules for URLs grant nothing.
    NonResourceUrls,
}

impl Feature {
    pub(crate) const ALL: [Self; 10] = [
        Self::SubresourceRules,
        Self::SubresourceRequests,
        Self::NamedRules,
        Self::NameChecks,
        Self::Wildcards,
        Self::Aggregation,
        Self::Groups,
        Self::ServiceAccounts,
        Self::DefaultedNamespace,
        Self::NonResourceUrls,
    ];

    /// The heading under which the answers are counted.
    pub(crate) fn heading(self) -> &'static str {
        match self {
            Self::SubresourceRules | Self::SubresourceRequests => "subresources",
            Self::NamedRules | Self::NameChecks => "resourceNames",
            Self::Wildcards => "wildcards",
            Self::Aggregation => "aggregation",
            Self::Groups => "groups",
            Self::ServiceAccounts => "ServiceAccounts",
            Self::DefaultedNamespace => "defaulted namespaces",
            Self::NonResourceUrls => "non-resource URLs",
        }
    }
}

fn list(part: Option<&Vec<String>>) -> &[String] {
    part.map_or(&[], Vec::as_slice)
}

impl Policy {
    pub(crate) fn allows(&self, asked: &Asked, without: Option<Feature>) -> bool {
        let in_namespace = |binding: &&RoleBinding| {
            asked.path.is_none()
                && !asked.namespace.is_empty()
                && binding.metadata.namespace.as_ref() == Some(&asked.namespace)
        };
        let wide = self
            .cluster_role_bindings
            .iter()
            .map(|one| (&one.subjects, &one.role_ref, ""));
        let local = self.role_bindings.iter().filter(in_namespace);
        let local = local.map(|one| (&one.subjects, &one.role_ref, asked.namespace.as_str()));
        wide.chain(local).any(|(subjects, role_ref, namespace)| {
            let reached = subjects
                .iter()
                .flatten()
                .any(|subject| reaches(subject, asked, namespace, without));
            reached
                && self
                    .rules_of(role_ref, namespace, without)
                    .iter()
                    .any(|rule| rule_allows(rule, asked, without))
        })
    }

    /// The headings of all features that decide the answer.
    pub(crate) fn decided_by(&self, asked: &Asked) -> BTreeSet<&'static str> {
        let answer = self.allows(asked, None);
        let decides = |feature: &Feature| self.allows(asked, Some(*feature)) != answer;
        Feature::ALL
            .into_iter()
            .filter(decides)
            .map(Feature::heading)
            .collect()
    }

    pub(crate) fn rules_of(
        &self,
        role: &RoleRef,
        namespace: &str,
        without: Option<Feature>,
    ) -> Vec<PolicyRule> {
        let mut rules = Vec::new();
        if role.kind == "ClusterRole" {
            self.collect(&role.name, without, &mut BTreeSet::new(), &mut rules);
        } else if role.kind == "Role" {
            let is_it = |have: &&Role| {
                have.metadata.name.as_ref() == Some(&role.name)
                    && have.metadata.namespace.as_deref() == Some(namespace)
            };
            rules.extend(
                self.roles
                    .iter()
                    .filter(is_it)
                    .flat_map(|role| role.rules.clone().unwrap_or_default()),
            );
        }
        rules
    }

    fn collect(
        &self,
        name: &str,
        without: Option<Feature>,
        seen: &mut BTreeSet<String>,
        rules: &mut Vec<PolicyRule>,
    ) {
        let found = self
            .cluster_roles
            .iter()
            .find(|role| role.metadata.name.as_deref() == Some(name));
        let Some(role) = found.filter(|_| seen.insert(name.to_owned())) else {
            return;
        };
        let Some(aggregation) = &role.aggregation_rule else {
            rules.extend(role.rules.iter().flatten().cloned());
            return;
        };
        if without == Some(Feature::Aggregation) {
            return;
        }
        for source in &self.cluster_roles {
            let labels = source.metadata.labels.clone().unwrap_or_default();
            let selectors = aggregation.cluster_role_selectors.iter().flatten();
            if selectors.into_iter().any(|selector| selects(selector, &labels)) {
                self.collect(
                    source.metadata.name.as_deref().unwrap_or_default(),
                    without,
                    seen,
                    rules,
                );
            }
        }
    }
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let expressions = selector.match_expressions.iter().flatten();
    selector
        .match_labels
        .iter()
        .flatten()
        .all(|(key, value)| labels.get(key) == Some(value))
        && expressions.into_iter().all(|wanted| {
            let has_value = |value: &String| list(wanted.values.as_ref()).contains(value);
            let value = labels.get(&wanted.key);
            match wanted.operator.as_str() {
                "In" => value.is_some_and(has_value),
                "NotIn" => !value.is_some_and(has_value),
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                other => panic!("operator {other}"),
            }
        })
}

fn reaches(subject: &Subject, asked: &Asked, binding_namespace: &str, without: Option<Feature>) -> bool {
    match subject.kind.as_str() {
        "User" => subject.name == asked.user,
        "Group" => without != Some(Feature::Groups) && asked.groups.contains(&subject.name),
        "ServiceAccount" => {
            let own = subject.namespace.as_deref().unwrap_or_default();
            let default = if without == Some(Feature::DefaultedNamespace) {
                ""
            } else {
                binding_namespace
            };
            let namespace = if own.is_empty() { default } else { own };
            without != Some(Feature::ServiceAccounts)
                && !namespace.is_empty()
                && asked.user == format!("system:serviceaccount:{namespace}:{}", subject.name)
        }
        _ => false,
    }
}

fn rule_allows(rule: &PolicyRule, asked: &Asked, without: Option<Feature>) -> bool {
    let star = |text: &String| text == "*" && without != Some(Feature::Wildcards);
    let has = |part: &[String], wanted: &str| part.iter().any(|text| star(text) || text == wanted);
    if !has(&rule.verbs, &asked.verb) {
        return false;
    }
    if let Some(path) = &asked.path {
        let url_allows = |url: &String| {
            let open = url.ends_with('*') && without != Some(Feature::Wildcards);
            url == path || (open && path.starts_with(url.trim_end_matches('*')))
        };
        return without != Some(Feature::NonResourceUrls)
            && list(rule.non_resource_urls.as_ref()).iter().any(url_allows);
    }
    let ignore_subresource = without == Some(Feature::SubresourceRequests);
    let subresource = if ignore_subresource {
        ""
    } else {
        asked.subresource.as_str()
    };
    let resource_allows = |text: &String| match text.split_once('/') {
        Some(_) if without == Some(Feature::SubresourceRules) => false,
        Some(("*", of)) => {
            without != Some(Feature::Wildcards) && !subresource.is_empty() && of == subresource
                || (asked.resource == "*" && of == subresource)
        }
        Some((resource, of)) => resource == asked.resource && of == subresource,
        None => star(text) || (*text == asked.resource && subresource.is_empty()),
    };
    let names = list(rule.resource_names.as_ref());
    let name_allows = match without {
        Some(Feature::NamedRules) => names.is_empty(),
        Some(Feature::NameChecks) => true,
        _ => names.is_empty() || names.contains(&asked.name),
    };
    has(list(rule.api_groups.as_ref()), &asked.group)
        && list(rule.resources.as_ref()).iter().any(resource_allows)
        && name_allows
}

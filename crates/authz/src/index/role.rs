//! A compiled role.

use k8s_openapi::api::rbac::v1::{ClusterRole, PolicyRule};

use super::Id;
use crate::names::Names;
use crate::rule::Rule;
use crate::selector::{Labels, Selector};

#[derive(Clone, Debug)]
pub(crate) struct Role {
    id: Id,
    pub(crate) rules: Box<[Rule]>,
    /// Empty for Roles: only ClusterRoles are selected.
    pub(super) labels: Labels,
    /// What is aggregated. Nothing where the role is not aggregated, or where a selector is not valid: then the
    /// controller leaves the stored rules alone, and so do we.
    pub(crate) aggregation: Option<Box<[Selector]>>,
    /// Whether it has selectors at all, valid or not.
    pub(crate) has_selectors: bool,
}

impl Role {
    pub(super) fn compile(names: &mut Names, id: Id, rules: Option<&[PolicyRule]>) -> Self {
        Self {
            id,
            rules: rules
                .into_iter()
                .flatten()
                .map(|rule| Rule::compile(names, rule))
                .collect(),
            labels: Box::default(),
            aggregation: None,
            has_selectors: false,
        }
    }

    pub(super) fn compile_cluster(names: &mut Names, id: Id, role: &ClusterRole) -> Self {
        let labels = role.metadata.labels.iter().flatten();
        let labels = labels
            .map(|(key, value)| (names.take(key), names.take(value)))
            .collect();
        let selectors = role.aggregation_rule.as_ref().map(|aggregation| {
            let selectors = aggregation.cluster_role_selectors.iter().flatten();
            selectors
                .map(|selector| Selector::compile(names, selector))
                .collect::<Vec<_>>()
        });
        let has_selectors = selectors.as_ref().is_some_and(|selectors| !selectors.is_empty());
        let aggregation = selectors.and_then(|selectors| {
            if selectors.iter().all(Option::is_some) {
                return Some(selectors.into_iter().flatten().collect());
            }
            for selector in selectors.into_iter().flatten() {
                selector.release(names);
            }
            None
        });
        Self {
            labels,
            aggregation,
            has_selectors,
            ..Self::compile(names, id, role.rules.as_deref())
        }
    }

    pub(super) fn release(&self, names: &mut Names) {
        names.release(self.id.scope);
        names.release(self.id.name);
        for rule in &self.rules {
            rule.release(names);
        }
        for &(key, value) in &self.labels {
            names.release(key);
            names.release(value);
        }
        for selector in self.aggregation.iter().flatten() {
            selector.release(names);
        }
    }

    /// Whether this role, if aggregated, takes up a role with these labels.
    pub(super) fn selects(&self, labels: &Labels) -> bool {
        self.aggregation
            .iter()
            .flatten()
            .any(|selector| selector.matches(labels))
    }
}

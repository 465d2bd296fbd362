//! What `spec.manifestConfigs` and `spec.deleteOption` mean for one object.

use serde::Serialize;
use writ_api::work::{
    ConditionRule, DeleteOption, FeedbackRule, ManifestConfig, PropagationPolicy, UpdateStrategy,
};

/// What identifies an object to the rules of a work.
#[derive(Clone, Copy, Debug)]
pub struct Identity<'a> {
    /// The API group.
    pub group: &'a str,
    /// The resource, plural.
    pub resource: &'a str,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

/// The merged configuration of one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Config {
    /// How it is written.
    pub strategy: UpdateStrategy,
    /// What is reported.
    pub feedback: Vec<FeedbackRule>,
    /// The conditions to compute.
    pub conditions: Vec<ConditionRule>,
}

impl Config {
    /// Merges every entry that matches: for each attribute the first entry that sets it wins.
    pub fn of(entries: &[ManifestConfig], object: Identity<'_>) -> Self {
        let mut strategy = None;
        let mut config = Self::default();
        let matching = entries.iter().filter(|entry| {
            let id = &entry.resource_identifier;
            id.matches(object.group, object.resource, object.namespace, object.name)
        });
        for entry in matching {
            if strategy.is_none() {
                strategy.clone_from(&entry.update_strategy);
            }
            if config.feedback.is_empty() {
                config.feedback.clone_from(&entry.feedback_rules);
            }
            if config.conditions.is_empty() {
                config.conditions.clone_from(&entry.condition_rules);
            }
        }
        config.strategy = strategy.unwrap_or_default();
        config
    }

    /// Whether the object's content is needed for more than applying it.
    pub fn reads_content(&self) -> bool {
        !self.feedback.is_empty() || !self.conditions.is_empty()
    }
}

/// Whether the object goes when the work goes.
pub fn owned(option: Option<&DeleteOption>, object: Identity<'_>) -> bool {
    let Some(option) = option else { return true };
    match option.propagation_policy {
        PropagationPolicy::Foreground => true,
        PropagationPolicy::Orphan => false,
        PropagationPolicy::SelectivelyOrphan => !option
            .selectively_orphans
            .iter()
            .flat_map(|orphans| &orphans.orphaning_rules)
            .any(|rule| {
                rule.group == object.group
                    && rule.resource == object.resource
                    && rule.namespace == object.namespace
                    && rule.name == object.name
            }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use writ_api::work::{ScrapeType, UpdateStrategyType};

    use super::*;

    const OBJECT: Identity<'static> = Identity {
        group: "apps",
        resource: "deployments",
        namespace: "shop-eu",
        name: "web-1",
    };

    #[test]
    fn each_attribute_comes_from_the_first_entry_that_sets_it() {
        let entries: Vec<ManifestConfig> = serde_json::from_value(json!([
            {"resourceIdentifier": {"group": "apps", "resource": "deployments", "namespace": "other", "name": "*"},
             "updateStrategy": {"type": "ReadOnly"}},
            {"resourceIdentifier": {"group": "apps", "resource": "deployments", "namespace": "shop-*", "name": "web-*"},
             "feedbackRules": [{"type": "WellKnownStatus"}], "feedbackScrapeType": "Watch"},
            {"resourceIdentifier": {"group": "apps", "resource": "deployments", "namespace": "*", "name": "*"},
             "feedbackRules": [{"type": "JSONPaths"}], "updateStrategy": {"type": "CreateOnly"}},
        ]))
        .unwrap();
        assert_eq!(entries[1].feedback_scrape_type, ScrapeType::Watch);
        let config = Config::of(&entries, OBJECT);
        assert_eq!(config.strategy.type_, UpdateStrategyType::CreateOnly);
        assert_eq!(config.feedback, entries[1].feedback_rules);
        assert_eq!(Config::of(&[], OBJECT), Config::default());
    }

    #[test]
    fn an_orphaning_rule_is_exact() {
        let option = |value| serde_json::from_value::<DeleteOption>(value).unwrap();
        assert!(owned(None, OBJECT));
        assert!(owned(Some(&option(json!({}))), OBJECT));
        assert!(!owned(
            Some(&option(json!({"propagationPolicy": "Orphan"}))),
            OBJECT
        ));
        let keep = |name: &str| {
            option(
                json!({"propagationPolicy": "SelectivelyOrphan", "selectivelyOrphans": {"orphaningRules": [
                {"group": "apps", "resource": "deployments", "namespace": "shop-eu", "name": name}]}}),
            )
        };
        assert!(!owned(Some(&keep("web-1")), OBJECT));
        assert!(owned(Some(&keep("web-*")), OBJECT));
    }
}

//! What `spec.manifestConfigs` and `spec.deleteOption` mean for one object.

use writ_api::work::{DeleteOption, ManifestConfig, PropagationPolicy};

use crate::work::model::{ObjectConfig, ObjectIdentity};

/// Merges every entry that matches: for each attribute the first entry that sets it wins.
pub fn merge_configs(entries: &[ManifestConfig], object: ObjectIdentity<'_>) -> ObjectConfig {
    let mut strategy = None;
    let mut config = ObjectConfig::default();
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

/// Whether the object is deleted with the work, and not orphaned.
pub fn is_owned(option: Option<&DeleteOption>, object: ObjectIdentity<'_>) -> bool {
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

    const OBJECT: ObjectIdentity<'static> = ObjectIdentity {
        group: "apps",
        resource: "deployments",
        namespace: "shop-eu",
        name: "web-1",
    };

    #[test]
    fn attribute_set_twice_comes_from_the_first_entry() {
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
        let config = merge_configs(&entries, OBJECT);
        assert_eq!(config.strategy.type_, UpdateStrategyType::CreateOnly);
        assert_eq!(config.feedback, entries[1].feedback_rules);
        assert_eq!(merge_configs(&[], OBJECT), ObjectConfig::default());
    }

    #[test]
    fn orphaning_rule_matches_its_exact_name_only() {
        let option = |value| serde_json::from_value::<DeleteOption>(value).unwrap();
        assert!(is_owned(None, OBJECT));
        assert!(is_owned(Some(&option(json!({}))), OBJECT));
        assert!(!is_owned(
            Some(&option(json!({"propagationPolicy": "Orphan"}))),
            OBJECT
        ));
        let keep = |name: &str| {
            option(
                json!({"propagationPolicy": "SelectivelyOrphan", "selectivelyOrphans": {"orphaningRules": [
                {"group": "apps", "resource": "deployments", "namespace": "shop-eu", "name": name}]}}),
            )
        };
        assert!(!is_owned(Some(&keep("web-1")), OBJECT));
        assert!(is_owned(Some(&keep("web-*")), OBJECT));
    }
}

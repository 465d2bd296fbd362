//! Pure: condition rules that compute `Progressing` and `Degraded` for well-known kinds.

use serde_json::Value;
use writ_api::work::{
    ConditionRule, ConditionRuleType, ManifestConfig, ManifestWorkSpec, ResourceIdentifier,
};

/// The rules of one kind.
struct KindRules {
    api_version: &'static str,
    kind: &'static str,
    resource: &'static str,
    /// True until the object has reached its desired state.
    progressing: &'static str,
    /// True if the object will not reach it without a change.
    degraded: Option<&'static str>,
}

const RULES: [KindRules; 5] = [
    KindRules {
        api_version: "apps/v1",
        kind: "Deployment",
        resource: "deployments",
        progressing: "!(has(object.status) && has(object.status.observedGeneration) && object.status.observedGeneration >= object.metadata.generation \
         && (object.spec.replicas == 0 || (has(object.status.updatedReplicas) && object.status.updatedReplicas == object.spec.replicas \
         && has(object.status.availableReplicas) && object.status.availableReplicas >= object.spec.replicas \
         && object.status.replicas == object.status.updatedReplicas)))",
        degraded: Some(
            "has(object.status) && has(object.status.conditions) \
             && object.status.conditions.exists(c, c.type == 'Progressing' && c.status == 'False')",
        ),
    },
    KindRules {
        api_version: "apps/v1",
        kind: "StatefulSet",
        resource: "statefulsets",
        progressing: "!(has(object.status) && has(object.status.observedGeneration) && object.status.observedGeneration >= object.metadata.generation \
         && (object.spec.replicas == 0 || (has(object.status.updatedReplicas) && object.status.updatedReplicas >= object.spec.replicas \
         && has(object.status.readyReplicas) && object.status.readyReplicas >= object.spec.replicas)))",
        degraded: None,
    },
    KindRules {
        api_version: "apps/v1",
        kind: "DaemonSet",
        resource: "daemonsets",
        progressing: "!(has(object.status) && has(object.status.observedGeneration) && object.status.observedGeneration >= object.metadata.generation \
         && (object.status.desiredNumberScheduled == 0 || (has(object.status.updatedNumberScheduled) \
         && object.status.updatedNumberScheduled >= object.status.desiredNumberScheduled \
         && has(object.status.numberAvailable) && object.status.numberAvailable >= object.status.desiredNumberScheduled)))",
        degraded: None,
    },
    KindRules {
        api_version: "batch/v1",
        kind: "Job",
        resource: "jobs",
        // A failed Job never completes: it stays progressing, and is degraded.
        progressing: "!(has(object.status) && has(object.status.conditions) \
         && object.status.conditions.exists(c, c.type == 'Complete' && c.status == 'True'))",
        degraded: Some(
            "has(object.status) && has(object.status.conditions) \
             && object.status.conditions.exists(c, c.type == 'Failed' && c.status == 'True')",
        ),
    },
    KindRules {
        api_version: "v1",
        kind: "Pod",
        resource: "pods",
        // A Pod that serves has to be ready, a Pod that runs to completion has to succeed.
        progressing: "!(has(object.status) && has(object.status.phase) && (object.status.phase == 'Succeeded' \
         || (object.status.phase == 'Running' && has(object.status.conditions) \
         && object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True'))))",
        degraded: Some("has(object.status) && has(object.status.phase) && object.status.phase == 'Failed'"),
    },
];

/// The template, with rules for every manifest of a well-known kind that has no condition rules.
pub fn with_rules(template: &ManifestWorkSpec) -> ManifestWorkSpec {
    let mut spec = template.clone();
    for manifest in &template.workload.manifests {
        let text = |pointer: &str| {
            manifest
                .0
                .pointer(pointer)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let known = RULES
            .iter()
            .find(|known| text("/apiVersion") == known.api_version && text("/kind") == known.kind);
        let Some(known) = known else {
            continue;
        };
        // The core group has no name.
        let group = known.api_version.split_once('/').map_or("", |(group, _)| group);
        let resource = known.resource;
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        // Rules in the template take precedence.
        let has_rules = template.manifest_configs.iter().any(|config| {
            let id = &config.resource_identifier;
            !config.condition_rules.is_empty() && id.matches(group, resource, &namespace, &name)
        });
        if has_rules {
            continue;
        }
        let rule = |condition: &str, expression: &str| ConditionRule {
            condition: condition.into(),
            type_: ConditionRuleType::Cel,
            cel_expressions: vec![expression.into()],
            message: String::new(),
            message_expression: String::new(),
        };
        let degraded = known.degraded.map(|expression| rule("Degraded", expression));
        spec.manifest_configs.push(ManifestConfig {
            resource_identifier: ResourceIdentifier {
                group: group.into(),
                resource: resource.into(),
                name,
                namespace,
            },
            condition_rules: [rule("Progressing", known.progressing)]
                .into_iter()
                .chain(degraded)
                .collect(),
            ..ManifestConfig::default()
        });
    }
    spec
}

//! Pure: rules that tell whether an object of a known kind is still on its way.

use serde_json::Value;
use writ_api::work::{
    ConditionRule, ConditionRuleType, ManifestConfig, ManifestWorkSpec, ResourceIdentifier,
};

/// True while it is on its way, for each known kind: apiVersion, kind, resource, expression.
const KNOWN: [(&str, &str, &str, &str); 4] = [
    (
        "apps/v1",
        "Deployment",
        "deployments",
        "!(has(object.status) && has(object.status.observedGeneration) && object.status.observedGeneration >= object.metadata.generation \
         && (object.spec.replicas == 0 || (has(object.status.updatedReplicas) && object.status.updatedReplicas == object.spec.replicas \
         && has(object.status.availableReplicas) && object.status.availableReplicas >= object.spec.replicas \
         && object.status.replicas == object.status.updatedReplicas)))",
    ),
    (
        "apps/v1",
        "StatefulSet",
        "statefulsets",
        "!(has(object.status) && has(object.status.observedGeneration) && object.status.observedGeneration >= object.metadata.generation \
         && (object.spec.replicas == 0 || (has(object.status.updatedReplicas) && object.status.updatedReplicas >= object.spec.replicas \
         && has(object.status.readyReplicas) && object.status.readyReplicas >= object.spec.replicas)))",
    ),
    (
        "apps/v1",
        "DaemonSet",
        "daemonsets",
        "!(has(object.status) && has(object.status.observedGeneration) && object.status.observedGeneration >= object.metadata.generation \
         && (object.status.desiredNumberScheduled == 0 || (has(object.status.updatedNumberScheduled) \
         && object.status.updatedNumberScheduled >= object.status.desiredNumberScheduled \
         && has(object.status.numberAvailable) && object.status.numberAvailable >= object.status.desiredNumberScheduled)))",
    ),
    (
        "batch/v1",
        "Job",
        "jobs",
        "!(has(object.status) && has(object.status.conditions) \
         && object.status.conditions.exists(c, (c.type == 'Complete' || c.type == 'Failed') && c.status == 'True'))",
    ),
];

/// The template, with a rule for every object of a known kind that has no condition rules of its own.
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
        let known = KNOWN
            .iter()
            .find(|(version, kind, ..)| text("/apiVersion") == *version && text("/kind") == *kind);
        let Some((version, _, resource, expression)) = known else {
            continue;
        };
        let group = version.split('/').next().unwrap_or_default();
        // Whoever writes rules for a resource knows better.
        let has_rules = template.manifest_configs.iter().any(|config| {
            config.resource_identifier.group == group
                && config.resource_identifier.resource == *resource
                && !config.condition_rules.is_empty()
        });
        if has_rules {
            continue;
        }
        spec.manifest_configs.push(ManifestConfig {
            resource_identifier: ResourceIdentifier {
                group: group.into(),
                resource: (*resource).into(),
                name: text("/metadata/name"),
                namespace: text("/metadata/namespace"),
            },
            condition_rules: vec![ConditionRule {
                condition: "Progressing".into(),
                type_: ConditionRuleType::Cel,
                cel_expressions: vec![(*expression).into()],
                message: String::new(),
                message_expression: String::new(),
            }],
            ..ManifestConfig::default()
        });
    }
    spec
}

//! Pure: checks of the spec of a work that hold for every requester.

use std::collections::BTreeSet;

use serde_json::Value;
use writ_api::work::{
    ConditionRule, ConditionRuleType, FeedbackType, MAX_RULE_EXPRESSIONS, ManifestConfig, ManifestWorkSpec,
    PropagationPolicy, RESERVED_CONDITIONS,
};
use writ_runtime::{cel::Expression, path::Path, segment};

/// Checks the spec; the error names the field, the value and the way out.
pub fn check(spec: &ManifestWorkSpec, limit: usize) -> Result<(), String> {
    let manifests = &spec.workload.manifests;
    if manifests.is_empty() {
        return Err("manifests should not be empty".into());
    }
    let size: usize = manifests.iter().map(|manifest| stored_size(&manifest.0)).sum();
    if size > limit {
        return Err(format!(
            "the size of manifests is {size} bytes which exceeds the {limit} limit"
        ));
    }
    let mut known = BTreeSet::new();
    for (index, manifest) in manifests.iter().enumerate() {
        let identity = identity(&manifest.0).map_err(|problem| match problem {
            Problem::AsUpstream(message) => message.to_owned(),
            Problem::Ours(message) => format!("spec.workload.manifests[{index}]: {message}"),
        })?;
        if !known.insert(identity.clone()) {
            let (api_version, kind, namespace, name) = identity;
            let version = api_version.rsplit('/').next().unwrap_or_default();
            return Err(format!(
                "duplicate manifest for resource {namespace}/{name} with resource type {version}.{kind}"
            ));
        }
    }
    for (index, config) in spec.manifest_configs.iter().enumerate() {
        check_config(config).map_err(|problem| format!("spec.manifestConfigs[{index}].{problem}"))?;
    }
    check_deletion(spec)
}

/// The size of a manifest as OCM counts it: the bytes of its binary form.
fn stored_size(manifest: &Value) -> usize {
    let length = manifest.to_string().len();
    let mut varint = 1;
    let mut rest = length >> 7;
    while rest > 0 {
        varint += 1;
        rest >>= 7;
    }
    length + 1 + varint
}

enum Problem {
    AsUpstream(&'static str),
    Ours(String),
}

type Identity = (String, String, String, String);

fn identity(manifest: &Value) -> Result<Identity, Problem> {
    let text = |pointer: &str| {
        manifest
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    let (api_version, kind) = (text("/apiVersion"), text("/kind"));
    if api_version.is_empty() || kind.is_empty() {
        return Err(Problem::Ours("apiVersion and kind must be set".into()));
    }
    let name = text("/metadata/name");
    if name.is_empty() {
        return Err(Problem::AsUpstream("name must be set in manifest"));
    }
    if !text("/metadata/generateName").is_empty() {
        return Err(Problem::AsUpstream("generateName must not be set in manifest"));
    }
    let namespace = text("/metadata/namespace");
    // A name that is not exactly one segment of a URL path would make an agent request another object.
    let (group, version) = api_version.rsplit_once('/').unwrap_or(("", &api_version));
    for (field, part, optional) in [
        ("the group of apiVersion", group, true),
        ("the version of apiVersion", version, false),
        ("metadata.name", &name, false),
        ("metadata.namespace", &namespace, true),
    ] {
        if !(optional && part.is_empty()) {
            segment::check(field, part).map_err(Problem::Ours)?;
        }
    }
    Ok((api_version, kind, namespace, name))
}

fn check_config(config: &ManifestConfig) -> Result<(), String> {
    for (index, rule) in config.feedback_rules.iter().enumerate() {
        if rule.type_ == FeedbackType::JsonPaths && rule.json_paths.is_empty() {
            return Err(format!(
                "feedbackRules[{index}].jsonPaths is empty: name at least one path"
            ));
        }
        for path in &rule.json_paths {
            Path::jsonpath(&path.path)
                .map_err(|error| format!("feedbackRules[{index}].jsonPaths[{:?}]: {error}", path.name))?;
        }
    }
    let expressions = config.condition_rules.iter().flat_map(ConditionRule::expressions);
    let count = expressions.count();
    if count > MAX_RULE_EXPRESSIONS {
        return Err(format!(
            "conditionRules have {count} expressions in all, at most {MAX_RULE_EXPRESSIONS} are allowed"
        ));
    }
    for rule in &config.condition_rules {
        let place = format!("conditionRules[{:?}]", rule.condition);
        if RESERVED_CONDITIONS.contains(&rule.condition.as_str()) {
            return Err(format!(
                "{place}: this condition is the agent's own word: choose another name"
            ));
        }
        if rule.type_ == ConditionRuleType::Cel && rule.cel_expressions.is_empty() {
            return Err(format!(
                "{place}.celExpressions is empty: write at least one expression"
            ));
        }
        for expression in rule.expressions() {
            Expression::parse(expression).map_err(|error| {
                let start: String = expression.chars().take(200).collect();
                format!("{place}: {start:?} is not a CEL expression: {error}")
            })?;
        }
    }
    let fields = config
        .update_strategy
        .iter()
        .filter_map(|strategy| strategy.server_side_apply.as_ref())
        .flat_map(|apply| &apply.ignore_fields);
    for field in fields {
        let place = "updateStrategy.serverSideApply.ignoreFields";
        let paths = field
            .json_paths
            .iter()
            .map(|path| Path::jsonpath(path))
            .chain(field.json_pointers.iter().map(|path| Path::pointer(path)))
            .chain(field.jq_path_expressions.iter().map(|path| Path::jq(path)));
        let mut count = 0;
        for path in paths {
            path.map_err(|error| format!("{place}: {error}"))?;
            count += 1;
        }
        if count == 0 {
            return Err(format!(
                "{place}: an entry names no field: set jsonPaths, jsonPointers or jqPathExpressions"
            ));
        }
    }
    Ok(())
}

fn check_deletion(spec: &ManifestWorkSpec) -> Result<(), String> {
    let Some(option) = &spec.delete_option else {
        return Ok(());
    };
    if option.ttl_seconds_after_finished.is_some_and(|ttl| ttl < 0) {
        return Err("spec.deleteOption.ttlSecondsAfterFinished must not be negative".into());
    }
    if option.propagation_policy != PropagationPolicy::SelectivelyOrphan {
        return Ok(());
    }
    let place = "spec.deleteOption.selectivelyOrphans.orphaningRules";
    let rules: Vec<_> = option
        .selectively_orphans
        .iter()
        .flat_map(|orphans| &orphans.orphaning_rules)
        .collect();
    if rules.is_empty() {
        return Err(format!(
            "{place} is empty: name what to keep, or use propagationPolicy Foreground"
        ));
    }
    for rule in rules {
        if rule.name.contains('*') || rule.namespace.contains('*') {
            return Err(format!(
                "{place}: {}/{} holds a wildcard, but these rules are exact: write one rule per object",
                rule.namespace, rule.name
            ));
        }
        if rule.name.is_empty() || rule.resource.is_empty() {
            return Err(format!("{place}: resource and name must be set"));
        }
    }
    Ok(())
}

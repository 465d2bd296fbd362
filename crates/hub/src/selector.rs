//! Validation of selectors, with the same messages everywhere.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::Selector;

use crate::names::is_subdomain;

/// Reads a selector; `Err` says what no API server would accept in it. Such a selector would match nothing, or fail in
/// another reader.
pub fn compile(selector: &LabelSelector) -> Result<Selector, String> {
    for (key, value) in selector.match_labels.iter().flatten() {
        check(key, [value])?;
    }
    for requirement in selector.match_expressions.iter().flatten() {
        check_operator(requirement)?;
        check(&requirement.key, requirement.values.iter().flatten())?;
    }
    Selector::try_from(selector.clone()).map_err(|e| e.to_string())
}

fn check_operator(requirement: &LabelSelectorRequirement) -> Result<(), String> {
    let values = requirement.values.as_ref().map_or(0, Vec::len);
    let fits = match requirement.operator.as_str() {
        "In" | "NotIn" => values > 0,
        "Exists" | "DoesNotExist" => values == 0,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(format!(
        "operator {:?} on key {:?} with {values} values",
        requirement.operator, requirement.key
    ))
}

fn check<'a>(key: &str, values: impl IntoIterator<Item = &'a String>) -> Result<(), String> {
    if !is_label_key(key) {
        return Err(format!("{key:?} cannot be the key of a label"));
    }
    match values.into_iter().find(|value| !is_label_value(value)) {
        Some(value) => Err(format!("{value:?} on key {key:?} cannot be the value of a label")),
        None => Ok(()),
    }
}

/// Whether a label can have this key.
pub fn is_label_key(key: &str) -> bool {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    prefix.is_none_or(is_subdomain) && !name.is_empty() && is_label_value(name)
}

fn is_label_value(value: &str) -> bool {
    let edge = |c: Option<char>| c.is_none_or(|c| c.is_ascii_alphanumeric());
    value.len() <= 63
        && edge(value.chars().next())
        && edge(value.chars().next_back())
        && value
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
}

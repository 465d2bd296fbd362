//! What a review of access must say, and which of its selectors cannot be used.

use serde_json::{Value, json};

use crate::schema::{Cause, names};
use crate::selector::{FieldSelector, LabelSelector};

const ATTRIBUTES: &str = "spec.resourceAttributes";
/// What the server says of an object; a review may have no other metadata.
const MADE: [&str; 4] = ["namespace", "managedFields", "uid", "creationTimestamp"];

/// Who is asked about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum About<'a> {
    /// Whoever asks.
    Oneself,
    Anybody,
    /// Anybody, in this namespace.
    Within(&'a str),
}

fn given<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let empty =
        |value: &Value| value.is_null() || *value == json!("") || *value == json!([]) || *value == json!({});
    value.get(name).filter(|value| !empty(value))
}

fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value
        .get(name)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// Everything that is wrong with a review.
pub(super) fn problems(review: &Value, about: About<'_>) -> Vec<Cause> {
    let mut causes = Vec::new();
    let spec = review.get("spec").unwrap_or(&Value::Null);
    let part = |name: &str| spec.get(name).filter(|value| !value.is_null());
    let (resource, path) = (part("resourceAttributes"), part("nonResourceAttributes"));
    match (resource, path) {
        (Some(_), Some(path)) => causes.push(Cause::invalid(
            "spec.nonResourceAttributes",
            path,
            "cannot be specified in combination with resourceAttributes",
        )),
        (None, None) => causes.push(Cause::invalid(
            ATTRIBUTES,
            &Value::Null,
            "exactly one of nonResourceAttributes or resourceAttributes must be specified",
        )),
        _ => {}
    }
    if about != About::Oneself && text(spec, "user").is_empty() && list(spec, "groups").is_empty() {
        causes.push(Cause::invalid(
            "spec.user",
            &"".into(),
            "at least one of user or group must be specified",
        ));
    }
    if let Some(resource) = resource {
        causes.extend(selectors(resource));
    }
    let metadata = review.get("metadata").unwrap_or(&Value::Null);
    let named = metadata.as_object().into_iter().flatten();
    if named
        .map(|(name, _)| name.as_str())
        .any(|name| !MADE.contains(&name) && given(metadata, name).is_some())
    {
        let detail = match about {
            About::Within(_) => "must be empty except for namespace",
            _ => "must be empty",
        };
        causes.push(Cause::invalid("metadata", metadata, detail));
    }
    if let About::Within(namespace) = about {
        if let Some(resource) = resource.filter(|resource| text(resource, "namespace") != namespace) {
            causes.push(Cause::invalid(
                format!("{ATTRIBUTES}.namespace"),
                &text(resource, "namespace").into(),
                "must match metadata.namespace",
            ));
        }
        if let Some(path) = path {
            let detail = "disallowed on this kind of request";
            causes.push(Cause::invalid("spec.nonResourceAttributes", path, detail));
        }
    }
    causes
}

/// A selector is given as text or as requirements, not both.
fn selectors(attributes: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    for name in ["fieldSelector", "labelSelector"] {
        let Some(selector) = attributes.get(name).filter(|value| value.is_object()) else {
            continue;
        };
        let path = format!("{ATTRIBUTES}.{name}");
        let raw = given(selector, "rawSelector");
        let requirements = list(selector, "requirements");
        if let Some(raw) = raw.filter(|_| !requirements.is_empty()) {
            let detail = "may not specified at the same time as requirements";
            causes.push(Cause::invalid(format!("{path}.rawSelector"), raw, detail));
        }
        if raw.is_none() && requirements.is_empty() {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            causes.push(Cause::required(format!("{path}.requirements"), &why));
        }
        for (i, requirement) in requirements.iter().enumerate() {
            let path = format!("{path}.requirements[{i}]");
            causes.extend(one_requirement(requirement, name == "labelSelector", &path));
        }
    }
    causes
}

/// Operators that are not known yet are no mistake: a newer client may know them.
fn one_requirement(requirement: &Value, label: bool, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let (key, values) = (text(requirement, "key"), list(requirement, "values"));
    if !label && key.is_empty() {
        causes.push(Cause::required(format!("{path}.key"), "must be specified"));
    }
    match text(requirement, "operator") {
        "In" | "NotIn" if values.is_empty() => {
            let detail = "must be specified when `operator` is 'In' or 'NotIn'";
            causes.push(Cause::required(format!("{path}.values"), detail));
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            causes.push(Cause::forbidden(format!("{path}.values"), detail));
        }
        _ => {}
    }
    if !label {
        return causes;
    }
    for problem in names::qualified_name(key) {
        causes.push(Cause::invalid(format!("{path}.key"), &key.into(), &problem));
    }
    for (i, value) in values.iter().enumerate() {
        for problem in names::label_value(value.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(format!("{path}.values[{i}]"), value, &problem));
        }
    }
    causes
}

/// What is said about selectors that cannot be used, in part or at all.
pub(super) fn ignored(attributes: &Value) -> Option<String> {
    let said: Vec<String> = ["fieldSelector", "labelSelector"]
        .into_iter()
        .filter_map(|name| {
            let selector = attributes.get(name)?;
            let label = name == "labelSelector";
            let raw = text(selector, "rawSelector");
            let requirements = list(selector, "requirements");
            let bad = requirements.iter().filter(|one| !is_usable(one, label)).count();
            let how = if raw.is_empty() {
                match bad {
                    0 => return None,
                    all if all == requirements.len() => "ignored",
                    _ => "partially ignored",
                }
            } else {
                let good = if label {
                    LabelSelector::parse(raw).is_ok()
                } else {
                    FieldSelector::parse(raw).is_ok()
                };
                if good {
                    return None;
                }
                "ignored"
            };
            Some(format!("{ATTRIBUTES}.{name} {how} due to parse error"))
        })
        .collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// Fields can be compared with one value, and with nothing else.
fn is_usable(requirement: &Value, label: bool) -> bool {
    match text(requirement, "operator") {
        "In" | "NotIn" => label || list(requirement, "values").len() == 1,
        "Exists" | "DoesNotExist" => label,
        _ => false,
    }
}

//! Rules of single fields: numbers that have a least value, texts that are one of a few.

use serde_json::Value;

use super::{label_selector, text};
use crate::schema::{Cause, child};

/// What a field may be, if it is there.
pub(super) enum Rule {
    NotNegative,
    OneOf(&'static [&'static str]),
}

pub(super) type Rules = &'static [(&'static str, Rule)];

/// What is wrong with the fields of a part of an object that is found at `path`.
pub(super) fn check(part: &Value, path: &str, rules: Rules) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (name, rule) in rules {
        let value = part
            .pointer(&format!("/{}", name.replace('.', "/")))
            .unwrap_or(&Value::Null);
        match rule {
            Rule::NotNegative if value.as_i64().is_some_and(|n| n < 0) => {
                let detail = "must be greater than or equal to 0";
                causes.push(Cause::invalid(child(path, name), value, detail));
            }
            Rule::OneOf(allowed) if value.as_str().is_some_and(|text| !allowed.contains(&text)) => {
                causes.push(Cause::not_supported(child(path, name), value, allowed));
            }
            Rule::NotNegative | Rule::OneOf(_) => {}
        }
    }
    causes
}

/// How a deployment, set or daemon replaces its pods.
pub(super) fn strategy(kind: &str, new: &Value) -> Vec<Cause> {
    let (name, kinds): (_, &[&str]) = match kind {
        "Deployment" => ("strategy", &["Recreate", "RollingUpdate"]),
        "DaemonSet" | "StatefulSet" => ("updateStrategy", &["RollingUpdate", "OnDelete"]),
        _ => return Vec::new(),
    };
    let path = child("spec", name);
    let Some(strategy) = new.get("spec").and_then(|spec| spec.get(name)) else {
        return Vec::new();
    };
    let given = text(strategy, "/type");
    let rolling = child(&path, "rollingUpdate");
    let is_set = kind == "StatefulSet";
    if !kinds.contains(&given) {
        return vec![if is_set {
            Cause::invalid(path, strategy, "must be 'RollingUpdate' or 'OnDelete'")
        } else {
            Cause::not_supported(path, strategy, kinds)
        }];
    }
    let Some(update) = strategy.get("rollingUpdate").filter(|update| update.is_object()) else {
        return Vec::new();
    };
    if given != "RollingUpdate" {
        return match kind {
            "Deployment" => vec![Cause::forbidden(
                rolling,
                "may not be specified when strategy `type` is 'Recreate'",
            )],
            "StatefulSet" => vec![Cause::invalid(
                rolling,
                update,
                "only allowed for updateStrategy 'RollingUpdate'",
            )],
            _ => Vec::new(),
        };
    }
    if is_set {
        return check(update, &rolling, &[("partition", Rule::NotNegative)]);
    }
    let mut causes = Vec::new();
    for name in ["maxUnavailable", "maxSurge"] {
        if let Some(Err(detail)) = update.get(name).map(share) {
            causes.push(Cause::invalid(
                child(&rolling, name),
                update.get(name).unwrap_or(&Value::Null),
                detail,
            ));
        }
    }
    let unavailable = child(&rolling, "maxUnavailable");
    if let Some(share) = update.get("maxUnavailable").filter(|share| share.is_string())
        && self::share(share).is_ok_and(|percent| percent > 100)
    {
        let detail = "must not be greater than 100%";
        causes.push(Cause::invalid(unavailable.as_str(), share, detail));
    }
    let is_zero = |name: &str| update.get(name).is_some_and(|value| share(value) == Ok(0));
    match (kind, is_zero("maxUnavailable"), is_zero("maxSurge")) {
        ("Deployment", true, true) => {
            causes.push(Cause::invalid(
                unavailable,
                &0.into(),
                "may not be 0 when `maxSurge` is 0",
            ));
        }
        ("DaemonSet", true, true) => {
            causes.push(Cause::required(unavailable, "cannot be 0 when maxSurge is 0"));
        }
        ("DaemonSet", false, false) => causes.push(Cause::invalid(
            child(&rolling, "maxSurge"),
            update.get("maxSurge").unwrap_or(&Value::Null),
            "may not be set when maxUnavailable is non-zero",
        )),
        _ => {}
    }
    causes
}

/// How many pods may be disrupted.
pub(super) fn budget(new: &Value) -> Vec<Cause> {
    const RULES: Rules = &[(
        "unhealthyPodEvictionPolicy",
        Rule::OneOf(&["AlwaysAllow", "IfHealthyBudget"]),
    )];
    let Some(spec) = new.get("spec") else {
        return Vec::new();
    };
    let given = |name: &'static str| Some((name, spec.get(name).filter(|value| !value.is_null())?));
    let given: Vec<_> = ["minAvailable", "maxUnavailable"]
        .into_iter()
        .filter_map(given)
        .collect();
    let mut causes = Vec::new();
    if given.len() == 2 {
        let detail = "minAvailable and maxUnavailable cannot be both set";
        causes.push(Cause::invalid("spec", spec, detail));
    }
    for (name, value) in given {
        let detail = match share(value) {
            Err(detail) => Some(detail),
            Ok(percent) => (value.is_string() && percent > 100).then_some("must not be greater than 100%"),
        };
        causes.extend(detail.map(|detail| Cause::invalid(child("spec", name), value, detail)));
    }
    causes.extend(label_selector(spec.get("selector"), "spec.selector"));
    causes.extend(check(spec, "spec", RULES));
    causes
}

/// A number of pods, or a share of them.
fn share(value: &Value) -> Result<i64, &'static str> {
    match value {
        Value::String(text) => text
            .strip_suffix('%')
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
            .and_then(|digits| digits.parse().ok())
            .ok_or(
                "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', \
                 regex used for validation is '[0-9]+%')",
            ),
        Value::Number(_) => match value.as_i64() {
            Some(n) if n < 0 => Err("must be greater than or equal to 0"),
            n => Ok(n.unwrap_or_default()),
        },
        _ => Ok(1),
    }
}

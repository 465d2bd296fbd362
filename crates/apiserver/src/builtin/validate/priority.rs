//! PriorityClasses. Pods were given the number behind a name when they came, so a class keeps its number.

use serde_json::Value;

use super::{immutable, text};
use crate::schema::Cause;

/// The greatest number that a class may have that is not one of the system's.
const GREATEST: i64 = 1_000_000_000;
/// The classes of the system, with their numbers.
const SYSTEM: [(&str, i64); 2] = [
    ("system-node-critical", 2_000_001_000),
    ("system-cluster-critical", 2_000_000_000),
];

pub(super) fn class(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let value = |class: &Value| class.get("value").and_then(Value::as_i64).unwrap_or_default();
    if let Some(old) = old {
        let mut causes = Vec::new();
        if value(new) != value(old) {
            causes.push(Cause::forbidden("value", "may not be changed in an update."));
        }
        causes.extend(immutable(new, old, "/preemptionPolicy"));
        return causes;
    }
    let mut causes = Vec::new();
    let name = text(new, "/metadata/name");
    if name.starts_with("system-") {
        if let Some(why) = unlike_system(name, value(new), new.get("globalDefault") == Some(&true.into())) {
            let detail = format!(
                "priority class names with 'system-' prefix are reserved for system use only. error: {why}"
            );
            causes.push(Cause::forbidden("metadata.name", &detail));
        }
    } else if value(new) > GREATEST {
        let detail = format!("maximum allowed value of a user defined priority is {GREATEST}");
        causes.push(Cause::forbidden("value", &detail));
    }
    match new.get("preemptionPolicy") {
        Some(policy) if policy == "" => causes.push(Cause::required("preemptionPolicy", "")),
        Some(policy) if policy != "PreemptLowerPriority" && policy != "Never" => {
            let allowed = ["PreemptLowerPriority", "Never"];
            causes.push(Cause::not_supported("preemptionPolicy", policy, &allowed));
        }
        _ => {}
    }
    causes
}

/// What a class that is named like the system's has that those have not.
fn unlike_system(name: &str, value: i64, default: bool) -> Option<String> {
    let Some((_, wanted)) = SYSTEM.iter().find(|(known, _)| *known == name) else {
        return Some(format!("{name} is not a known system priority class"));
    };
    if value != *wanted {
        return Some(format!("value of {name} PriorityClass must be {wanted}"));
    }
    default.then(|| format!("globalDefault of {name} PriorityClass must be false"))
}

//! What an old manifest may still say while there is no room for the new one: nothing that the new one takes away.

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::manifest::parse;

/// The new manifest if it is not larger, otherwise what both grant; `None` if that is nothing.
pub fn held(old: &Value, new: &Value) -> Option<Value> {
    if new.to_string().len() <= old.to_string().len() {
        return Some(new.clone());
    }
    let mut kept = old.clone();
    // A grant says what it makes in its spec, a role or binding at the top.
    let wanted = new.get("spec").unwrap_or(new);
    let content = if kept.get("spec").is_some() {
        kept.get_mut("spec")?
    } else {
        &mut kept
    };
    let differs = |part: &str| content.get(part) != wanted.get(part);
    if differs("roleRef") || differs("namespaceSelector") {
        return None;
    }
    if let Some(subjects) = content.get_mut("subjects").and_then(Value::as_array_mut) {
        let still = wanted.get("subjects").and_then(Value::as_array)?;
        subjects.retain(|subject| still.contains(subject));
        if subjects.is_empty() {
            return None;
        }
    }
    if let Some(rules) = content.get_mut("rules").and_then(Value::as_array_mut) {
        let still: Vec<PolicyRule> = parse(wanted.get("rules"))?;
        rules.retain(|rule| {
            parse::<PolicyRule>(Some(rule)).is_some_and(|rule| writ_authz::covers(&still, &[rule]).is_empty())
        });
        if rules.is_empty() {
            return None;
        }
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nothing_is_held_that_the_new_manifest_takes_away() {
        let binding = |role: &str, subjects: &[&str]| json!({"roleRef": {"name": role}, "subjects": subjects.iter().map(|s| json!({"name": s})).collect::<Vec<_>>()});
        let rule = |verbs: &[&str]| json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs});
        let grant = |binding: Value| json!({"kind": "NamespaceGrant", "spec": binding});
        for (what, old, new, wanted) in [
            (
                "it shrank",
                binding("r", &["a", "b"]),
                binding("r", &["a"]),
                Some(binding("r", &["a"])),
            ),
            (
                "it grew",
                binding("r", &["a"]),
                binding("r", &["a", "b"]),
                Some(binding("r", &["a"])),
            ),
            (
                "one went, two came",
                binding("r", &["a", "b"]),
                binding("r", &["b", "c", "d"]),
                Some(binding("r", &["b"])),
            ),
            (
                "all others",
                binding("r", &["a"]),
                binding("r", &["c", "d"]),
                None,
            ),
            (
                "another role",
                binding("r", &["a"]),
                binding("role", &["a"]),
                None,
            ),
            (
                "in a grant",
                grant(binding("r", &["a", "b"])),
                grant(binding("r", &["b", "c", "d"])),
                Some(grant(binding("r", &["b"]))),
            ),
            (
                "another selector",
                json!({"spec": {"namespaceSelector": {}, "subjects": [{"name": "a"}]}}),
                json!({"spec": {"namespaceSelector": {"matchLabels": {"a": "b"}}, "subjects": [{"name": "a"}]}}),
                None,
            ),
            (
                "rules",
                json!({"rules": [rule(&["get"]), rule(&["list"])]}),
                json!({"rules": [rule(&["get", "watch", "create", "delete"]), rule(&["patch"])]}),
                Some(json!({"rules": [rule(&["get"])]})),
            ),
            (
                "a longer list of less",
                json!({"rules": [rule(&["*"])]}),
                json!({"rules": [rule(&["get", "list"])]}),
                None,
            ),
        ] {
            assert_eq!(held(&old, &new), wanted, "{what}");
        }
    }
}

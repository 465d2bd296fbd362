//! What an old manifest may still say while there is no room for the new one: nothing that the new one takes away.

use serde_json::Value;

use super::manifest;
use crate::cluster_permission::model::{Body, Content, Grant, TypedManifest};

/// The new manifest if it is not larger, otherwise what both grant; `None` if that is nothing.
pub fn shrunk(old: &Value, new: &Value) -> Option<Value> {
    if manifest::size(new) <= manifest::size(old) {
        return Some(new.clone());
    }
    let TypedManifest { annotations, body } = manifest::read(old)?;
    let body = match (body, manifest::read(new)?.body) {
        (Body::Object(old), Body::Object(new)) => Body::Object(intersection(old, &new)?),
        (Body::Grant(old), Body::Grant(new)) if old.selector == new.selector => Body::Grant(Grant {
            content: intersection(old.content, &new.content)?,
            ..old
        }),
        _ => return None,
    };
    Some(manifest::write_typed(
        &manifest::id(old),
        &TypedManifest { annotations, body },
    ))
}

fn intersection(old: Content, new: &Content) -> Option<Content> {
    match (old, new) {
        (Content::Rules(mut rules), Content::Rules(wanted)) => {
            rules.retain(|rule| writ_authz::covers(wanted, std::slice::from_ref(rule)).is_empty());
            (!rules.is_empty()).then_some(Content::Rules(rules))
        }
        (Content::Binding(role, mut subjects), Content::Binding(wanted_role, wanted))
            if role == *wanted_role =>
        {
            subjects.retain(|subject| wanted.contains(subject));
            (!subjects.is_empty()).then_some(Content::Binding(role, subjects))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn shrunk_manifest_keeps_only_what_both_grant() {
        let subjects = |names: &[&str]| -> Value {
            names
                .iter()
                .map(|name| json!({"kind": "User", "name": name}))
                .collect()
        };
        let object = |kind: &str, content: Value| {
            let mut object = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind,
                "metadata": {"name": "x", "namespace": "a"}});
            object
                .as_object_mut()
                .unwrap()
                .extend(content.as_object().unwrap().clone());
            object
        };
        let bound = |role: &str, names: &[&str]| {
            json!({"subjects": subjects(names),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role}})
        };
        let binding = |role: &str, names: &[&str]| object("RoleBinding", bound(role, names));
        let role_with = |rules: Value| object("Role", json!({ "rules": rules }));
        let rule = |verbs: &[&str]| json!({"apiGroups": [""], "resources": ["pods"], "verbs": verbs});
        let grant = |selector: Value, names: &[&str]| {
            let mut spec = bound("r", names);
            spec["namespaceSelector"] = selector;
            spec["name"] = json!("x");
            json!({"apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "metadata": {"name": "g"}, "spec": spec})
        };
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
                "one subject replaced by two",
                binding("r", &["a", "b"]),
                binding("r", &["b", "c", "d"]),
                Some(binding("r", &["b"])),
            ),
            (
                "all subjects replaced",
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
                grant(json!({}), &["a", "b"]),
                grant(json!({}), &["b", "c", "d"]),
                Some(grant(json!({}), &["b"])),
            ),
            (
                "another selector",
                grant(json!({}), &["a"]),
                grant(json!({"matchLabels": {"a": "b"}}), &["a"]),
                None,
            ),
            (
                "rules",
                role_with(json!([rule(&["get"]), rule(&["list"])])),
                role_with(json!([
                    rule(&["get", "watch", "create", "delete"]),
                    rule(&["patch"])
                ])),
                Some(role_with(json!([rule(&["get"])]))),
            ),
            (
                "a longer list of less",
                role_with(json!([rule(&["*"])])),
                role_with(json!([rule(&["get", "list"])])),
                None,
            ),
        ] {
            assert_eq!(shrunk(&old, &new), wanted, "{what}");
        }
    }
}

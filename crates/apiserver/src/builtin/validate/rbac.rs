//! Roles and bindings.

use serde_json::{Value, json};

use super::{label_selector, list, name_problems, text};
use crate::schema::meta::NameRule;
use crate::schema::{Cause, child, index};

const GROUP: &str = "rbac.authorization.k8s.io";

pub(super) fn role(role: &Value, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, rule) in list(role, "/rules").iter().enumerate() {
        policy_rule(rule, namespaced, &index("rules", i), &mut causes);
    }
    if let Some(aggregation) = role
        .get("aggregationRule")
        .filter(|a| !a.is_null() && !namespaced)
    {
        let path = "aggregationRule.clusterRoleSelectors";
        let selectors = list(aggregation, "/clusterRoleSelectors");
        if selectors.is_empty() {
            let detail = "at least one clusterRoleSelector required if aggregationRule is non-nil";
            causes.push(Cause::required(path, detail));
        }
        for (i, selector) in selectors.iter().enumerate() {
            let path = index(path, i);
            let problems = label_selector(Some(selector), &path);
            let unusable = !problems.is_empty();
            causes.extend(problems);
            if unusable {
                causes.push(Cause::invalid(path, &Value::Null, "invalid label selector."));
            }
        }
    }
    causes
}

fn policy_rule(rule: &Value, namespaced: bool, path: &str, causes: &mut Vec<Cause>) {
    let empty = |name: &str| list(rule, &format!("/{name}")).is_empty();
    if empty("verbs") {
        causes.push(Cause::required(
            child(path, "verbs"),
            "verbs must contain at least one value",
        ));
    }
    if !empty("nonResourceURLs") {
        let urls = rule.get("nonResourceURLs").unwrap_or(&Value::Null);
        let mut refuse =
            |detail: &str| causes.push(Cause::invalid(child(path, "nonResourceURLs"), urls, detail));
        if namespaced {
            refuse("namespaced rules cannot apply to non-resource URLs");
        }
        if !empty("apiGroups") || !empty("resources") || !empty("resourceNames") {
            refuse("rules cannot apply to both regular resources and non-resource URLs");
        }
        return;
    }
    if empty("apiGroups") {
        causes.push(Cause::required(
            child(path, "apiGroups"),
            "resource rules must supply at least one api group",
        ));
    }
    if empty("resources") {
        causes.push(Cause::required(
            child(path, "resources"),
            "resource rules must supply at least one resource",
        ));
    }
}

pub(super) fn binding(new: &Value, old: Option<&Value>, namespaced: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    let group = text(new, "/roleRef/apiGroup");
    if group != GROUP {
        causes.push(Cause::not_supported("roleRef.apiGroup", &group.into(), &[GROUP]));
    }
    let kinds: &[&str] = if namespaced {
        &["Role", "ClusterRole"]
    } else {
        &["ClusterRole"]
    };
    let kind = text(new, "/roleRef/kind");
    if !kinds.contains(&kind) {
        causes.push(Cause::not_supported("roleRef.kind", &kind.into(), kinds));
    }
    match text(new, "/roleRef/name") {
        "" => causes.push(Cause::required("roleRef.name", "")),
        name => causes.extend(name_problems(NameRule::PathSegment, name, "roleRef.name")),
    }
    for (i, subject) in list(new, "/subjects").iter().enumerate() {
        self::subject(subject, namespaced, &index("subjects", i), &mut causes);
    }
    if let Some(old) = old
        && old.get("roleRef") != new.get("roleRef")
    {
        // As its type is written where no client sees it.
        let shown = json!({
            "APIGroup": text(new, "/roleRef/apiGroup"),
            "Kind": text(new, "/roleRef/kind"),
            "Name": text(new, "/roleRef/name"),
        });
        causes.push(Cause::invalid("roleRef", &shown, "cannot change roleRef"));
    }
    causes
}

fn subject(subject: &Value, namespaced: bool, path: &str, causes: &mut Vec<Cause>) {
    let (name, group) = (text(subject, "/name"), text(subject, "/apiGroup"));
    if name.is_empty() {
        causes.push(Cause::required(child(path, "name"), ""));
    }
    match text(subject, "/kind") {
        "ServiceAccount" => {
            if !name.is_empty() {
                causes.extend(name_problems(NameRule::Subdomain, name, &child(path, "name")));
            }
            if !group.is_empty() {
                causes.push(Cause::not_supported(
                    child(path, "apiGroup"),
                    &group.into(),
                    &[""],
                ));
            }
            if !namespaced && text(subject, "/namespace").is_empty() {
                causes.push(Cause::required(child(path, "namespace"), ""));
            }
        }
        "User" | "Group" => {
            if group != GROUP {
                causes.push(Cause::not_supported(
                    child(path, "apiGroup"),
                    &group.into(),
                    &[GROUP],
                ));
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            causes.push(Cause::not_supported(child(path, "kind"), &other.into(), &kinds));
        }
    }
}

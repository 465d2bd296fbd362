//! Webhook configurations.

use serde_json::Value;

use super::policies::{match_conditions, scope};
use super::webhook_clients::client_config;
use super::{label_selector, list, text};
use crate::schema::{Cause, child, index, names};

pub(super) fn supported(value: &Value, name: &str, allowed: &[&str], path: &str) -> Option<Cause> {
    let given = value.get(name).filter(|v| !v.is_null())?;
    let text = given.as_str().unwrap_or_default();
    (!allowed.contains(&text)).then(|| Cause::not_supported(child(path, name), given, allowed))
}

pub(super) fn webhooks(configuration: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut seen: Vec<&str> = Vec::new();
    for (i, hook) in list(configuration, "/webhooks").iter().enumerate() {
        let path = index("webhooks", i);
        webhook(hook, &path, &mut causes);
        review_versions(
            list(hook, "/admissionReviewVersions"),
            &child(&path, "admissionReviewVersions"),
            &mut causes,
        );
        let name = text(hook, "/name");
        if !name.is_empty() && seen.contains(&name) {
            causes.push(Cause::duplicate(child(&path, "name"), &name.into()));
        }
        seen.push(name);
    }
    causes
}

fn webhook(hook: &Value, path: &str, causes: &mut Vec<Cause>) {
    let name = text(hook, "/name");
    let name_path = child(path, "name");
    if name.is_empty() {
        causes.push(Cause::required(name_path, ""));
    } else {
        let problems = names::dns_subdomain(name);
        if !problems.is_empty() {
            causes.push(Cause::invalid(name_path, &name.into(), &problems.join(",")));
        } else if name.split('.').count() < 3 {
            let detail = "should be a domain with at least three segments separated by dots";
            causes.push(Cause::invalid(name_path, &name.into(), detail));
        }
    }
    for (i, rule) in list(hook, "/rules").iter().enumerate() {
        rule_with_operations(rule, &index(&child(path, "rules"), i), causes);
    }
    causes.extend(supported(hook, "failurePolicy", &["Fail", "Ignore"], path));
    causes.extend(supported(hook, "matchPolicy", &["Equivalent", "Exact"], path));
    causes.extend(supported(
        hook,
        "reinvocationPolicy",
        &["IfNeeded", "Never"],
        path,
    ));
    if hook.get("sideEffects").is_none_or(Value::is_null) {
        causes.push(Cause::required(
            child(path, "sideEffects"),
            "must specify one of None, NoneOnDryRun",
        ));
    }
    causes.extend(supported(hook, "sideEffects", &["None", "NoneOnDryRun"], path));
    if let Some(seconds) = hook
        .get("timeoutSeconds")
        .and_then(Value::as_i64)
        .filter(|s| !(1..=30).contains(s))
    {
        let detail = "the timeout value must be between 1 and 30 seconds";
        causes.push(Cause::invalid(
            child(path, "timeoutSeconds"),
            &seconds.into(),
            detail,
        ));
    }
    for name in ["namespaceSelector", "objectSelector"] {
        causes.extend(label_selector(hook.get(name), &child(path, name)));
    }
    client_config(hook.get("clientConfig"), &child(path, "clientConfig"), causes);
    match_conditions(
        hook.get("matchConditions"),
        &scope(),
        &child(path, "matchConditions"),
        causes,
    );
}

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

pub(super) fn rule_with_operations(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    let operations = list(rule, "/operations");
    if operations.is_empty() {
        causes.push(Cause::required(child(path, "operations"), ""));
    }
    let all = Value::from("*");
    if operations.len() > 1 && operations.contains(&all) {
        let detail = "if '*' is present, must not specify other operations";
        causes.push(Cause::invalid(
            child(path, "operations"),
            &operations.into(),
            detail,
        ));
    }
    for (i, operation) in operations.iter().enumerate() {
        if !OPERATIONS.contains(&operation.as_str().unwrap_or_default()) {
            causes.push(Cause::not_supported(
                index(&child(path, "operations"), i),
                operation,
                &OPERATIONS,
            ));
        }
    }
    for (name, what) in [("apiGroups", "API groups"), ("apiVersions", "API versions")] {
        let values = list(rule, &format!("/{name}"));
        if values.is_empty() {
            causes.push(Cause::required(child(path, name), ""));
        }
        if values.len() > 1 && values.contains(&all) {
            let detail = format!("if '*' is present, must not specify other {what}");
            causes.push(Cause::invalid(child(path, name), &values.into(), &detail));
        }
        for (i, value) in values.iter().enumerate() {
            if name == "apiVersions" && value.as_str() == Some("") {
                causes.push(Cause::required(index(&child(path, name), i), ""));
            }
        }
    }
    resources(rule, &child(path, "resources"), causes);
    causes.extend(supported(rule, "scope", &["*", "Cluster", "Namespaced"], path));
}

/// What is named twice by way of a wildcard is refused, if it comes after the wildcard.
fn resources(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    let resources = list(rule, "/resources");
    if resources.is_empty() {
        causes.push(Cause::required(path, ""));
    }
    let (mut all_of, mut of_all) = (Vec::new(), Vec::new());
    let mut plain = false;
    for (i, resource) in resources.iter().enumerate() {
        let name = resource.as_str().unwrap_or_default();
        let path = index(path, i);
        if name.is_empty() {
            causes.push(Cause::required(path, ""));
            continue;
        }
        let Some((of, subresource)) = name.split_once('/') else {
            // The last one decides.
            plain = name != "*";
            continue;
        };
        let mut covered = |by: String| {
            let detail = format!("if '{by}' is present, must not specify {name}");
            causes.push(Cause::invalid(path.as_str(), resource, &detail));
        };
        if all_of.contains(&of) {
            covered(format!("{of}/*"));
        }
        if of_all.contains(&subresource) {
            covered(format!("*/{subresource}"));
        }
        if subresource == "*" {
            all_of.push(of);
        }
        if of == "*" {
            of_all.push(subresource);
        }
    }
    let has = |name: &str| resources.iter().any(|resource| resource == name);
    if resources.len() > 1 && has("*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        causes.push(Cause::invalid(path, &resources.into(), detail));
    }
    if has("*") && plain {
        let detail = "if '*' is present, must not specify other resources without subresources";
        causes.push(Cause::invalid(path, &resources.into(), detail));
    }
}

/// The versions of reviews that a webhook understands.
pub(super) fn review_versions(versions: &[Value], path: &str, causes: &mut Vec<Cause>) {
    if versions.is_empty() {
        causes.push(Cause::required(path, "must specify one of v1, v1beta1"));
        return;
    }
    for (i, version) in versions.iter().enumerate() {
        if versions.iter().take(i).any(|v| v == version) {
            causes.push(Cause::invalid(index(path, i), version, "duplicate version"));
            continue;
        }
        for problem in names::dns_1035_label(version.as_str().unwrap_or_default()) {
            causes.push(Cause::invalid(index(path, i), version, &problem));
        }
    }
    if !versions.iter().any(|v| v == "v1" || v == "v1beta1") {
        causes.push(Cause::invalid(
            path,
            &versions.into(),
            "must include at least one of v1, v1beta1",
        ));
    }
}

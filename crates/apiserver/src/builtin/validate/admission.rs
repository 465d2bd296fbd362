//! Webhook configurations.

use serde_json::Value;

use super::policies::{match_conditions, scope};
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
        review_versions(hook, &child(&path, "admissionReviewVersions"), &mut causes);
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
        rule_with_operations(rule, &index(&child(path, "rules"), i), true, causes);
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
    client_config(hook, &child(path, "clientConfig"), causes);
    match_conditions(
        hook.get("matchConditions"),
        &scope(),
        &child(path, "matchConditions"),
        causes,
    );
}

fn client_config(hook: &Value, path: &str, causes: &mut Vec<Cause>) {
    const FORM: &str = "; desired format: https://host[/path]";
    let given = |name: &str| {
        hook.pointer(&format!("/clientConfig/{name}"))
            .filter(|v| !v.is_null())
    };
    match (given("url").and_then(Value::as_str), given("service")) {
        (Some(_), Some(_)) | (None, None) => {
            causes.push(Cause::required(path, "exactly one of url or service is required"));
        }
        (Some(url), None) => {
            let path = child(path, "url");
            let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
            if scheme != "https" {
                let detail = format!("'https' is the only allowed URL scheme{FORM}");
                causes.push(Cause::invalid(path.as_str(), &scheme.into(), &detail));
            }
            let host = if url.contains("://") {
                rest.split(['/', '?', '#']).next().unwrap_or_default()
            } else {
                ""
            };
            if host.is_empty() {
                causes.push(Cause::invalid(
                    path.as_str(),
                    &"".into(),
                    &format!("host must be specified{FORM}"),
                ));
            }
            if let Some((user, _)) = host.split_once('@') {
                let detail = "user information is not permitted in the URL";
                causes.push(Cause::invalid(path.as_str(), &user.into(), detail));
            }
            if let Some((_, fragment)) = rest.split_once('#') {
                causes.push(Cause::invalid(
                    path.as_str(),
                    &fragment.into(),
                    "fragments are not permitted in the URL",
                ));
            }
            if let Some((_, query)) = rest.split('#').next().and_then(|r| r.split_once('?')) {
                let detail = "query parameters are not permitted in the URL";
                causes.push(Cause::invalid(path, &query.into(), detail));
            }
        }
        (None, Some(service)) => {
            let path = child(path, "service");
            for name in ["name", "namespace"] {
                if text(service, &format!("/{name}")).is_empty() {
                    causes.push(Cause::required(child(&path, name), ""));
                }
            }
            let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
            if !(1..=65535).contains(&port) {
                let detail = "port is not valid: must be between 1 and 65535, inclusive";
                causes.push(Cause::invalid(child(&path, "port"), &port.into(), detail));
            }
        }
    }
}

const OPERATIONS: [&str; 5] = ["*", "CONNECT", "CREATE", "DELETE", "UPDATE"];

pub(super) fn rule_with_operations(rule: &Value, path: &str, subresources: bool, causes: &mut Vec<Cause>) {
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
    let resources = list(rule, "/resources");
    let resources_path = child(path, "resources");
    if resources.is_empty() {
        causes.push(Cause::required(resources_path.as_str(), ""));
    }
    for (i, resource) in resources.iter().enumerate() {
        if resource.as_str() == Some("") {
            causes.push(Cause::required(index(&resources_path, i), ""));
        }
    }
    if subresources && resources.len() > 1 && resources.iter().any(|r| r == "*/*") {
        let detail = "if '*/*' is present, must not specify other resources";
        causes.push(Cause::invalid(resources_path.as_str(), &resources.into(), detail));
    }
    if resources.contains(&all)
        && resources
            .iter()
            .any(|r| r != "*" && !r.as_str().unwrap_or_default().contains('/'))
    {
        let detail = "if '*' is present, must not specify other resources without subresources";
        causes.push(Cause::invalid(resources_path, &resources.into(), detail));
    }
    causes.extend(supported(rule, "scope", &["*", "Cluster", "Namespaced"], path));
}

fn review_versions(hook: &Value, path: &str, causes: &mut Vec<Cause>) {
    let versions = list(hook, "/admissionReviewVersions");
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

//! Webhook configurations and admission policies.

use serde_json::Value;

use super::{label_selector, list, text};
use crate::schema::{Cause, Expression, Scope, Ty, child, index, names};

fn supported(value: &Value, name: &str, allowed: &[&str], path: &str) -> Option<Cause> {
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

fn rule_with_operations(rule: &Value, path: &str, subresources: bool, causes: &mut Vec<Cause>) {
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

/// What the expressions of a webhook or policy may name. `object` and `oldObject` may be of any kind.
fn scope() -> Scope<'static> {
    let texts = |names: &[&str]| {
        Ty::Record(
            names
                .iter()
                .map(|name| ((*name).to_owned(), Ty::String))
                .collect(),
        )
    };
    let list = |of: Ty| Ty::List(Box::new(of));
    let kind = texts(&["group", "version", "kind"]);
    let resource = texts(&["group", "version", "resource"]);
    let user = Ty::Record(vec![
        ("username".into(), Ty::String),
        ("uid".into(), Ty::String),
        ("groups".into(), list(Ty::String)),
        ("extra".into(), Ty::Map(Box::new(list(Ty::String)))),
    ]);
    let request = Ty::Record(vec![
        ("kind".into(), kind.clone()),
        ("resource".into(), resource.clone()),
        ("subResource".into(), Ty::String),
        ("requestKind".into(), kind),
        ("requestResource".into(), resource),
        ("requestSubResource".into(), Ty::String),
        ("name".into(), Ty::String),
        ("namespace".into(), Ty::String),
        ("operation".into(), Ty::String),
        ("userInfo".into(), user),
        ("dryRun".into(), Ty::Bool),
        ("options".into(), Ty::Dyn),
    ]);
    Scope::new([
        ("request", request),
        ("object", Ty::Dyn),
        ("oldObject", Ty::Dyn),
        ("authorizer", Ty::Dyn),
    ])
}

/// Checks an expression, whose value must have a type; returns the type that it has.
fn expression(
    value: &Value,
    name: &str,
    wanted: &Ty,
    scope: &Scope<'_>,
    path: &str,
    causes: &mut Vec<Cause>,
) -> Ty {
    let source = text(value, &format!("/{name}")).trim();
    let path = child(path, name);
    if source.is_empty() {
        causes.push(Cause::required(path, ""));
        return Ty::Dyn;
    }
    let compiled = Expression::compile(source).map_err(|e| format!("compilation failed: {e}"));
    let checked = compiled.and_then(|expression| {
        expression.check_as(wanted, scope)?;
        expression.check(scope)
    });
    checked.unwrap_or_else(|problem| {
        causes.push(Cause::invalid(path, &source.into(), &problem));
        Ty::Dyn
    })
}

fn match_conditions(conditions: Option<&Value>, scope: &Scope<'_>, path: &str, causes: &mut Vec<Cause>) {
    let conditions = conditions
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default();
    if conditions.len() > 64 {
        causes.push(Cause::too_many(
            path,
            i64::try_from(conditions.len()).unwrap_or(i64::MAX),
            64,
        ));
    }
    let mut seen = Vec::new();
    for (i, condition) in conditions.iter().enumerate() {
        let path = index(path, i);
        expression(condition, "expression", &Ty::Bool, scope, &path, causes);
        let name = text(condition, "/name");
        if name.is_empty() {
            causes.push(Cause::required(child(&path, "name"), ""));
        } else {
            for problem in names::qualified_name(name) {
                causes.push(Cause::invalid(child(&path, "name"), &name.into(), &problem));
            }
            if seen.contains(&name) {
                causes.push(Cause::duplicate(child(&path, "name"), &name.into()));
            }
            seen.push(name);
        }
    }
}

fn match_resources(resources: &Value, path: &str, causes: &mut Vec<Cause>) {
    for name in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in list(resources, &format!("/{name}")).iter().enumerate() {
            rule_with_operations(rule, &index(&child(path, name), i), true, causes);
        }
    }
    for name in ["namespaceSelector", "objectSelector"] {
        match resources.get(name) {
            None => causes.push(Cause::required(child(path, name), "")),
            selector => causes.extend(label_selector(selector, &child(path, name))),
        }
    }
    causes.extend(supported(
        resources,
        "matchPolicy",
        &["Equivalent", "Exact"],
        path,
    ));
}

pub(super) fn policy(policy: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    causes.extend(supported(
        policy.get("spec").unwrap_or(&Value::Null),
        "failurePolicy",
        &["Fail", "Ignore"],
        "spec",
    ));
    if let Some(kind) = policy.pointer("/spec/paramKind") {
        for name in ["apiVersion", "kind"] {
            if text(kind, &format!("/{name}")).is_empty() {
                causes.push(Cause::required(child("spec.paramKind", name), ""));
            }
        }
    }
    match policy.pointer("/spec/matchConstraints") {
        None => causes.push(Cause::required("spec.matchConstraints", "")),
        Some(constraints) => {
            match_resources(constraints, "spec.matchConstraints", &mut causes);
            if list(constraints, "/resourceRules").is_empty() {
                causes.push(Cause::required("spec.matchConstraints.resourceRules", ""));
            }
        }
    }
    let mut scope = scope();
    scope.bind("namespaceObject", Ty::Dyn);
    if policy.pointer("/spec/paramKind").is_some() {
        scope.bind("params", Ty::Dyn);
    }
    match_conditions(
        policy.pointer("/spec/matchConditions"),
        &scope,
        "spec.matchConditions",
        &mut causes,
    );
    let mut variables = Vec::new();
    scope.bind("variables", Ty::Record(Vec::new()));
    for (i, variable) in list(policy, "/spec/variables").iter().enumerate() {
        let path = index("spec.variables", i);
        let name = text(variable, "/name");
        let identifier = !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() {
            causes.push(Cause::required(child(&path, "name"), "name is not specified"));
        } else if !identifier {
            causes.push(Cause::invalid(
                child(&path, "name"),
                &name.into(),
                "name is not a valid CEL identifier",
            ));
        }
        let ty = expression(variable, "expression", &Ty::Dyn, &scope, &path, &mut causes);
        variables.push((name.to_owned(), ty));
        scope.bind("variables", Ty::Record(variables.clone()));
    }
    let (validations, annotations) = (
        list(policy, "/spec/validations"),
        list(policy, "/spec/auditAnnotations"),
    );
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must be non-empty";
        causes.push(Cause::required("spec.validations", detail));
        causes.push(Cause::required("spec.auditAnnotations", detail));
    }
    for (i, validation) in validations.iter().enumerate() {
        let path = index("spec.validations", i);
        expression(validation, "expression", &Ty::Bool, &scope, &path, &mut causes);
        if validation.get("messageExpression").is_some() {
            expression(
                validation,
                "messageExpression",
                &Ty::String,
                &scope,
                &path,
                &mut causes,
            );
        }
        if text(validation, "/message").trim().contains('\n') {
            causes.push(Cause::invalid(
                child(&path, "message"),
                &text(validation, "/message").into(),
                "message must not contain line breaks",
            ));
        }
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        causes.extend(supported(validation, "reason", &reasons, &path));
    }
    for (i, annotation) in annotations.iter().enumerate() {
        let path = index("spec.auditAnnotations", i);
        // The annotation is named after the policy.
        let key = format!("{}/{}", text(policy, "/metadata/name"), text(annotation, "/key"));
        for problem in names::qualified_name(&key) {
            causes.push(Cause::invalid(
                child(&path, "key"),
                &key.as_str().into(),
                &problem,
            ));
        }
        expression(
            annotation,
            "valueExpression",
            &Ty::Dyn,
            &scope,
            &path,
            &mut causes,
        );
    }
    causes
}

pub(super) fn policy_binding(binding: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let name = text(binding, "/spec/policyName");
    if name.is_empty() {
        causes.push(Cause::required("spec.policyName", ""));
    } else {
        for problem in names::dns_subdomain(name) {
            causes.push(Cause::invalid("spec.policyName", &name.into(), &problem));
        }
    }
    if let Some(reference) = binding.pointer("/spec/paramRef") {
        let has = |name: &str| {
            reference
                .get(name)
                .is_some_and(|v| !v.is_null() && v.as_str() != Some(""))
        };
        match (has("name"), has("selector")) {
            (true, true) => causes.push(Cause::forbidden(
                "spec.paramRef.name",
                "name and selector are mutually exclusive",
            )),
            (false, false) => causes.push(Cause::required(
                "spec.paramRef",
                "one of name or selector must be specified",
            )),
            _ => {}
        }
        if !has("parameterNotFoundAction") {
            causes.push(Cause::required("spec.paramRef.parameterNotFoundAction", ""));
        }
        causes.extend(supported(
            reference,
            "parameterNotFoundAction",
            &["Deny", "Allow"],
            "spec.paramRef",
        ));
    }
    if let Some(resources) = binding.pointer("/spec/matchResources") {
        match_resources(resources, "spec.matchResources", &mut causes);
    }
    let actions = list(binding, "/spec/validationActions");
    if actions.is_empty() {
        causes.push(Cause::required("spec.validationActions", ""));
    }
    for (i, action) in actions.iter().enumerate() {
        let allowed = ["Audit", "Deny", "Warn"];
        let path = index("spec.validationActions", i);
        if !allowed.contains(&action.as_str().unwrap_or_default()) {
            causes.push(Cause::not_supported(path, action, &allowed));
        } else if actions.iter().take(i).any(|a| a == action) {
            causes.push(Cause::duplicate(path, action));
        }
    }
    if actions.iter().any(|a| a == "Deny") && actions.iter().any(|a| a == "Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        causes.push(Cause::invalid("spec.validationActions", &actions.into(), detail));
    }
    causes
}

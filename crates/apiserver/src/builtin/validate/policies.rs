//! Admission policies, and the expressions that webhooks have in common with them.

use serde_json::Value;

use super::admission::{rule_with_operations, supported};
use super::{label_selector, list, text};
use crate::schema::{AUTHORIZER, Cause, Expression, Scope, Ty, child, index, names};

/// What the expressions of a webhook or policy may name. `object` and `oldObject` may be of any kind.
pub(super) fn scope() -> Scope<'static> {
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
        ("authorizer", AUTHORIZER),
    ])
}

/// What the expressions of a policy see of a namespace.
fn namespace() -> Ty {
    let record = |fields: &[(&str, Ty)]| {
        let fields = fields.iter();
        Ty::Record(
            fields
                .map(|(name, ty)| ((*name).to_owned(), ty.clone()))
                .collect(),
        )
    };
    let list = |of: Ty| Ty::List(Box::new(of));
    let texts = || Ty::Map(Box::new(Ty::String));
    let metadata = record(&[
        ("name", Ty::String),
        ("generateName", Ty::String),
        ("namespace", Ty::String),
        ("labels", texts()),
        ("annotations", texts()),
        ("UID", Ty::String),
        ("creationTimestamp", Ty::Timestamp),
        ("deletionGracePeriodSeconds", Ty::Int),
        ("deletionTimestamp", Ty::Timestamp),
        ("generation", Ty::Int),
        ("resourceVersion", Ty::String),
        ("finalizers", list(Ty::String)),
    ]);
    let condition = record(&[
        ("status", Ty::String),
        ("type", Ty::String),
        ("lastTransitionTime", Ty::Timestamp),
        ("message", Ty::String),
        ("reason", Ty::String),
    ]);
    record(&[
        ("metadata", metadata),
        ("spec", record(&[("finalizers", list(Ty::String))])),
        (
            "status",
            record(&[("conditions", list(condition)), ("phase", Ty::String)]),
        ),
    ])
}

/// Checks an expression, whose value must have a type; returns the type that it has.
fn expression(
    value: &Value,
    name: &str,
    wanted: &[Ty],
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
    let checked = compiled.and_then(|expression| expression.check_as(wanted, scope));
    checked.unwrap_or_else(|problem| {
        causes.push(Cause::invalid(path, &source.into(), &problem));
        Ty::Dyn
    })
}

pub(super) fn match_conditions(
    conditions: Option<&Value>,
    scope: &Scope<'_>,
    path: &str,
    causes: &mut Vec<Cause>,
) {
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
        expression(condition, "expression", &[Ty::Bool], scope, &path, causes);
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
    scope.bind("namespaceObject", namespace());
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
        let ty = expression(variable, "expression", &[], &scope, &path, &mut causes);
        variables.push((name.to_owned(), ty.declared()));
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
        expression(validation, "expression", &[Ty::Bool], &scope, &path, &mut causes);
        if validation.get("messageExpression").is_some() {
            expression(
                validation,
                "messageExpression",
                &[Ty::String],
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
            &[Ty::String, Ty::Null],
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

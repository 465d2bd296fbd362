//! Admission policies, and the expressions that webhooks have in common with them.

use std::sync::Arc;

use serde_json::Value;

use super::admission::{rule_with_operations, supported};
use super::{label_selector, list, name_problems, text};
use crate::schema::meta::NameRule;
use crate::schema::{AUTHORIZER, Cause, Expression, Scope, Ty, child, index, names, reserved};

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
    let user = Ty::Record(Arc::new([
        ("username".into(), Ty::String),
        ("uid".into(), Ty::String),
        ("groups".into(), list(Ty::String)),
        ("extra".into(), Ty::Map(Box::new(list(Ty::String)))),
    ]));
    let request = Ty::Record(Arc::new([
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
    ]));
    Scope::new([
        ("request", request),
        ("object", Ty::Dyn),
        ("oldObject", Ty::Dyn),
        ("namespaceObject", namespace()),
        ("authorizer", AUTHORIZER),
    ])
}

/// What expressions see of a namespace.
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
    let checked = compiled.and_then(|expression| {
        let ty = expression.check_as(wanted, scope)?;
        Ok((expression, ty))
    });
    match checked {
        Ok((expression, ty)) => {
            if let Err(problem) = expression.instantiate() {
                causes.push(Cause::internal(path, &problem));
            }
            ty
        }
        Err(problem) => {
            causes.push(Cause::invalid(path, &source.into(), &problem));
            Ty::Dyn
        }
    }
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

fn resource_names(rule: &Value, path: &str, causes: &mut Vec<Cause>) {
    let all = list(rule, "/resourceNames");
    for (i, name) in all.iter().enumerate() {
        let path = index(path, i);
        let text = name.as_str().unwrap_or_default();
        causes.extend(name_problems(NameRule::PathSegment, text, &path));
        if all.iter().take(i).any(|other| other == name) {
            causes.push(Cause::duplicate(path, name));
        }
    }
}

fn match_resources(resources: &Value, path: &str, causes: &mut Vec<Cause>) {
    for name in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in list(resources, &format!("/{name}")).iter().enumerate() {
            let path = index(&child(path, name), i);
            resource_names(rule, &child(&path, "resourceNames"), causes);
            rule_with_operations(rule, &path, causes);
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
        param_kind(kind, "spec.paramKind", &mut causes);
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
    if policy.pointer("/spec/paramKind").is_some() {
        scope.bind("params", Ty::Dyn);
    }
    match_conditions(
        policy.pointer("/spec/matchConditions"),
        &scope,
        "spec.matchConditions",
        &mut causes,
    );
    variables(policy, &mut scope, &mut causes);
    let (validations, annotations) = (
        list(policy, "/spec/validations"),
        list(policy, "/spec/auditAnnotations"),
    );
    if validations.is_empty() && annotations.is_empty() {
        let detail = "validations or auditAnnotations must be non-empty";
        causes.push(Cause::required("spec.validations", detail));
        causes.push(Cause::required("spec.auditAnnotations", detail));
    }
    // Who may do what is not told to whom is refused.
    let message_scope = scope.without("authorizer");
    for (i, validation) in validations.iter().enumerate() {
        let path = index("spec.validations", i);
        expression(validation, "expression", &[Ty::Bool], &scope, &path, &mut causes);
        messages(validation, &message_scope, &path, &mut causes);
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        causes.extend(supported(validation, "reason", &reasons, &path));
    }
    audit_annotations(policy, annotations, &scope, &mut causes);
    causes
}

fn param_kind(kind: &Value, path: &str, causes: &mut Vec<Cause>) {
    let (version_path, kind_path) = (child(path, "apiVersion"), child(path, "kind"));
    let given = text(kind, "/apiVersion");
    let mut refuse = |value: &str, detail: &str| {
        causes.push(Cause::invalid(version_path.as_str(), &value.into(), detail));
    };
    let (group, version) = given.split_once('/').unwrap_or(("", given));
    if given.is_empty() {
        causes.push(Cause::required(version_path, ""));
    } else if version.contains('/') {
        refuse(given, &format!("unexpected GroupVersion string: {given}"));
    } else if version.is_empty() {
        refuse(given, "version must be specified");
    } else {
        if !group.is_empty() {
            for problem in names::dns_subdomain(group) {
                refuse(group, &problem);
            }
        }
        for problem in names::dns_1035_label(version) {
            refuse(version, &problem);
        }
    }
    match text(kind, "/kind") {
        "" => causes.push(Cause::required(kind_path, "")),
        name => {
            for problem in names::dns_1035_label(&name.to_lowercase()) {
                let detail = format!("may have mixed case, but should otherwise match: {problem}");
                causes.push(Cause::invalid(kind_path.as_str(), &name.into(), &detail));
            }
        }
    }
}

/// Every variable sees those before it; of two with one name, the later one counts.
pub(super) fn variables(policy: &Value, scope: &mut Scope<'_>, causes: &mut Vec<Cause>) {
    let mut variables: Vec<(String, Ty)> = Vec::new();
    let given = list(policy, "/spec/variables");
    // Without any, not even the name is known.
    if !given.is_empty() {
        scope.bind("variables", Ty::Record(Arc::default()));
    }
    for (i, variable) in given.iter().enumerate() {
        let path = index("spec.variables", i);
        let name = text(variable, "/name");
        let identifier = !reserved(name)
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if name.is_empty() {
            causes.push(Cause::required(child(&path, "name"), "name is not specified"));
        } else if !identifier {
            let detail = "must be a valid CEL identifier";
            causes.push(Cause::invalid(child(&path, "name"), &name.into(), detail));
        }
        let ty = expression(variable, "expression", &[], scope, &path, causes);
        variables.retain(|(earlier, _)| earlier != name);
        variables.push((name.to_owned(), ty.declared()));
        scope.bind("variables", Ty::Record(variables.clone().into()));
    }
}

fn messages(validation: &Value, scope: &Scope<'_>, path: &str, causes: &mut Vec<Cause>) {
    let blank = |name: &str| {
        let given = text(validation, &format!("/{name}"));
        (!given.is_empty() && given.trim().is_empty())
            .then(|| Cause::invalid(child(path, name), &given.into(), "must be non-empty if specified"))
    };
    match blank("messageExpression") {
        None if text(validation, "/messageExpression").is_empty() => {}
        None => {
            expression(
                validation,
                "messageExpression",
                &[Ty::String],
                scope,
                path,
                causes,
            );
        }
        blank => causes.extend(blank),
    }
    causes.extend(blank("message"));
    if text(validation, "/message").trim().contains('\n') {
        causes.push(Cause::invalid(
            child(path, "message"),
            &text(validation, "/message").into(),
            "message must not contain line breaks",
        ));
    }
}

/// How many audit annotations a policy may have, and how long their expressions may be.
const MAX_ANNOTATIONS: usize = 20;
const MAX_VALUE_EXPRESSION: usize = 5 * 1024;

fn audit_annotations(policy: &Value, annotations: &[Value], scope: &Scope<'_>, causes: &mut Vec<Cause>) {
    let path = "spec.auditAnnotations";
    if annotations.len() > MAX_ANNOTATIONS {
        let detail = format!("must not have more than {MAX_ANNOTATIONS} auditAnnotations");
        causes.push(Cause::invalid(path, &annotations.into(), &detail));
    }
    for (i, annotation) in annotations.iter().enumerate() {
        let path = index(path, i);
        let given = text(annotation, "/key");
        // The annotation is named after the policy.
        let key = format!("{}/{given}", text(policy, "/metadata/name"));
        for problem in names::qualified_name(&key) {
            causes.push(Cause::invalid(
                child(&path, "key"),
                &key.as_str().into(),
                &problem,
            ));
        }
        let earlier = annotations.iter().take(i);
        if earlier
            .map(|other| text(other, "/key"))
            .any(|other| other == given)
        {
            causes.push(Cause::duplicate(child(&path, "key"), &given.into()));
        }
        if text(annotation, "/valueExpression").trim().len() > MAX_VALUE_EXPRESSION {
            let detail = format!("must not exceed {MAX_VALUE_EXPRESSION} bytes in length");
            causes.push(Cause::required(child(&path, "valueExpression"), &detail));
        }
        expression(
            annotation,
            "valueExpression",
            &[Ty::String, Ty::Null],
            scope,
            &path,
            causes,
        );
    }
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
        param_ref(reference, "spec.paramRef", &mut causes);
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
            causes.push(Cause::not_supported(path.as_str(), action, &allowed));
        }
        if actions.iter().take(i).any(|a| a == action) {
            causes.push(Cause::duplicate(path, action));
        }
    }
    if actions.iter().any(|a| a == "Deny") && actions.iter().any(|a| a == "Warn") {
        let detail = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        causes.push(Cause::invalid("spec.validationActions", &actions.into(), detail));
    }
    causes
}

fn param_ref(reference: &Value, path: &str, causes: &mut Vec<Cause>) {
    let name = text(reference, "/name");
    let selector = reference.get("selector").filter(|selector| !selector.is_null());
    if name.is_empty() && selector.is_none() {
        causes.push(Cause::required(path, "one of name or selector must be specified"));
    }
    if !name.is_empty() {
        causes.extend(name_problems(NameRule::PathSegment, name, &child(path, "name")));
    }
    causes.extend(label_selector(selector, &child(path, "selector")));
    if !name.is_empty() && selector.is_some() {
        for field in ["name", "selector"] {
            let detail = "name and selector are mutually exclusive";
            causes.push(Cause::forbidden(child(path, field), detail));
        }
    }
    if text(reference, "/parameterNotFoundAction").is_empty() {
        causes.push(Cause::required(child(path, "parameterNotFoundAction"), ""));
    } else {
        causes.extend(supported(
            reference,
            "parameterNotFoundAction",
            &["Deny", "Allow"],
            path,
        ));
    }
}

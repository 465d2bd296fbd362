//! ValidatingAdmissionPolicy: rules in CEL, bound to resources, with parameters.

use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map as CelMap};
use serde_json::{Value, json};

use super::request::text;
use super::{GROUP, Rejection, Request, Source, expressions, rules, sorted};
use crate::schema::{Activation, Budget, Failure, OUT_OF_BUDGET, PER_OBJECT};
use crate::selector::LabelSelector;

/// A policy that says no.
struct Denial {
    policy: String,
    binding: String,
    reason: String,
    message: String,
}

/// Asks every policy.
pub(super) fn validate(
    source: &dyn Source,
    request: &Request,
    object: Option<&Value>,
) -> Result<(), Rejection> {
    // Nor may they lock out those who ask whether a request is allowed.
    let review = matches!(
        request.group.as_str(),
        "authentication.k8s.io" | "authorization.k8s.io"
    );
    if request.group == GROUP || review {
        return Ok(());
    }
    let policies = sorted(source.list(GROUP, "validatingadmissionpolicies"));
    if policies.is_empty() {
        return Ok(());
    }
    let bindings = sorted(source.list(GROUP, "validatingadmissionpolicybindings"));
    let mut denials = Vec::new();
    for policy in &policies {
        let name = text(policy, "/metadata/name");
        let bound: Vec<&Arc<Value>> = bindings
            .iter()
            .filter(|b| text(b, "/spec/policyName") == name)
            .collect();
        if bound.is_empty() {
            continue;
        }
        let strict = text(policy, "/spec/failurePolicy") != "Ignore";
        let fail = |denials: &mut Vec<Denial>, binding: &str, why: String| {
            if strict {
                let (policy, binding) = (name.to_owned(), binding.to_owned());
                denials.push(Denial {
                    policy,
                    binding,
                    reason: String::new(),
                    message: why,
                });
            }
        };
        let constraints = policy
            .pointer("/spec/matchConstraints")
            .cloned()
            .unwrap_or_else(|| json!({}));
        let place = match rules::resources_match(source, &constraints, request, object) {
            Ok(Some(place)) => place,
            Ok(None) => continue,
            Err(e) => {
                fail(&mut denials, "", format!("failed to configure policy: {e}"));
                continue;
            }
        };
        for binding in bound {
            let binding_name = text(binding, "/metadata/name");
            if let Some(resources) = binding.pointer("/spec/matchResources") {
                match rules::resources_match(source, resources, request, object) {
                    Ok(Some(_)) => {}
                    Ok(None) => continue,
                    Err(e) => {
                        fail(
                            &mut denials,
                            binding_name,
                            format!("failed to configure binding: {e}"),
                        );
                        continue;
                    }
                }
            }
            let params = match params(source, policy, binding, request) {
                Ok(params) => params,
                Err(e) => {
                    fail(
                        &mut denials,
                        binding_name,
                        format!("failed to configure binding: {e}"),
                    );
                    continue;
                }
            };
            for param in params {
                let outcome = evaluate(source, policy, param.as_deref(), request, &place, object, strict);
                // Whatever the binding does about validations, an annotation that cannot be made is a failure.
                for why in outcome.broken {
                    fail(&mut denials, binding_name, why);
                }
                for (reason, message) in outcome.failed {
                    for action in binding
                        .pointer("/spec/validationActions")
                        .and_then(Value::as_array)
                        .into_iter()
                        .flatten()
                    {
                        match action.as_str() {
                            Some("Deny") => denials.push(Denial {
                                policy: name.to_owned(),
                                binding: binding_name.to_owned(),
                                reason: reason.clone(),
                                message: message.clone(),
                            }),
                            Some("Warn") => source.warn(&format!(
                                "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{binding_name}': {message}"
                            )),
                            _ => {}
                        }
                    }
                }
            }
        }
    }
    match denials.into_iter().next() {
        None => Ok(()),
        Some(denial) => Err(rejection(request, &denial)),
    }
}

fn rejection(request: &Request, denial: &Denial) -> Rejection {
    let by = if denial.binding.is_empty() {
        format!("ValidatingAdmissionPolicy '{}'", denial.policy)
    } else {
        format!(
            "ValidatingAdmissionPolicy '{}' with binding '{}'",
            denial.policy, denial.binding
        )
    };
    let message = format!("{by} denied request: {}", denial.message);
    let mut rejection = request.forbidden(&message);
    let reason = if denial.reason.is_empty() {
        "Invalid"
    } else {
        &denial.reason
    };
    rejection.code = match reason {
        "Forbidden" => 403,
        "Unauthorized" => 401,
        "RequestEntityTooLarge" => 413,
        _ => 422,
    };
    reason.clone_into(&mut rejection.reason);
    if let Some(details) = rejection.details.as_mut().and_then(Value::as_object_mut) {
        details.insert("causes".into(), json!([{"message": message}]));
    }
    rejection
}

/// The parameters a binding brings: none at all is one round without.
fn params(
    source: &dyn Source,
    policy: &Value,
    binding: &Value,
    request: &Request,
) -> Result<Vec<Option<Arc<Value>>>, String> {
    let Some(kind) = policy.pointer("/spec/paramKind") else {
        return Ok(vec![None]);
    };
    let (api_version, kind) = (text(kind, "/apiVersion"), text(kind, "/kind"));
    let Some((plural, namespaced)) = source.resource(api_version, kind) else {
        return Err(format!(
            "failed to find resource referenced by paramKind: '{api_version}, Kind={kind}'"
        ));
    };
    let Some(reference) = binding.pointer("/spec/paramRef") else {
        return Ok(vec![None]);
    };
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let namespace = match (namespaced, text(reference, "/namespace")) {
        (false, "") => String::new(),
        (false, _) => {
            return Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into());
        }
        (true, "") if request.namespace.is_empty() => {
            return Err(
                "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                    .into(),
            );
        }
        (true, "") => request.namespace.clone(),
        (true, namespace) => namespace.to_owned(),
    };
    let name = text(reference, "/name");
    let found: Vec<Option<Arc<Value>>> = if name.is_empty() {
        let selector = LabelSelector::from_object(reference.get("selector"))?;
        let all = source.list(group, &plural).into_iter().filter(|o| {
            (!namespaced || text(o, "/metadata/namespace") == namespace)
                && selector.matches(o.pointer("/metadata/labels").and_then(Value::as_object))
        });
        all.map(Some).collect()
    } else {
        source
            .get(group, &plural, &namespace, name)
            .map(Some)
            .into_iter()
            .collect()
    };
    if found.is_empty() && text(reference, "/parameterNotFoundAction") == "Deny" {
        return Err("no params found for policy binding with `Deny` parameterNotFoundAction".into());
    }
    Ok(found)
}

/// What a policy says of a request.
#[derive(Default)]
struct Outcome {
    /// The failed validations: reason and message of each.
    failed: Vec<(String, String)>,
    /// The audit annotations that could not be made.
    broken: Vec<String>,
}

fn evaluate(
    source: &dyn Source,
    policy: &Value,
    param: Option<&Value>,
    request: &Request,
    place: &rules::Place,
    object: Option<&Value>,
    strict: bool,
) -> Outcome {
    let mut activation = expressions::activation(source, request, place, object);
    if policy.pointer("/spec/paramKind").is_some() {
        activation.bind("params", param.unwrap_or(&Value::Null));
    }
    let is_namespace = request.group.is_empty() && request.resource == "namespaces";
    let namespace = if request.namespace.is_empty() || is_namespace {
        None
    } else {
        source.get("", "namespaces", "", &request.namespace)
    };
    activation.bind("namespaceObject", namespace.as_deref().unwrap_or(&Value::Null));
    let on_error = |why: String| Outcome {
        failed: if strict {
            vec![(String::new(), why)]
        } else {
            Vec::new()
        },
        broken: Vec::new(),
    };
    match expressions::conditions_hold(policy.pointer("/spec/matchConditions"), &activation) {
        Ok(true) => {}
        Ok(false) => return Outcome::default(),
        Err(e) => return on_error(e),
    }
    let mut budget = Budget::new(PER_OBJECT);
    bind_variables(policy, &mut activation, &mut budget);
    let mut failed = Vec::new();
    for validation in policy
        .pointer("/spec/validations")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let rule = text(validation, "/expression");
        let holds = expressions::compile(rule)
            .map_err(Failure::Error)
            .and_then(|e| e.decide_within(&activation, &mut budget));
        match holds {
            Ok(true) => {}
            Ok(false) => failed.push((
                text(validation, "/reason").to_owned(),
                message(validation, &activation),
            )),
            Err(Failure::OutOfBudget) => return on_error(OUT_OF_BUDGET.to_owned()),
            Err(Failure::Error(e)) => {
                failed.extend(on_error(format!("expression '{rule}' resulted in error: {e}")).failed);
            }
        }
    }
    let broken = audit(policy, &activation, &mut budget);
    Outcome { failed, broken }
}

/// Makes the audit annotations. There is no audit here, but one that cannot be made is an error of the policy.
fn audit(policy: &Value, activation: &Activation, budget: &mut Budget) -> Vec<String> {
    let annotations = policy.pointer("/spec/auditAnnotations").and_then(Value::as_array);
    let mut broken = Vec::new();
    for annotation in annotations.into_iter().flatten() {
        let rule = text(annotation, "/valueExpression");
        let value = expressions::compile(rule)
            .map_err(Failure::Error)
            .and_then(|e| e.evaluate_within(activation, budget));
        match value {
            Ok(_) => {}
            Err(Failure::OutOfBudget) => {
                broken.push(OUT_OF_BUDGET.to_owned());
                break;
            }
            Err(Failure::Error(e)) => {
                broken.push(format!("valueExpression '{rule}' resulted in error: {e}"));
            }
        }
    }
    broken
}

/// `variables.x`, each able to use those before it. One that fails is missing for those who use it.
fn bind_variables(policy: &Value, activation: &mut Activation, budget: &mut Budget) {
    let mut values: std::collections::HashMap<Key, Cel> = std::collections::HashMap::new();
    for variable in policy
        .pointer("/spec/variables")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        let mut scope = activation.clone();
        scope.bind_large(
            "variables",
            Cel::Map(CelMap {
                map: Arc::new(values.clone()),
            }),
        );
        let expression = expressions::compile(text(variable, "/expression"));
        let value = expression
            .map_err(Failure::Error)
            .and_then(|e| e.evaluate_within(&scope, budget));
        if let Ok(value) = value {
            values.insert(Key::String(Arc::new(text(variable, "/name").to_owned())), value);
        }
    }
    activation.bind_large(
        "variables",
        Cel::Map(CelMap {
            map: Arc::new(values),
        }),
    );
}

fn message(validation: &Value, activation: &Activation) -> String {
    let dynamic = Some(text(validation, "/messageExpression"))
        .filter(|s| !s.is_empty())
        .and_then(|rule| {
            let text = expressions::compile(rule)
                .and_then(|e| e.evaluate_string(activation))
                .ok()?;
            let text = text.trim().to_owned();
            (!text.is_empty() && !text.contains('\n') && text.len() <= 5 * 1024).then_some(text)
        });
    dynamic.unwrap_or_else(|| match text(validation, "/message").trim() {
        "" => format!("failed expression: {}", text(validation, "/expression").trim()),
        message => message.to_owned(),
    })
}

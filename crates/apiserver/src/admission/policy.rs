//! ValidatingAdmissionPolicy: rules in CEL, bound to resources, with parameters.

use std::collections::HashSet;
use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::{Key, Map as CelMap};
use serde_json::{Value, json};

use super::request::text;
use super::{GROUP, Rejection, Request, Source, expressions, params, rules, sorted};
use crate::schema::{Activation, Budget, Expression, Failure, OUT_OF_BUDGET, PER_OBJECT, why_lacking};

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
    // Policies rule about everything but policies. About webhooks, too, which nobody but they are asked about.
    let policies = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
    if review || (request.group == GROUP && policies.contains(&request.resource.as_str())) {
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
                fail(
                    &mut denials,
                    "",
                    format!("failed to configure policy: {}", e.message),
                );
                continue;
            }
        };
        let kind = match params::Kind::of(source, policy) {
            Ok(kind) => kind,
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
                            format!("failed to configure binding: {}", e.message),
                        );
                        continue;
                    }
                }
            }
            let params = match &kind {
                None => Ok(vec![None]),
                Some(kind) => kind.chosen(source, binding, request),
            };
            let params = match params {
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
                // Whatever the binding does about validations, an annotation that cannot be made is a failure.
                for why in outcome.broken {
                    fail(&mut denials, binding_name, why);
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
    // Conditions may name it, but are not told.
    activation.bind("namespaceObject", &Value::Null);
    let on_error = |why: String| Outcome {
        failed: if strict {
            vec![(String::new(), why)]
        } else {
            Vec::new()
        },
        broken: Vec::new(),
    };
    let conditions = policy.pointer("/spec/matchConditions");
    match expressions::conditions_hold(conditions, request, place, &activation) {
        Ok(true) => {}
        Ok(false) => return Outcome::default(),
        Err(e) => return on_error(e),
    }
    let is_namespace = request.group.is_empty() && request.resource == "namespaces";
    if !request.namespace.is_empty()
        && !is_namespace
        && let Some(namespace) = source.get("", "namespaces", "", &request.namespace)
    {
        activation.bind("namespaceObject", &namespace);
    }
    let mut budget = Budget::new(PER_OBJECT);
    bind_variables(policy, &mut activation, &mut budget);
    let mut verdicts: Vec<Result<bool, String>> = Vec::new();
    let validations = policy.pointer("/spec/validations").and_then(Value::as_array);
    let validations = validations.map_or(&[][..], Vec::as_slice);
    for validation in validations {
        let rule = text(validation, "/expression");
        let holds = expressions::compile(rule)
            .map_err(Failure::Error)
            .and_then(|e| e.decide_within(&activation, &mut budget));
        match holds {
            Ok(holds) => verdicts.push(Ok(holds)),
            Err(Failure::OutOfBudget) => return on_error(OUT_OF_BUDGET.to_owned()),
            Err(Failure::Error(e)) => {
                verdicts.push(Err(format!("expression '{rule}' resulted in error: {e}")));
            }
        }
    }
    let said = messages(validations, &verdicts, &activation, budget);
    let mut failed = Vec::new();
    for (at, (validation, verdict)) in validations.iter().zip(verdicts).enumerate() {
        match (verdict, &said) {
            (Err(why), _) => failed.extend(on_error(why).failed),
            // Whether it holds or not.
            (Ok(_), None) => {
                let why = format!("failed messageExpression: {OUT_OF_BUDGET}");
                failed.extend(on_error(why).failed);
            }
            (Ok(false), Some(said)) => {
                let message = said.get(at).cloned().unwrap_or_default();
                failed.push((text(validation, "/reason").to_owned(), message));
            }
            (Ok(true), Some(_)) => {}
        }
    }
    match audit(policy, &activation) {
        Some(broken) => Outcome { failed, broken },
        None => on_error(OUT_OF_BUDGET.to_owned()),
    }
}

/// Makes the audit annotations, which have a budget of their own; nothing if they spend it. There is no audit here, but one that
/// cannot be made is an error of the policy.
fn audit(policy: &Value, activation: &Activation) -> Option<Vec<String>> {
    let mut budget = Budget::new(PER_OBJECT);
    let annotations = policy.pointer("/spec/auditAnnotations").and_then(Value::as_array);
    let mut broken = Vec::new();
    for annotation in annotations.into_iter().flatten() {
        let rule = text(annotation, "/valueExpression");
        let value = expressions::compile(rule)
            .map_err(Failure::Error)
            .and_then(|e| e.evaluate_within(activation, &mut budget));
        match value {
            Ok(_) => {}
            Err(Failure::OutOfBudget) => return None,
            Err(Failure::Error(e)) => {
                broken.push(format!("expression '{rule}' resulted in error: {e}"));
            }
        }
    }
    Some(broken)
}

/// The variables of a policy whose names stand somewhere in its expressions. What nobody uses costs nothing.
fn used_variables(policy: &Value) -> Vec<&Value> {
    let items = |pointer: &str| {
        let items = policy.pointer(pointer).and_then(Value::as_array);
        items.map_or(&[][..], Vec::as_slice)
    };
    let part_of_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut words = HashSet::new();
    for (place, field) in [
        ("/spec/validations", "/expression"),
        ("/spec/validations", "/messageExpression"),
        ("/spec/auditAnnotations", "/valueExpression"),
    ] {
        for item in items(place) {
            words.extend(text(item, field).split(|c| !part_of_word(c)));
        }
    }
    let mut used = Vec::new();
    // The later ones use those before them.
    for variable in items("/spec/variables").iter().rev() {
        if words.contains(text(variable, "/name")) {
            words.extend(text(variable, "/expression").split(|c| !part_of_word(c)));
            used.push(variable);
        }
    }
    used.reverse();
    used
}

/// `variables.x`, each able to use those before it. Whoever uses one that fails, fails as well.
fn bind_variables(policy: &Value, activation: &mut Activation, budget: &mut Budget) {
    let mut values: std::collections::HashMap<Key, Cel> = std::collections::HashMap::new();
    for variable in used_variables(policy) {
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
        let name = text(variable, "/name");
        let (key, value) = match value {
            Ok(value) => (name.to_owned(), value),
            Err(failure) => {
                let why = match failure {
                    Failure::Error(why) => why,
                    Failure::OutOfBudget => OUT_OF_BUDGET.to_owned(),
                };
                let name_quoted = crate::schema::quote(name);
                let why = format!("composited variable {name_quoted} fails to evaluate: {why}");
                (why_lacking(name), Cel::String(Arc::new(why)))
            }
        };
        values.insert(Key::String(Arc::new(key)), value);
    }
    activation.bind_large(
        "variables",
        Cel::Map(CelMap {
            map: Arc::new(values),
        }),
    );
}

/// What each validation says when it fails. All message expressions are evaluated, with what the validations left to spend;
/// nothing if that is not enough for all.
fn messages(
    validations: &[Value],
    verdicts: &[Result<bool, String>],
    activation: &Activation,
    mut budget: Budget,
) -> Option<Vec<String>> {
    let compiled = validations.iter().map(|validation| {
        let rule = text(validation, "/messageExpression");
        expressions::compile(rule).ok().filter(|_| !rule.is_empty())
    });
    let compiled: Vec<_> = compiled.collect();
    // Most requests fail nothing, and most messages cost nothing.
    let dear = |expression: &Arc<Expression>| expression.is_measured(activation);
    if !verdicts.contains(&Ok(false)) && !compiled.iter().flatten().any(dear) {
        return Some(Vec::new());
    }
    let mut evaluated = Vec::new();
    for expression in &compiled {
        let said = expression
            .as_ref()
            .map(|expression| expression.text_within(activation, &mut budget));
        if said == Some(Err(Failure::OutOfBudget)) {
            return None;
        }
        evaluated.push(said.and_then(Result::ok));
    }
    let said = |(at, validation): (usize, &Value)| {
        let dynamic = evaluated.get(at).cloned().flatten();
        let dynamic = dynamic.map(|text| text.trim().to_owned());
        let usable = |text: &String| !text.is_empty() && !text.contains('\n') && text.len() <= 5 * 1024;
        dynamic
            .filter(usable)
            .unwrap_or_else(|| match text(validation, "/message").trim() {
                "" => format!("failed expression: {}", text(validation, "/expression").trim()),
                message => message.to_owned(),
            })
    };
    Some(validations.iter().enumerate().map(said).collect())
}

//! Match conditions, and the compiled expressions behind them.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::rules::Place;
use super::{Request, Source};
use crate::schema::{
    Activation, AskedResource, Budget, Expression, Failure, OUT_OF_BUDGET, PER_CONDITIONS, authorizer_value,
};

/// How many compiled expressions are kept; the cache starts over when it is full.
const KEPT: usize = 2048;

type Cache = HashMap<String, Result<Arc<Expression>, String>>;

static CACHE: LazyLock<Mutex<Cache>> = LazyLock::new(Mutex::default);

/// The compiled expression.
pub(super) fn compile(source: &str) -> Result<Arc<Expression>, String> {
    let mut cache = CACHE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = cache.get(source) {
        return found.clone();
    }
    if cache.len() >= KEPT {
        cache.clear();
    }
    let compiled = Expression::compile(source).map(Arc::new);
    cache.insert(source.to_owned(), compiled.clone());
    compiled
}

/// What an admission expression may name.
pub(super) fn activation(
    source: &dyn Source,
    request: &Request,
    place: &Place,
    object: Option<&Value>,
) -> Activation {
    let mut out = Activation::default();
    out.bind("request", &request.told(place));
    for (name, value) in [("object", object), ("oldObject", request.old_object.as_ref())] {
        let shown = value.map_or(Value::Null, |value| request.shown_at(place, value));
        out.bind(name, &shown);
    }
    let asked = AskedResource {
        group: request.group.clone(),
        plural: request.resource.clone(),
        subresource: request.subresource.clone(),
        namespace: request.namespace.clone(),
        name: request.name.clone(),
    };
    let user = &request.user;
    out.bind_cel(
        "authorizer",
        authorizer_value(source.authorizer(), &user.username, &user.groups, asked),
    );
    out
}

/// Whether all match conditions hold. One that is false decides over errors of others, but not over what all of them cost:
/// none is left out.
pub(super) fn conditions_hold(
    conditions: Option<&Value>,
    request: &Request,
    place: &Place,
    activation: &Activation,
) -> Result<bool, String> {
    let conditions = conditions
        .and_then(Value::as_array)
        .map_or(&[][..], Vec::as_slice);
    let mut activation = Cow::Borrowed(activation);
    if !conditions.is_empty() && *place != Place::of(request) {
        // They are shown the object as the rule wants it, and told of the resource that was asked for.
        let mut told = request.told(place);
        if let Some(map) = told.as_object_mut() {
            let asked = map.get("requestResource").cloned().unwrap_or_default();
            map.insert("resource".into(), asked);
        }
        activation.to_mut().bind("request", &told);
    }
    let mut errors = Vec::new();
    let mut all_true = true;
    let mut budget = Budget::new(PER_CONDITIONS);
    for condition in conditions {
        let source = condition
            .get("expression")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let holds = compile(source)
            .map_err(Failure::Error)
            .and_then(|e| e.decide_within(&activation, &mut budget));
        match holds {
            Ok(true) => {}
            Ok(false) => all_true = false,
            Err(Failure::OutOfBudget) => return Err(OUT_OF_BUDGET.to_owned()),
            Err(Failure::Error(e)) => {
                let error = format!("expression '{source}' resulted in error: {e}");
                // Each is said once.
                if !errors.contains(&error) {
                    errors.push(error);
                }
            }
        }
    }
    match errors.as_slice() {
        _ if !all_true => Ok(false),
        [] => Ok(true),
        [error] => Err(error.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

//! Match conditions, and the compiled expressions behind them.

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
    let mut review = request.review(place, object);
    let mut objects = [Value::Null, Value::Null];
    if let Some(map) = review.as_object_mut() {
        objects = ["object", "oldObject"].map(|name| map.remove(name).unwrap_or_default());
    }
    out.bind("request", &review);
    for (name, value) in ["object", "oldObject"].into_iter().zip(&objects) {
        out.bind(name, value);
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

/// Whether all match conditions hold. The first that is false decides over errors of others.
pub(super) fn conditions_hold(conditions: Option<&Value>, activation: &Activation) -> Result<bool, String> {
    let mut errors = Vec::new();
    let mut budget = Budget::new(PER_CONDITIONS);
    for condition in conditions.and_then(Value::as_array).into_iter().flatten() {
        let source = condition
            .get("expression")
            .and_then(Value::as_str)
            .unwrap_or_default();
        let holds = compile(source)
            .map_err(Failure::Error)
            .and_then(|e| e.decide_within(activation, &mut budget));
        match holds {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(Failure::OutOfBudget) => {
                errors.push(OUT_OF_BUDGET.to_owned());
                break;
            }
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
        [] => Ok(true),
        [error] => Err(error.clone()),
        several => Err(format!("[{}]", several.join(", "))),
    }
}

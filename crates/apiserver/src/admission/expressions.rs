//! Match conditions, and the compiled expressions behind them.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use serde_json::Value;

use crate::schema::{Activation, Expression};

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

/// What an admission expression may name. `authorizer` is not offered.
pub(super) fn activation(review: &Value) -> Activation {
    let mut out = Activation::default();
    let mut request = review.clone();
    if let Some(map) = request.as_object_mut() {
        map.remove("object");
        map.remove("oldObject");
    }
    out.bind("request", &request);
    for name in ["object", "oldObject"] {
        out.bind(name, review.get(name).unwrap_or(&Value::Null));
    }
    out
}

/// Whether all match conditions hold. The first that is false decides over errors of others.
pub(super) fn conditions_hold(conditions: Option<&Value>, activation: &Activation) -> Result<bool, String> {
    let mut errors = Vec::new();
    for condition in conditions.and_then(Value::as_array).into_iter().flatten() {
        let source = condition
            .get("expression")
            .and_then(Value::as_str)
            .unwrap_or_default();
        match compile(source).and_then(|e| e.evaluate_bool(activation)) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(e) => errors.push(format!("expression '{source}' resulted in error: {e}")),
        }
    }
    if errors.is_empty() {
        Ok(true)
    } else {
        Err(errors.join(", "))
    }
}

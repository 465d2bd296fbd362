//! The description of an object: its conditions, the reports of clusters, what to do next. Pure, no I/O.

mod advice;
mod reports;

use serde::Serialize;
use serde_json::Value;

pub use advice::advice;
pub use reports::{Report, decisions, members, reports};

/// The parts of a sync that report errors of their own.
const SYNC_PARTS: [&str; 3] = ["source", "rendering", "sync"];

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Condition {
    /// Its type.
    pub name: String,
    /// True, False or Unknown.
    pub status: String,
    /// Why, in one word.
    pub reason: String,
    /// Why, in a sentence.
    pub message: String,
    /// Its last transition.
    pub since: String,
    /// Whether it is about an older generation of the spec.
    pub outdated: bool,
}

/// The conditions of an object, as its server holds them.
pub fn conditions(object: &Value) -> Vec<Condition> {
    let generation = object.pointer("/metadata/generation").and_then(Value::as_i64);
    list(object, "/status/conditions")
        .map(|condition| Condition {
            name: text(condition, "/type"),
            status: text(condition, "/status"),
            reason: text(condition, "/reason"),
            message: text(condition, "/message"),
            since: text(condition, "/lastTransitionTime"),
            outdated: condition
                .pointer("/observedGeneration")
                .and_then(Value::as_i64)
                .is_some_and(|observed| Some(observed) < generation),
        })
        .collect()
}

fn text(value: &Value, path: &str) -> String {
    match value.pointer(path) {
        Some(Value::String(text)) => text.clone(),
        None | Some(Value::Null) => String::new(),
        Some(other) => other.to_string(),
    }
}

fn list<'a>(value: &'a Value, path: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value
        .pointer(path)
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

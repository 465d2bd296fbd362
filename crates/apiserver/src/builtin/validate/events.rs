//! Events: strict in their own group; in the core one only those that have a time of their own, for older ones never were.

use serde_json::Value;

use super::super::Kind;
use super::text;
use crate::schema::{Cause, names};

/// How long a reason, an action and the name of a reporter may be.
const WORD: usize = 128;
const NOTE: usize = 1024;

/// What does not change of an event in its own group, and what it is called where it is stored.
const LASTING: [(&str, &str); 13] = [
    ("regarding", "involvedObject"),
    ("reason", "reason"),
    ("note", "message"),
    ("deprecatedSource", "source"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedCount", "count"),
    ("type", "type"),
    ("eventTime", "eventTime"),
    ("action", "action"),
    ("related", "related"),
    ("reportingController", "reportingController"),
    ("reportingInstance", "reportingInstance"),
];

pub(super) fn event(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let core = kind.group.is_empty();
    let mut causes: Vec<Cause> = whom(new, core).into_iter().collect();
    if !text(new, "/eventTime").is_empty() {
        causes.extend(words(new, core));
    }
    if core {
        return causes;
    }
    match old {
        None => causes.extend(made(new)),
        Some(old) => {
            if new.get("series") != old.get("series") {
                causes.extend(series(new));
            }
            let changed = LASTING.iter().filter(|(name, _)| new.get(name) != old.get(name));
            causes.extend(changed.map(|(name, stored)| {
                let now = new.get(name).cloned().unwrap_or_else(|| "".into());
                Cause::invalid(*stored, &now, "field is immutable")
            }));
        }
    }
    causes
}

/// Whether an event is in the namespace of what it is about; those with a time of their own may be in any other.
fn whom(new: &Value, core: bool) -> Option<Cause> {
    let about = if core {
        "/involvedObject/namespace"
    } else {
        "/regarding/namespace"
    };
    let (about, namespace) = (text(new, about), text(new, "/metadata/namespace"));
    let timed = !text(new, "/eventTime").is_empty();
    let fits = if about.is_empty() {
        namespace == "default" || (timed && namespace == "kube-system")
    } else {
        timed || about == namespace
    };
    let detail = "does not match event.namespace";
    (!fits).then(|| Cause::invalid("involvedObject.namespace", &about.into(), detail))
}

/// Who says what, why.
fn words(new: &Value, core: bool) -> Vec<Cause> {
    let (reporter, note) = if core {
        ("reportingComponent", "message")
    } else {
        ("reportingController", "note")
    };
    let get = |field: &str| new.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut causes = Vec::new();
    let name = get(reporter);
    if name.is_empty() {
        causes.push(Cause::required(reporter, ""));
    }
    for problem in names::qualified_name(name) {
        causes.push(Cause::invalid(reporter, &name.into(), &problem));
    }
    for field in ["reportingInstance", "action", "reason"] {
        let said = get(field);
        if said.is_empty() {
            causes.push(Cause::required(field, ""));
        }
        causes.extend(too_long(field, said, WORD));
    }
    causes.extend(too_long("message", get(note), NOTE));
    causes
}

fn too_long(field: &str, said: &str, most: usize) -> Option<Cause> {
    let detail = format!("can have at most {most} characters");
    (said.len() > most).then(|| Cause::invalid(field, &"".into(), &detail))
}

/// What a new event of its own group has, and has not any more.
fn made(new: &Value) -> Vec<Cause> {
    let mut causes = series(new);
    if text(new, "/eventTime").is_empty() {
        causes.push(Cause::required("eventTime", ""));
    }
    let kind = text(new, "/type");
    if !matches!(kind, "Normal" | "Warning") {
        let detail = format!("has invalid value: {kind}");
        causes.push(Cause::invalid("type", &"".into(), &detail));
    }
    let given = |pointer: &str| match new.pointer(pointer) {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Number(number)) => number.as_i64() != Some(0),
        Some(_) => true,
    };
    for (field, given) in [
        ("firstTimestamp", given("/deprecatedFirstTimestamp")),
        ("lastTimestamp", given("/deprecatedLastTimestamp")),
        ("count", given("/deprecatedCount")),
        (
            "source",
            given("/deprecatedSource/component") || given("/deprecatedSource/host"),
        ),
    ] {
        if given {
            causes.push(Cause::invalid(field, &"".into(), "needs to be unset"));
        }
    }
    causes
}

fn series(new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(series) = new.get("series").filter(|series| !series.is_null()) else {
        return causes;
    };
    if series.get("count").and_then(Value::as_i64).unwrap_or_default() < 2 {
        causes.push(Cause::invalid("series.count", &"".into(), "should be at least 2"));
    }
    if text(series, "/lastObservedTime").is_empty() {
        causes.push(Cause::required("series.lastObservedTime", ""));
    }
    causes
}

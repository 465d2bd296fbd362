//! What is printed of an Event, in either of its spellings.

use jiff::Timestamp;
use serde_json::Value;

use super::{Column, NAME, age, number, string, text, wide};

/// The first field of these that says something.
fn first<'a>(event: &'a Value, pointers: &[&str]) -> &'a str {
    let texts = pointers.iter().filter_map(|p| event.pointer(p)?.as_str());
    texts
        .into_iter()
        .find(|text| !text.is_empty())
        .unwrap_or_default()
}

fn first_seen(event: &Value, now: Timestamp) -> String {
    let times = ["/firstTimestamp", "/deprecatedFirstTimestamp", "/eventTime"];
    age(Some(first(event, &times)), now)
}

fn last_seen(event: &Value, now: Timestamp) -> String {
    let last = if event.get("series").is_some_and(|series| !series.is_null()) {
        first(event, &["/series/lastObservedTime"])
    } else {
        match first(event, &["/lastTimestamp", "/deprecatedLastTimestamp"]) {
            "" => return first_seen(event, now),
            last => last,
        }
    };
    age(Some(last), now)
}

fn count(event: &Value) -> i64 {
    if event.get("series").is_some_and(|series| !series.is_null()) {
        return number(event, "/series/count");
    }
    // An event that happened once has no count in the new spelling.
    match number(event, "/count") + number(event, "/deprecatedCount") {
        0 => 1,
        count => count,
    }
}

fn about(event: &Value) -> &Value {
    let about = event.get("involvedObject").or_else(|| event.get("regarding"));
    about.unwrap_or(&Value::Null)
}

pub(in crate::builtin) const EVENT: &[Column] = &[
    text("Last Seen", |o, now| last_seen(o, now).into()),
    text("Type", |o, _| string(o, "/type").into()),
    text("Reason", |o, _| string(o, "/reason").into()),
    text("Object", |o, _| {
        let kind = string(about(o), "/kind").to_lowercase();
        match string(about(o), "/name").as_str() {
            "" => kind.into(),
            name => format!("{kind}/{name}").into(),
        }
    }),
    wide(text("Subobject", |o, _| string(about(o), "/fieldPath").into())),
    wide(text("Source", |o, _| {
        let components = [
            "/source/component",
            "/deprecatedSource/component",
            "/reportingComponent",
            "/reportingController",
        ];
        let component = first(o, &components);
        match first(
            o,
            &["/source/host", "/deprecatedSource/host", "/reportingInstance"],
        ) {
            "" => component.into(),
            instance => format!("{component}, {instance}").into(),
        }
    })),
    text("Message", |o, _| first(o, &["/message", "/note"]).trim().into()),
    wide(text("First Seen", |o, now| first_seen(o, now).into())),
    wide(text("Count", |o, _| count(o).into())),
    wide(NAME),
];

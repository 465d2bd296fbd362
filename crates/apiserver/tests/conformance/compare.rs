//! What counts as a difference.

use serde_json::{Map, Value, json};

use super::exchange::Answer;

/// Fields whose values are made by the server.
const MADE: [&str; 11] = [
    "uid",
    "resourceVersion",
    "continue",
    "token",
    "certificate",
    "expirationTimestamp",
    "clusterIP",
    "clusterIPs",
    "serverAddress",
    "clientCIDR",
    "storageVersionHash",
];

/// An object without what no two servers have in common.
pub fn scrub(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut out = Map::new();
            for (name, value) in map {
                let made = MADE.contains(&name.as_str())
                    && (value.is_string() || value.is_number() || name == "clusterIPs");
                let empty = value.as_str() == Some("");
                let mut kept = if made && !empty {
                    json!(format!("<{name}>"))
                } else {
                    scrub(value)
                };
                // Owners are sorted by time, to the second; which second it was is chance.
                if name == "managedFields"
                    && let Some(owners) = kept.as_array_mut()
                {
                    owners.sort_by_key(|o| {
                        format!(
                            "{}{}{}{}",
                            o["operation"], o["manager"], o["subresource"], o["apiVersion"]
                        )
                    });
                }
                out.insert(name.clone(), kept);
            }
            Value::Object(out)
        }
        Value::Array(list) => Value::Array(list.iter().map(scrub).collect()),
        Value::String(text) if is_time(text) => json!("<time>"),
        other => other.clone(),
    }
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T') && text.parse::<jiff::Timestamp>().is_ok()
}

/// The comparable part of an answer.
pub fn essence(answer: &Answer, ignore: &[String]) -> Value {
    let mut body = if answer.body.get("kind").and_then(Value::as_str) == Some("Status") {
        status(&answer.body)
    } else if answer.body.is_string() {
        // Texts for people may be worded otherwise; that it is a text must agree.
        json!("<text>")
    } else {
        scrub(&answer.body)
    };
    if answer.code >= 400 && body.is_object() {
        body["code"] = Value::Null;
    }
    let media = answer.content_type.split(';').next().unwrap_or_default();
    let mut essence = json!({"code": answer.code, "type": media, "warnings": answer.warnings, "body": body});
    for pointer in ignore {
        remove(&mut essence, pointer);
    }
    essence
}

fn status(status: &Value) -> Value {
    let mut causes: Vec<Value> = status
        .pointer("/details/causes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|c| json!({"field": c.get("field"), "reason": c.get("reason")}))
        .collect();
    causes.sort_by_key(ToString::to_string);
    causes.dedup();
    json!({
        "status": status.get("status"),
        "code": status.get("code"),
        "reason": status.get("reason"),
        "name": status.pointer("/details/name"),
        "group": status.pointer("/details/group"),
        "kind": status.pointer("/details/kind"),
        "causes": causes,
    })
}

/// Removes a pointer; `*` stands for every item or field.
fn remove(value: &mut Value, pointer: &str) {
    let mut path: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
    let Some(target) = path.pop() else { return };
    visit(value, &path, &mut |parent| match parent {
        Value::Object(map) => {
            map.remove(target);
        }
        Value::Array(list) => {
            if let Ok(i) = target.parse::<usize>()
                && i < list.len()
            {
                list.remove(i);
            }
        }
        _ => {}
    });
}

fn visit(value: &mut Value, path: &[&str], change: &mut dyn FnMut(&mut Value)) {
    let Some((first, rest)) = path.split_first() else {
        change(value);
        return;
    };
    match value {
        Value::Object(map) if *first == "*" => map.values_mut().for_each(|v| visit(v, rest, change)),
        Value::Array(list) if *first == "*" => list.iter_mut().for_each(|v| visit(v, rest, change)),
        Value::Object(map) => {
            if let Some(v) = map.get_mut(*first) {
                visit(v, rest, change);
            }
        }
        Value::Array(list) => {
            if let Some(v) = first.parse::<usize>().ok().and_then(|i| list.get_mut(i)) {
                visit(v, rest, change);
            }
        }
        _ => {}
    }
}

/// The places where two values differ, one line each.
pub fn differences(real: &Value, ours: &Value, path: &str, out: &mut Vec<String>) {
    match (real, ours) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys().filter(|k| !a.contains_key(*k))) {
                let path = format!("{path}/{name}");
                match (a.get(name), b.get(name)) {
                    (Some(a), Some(b)) => differences(a, b, &path, out),
                    (Some(a), None) => out.push(format!("{path}: real {a}, embedded has none")),
                    (None, Some(b)) => out.push(format!("{path}: real has none, embedded {b}")),
                    (None, None) => {}
                }
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (i, (a, b)) in a.iter().zip(b).enumerate() {
                differences(a, b, &format!("{path}/{i}"), out);
            }
        }
        (a, b) if a == b => {}
        (a, b) => out.push(format!("{path}: real {a}, embedded {b}")),
    }
}

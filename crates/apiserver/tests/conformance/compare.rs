//! What counts as a difference.

use serde_json::{Map, Value, json};

use super::exchange::Answer;

/// Fields whose values are made by the server.
const MADE: [&str; 13] = [
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
    "controller-uid",
    "batch.kubernetes.io/controller-uid",
];

/// Lists of one such value, in the `extra` of a user.
const MADE_LISTS: [&str; 3] = [
    "authentication.kubernetes.io/credential-id",
    "authentication.kubernetes.io/node-uid",
    "authentication.kubernetes.io/pod-uid",
];

/// Each server has an issuer of its own; the one begins as the other.
const ISSUERS: [&str; 2] = [
    "https://kubernetes.default.svc",
    "https://kubernetes.default.svc.cluster.local",
];

/// An object without what no two servers have in common.
pub fn scrub(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut out = Map::new();
            for (name, value) in map {
                let made = MADE.contains(&name.as_str())
                    && (value.is_string() || value.is_number() || name == "clusterIPs")
                    || MADE_LISTS.contains(&name.as_str());
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
                // What is some seconds old is so by chance.
                if name == "cells"
                    && let Some(cells) = kept.as_array_mut()
                {
                    let young = |cell: &&mut Value| cell.as_str().is_some_and(is_seconds);
                    cells
                        .iter_mut()
                        .filter(young)
                        .for_each(|cell| *cell = json!("<age>"));
                }
                // In the order in which rules were found.
                if (name == "nonResourceRules" || name == "resourceRules")
                    && let Some(rules) = kept.as_array_mut()
                {
                    rules.sort_by_key(ToString::to_string);
                }
                let name = if name.starts_with("k:{\"uid\":") {
                    "k:{\"uid\":<uid>}".to_owned()
                } else {
                    without_chance(name)
                };
                out.insert(name, kept);
            }
            Value::Object(out)
        }
        Value::Array(list) => Value::Array(list.iter().map(scrub).collect()),
        Value::String(text) if is_time(text) => json!("<time>"),
        Value::String(text) if text.contains(ISSUERS[1]) => json!(text.replace(ISSUERS[1], "<issuer>")),
        Value::String(text) if text.contains(ISSUERS[0]) => json!(text.replace(ISSUERS[0], "<issuer>")),
        Value::String(text) => without_chance(text).into(),
        other => other.clone(),
    }
}

fn is_seconds(text: &str) -> bool {
    let number = text.strip_suffix('s');
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The volume of a pod's token has a name that ends in five letters by chance.
fn without_chance(text: &str) -> String {
    const START: &str = "kube-api-access-";
    let mut parts = text.split(START);
    let mut out = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        out.push_str(START);
        let is_chance = part.len() >= 5 && part.as_bytes()[..5].iter().all(u8::is_ascii_alphanumeric);
        out.push_str(if is_chance { "<chance>" } else { "" });
        out.push_str(if is_chance { &part[5..] } else { part });
    }
    out
}

fn is_time(text: &str) -> bool {
    text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T') && text.parse::<jiff::Timestamp>().is_ok()
}

/// The comparable part of an answer.
///
/// `words`: causes must have the same messages, too.
pub fn essence(answer: &Answer, ignore: &[String], without: &[String], words: bool) -> Value {
    let mut body = if answer.body.get("kind").and_then(Value::as_str) == Some("Status") {
        status(&answer.body, words)
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
    strip(&mut essence["body"], without);
    essence
}

/// Removes fields by their names, wherever they are.
fn strip(value: &mut Value, names: &[String]) {
    match value {
        Value::Object(map) => {
            map.retain(|name, _| !names.contains(name));
            // A reference to a schema is wrapped where a default stands beside it.
            if names.iter().any(|name| name == "default")
                && let Some([wrapped]) = map.get("allOf").and_then(Value::as_array).map(Vec::as_slice)
                && let Some(reference) = wrapped.get("$ref").cloned()
            {
                map.remove("allOf");
                map.insert("$ref".into(), reference);
            }
            map.values_mut().for_each(|value| strip(value, names));
        }
        Value::Array(list) => list.iter_mut().for_each(|value| strip(value, names)),
        _ => {}
    }
}

/// What an item of a list is called.
fn identity(item: &Value) -> String {
    let names = [
        "/metadata/name",
        "/name",
        "/resource",
        "/version",
        "/subresource",
        "/groupVersion",
    ];
    let name = names.iter().find_map(|name| item.pointer(name));
    // The core group has no name.
    let unnamed = item.get("versions").map(|_| &Value::Null);
    name.or(unnamed).unwrap_or(item).to_string()
}

/// Leaves of a list or map of the real server what the embedded one has too. `*` stands for every item that both have.
pub fn keep_common(real: &mut Value, ours: &Value, pointer: &str) {
    let path: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
    common(real, ours, &path);
}

fn common(real: &mut Value, ours: &Value, path: &[&str]) {
    match (real, ours, path) {
        (Value::Object(real), Value::Object(ours), []) => real.retain(|name, _| ours.contains_key(name)),
        (Value::Array(real), Value::Array(ours), []) => {
            real.retain(|item| ours.iter().any(|own| identity(own) == identity(item)));
        }
        (Value::Object(real), Value::Object(ours), ["*", rest @ ..]) => {
            for (name, real) in real.iter_mut() {
                common(real, ours.get(name).unwrap_or(&Value::Null), rest);
            }
        }
        (Value::Array(real), Value::Array(ours), ["*", rest @ ..]) => {
            for real in real {
                let own = ours.iter().find(|own| identity(own) == identity(real));
                common(real, own.unwrap_or(&Value::Null), rest);
            }
        }
        (Value::Object(real), Value::Object(ours), [name, rest @ ..]) => {
            if let (Some(real), Some(ours)) = (real.get_mut(*name), ours.get(*name)) {
                common(real, ours, rest);
            }
        }
        _ => {}
    }
}

/// A message without the structure that it quotes: Go spells its fields in its own way.
fn without_value(message: &str) -> String {
    let structure = message.starts_with("Invalid value: {") || message.starts_with("Invalid value: [{");
    match message.rfind("}: ").or_else(|| message.rfind("}]: ")) {
        Some(end) if structure => format!("Invalid value{}", message[end..].trim_start_matches(['}', ']'])),
        _ => message.to_owned(),
    }
}

fn status(status: &Value, words: bool) -> Value {
    let mut causes: Vec<Value> = status
        .pointer("/details/causes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|c| {
            let message = words.then(|| c["message"].as_str().map(without_value));
            json!({"field": c.get("field"), "reason": c.get("reason"), "message": message})
        })
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

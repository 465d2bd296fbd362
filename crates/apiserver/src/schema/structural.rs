//! The rules a CRD's schema must follow to be structural.

use serde_json::{Map, Value};

use super::cause::{Cause, child, index, key};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Level {
    Root,
    Item,
    Field,
}

/// Everything that keeps a schema from being structural, sorted by text.
pub fn validate_structural(schema: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    invariants(schema, Level::Root, path, 0, &mut causes);
    complete(schema, schema, path, &mut causes);
    causes.sort_by_key(ToString::to_string);
    causes
}

fn text<'a>(schema: &'a Value, name: &str) -> &'a str {
    schema.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn flag(schema: &Value, name: &str) -> bool {
    schema.get(name).and_then(Value::as_bool).unwrap_or(false)
}

fn object<'a>(schema: &'a Value, name: &str) -> Option<&'a Map<String, Value>> {
    schema.get(name).and_then(Value::as_object)
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";
const EMBEDDED: &str = "x-kubernetes-embedded-resource";

fn invariants(schema: &Value, level: Level, path: &str, depth: usize, causes: &mut Vec<Cause>) {
    if depth > 128 {
        causes.push(Cause::forbidden(path, "schema is nested too deeply"));
        return;
    }
    let ty = text(schema, "type");
    let items = schema.get("items").filter(|i| i.is_object());
    if ty == "array" && items.is_none() {
        causes.push(Cause::required(child(path, "items"), "must be specified"));
    }
    if let Some(items) = items {
        invariants(items, Level::Item, &child(path, "items"), depth + 1, causes);
    }
    for (name, property) in object(schema, "properties").into_iter().flatten() {
        invariants(
            property,
            Level::Field,
            &key(&child(path, "properties"), name),
            depth + 1,
            causes,
        );
    }
    let additional = schema.get("additionalProperties").filter(|a| !a.is_null());
    if let Some(additional) = additional {
        let path = child(path, "additionalProperties");
        if level == Level::Root {
            causes.push(Cause::forbidden(path.as_str(), "must not be used at the root"));
        }
        if additional.is_object() {
            invariants(additional, Level::Field, &path, depth + 1, causes);
        }
    }
    let (preserve, int_or_string, embedded) = (
        flag(schema, PRESERVE),
        flag(schema, INT_OR_STRING),
        flag(schema, EMBEDDED),
    );
    if int_or_string && preserve {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        causes.push(Cause::invalid(child(path, PRESERVE), &true.into(), detail));
    }
    if int_or_string && embedded {
        let detail = "must be false if x-kubernetes-int-or-string is true";
        causes.push(Cause::invalid(child(path, EMBEDDED), &true.into(), detail));
    }
    values(schema, int_or_string, path, depth, causes);

    let type_path = child(path, "type");
    if embedded && ty != "object" {
        let detail = "must be object if x-kubernetes-embedded-resource is true";
        causes.push(if ty.is_empty() {
            Cause::required(type_path, detail)
        } else {
            Cause::invalid(type_path, &ty.into(), detail)
        });
    } else if ty.is_empty() && !int_or_string && !preserve {
        causes.push(Cause::required(
            type_path,
            match level {
                Level::Root => "must not be empty at the root",
                Level::Item => "must not be empty for specified array items",
                Level::Field => "must not be empty for specified object fields",
            },
        ));
    } else if level == Level::Root && !ty.is_empty() && ty != "object" {
        causes.push(Cause::invalid(
            type_path,
            &ty.into(),
            "must be object at the root",
        ));
    }
    if embedded && additional.is_some() {
        let detail = "must not be used if x-kubernetes-embedded-resource is set";
        causes.push(Cause::forbidden(child(path, "additionalProperties"), detail));
    }
    if level == Level::Root || embedded {
        metadata(schema, level, path, causes);
    }
    if embedded && !preserve && object(schema, "properties").is_none_or(Map::is_empty) {
        let detail = "must not be empty if x-kubernetes-embedded-resource is true without x-kubernetes-preserve-unknown-fields";
        causes.push(Cause::required(child(path, "properties"), detail));
    }
}

/// `apiVersion`, `kind` and `metadata` may be named, hardly more.
fn metadata(schema: &Value, level: Level, path: &str, causes: &mut Vec<Cause>) {
    let properties = child(path, "properties");
    for name in ["kind", "apiVersion"] {
        if let Some(property) = object(schema, "properties").and_then(|p| p.get(name))
            && text(property, "type") != "string"
        {
            let field = child(&key(&properties, name), "type");
            causes.push(Cause::invalid(
                field,
                &text(property, "type").into(),
                "must be string",
            ));
        }
    }
    let Some(meta) = object(schema, "properties").and_then(|p| p.get("metadata")) else {
        return;
    };
    let path = key(&properties, "metadata");
    if text(meta, "type") != "object" {
        causes.push(Cause::invalid(
            child(&path, "type"),
            &text(meta, "type").into(),
            "must be object",
        ));
    }
    if level == Level::Root {
        let only_names =
            object(meta, "properties").is_none_or(|p| p.keys().all(|k| k == "name" || k == "generateName"));
        let only_properties = meta.as_object().is_some_and(|m| {
            m.keys()
                .all(|k| matches!(k.as_str(), "type" | "properties" | "default"))
        });
        if !only_names || !only_properties {
            let detail = "must not specify anything other than name and generateName, but metadata is implicitly specified";
            causes.push(Cause::forbidden(path, detail));
        }
    }
}

const JUNCTORS: [&str; 3] = ["allOf", "anyOf", "oneOf"];

fn is_int_or_string_pattern(branches: &[Value]) -> bool {
    let types: Vec<&str> = branches.iter().map(|b| text(b, "type")).collect();
    types == ["integer", "string"]
        && branches
            .iter()
            .all(|b| b.as_object().is_some_and(|m| m.len() == 1))
}

/// Value validations of a node: junctor branches may not carry structure.
fn values(schema: &Value, int_or_string: bool, path: &str, depth: usize, causes: &mut Vec<Cause>) {
    for junctor in JUNCTORS {
        let branches = schema
            .get(junctor)
            .and_then(Value::as_array)
            .map(Vec::as_slice)
            .unwrap_or_default();
        if junctor == "anyOf" && int_or_string && is_int_or_string_pattern(branches) {
            continue;
        }
        for (i, branch) in branches.iter().enumerate() {
            let skip = junctor == "allOf" && i == 0 && int_or_string;
            nested(branch, skip, &index(&child(path, junctor), i), depth + 1, causes);
        }
    }
    if let Some(not) = schema.get("not").filter(|n| n.is_object()) {
        nested(not, false, &child(path, "not"), depth + 1, causes);
    }
    let pattern = text(schema, "pattern");
    if !pattern.is_empty()
        && let Err(e) = super::regexes::get(pattern)
    {
        let detail = format!("must be a valid regular expression, but isn't: {e}");
        causes.push(Cause::invalid(child(path, "pattern"), &pattern.into(), &detail));
    }
}

fn nested(schema: &Value, skip_any_of: bool, path: &str, depth: usize, causes: &mut Vec<Cause>) {
    if depth > 128 {
        causes.push(Cause::forbidden(path, "schema is nested too deeply"));
        return;
    }
    values(schema, skip_any_of, path, depth, causes);
    if let Some(items) = schema.get("items").filter(|i| i.is_object()) {
        nested(items, false, &child(path, "items"), depth + 1, causes);
    }
    for (name, property) in object(schema, "properties").into_iter().flatten() {
        nested(
            property,
            false,
            &key(&child(path, "properties"), name),
            depth + 1,
            causes,
        );
    }
    let mut forbid = |name: &str, present: bool, state: &str| {
        if present {
            causes.push(Cause::forbidden(
                child(path, name),
                &format!("must be {state} to be structural"),
            ));
        }
    };
    forbid("type", !text(schema, "type").is_empty(), "empty");
    forbid(
        "additionalProperties",
        schema.get("additionalProperties").is_some_and(|a| !a.is_null()),
        "undefined",
    );
    forbid(
        "default",
        schema.get("default").is_some_and(|d| !d.is_null()),
        "undefined",
    );
    forbid("title", !text(schema, "title").is_empty(), "empty");
    forbid("description", !text(schema, "description").is_empty(), "empty");
    forbid("nullable", flag(schema, "nullable"), "false");
    for name in [PRESERVE, EMBEDDED, INT_OR_STRING] {
        forbid(name, flag(schema, name), "false");
    }
    let list = |name: &str| {
        schema
            .get(name)
            .and_then(Value::as_array)
            .is_some_and(|l| !l.is_empty())
    };
    forbid(
        "x-kubernetes-list-map-keys",
        list("x-kubernetes-list-map-keys"),
        "empty",
    );
    forbid(
        "x-kubernetes-list-type",
        schema.get("x-kubernetes-list-type").is_some(),
        "undefined",
    );
    forbid(
        "x-kubernetes-map-type",
        schema.get("x-kubernetes-map-type").is_some(),
        "undefined",
    );
    forbid(
        "x-kubernetes-validations",
        list("x-kubernetes-validations"),
        "empty",
    );
}

/// Every field that a junctor at the root speaks of must also be specified in the structure beside it.
/// Deeper junctors are not looked at, as in the real server.
fn complete(schema: &Value, structure: &Value, path: &str, causes: &mut Vec<Cause>) {
    for junctor in JUNCTORS {
        for (i, branch) in schema
            .get(junctor)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            covered(branch, structure, &index(&child(path, junctor), i), causes);
        }
    }
    if let Some(not) = schema.get("not").filter(|n| n.is_object()) {
        covered(not, structure, &child(path, "not"), causes);
    }
}

fn covered(branch: &Value, structure: &Value, path: &str, causes: &mut Vec<Cause>) {
    let because = |field: &str| format!("because it is defined in {field}");
    let outer = |path: &str| {
        // The structure's place is the branch's place without its junctor.
        let cut = JUNCTORS
            .iter()
            .filter_map(|j| path.find(&format!(".{j}[")))
            .chain(path.find(".not"))
            .min();
        let (head, tail) = path.split_at(cut.unwrap_or(path.len()));
        let tail = tail
            .find(".properties")
            .or_else(|| tail.find(".items"))
            .map_or("", |i| tail.get(i..).unwrap_or_default());
        format!("{head}{tail}")
    };
    for (name, property) in object(branch, "properties").into_iter().flatten() {
        let here = key(&child(path, "properties"), name);
        match object(structure, "properties").and_then(|p| p.get(name)) {
            Some(structure) => covered(property, structure, &here, causes),
            None => causes.push(Cause::required(outer(&here), &because(&here))),
        }
    }
    if let Some(items) = branch.get("items").filter(|i| i.is_object()) {
        let here = child(path, "items");
        match structure.get("items").filter(|i| i.is_object()) {
            Some(structure) => covered(items, structure, &here, causes),
            None => causes.push(Cause::required(outer(&here), &because(&here))),
        }
    }
    for junctor in JUNCTORS {
        for (i, inner) in branch
            .get(junctor)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            covered(inner, structure, &index(&child(path, junctor), i), causes);
        }
    }
}

//! The schema of a custom resource, beyond being structural.

use serde_json::{Map, Value};

use super::{list, selectable, text};
use crate::schema::{Cause, Expression, Schema, Scope, Ty, child, index, key, validate_structural};

/// What is wrong with an `openAPIV3Schema`; `unchanged` if it is that of the stored definition.
pub(super) fn validate(schema: &Value, status: bool, path: &str, unchanged: bool) -> Vec<Cause> {
    let mut causes = Vec::new();
    if status {
        let allowed = [
            "description",
            "type",
            "format",
            "title",
            "maximum",
            "exclusiveMaximum",
            "minimum",
            "exclusiveMinimum",
            "maxLength",
            "minLength",
            "pattern",
            "maxItems",
            "minItems",
            "uniqueItems",
            "multipleOf",
            "required",
            "enum",
            "items",
            "properties",
            "externalDocs",
            "example",
            "default",
            "nullable",
        ];
        let stray = schema
            .as_object()
            .into_iter()
            .flatten()
            .any(|(k, _)| !allowed.contains(&k.as_str()) && !k.starts_with("x-kubernetes-"));
        if stray {
            let detail = "only [Description Type Format Title Maximum ExclusiveMaximum Minimum ExclusiveMinimum MaxLength MinLength Pattern MaxItems MinItems UniqueItems MultipleOf Required Enum Items Properties ExternalDocs Example XPreserveUnknownFields XValidations] fields are allowed at the root of the schema if the status subresource is enabled";
            causes.push(Cause::invalid(path, schema, detail));
        }
    }
    if schema.get("nullable").and_then(Value::as_bool) == Some(true) {
        causes.push(Cause::forbidden(
            child(path, "nullable"),
            "nullable cannot be true at the root",
        ));
    }
    let structural = validate_structural(schema, path);
    let sound = structural.is_empty();
    causes.extend(structural);
    let mut problems = Problems::default();
    node(schema, path, &Place::default(), &mut problems);
    causes.extend(problems.shape);
    let sound = sound && causes.is_empty();
    causes.extend(problems.rules);
    if sound && causes.is_empty() {
        defaults(schema, path, 0, &mut causes);
    }
    // A rule that does not compile is no reason not to look at the others.
    if sound {
        causes.extend(super::costs::validate(schema, path, unchanged));
    }
    causes
}

pub(super) fn branches<'a>(schema: &'a Value, path: &str) -> Vec<(String, &'a Value)> {
    let mut out = Vec::new();
    for (name, property) in schema
        .get("properties")
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
    {
        out.push((key(&child(path, "properties"), name), property));
    }
    for name in ["items", "additionalProperties", "not"] {
        if let Some(value) = schema.get(name).filter(|v| v.is_object()) {
            out.push((child(path, name), value));
        }
    }
    for name in ["allOf", "anyOf", "oneOf"] {
        for (i, value) in list(schema, &format!("/{name}")).iter().enumerate() {
            out.push((index(&child(path, name), i), value));
        }
    }
    out
}

const TYPES: [&str; 6] = ["array", "boolean", "integer", "number", "object", "string"];

/// Where in a schema.
#[derive(Default)]
struct Place {
    depth: usize,
    /// The list whose old items cannot be told from each other, if this is within one.
    lost: Option<String>,
}

/// What is wrong with the form of a schema, and with its rules.
#[derive(Default)]
struct Problems {
    shape: Vec<Cause>,
    rules: Vec<Cause>,
}

fn node(schema: &Value, path: &str, place: &Place, problems: &mut Problems) {
    let root = place.depth == 0;
    if place.depth > 128 {
        return;
    }
    let before = problems.shape.len();
    let causes = &mut problems.shape;
    let ty = text(schema, "/type");
    if !ty.is_empty() && !TYPES.contains(&ty) {
        causes.push(Cause::not_supported(child(path, "type"), &ty.into(), &TYPES));
    }
    for name in [
        "$ref",
        "definitions",
        "dependencies",
        "id",
        "patternProperties",
        "additionalItems",
        "deprecated",
        "discriminator",
        "readOnly",
        "writeOnly",
        "xml",
    ] {
        if schema.get(name).is_some_and(|v| !v.is_null()) {
            causes.push(Cause::forbidden(
                child(path, name),
                &format!("{name} is not supported"),
            ));
        }
    }
    if schema.get("uniqueItems").and_then(Value::as_bool) == Some(true) {
        let detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic";
        causes.push(Cause::forbidden(child(path, "uniqueItems"), detail));
    }
    let properties = schema
        .get("properties")
        .and_then(Value::as_object)
        .is_some_and(|p| !p.is_empty());
    match schema.get("additionalProperties") {
        Some(Value::Bool(false)) => {
            causes.push(Cause::forbidden(
                child(path, "additionalProperties"),
                "additionalProperties cannot be set to false",
            ));
        }
        Some(Value::Object(_)) if properties => {
            let detail = "additionalProperties and properties are mutual exclusive";
            causes.push(Cause::forbidden(child(path, "additionalProperties"), detail));
        }
        _ => {}
    }
    if schema
        .get("x-kubernetes-preserve-unknown-fields")
        .and_then(Value::as_bool)
        == Some(false)
    {
        let field = child(path, "x-kubernetes-preserve-unknown-fields");
        causes.push(Cause::invalid(field, &false.into(), "must be true or undefined"));
    }
    list_and_map(schema, ty, path, causes);
    shape_of_rules(schema, path, causes);
    if root {
        for name in ["apiVersion", "kind", "metadata"] {
            let property = schema.get("properties").and_then(|p| p.get(name));
            if property.is_some_and(|p| p.get("default").is_some_and(|d| !d.is_null())) {
                let field = child(&key(&child(path, "properties"), name), "default");
                causes.push(Cause::forbidden(
                    field,
                    &format!("must not be set in top-level {name}"),
                ));
            }
        }
    }
    let items = child(path, "items");
    let by_keys = text(schema, "/x-kubernetes-list-type") == "map";
    for (below, branch) in branches(schema, path) {
        let lost = (below == items && !by_keys).then(|| path.to_owned());
        let place = Place {
            depth: place.depth + 1,
            lost: place.lost.clone().or(lost),
        };
        node(branch, &below, &place, problems);
    }
    // Of what cannot be right for the schema's sake, nothing is said.
    if problems.shape.len() == before {
        rules(schema, path, place, &mut problems.rules);
    }
}

fn list_and_map(schema: &Value, ty: &str, path: &str, causes: &mut Vec<Cause>) {
    let extension = |name: &str| schema.get(name).and_then(Value::as_str);
    for (name, wanted, allowed) in [
        ("x-kubernetes-map-type", "object", &["atomic", "granular"][..]),
        ("x-kubernetes-list-type", "array", &["atomic", "set", "map"][..]),
    ] {
        let Some(value) = extension(name) else { continue };
        if ty != wanted {
            let detail = format!("must be {wanted} if {name} is specified");
            let field = child(path, "type");
            causes.push(if ty.is_empty() {
                Cause::required(field, &detail)
            } else {
                Cause::invalid(field, &ty.into(), &detail)
            });
        }
        if !allowed.contains(&value) {
            causes.push(Cause::not_supported(child(path, name), &value.into(), allowed));
        }
    }
    let list_type = extension("x-kubernetes-list-type");
    let keys = list(schema, "/x-kubernetes-list-map-keys");
    let field = child(path, "x-kubernetes-list-type");
    if !keys.is_empty() && list_type != Some("map") {
        let detail = "must be map if x-kubernetes-list-map-keys is non-empty";
        causes.push(list_type.map_or_else(
            || Cause::required(field.as_str(), detail),
            |t| Cause::invalid(field.as_str(), &t.into(), detail),
        ));
    }
    let items = schema.get("items").filter(|i| i.is_object());
    let item_type = items.map(|i| text(i, "/type")).unwrap_or_default();
    if list_type == Some("set") && matches!(item_type, "object" | "array") {
        let name = if item_type == "object" {
            "x-kubernetes-map-type"
        } else {
            "x-kubernetes-list-type"
        };
        let given = items.and_then(|i| i.get(name)).and_then(Value::as_str);
        if item_type == "object" && given != Some("atomic")
            || item_type == "array" && !matches!(given, None | Some("atomic"))
        {
            let field = child(&child(path, "items"), name);
            let detail = "must be atomic as item of a list with x-kubernetes-list-type=set";
            causes.push(Cause::invalid(
                field,
                &given.map_or(Value::Null, Value::from),
                detail,
            ));
        }
    }
    if list_type != Some("map") {
        return;
    }
    if keys.is_empty() {
        let detail = "must not be empty if x-kubernetes-list-type is map";
        causes.push(Cause::required(child(path, "x-kubernetes-list-map-keys"), detail));
    }
    let Some(items) = items else {
        causes.push(Cause::required(
            child(path, "items"),
            "must have a schema if x-kubernetes-list-type is map",
        ));
        return;
    };
    if item_type != "object" {
        let detail = "must be object if parent array's x-kubernetes-list-type is map";
        causes.push(Cause::invalid(
            child(path, "items.type"),
            &item_type.into(),
            detail,
        ));
        return;
    }
    let empty = Map::new();
    let properties = items
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&empty);
    let keys_field = child(path, "x-kubernetes-list-map-keys");
    for (i, name) in keys.iter().enumerate() {
        let name = name.as_str().unwrap_or_default();
        match properties.get(name) {
            None => {
                let detail = "entries must all be names of item properties";
                causes.push(Cause::invalid(keys_field.as_str(), &keys.into(), detail));
            }
            Some(property) if matches!(text(property, "/type"), "array" | "object") => {
                let field = child(&key(&child(path, "items.properties"), name), "type");
                let detail = "must be a scalar type if parent array's x-kubernetes-list-type is map";
                causes.push(Cause::invalid(field, &item_type.into(), detail));
            }
            Some(property) => {
                let required = list(items, "/required").iter().any(|r| r.as_str() == Some(name));
                if !required && property.get("default").is_none_or(Value::is_null) {
                    let field = child(&key(&child(path, "items.properties"), name), "default");
                    let detail = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property";
                    causes.push(Cause::required(field, detail));
                }
                if property.get("nullable").and_then(Value::as_bool) == Some(true) {
                    let field = child(&key(&child(path, "items.properties"), name), "nullable");
                    let detail = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable";
                    causes.push(Cause::forbidden(field, detail));
                }
            }
        }
        if keys.iter().take(i).any(|k| k.as_str() == Some(name)) {
            causes.push(Cause::invalid(
                keys_field.as_str(),
                &keys.into(),
                "must not contain duplicate entries",
            ));
        }
    }
}

const REASONS: [&str; 4] = [
    "FieldValueDuplicate",
    "FieldValueForbidden",
    "FieldValueInvalid",
    "FieldValueRequired",
];

fn shape_of_rules(schema: &Value, path: &str, causes: &mut Vec<Cause>) {
    let path = child(path, "x-kubernetes-validations");
    for (i, rule) in list(schema, "/x-kubernetes-validations").iter().enumerate() {
        let path = index(&path, i);
        let (source, message) = (text(rule, "/rule").trim(), text(rule, "/message"));
        if source.is_empty() {
            causes.push(Cause::required(child(&path, "rule"), "rule is not specified"));
        } else if !message.is_empty() && message.trim().is_empty() {
            causes.push(Cause::invalid(
                child(&path, "message"),
                &message.into(),
                "must be non-empty if specified",
            ));
        } else if message.trim().contains('\n') {
            causes.push(Cause::invalid(
                child(&path, "message"),
                &message.into(),
                "must not contain line breaks",
            ));
        } else if source.contains('\n') && message.trim().is_empty() {
            let detail = "message must be specified if rule contains line breaks";
            causes.push(Cause::required(child(&path, "message"), detail));
        }
        let dynamic = text(rule, "/messageExpression");
        if !dynamic.is_empty() && dynamic.trim().is_empty() {
            let detail = "messageExpression must be non-empty if specified";
            causes.push(Cause::required(child(&path, "messageExpression"), detail));
        }
        if let Some(reason) = rule
            .get("reason")
            .filter(|r| !REASONS.contains(&r.as_str().unwrap_or_default()))
        {
            causes.push(Cause::not_supported(child(&path, "reason"), reason, &REASONS));
        }
        let (place, at) = (text(rule, "/fieldPath"), child(&path, "fieldPath"));
        let mut wrong = |detail: &str| causes.push(Cause::invalid(at.as_str(), &place.into(), detail));
        if place.is_empty() {
            continue;
        }
        if place.trim().is_empty() {
            wrong("must be non-empty if specified");
        }
        if place.contains('\n') {
            wrong("must not contain line breaks");
        }
        if selectable::find(place, schema, true).is_err() && validate_structural(schema, "").is_empty() {
            wrong("must be a valid path");
        }
    }
}

/// Rules of a schema whose form is right, there and below.
fn rules(schema: &Value, path: &str, place: &Place, causes: &mut Vec<Cause>) {
    let root = place.depth == 0;
    let path = child(path, "x-kubernetes-validations");
    for (i, rule) in list(schema, "/x-kubernetes-validations").iter().enumerate() {
        let path = index(&path, i);
        let source = text(rule, "/rule").trim();
        let optional_old = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
        for (name, source, wanted) in [
            ("rule", source, Ty::Bool),
            (
                "messageExpression",
                text(rule, "/messageExpression").trim(),
                Ty::String,
            ),
        ] {
            if source.is_empty() {
                continue;
            }
            // Whether it can be, and then whether it names the old value.
            let checked = match (Expression::compile(source), Schema::compile(schema)) {
                (Err(e), _) => Err(format!("compilation failed: {e}")),
                (Ok(expression), Ok(schema)) => expression
                    .check_as(&[wanted], &Scope::of_schema(&schema, root, optional_old))
                    .and_then(|_| expression.instantiate())
                    .map(|()| expression.uses("oldSelf")),
                (Ok(expression), Err(_)) => Ok(expression.uses("oldSelf")),
            };
            if let Err(problem) = &checked {
                causes.push(Cause::invalid(child(&path, name), &source.into(), problem));
            }
            if let Some(lost) = place
                .lost
                .as_ref()
                .filter(|_| name == "rule" && checked == Ok(true))
            {
                let why = format!(
                    "oldSelf cannot be used on the uncorrelatable portion of the schema within {lost}"
                );
                causes.push(Cause::invalid(child(&path, name), &source.into(), &why));
            }
            if let Some(flag) = rule.get("optionalOldSelf").filter(|flag| flag.is_boolean())
                && name == "rule"
                && checked != Ok(true)
            {
                let why = "may not be set if oldSelf is not used in rule";
                causes.push(Cause::invalid(child(&path, "optionalOldSelf"), flag, why));
            }
        }
    }
}

/// Defaults must be valid values themselves, and survive pruning.
fn defaults(schema: &Value, path: &str, depth: usize, causes: &mut Vec<Cause>) {
    if depth > 128 {
        return;
    }
    if let Some(default) = schema.get("default").filter(|d| !d.is_null())
        && let Ok(compiled) = Schema::compile(schema)
    {
        let field = child(path, "default");
        let mut pruned = default.clone();
        let dropped = compiled.prune(&mut pruned);
        if dropped.is_empty() {
            for cause in compiled.validate_values(default, None) {
                let here = if cause.field == "<nil>" {
                    field.clone()
                } else {
                    child(&field, &cause.field)
                };
                causes.push(Cause { field: here, ..cause });
            }
        } else {
            causes.push(Cause::invalid(field, default, "must not have unknown fields"));
        }
    }
    for (path, branch) in branches(schema, path) {
        defaults(branch, &path, depth + 1, causes);
    }
}

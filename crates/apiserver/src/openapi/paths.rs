//! The paths of a resource: what can be asked, and with which parameters.

use serde_json::{Map, Value, json};

use super::{Flavor, path_of, schemas};
use crate::registry::Resource;

fn parameter(flavor: Flavor, name: &str, place: &str) -> Value {
    let mut it = json!({ "name": name, "in": place });
    if let Some(map) = it.as_object_mut() {
        if place == "path" {
            map.insert("required".into(), true.into());
        }
        match flavor {
            Flavor::V2 => {
                map.insert("type".into(), "string".into());
                map.insert("uniqueItems".into(), true.into());
            }
            Flavor::V3 => {
                map.insert("schema".into(), json!({ "type": "string", "uniqueItems": true }));
            }
        }
    }
    it
}

fn operation(flavor: Flavor, resource: &Resource, version: &str, action: &str) -> Value {
    let name = schemas::name(resource, version);
    let shown = if action == "list" {
        format!("{name}List")
    } else {
        name
    };
    let names: &[&str] = match action {
        "post" | "put" => &["dryRun", "fieldManager", "fieldValidation"],
        "patch" => &["dryRun", "fieldManager", "fieldValidation", "force"],
        "delete" => &["dryRun", "gracePeriodSeconds", "propagationPolicy"],
        "list" => &[
            "continue",
            "fieldSelector",
            "labelSelector",
            "limit",
            "resourceVersion",
            "watch",
        ],
        _ => &[],
    };
    let parameters: Vec<Value> = names
        .iter()
        .map(|name| parameter(flavor, name, "query"))
        .collect();
    let reference = json!({ "$ref": flavor.reference(&shown) });
    let response = match flavor {
        Flavor::V2 => json!({ "description": "OK", "schema": reference }),
        Flavor::V3 => {
            json!({ "description": "OK", "content": { "application/json": { "schema": reference } } })
        }
    };
    json!({
        "operationId": format!("{action}{}{}{}", resource.group.replace('.', ""), version, resource.kind),
        "parameters": parameters,
        "responses": { "200": response },
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": { "group": resource.group, "version": version, "kind": resource.kind },
    })
}

/// Adds the paths of one version of a resource.
pub(super) fn add(flavor: Flavor, resource: &Resource, version: &str, all: &mut Map<String, Value>) {
    let root = format!("/{}", path_of(&resource.group, version));
    let plural = &resource.plural;
    let (collection, names): (String, &[&str]) = if resource.namespaced {
        (
            format!("{root}/namespaces/{{namespace}}/{plural}"),
            &["namespace"],
        )
    } else {
        (format!("{root}/{plural}"), &[])
    };
    let parameters =
        |names: &[&str]| -> Vec<Value> { names.iter().map(|name| parameter(flavor, name, "path")).collect() };
    let item = |verbs: &[(&str, &str, &str)], names: &[&str]| {
        let mut path = Map::new();
        for (method, verb, action) in verbs {
            if resource.allows(verb) {
                path.insert((*method).to_owned(), operation(flavor, resource, version, action));
            }
        }
        path.insert("parameters".into(), parameters(names).into());
        Value::Object(path)
    };
    all.insert(
        collection.clone(),
        item(
            &[
                ("get", "list", "list"),
                ("post", "create", "post"),
                ("delete", "deletecollection", "deletecollection"),
            ],
            names,
        ),
    );
    if !resource.allows("get") {
        return;
    }
    let mut inner = names.to_vec();
    inner.push("name");
    let change = [
        ("get", "get", "get"),
        ("put", "update", "put"),
        ("patch", "patch", "patch"),
        ("delete", "delete", "delete"),
    ];
    all.insert(format!("{collection}/{{name}}"), item(&change, &inner));
    if resource.version(version).is_some_and(|version| version.status) {
        all.insert(
            format!("{collection}/{{name}}/status"),
            item(change.get(..3).unwrap_or_default(), &inner),
        );
    }
    if resource.namespaced {
        all.insert(format!("{root}/{plural}"), item(&[("get", "list", "list")], &[]));
    }
}

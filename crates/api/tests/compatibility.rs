//! `docs/compatibility.md` has a row for every spec field of every kind, and no row for a field that is gone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "tests"
)]

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
};

const DOCUMENT: &str = include_str!("../../../docs/compatibility.md");

/// The rows of each section `## Kind.group`: the paths in the first column. What is not acted on says why, or where a
/// user is told so.
fn rows() -> BTreeMap<String, BTreeSet<String>> {
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in DOCUMENT.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.trim().clone_into(&mut current);
        } else if line.starts_with("| `") {
            let cells: Vec<_> = line.split(" | ").collect();
            let [path, acted_on, note] = cells[..] else {
                panic!("three cells: {line}");
            };
            let explained = note.trim_end_matches('|').trim() != "";
            assert!(acted_on == "yes" || explained, "no note: {line}");
            let path = path.trim_start_matches("| ").trim_matches('`').replace("[]", "");
            sections.entry(current.clone()).or_default().insert(path);
        }
    }
    sections
}

/// Every path below `schema`, lists and maps passed through.
fn paths(schema: &JSONSchemaProps, path: &str, into: &mut BTreeSet<String>) {
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        paths(items, path, into);
    }
    if let Some(JSONSchemaPropsOrBool::Schema(values)) = &schema.additional_properties {
        paths(values, path, into);
    }
    for (name, property) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        into.insert(path.clone());
        paths(property, &path, into);
    }
}

/// A template has the fields of what is made from it, and no rows of its own below it.
const TEMPLATE: (&str, &str, &str) = (
    "ManifestWorkReplicaSet.work.open-cluster-management.io",
    "spec.manifestWorkTemplate.*",
    "ManifestWork.work.open-cluster-management.io",
);

fn covered(title: &str, path: &str, all: &BTreeMap<String, BTreeSet<String>>) -> bool {
    let has = |title: &str, path: &str| all.get(title).is_some_and(|rows| rows.contains(path));
    let (of, row, made) = TEMPLATE;
    let below = path
        .strip_prefix(row.trim_end_matches(".*"))
        .filter(|_| title == of);
    match below {
        Some("") => has(of, row),
        Some(rest) => has(made, &format!("spec{rest}")),
        None => has(title, path),
    }
}

#[test]
fn every_spec_field_has_a_row_and_every_row_a_field() {
    let all = rows();
    let mut problems = Vec::new();
    for crd in writ_api::crds() {
        let title = format!("{}.{}", crd.spec.names.kind, crd.spec.group);
        let mut fields = BTreeSet::new();
        for version in &crd.spec.versions {
            let root = version
                .schema
                .as_ref()
                .and_then(|schema| schema.open_api_v3_schema.as_ref())
                .unwrap();
            let spec = root
                .properties
                .as_ref()
                .and_then(|properties| properties.get("spec"));
            if let Some(spec) = spec {
                paths(spec, "spec", &mut fields);
            }
        }
        if fields.is_empty() {
            continue;
        }
        let Some(rows) = all.get(&title) else {
            problems.push(format!("{title}: no section"));
            continue;
        };
        for field in fields.iter().filter(|field| !covered(&title, field, &all)) {
            problems.push(format!("{title}: no row for {field}"));
        }
        for row in rows.iter().filter(|row| row.starts_with("spec.")) {
            let field = row.trim_end_matches(".*");
            if !fields.contains(field) {
                problems.push(format!("{title}: no field for row {row}"));
            }
        }
    }
    assert!(
        problems.is_empty(),
        "docs/compatibility.md:\n{}",
        problems.join("\n")
    );
}

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
    JSONSchemaProps, JSONSchemaPropsOrArray,
};

const DOCUMENT: &str = include_str!("../../../docs/compatibility.md");

/// The rows of each section `## Kind.group`: the paths in the first column.
fn rows() -> BTreeMap<String, BTreeSet<String>> {
    let mut sections: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut current = String::new();
    for line in DOCUMENT.lines() {
        if let Some(title) = line.strip_prefix("## ") {
            title.trim().clone_into(&mut current);
        } else if let Some(cell) = line.strip_prefix("| `").and_then(|rest| rest.split('`').next()) {
            sections
                .entry(current.clone())
                .or_default()
                .insert(cell.replace("[]", ""));
        }
    }
    sections
}

/// Every path below `schema`, lists and maps passed through.
fn paths(schema: &JSONSchemaProps, path: &str, into: &mut BTreeSet<String>) {
    if let Some(JSONSchemaPropsOrArray::Schema(items)) = &schema.items {
        paths(items, path, into);
    }
    for (name, property) in schema.properties.iter().flatten() {
        let path = format!("{path}.{name}");
        into.insert(path.clone());
        paths(property, &path, into);
    }
}

fn covered(path: &str, rows: &BTreeSet<String>) -> bool {
    let below = |row: &String| {
        row.strip_suffix(".*")
            .is_some_and(|row| path == row || path.starts_with(&format!("{row}.")))
    };
    // A row for a part of a field names the field as well.
    let above = |row: &String| row.starts_with(&format!("{path}."));
    rows.contains(path) || rows.iter().any(|row| below(row) || above(row))
}

#[test]
fn every_spec_field_has_a_row_and_every_row_a_field() {
    let rows = rows();
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
        let Some(rows) = rows.get(&title) else {
            problems.push(format!("{title}: no section"));
            continue;
        };
        for field in fields.iter().filter(|field| !covered(field, rows)) {
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

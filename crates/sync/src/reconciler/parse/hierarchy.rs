//! The hierarchy layout: `system`, `cluster`, `clusterregistry` and `namespaces`, where a folder with a Namespace is
//! that namespace, and any other folder passes its objects on to the namespaces below it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Parsed;
use crate::reconciler::{object::Raw, problem::Problem};

/// Puts each object where its folder says.
pub fn place(parsed: &mut Parsed) {
    let objects = std::mem::take(&mut parsed.objects);
    let top = root(&objects);
    let mut has_repo = false;
    let mut namespaces: BTreeMap<String, String> = BTreeMap::new();
    let mut below: Vec<(String, Raw)> = Vec::new();
    for raw in objects {
        let path = raw
            .path
            .strip_prefix(top.as_str())
            .unwrap_or(&raw.path)
            .to_owned();
        let (first, rest) = path.split_once('/').unwrap_or(("", &path));
        let folder = rest.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        match first {
            "system" => has_repo |= raw.kind() == "Repo",
            "cluster" => {
                if raw.namespace().is_empty() {
                    parsed.objects.push(raw);
                } else {
                    parsed.problems.push(
                        Problem::new(
                            "1052",
                            format!("{}: an object in cluster/ has no namespace", raw.name()),
                        )
                        .at(&raw.path),
                    );
                }
            }
            "clusterregistry" => {}
            "namespaces" if raw.kind() == "Namespace" && raw.api_version() == "v1" => {
                let leaf = folder.rsplit('/').next().unwrap_or_default();
                if leaf == raw.name() {
                    namespaces.insert(folder, raw.name().to_owned());
                    parsed.objects.push(raw);
                } else {
                    parsed.problems.push(
                        Problem::new(
                            "1020",
                            format!(
                                "Namespace {} must be in a folder of its name, not {leaf:?}",
                                raw.name()
                            ),
                        )
                        .at(&raw.path),
                    );
                }
            }
            "namespaces" => below.push((folder, raw)),
            _ => parsed.problems.push(
                Problem::new(
                    "1045",
                    format!(
                        "{}: objects must be in system/, cluster/ or namespaces/",
                        raw.name()
                    ),
                )
                .at(&raw.path),
            ),
        }
    }
    if !has_repo {
        parsed.problems.push(Problem::new(
            "1017",
            "system/ must declare a Repo (configmanagement.gke.io/v1); for files without this layout set spec.sourceFormat to unstructured",
        ));
    }
    for (folder, raw) in below {
        inherit(&folder, raw, &namespaces, parsed);
    }
}

fn inherit(folder: &str, raw: Raw, namespaces: &BTreeMap<String, String>, parsed: &mut Parsed) {
    if let Some(namespace) = namespaces.get(folder) {
        push(raw, namespace, parsed);
        return;
    }
    let prefix = format!("{folder}/");
    let heirs: BTreeSet<&String> = namespaces
        .iter()
        .filter(|(path, _)| folder.is_empty() || path.starts_with(&prefix))
        .map(|(_, name)| name)
        .collect();
    if heirs.is_empty() {
        parsed.problems.push(
            Problem::new(
                "1019",
                format!("{}: there is no Namespace in or below its folder", raw.name()),
            )
            .at(&raw.path),
        );
    }
    for namespace in heirs {
        push(raw.clone(), namespace, parsed);
    }
}

fn push(mut raw: Raw, namespace: &str, parsed: &mut Parsed) {
    let declared = raw.namespace();
    if !declared.is_empty() && declared != namespace {
        parsed.problems.push(
            Problem::new(
                "1009",
                format!(
                    "{}: its namespace is {declared:?}, its folder is {namespace:?}",
                    raw.name()
                ),
            )
            .at(&raw.path),
        );
        return;
    }
    if let Some(metadata) = raw.value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.insert("namespace".into(), namespace.into());
    }
    parsed.objects.push(raw);
}

/// The folder that holds `system/`, with a slash at its end; nothing if that is the repository.
fn root(objects: &[Raw]) -> String {
    objects
        .iter()
        .filter(|raw| raw.kind() == "Repo")
        .find_map(|raw| {
            raw.path
                .find("system/")
                .map(|at| raw.path.chars().take(at).collect())
        })
        .unwrap_or_default()
}

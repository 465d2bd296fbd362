//! The hierarchy format: `system`, `cluster`, `clusterregistry` and `namespaces`. A folder with a Namespace stands for that
//! namespace; the objects of any other folder are inherited by all namespaces below it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::model::Parsed;
use crate::reconciler::{
    error::{Code, Problem},
    object::Raw,
};

/// The bytes of all inherited objects, counted once per inheriting namespace. A few files and many namespaces can multiply
/// to more than any machine can hold.
const MAX_INHERITED: usize = 64 * 1024 * 1024;

/// Gives each object the namespace of its folder. `dir` is the folder that holds `system/`.
pub fn assign_namespaces(parsed: &mut Parsed, dir: &str) {
    let objects = std::mem::take(&mut parsed.objects);
    let mut has_repo = false;
    let mut namespaces: BTreeMap<String, String> = BTreeMap::new();
    let mut below: Vec<(String, Raw)> = Vec::new();
    for raw in objects {
        let path = raw.path.strip_prefix(dir).unwrap_or(&raw.path);
        let path = path.trim_start_matches('/').to_owned();
        let (first, rest) = path.split_once('/').unwrap_or(("", &path));
        let folder = rest.rsplit_once('/').map_or("", |(folder, _)| folder).to_owned();
        match first {
            "system" if is_repo(&raw) => has_repo = true,
            "system" => parsed.problems.push(
                Problem::new(
                    Code::IllegalKindInSystem,
                    format!(
                        "{}: system/ may hold only the Repo; move the object to cluster/ or namespaces/",
                        raw.name()
                    ),
                )
                .at(&raw.path),
            ),
            "cluster" => {
                if raw.namespace().is_empty() {
                    parsed.objects.push(raw);
                } else {
                    parsed.problems.push(
                        Problem::new(
                            Code::IllegalNamespaceOnClusterObject,
                            format!("{}: an object in cluster/ must not have a namespace", raw.name()),
                        )
                        .at(&raw.path),
                    );
                }
            }
            "clusterregistry" => {}
            "namespaces" if raw.kind() == "Namespace" && raw.api_version() == "v1" => {
                let leaf = folder.rsplit('/').next().unwrap_or_default();
                if folder.is_empty() {
                    parsed.problems.push(
                        Problem::new(
                            Code::IllegalTopLevelNamespace,
                            format!(
                                "Namespace {} must be in a folder of its name below namespaces/",
                                raw.name()
                            ),
                        )
                        .at(&raw.path),
                    );
                } else if leaf == raw.name() {
                    namespaces.insert(folder, raw.name().to_owned());
                    parsed.objects.push(raw);
                } else {
                    parsed.problems.push(
                        Problem::new(
                            Code::InvalidNamespaceName,
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
                    Code::InvalidDirectory,
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
            Code::MissingRepo,
            "system/ must declare a Repo (configmanagement.gke.io/v1); for files in another layout set spec.sourceFormat to unstructured",
        ));
    }
    let mut remaining = MAX_INHERITED;
    for (folder, raw) in below {
        inherit(&folder, raw, &namespaces, &mut remaining, parsed);
    }
}

/// Adds an object to its namespace, or to each namespace below its folder while `remaining` bytes allow it.
fn inherit(
    folder: &str,
    raw: Raw,
    namespaces: &BTreeMap<String, String>,
    remaining: &mut usize,
    parsed: &mut Parsed,
) {
    if let Some(namespace) = namespaces.get(folder) {
        add_to_namespace(raw, namespace, parsed);
        return;
    }
    let prefix = if folder.is_empty() {
        String::new()
    } else {
        format!("{folder}/")
    };
    // The map is ordered, so the folders below one folder are adjacent.
    let below = namespaces.range(prefix.clone()..);
    let heirs: BTreeSet<&String> = below
        .take_while(|(path, _)| path.starts_with(&prefix))
        .map(|(_, name)| name)
        .collect();
    if heirs.is_empty() {
        parsed.problems.push(
            Problem::new(
                Code::UnsyncableObject,
                format!("{}: no Namespace is declared in or below its folder", raw.name()),
            )
            .at(&raw.path),
        );
    }
    let size = serde_json::to_vec(&raw.value).map_or(usize::MAX, |text| text.len());
    let Some(rest) = remaining.checked_sub(size.saturating_mul(heirs.len())) else {
        *remaining = 0;
        parsed.problems.push(
            Problem::new(
                Code::Path,
                format!(
                    "{}: the objects that namespaces inherit from folders above them have more than {MAX_INHERITED} bytes in all",
                    raw.name()
                ),
            )
            .at(&raw.path),
        );
        return;
    };
    *remaining = rest;
    for namespace in heirs {
        add_to_namespace(raw.clone(), namespace, parsed);
    }
}

fn add_to_namespace(mut raw: Raw, namespace: &str, parsed: &mut Parsed) {
    let declared = raw.namespace();
    if !declared.is_empty() && declared != namespace {
        parsed.problems.push(
            Problem::new(
                Code::IllegalMetadataNamespace,
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

/// Whether this is the Repo of the hierarchy format. Other groups may have a kind of that name.
fn is_repo(raw: &Raw) -> bool {
    raw.kind() == "Repo" && raw.group_version().0 == "configmanagement.gke.io"
}

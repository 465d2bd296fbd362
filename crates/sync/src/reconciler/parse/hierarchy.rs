//! The hierarchy layout: `system`, `cluster`, `clusterregistry` and `namespaces`, where a folder with a Namespace is
//! that namespace, and any other folder passes its objects on to the namespaces below it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Parsed;
use crate::reconciler::{error::Problem, object::Raw};

/// How many bytes objects may have in all that folders pass on, counted for each namespace that gets them: a few files
/// in each other's reach stand for more than any machine can hold.
const MAX_INHERITED: usize = 64 * 1024 * 1024;

/// Puts each object where its folder says. `dir` is the folder that holds `system/`.
pub fn place(parsed: &mut Parsed, dir: &str) {
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
                    "1024",
                    format!(
                        "{}: system/ holds the Repo only; move it to cluster/ or namespaces/",
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
                if folder.is_empty() {
                    parsed.problems.push(
                        Problem::new(
                            "1019",
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
                    "1028",
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
    let mut left = MAX_INHERITED;
    for (folder, raw) in below {
        inherit(&folder, raw, &namespaces, &mut left, parsed);
    }
}

/// Puts an object into its namespace, or into each below its folder as long as there is room `left`.
fn inherit(
    folder: &str,
    raw: Raw,
    namespaces: &BTreeMap<String, String>,
    left: &mut usize,
    parsed: &mut Parsed,
) {
    if let Some(namespace) = namespaces.get(folder) {
        push(raw, namespace, parsed);
        return;
    }
    let prefix = if folder.is_empty() {
        String::new()
    } else {
        format!("{folder}/")
    };
    // They are in order: those below a folder are next to each other.
    let below = namespaces.range(prefix.clone()..);
    let heirs: BTreeSet<&String> = below
        .take_while(|(path, _)| path.starts_with(&prefix))
        .map(|(_, name)| name)
        .collect();
    if heirs.is_empty() {
        parsed.problems.push(
            Problem::new(
                "1044",
                format!("{}: there is no Namespace in or below its folder", raw.name()),
            )
            .at(&raw.path),
        );
    }
    let size = serde_json::to_vec(&raw.value).map_or(usize::MAX, |text| text.len());
    let Some(rest) = left.checked_sub(size.saturating_mul(heirs.len())) else {
        *left = 0;
        parsed.problems.push(
            Problem::new(
                "2001",
                format!(
                    "{}: what folders pass on to the namespaces below them has more than {MAX_INHERITED} bytes in all",
                    raw.name()
                ),
            )
            .at(&raw.path),
        );
        return;
    };
    *left = rest;
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

/// Whether this is what says that a repository has this layout; other groups have a kind of that name, too.
fn is_repo(raw: &Raw) -> bool {
    raw.kind() == "Repo" && raw.group_version().0 == "configmanagement.gke.io"
}

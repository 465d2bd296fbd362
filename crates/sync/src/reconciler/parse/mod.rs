//! Turns files into objects. One bad file or object never stops the others.

mod hierarchy;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;
use writ_runtime::yaml::{self, Aliases};

use super::{
    error::Problem,
    object::{Key, Raw},
    source::Files,
};

/// How many of the places are told that declare one object.
const MAX_PLACES: usize = 10;

/// How files are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Anywhere.
    Unstructured,
    /// In `system`, `cluster` and `namespaces`.
    Hierarchy,
}

/// What files declare.
#[derive(Debug, Default)]
pub struct Parsed {
    /// The objects.
    pub objects: Vec<Raw>,
    /// What is wrong with the files.
    pub problems: Vec<Problem>,
    /// What the source needs that is not built.
    pub rendering: Vec<Problem>,
}

/// Reads every file. `dir` is the folder that they were looked for in.
pub fn parse(files: Files, format: Format, dir: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for problem in files.problems {
        parsed
            .problems
            .push(Problem::new("2001", problem.reason).at(&problem.path));
    }
    // Of the whole commit: a thousand small files that stand for much are as bad as one.
    let mut aliases = Aliases::default();
    for file in files.files {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if matches!(name, "kustomization.yaml" | "kustomization.yml" | "Kustomization") {
            parsed.rendering.push(
                Problem::new(
                    "1068",
                    "kustomize is not supported: commit the rendered objects instead",
                )
                .at(&file.path),
            );
            continue;
        }
        read_file(&file.path, &file.content, &mut aliases, &mut parsed);
    }
    // Rendering replaces the files; without it they mean something else.
    if !parsed.rendering.is_empty() {
        parsed.objects.clear();
        return parsed;
    }
    if format == Format::Hierarchy {
        hierarchy::place(&mut parsed, dir);
    }
    parsed
}

fn read_file(path: &str, content: &[u8], aliases: &mut Aliases, parsed: &mut Parsed) {
    let bad = |reason: String| Problem::new("1006", reason).at(path);
    let Ok(text) = std::str::from_utf8(content) else {
        parsed.problems.push(bad("the file is not UTF-8".into()));
        return;
    };
    let documents: Vec<Value> = match yaml::documents_sharing(text, aliases) {
        Ok(documents) => documents,
        Err(error) => {
            parsed
                .problems
                // The first line only: what follows quotes the file, which may hold a Secret.
                .push(bad(format!(
                    "the file cannot be read: {}",
                    error.to_string().lines().next().unwrap_or_default()
                )));
            return;
        }
    };
    let path: Arc<str> = path.into();
    for document in documents {
        if document.is_null() {
            continue;
        }
        if document
            .get("kind")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.ends_with("List"))
            && let Some(items) = document.get("items").and_then(Value::as_array)
        {
            for item in items {
                read_object(&path, item.clone(), parsed);
            }
            continue;
        }
        read_object(&path, document, parsed);
    }
}

fn read_object(path: &Arc<str>, value: Value, parsed: &mut Parsed) {
    let raw = Raw {
        path: path.clone(),
        value,
    };
    if let Some(problem) = refuse(&raw) {
        parsed.problems.push(problem);
        return;
    }
    // Made for local tools, not for a cluster.
    if raw
        .annotation("config.kubernetes.io/local-config")
        .is_some_and(|value| value != "false")
    {
        return;
    }
    parsed.objects.push(raw);
}

/// The longest name that Kubernetes takes. A longer one is told where it is, and not by a status that nobody can store.
const MAX_NAME: usize = 253;

/// Whether a text can be one part of a request's path, and means nothing else there.
fn addressable(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:@!$&'()*+,;=".contains(c);
    !matches!(text, "" | "." | "..") && text.len() <= MAX_NAME && text.chars().all(plain)
}

fn refuse(raw: &Raw) -> Option<Problem> {
    let problem = |code, reason: &str| {
        let name = match raw.name() {
            name if name.is_empty() || name.len() > MAX_NAME => "an object",
            name => name,
        };
        Some(Problem::new(code, format!("{name}: {reason}")).at(&raw.path))
    };
    if !raw.value.is_object() {
        return problem("1006", "the document is no object");
    }
    if raw.api_version().is_empty() || raw.kind().is_empty() {
        return problem("1006", "apiVersion or kind is missing");
    }
    if raw.kind().len() > MAX_NAME {
        return problem("1006", "no kind has a name of that length");
    }
    if raw.name().is_empty() {
        return problem("1031", "metadata.name is missing");
    }
    let mut version = raw.api_version().splitn(2, '/');
    if !version.all(addressable) {
        return problem(
            "1006",
            "apiVersion is too long, or has characters that no API version has",
        );
    }
    if !addressable(raw.name()) {
        return problem(
            "1036",
            "metadata.name is too long, or has characters that cannot be in an address",
        );
    }
    if !raw.namespace().is_empty() && !addressable(raw.namespace()) {
        return problem(
            "1055",
            "metadata.namespace is too long, or has characters that cannot be in an address",
        );
    }
    for field in ["labels", "annotations"] {
        if let Some(map) = raw.value.get("metadata").and_then(|metadata| metadata.get(field))
            && !map.is_null()
            && !map
                .as_object()
                .is_some_and(|map| map.values().all(Value::is_string))
        {
            return problem("1054", "labels and annotations must be texts");
        }
    }
    // What selects clusters or namespaces must not be applied everywhere instead.
    for key in [
        "configmanagement.gke.io/cluster-selector",
        "configsync.gke.io/cluster-name-selector",
        "configmanagement.gke.io/namespace-selector",
    ] {
        if raw.annotation(key).is_some() {
            return problem("1013", &format!("the annotation {key} is not supported"));
        }
    }
    if raw.api_version().starts_with("configmanagement.gke.io/")
        && matches!(
            raw.kind(),
            "ClusterSelector" | "NamespaceSelector" | "HierarchyConfig"
        )
    {
        return problem("1013", &format!("{} is not supported", raw.kind()));
    }
    None
}

/// Finds objects that are declared more than once; none of them is applied.
pub fn duplicates(keys: &[(Key, Arc<str>)]) -> (Vec<Problem>, HashSet<Key>) {
    let mut places: HashMap<&Key, Vec<&str>> = HashMap::new();
    for (key, path) in keys {
        places.entry(key).or_default().push(path);
    }
    let mut problems = Vec::new();
    let mut found = HashSet::new();
    for (key, paths) in places {
        if paths.len() > 1 {
            let mut paths = paths;
            paths.sort_unstable();
            paths.dedup();
            let shown = paths.get(..MAX_PLACES).unwrap_or(&paths).join(", ");
            let more = if paths.len() > MAX_PLACES { ", ..." } else { "" };
            problems.push(
                Problem::new("1029", format!("{key} is declared more than once: {shown}{more}"))
                    .at(paths.first().copied().unwrap_or_default())
                    .about(key),
            );
            found.insert(key.clone());
        }
    }
    (problems, found)
}

#[cfg(test)]
mod tests;

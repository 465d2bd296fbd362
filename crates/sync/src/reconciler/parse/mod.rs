//! Parses files into objects. A bad file or object never stops the others.

mod hierarchy;
mod model;

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use serde_json::Value;
use writ_controller::ObjectId;
use writ_runtime::yaml::{self, Aliases};

use super::{
    error::{Code, Problem},
    object::{Raw, full_name},
    source::Files,
};
pub use model::{Format, Parsed};

/// The number of files named for an object that is declared more than once.
const MAX_PATHS: usize = 10;

/// Parses every file. `dir` is the folder that they were read from.
pub fn parse(files: Files, format: Format, dir: &str) -> Parsed {
    let mut parsed = Parsed::default();
    for problem in files.problems {
        parsed
            .problems
            .push(Problem::new(Code::Path, problem.reason).at(&problem.path));
    }
    // One budget for the whole commit: a thousand small files with aliases can expand as far as a large one.
    let mut aliases = Aliases::default();
    for file in files.files {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if matches!(name, "kustomization.yaml" | "kustomization.yml" | "Kustomization") {
            parsed.rendering.push(
                Problem::new(
                    Code::Rendering,
                    "kustomize is not supported: commit the rendered objects instead",
                )
                .at(&file.path),
            );
            continue;
        }
        parse_file(&file.path, &file.content, &mut aliases, &mut parsed);
    }
    // Rendering would replace these files; as they are, they mean something else.
    if !parsed.rendering.is_empty() {
        parsed.objects.clear();
        return parsed;
    }
    if format == Format::Hierarchy {
        hierarchy::assign_namespaces(&mut parsed, dir);
    }
    parsed
}

fn parse_file(path: &str, content: &[u8], aliases: &mut Aliases, parsed: &mut Parsed) {
    let bad = |reason: String| Problem::new(Code::ObjectParse, reason).at(path);
    let Ok(text) = std::str::from_utf8(content) else {
        parsed.problems.push(bad("the file is not UTF-8".into()));
        return;
    };
    let documents: Vec<Value> = match yaml::documents_sharing(text, aliases) {
        Ok(documents) => documents,
        Err(error) => {
            parsed
                .problems
                // Only the first line: the following ones quote the file, which may hold a Secret.
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
                add_object(&path, item.clone(), parsed);
            }
            continue;
        }
        add_object(&path, document, parsed);
    }
}

fn add_object(path: &Arc<str>, value: Value, parsed: &mut Parsed) {
    let raw = Raw {
        path: path.clone(),
        value,
    };
    if let Some(problem) = problem_of(&raw) {
        parsed.problems.push(problem);
        return;
    }
    // The object is for local tools, not for a cluster.
    if raw
        .annotation("config.kubernetes.io/local-config")
        .is_some_and(|value| value != "false")
    {
        return;
    }
    parsed.objects.push(raw);
}

/// The longest name in Kubernetes. A longer one is not quoted, so that the status can still be stored.
const MAX_NAME: usize = 253;

/// Whether a text can be a segment of the path of a request, without any other meaning there.
fn is_path_segment(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._~:@!$&'()*+,;=".contains(c);
    !matches!(text, "" | "." | "..") && text.len() <= MAX_NAME && text.chars().all(plain)
}

fn problem_of(raw: &Raw) -> Option<Problem> {
    let problem = |code, reason: &str| {
        let name = match raw.name() {
            name if name.is_empty() || name.len() > MAX_NAME => "an object",
            name => name,
        };
        Some(Problem::new(code, format!("{name}: {reason}")).at(&raw.path))
    };
    if !raw.value.is_object() {
        return problem(Code::ObjectParse, "the document is not an object");
    }
    if raw.api_version().is_empty() || raw.kind().is_empty() {
        return problem(Code::ObjectParse, "apiVersion or kind is missing");
    }
    if raw.kind().len() > MAX_NAME {
        return problem(Code::ObjectParse, "the kind is too long");
    }
    if raw.name().is_empty() {
        return problem(Code::MissingObjectName, "metadata.name is missing");
    }
    let mut version = raw.api_version().splitn(2, '/');
    if !version.all(is_path_segment) {
        return problem(
            Code::ObjectParse,
            "apiVersion is too long, or has characters that an API version cannot have",
        );
    }
    if !is_path_segment(raw.name()) {
        return problem(
            Code::InvalidMetadataName,
            "metadata.name is too long, or has characters that cannot be in an address",
        );
    }
    if !raw.namespace().is_empty() && !is_path_segment(raw.namespace()) {
        return problem(
            Code::InvalidNamespace,
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
            return problem(
                Code::InvalidAnnotationValue,
                "labels and annotations must be strings",
            );
        }
    }
    // An object for selected clusters or namespaces must not be applied everywhere.
    for key in [
        "configmanagement.gke.io/cluster-selector",
        "configsync.gke.io/cluster-name-selector",
        "configmanagement.gke.io/namespace-selector",
    ] {
        if raw.annotation(key).is_some() {
            return problem(
                Code::UnknownSelector,
                &format!("the annotation {key} is not supported"),
            );
        }
    }
    if raw.api_version().starts_with("configmanagement.gke.io/")
        && matches!(
            raw.kind(),
            "ClusterSelector" | "NamespaceSelector" | "HierarchyConfig"
        )
    {
        return problem(Code::UnknownSelector, &format!("{} is not supported", raw.kind()));
    }
    None
}

/// Finds objects that are declared more than once. None of their declarations is applied.
pub fn duplicates(declared: &[(ObjectId, Arc<str>)]) -> (Vec<Problem>, HashSet<ObjectId>) {
    let mut paths_of: HashMap<&ObjectId, Vec<&str>> = HashMap::new();
    for (id, path) in declared {
        paths_of.entry(id).or_default().push(path);
    }
    let mut problems = Vec::new();
    let mut found = HashSet::new();
    for (id, mut paths) in paths_of {
        if paths.len() > 1 {
            paths.sort_unstable();
            paths.dedup();
            let shown = paths.get(..MAX_PATHS).unwrap_or(&paths).join(", ");
            let more = if paths.len() > MAX_PATHS { ", ..." } else { "" };
            problems.push(
                Problem::new(
                    Code::NameCollision,
                    format!("{} is declared more than once: {shown}{more}", full_name(id)),
                )
                .at(paths.first().copied().unwrap_or_default())
                .about(id),
            );
            found.insert(id.clone());
        }
    }
    (problems, found)
}

#[cfg(test)]
mod tests;

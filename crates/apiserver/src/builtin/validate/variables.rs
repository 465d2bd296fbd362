//! The environment of a container, and where it comes from.

use serde_json::Value;

use super::{list, name_problems, text};
use crate::schema::meta::NameRule;
use crate::schema::{Cause, child, index, names};

/// Fields of a pod that can be asked for at all, and of these the ones that a variable may have.
const FIELDS: [&str; 14] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const OF_VARIABLES: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
const AMOUNTS: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) fn variables(container: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for (i, variable) in list(container, "/env").iter().enumerate() {
        let path = index(&child(path, "env"), i);
        causes.extend(variable_name(text(variable, "/name"), &child(&path, "name")));
        let Some(from) = variable.get("valueFrom").filter(|from| from.is_object()) else {
            continue;
        };
        let path = child(&path, "valueFrom");
        causes.extend(source(from, !text(variable, "/value").is_empty(), &path));
    }
    let path = child(path, "envFrom");
    for (i, from) in list(container, "/envFrom").iter().enumerate() {
        causes.extend(all_of(from, &path, &index(&path, i)));
    }
    causes
}

fn variable_name(name: &str, path: &str) -> Option<Cause> {
    let is_plain = |c: char| (' '..='~').contains(&c) && c != '=';
    if name.is_empty() {
        return Some(Cause::required(path, ""));
    }
    (!name.chars().all(is_plain)).then(|| {
        let detail = "a valid environment variable name must consist only of printable ASCII characters other than '='";
        Cause::invalid(path, &name.into(), detail)
    })
}

/// A value comes from one place.
fn source(from: &Value, has_value: bool, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut given = 0;
    for name in [
        "fieldRef",
        "resourceFieldRef",
        "configMapKeyRef",
        "secretKeyRef",
        "fileKeyRef",
    ] {
        let Some(of) = from.get(name).filter(|of| of.is_object()) else {
            continue;
        };
        given += 1;
        let path = child(path, name);
        causes.extend(match name {
            "fieldRef" => field(of, &OF_VARIABLES, &path),
            "resourceFieldRef" => amount(of, &path).into_iter().collect(),
            "fileKeyRef" => ["volumeName", "path", "key"]
                .into_iter()
                .filter(|name| text(of, &format!("/{name}")).is_empty())
                .map(|name| Cause::required(child(&path, name), ""))
                .collect(),
            _ => key(of, &path),
        });
    }
    let detail = match given {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if has_value => "may not be specified when `value` is not empty",
        1 => return causes,
        _ => "may not have more than one field specified at a time",
    };
    causes.push(Cause::invalid(path, &"".into(), detail));
    causes
}

/// A key of a ConfigMap or a Secret.
fn key(of: &Value, path: &str) -> Vec<Cause> {
    let (name, key) = (text(of, "/name"), text(of, "/key"));
    let mut causes = name_problems(NameRule::Subdomain, name, &child(path, "name"));
    let at = child(path, "key");
    if key.is_empty() {
        causes.push(Cause::required(at, ""));
        return causes;
    }
    let problems = names::config_map_key(key);
    causes.extend(
        problems
            .iter()
            .map(|problem| Cause::invalid(at.as_str(), &key.into(), problem)),
    );
    causes
}

/// A field of the pod, or one label or annotation of it.
fn field(of: &Value, allowed: &[&str], path: &str) -> Vec<Cause> {
    let (given, at) = (text(of, "/fieldPath"), child(path, "fieldPath"));
    if given.is_empty() {
        return vec![Cause::required(at, "")];
    }
    let unknown = |what: &str| {
        let detail = format!("error converting fieldPath: {what}: {given}");
        vec![Cause::invalid(at.as_str(), &given.into(), &detail)]
    };
    let parts = given.strip_suffix("']").and_then(|rest| rest.split_once("['"));
    if let Some((map, name)) = parts {
        let name = match map {
            "metadata.annotations" => name.to_lowercase(),
            "metadata.labels" => name.to_owned(),
            _ => return unknown("field label does not support subscript"),
        };
        let problems = names::qualified_name(&name);
        let wrong = |problem: &String| Cause::invalid(path, &name.as_str().into(), problem);
        return problems.iter().map(wrong).collect();
    }
    let field = if given == "spec.host" {
        "spec.nodeName"
    } else {
        given
    };
    if !FIELDS.contains(&field) {
        return unknown("field label not supported");
    }
    if allowed.contains(&field) {
        return Vec::new();
    }
    vec![Cause::not_supported(at, &field.into(), allowed)]
}

/// An amount that the container may use, or asks for.
fn amount(of: &Value, path: &str) -> Option<Cause> {
    let (given, at) = (text(of, "/resource"), child(path, "resource"));
    if given.is_empty() {
        return Some(Cause::required(at, ""));
    }
    let pages = ["requests.hugepages-", "limits.hugepages-"];
    let known = AMOUNTS.contains(&given) || pages.iter().any(|prefix| given.starts_with(prefix));
    (!known).then(|| Cause::not_supported(at, &given.into(), &AMOUNTS))
}

/// All of a ConfigMap or a Secret.
fn all_of(from: &Value, list: &str, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let prefix = text(from, "/prefix");
    if !prefix.is_empty() {
        causes.extend(variable_name(prefix, &child(path, "prefix")));
    }
    let mut given = 0;
    for name in ["configMapRef", "secretRef"] {
        let Some(of) = from.get(name).filter(|of| of.is_object()) else {
            continue;
        };
        given += 1;
        let (name, at) = (text(of, "/name"), child(&child(path, name), "name"));
        if name.is_empty() {
            causes.push(Cause::required(at, ""));
            continue;
        }
        let problems = NameRule::Subdomain.problems(name, true);
        causes.extend(
            problems
                .iter()
                .map(|problem| Cause::invalid(at.as_str(), &name.into(), problem)),
        );
    }
    let detail = match given {
        0 => "must specify one of: `configMapRef` or `secretRef`",
        1 => return causes,
        _ => "may not have more than one field specified at a time",
    };
    causes.push(Cause::invalid(list, &"".into(), detail));
    causes
}

//! What a pod's volumes are, and what of them is mounted.

use serde_json::{Map, Value, json};

use super::{claims, list, name_problems, text};
use crate::schema::meta::NameRule;
use crate::schema::{Cause, child, index, names};

/// The kinds of volumes, in the order in which the real server looks for them: of several, the first counts.
const SOURCES: [&str; 30] = [
    "emptyDir",
    "hostPath",
    "gitRepo",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "secret",
    "nfs",
    "iscsi",
    "glusterfs",
    "flocker",
    "persistentVolumeClaim",
    "rbd",
    "cinder",
    "cephFS",
    "quobyte",
    "downwardAPI",
    "fc",
    "flexVolume",
    "configMap",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "storageos",
    "projected",
    "scaleIO",
    "csi",
    "ephemeral",
    "image",
];

/// The path of a kind whose field has another name.
fn field(source: &str) -> &str {
    match source {
        "cephFS" => "cephfs",
        other => other,
    }
}

/// What a volume of a kind cannot do without.
const NEEDED: [(&str, &[&str]); 6] = [
    ("configMap", &["name"]),
    ("csi", &["driver"]),
    ("hostPath", &["path"]),
    ("nfs", &["server", "path"]),
    ("persistentVolumeClaim", &["claimName"]),
    ("secret", &["secretName"]),
];

/// The volumes of a pod, and whether what its containers mount is among those that are right.
pub(super) fn volumes(spec: &Value, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let mut right: Vec<&str> = Vec::new();
    for (i, volume) in list(spec, "/volumes").iter().enumerate() {
        let path = index(&child(path, "volumes"), i);
        let (name, at) = (text(volume, "/name"), child(&path, "name"));
        let mut problems = source(volume, &path);
        if name.is_empty() {
            problems.push(Cause::required(at.as_str(), ""));
        } else {
            problems.extend(name_problems(NameRule::Label, name, &at));
        }
        if right.contains(&name) {
            problems.push(Cause::duplicate(at, &name.into()));
        }
        if problems.is_empty() {
            right.push(name);
        }
        causes.extend(problems);
    }
    causes.extend(mounts(spec, &right, path));
    causes
}

fn source(volume: &Value, path: &str) -> Vec<Cause> {
    let mut given = SOURCES
        .into_iter()
        .filter(|source| volume.get(field(source)).is_some_and(Value::is_object));
    let Some(first) = given.next() else {
        return vec![Cause::required(path, "must specify a volume type")];
    };
    let of = volume.get(field(first)).unwrap_or(&Value::Null);
    let place = child(path, field(first));
    let mut causes = needed(first, of, &place);
    match first {
        "hostPath" if text(of, "/path").split('/').any(|part| part == "..") => {
            let (at, shown) = (child(&place, "path"), text(of, "/path").into());
            causes.push(Cause::invalid(at, &shown, "must not contain '..'"));
        }
        "nfs" if !text(of, "/path").starts_with('/') => {
            let (at, shown) = (child(&place, "path"), text(of, "/path").into());
            causes.push(Cause::invalid(at, &shown, "must be an absolute path"));
        }
        "csi" => {
            let driver = text(of, "/driver");
            let problems = names::dns_subdomain(&driver.to_lowercase());
            for problem in problems.iter().filter(|_| !driver.is_empty()) {
                causes.push(Cause::invalid(child(&place, "driver"), &driver.into(), problem));
            }
        }
        "ephemeral" => {
            let at = child(&place, "volumeClaimTemplate");
            match of.get("volumeClaimTemplate").filter(|claim| claim.is_object()) {
                None => causes.push(Cause::required(at, "")),
                Some(claim) => causes.extend(claims::spec(claim, None, &child(&at, "spec"))),
            }
        }
        _ => {}
    }
    for source in given {
        let detail = "may not specify more than 1 volume type";
        causes.push(Cause::forbidden(child(path, source), detail));
    }
    causes
}

fn needed(source: &str, of: &Value, path: &str) -> Vec<Cause> {
    let fields = NEEDED.iter().find(|(name, _)| *name == source);
    let lacking = fields.into_iter().flat_map(|(_, fields)| *fields);
    lacking
        .filter(|name| text(of, &format!("/{name}")).is_empty())
        .map(|name| Cause::required(child(path, name), ""))
        .collect()
}

/// What is mounted must be there.
fn mounts(spec: &Value, volumes: &[&str], path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    for field in ["containers", "initContainers"] {
        for (i, container) in list(spec, &format!("/{field}")).iter().enumerate() {
            let place = index(&child(path, field), i);
            for used in ["volumeMounts", "volumeDevices"] {
                for (j, mount) in list(container, &format!("/{used}")).iter().enumerate() {
                    let name = text(mount, "/name");
                    let at = child(&index(&child(&place, used), j), "name");
                    if name.is_empty() {
                        causes.push(Cause::required(at.as_str(), ""));
                    }
                    if !volumes.contains(&name) {
                        causes.push(Cause::not_found(at, &name.into()));
                    }
                }
            }
        }
    }
    causes
}

/// The template of a StatefulSet as its pods will be: each gets a volume for each claim, which hides one of the same name.
pub(super) fn with_claims(set: &Value) -> Value {
    let mut spec = set.pointer("/spec/template/spec").cloned().unwrap_or_default();
    let claims = list(set, "/spec/volumeClaimTemplates");
    if claims.is_empty() {
        return spec;
    }
    let name = |claim: &Value| text(claim, "/metadata/name").to_owned();
    let made = claims.iter().map(|claim| {
        let name = name(claim);
        let volume = json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        (name, volume)
    });
    let made: Map<String, Value> = made.collect();
    let others = list(&spec, "/volumes")
        .iter()
        .filter(|volume| !made.contains_key(text(volume, "/name")));
    let volumes: Vec<Value> = made.values().chain(others).cloned().collect();
    if let Some(spec) = spec.as_object_mut() {
        spec.insert("volumes".into(), volumes.into());
    }
    spec
}

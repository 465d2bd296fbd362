//! PersistentVolumes. Where the data is stays as it is.

use serde_json::{Map, Value};

use super::claims::{access_modes, class, mode};
use super::{list, text};
use crate::quantity::Quantity;
use crate::resources::amounts;
use crate::schema::{Cause, child};

/// Where data can be, in the order in which it is looked for.
const SOURCES: [&str; 22] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "glusterfs",
    "flocker",
    "nfs",
    "rbd",
    "quobyte",
    "cephfs",
    "iscsi",
    "cinder",
    "fc",
    "flexVolume",
    "azureFile",
    "vsphereVolume",
    "photonPersistentDisk",
    "portworxVolume",
    "azureDisk",
    "scaleIO",
    "local",
    "storageos",
    "csi",
];

pub(super) fn volume(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = access_modes(list(new, "/spec/accessModes"), "spec.accessModes", "");
    causes.extend(capacity(new));
    let policy = text(new, "/spec/persistentVolumeReclaimPolicy");
    let policies = ["Delete", "Recycle", "Retain"];
    if !policies.contains(&policy) {
        let path = "spec.persistentVolumeReclaimPolicy";
        causes.push(Cause::not_supported(path, &policy.into(), &policies));
    }
    let given = sources(new);
    if given.is_empty() {
        causes.push(Cause::required("spec", "must specify a volume type"));
    }
    for (name, _) in given.iter().skip(1) {
        let detail = "may not specify more than 1 volume type";
        causes.push(Cause::forbidden(child("spec", name), detail));
    }
    causes.extend(class(new, "storageClassName", "spec"));
    causes.extend(mode(new, "spec"));
    if let Some(old) = old {
        if is_moved(new, old) {
            let detail = "spec.persistentvolumesource is immutable after creation";
            causes.push(Cause::forbidden("spec.persistentvolumesource", detail));
        }
        let (before, after) = (text(old, "/spec/volumeMode"), text(new, "/spec/volumeMode"));
        if before != after {
            causes.push(Cause::invalid("volumeMode", &after.into(), "field is immutable"));
        }
    }
    causes
}

/// Whether the data would be elsewhere. A secret to let it grow with may come later.
fn is_moved(new: &Value, old: &Value) -> bool {
    const SECRET: &str = "/spec/csi/controllerExpandSecretRef";
    if old.pointer(SECRET).is_none()
        && let mut without = new.clone()
        && let Some(driver) = without.pointer_mut("/spec/csi").and_then(Value::as_object_mut)
    {
        driver.remove("controllerExpandSecretRef");
        return sources(&without) != sources(old);
    }
    sources(new) != sources(old)
}

fn capacity(volume: &Value) -> Vec<Cause> {
    const PATH: &str = "spec.capacity";
    let mut causes = Vec::new();
    let shown = volume.pointer("/spec/capacity").unwrap_or(&Value::Null);
    let names = shown.as_object().into_iter().flat_map(Map::keys);
    let mut names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        causes.push(Cause::required(PATH, ""));
    }
    names.retain(|name| *name != "storage");
    let amounts = amounts(volume, "/spec/capacity");
    if !names.is_empty() || !amounts.contains_key("storage") {
        causes.push(Cause::not_supported(PATH, shown, &["storage"]));
    }
    for (name, amount) in amounts.iter().filter(|(_, amount)| **amount <= Quantity::ZERO) {
        let shown = amount.to_string();
        let path = format!("{PATH}[{name}]");
        causes.push(Cause::invalid(path, &shown.into(), "must be greater than zero"));
    }
    causes
}

fn sources(volume: &Value) -> Vec<(&'static str, &Value)> {
    let found = |name: &&'static str| {
        let source = volume.get("spec")?.get(*name)?;
        source.is_object().then_some((*name, source))
    };
    SOURCES.iter().filter_map(found).collect()
}

//! What the restricted level asks for beyond the baseline.

use std::collections::BTreeSet;

use serde_json::Value;

use super::checks::{
    Check, Pod, SECCOMP, Violation, added, plural, proc_mount, quoted, texts, these, unconfined, violation,
    volumes,
};
use crate::admission::request::text;

pub(super) const CHECKS: [Check; 7] = [
    privilege_escalation,
    capabilities_restricted,
    proc_mount_restricted,
    restricted_volumes,
    run_as_non_root,
    run_as_user,
    seccomp_restricted,
];

fn capabilities_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 22 || (pod.minor >= 25 && pod.windows()) {
        return None;
    }
    let keeping = pod.names(|container| {
        !texts(container, "/securityContext/capabilities/drop").any(|capability| capability == "ALL")
    });
    let keeping = (!keeping.is_empty()).then(|| {
        format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            these(&keeping)
        )
    });
    let details: Vec<String> = keeping
        .into_iter()
        .chain(added(pod, &["NET_BIND_SERVICE"]))
        .collect();
    if details.is_empty() {
        return None;
    }
    violation("unrestricted capabilities", details.join("; "))
}

fn proc_mount_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 35 {
        return None;
    }
    proc_mount(pod)
}

fn seccomp_restricted(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 19 || (pod.minor >= 25 && pod.windows()) {
        return None;
    }
    if let Some(violation) = unconfined(pod) {
        return Some(violation);
    }
    let whole = pod.spec.pointer(SECCOMP).is_some();
    let names = pod.names(|container| !whole && container.pointer(SECCOMP).is_none());
    if names.is_empty() {
        return None;
    }
    violation(
        "seccompProfile",
        format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            these(&names)
        ),
    )
}

fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 8 || (pod.minor >= 25 && pod.windows()) {
        return None;
    }
    let names =
        pod.names(|c| c.pointer("/securityContext/allowPrivilegeEscalation") != Some(&Value::Bool(false)));
    if names.is_empty() {
        return None;
    }
    violation(
        "allowPrivilegeEscalation != false",
        format!(
            "{} must set securityContext.allowPrivilegeEscalation=false",
            these(&names)
        ),
    )
}

const VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

const OTHER_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

fn restricted_volumes(pod: &Pod<'_>) -> Option<Violation> {
    let has = |volume: &Value, ty: &str| volume.get(ty).is_some();
    let bad: Vec<&Value> = volumes(pod)
        .filter(|volume| !VOLUMES.iter().any(|ty| has(volume, ty)))
        .collect();
    if bad.is_empty() {
        return None;
    }
    let types: BTreeSet<&str> = bad
        .iter()
        .map(|volume| {
            OTHER_VOLUMES
                .into_iter()
                .find(|ty| has(volume, ty))
                .unwrap_or("unknown")
        })
        .collect();
    let names: Vec<&str> = bad.iter().map(|volume| text(volume, "/name")).collect();
    violation(
        "restricted volume types",
        format!(
            "{} {} {} {} {}",
            plural("volume", "volumes", names.len()),
            quoted(&names),
            plural("uses", "use", names.len()),
            plural("restricted volume type", "restricted volume types", types.len()),
            quoted(&types)
        ),
    )
}

fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const FIELD: &str = "/securityContext/runAsNonRoot";
    if pod.own_users() {
        return None;
    }
    let setters = pod.setters(FIELD, |value| value == &Value::Bool(false));
    let reason = "runAsNonRoot != true";
    if !setters.is_empty() {
        return violation(
            reason,
            format!(
                "{} must not set securityContext.runAsNonRoot=false",
                setters.join(" and ")
            ),
        );
    }
    let whole = pod.spec.pointer(FIELD).is_some();
    let names = pod.names(|container| !whole && container.pointer(FIELD).is_none());
    if names.is_empty() {
        return None;
    }
    violation(
        reason,
        format!(
            "pod or {} must set securityContext.runAsNonRoot=true",
            these(&names)
        ),
    )
}

fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor < 23 || pod.own_users() {
        return None;
    }
    let setters = pod.setters("/securityContext/runAsUser", |value| value.as_i64() == Some(0));
    if setters.is_empty() {
        return None;
    }
    violation(
        "runAsUser=0",
        format!("{} must not set runAsUser=0", setters.join(" and ")),
    )
}

//! Defaults of core, RBAC, networking and extension kinds.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{each, set, set_text};
use crate::go_numbers::strip_whole_floats;

pub(super) fn secret(object: &mut Value) {
    set_text(object, "/type", "Opaque");
    let Some(map) = object.as_object_mut() else { return };
    let Some(Value::Object(texts)) = map.remove("stringData") else {
        return;
    };
    if texts.is_empty() {
        return;
    }
    let data = map.entry("data").or_insert(Value::Null);
    if data.is_null() {
        *data = Value::Object(Map::new());
    }
    if let Some(data) = data.as_object_mut() {
        for (key, text) in texts {
            data.insert(key, STANDARD.encode(text.as_str().unwrap_or_default()).into());
        }
    }
}

pub(super) fn namespace(object: &mut Value) {
    set_text(object, "/status/phase", "Active");
    label_namespace(object);
}

/// Also of a name that the server made.
pub(super) fn label_namespace(object: &mut Value) {
    // The label is kept in step with the name, whatever the writer says.
    let name = object
        .pointer("/metadata/name")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if name.is_empty() {
        return;
    }
    set(object, "/metadata/labels", json!({}));
    if let Some(labels) = object
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut)
    {
        labels.insert("kubernetes.io/metadata.name".into(), name.into());
    }
}

/// Secrets of an account are in its own namespace: of a reference only the name counts.
pub(super) fn own_secrets(account: &mut Value) {
    each(account, "/secrets", |secret| {
        if let Some(map) = secret.as_object_mut() {
            map.retain(|name, _| name == "name");
        }
    });
}

/// What a LimitRange does not say of containers follows from what it says.
pub(super) fn limit(limit: &mut Value) {
    if limit.get("type").and_then(Value::as_str) != Some("Container") {
        return;
    }
    for (from, to) in [
        ("max", "default"),
        ("default", "defaultRequest"),
        ("min", "defaultRequest"),
    ] {
        let given = limit.get(from).and_then(Value::as_object).cloned();
        for (name, amount) in given.into_iter().flatten() {
            set(limit, &format!("/{to}"), json!({}));
            if let Some(amounts) = limit.get_mut(to).and_then(Value::as_object_mut) {
                amounts.entry(name).or_insert(amount);
            }
        }
    }
}

pub(super) fn service(object: &mut Value) {
    set_text(object, "/spec/sessionAffinity", "None");
    set_text(object, "/spec/type", "ClusterIP");
    let ty = object
        .pointer("/spec/type")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if object.pointer("/spec/sessionAffinity").and_then(Value::as_str) == Some("ClientIP") {
        set(
            object,
            "/spec/sessionAffinityConfig/clientIP/timeoutSeconds",
            10800,
        );
    }
    if object.pointer("/spec/sessionAffinity").and_then(Value::as_str) == Some("None")
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        spec.remove("sessionAffinityConfig");
    }
    each(object, "/spec/ports", |port| {
        set_text(port, "/protocol", "TCP");
        let target = port.get("port").cloned().unwrap_or_default();
        if matches!(port.get("targetPort").unwrap_or(&Value::Null), Value::Null)
            || port.get("targetPort") == Some(&json!(0))
            || port.get("targetPort") == Some(&json!(""))
        {
            port["targetPort"] = target;
        }
    });
    if ty != "ExternalName" {
        set(object, "/spec/internalTrafficPolicy", "Cluster");
    }
    if is_reached_from_outside(object) {
        set_text(object, "/spec/externalTrafficPolicy", "Cluster");
    }
    if ty == "LoadBalancer" {
        set(object, "/spec/allocateLoadBalancerNodePorts", true);
        each(object, "/status/loadBalancer/ingress", |point| {
            if point
                .get("ip")
                .and_then(Value::as_str)
                .is_some_and(|ip| !ip.is_empty())
            {
                set(point, "/ipMode", "VIP");
            }
        });
    }
}

pub(super) fn is_reached_from_outside(service: &Value) -> bool {
    let outside = service.pointer("/spec/externalIPs").and_then(Value::as_array);
    match service.pointer("/spec/type").and_then(Value::as_str) {
        Some("NodePort" | "LoadBalancer") => true,
        Some("ClusterIP") => outside.is_some_and(|addresses| !addresses.is_empty()),
        _ => false,
    }
}

/// Conditions of a signing request get their times from the server.
pub(super) fn condition_times(new: &mut Value, old: &Value, now: &str) {
    let before = old
        .pointer("/status/conditions")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    each(new, "/status/conditions", |condition| {
        let known = before.iter().find(|c| c.get("type") == condition.get("type"));
        set(condition, "/lastUpdateTime", now);
        let since = known
            .filter(|c| c.get("status") == condition.get("status"))
            .and_then(|c| c.get("lastTransitionTime"));
        set(
            condition,
            "/lastTransitionTime",
            since.cloned().unwrap_or_else(|| now.into()),
        );
    });
}

pub(super) fn volume(object: &mut Value) {
    set_text(object, "/status/phase", "Pending");
    set_text(object, "/spec/persistentVolumeReclaimPolicy", "Retain");
    set(object, "/spec/volumeMode", "Filesystem");
    if object.pointer("/spec/hostPath").is_some_and(Value::is_object) {
        set(object, "/spec/hostPath/type", "");
    }
}

pub(super) fn begin_volume(object: &mut Value, now: &str) {
    set(object, "/status/phase", "Pending");
    set(object, "/status/lastPhaseTransitionTime", now);
}

/// Says since when a volume is in its phase, unless the writer does.
pub(super) fn time_of_phase(new: &mut Value, old: &Value, now: &str) {
    const SINCE: &str = "lastPhaseTransitionTime";
    let at = |volume: &Value, name: &str| volume.get("status").and_then(|status| status.get(name)).cloned();
    let before = at(old, SINCE);
    let given = at(new, SINCE).filter(|time| !time.is_null());
    let stays = at(new, "phase") == at(old, "phase");
    let time = match given {
        Some(_) if stays || given != before => return,
        None if stays => before,
        _ => Some(now.into()),
    };
    if let (Some(time), Some(status)) = (time, new.get_mut("status").and_then(Value::as_object_mut)) {
        status.insert(SINCE.into(), time);
    }
}

const RBAC: &str = "rbac.authorization.k8s.io";

pub(super) fn binding(object: &mut Value) {
    set_text(object, "/roleRef/apiGroup", RBAC);
    each(object, "/subjects", |subject| {
        if matches!(
            subject.get("kind").and_then(Value::as_str),
            Some("User" | "Group")
        ) {
            set_text(subject, "/apiGroup", RBAC);
        }
    });
}

pub(super) fn network_policy(object: &mut Value) {
    for pointer in ["/spec/ingress", "/spec/egress"] {
        each(object, pointer, |rule| {
            each(rule, "/ports", |port| set(port, "/protocol", "TCP"));
        });
    }
    if object
        .pointer("/spec/policyTypes")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty)
    {
        let egress = object
            .pointer("/spec/egress")
            .and_then(Value::as_array)
            .is_some_and(|e| !e.is_empty());
        let types = if egress {
            json!(["Ingress", "Egress"])
        } else {
            json!(["Ingress"])
        };
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
            spec.insert("policyTypes".into(), types);
        }
    }
}

pub(super) fn crd(object: &mut Value) {
    // The values and bounds in its schemas are not typed.
    strip_whole_floats(object);
    set(object, "/status/acceptedNames/kind", "");
    let stored = object.pointer("/status/storedVersions").and_then(Value::as_array);
    if stored.is_none_or(Vec::is_empty) {
        let versions = object.pointer("/spec/versions").and_then(Value::as_array);
        let stored = versions.into_iter().flatten();
        let stored = stored.filter(|version| version.get("storage") == Some(&Value::Bool(true)));
        let names: Vec<Value> = stored
            .filter_map(|version| version.get("name").cloned())
            .collect();
        if !names.is_empty()
            && let Some(status) = object.get_mut("status").and_then(Value::as_object_mut)
        {
            status.insert("storedVersions".into(), names.into());
        }
    }
    let kind = object
        .pointer("/spec/names/kind")
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned();
    if !kind.is_empty() {
        set_text(object, "/spec/names/singular", &kind.to_lowercase());
        set_text(object, "/spec/names/listKind", &format!("{kind}List"));
    }
    let converted = object
        .pointer("/spec/conversion")
        .is_some_and(|conversion| !conversion.is_null());
    if !converted && object.get("spec").is_some_and(Value::is_object) {
        set(object, "/spec/conversion/strategy", "None");
    }
    if object
        .pointer("/spec/conversion/webhook/clientConfig/service")
        .is_some_and(Value::is_object)
    {
        set(object, "/spec/conversion/webhook/clientConfig/service/port", 443);
    }
    keep_stored_versions(object);
}

/// A status that says nothing of versions says that of today.
fn keep_stored_versions(crd: &mut Value) {
    let given = crd.pointer("/status/storedVersions").and_then(Value::as_array);
    if !crd.get("status").is_some_and(Value::is_object) || given.is_some_and(|given| !given.is_empty()) {
        return;
    }
    let versions = crd.pointer("/spec/versions").and_then(Value::as_array);
    let stored = versions
        .into_iter()
        .flatten()
        .find(|version| version.get("storage") == Some(&Value::Bool(true)))
        .and_then(|version| version.get("name"))
        .cloned();
    if let (Some(name), Some(status)) = (stored, crd.get_mut("status").and_then(Value::as_object_mut)) {
        status.insert("storedVersions".into(), json!([name]));
    }
}

/// What is free of a node is all of it, until somebody says otherwise.
pub(super) fn node(object: &mut Value) {
    if let Some(capacity) = object.pointer("/status/capacity").filter(|all| all.is_object()) {
        let capacity = capacity.clone();
        set(object, "/status/allocatable", capacity);
    }
}

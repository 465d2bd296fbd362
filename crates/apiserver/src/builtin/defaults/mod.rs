//! Defaults of the built-in kinds: what a reader of an object sees although nobody wrote it.

mod admission;
mod core;
mod network;
mod workloads;

use serde_json::{Map, Value, json};

use super::{Kind, autoscaler, claim};

/// Fills in defaults, then gives the object the form of its types.
pub(super) fn apply(kind: &Kind, object: &mut Value) {
    kind.schema().fill_nulls(object);
    match kind.kind {
        "Secret" => core::secret(object),
        "Namespace" => core::namespace(object),
        "Service" => core::service(object),
        "LimitRange" => each(object, "/spec/limits", core::limit),
        "PersistentVolumeClaim" => {
            set(object, "/spec/volumeMode", "Filesystem");
            set_text(object, "/status/phase", "Pending");
        }
        "Node" => core::node(object),
        "PersistentVolume" => core::volume(object),
        "IngressClass" if object.pointer("/spec/parameters").is_some_and(Value::is_object) => {
            set(object, "/spec/parameters/scope", "Cluster");
        }
        "Endpoints" => each(object, "/subsets", |subset| {
            each(subset, "/ports", |p| set(p, "/protocol", "TCP"));
        }),
        "EndpointSlice" => each(object, "/ports", |port| {
            set(port, "/name", "");
            set(port, "/protocol", "TCP");
        }),
        "RoleBinding" | "ClusterRoleBinding" => core::binding(object),
        "Pod" => workloads::pod(object),
        "Deployment" => workloads::deployment(object),
        "ReplicaSet" => workloads::replica_set(object),
        "ReplicationController" => workloads::replication_controller(object),
        "StatefulSet" => workloads::stateful_set(object),
        "DaemonSet" => workloads::daemon_set(object),
        "Job" => workloads::job(object),
        "CronJob" => workloads::cron_job(object),
        "HorizontalPodAutoscaler" if autoscaler::is_older(kind) => autoscaler::default_older(object),
        "HorizontalPodAutoscaler" => workloads::autoscaler(object),
        "PriorityClass" => set(object, "/preemptionPolicy", "PreemptLowerPriority"),
        "StorageClass" => {
            set(object, "/reclaimPolicy", "Delete");
            set(object, "/volumeBindingMode", "Immediate");
        }
        "NetworkPolicy" => core::network_policy(object),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            admission::webhooks(object, kind.kind);
        }
        "ValidatingAdmissionPolicy" => admission::policy(object),
        "ValidatingAdmissionPolicyBinding" => admission::policy_binding(object),
        "CustomResourceDefinition" => core::crd(object),
        "TokenRequest" => set(object, "/spec/expirationSeconds", 3600),
        _ => {}
    }
    kind.schema().normalize_read(object);
}

/// What a new object begins with.
pub(super) fn prepare_create(kind: &Kind, object: &mut Value, now: &str) {
    // A node may say how it is when it comes.
    if kind.subresources.contains(&"status")
        && kind.kind != "Node"
        && let Some(map) = object.as_object_mut()
    {
        map.remove("status");
    }
    match kind.kind {
        "Namespace" => {
            core::label_namespace(object);
            set(object, "/status/phase", "Active");
            set(object, "/spec/finalizers", json!([]));
            if let Some(finalizers) = object
                .pointer_mut("/spec/finalizers")
                .and_then(Value::as_array_mut)
                && !finalizers.iter().any(|f| f == "kubernetes")
            {
                finalizers.push("kubernetes".into());
            }
        }
        "PersistentVolume" => core::begin_volume(object, now),
        "PersistentVolumeClaim" => claim::fill_sources(object, None),
        "Service" => network::service_network(object),
        "ServiceAccount" => core::own_secrets(object),
        "DaemonSet" => workloads::begin_daemon_set(object),
        "StatefulSet" => workloads::forget_share(object),
        "Job" => super::job::mark_pods(object),
        "Pod" => {
            set(object, "/status/phase", "Pending");
            let quality = crate::resources::quality(object.get("spec").unwrap_or(&Value::Null));
            set(object, "/status/qosClass", quality);
            workloads::say_gated(object);
        }
        _ => {}
    }
    kind.schema().normalize_written(object);
}

/// The form that an object has when it is read again: those who looked at it before saw a little more, or less.
pub(super) fn complete(kind: &Kind, object: &mut Value) {
    if kind.kind == "PersistentVolumeClaim" {
        set_text(object, "/status/phase", "Pending");
    }
    kind.schema().normalize_stored(object);
}

/// What an update carries over from the object as it was.
pub(super) fn prepare_update(kind: &Kind, new: &mut Value, old: &Value, now: &str) {
    match kind.kind {
        "PersistentVolumeClaim" => claim::fill_sources(new, Some(old)),
        "Service" => network::keep(new, old),
        "ServiceAccount" => core::own_secrets(new),
        "DaemonSet" => workloads::count_template(new, old),
        "StatefulSet" => workloads::forget_share(new),
        "CertificateSigningRequest" => core::condition_times(new, old, now),
        "PersistentVolume" => core::time_of_phase(new, old, now),
        "Pod" => {
            if let Some(quality) = old.pointer("/status/qosClass") {
                set(new, "/status/qosClass", quality.clone());
            }
        }
        _ => {}
    }
    kind.schema().normalize_written(new);
}

/// The object below `object` at a pointer, made if it is not there. A value of another type is left alone.
fn parent<'a>(object: &'a mut Value, path: &[&str]) -> Option<&'a mut Map<String, Value>> {
    let mut here = object;
    for name in path {
        here = here
            .as_object_mut()?
            .entry(*name)
            .or_insert_with(|| Value::Object(Map::new()));
        if here.is_null() {
            *here = Value::Object(Map::new());
        }
    }
    here.as_object_mut()
}

/// Sets a field that is absent or null.
pub(super) fn set(object: &mut Value, pointer: &str, value: impl Into<Value>) {
    let mut path: Vec<&str> = pointer.trim_start_matches('/').split('/').collect();
    let Some(name) = path.pop() else { return };
    if let Some(map) = parent(object, &path) {
        let slot = map.entry(name).or_insert(Value::Null);
        if slot.is_null() {
            *slot = value.into();
        }
    }
}

/// Sets a field that is absent, null or empty text: fields that are no pointers in the real server.
fn set_text(object: &mut Value, pointer: &str, value: &str) {
    if object.pointer(pointer).and_then(Value::as_str) == Some("")
        && let Some(slot) = object.pointer_mut(pointer)
    {
        *slot = Value::Null;
    }
    set(object, pointer, value);
}

/// The same of a number, of which nought is none.
fn set_number(object: &mut Value, pointer: &str, value: i64) {
    if object.pointer(pointer).and_then(Value::as_i64) == Some(0)
        && let Some(slot) = object.pointer_mut(pointer)
    {
        *slot = Value::Null;
    }
    set(object, pointer, value);
}

/// Calls `change` for every item of a list that is there.
fn each(object: &mut Value, pointer: &str, change: impl FnMut(&mut Value)) {
    if let Some(list) = object.pointer_mut(pointer).and_then(Value::as_array_mut) {
        list.iter_mut().filter(|item| item.is_object()).for_each(change);
    }
}

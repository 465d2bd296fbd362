//! Validation of built-in objects, with the real server's words.

mod addresses;
mod admission;
mod autoscalers;
mod bounds;
mod claims;
mod containers;
mod core;
mod costs;
mod crd;
mod events;
mod handlers;
mod jobs;
mod lasting;
mod networking;
mod nodes;
mod persistent_volumes;
mod placement;
mod pods;
mod policies;
pub(crate) mod policy_types;
mod priority;
mod quotas;
mod rbac;
mod schedule;
mod schema;
mod selectable;
mod services;
mod signing;
mod variables;
mod volumes;
mod webhook_clients;
mod workloads;

use serde_json::Value;

use super::Kind;
use crate::schema::meta::NameRule;
use crate::schema::{Cause, child, index, meta, names};

/// Everything that is wrong with an object.
pub(super) fn validate(kind: &Kind, new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let metadata = new.get("metadata").unwrap_or(&Value::Null);
    let create = || meta::validate_create(metadata, kind.namespaced, kind.name_rule, "metadata");
    let mut causes = match old {
        None => create(),
        Some(old) => {
            let before = old.get("metadata").unwrap_or(&Value::Null);
            let mut causes = meta::validate_update(metadata, before, "metadata");
            if looks_at_names_again(kind) {
                causes.extend(if meta::is_renamed(metadata, before) {
                    create()
                } else {
                    meta::finalizers(metadata, "metadata")
                });
            }
            causes
        }
    };
    if !matches!(
        kind.group,
        "admissionregistration.k8s.io" | "apiextensions.k8s.io" | "coordination.k8s.io" | "policy"
    ) {
        for (i, finalizer) in list(metadata, "/finalizers").iter().enumerate() {
            causes.extend(core::kube_finalizer(finalizer, index("metadata.finalizers", i)));
        }
    }
    match kind.kind {
        "ConfigMap" => causes.extend(core::config_map(new, old)),
        "Secret" => causes.extend(core::secret(new, old)),
        "Namespace" => causes.extend(core::namespace(new, old)),
        "Lease" => causes.extend(core::lease(new)),
        "CertificateSigningRequest" => causes.extend(signing::request(new, old)),
        "Service" => {
            causes.extend(core::service(new));
            causes.extend(services::service(new, old));
            causes.extend(addresses::balancer(new, old));
        }
        "LimitRange" => causes.extend(quotas::limit_range(new)),
        "ResourceQuota" => causes.extend(quotas::resource_quota(new, old)),
        "Event" => causes.extend(events::event(kind, new, old)),
        "Role" => causes.extend(rbac::role(new, true)),
        "ClusterRole" => causes.extend(rbac::role(new, false)),
        "RoleBinding" => causes.extend(rbac::binding(new, old, true)),
        "ClusterRoleBinding" => causes.extend(rbac::binding(new, old, false)),
        "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
            causes.extend(admission::webhooks(new));
        }
        "ValidatingAdmissionPolicy" => causes.extend(policies::policy(new)),
        "ValidatingAdmissionPolicyBinding" => causes.extend(policies::policy_binding(new)),
        "CustomResourceDefinition" => causes.extend(crd::validate(new, old)),
        "PersistentVolume" => causes.extend(persistent_volumes::volume(new, old)),
        "PersistentVolumeClaim" => causes.extend(claims::claim(new, old)),
        "Node" => causes.extend(nodes::node(new, old)),
        "Pod" => causes.extend(pods::pod(new, old)),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "DaemonSet" => {
            causes.extend(workloads::controller(kind.kind, new, old));
        }
        "ReplicationController" => causes.extend(workloads::replication_controller(new)),
        "Job" => causes.extend(jobs::job(new, old)),
        "CronJob" => causes.extend(jobs::cron_job(new, old)),
        "PodDisruptionBudget" => causes.extend(bounds::budget(new)),
        "HorizontalPodAutoscaler" => {
            let old = old.map(|old| kind.printable(old));
            causes.extend(autoscalers::autoscaler(&kind.printable(new), old.as_deref()));
        }
        "Ingress" => causes.extend(networking::ingress(new, old)),
        "IngressClass" => causes.extend(networking::class(new, old)),
        "NetworkPolicy" => causes.extend(networking::policy(new, old)),
        "EndpointSlice" => causes.extend(lasting::slice(new, old)),
        "Endpoints" => causes.extend(lasting::endpoints(new)),
        "StorageClass" => causes.extend(old.into_iter().flat_map(|old| lasting::storage_class(new, old))),
        "PriorityClass" => causes.extend(priority::class(new, old)),
        _ => {}
    }
    causes
}

/// Whether the validation of an update includes that of a new object's metadata.
fn looks_at_names_again(kind: &Kind) -> bool {
    !matches!(
        kind.kind,
        "CronJob"
            | "CustomResourceDefinition"
            | "DaemonSet"
            | "Deployment"
            | "Event"
            | "HorizontalPodAutoscaler"
            | "Lease"
            | "NetworkPolicy"
            | "PodDisruptionBudget"
            | "PriorityClass"
            | "ReplicaSet"
            | "ReplicationController"
            | "ResourceQuota"
            | "Service"
            | "StatefulSet"
    )
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn immutable(new: &Value, old: &Value, pointer: &str) -> Option<Cause> {
    let at = |value: &Value| value.pointer(pointer).cloned().unwrap_or_default();
    (at(new) != at(old)).then(|| {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        let shown = match at(new) {
            Value::Null => Value::from(""),
            other => other,
        };
        Cause::invalid(field, &shown, "field is immutable")
    })
}

/// Validates a label selector in its object form.
fn label_selector(selector: Option<&Value>, path: &str) -> Vec<Cause> {
    let mut causes = Vec::new();
    let Some(selector) = selector else { return causes };
    let labels = selector.get("matchLabels").and_then(Value::as_object);
    causes.extend(meta::validate_labels(labels, &child(path, "matchLabels")));
    for (i, expression) in list(selector, "/matchExpressions").iter().enumerate() {
        let path = index(&child(path, "matchExpressions"), i);
        let values = list(expression, "/values");
        match text(expression, "/operator") {
            "In" | "NotIn" if values.is_empty() => {
                let detail = "must be specified when `operator` is 'In' or 'NotIn'";
                causes.push(Cause::required(child(&path, "values"), detail));
            }
            "Exists" | "DoesNotExist" if !values.is_empty() => {
                let detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                causes.push(Cause::forbidden(child(&path, "values"), detail));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            other => {
                causes.push(Cause::invalid(
                    child(&path, "operator"),
                    &other.into(),
                    "not a valid selector operator",
                ));
            }
        }
        let key = text(expression, "/key");
        for problem in names::qualified_name(key) {
            causes.push(Cause::invalid(child(&path, "key"), &key.into(), &problem));
        }
        for (j, value) in values.iter().enumerate() {
            for problem in names::label_value(value.as_str().unwrap_or_default()) {
                causes.push(Cause::invalid(index(&child(&path, "values"), j), value, &problem));
            }
        }
    }
    causes
}

fn name_problems(rule: NameRule, name: &str, path: &str) -> Vec<Cause> {
    rule.problems(name, false)
        .iter()
        .map(|p| Cause::invalid(path, &name.into(), p))
        .collect()
}

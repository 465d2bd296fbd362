//! Defaults of pods and of the kinds that hold pod templates.

use serde_json::{Value, json};

use super::{each, parent, set, set_number, set_text};
use crate::resources;

/// The defaults of a HorizontalPodAutoscaler: one that measures nothing watches the processor.
pub(super) fn autoscaler(object: &mut Value) {
    crate::builtin::autoscaler::drop_notes(object);
    set(object, "/spec/minReplicas", 1);
    let metrics = object.pointer("/spec/metrics").and_then(Value::as_array);
    if metrics.is_none_or(Vec::is_empty)
        && let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut)
    {
        let target = json!({ "type": "Utilization", "averageUtilization": 80 });
        spec.insert(
            "metrics".into(),
            json!([{ "type": "Resource", "resource": { "name": "cpu", "target": target } }]),
        );
    }
    if object.pointer("/spec/behavior").is_some_and(Value::is_object) {
        let policy = |kind: &str, value: i64| json!({ "type": kind, "value": value, "periodSeconds": 15 });
        let (pods, percent) = (policy("Pods", 4), policy("Percent", 100));
        set(object, "/spec/behavior/scaleUp/stabilizationWindowSeconds", 0);
        set(object, "/spec/behavior/scaleUp/selectPolicy", "Max");
        set(object, "/spec/behavior/scaleUp/policies", json!([pods, percent]));
        set(object, "/spec/behavior/scaleDown/selectPolicy", "Max");
        set(object, "/spec/behavior/scaleDown/policies", json!([percent]));
    }
}

/// The defaults of a PodSpec at `pointer`.
fn pod_spec(object: &mut Value, pointer: &str) {
    let Some(spec) = object.pointer_mut(pointer).filter(|s| s.is_object()) else {
        return;
    };
    set_text(spec, "/restartPolicy", "Always");
    set(spec, "/terminationGracePeriodSeconds", 30);
    set_text(spec, "/dnsPolicy", "ClusterFirst");
    set(spec, "/securityContext", json!({}));
    set_text(spec, "/schedulerName", "default-scheduler");
    // The old name of the field mirrors the new one.
    let fields = ["serviceAccountName", "serviceAccount"];
    let named = |field| {
        spec.get(field)
            .filter(|name| !matches!(name.as_str(), None | Some("")))
    };
    if let Some(name) = fields.into_iter().find_map(named).cloned() {
        for field in fields {
            spec[field] = name.clone();
        }
    }
    for containers in ["/containers", "/initContainers"] {
        each(spec, containers, container);
    }
    each(spec, "/volumes", |volume| {
        for (source, name) in [
            ("secret", "defaultMode"),
            ("configMap", "defaultMode"),
            ("downwardAPI", "defaultMode"),
            ("projected", "defaultMode"),
        ] {
            if volume.get(source).is_some_and(Value::is_object) {
                set(volume, &format!("/{source}/{name}"), 420);
            }
        }
        if volume.get("hostPath").is_some_and(Value::is_object) {
            set(volume, "/hostPath/type", "");
        }
        each(volume, "/downwardAPI/items", field_reference);
        each(volume, "/projected/sources", |source| {
            if source.get("serviceAccountToken").is_some_and(Value::is_object) {
                set(source, "/serviceAccountToken/expirationSeconds", 3600);
            }
            each(source, "/downwardAPI/items", field_reference);
        });
        let template = "/ephemeral/volumeClaimTemplate/spec";
        if volume.pointer(template).is_some_and(Value::is_object) {
            set(volume, &format!("{template}/volumeMode"), "Filesystem");
        }
        let sources = volume.as_object().map_or(0, serde_json::Map::len);
        if sources <= 1 {
            set(volume, "/emptyDir", json!({}));
        }
    });
}

/// Why a new pod that is kept from nodes goes to none.
pub(super) fn say_gated(pod: &mut Value) {
    let gates = pod.pointer("/spec/schedulingGates").and_then(Value::as_array);
    if gates.is_none_or(Vec::is_empty) {
        return;
    }
    let since = pod.pointer("/metadata/creationTimestamp").cloned();
    let condition = json!({
        "type": "PodScheduled",
        "status": "False",
        "lastProbeTime": null,
        "lastTransitionTime": since,
        "reason": "SchedulingGated",
        "message": "Scheduling is blocked due to non-empty scheduling gates",
    });
    set(pod, "/status/conditions", json!([condition]));
}

/// What names a field of the pod names it in a version.
fn field_reference(source: &mut Value) {
    if source.get("fieldRef").is_some_and(Value::is_object) {
        set_text(source, "/fieldRef/apiVersion", "v1");
    }
}

fn container(container: &mut Value) {
    set_text(container, "/terminationMessagePath", "/dev/termination-log");
    set_text(container, "/terminationMessagePolicy", "File");
    let image = container.get("image").and_then(Value::as_str).unwrap_or_default();
    let tag = image.rsplit('/').next().unwrap_or_default();
    let latest = !image.contains('@') && (!tag.contains(':') || tag.ends_with(":latest"));
    set_text(
        container,
        "/imagePullPolicy",
        if latest { "Always" } else { "IfNotPresent" },
    );
    each(container, "/ports", |port| set_text(port, "/protocol", "TCP"));
    each(container, "/env", |variable| {
        if let Some(source) = variable.get_mut("valueFrom") {
            field_reference(source);
            if source.get("fileKeyRef").is_some_and(Value::is_object) {
                set(source, "/fileKeyRef/optional", false);
            }
        }
    });
    for moment in ["/lifecycle/postStart", "/lifecycle/preStop"] {
        if let Some(handler) = container.pointer_mut(moment) {
            request(handler);
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let Some(probe) = container.get_mut(probe).filter(|p| p.is_object()) else {
            continue;
        };
        for (name, value) in [
            ("timeoutSeconds", 1),
            ("periodSeconds", 10),
            ("successThreshold", 1),
            ("failureThreshold", 3),
        ] {
            set_number(probe, &format!("/{name}"), value);
        }
        request(probe);
        if probe.get("grpc").is_some_and(Value::is_object) {
            set(probe, "/grpc/service", "");
        }
    }
}

/// What is asked over HTTP says how, and where.
fn request(handler: &mut Value) {
    if handler.get("httpGet").is_some_and(Value::is_object) {
        set_text(handler, "/httpGet/path", "/");
        set_text(handler, "/httpGet/scheme", "HTTP");
    }
}

/// A pod in the network of its node has the node's ports; a template leaves that to its pods.
fn node_ports(pod: &mut Value) {
    if pod.pointer("/spec/hostNetwork") != Some(&Value::Bool(true)) {
        return;
    }
    for containers in ["/spec/containers", "/spec/initContainers"] {
        each(pod, containers, |container| {
            each(container, "/ports", |port| {
                if let Some(number) = port.get("containerPort").and_then(Value::as_i64) {
                    set_number(port, "/hostPort", number);
                }
            });
        });
    }
}

pub(super) fn pod(object: &mut Value) {
    set(object, "/spec/enableServiceLinks", true);
    pod_spec(object, "/spec");
    node_ports(object);
    for field in ["/spec/containers", "/spec/initContainers"] {
        each(object, field, requests);
    }
    whole_requests(object);
    addresses(object);
}

/// The address is the first of the addresses; where they differ, the one that has been there longer counts.
fn addresses(pod: &mut Value) {
    let Some(status) = pod.get_mut("status").and_then(Value::as_object_mut) else {
        return;
    };
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let one = text(status.get("podIP"));
    let all = status.get("podIPs").and_then(|list| list.get(0)).is_some();
    let first = text(status.get("podIPs").and_then(|list| list.pointer("/0/ip")));
    if !one.is_empty() && one != first {
        status.insert("podIPs".into(), json!([{ "ip": one }]));
    } else if all {
        status.insert("podIP".into(), first.into());
    }
}

/// What a whole pod with limits asks for: what its containers do, or else its limits.
fn whole_requests(pod: &mut Value) {
    let Some(spec) = pod.get_mut("spec") else { return };
    let given = |which: &str| {
        let amounts = spec.pointer(&format!("/resources/{which}"));
        amounts.and_then(Value::as_object).cloned().unwrap_or_default()
    };
    let (limits, mut requests) = (given("limits"), given("requests"));
    if limits.is_empty() {
        return;
    }
    for (name, amount) in resources::of_pod(spec, "requests") {
        if matches!(name.as_str(), "cpu" | "memory") {
            requests.entry(name).or_insert_with(|| amount.to_string().into());
        }
    }
    for (name, amount) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            requests.entry(name).or_insert(amount);
        }
    }
    if let Some(resources) = spec.get_mut("resources").and_then(Value::as_object_mut)
        && !requests.is_empty()
    {
        resources.insert("requests".into(), requests.into());
    }
}

/// A limit without a request is also the request; in templates it is left to the pods.
fn requests(container: &mut Value) {
    let limits = container
        .pointer("/resources/limits")
        .and_then(Value::as_object)
        .cloned();
    for (name, value) in limits.into_iter().flatten() {
        set(container, "/resources/requests", json!({}));
        if let Some(requests) = container
            .pointer_mut("/resources/requests")
            .and_then(Value::as_object_mut)
        {
            requests.entry(name).or_insert(value);
        }
    }
}

/// The defaults of the pods that an object makes; what says nothing about them has a template with nothing in it.
fn template(object: &mut Value) {
    parent(object, &["spec", "template", "spec"]);
    pod_spec(object, "/spec/template/spec");
}

pub(super) fn deployment(object: &mut Value) {
    set(object, "/spec/replicas", 1);
    set_text(object, "/spec/strategy/type", "RollingUpdate");
    if object.pointer("/spec/strategy/type").and_then(Value::as_str) == Some("RollingUpdate") {
        set(object, "/spec/strategy/rollingUpdate/maxUnavailable", "25%");
        set(object, "/spec/strategy/rollingUpdate/maxSurge", "25%");
    }
    set(object, "/spec/revisionHistoryLimit", 10);
    set(object, "/spec/progressDeadlineSeconds", 600);
    template(object);
}

pub(super) fn replica_set(object: &mut Value) {
    set(object, "/spec/replicas", 1);
    template(object);
}

/// It chooses, and is labelled, as its pods are, if it does not say otherwise.
pub(super) fn replication_controller(object: &mut Value) {
    let labels = object.pointer("/spec/template/metadata/labels").cloned();
    if let Some(labels) = labels.filter(Value::is_object) {
        for place in ["/spec/selector", "/metadata/labels"] {
            let given = object.pointer(place).and_then(Value::as_object);
            if given.is_none_or(serde_json::Map::is_empty)
                && let Some((parent, name)) = place.rsplit_once('/')
                && let Some(parent) = object.pointer_mut(parent).and_then(Value::as_object_mut)
            {
                parent.insert(name.into(), labels.clone());
            }
        }
    }
    set(object, "/spec/replicas", 1);
    pod_spec(object, "/spec/template/spec");
}

pub(super) fn stateful_set(object: &mut Value) {
    set(object, "/spec/replicas", 1);
    set_text(object, "/spec/podManagementPolicy", "OrderedReady");
    each(object, "/spec/volumeClaimTemplates", |claim| {
        // Whatever they are called, they are claims.
        if let Some(claim) = claim.as_object_mut() {
            claim.insert("apiVersion".into(), "v1".into());
            claim.insert("kind".into(), "PersistentVolumeClaim".into());
        }
    });
    // Whoever names the type, but not how to roll, leaves that open.
    let at = |name: &str| object.pointer(&format!("/spec/updateStrategy/{name}"));
    let is_rolling = match at("type").and_then(Value::as_str) {
        None | Some("") => true,
        Some(kind) => kind == "RollingUpdate" && at("rollingUpdate").is_some_and(Value::is_object),
    };
    set_text(object, "/spec/updateStrategy/type", "RollingUpdate");
    if is_rolling {
        set(object, "/spec/updateStrategy/rollingUpdate/partition", 0);
    }
    set(object, "/spec/revisionHistoryLimit", 10);
    set_text(
        object,
        "/spec/persistentVolumeClaimRetentionPolicy/whenDeleted",
        "Retain",
    );
    set_text(
        object,
        "/spec/persistentVolumeClaimRetentionPolicy/whenScaled",
        "Retain",
    );
    each(object, "/spec/volumeClaimTemplates", |claim| {
        set(claim, "/spec/volumeMode", "Filesystem");
        set(claim, "/status/phase", "Pending");
    });
    template(object);
}

/// How many pods of a set may be missing at once is off by default: it is not kept.
pub(super) fn forget_share(object: &mut Value) {
    let update = object.pointer_mut("/spec/updateStrategy/rollingUpdate");
    if let Some(update) = update.and_then(Value::as_object_mut) {
        update.remove("maxUnavailable");
    }
}

/// How often the template of a DaemonSet changed. The real server keeps it as a number and shows it as this annotation.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

fn template_generation(object: &Value) -> i64 {
    let annotations = object.pointer("/metadata/annotations");
    let text = annotations.and_then(|map| map.get(TEMPLATE_GENERATION)?.as_str());
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn set_template_generation(object: &mut Value, generation: i64) {
    if let Some(annotations) = parent(object, &["metadata", "annotations"]) {
        annotations.insert(TEMPLATE_GENERATION.into(), generation.to_string().into());
    }
}

/// A new DaemonSet counts from one, whoever came to own the zero that it was sent with.
pub(super) fn begin_daemon_set(object: &mut Value) {
    let generation = template_generation(object).max(1);
    set_template_generation(object, generation);
}

/// The count is the server's: an update that says another is not heard.
pub(super) fn count_template(new: &mut Value, old: &Value) {
    let changed = new.pointer("/spec/template") != old.pointer("/spec/template");
    set_template_generation(new, template_generation(old) + i64::from(changed));
}

pub(super) fn daemon_set(object: &mut Value) {
    // What is left out is zero: whoever writes so comes to own the annotation.
    let generation = template_generation(object);
    set_template_generation(object, generation);
    set_text(object, "/spec/updateStrategy/type", "RollingUpdate");
    if object
        .pointer("/spec/updateStrategy/type")
        .and_then(Value::as_str)
        == Some("RollingUpdate")
    {
        set(object, "/spec/updateStrategy/rollingUpdate/maxUnavailable", 1);
        set(object, "/spec/updateStrategy/rollingUpdate/maxSurge", 0);
    }
    set(object, "/spec/revisionHistoryLimit", 10);
    template(object);
}

fn job_spec(object: &mut Value, pointer: &str) {
    let Some(spec) = object.pointer_mut(pointer).filter(|s| s.is_object()) else {
        return;
    };
    if spec.get("completions").is_none_or(Value::is_null)
        && spec.get("parallelism").is_none_or(Value::is_null)
    {
        set(spec, "/completions", 1);
    }
    set(spec, "/parallelism", 1);
    // Where each index has a limit of its own, that of all is none.
    let is_counted_each = spec.get("backoffLimitPerIndex").is_some_and(Value::is_number);
    let limit = if is_counted_each { i32::MAX } else { 6 };
    set(spec, "/backoffLimit", limit);
    set(spec, "/completionMode", "NonIndexed");
    set(spec, "/suspend", false);
    let is_told_failures = spec.get("podFailurePolicy").is_some_and(Value::is_object);
    let replaced = if is_told_failures {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    set(spec, "/podReplacementPolicy", replaced);
    parent(spec, &["template", "spec"]);
    pod_spec(spec, "/template/spec");
}

pub(super) fn job(object: &mut Value) {
    parent(object, &["spec"]);
    job_spec(object, "/spec");
    set(object, "/spec/manualSelector", false);
    super::super::job::label(object);
}

pub(super) fn cron_job(object: &mut Value) {
    set_text(object, "/spec/concurrencyPolicy", "Allow");
    set(object, "/spec/suspend", false);
    set(object, "/spec/successfulJobsHistoryLimit", 3);
    set(object, "/spec/failedJobsHistoryLimit", 1);
    parent(object, &["spec", "jobTemplate", "spec", "template", "spec"]);
    pod_spec(object, "/spec/jobTemplate/spec/template/spec");
}

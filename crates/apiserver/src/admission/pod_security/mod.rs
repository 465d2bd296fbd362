//! PodSecurity: what the labels of a namespace demand of the pods in it.
//!
//! `pod-security.kubernetes.io/enforce` refuses pods, `warn` warns about them and about everything that holds a pod
//! template; `audit` is for the log of audits, which is not kept here.

mod checks;
mod host;
mod restricted;

use std::collections::BTreeMap;

use serde_json::Value;

use super::request::text;
use super::{Operation, Rejection, Request, Source};
use crate::schema::Cause;

const PREFIX: &str = "pod-security.kubernetes.io/";
/// How many pods are looked at when a namespace asks for more than before.
const MOST_PODS: usize = 3000;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Privileged,
    Baseline,
    Restricted,
}

/// The minor version after all others.
const LATEST: u32 = u32::MAX;

/// A level, and the minor version whose rules count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Standard {
    level: Level,
    minor: u32,
}

impl std::fmt::Display for Standard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self.level {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        })?;
        match self.minor {
            LATEST => f.write_str(":latest"),
            minor => write!(f, ":v1.{minor}"),
        }
    }
}

impl Standard {
    const NONE: Self = Self {
        level: Level::Privileged,
        minor: LATEST,
    };

    /// What a pod does against it.
    fn violations(self, metadata: &Value, spec: &Value) -> Vec<checks::Violation> {
        match self.level {
            Level::Privileged => Vec::new(),
            level => checks::run(metadata, spec, level == Level::Restricted, self.minor),
        }
    }
}

/// What a namespace demands.
#[derive(Clone, Copy)]
struct Policy {
    enforce: Standard,
    warn: Standard,
}

/// The policy in the labels of a namespace, and which of them say nothing. A level that cannot be read enforces the most
/// and warns of nothing.
fn policy(namespace: &Value) -> (Policy, Vec<Cause>) {
    let label = |name: &str| {
        namespace
            .pointer("/metadata/labels")?
            .get(format!("{PREFIX}{name}"))?
            .as_str()
    };
    let mut causes = Vec::new();
    let mut read = |mode: &str, otherwise: Level| {
        let mut standard = Standard::NONE;
        let mut good = false;
        let mut bad = |name: &str, value: &str, detail: &str| {
            let field = format!("metadata.labels[{PREFIX}{name}]");
            causes.push(Cause::invalid(field, &value.into(), detail));
        };
        if let Some(level) = label(mode) {
            let known = match level {
                "privileged" => Some(Level::Privileged),
                "baseline" => Some(Level::Baseline),
                "restricted" => Some(Level::Restricted),
                _ => None,
            };
            good = known.is_some();
            standard.level = known.unwrap_or(otherwise);
            if !good {
                bad(mode, level, "must be one of privileged, baseline, restricted");
            }
        }
        let versioned = format!("{mode}-version");
        if let Some(version) = label(&versioned) {
            match minor(version) {
                Some(minor) => standard.minor = minor,
                None => bad(&versioned, version, "must be \"latest\" or \"v1.x\""),
            }
        }
        (standard, good)
    };
    let (enforce, enforced) = read("enforce", Level::Restricted);
    read("audit", Level::Privileged);
    let (mut warn, _) = read("warn", Level::Privileged);
    if label("warn").is_none() && enforced && enforce.level > warn.level {
        warn.level = enforce.level;
        if label("warn-version").is_none() {
            warn.minor = enforce.minor;
        }
    }
    (Policy { enforce, warn }, causes)
}

fn minor(version: &str) -> Option<u32> {
    if version == "latest" {
        return Some(LATEST);
    }
    let digits = version.strip_prefix("v1.")?;
    let plain = digits == "0" || !digits.starts_with('0');
    let plain = plain && digits.chars().all(|c| c.is_ascii_digit());
    digits.parse().ok().filter(|_| plain)
}

/// Checks pods, what holds pod templates, and the labels of namespaces.
pub(super) fn validate(
    source: &dyn Source,
    request: &Request,
    object: Option<&Value>,
) -> Result<(), Rejection> {
    let Some(object) = object.filter(|_| matches!(request.operation, Operation::Create | Operation::Update))
    else {
        return Ok(());
    };
    let (template, enforced) = match (request.group.as_str(), request.resource.as_str()) {
        ("", "namespaces") => return namespace(source, request, object),
        ("", "pods") => ("", true),
        (
            "" | "apps",
            "replicationcontrollers" | "replicasets" | "deployments" | "statefulsets" | "daemonsets",
        )
        | ("batch", "jobs") => ("/spec/template", false),
        ("", "podtemplates") => ("/template", false),
        ("batch", "cronjobs") => ("/spec/jobTemplate/spec/template", false),
        _ => return Ok(()),
    };
    if !request.subresource.is_empty() {
        return Ok(());
    }
    let Some(namespace) = source.get("", "namespaces", "", &request.namespace) else {
        return Ok(());
    };
    let (policy, _) = policy(&namespace);
    let old = request.old_object.as_ref();
    if enforced && old.is_some_and(|old| !significant(object, old)) {
        return Ok(());
    }
    let Some(template) = object.pointer(template) else {
        return Ok(());
    };
    let part = |name: &str| template.get(name).unwrap_or(&Value::Null);
    let (metadata, spec) = (part("metadata"), part("spec"));
    if enforced {
        let violations = policy.enforce.violations(metadata, spec);
        if !violations.is_empty() {
            return Err(request.forbidden(&format!(
                "violates PodSecurity \"{}\": {}",
                policy.enforce,
                checks::details(&violations)
            )));
        }
    }
    let violations = policy.warn.violations(metadata, spec);
    if !violations.is_empty() {
        source.warn(&format!(
            "would violate PodSecurity \"{}\": {}",
            policy.warn,
            checks::details(&violations)
        ));
    }
    Ok(())
}

/// Whether an update of a pod is more than one of labels and the like: it has other containers, or other images.
fn significant(new: &Value, old: &Value) -> bool {
    let images = |pod: &Value| {
        ["initContainers", "containers"].map(|field| {
            let list = pod.pointer(&format!("/spec/{field}")).and_then(Value::as_array);
            list.into_iter()
                .flatten()
                .map(|container| text(container, "/image").to_owned())
                .collect::<Vec<_>>()
        })
    };
    images(new) != images(old)
}

/// Labels must be such that they can be read; what they newly enforce is held against the pods that are there.
fn namespace(source: &dyn Source, request: &Request, object: &Value) -> Result<(), Rejection> {
    if !request.subresource.is_empty() {
        return Ok(());
    }
    let (new, causes) = policy(object);
    let before = request.old_object.as_ref().map(policy);
    let known = before.as_ref().is_some_and(|(_, old)| *old == causes);
    if !causes.is_empty() && !known {
        return Err(request.invalid(&causes));
    }
    let Some((old, _)) = before else { return Ok(()) };
    let (new, old) = (new.enforce, old.enforce);
    if new == old || new.level == Level::Privileged || (new.minor == old.minor && new.level <= old.level) {
        return Ok(());
    }
    warn_of_pods(source, text(object, "/metadata/name"), new);
    Ok(())
}

fn warn_of_pods(source: &dyn Source, namespace: &str, standard: Standard) {
    let pods = source.list_in("", "pods", namespace);
    // Of those that a controller made one after the other, the first speaks for all.
    let mut controllers = Vec::new();
    let (first, rest): (Vec<_>, Vec<_>) = pods.iter().partition(|pod| {
        let owners = pod.pointer("/metadata/ownerReferences").and_then(Value::as_array);
        let mut owners = owners.into_iter().flatten();
        let Some(owner) = owners.find(|o| o.get("controller") == Some(&Value::Bool(true))) else {
            return true;
        };
        let uid = text(owner, "/uid").to_owned();
        let new = !controllers.contains(&uid);
        controllers.push(uid);
        new
    });
    let checked = first.into_iter().chain(rest).take(MOST_PODS);
    let mut found: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for pod in checked {
        let part = |name: &str| pod.get(name).unwrap_or(&Value::Null);
        let violations = standard.violations(part("metadata"), part("spec"));
        if !violations.is_empty() {
            let reasons: Vec<&str> = violations.iter().map(|v| v.reason.as_str()).collect();
            found
                .entry(reasons.join(", "))
                .or_default()
                .push(text(pod, "/metadata/name"));
        }
    }
    if pods.len() > MOST_PODS {
        source.warn(&format!(
            "new PodSecurity enforce level only checked against the first {MOST_PODS} of {} existing pods",
            pods.len()
        ));
    }
    if found.is_empty() {
        return;
    }
    source.warn(&format!(
        "existing pods in namespace \"{namespace}\" violate the new PodSecurity enforce level \"{standard}\""
    ));
    let mut lines: Vec<String> = found
        .into_iter()
        .map(|(reasons, names)| {
            let first = names.iter().min().copied().unwrap_or_default();
            match names.len() {
                1 => format!("{first}: {reasons}"),
                2 => format!("{first} (and 1 other pod): {reasons}"),
                n => format!("{first} (and {} other pods): {reasons}", n - 1),
            }
        })
        .collect();
    lines.sort();
    for line in &lines {
        source.warn(line);
    }
}

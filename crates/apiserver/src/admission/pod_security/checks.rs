//! The rules of the Pod Security Standards, one function each, with the real server's words. Here are those of the baseline.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{host, restricted};
use crate::admission::request::text;

/// The version that last changed a rule; later ones are the same.
const NEWEST: u32 = 35;

/// A rule that a pod breaks.
pub(super) struct Violation {
    pub reason: String,
    detail: String,
}

/// All of them in a line.
pub(super) fn details(violations: &[Violation]) -> String {
    let lines = violations.iter().map(|v| format!("{} ({})", v.reason, v.detail));
    lines.collect::<Vec<_>>().join(", ")
}

pub(super) struct Pod<'a> {
    metadata: &'a Value,
    pub spec: &'a Value,
    pub minor: u32,
}

pub(super) type Check = fn(&Pod<'_>) -> Option<Violation>;

/// The rules of the baseline; for those that a restricted rule replaces, since which version.
const BASELINE: [(Check, Option<u32>); 12] = [
    (app_armor, None),
    (capabilities_baseline, Some(22)),
    (host::namespaces, None),
    (host::path_volumes, Some(0)),
    (host::ports, None),
    (host::probes, None),
    (privileged, None),
    (proc_mount_baseline, Some(35)),
    (selinux, None),
    (seccomp_baseline, Some(19)),
    (sysctls, None),
    (windows_host_process, None),
];

/// What a pod does against a level of a version.
pub(super) fn run(metadata: &Value, spec: &Value, restricted: bool, minor: u32) -> Vec<Violation> {
    let minor = minor.min(NEWEST);
    let pod = Pod {
        metadata,
        spec,
        minor,
    };
    let baseline = BASELINE
        .iter()
        .filter(|(_, replaced)| !(restricted && replaced.is_some_and(|since| minor >= since)))
        .map(|(check, _)| check);
    let more: &[Check] = if restricted { &restricted::CHECKS } else { &[] };
    baseline.chain(more).filter_map(|check| check(&pod)).collect()
}

impl<'a> Pod<'a> {
    fn containers(&self) -> impl Iterator<Item = &'a Value> + use<'a> {
        let spec = self.spec;
        ["initContainers", "containers", "ephemeralContainers"]
            .into_iter()
            .filter_map(move |field| spec.get(field)?.as_array())
            .flatten()
    }

    /// The names of the containers that are so.
    pub fn names(&self, mut bad: impl FnMut(&'a Value) -> bool) -> Vec<&'a str> {
        self.containers()
            .filter(|container| bad(container))
            .map(|container| text(container, "/name"))
            .collect()
    }

    pub fn windows(&self) -> bool {
        text(self.spec, "/os/name") == "windows"
    }

    /// A pod with users of its own may be root in there.
    pub fn own_users(&self) -> bool {
        self.minor >= 35 && self.spec.get("hostUsers") == Some(&Value::Bool(false))
    }

    /// The pod, the containers: whoever set it.
    pub fn setters(&self, pointer: &str, mut bad: impl FnMut(&'a Value) -> bool) -> Vec<String> {
        let mut setters = Vec::new();
        if self.spec.pointer(pointer).is_some_and(&mut bad) {
            setters.push("pod".to_owned());
        }
        let names = self.names(|container| container.pointer(pointer).is_some_and(&mut bad));
        if !names.is_empty() {
            setters.push(these(&names));
        }
        setters
    }
}

#[allow(clippy::unnecessary_wraps, reason = "it is how a check ends")]
pub(super) fn violation(reason: &str, detail: String) -> Option<Violation> {
    Some(Violation {
        reason: reason.to_owned(),
        detail,
    })
}

pub(super) fn quoted<S: AsRef<str>>(items: impl IntoIterator<Item = S>) -> String {
    let items: Vec<String> = items.into_iter().map(|i| format!("\"{}\"", i.as_ref())).collect();
    items.join(", ")
}

pub(super) fn plural<'a>(one: &'a str, many: &'a str, count: usize) -> &'a str {
    if count == 1 { one } else { many }
}

/// `container "a"` or `containers "a", "b"`.
pub(super) fn these(names: &[&str]) -> String {
    format!(
        "{} {}",
        plural("container", "containers", names.len()),
        quoted(names)
    )
}

/// The texts in a list.
pub(super) fn texts<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str)
}

fn app_armor(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let mut setters = pod.setters("/securityContext/appArmorProfile", |profile| {
        let ty = text(profile, "/type");
        let bad = !matches!(ty, "RuntimeDefault" | "Localhost");
        if bad {
            values.insert(ty);
        }
        bad
    });
    let mut values: Vec<String> = values.into_iter().map(str::to_owned).collect();
    let annotations = pod.metadata.get("annotations").and_then(Value::as_object);
    let forbidden: BTreeSet<String> = annotations
        .into_iter()
        .flatten()
        .filter_map(|(key, value)| {
            let value = value.as_str()?;
            let bad = key.starts_with("container.apparmor.security.beta.kubernetes.io/")
                && !(value.is_empty() || value == "runtime/default" || value.starts_with("localhost/"));
            bad.then(|| format!("{key}={}", crate::schema::quote(value)))
        })
        .collect();
    if !forbidden.is_empty() {
        setters.push(plural("annotation", "annotations", forbidden.len()).to_owned());
        values.extend(forbidden);
    }
    if setters.is_empty() {
        return None;
    }
    let reason = plural(
        "forbidden AppArmor profile",
        "forbidden AppArmor profiles",
        values.len(),
    );
    violation(
        reason,
        format!(
            "{} must not set AppArmor profile type to {}",
            setters.join(" and "),
            quoted(values)
        ),
    )
}

const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// The containers that add capabilities beyond these, and which.
pub(super) fn added(pod: &Pod<'_>, allowed: &[&str]) -> Option<String> {
    let mut forbidden = BTreeSet::new();
    let names = pod.names(|container| {
        let bad: Vec<&str> = texts(container, "/securityContext/capabilities/add")
            .filter(|c| !allowed.contains(c))
            .collect();
        let any = !bad.is_empty();
        forbidden.extend(bad);
        any
    });
    (!names.is_empty()).then(|| {
        format!(
            "{} must not include {} in securityContext.capabilities.add",
            these(&names),
            quoted(forbidden)
        )
    })
}

fn capabilities_baseline(pod: &Pod<'_>) -> Option<Violation> {
    violation("non-default capabilities", added(pod, &CAPABILITIES)?)
}

pub(super) fn volumes<'a>(pod: &Pod<'a>) -> impl Iterator<Item = &'a Value> + use<'a> {
    pod.spec
        .get("volumes")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
}

fn privileged(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.names(|c| c.pointer("/securityContext/privileged") == Some(&Value::Bool(true)));
    if names.is_empty() {
        return None;
    }
    violation(
        "privileged",
        format!("{} must not set securityContext.privileged=true", these(&names)),
    )
}

pub(super) fn proc_mount(pod: &Pod<'_>) -> Option<Violation> {
    let mut types = BTreeSet::new();
    let names = pod.names(|container| {
        let ty = container
            .pointer("/securityContext/procMount")
            .and_then(Value::as_str);
        let bad = ty.filter(|ty| *ty != "Default");
        types.extend(bad);
        bad.is_some()
    });
    if names.is_empty() {
        return None;
    }
    violation(
        "procMount",
        format!(
            "{} must not set securityContext.procMount to {}",
            these(&names),
            quoted(types)
        ),
    )
}

fn proc_mount_baseline(pod: &Pod<'_>) -> Option<Violation> {
    if pod.own_users() {
        return None;
    }
    proc_mount(pod)
}

fn selinux(pod: &Pod<'_>) -> Option<Violation> {
    let (mut types, mut user, mut role) = (BTreeSet::new(), false, false);
    let setters = pod.setters("/securityContext/seLinuxOptions", |options| {
        let ty = text(options, "/type");
        let good = matches!(ty, "" | "container_t" | "container_init_t" | "container_kvm_t")
            || (pod.minor >= 31 && ty == "container_engine_t");
        if !good {
            types.insert(ty);
        }
        let sets = |pointer: &str| !text(options, pointer).is_empty();
        user |= sets("/user");
        role |= sets("/role");
        !good || sets("/user") || sets("/role")
    });
    if setters.is_empty() {
        return None;
    }
    let mut what = Vec::new();
    if !types.is_empty() {
        what.push(format!(
            "{} {}",
            plural("type", "types", types.len()),
            quoted(&types)
        ));
    }
    if user {
        what.push("user may not be set".to_owned());
    }
    if role {
        what.push("role may not be set".to_owned());
    }
    violation(
        "seLinuxOptions",
        format!(
            "{} set forbidden securityContext.seLinuxOptions: {}",
            setters.join(" and "),
            what.join("; ")
        ),
    )
}

pub(super) const SECCOMP: &str = "/securityContext/seccompProfile";

fn confined(profile: &Value) -> bool {
    matches!(text(profile, "/type"), "RuntimeDefault" | "Localhost")
}

/// Whoever asks for a profile that is none.
pub(super) fn unconfined(pod: &Pod<'_>) -> Option<Violation> {
    let mut values = BTreeSet::new();
    let setters = pod.setters(SECCOMP, |profile| {
        let bad = !confined(profile);
        if bad {
            values.insert(text(profile, "/type"));
        }
        bad
    });
    if setters.is_empty() {
        return None;
    }
    violation(
        "seccompProfile",
        format!(
            "{} must not set securityContext.seccompProfile.type to {}",
            setters.join(" and "),
            quoted(values)
        ),
    )
}

fn seccomp_baseline(pod: &Pod<'_>) -> Option<Violation> {
    if pod.minor >= 19 {
        return unconfined(pod);
    }
    let mut keys = vec!["seccomp.security.alpha.kubernetes.io/pod".to_owned()];
    keys.extend(pod.containers().map(|c| {
        format!(
            "container.seccomp.security.alpha.kubernetes.io/{}",
            text(c, "/name")
        )
    }));
    let annotations = pod.metadata.get("annotations");
    let forbidden: BTreeSet<String> = keys
        .iter()
        .filter_map(|key| {
            let value = annotations?.get(key)?.as_str()?;
            let bad =
                !matches!(value, "runtime/default" | "docker/default") && !value.starts_with("localhost/");
            bad.then(|| format!("{key}={}", crate::schema::quote(value)))
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    let word = plural("annotation", "annotations", forbidden.len());
    let forbidden: Vec<String> = forbidden.into_iter().collect();
    violation(
        "seccompProfile",
        format!("forbidden {word} {}", forbidden.join(", ")),
    )
}

const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

fn sysctls(pod: &Pod<'_>) -> Option<Violation> {
    let list = pod
        .spec
        .pointer("/securityContext/sysctls")
        .and_then(Value::as_array);
    let forbidden: Vec<&str> = list
        .into_iter()
        .flatten()
        .map(|sysctl| text(sysctl, "/name"))
        .filter(|name| {
            !SYSCTLS
                .iter()
                .any(|(known, since)| known == name && pod.minor >= *since)
        })
        .collect();
    if forbidden.is_empty() {
        return None;
    }
    violation("forbidden sysctls", forbidden.join(", "))
}

fn windows_host_process(pod: &Pod<'_>) -> Option<Violation> {
    let setters = pod.setters("/securityContext/windowsOptions/hostProcess", |value| {
        value == &Value::Bool(true)
    });
    if setters.is_empty() {
        return None;
    }
    violation(
        "hostProcess",
        format!(
            "{} must not set securityContext.windowsOptions.hostProcess=true",
            setters.join(" and ")
        ),
    )
}

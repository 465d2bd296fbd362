//! Nodes, volumes, networks, quotas.

use serde_json::Value;

use super::{
    AGE, Column, FEW, NAME, boolean, few, integer, is_ending, list, number, or_none, selector, size, string,
    text, wide,
};

fn or(text: String, otherwise: &str) -> Value {
    if text.is_empty() {
        otherwise.into()
    } else {
        text.into()
    }
}

/// The first address of a kind.
fn node_address(node: &Value, kind: &str) -> Value {
    let mut addresses = list(node, "/status/addresses").iter();
    let found = addresses.find(|address| string(address, "/type") == kind);
    found.map_or_else(|| "<none>".into(), |address| string(address, "/address").into())
}

fn node_info(node: &Value, name: &str) -> String {
    match string(node, &format!("/status/nodeInfo/{name}")) {
        text if text.is_empty() => "<unknown>".into(),
        text => text,
    }
}

pub(in crate::builtin) const NODE: &[Column] = &[
    NAME,
    text("Status", |o, _| {
        let ready = list(o, "/status/conditions")
            .iter()
            .find(|c| string(c, "/type") == "Ready");
        let mut words = vec![match ready.map(|c| string(c, "/status")).as_deref() {
            Some("True") => "Ready",
            Some(_) => "NotReady",
            None => "Unknown",
        }];
        if o.pointer("/spec/unschedulable").and_then(Value::as_bool) == Some(true) {
            words.push("SchedulingDisabled");
        }
        words.join(",").into()
    }),
    text("Roles", |o, _| {
        let labels = o.pointer("/metadata/labels").and_then(Value::as_object);
        let mut roles: Vec<&str> = labels
            .into_iter()
            .flatten()
            .filter_map(
                |(key, value)| match key.strip_prefix("node-role.kubernetes.io/") {
                    None if key == "kubernetes.io/role" => value.as_str(),
                    role => role,
                },
            )
            .filter(|role| !role.is_empty())
            .collect();
        roles.sort_unstable();
        roles.dedup();
        or_none(roles.join(","))
    }),
    AGE,
    text("Version", |o, _| {
        string(o, "/status/nodeInfo/kubeletVersion").into()
    }),
    wide(text("Internal-IP", |o, _| node_address(o, "InternalIP"))),
    wide(text("External-IP", |o, _| node_address(o, "ExternalIP"))),
    wide(text("OS-Image", |o, _| node_info(o, "osImage").into())),
    wide(text("Kernel-Version", |o, _| {
        let kernel = node_info(o, "kernelVersion");
        match string(o, "/status/nodeInfo/architecture").as_str() {
            "" => kernel.into(),
            architecture => format!("{kernel} ({architecture})").into(),
        }
    })),
    wide(text("Container-Runtime", |o, _| {
        node_info(o, "containerRuntimeVersion").into()
    })),
];
pub(in crate::builtin) const PERSISTENT_VOLUME: &[Column] = &[
    NAME,
    text("Capacity", |o, _| or(string(o, "/spec/capacity/storage"), "0")),
    text("Access Modes", |o, _| access_modes(o)),
    text("Reclaim Policy", |o, _| {
        string(o, "/spec/persistentVolumeReclaimPolicy").into()
    }),
    text("Status", |o, _| phase(o)),
    text("Claim", |o, _| match o.pointer("/spec/claimRef") {
        Some(claim) => format!("{}/{}", string(claim, "/namespace"), string(claim, "/name")).into(),
        None => "".into(),
    }),
    text("StorageClass", |o, _| string(o, "/spec/storageClassName").into()),
    text("VolumeAttributesClass", |o, _| {
        unset(string(o, "/spec/volumeAttributesClassName"))
    }),
    text("Reason", |o, _| string(o, "/status/reason").into()),
    AGE,
    wide(text("VolumeMode", |o, _| unset(string(o, "/spec/volumeMode")))),
];
pub(in crate::builtin) const CLAIM: &[Column] = &[
    NAME,
    text("Status", |o, _| phase(o)),
    text("Volume", |o, _| string(o, "/spec/volumeName").into()),
    text("Capacity", |o, _| string(o, "/status/capacity/storage").into()),
    text("Access Modes", |o, _| {
        if string(o, "/spec/volumeName").is_empty() {
            "".into()
        } else {
            access_modes(o)
        }
    }),
    text("StorageClass", |o, _| string(o, "/spec/storageClassName").into()),
    text("VolumeAttributesClass", |o, _| {
        unset(string(o, "/spec/volumeAttributesClassName"))
    }),
    AGE,
    wide(text("VolumeMode", |o, _| unset(string(o, "/spec/volumeMode")))),
];

/// Where a volume or a claim is in its life; its end comes before all else.
fn phase(object: &Value) -> Value {
    if is_ending(object) {
        return "Terminating".into();
    }
    string(object, "/status/phase").into()
}

fn unset(text: String) -> Value {
    if text.is_empty() {
        "<unset>".into()
    } else {
        text.into()
    }
}

fn access_modes(object: &Value) -> Value {
    let short = |mode: &str| match mode {
        "ReadWriteOnce" => "RWO",
        "ReadOnlyMany" => "ROX",
        "ReadWriteMany" => "RWX",
        _ => "RWOP",
    };
    list(object, "/spec/accessModes")
        .iter()
        .filter_map(Value::as_str)
        .map(short)
        .collect::<Vec<_>>()
        .join(",")
        .into()
}

pub(in crate::builtin) const QUOTA: &[Column] = &[
    NAME,
    text("Request", |o, _| quota(o, false)),
    text("Limit", |o, _| quota(o, true)),
    AGE,
];

fn quota(object: &Value, limits: bool) -> Value {
    let hard = object
        .pointer("/status/hard")
        .and_then(Value::as_object)
        .into_iter()
        .flatten();
    let parts = hard
        .filter(|(name, _)| name.starts_with("limits") == limits)
        .map(|(name, hard)| {
            let used = object
                .pointer("/status/used")
                .and_then(|u| u.get(name))
                .and_then(Value::as_str)
                .unwrap_or("0");
            format!("{name}: {used}/{}", hard.as_str().unwrap_or_default())
        });
    parts.collect::<Vec<_>>().join(", ").into()
}

pub(in crate::builtin) const INGRESS: &[Column] = &[
    NAME,
    text("Class", |o, _| or_none(string(o, "/spec/ingressClassName"))),
    text("Hosts", |o, _| {
        let rules = list(o, "/spec/rules");
        let mut hosts = Vec::new();
        for rule in rules {
            if hosts.len() == FEW {
                let more = rules.len().saturating_sub(FEW);
                return format!("{} + {more} more...", hosts.join(",")).into();
            }
            hosts.extend(Some(string(rule, "/host")).filter(|host| !host.is_empty()));
        }
        few(&hosts, "*")
    }),
    text("Address", |o, _| {
        let points = list(o, "/status/loadBalancer/ingress").iter();
        points
            .map(|p| {
                if string(p, "/ip").is_empty() {
                    string(p, "/hostname")
                } else {
                    string(p, "/ip")
                }
            })
            .collect::<Vec<_>>()
            .join(",")
            .into()
    }),
    text("Ports", |o, _| {
        if size(o, "/spec/tls") > 0 {
            "80, 443".into()
        } else {
            "80".into()
        }
    }),
    AGE,
];
pub(in crate::builtin) const INGRESS_CLASS: &[Column] = &[
    NAME,
    text("Controller", |o, _| string(o, "/spec/controller").into()),
    text("Parameters", |o, _| match o.pointer("/spec/parameters") {
        None => "<none>".into(),
        Some(p) => {
            let group = string(p, "/apiGroup");
            let kind = if group.is_empty() {
                string(p, "/kind")
            } else {
                format!("{}.{group}", string(p, "/kind"))
            };
            format!("{kind}/{}", string(p, "/name")).into()
        }
    }),
    AGE,
];
pub(in crate::builtin) const NETWORK_POLICY: &[Column] = &[
    NAME,
    text("Pod-Selector", |o, _| {
        or_none(selector(o.pointer("/spec/podSelector")))
    }),
    AGE,
];
pub(in crate::builtin) const DISRUPTION_BUDGET: &[Column] = &[
    NAME,
    text("Min Available", |o, _| {
        int_or_string(o.pointer("/spec/minAvailable"))
    }),
    text("Max Unavailable", |o, _| {
        int_or_string(o.pointer("/spec/maxUnavailable"))
    }),
    integer("Allowed Disruptions", |o, _| {
        number(o, "/status/disruptionsAllowed").into()
    }),
    AGE,
];

fn int_or_string(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(text)) => text.as_str().into(),
        Some(Value::Number(n)) => n.to_string().into(),
        _ => "N/A".into(),
    }
}

pub(in crate::builtin) const PRIORITY_CLASS: &[Column] = &[
    NAME,
    integer("Value", |o, _| number(o, "/value").into()),
    boolean("Global-Default", |o, _| {
        o.get("globalDefault")
            .and_then(Value::as_bool)
            .unwrap_or(false)
            .into()
    }),
    AGE,
    text("PreemptionPolicy", |o, _| string(o, "/preemptionPolicy").into()),
];
pub(in crate::builtin) const STORAGE_CLASS: &[Column] = &[
    Column {
        name: "Name",
        ty: "string",
        format: "name",
        priority: 0,
        cell: |o, _| {
            let name = string(o, "/metadata/name");
            let annotations = o.pointer("/metadata/annotations");
            let default = annotations.and_then(|a| a.get("storageclass.kubernetes.io/is-default-class"));
            if default.and_then(Value::as_str) == Some("true") {
                format!("{name} (default)").into()
            } else {
                name.into()
            }
        },
    },
    text("Provisioner", |o, _| string(o, "/provisioner").into()),
    text("ReclaimPolicy", |o, _| or(string(o, "/reclaimPolicy"), "Delete")),
    text("VolumeBindingMode", |o, _| {
        or(string(o, "/volumeBindingMode"), "Immediate")
    }),
    text("AllowVolumeExpansion", |o, _| {
        o.get("allowVolumeExpansion")
            .and_then(Value::as_bool)
            .unwrap_or(false)
            .into()
    }),
    AGE,
];

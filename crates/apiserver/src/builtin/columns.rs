//! What `kubectl get` prints for the built-in kinds.

use jiff::Timestamp;
use serde_json::Value;

/// One column of a table.
#[derive(Debug)]
pub struct Column {
    /// The heading.
    pub name: &'static str,
    /// The OpenAPI type of the cells.
    pub ty: &'static str,
    /// The OpenAPI format of the cells.
    pub format: &'static str,
    /// Zero for columns that are always printed.
    pub priority: i64,
    /// The cell of an object at a time.
    pub cell: fn(&Value, Timestamp) -> Value,
}

const fn text(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column {
        name,
        ty: "string",
        format: "",
        priority: 0,
        cell,
    }
}

const fn integer(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column {
        name,
        ty: "integer",
        format: "",
        priority: 0,
        cell,
    }
}

const fn boolean(name: &'static str, cell: fn(&Value, Timestamp) -> Value) -> Column {
    Column {
        name,
        ty: "boolean",
        format: "",
        priority: 0,
        cell,
    }
}

const fn wide(mut column: Column) -> Column {
    column.priority = 1;
    column
}

fn string(object: &Value, pointer: &str) -> String {
    object
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
        .to_owned()
}

fn or_none(text: String) -> Value {
    Value::from(if text.is_empty() {
        "<none>".to_owned()
    } else {
        text
    })
}

fn number(object: &Value, pointer: &str) -> i64 {
    object
        .pointer(pointer)
        .and_then(Value::as_i64)
        .unwrap_or_default()
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object
        .pointer(pointer)
        .and_then(Value::as_array)
        .map(Vec::as_slice)
        .unwrap_or_default()
}

fn size(object: &Value, pointer: &str) -> usize {
    match object.pointer(pointer) {
        Some(Value::Object(map)) => map.len(),
        Some(Value::Array(list)) => list.len(),
        _ => 0,
    }
}

/// The time since a timestamp, as short as `kubectl` prints it.
pub fn age(since: Option<&str>, now: Timestamp) -> String {
    let Some(then) = since.and_then(|s| s.parse::<Timestamp>().ok()) else {
        return "<unknown>".into();
    };
    human(now.as_second().saturating_sub(then.as_second()))
}

fn human(seconds: i64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |large: i64, unit: char, small: i64, small_unit: char| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        i64::MIN..=-2 => "<invalid>".into(),
        -1..=0 => "0s".into(),
        1..120 => format!("{seconds}s"),
        120..600 => two(minutes, 'm', seconds % 60, 's'),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, 'h', minutes % 60, 'm'),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, 'd', hours % 24, 'h'),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, 'y', days % 365, 'd'),
        _ => format!("{}y", days / 365),
    }
}

fn creation_age(object: &Value, now: Timestamp) -> Value {
    age(
        object
            .pointer("/metadata/creationTimestamp")
            .and_then(Value::as_str),
        now,
    )
    .into()
}

/// The name.
pub(super) const NAME: Column = Column {
    name: "Name",
    ty: "string",
    format: "name",
    priority: 0,
    cell: |o, _| string(o, "/metadata/name").into(),
};
/// The time since creation.
pub(super) const AGE: Column = text("Age", creation_age);

const CONTAINERS: Column = wide(text("Containers", |o, _| {
    let names: Vec<String> = list(o, "/spec/template/spec/containers")
        .iter()
        .map(|c| string(c, "/name"))
        .collect();
    names.join(",").into()
}));
const IMAGES: Column = wide(text("Images", |o, _| {
    let names: Vec<String> = list(o, "/spec/template/spec/containers")
        .iter()
        .map(|c| string(c, "/image"))
        .collect();
    names.join(",").into()
}));
const SELECTOR: Column = wide(text("Selector", |o, _| {
    or_none(selector(o.pointer("/spec/selector")))
}));

fn labels(map: Option<&Value>) -> String {
    let pairs = map.and_then(Value::as_object).into_iter().flatten();
    pairs
        .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
        .collect::<Vec<_>>()
        .join(",")
}

fn selector(selector: Option<&Value>) -> String {
    let mut parts = Vec::new();
    let simple = labels(selector.and_then(|s| s.get("matchLabels")));
    if !simple.is_empty() {
        parts.push(simple);
    }
    for expression in selector.map(|s| list(s, "/matchExpressions")).unwrap_or_default() {
        let key = string(expression, "/key");
        let values: Vec<String> = list(expression, "/values")
            .iter()
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        parts.push(match string(expression, "/operator").as_str() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key,
            _ => format!("!{key}"),
        });
    }
    parts.join(",")
}

pub(super) const CONFIG_MAP: &[Column] = &[
    NAME,
    text("Data", |o, _| (size(o, "/data") + size(o, "/binaryData")).into()),
    AGE,
];
pub(super) const SECRET: &[Column] = &[
    NAME,
    text("Type", |o, _| string(o, "/type").into()),
    text("Data", |o, _| size(o, "/data").into()),
    AGE,
];
pub(super) const NAMESPACE: &[Column] = &[
    NAME,
    text("Status", |o, _| string(o, "/status/phase").into()),
    AGE,
];
pub(super) const LEASE: &[Column] = &[
    NAME,
    text("Holder", |o, _| string(o, "/spec/holderIdentity").into()),
    AGE,
];
pub(super) const WEBHOOKS: &[Column] = &[NAME, integer("Webhooks", |o, _| size(o, "/webhooks").into()), AGE];
pub(super) const POLICY: &[Column] = &[
    NAME,
    integer("Validations", |o, _| size(o, "/spec/validations").into()),
    text("ParamKind", |o, _| match o.pointer("/spec/paramKind") {
        Some(kind) => format!("{}/{}", string(kind, "/apiVersion"), string(kind, "/kind")).into(),
        None => "<unset>".into(),
    }),
    AGE,
];
pub(super) const POLICY_BINDING: &[Column] = &[
    NAME,
    text("PolicyName", |o, _| string(o, "/spec/policyName").into()),
    text("ParamRef", |o, _| match o.pointer("/spec/paramRef") {
        Some(reference) => {
            let namespace = string(reference, "/namespace");
            let namespace = if namespace.is_empty() {
                "*".to_owned()
            } else {
                namespace
            };
            let name = string(reference, "/name");
            if name.is_empty() {
                format!("{namespace}/{}", selector(reference.get("selector"))).into()
            } else {
                format!("{namespace}/{name}").into()
            }
        }
        None => "<unset>".into(),
    }),
    AGE,
];
/// CRDs are printed by the extension server: the creation time as it is.
pub(super) const CRD: &[Column] = &[
    NAME,
    Column {
        name: "Created At",
        ty: "date",
        format: "",
        priority: 0,
        cell: |o, _| string(o, "/metadata/creationTimestamp").into(),
    },
];
/// Roles too are printed by the default printer.
pub(super) const ROLE: &[Column] = &[
    NAME,
    Column {
        name: "Created At",
        ty: "date",
        format: "",
        priority: 0,
        cell: |o, _| string(o, "/metadata/creationTimestamp").into(),
    },
];

fn role(object: &Value, _: Timestamp) -> Value {
    format!(
        "{}/{}",
        string(object, "/roleRef/kind"),
        string(object, "/roleRef/name")
    )
    .into()
}

fn subjects(object: &Value, kind: &str) -> String {
    let subjects = list(object, "/subjects")
        .iter()
        .filter(|s| string(s, "/kind") == kind);
    let names: Vec<String> = subjects
        .map(|s| match (kind, string(s, "/namespace").as_str()) {
            ("ServiceAccount", namespace) if !namespace.is_empty() => {
                format!("{namespace}/{}", string(s, "/name"))
            }
            _ => string(s, "/name"),
        })
        .collect();
    names.join(", ")
}

pub(super) const ROLE_BINDING: &[Column] = &[
    NAME,
    text("Role", role),
    AGE,
    wide(text("Users", |o, _| subjects(o, "User").into())),
    wide(text("Groups", |o, _| subjects(o, "Group").into())),
    wide(text("ServiceAccounts", |o, _| {
        subjects(o, "ServiceAccount").into()
    })),
];
pub(super) const CLUSTER_ROLE_BINDING: &[Column] = ROLE_BINDING;

pub(super) const CSR: &[Column] = &[
    NAME,
    AGE,
    text("SignerName", |o, _| or_none(string(o, "/spec/signerName"))),
    text("Requestor", |o, _| string(o, "/spec/username").into()),
    text("RequestedDuration", |o, _| {
        match o.pointer("/spec/expirationSeconds").and_then(Value::as_i64) {
            Some(seconds) => human(seconds).into(),
            None => "<none>".into(),
        }
    }),
    text("Condition", |o, _| {
        let has = |ty: &str| {
            list(o, "/status/conditions")
                .iter()
                .any(|c| string(c, "/type") == ty)
        };
        let mut words = Vec::new();
        if has("Denied") {
            words.push("Denied");
        } else if has("Approved") {
            words.push("Approved");
        } else if !has("Failed") {
            words.push("Pending");
        }
        if has("Failed") {
            words.push("Failed");
        }
        if !string(o, "/status/certificate").is_empty() {
            words.push("Issued");
        }
        words.join(",").into()
    }),
];

pub(super) const POD: &[Column] = &[
    NAME,
    text("Ready", |o, _| {
        let statuses = list(o, "/status/containerStatuses");
        let ready = statuses
            .iter()
            .filter(|s| s.get("ready").and_then(Value::as_bool) == Some(true))
            .count();
        format!("{ready}/{}", size(o, "/spec/containers")).into()
    }),
    text("Status", |o, _| {
        let reason = string(o, "/status/reason");
        if o.pointer("/metadata/deletionTimestamp").is_some() {
            return "Terminating".into();
        }
        if reason.is_empty() {
            string(o, "/status/phase").into()
        } else {
            reason.into()
        }
    }),
    text("Restarts", |o, _| {
        let statuses = list(o, "/status/containerStatuses");
        statuses
            .iter()
            .map(|s| number(s, "/restartCount"))
            .sum::<i64>()
            .to_string()
            .into()
    }),
    AGE,
    wide(text("IP", |o, _| or_none(string(o, "/status/podIP")))),
    wide(text("Node", |o, _| or_none(string(o, "/spec/nodeName")))),
    wide(text("Nominated Node", |o, _| {
        or_none(string(o, "/status/nominatedNodeName"))
    })),
    wide(text("Readiness Gates", |_, _| "<none>".into())),
];
pub(super) const SERVICE: &[Column] = &[
    NAME,
    text("Type", |o, _| string(o, "/spec/type").into()),
    text("Cluster-IP", |o, _| or_none(string(o, "/spec/clusterIP"))),
    text("External-IP", |o, _| or_none(string(o, "/spec/externalName"))),
    text("Port(s)", |o, _| {
        let ports = list(o, "/spec/ports")
            .iter()
            .map(|p| match number(p, "/nodePort") {
                0 => format!("{}/{}", number(p, "/port"), string(p, "/protocol")),
                node => format!("{}:{node}/{}", number(p, "/port"), string(p, "/protocol")),
            });
        or_none(ports.collect::<Vec<_>>().join(","))
    }),
    AGE,
    wide(text("Selector", |o, _| {
        or_none(labels(o.pointer("/spec/selector")))
    })),
];
pub(super) const ENDPOINTS: &[Column] = &[
    NAME,
    text("Endpoints", |o, _| {
        let mut out = Vec::new();
        for subset in list(o, "/subsets") {
            for address in list(subset, "/addresses") {
                for port in list(subset, "/ports") {
                    out.push(format!("{}:{}", string(address, "/ip"), number(port, "/port")));
                }
            }
        }
        or_none(out.join(","))
    }),
    AGE,
];
pub(super) const ENDPOINT_SLICE: &[Column] = &[
    NAME,
    text("AddressType", |o, _| string(o, "/addressType").into()),
    text("Ports", |o, _| {
        let ports: Vec<String> = list(o, "/ports")
            .iter()
            .map(|p| number(p, "/port").to_string())
            .collect();
        if ports.is_empty() {
            "<unset>".into()
        } else {
            ports.join(",").into()
        }
    }),
    text("Endpoints", |o, _| {
        let all: Vec<String> = list(o, "/endpoints")
            .iter()
            .flat_map(|e| {
                list(e, "/addresses")
                    .iter()
                    .filter_map(Value::as_str)
                    .map(str::to_owned)
            })
            .collect();
        if all.is_empty() {
            "<unset>".into()
        } else {
            all.join(",").into()
        }
    }),
    AGE,
];
pub(super) const EVENT: &[Column] = &[
    text("Last Seen", |o, now| {
        let last = ["/lastTimestamp", "/deprecatedLastTimestamp", "/eventTime"]
            .iter()
            .find_map(|p| o.pointer(p).and_then(Value::as_str));
        age(last, now).into()
    }),
    text("Type", |o, _| string(o, "/type").into()),
    text("Reason", |o, _| string(o, "/reason").into()),
    text("Object", |o, _| {
        let about = o
            .get("involvedObject")
            .or_else(|| o.get("regarding"))
            .unwrap_or(&Value::Null);
        format!(
            "{}/{}",
            string(about, "/kind").to_lowercase(),
            string(about, "/name")
        )
        .into()
    }),
    wide(text("Subobject", |o, _| {
        string(o, "/involvedObject/fieldPath").into()
    })),
    wide(text("Source", |o, _| string(o, "/source/component").into())),
    text("Message", |o, _| {
        let message = string(o, "/message");
        if message.is_empty() {
            string(o, "/note").trim().into()
        } else {
            message.trim().into()
        }
    }),
    wide(text("First Seen", |o, now| {
        age(o.pointer("/firstTimestamp").and_then(Value::as_str), now).into()
    })),
    wide(text("Count", |o, _| {
        number(o, "/count").max(1).to_string().into()
    })),
    Column {
        name: "Name",
        ty: "string",
        format: "name",
        priority: 1,
        cell: |o, _| string(o, "/metadata/name").into(),
    },
];
pub(super) const DEPLOYMENT: &[Column] = &[
    NAME,
    text("Ready", |o, _| {
        format!(
            "{}/{}",
            number(o, "/status/readyReplicas"),
            number(o, "/spec/replicas")
        )
        .into()
    }),
    text("Up-to-date", |o, _| number(o, "/status/updatedReplicas").into()),
    text("Available", |o, _| number(o, "/status/availableReplicas").into()),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const REPLICA_SET: &[Column] = &[
    NAME,
    integer("Desired", |o, _| number(o, "/spec/replicas").into()),
    integer("Current", |o, _| number(o, "/status/replicas").into()),
    integer("Ready", |o, _| number(o, "/status/readyReplicas").into()),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const STATEFUL_SET: &[Column] = &[
    NAME,
    text("Ready", |o, _| {
        format!(
            "{}/{}",
            number(o, "/status/readyReplicas"),
            number(o, "/spec/replicas")
        )
        .into()
    }),
    AGE,
    CONTAINERS,
    IMAGES,
];
pub(super) const DAEMON_SET: &[Column] = &[
    NAME,
    integer("Desired", |o, _| {
        number(o, "/status/desiredNumberScheduled").into()
    }),
    integer("Current", |o, _| {
        number(o, "/status/currentNumberScheduled").into()
    }),
    integer("Ready", |o, _| number(o, "/status/numberReady").into()),
    integer("Up-to-date", |o, _| {
        number(o, "/status/updatedNumberScheduled").into()
    }),
    integer("Available", |o, _| number(o, "/status/numberAvailable").into()),
    text("Node Selector", |o, _| {
        or_none(labels(o.pointer("/spec/template/spec/nodeSelector")))
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const JOB: &[Column] = &[
    NAME,
    text("Status", |o, _| {
        let is = |ty: &str| {
            list(o, "/status/conditions")
                .iter()
                .any(|c| string(c, "/type") == ty && string(c, "/status") == "True")
        };
        let words = ["Complete", "Failed", "Suspended"];
        words.iter().find(|w| is(w)).map_or("Running", |w| *w).into()
    }),
    text("Completions", |o, _| {
        let completions = o
            .pointer("/spec/completions")
            .and_then(Value::as_i64)
            .unwrap_or(1);
        format!("{}/{completions}", number(o, "/status/succeeded")).into()
    }),
    text("Duration", |o, now| {
        match o.pointer("/status/startTime").and_then(Value::as_str) {
            None => "".into(),
            Some(start) => {
                let end = o
                    .pointer("/status/completionTime")
                    .and_then(Value::as_str)
                    .and_then(|t| t.parse().ok());
                age(Some(start), end.unwrap_or(now)).into()
            }
        }
    }),
    AGE,
    CONTAINERS,
    IMAGES,
    SELECTOR,
];
pub(super) const CRON_JOB: &[Column] = &[
    NAME,
    text("Schedule", |o, _| string(o, "/spec/schedule").into()),
    text("Timezone", |o, _| or_none(string(o, "/spec/timeZone"))),
    boolean("Suspend", |o, _| {
        match o.pointer("/spec/suspend").and_then(Value::as_bool) {
            Some(true) => "True".into(),
            _ => "False".into(),
        }
    }),
    integer("Active", |o, _| size(o, "/status/active").into()),
    text("Last Schedule", |o, now| {
        match o.pointer("/status/lastScheduleTime").and_then(Value::as_str) {
            None => "<none>".into(),
            some => age(some, now).into(),
        }
    }),
    AGE,
];
pub(super) const NODE: &[Column] = &[
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
        let labels = o
            .pointer("/metadata/labels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten();
        let roles: Vec<&str> = labels
            .filter_map(|(k, _)| k.strip_prefix("node-role.kubernetes.io/"))
            .collect();
        or_none(roles.join(","))
    }),
    AGE,
    text("Version", |o, _| {
        string(o, "/status/nodeInfo/kubeletVersion").into()
    }),
];
pub(super) const PERSISTENT_VOLUME: &[Column] = &[
    NAME,
    text("Capacity", |o, _| string(o, "/spec/capacity/storage").into()),
    text("Access Modes", |o, _| access_modes(o)),
    text("Reclaim Policy", |o, _| {
        string(o, "/spec/persistentVolumeReclaimPolicy").into()
    }),
    text("Status", |o, _| string(o, "/status/phase").into()),
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
pub(super) const CLAIM: &[Column] = &[
    NAME,
    text("Status", |o, _| string(o, "/status/phase").into()),
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

pub(super) const QUOTA: &[Column] = &[
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

pub(super) const INGRESS: &[Column] = &[
    NAME,
    text("Class", |o, _| or_none(string(o, "/spec/ingressClassName"))),
    text("Hosts", |o, _| {
        let hosts: Vec<String> = list(o, "/spec/rules")
            .iter()
            .map(|r| string(r, "/host"))
            .filter(|h| !h.is_empty())
            .collect();
        if hosts.is_empty() {
            "*".into()
        } else {
            hosts.join(",").into()
        }
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
pub(super) const INGRESS_CLASS: &[Column] = &[
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
pub(super) const NETWORK_POLICY: &[Column] = &[
    NAME,
    text("Pod-Selector", |o, _| {
        or_none(selector(o.pointer("/spec/podSelector")))
    }),
    AGE,
];
pub(super) const DISRUPTION_BUDGET: &[Column] = &[
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

pub(super) const AUTOSCALER: &[Column] = &[
    NAME,
    text("Reference", |o, _| {
        format!(
            "{}/{}",
            string(o, "/spec/scaleTargetRef/kind"),
            string(o, "/spec/scaleTargetRef/name")
        )
        .into()
    }),
    text("Targets", |o, _| {
        if size(o, "/spec/metrics") == 0 {
            "<none>".into()
        } else {
            "<unknown>".into()
        }
    }),
    text("MinPods", |o, _| match o.pointer("/spec/minReplicas") {
        Some(n) => n.to_string().into(),
        None => "<unset>".into(),
    }),
    text("MaxPods", |o, _| number(o, "/spec/maxReplicas").into()),
    text("Replicas", |o, _| number(o, "/status/currentReplicas").into()),
    AGE,
];
pub(super) const PRIORITY_CLASS: &[Column] = &[
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
pub(super) const STORAGE_CLASS: &[Column] = &[
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
    text("ReclaimPolicy", |o, _| string(o, "/reclaimPolicy").into()),
    text("VolumeBindingMode", |o, _| string(o, "/volumeBindingMode").into()),
    text("AllowVolumeExpansion", |o, _| {
        o.get("allowVolumeExpansion")
            .and_then(Value::as_bool)
            .unwrap_or(false)
            .into()
    }),
    AGE,
];

#[cfg(test)]
mod tests {
    #[test]
    fn durations_are_short() {
        let table = [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (125, "2m5s"),
            (3600, "60m"),
            (10_800, "3h"),
            (11_000, "3h3m"),
            (100_000, "27h"),
            (200_000, "2d7h"),
            (86_400 * 30, "30d"),
            (86_400 * 800, "2y70d"),
        ];
        for (seconds, expected) in table {
            assert_eq!(super::human(seconds), expected, "{seconds}");
        }
    }
}

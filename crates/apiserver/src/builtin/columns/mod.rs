//! What `kubectl get` prints for the built-in kinds.

mod cluster;
mod events;
mod pod;
mod policy;
mod scaling;
mod workloads;

use jiff::Timestamp;
use serde_json::Value;

pub(super) use cluster::{
    CLAIM, DISRUPTION_BUDGET, INGRESS, INGRESS_CLASS, NETWORK_POLICY, NODE, PERSISTENT_VOLUME,
    PRIORITY_CLASS, QUOTA, STORAGE_CLASS,
};
pub(super) use events::EVENT;
pub(super) use pod::{POD, conditions};
pub(super) use policy::{
    CLUSTER_ROLE_BINDING, CONFIG_MAP, CRD, CSR, LEASE, NAMESPACE, POLICY, POLICY_BINDING, ROLE, ROLE_BINDING,
    SECRET, WEBHOOKS,
};
pub(super) use scaling::AUTOSCALER;
pub use scaling::SCALE;
pub(super) use workloads::{
    CRON_JOB, DAEMON_SET, DEPLOYMENT, ENDPOINT_SLICE, ENDPOINTS, JOB, REPLICA_SET, REPLICATION_CONTROLLER,
    SERVICE, STATEFUL_SET,
};

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

/// Whether somebody asked for its end.
fn is_ending(object: &Value) -> bool {
    object.pointer("/metadata/deletionTimestamp").is_some()
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
/// The time of creation, where nobody made columns of their own.
pub(super) const CREATED_AT: Column = Column {
    name: "Created At",
    ty: "date",
    format: "",
    priority: 0,
    cell: |o, _| match string(o, "/metadata/creationTimestamp").as_str() {
        "" => "0001-01-01T00:00:00Z".into(),
        time => time.into(),
    },
};
/// The time since creation.
pub(super) const AGE: Column = text("Age", creation_age);

/// How many things of a list are named in a cell.
const FEW: usize = 3;

/// The first of many, and how many more there are.
fn few(all: &[String], none: &str) -> Value {
    match all {
        [] => none.into(),
        [first, second, third, more @ ..] if !more.is_empty() => {
            format!("{first},{second},{third} + {} more...", more.len()).into()
        }
        all => all.join(",").into(),
    }
}

/// One field of each container.
fn containers(object: &Value, pointer: &str, field: &str) -> Value {
    let names = list(object, pointer).iter().map(|c| string(c, field));
    names.collect::<Vec<_>>().join(",").into()
}

const CONTAINERS: Column = wide(text("Containers", |o, _| {
    containers(o, "/spec/template/spec/containers", "/name")
}));
const IMAGES: Column = wide(text("Images", |o, _| {
    containers(o, "/spec/template/spec/containers", "/image")
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

/// A selector as text, its parts in the order of their keys.
fn selector(selector: Option<&Value>) -> String {
    let labels = selector.and_then(|s| s.get("matchLabels")?.as_object());
    let mut parts: Vec<(String, String)> = labels
        .into_iter()
        .flatten()
        .map(|(key, value)| {
            (
                key.clone(),
                format!("{key}={}", value.as_str().unwrap_or_default()),
            )
        })
        .collect();
    for expression in selector.map(|s| list(s, "/matchExpressions")).unwrap_or_default() {
        let key = string(expression, "/key");
        let mut values: Vec<&str> = list(expression, "/values")
            .iter()
            .filter_map(Value::as_str)
            .collect();
        values.sort_unstable();
        let part = match string(expression, "/operator").as_str() {
            "In" => format!("{key} in ({})", values.join(",")),
            "NotIn" => format!("{key} notin ({})", values.join(",")),
            "Exists" => key.clone(),
            _ => format!("!{key}"),
        };
        parts.push((key, part));
    }
    parts.sort_by(|(a, _), (b, _)| a.cmp(b));
    let parts: Vec<String> = parts.into_iter().map(|(_, part)| part).collect();
    parts.join(",")
}

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

//! A HorizontalPodAutoscaler in its older version, `autoscaling/v1`: what that has no fields for is text in annotations.
//!
//! It is stored in the newer one, `v2`.

mod newer;

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::{Kind, Schema};
use crate::ssa::Variant;
pub(crate) use newer::to_newer;

/// The version that it is not stored in, and the one that it is.
pub(crate) const OLDER: &str = "v1";
pub(crate) const NEWER: &str = "v2";

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";
const NOTES: [&str; 6] = [
    METRICS,
    CURRENT,
    CONDITIONS,
    BEHAVIOR,
    "autoscaling.alpha.kubernetes.io/scale-down-tolerance",
    "autoscaling.alpha.kubernetes.io/scale-up-tolerance",
];

fn older() -> Schema {
    super::definition("io.k8s.api.autoscaling.v1.HorizontalPodAutoscaler").unwrap_or_else(Schema::anything)
}

/// Whether a kind is that of the older version.
pub(crate) fn is_older(kind: &Kind) -> bool {
    kind.kind == "HorizontalPodAutoscaler" && kind.version == OLDER
}

/// From `v1` to `v2`, of what has been read as one of `v1` before.
pub(crate) fn to_stored(object: &mut Value) {
    if let Err(why) = to_newer(object, &Value::Null) {
        tracing::debug!(why, "an autoscaler cannot be converted");
    }
    newer_schema().normalize(object);
}

/// The defaults in `v1`. What it says goes the way of everything: through the newer version and back.
pub(super) fn default_older(object: &mut Value) {
    super::defaults::set(object, "/spec/minReplicas", 1);
    to_stored(object);
    to_older(object);
}

/// How those who wrote in the other version see it.
pub(crate) fn variants(version: &str) -> &'static [Variant] {
    static OF_NEWER: LazyLock<[Variant; 1]> = LazyLock::new(|| {
        [Variant {
            api_version: "autoscaling/v1".to_owned(),
            schema: older(),
            to: to_older,
            from: to_stored,
            protected_by: &["", "status"],
        }]
    });
    static OF_OLDER: LazyLock<[Variant; 1]> = LazyLock::new(|| {
        [Variant {
            api_version: "autoscaling/v2".to_owned(),
            schema: newer_schema(),
            to: to_stored,
            from: to_older,
            protected_by: &["", "status"],
        }]
    });
    if version == OLDER {
        OF_OLDER.as_slice()
    } else {
        OF_NEWER.as_slice()
    }
}

fn newer_schema() -> Schema {
    super::definition("io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler").unwrap_or_else(Schema::anything)
}

fn list(value: &Value, pointer: &str) -> Vec<Value> {
    let list = value.pointer(pointer).and_then(Value::as_array);
    list.cloned().unwrap_or_default()
}

/// Fields in the order in which Go writes them, without those that are nothing.
struct Fields(Vec<(&'static str, String)>);

impl Fields {
    fn new() -> Self {
        Self(Vec::new())
    }

    fn add(mut self, name: &'static str, value: Option<&Value>) -> Self {
        if let Some(value) = value.filter(|value| !value.is_null()) {
            self.0.push((name, plain(value)));
        }
        self
    }

    /// A quantity that is zero if it is nothing.
    fn quantity(self, name: &'static str, value: Option<&Value>) -> Self {
        self.add(name, Some(value.unwrap_or(&json!("0"))))
    }

    fn text(mut self, name: &'static str, text: Option<String>) -> Self {
        self.0.extend(text.map(|text| (name, text)));
        self
    }

    fn write(self) -> String {
        let fields = self.0.iter().map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}", fields.collect::<Vec<_>>().join(","))
    }
}

/// JSON as Go writes it into a text: what browsers read as marks is escaped.
fn plain(value: &Value) -> String {
    let text = value.to_string();
    text.replace('<', "\\u003c")
        .replace('>', "\\u003e")
        .replace('&', "\\u0026")
}

fn rows(rows: impl Iterator<Item = String>) -> String {
    format!("[{}]", rows.collect::<Vec<_>>().join(","))
}

fn reference(value: Option<&Value>) -> String {
    let field = |name: &str| value.and_then(|value| value.get(name));
    Fields::new()
        .add("kind", Some(field("kind").unwrap_or(&json!(""))))
        .add("name", Some(field("name").unwrap_or(&json!(""))))
        .add("apiVersion", field("apiVersion"))
        .write()
}

fn selector(value: Option<&Value>) -> Option<String> {
    let value = value.filter(|value| !value.is_null())?;
    let expressions = value.get("matchExpressions").and_then(Value::as_array);
    let expressions = expressions.filter(|list| !list.is_empty()).map(|list| {
        rows(list.iter().map(|one| {
            Fields::new()
                .add("key", one.get("key"))
                .add("operator", one.get("operator"))
                .add("values", one.get("values"))
                .write()
        }))
    });
    let fields = Fields::new().add("matchLabels", value.get("matchLabels"));
    Some(fields.text("matchExpressions", expressions).write())
}

/// The names that one kind of metric has in the older version: of its numbers as they should be, and as they are.
struct Names {
    target: &'static str,
    value: &'static str,
    average: &'static str,
    utilization: &'static str,
}

const WANTED: Names = Names {
    target: "target",
    value: "targetValue",
    average: "targetAverageValue",
    utilization: "targetAverageUtilization",
};
const MEASURED: Names = Names {
    target: "current",
    value: "currentValue",
    average: "currentAverageValue",
    utilization: "currentAverageUtilization",
};

fn metric(metric: &Value, names: &Names) -> String {
    let is_status = names.target == MEASURED.target;
    let mut out = Fields::new().add("type", metric.get("type"));
    for name in ["object", "pods", "resource", "containerResource", "external"] {
        let Some(source) = metric.get(name).filter(|source| source.is_object()) else {
            continue;
        };
        let of = |path: &str| source.pointer(path).filter(|value| !value.is_null());
        let number = |field: &str| of(&format!("/{}/{field}", names.target));
        let (value, average) = (number("value"), number("averageValue"));
        let metric_name = of("/metric/name").cloned().unwrap_or_else(|| json!(""));
        let chosen = selector(of("/metric/selector"));
        let fields = Fields::new();
        let fields = match name {
            "object" => fields
                .text("target", Some(reference(of("/describedObject"))))
                .add("metricName", Some(&metric_name))
                .quantity(names.value, value)
                .text("selector", chosen)
                .add("averageValue", average),
            "pods" => fields
                .add("metricName", Some(&metric_name))
                .quantity(names.average, average)
                .text("selector", chosen),
            "external" => {
                let fields = fields
                    .add("metricName", Some(&metric_name))
                    .text("metricSelector", chosen);
                let fields = if is_status {
                    fields.quantity(names.value, value)
                } else {
                    fields.add(names.value, value)
                };
                fields.add(names.average, average)
            }
            _ => {
                let fields = fields
                    .add("name", of("/name"))
                    .add(names.utilization, number("averageUtilization"));
                let fields = if is_status {
                    fields.quantity(names.average, average)
                } else {
                    fields.add(names.average, average)
                };
                fields.add("container", of("/container"))
            }
        };
        out = out.text(name, Some(fields.write()));
    }
    out.write()
}

/// Written in the form that it has inside of the real server.
fn behavior(value: &Value) -> String {
    let or_null = |value: Option<&Value>| value.map_or_else(|| "null".to_owned(), plain);
    let rules = |name: &str| {
        let rules = value.get(name).filter(|rules| rules.is_object())?;
        let policies = rules.get("policies").and_then(Value::as_array).map(|list| {
            rows(list.iter().map(|one| {
                Fields::new()
                    .add("Type", one.get("type"))
                    .add("Value", one.get("value"))
                    .add("PeriodSeconds", one.get("periodSeconds"))
                    .write()
            }))
        });
        let window = or_null(rules.get("stabilizationWindowSeconds"));
        let fields = Fields::new()
            .text("StabilizationWindowSeconds", Some(window))
            .text("SelectPolicy", Some(or_null(rules.get("selectPolicy"))))
            .text("Policies", policies.or_else(|| Some("null".into())))
            .text("Tolerance", Some(or_null(rules.get("tolerance"))));
        Some(fields.write())
    };
    let null = || Some("null".to_owned());
    Fields::new()
        .text("ScaleUp", rules("scaleUp").or_else(null))
        .text("ScaleDown", rules("scaleDown").or_else(null))
        .write()
}

fn condition(value: &Value) -> String {
    let text = |name: &str| value.get(name).filter(|text| **text != json!(""));
    let time = value
        .get("lastTransitionTime")
        .map_or_else(|| "null".to_owned(), plain);
    Fields::new()
        .add("type", value.get("type"))
        .add("status", value.get("status"))
        .text("lastTransitionTime", Some(time))
        .add("reason", text("reason"))
        .add("message", text("message"))
        .write()
}

/// How much of the processor a metric is about, in percent.
fn processor<'a>(metric: &'a Value, names: &Names) -> Option<&'a Value> {
    let is_so = metric.get("type") == Some(&json!("Resource"))
        && metric.pointer("/resource/name") == Some(&json!("cpu"));
    let pointer = format!("/resource/{}/averageUtilization", names.target);
    metric.pointer(&pointer).filter(|value| is_so && !value.is_null())
}

/// The newer version has fields for what the notes of the older one say, and forgets them.
pub(crate) fn drop_notes(object: &mut Value) {
    let notes = object.pointer("/metadata/annotations").and_then(Value::as_object);
    if notes.is_some_and(|notes| NOTES.iter().any(|name| notes.contains_key(*name))) {
        edit_notes(object, |_| {});
    }
}

fn edit_notes(object: &mut Value, change: impl FnOnce(&mut Map<String, Value>)) {
    crate::api::edit_metadata(object, |metadata| {
        let mut notes = match metadata.remove("annotations") {
            Some(Value::Object(notes)) => notes,
            _ => Map::new(),
        };
        notes.retain(|name, _| !NOTES.contains(&name.as_str()));
        change(&mut notes);
        if !notes.is_empty() {
            metadata.insert("annotations".into(), notes.into());
        }
    });
}

/// From `v2` to `v1`.
pub(crate) fn to_older(object: &mut Value) {
    let (wanted, measured) = (
        list(object, "/spec/metrics"),
        list(object, "/status/currentMetrics"),
    );
    let conditions = list(object, "/status/conditions");
    let others: Vec<&Value> = wanted
        .iter()
        .filter(|one| processor(one, &WANTED).is_none())
        .collect();
    let rules = object.pointer("/spec/behavior").filter(|rules| rules.is_object());
    let rules = rules.map(behavior);
    edit_notes(object, |notes| {
        let mut note = |name: &str, text: String| notes.insert(name.to_owned(), text.into());
        if !others.is_empty() {
            note(METRICS, rows(others.iter().map(|one| metric(one, &WANTED))));
        }
        if !measured.is_empty() {
            note(CURRENT, rows(measured.iter().map(|one| metric(one, &MEASURED))));
        }
        if let Some(rules) = rules {
            note(BEHAVIOR, rules);
        }
        if !conditions.is_empty() {
            note(CONDITIONS, rows(conditions.iter().map(condition)));
        }
    });
    let percent = wanted.iter().find_map(|one| processor(one, &WANTED)).cloned();
    // The last one counts here, for no reason that anybody remembers.
    let now = measured
        .iter()
        .rev()
        .find_map(|one| processor(one, &MEASURED))
        .cloned();
    let mut replace = |part: &str, gone: &[&str], name: &str, value: Option<Value>| {
        if let Some(map) = object.get_mut(part).and_then(Value::as_object_mut) {
            map.retain(|name, _| !gone.contains(&name.as_str()));
            map.extend(value.map(|value| (name.to_owned(), value)));
        }
    };
    replace(
        "spec",
        &["metrics", "behavior"],
        "targetCPUUtilizationPercentage",
        percent,
    );
    replace(
        "status",
        &["currentMetrics", "conditions"],
        "currentCPUUtilizationPercentage",
        now,
    );
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), "autoscaling/v1".into());
    }
    older().normalize(object);
}

//! Scales and what changes them.

use serde_json::Value;

use super::{AGE, Column, NAME, integer, list, number, string, text};

/// What every kind prints of its scale.
pub const SCALE: &[Column] = &[
    text("Name", |o, _| string(o, "/metadata/name").into()),
    integer("Desired", |o, _| number(o, "/spec/replicas").into()),
    integer("Available", |o, _| number(o, "/status/replicas").into()),
    AGE,
];

pub(in crate::builtin) const AUTOSCALER: &[Column] = &[
    NAME,
    text("Reference", |o, _| {
        format!(
            "{}/{}",
            string(o, "/spec/scaleTargetRef/kind"),
            string(o, "/spec/scaleTargetRef/name")
        )
        .into()
    }),
    text("Targets", |o, _| targets(o).into()),
    text("MinPods", |o, _| match o.pointer("/spec/minReplicas") {
        Some(n) => n.to_string().into(),
        None => "<unset>".into(),
    }),
    text("MaxPods", |o, _| number(o, "/spec/maxReplicas").into()),
    text("Replicas", |o, _| number(o, "/status/currentReplicas").into()),
    AGE,
];

/// How many metrics are told one by one.
const TOLD: usize = 2;

/// What is measured, and what it should be.
fn targets(autoscaler: &Value) -> String {
    let metrics = list(autoscaler, "/spec/metrics");
    let measured = list(autoscaler, "/status/currentMetrics");
    if metrics.is_empty() {
        return "<none>".into();
    }
    let told: Vec<String> = metrics
        .iter()
        .zip(measured.iter().map(Some).chain(std::iter::repeat(None)))
        .take(TOLD)
        .map(|(metric, measured)| target(metric, measured))
        .collect();
    let told = told.join(", ");
    match metrics.len() {
        0..=TOLD => told,
        all => format!("{told} + {} more...", all - TOLD),
    }
}

fn target(metric: &Value, measured: Option<&Value>) -> String {
    let (source, of_resource) = match string(metric, "/type").as_str() {
        "Resource" => ("resource", true),
        "ContainerResource" => ("containerResource", true),
        "Pods" => ("pods", false),
        "Object" => ("object", false),
        "External" => ("external", false),
        _ => return "<unknown type>".into(),
    };
    let wanted = |field: &str| metric.pointer(&format!("/{source}/target/{field}"));
    let now = |field: &str| measured.and_then(|m| m.pointer(&format!("/{source}/current/{field}")));
    let quantity = |found: Option<&Value>| found.and_then(Value::as_str).map(str::to_owned);
    let percent = |found: Option<&Value>| found.map(|n| format!("{n}%"));
    let average = quantity(wanted("averageValue"));
    let (now, wanted, unit) = match (average, of_resource) {
        (Some(wanted), _) => {
            let unit = if matches!(source, "object" | "external") {
                " (avg)"
            } else {
                ""
            };
            (quantity(now("averageValue")), wanted, unit)
        }
        (None, true) => {
            let wanted = percent(wanted("averageUtilization")).unwrap_or_else(|| "<auto>".into());
            (percent(now("averageUtilization")), wanted, "")
        }
        (None, false) => (
            quantity(now("value")),
            quantity(wanted("value")).unwrap_or_else(|| "0".into()),
            "",
        ),
    };
    let name = if of_resource {
        format!("{}: ", string(metric, &format!("/{source}/name")))
    } else {
        String::new()
    };
    format!("{name}{}/{wanted}{unit}", now.as_deref().unwrap_or("<unknown>"))
}

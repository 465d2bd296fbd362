//! From `autoscaling/v1` to `v2`.

use serde_json::{Map, Value, json};

use super::{BEHAVIOR, CONDITIONS, CURRENT, MEASURED, METRICS, Names, WANTED, edit_notes, older};

/// A field whatever the case of its name, as Go reads it.
fn field<'a>(value: &'a Value, name: &str) -> Option<&'a Value> {
    let mut fields = value.as_object()?.iter();
    let found = fields.find(|(have, _)| have.eq_ignore_ascii_case(name));
    found.map(|(_, value)| value).filter(|value| !value.is_null())
}

fn object(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let fields = fields.into_iter();
    let there = fields.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(there.collect::<Map<_, _>>())
}

fn processor(names: &Names, percent: &Value) -> Value {
    let mut numbers = json!({ "averageUtilization": percent });
    if names.target == WANTED.target
        && let Some(map) = numbers.as_object_mut()
    {
        map.insert("type".into(), "Utilization".into());
    }
    json!({ "type": "Resource", "resource": { "name": "cpu", names.target: numbers } })
}

fn is_zero(quantity: &Value) -> bool {
    let digits = quantity.as_str().unwrap_or_default();
    !digits.chars().any(|digit| ('1'..='9').contains(&digit))
}

fn metric(metric: &Value, names: &Names) -> Value {
    let wanted = names.target == WANTED.target;
    let mut out = json!({ "type": metric.get("type") });
    for name in ["object", "pods", "resource", "containerResource", "external"] {
        let Some(source) = metric.get(name).filter(|source| source.is_object()) else {
            continue;
        };
        let of = |name: &str| source.get(name).filter(|value| !value.is_null()).cloned();
        let utilization = of(names.utilization);
        let average = of(if name == "object" {
            "averageValue"
        } else {
            names.average
        });
        // One that stands beside an average cannot be left out in the older version.
        let alone = average.is_none();
        let value = of(names.value).filter(|value| !wanted || alone || !is_zero(value));
        let kind = match name {
            "object" if alone => "Value",
            "external" if value.is_some() => "Value",
            "resource" | "containerResource" if utilization.is_some() => "Utilization",
            _ => "AverageValue",
        };
        let numbers = object([
            ("type", wanted.then(|| kind.into())),
            ("value", value),
            ("averageValue", average),
            ("averageUtilization", utilization),
        ]);
        let chosen = of(if name == "external" {
            "metricSelector"
        } else {
            "selector"
        });
        let identity = matches!(name, "object" | "pods" | "external")
            .then(|| object([("name", of("metricName")), ("selector", chosen)]));
        let converted = object([
            ("describedObject", of("target").filter(|_| name == "object")),
            ("metric", identity),
            ("name", of("name")),
            ("container", of("container")),
            (names.target, Some(numbers)),
        ]);
        if let Some(map) = out.as_object_mut() {
            map.insert(name.into(), converted);
        }
    }
    out
}

fn behavior(value: &Value) -> Value {
    let rules = |name: &str| {
        let rules = field(value, name)?;
        let policies = field(rules, "policies").and_then(Value::as_array).map(|list| {
            let policy = |one: &Value| {
                object([
                    ("type", field(one, "type").cloned()),
                    ("value", field(one, "value").cloned()),
                    ("periodSeconds", field(one, "periodSeconds").cloned()),
                ])
            };
            list.iter().map(policy).collect::<Vec<_>>().into()
        });
        Some(object([
            (
                "stabilizationWindowSeconds",
                field(rules, "stabilizationWindowSeconds").cloned(),
            ),
            ("selectPolicy", field(rules, "selectPolicy").cloned()),
            ("policies", policies),
            ("tolerance", field(rules, "tolerance").cloned()),
        ]))
    };
    object([("scaleUp", rules("scaleUp")), ("scaleDown", rules("scaleDown"))])
}

/// Reads the object as one of `v1`, which it may not be.
///
/// The real server writes it over the object as it was `before`: what the older version does not say stays.
pub(crate) fn to_newer(object: &mut Value, before: &Value) -> Result<(), String> {
    if let Some(error) = older().decode_error(object) {
        return Err(error);
    }
    let note = |name: &str| -> Option<Value> {
        let notes = object.pointer("/metadata/annotations")?;
        serde_json::from_str(notes.get(name)?.as_str()?).ok()
    };
    let listed = |name: &str| note(name).and_then(|note| note.as_array().cloned());
    let percent = |pointer: &str, names: &Names| {
        let value = object.pointer(pointer).filter(|value| !value.is_null())?;
        Some(vec![processor(names, value)])
    };
    let had = |pointer: &str| before.pointer(pointer).and_then(Value::as_array).cloned();
    let mut metrics = percent("/spec/targetCPUUtilizationPercentage", &WANTED)
        .or_else(|| had("/spec/metrics"))
        .unwrap_or_default();
    if let Some(others) = listed(METRICS) {
        // It makes room for all that it had, and fills one place of it.
        let room = metrics.len().saturating_sub(1);
        let first = metrics.into_iter().take(1);
        let others = others.iter().map(|one| metric(one, &WANTED)).chain(first);
        let empty = std::iter::repeat_with(|| json!({ "type": "" })).take(room);
        metrics = others.chain(empty).collect();
    }
    if metrics.is_empty() {
        metrics.push(processor(&WANTED, &json!(80)));
    }
    let current = match listed(CURRENT) {
        // They say more than the number beside them.
        Some(list) => Some(list.iter().map(|one| metric(one, &MEASURED)).collect()),
        None => percent("/status/currentCPUUtilizationPercentage", &MEASURED)
            .or_else(|| had("/status/currentMetrics")),
    };
    let rules = note(BEHAVIOR)
        .map(|note| behavior(&note))
        .filter(|rules| *rules != json!({}))
        .or_else(|| before.pointer("/spec/behavior").cloned());
    let conditions = listed(CONDITIONS).or_else(|| had("/status/conditions"));
    edit_notes(object, |_| {});
    let mut put = |part: &str, gone: &str, fields: [(&str, Option<Value>); 2]| {
        if let Some(map) = object.get_mut(part).and_then(Value::as_object_mut) {
            map.remove(gone);
            let fields = fields.into_iter();
            map.extend(fields.filter_map(|(name, value)| Some((name.to_owned(), value?))));
        }
    };
    put(
        "spec",
        "targetCPUUtilizationPercentage",
        [("metrics", Some(metrics.into())), ("behavior", rules)],
    );
    put(
        "status",
        "currentCPUUtilizationPercentage",
        [
            ("currentMetrics", current.map(Value::Array)),
            ("conditions", conditions.map(Value::Array)),
        ],
    );
    if let Some(map) = object.as_object_mut() {
        map.insert("apiVersion".into(), "autoscaling/v2".into());
    }
    Ok(())
}

//! Rules of a schema that could become too expensive are refused when they are written.

use serde_json::Value;

use super::schema::branches;
use super::{list, text};
use crate::schema::{Cause, Expression, Schema, Scope, Size, child, index};

/// What one rule may cost at most, as often as it can run for one object.
const PER_RULE: u64 = 10_000_000;
/// What all rules of a schema may cost together.
const PER_SCHEMA: u64 = 100_000_000;

/// The causes against rules that are too expensive. Where the schema is that of a stored definition, rules that have
/// been accepted are not refused one by one.
pub(super) fn validate(schema: &Value, path: &str, unchanged: bool) -> Vec<Cause> {
    let mut costs = Costs {
        unchanged,
        ..Costs::default()
    };
    costs.node(schema, path, Some(1), true, 0);
    if costs.total > PER_SCHEMA {
        costs.dearest.sort_by(|(_, a), (_, b)| b.cmp(a));
        costs.dearest.truncate(4);
        for (path, _) in &costs.dearest {
            let detail =
                "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema";
            costs.causes.push(Cause::forbidden(path.as_str(), detail));
        }
        let what = "x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema";
        let detail = exceeds(what, costs.total, PER_SCHEMA);
        costs.causes.push(Cause::forbidden(path, &detail));
    }
    costs.causes
}

#[derive(Default)]
struct Costs {
    unchanged: bool,
    total: u64,
    dearest: Vec<(String, u64)>,
    causes: Vec<Cause>,
}

impl Costs {
    /// `times` is how often this part of the schema can occur; none if its parents do not say.
    fn node(&mut self, schema: &Value, path: &str, times: Option<u64>, whole: bool, depth: usize) {
        if depth > 128 {
            return;
        }
        let rules = list(schema, "/x-kubernetes-validations");
        if !rules.is_empty()
            && let Some(size) = Size::of(schema, whole)
            && let Ok(compiled) = Schema::compile(schema)
        {
            let path = child(path, "x-kubernetes-validations");
            for (i, rule) in rules.iter().enumerate() {
                let times = times.unwrap_or_else(|| size.times());
                self.rule(rule, &index(&path, i), times, &compiled, whole, &size);
            }
        }
        let below = times
            .zip(elements(schema))
            .map(|(times, elements)| times.saturating_mul(elements));
        for (path, branch) in branches(schema, path) {
            self.node(branch, &path, below, false, depth + 1);
        }
    }

    fn rule(&mut self, rule: &Value, path: &str, times: u64, schema: &Schema, whole: bool, size: &Size) {
        let optional_old = rule.get("optionalOldSelf") == Some(&Value::Bool(true));
        let scope = Scope::of_schema(schema, whole, optional_old);
        // A message is made once.
        for (name, what, times) in [
            ("rule", "estimated rule cost", times),
            ("messageExpression", "estimated messageExpression cost", 1),
        ] {
            let source = text(rule, &format!("/{name}")).trim();
            let Ok(expression) = Expression::compile(source) else {
                continue;
            };
            if expression.check(&scope).is_err() {
                continue;
            }
            let cost = expression.estimate(&scope, size).saturating_mul(times);
            let path = child(path, name);
            if cost > PER_RULE && !self.unchanged {
                self.causes
                    .push(Cause::forbidden(path.as_str(), &exceeds(what, cost, PER_RULE)));
            }
            self.total = self.total.saturating_add(cost);
            if cost >= PER_SCHEMA / 100 {
                self.dearest.push((path, cost));
            }
        }
    }
}

/// How many values of each child there can be; none if that is not said.
fn elements(schema: &Value) -> Option<u64> {
    let limit = |name: &str| {
        let limit = schema.get(name).and_then(Value::as_i64);
        limit.map(|limit| u64::try_from(limit).unwrap_or(0))
    };
    match text(schema, "/type") {
        "object" if schema.get("additionalProperties").is_some_and(|v| !v.is_null()) => {
            limit("maxProperties")
        }
        "array" => limit("maxItems"),
        _ => Some(1),
    }
}

#[expect(clippy::cast_precision_loss, reason = "for people")]
fn exceeds(what: &str, cost: u64, limit: u64) -> String {
    let factor = cost as f64 / limit as f64;
    let factor = if factor > 100.0 {
        "more than 100x".to_owned()
    } else if factor < 1.5 {
        format!("{factor:.6}x")
    } else {
        format!("{factor:.1}x")
    };
    format!(
        "{what} exceeds budget by factor of {factor} (try simplifying the rule, or adding maxItems, maxProperties, and \
         maxLength where arrays, maps, and strings are declared)"
    )
}

//! Validation of values against a schema, with the real server's messages and its ratcheting:
//! an update is not blamed for what it did not change.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::cause::{Cause, child, go_float, index, quote};
use super::lists::ByKey;
use super::node::{Additional, Arena, Checks, ListType, Node, NodeId, Type};
use super::unchanged::is_unchanged;
use super::{Schema, cel, embedded, formats, lists};

const NOT_CHECKED: &str = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation";

/// What a schema has against an object.
#[derive(Debug, Default)]
pub struct Verdict {
    /// Why it is refused.
    pub causes: Vec<Cause>,
    /// What is wrong with it, but was so before.
    pub tolerated: Vec<Cause>,
}

impl Schema {
    /// Everything that is wrong with `new`. With `old`, unchanged parts are not blamed and transition
    /// rules run.
    pub fn validate(&self, new: &Value, old: Option<&Value>) -> Vec<Cause> {
        self.judge(new, old).causes
    }

    /// The same, with what is only to be told.
    pub fn judge(&self, new: &Value, old: Option<&Value>) -> Verdict {
        let mut causes = self.validate_values(new, old);
        causes.extend(embedded::validate(self, new));
        self.with_rules(causes, new, old)
    }

    /// [`Self::judge`] of an update that came through the status: values of nothing else are looked at.
    pub fn judge_status(&self, new: &Value, old: &Value) -> Verdict {
        let status = self.arena.get(self.root).property("status");
        let mut outcome = Outcome::default();
        if let Some((id, new)) = status.zip(new.get("status")) {
            Walk { arena: &self.arena }.value(new, old.get("status"), id, "", &mut outcome);
        }
        // The status is looked at as an object of its own: only where a problem is found is told from the whole.
        for cause in &mut outcome.causes {
            cause.field = match &*cause.field {
                "" | "<nil>" => "status".to_owned(),
                item if item.starts_with('[') => format!("status{item}"),
                field => child("status", field),
            };
        }
        self.with_rules(outcome.causes, new, Some(old))
    }

    /// Adds to what is wrong with values what lists and rules have against the object.
    fn with_rules(&self, mut causes: Vec<Cause>, new: &Value, old: Option<&Value>) -> Verdict {
        // An object that had duplicates before may have them, and more: its schema was another once.
        let repeated = lists::validate(&self.arena, self.root, new, "");
        let was_good = |old| lists::validate(&self.arena, self.root, old, "").is_empty();
        if !repeated.is_empty() && old.is_none_or(was_good) {
            causes.extend(repeated);
        }
        let mut verdict = Verdict {
            causes,
            ..Verdict::default()
        };
        if cel::has_rules(&self.arena, self.root) {
            let blocking = verdict.causes.iter().any(|c| {
                use super::Reason::{NotSupported, Required, TooLong, TooMany, TypeInvalid};
                matches!(
                    c.reason,
                    NotSupported | Required | TooLong | TooMany | TypeInvalid
                )
            });
            if blocking {
                verdict.causes.push(Cause::invalid("", &Value::Null, NOT_CHECKED));
            } else {
                cel::validate(&self.arena, self.root, new, old, &mut verdict);
            }
        }
        verdict
    }

    /// The OpenAPI part of [`Self::validate`]: types, enums, ranges, formats, junctors.
    pub(crate) fn validate_values(&self, new: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut outcome = Outcome::default();
        Walk { arena: &self.arena }.value(new, old, self.root, "", &mut outcome);
        outcome.causes
    }
}

/// Errors and the number of passed checks; junctors report the branch that came closest.
#[derive(Default)]
struct Outcome {
    causes: Vec<Cause>,
    /// The same: each is said once, and there may be as many as there are values.
    seen: HashSet<Cause>,
    matches: usize,
}

impl Outcome {
    fn add(&mut self, cause: Cause) {
        if self.seen.insert(cause.clone()) {
            self.causes.push(cause);
        }
    }

    fn merge(&mut self, other: Self) {
        self.matches += other.matches;
        for cause in other.causes {
            self.add(cause);
        }
    }
}

struct Walk<'a> {
    arena: &'a Arena,
}

/// The name a field has in a message: the root has none.
fn shown(path: &str) -> &str {
    path.strip_prefix('.').unwrap_or(path)
}

fn json_type(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(n) if n.is_i64() => "integer",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

impl Walk<'_> {
    fn value(&self, new: &Value, old: Option<&Value>, id: NodeId, path: &str, out: &mut Outcome) {
        if old.is_some_and(|old| is_unchanged(self.arena, id, new, old)) {
            return;
        }
        let node = self.arena.get(id);
        types(new, node, path, out);
        let checks = node.checks.as_deref();
        if let Some(allowed) = checks.and_then(|c| c.enumeration.as_deref()) {
            if allowed.iter().any(|a| allows(a, new)) {
                out.matches += 1;
            } else if !(new.is_null() && node.nullable) {
                let texts: Vec<String> = allowed
                    .iter()
                    .map(|a| a.as_str().map_or_else(|| a.to_string(), str::to_owned))
                    .collect();
                out.add(Cause::not_supported(shown(path), new, &texts));
            }
        }
        if new.is_null() {
            return;
        }
        if let Some(checks) = checks {
            self.junctors(new, checks, path, out);
            if let Value::String(text) = new {
                string(text, checks, path, out);
            }
        }
        // Whether a number fits its type is asked also where nothing else is said of it.
        if let Value::Number(n) = new {
            number(n, node, checks.unwrap_or(&Checks::default()), path, out);
        }
        match new {
            Value::Object(map) => self.object(map, old.and_then(Value::as_object), node, path, out),
            Value::Array(list) => self.array(list, old, node, path, out),
            _ => {}
        }
        out.matches += 1;
    }

    fn object(
        &self,
        new: &Map<String, Value>,
        old: Option<&Map<String, Value>>,
        node: &Node,
        path: &str,
        out: &mut Outcome,
    ) {
        if let Some(checks) = node.checks.as_deref() {
            let size = i64::try_from(new.len()).unwrap_or(i64::MAX);
            if let Some(min) = checks.min_properties.filter(|min| size < *min) {
                let detail = format!("{} in body should have at least {min} properties", shown(path));
                out.add(Cause::invalid(shown(path), &size.into(), &detail));
            }
            if let Some(max) = checks.max_properties.filter(|max| size > *max) {
                out.add(Cause::too_many(shown(path), size, max));
            }
        }
        for (name, value) in new {
            let id = match (node.property(name), node.additional) {
                (Some(id), _) | (None, Additional::Schema(id)) => id,
                (None, Additional::Denied) => {
                    let detail = format!("{}.{name} in body is a forbidden property", shown(path));
                    out.add(Cause::invalid(shown(path), &Value::from(name.as_str()), &detail));
                    continue;
                }
                (None, _) => continue,
            };
            let old = old
                .and_then(|o| o.get(name))
                .filter(|_| !(path.is_empty() && (name == "apiVersion" || name == "kind")));
            self.value(value, old, id, &child(path, name), out);
        }
        for name in node
            .checks
            .as_deref()
            .map(|c| c.required.as_ref())
            .unwrap_or_default()
        {
            if new.contains_key(name.as_ref()) {
                out.matches += 1;
            } else {
                out.add(Cause::required(child(shown(path), name), ""));
            }
        }
    }

    fn array(&self, new: &[Value], old: Option<&Value>, node: &Node, path: &str, out: &mut Outcome) {
        if let Some(items) = node.items {
            let old = old
                .and_then(Value::as_array)
                .filter(|_| node.list_type == ListType::Map)
                .map(|old| ByKey::of(old, &node.map_keys));
            for (i, item) in new.iter().enumerate() {
                let old = old.as_ref().and_then(|old| old.find(item));
                self.value(item, old, items, &index(path, i), out);
            }
        }
        let Some(checks) = node.checks.as_deref() else {
            return;
        };
        let size = i64::try_from(new.len()).unwrap_or(i64::MAX);
        if let Some(min) = checks.min_items.filter(|min| size < *min) {
            let detail = format!("{} in body should have at least {min} items", shown(path));
            out.add(Cause::invalid(shown(path), &size.into(), &detail));
        }
        if let Some(max) = checks.max_items.filter(|max| size > *max) {
            out.add(Cause::too_many(shown(path), size, max));
        }
        if checks.unique_items
            && new
                .iter()
                .enumerate()
                .any(|(i, item)| new.iter().skip(i + 1).any(|o| same(o, item)))
        {
            let detail = format!("{} in body shouldn't contain duplicates", shown(path));
            out.add(Cause::invalid(shown(path), &Value::from(""), &detail));
        }
    }

    fn junctors(&self, value: &Value, checks: &Checks, path: &str, out: &mut Outcome) {
        let try_branch = |id: &NodeId| {
            let mut outcome = Outcome::default();
            self.value(value, None, *id, path, &mut outcome);
            outcome
        };
        // What a junctor itself reports has no field.
        let junctor =
            |text: String| Cause::invalid("", &Value::from(""), &format!("{} {text}", quote(shown(path))));
        if !checks.any_of.is_empty() {
            let outcomes: Vec<Outcome> = checks.any_of.iter().map(try_branch).collect();
            if !outcomes.iter().any(|o| o.causes.is_empty()) {
                out.add(junctor("must validate at least one schema (anyOf)".into()));
                out.merge(best(outcomes));
            }
        }
        if !checks.one_of.is_empty() {
            let outcomes: Vec<Outcome> = checks.one_of.iter().map(try_branch).collect();
            match outcomes.iter().filter(|o| o.causes.is_empty()).count() {
                1 => out.matches += 1,
                0 => {
                    out.add(junctor(
                        "must validate one and only one schema (oneOf). Found none valid".into(),
                    ));
                    out.merge(best(outcomes));
                }
                n => out.add(junctor(format!(
                    "must validate one and only one schema (oneOf). Found {n} valid alternatives"
                ))),
            }
        }
        if !checks.all_of.is_empty() {
            let mut valid = 0;
            for outcome in checks.all_of.iter().map(try_branch) {
                valid += usize::from(outcome.causes.is_empty());
                out.merge(outcome);
            }
            if valid != checks.all_of.len() {
                let none = if valid == 0 { ". None validated" } else { "" };
                out.add(junctor(format!("must validate all the schemas (allOf){none}")));
            }
        }
        if let Some(not) = &checks.not
            && try_branch(not).causes.is_empty()
        {
            out.add(junctor("must not validate the schema (not)".into()));
        }
    }
}

/// Beyond this, not every whole number is a float.
const LARGEST_WHOLE: f64 = 9_007_199_254_740_991.0;

fn is_whole(float: f64) -> bool {
    float.fract() == 0.0 && float.abs() <= LARGEST_WHOLE
}

/// Whether one is a multiple of the other, as the real server calculates it: one that is a little more is, too.
fn is_multiple(float: f64, factor: f64) -> bool {
    let times = if factor < 1.0 {
        1.0 / factor * float
    } else {
        float / factor
    };
    let more = (times - times.trunc()) / (times + times.trunc());
    is_whole(times) || ((1.0..=LARGEST_WHOLE).contains(&times) && more < 1e-9)
}

fn types(value: &Value, node: &Node, path: &str, out: &mut Outcome) {
    let found = json_type(value);
    let wanted = if node.int_or_string {
        "integer,string"
    } else {
        node.ty.as_str()
    };
    if wanted.is_empty() {
        return;
    }
    let whole = || value.as_f64().is_some_and(is_whole);
    let format = node.checks.as_deref().and_then(|c| c.format.as_deref());
    let fits = match (value, node.ty) {
        (Value::Null, _) => node.nullable,
        (Value::String(_) | Value::Number(_), _) if node.int_or_string => found != "number" || whole(),
        (Value::Number(_), Type::Number) => true,
        (Value::Number(n), Type::Integer) => n.is_i64() || whole(),
        (Value::String(_) | Value::Array(_), Type::String) if format.is_some_and(formats::known) => true,
        _ => !node.int_or_string && found == wanted,
    };
    if fits {
        out.matches += 1;
    } else {
        let detail = format!(
            "{} in body must be of type {wanted}: {}",
            shown(path),
            quote(found)
        );
        out.add(Cause::type_invalid(shown(path), &Value::from(found), &detail));
    }
}

/// The failed branch with the most passed checks, the first among equals.
fn best(outcomes: Vec<Outcome>) -> Outcome {
    let mut best: Option<Outcome> = None;
    for outcome in outcomes {
        if best.as_ref().is_none_or(|b| outcome.matches > b.matches) {
            best = Some(outcome);
        }
    }
    best.unwrap_or_default()
}

/// Whether a value is the one that is allowed, as the real server sees it: in the type of what is allowed, so that a fraction is
/// cut off where that is an integer.
fn allows(allowed: &Value, value: &Value) -> bool {
    match (allowed, value) {
        (Value::Number(whole), Value::Number(n)) if whole.is_i64() && n.is_f64() => {
            whole.as_f64() == n.as_f64().map(f64::trunc)
        }
        _ => same(allowed, value),
    }
}

/// JSON equality where 1 equals 1.0.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

fn string(text: &str, checks: &Checks, path: &str, out: &mut Outcome) {
    let length = i64::try_from(text.chars().count()).unwrap_or(i64::MAX);
    let name = shown(path);
    if let Some(max) = checks.max_length.filter(|max| length > *max) {
        out.add(Cause::too_long(name, max));
    } else if let Some(min) = checks.min_length.filter(|min| length < *min) {
        let detail = format!("{name} in body should be at least {min} chars long");
        out.add(Cause::invalid(name, &Value::from(text), &detail));
    } else if let Some((pattern, _)) = checks.pattern.as_ref().filter(|(_, regex)| !regex.is_match(text)) {
        let detail = format!("{name} in body should match '{pattern}'");
        out.add(Cause::invalid(name, &Value::from(text), &detail));
    } else {
        out.matches += 1;
    }
    if let Some(format) = checks.format.as_deref().filter(|f| !formats::valid(f, text)) {
        let detail = format!("{name} in body must be of type {format}: {}", quote(text));
        out.add(Cause::type_invalid(name, &Value::from(text), &detail));
    }
}

fn number(n: &serde_json::Number, node: &Node, checks: &Checks, path: &str, out: &mut Outcome) {
    let name = shown(path);
    let value = Value::Number(n.clone());
    let Some(float) = n.as_f64() else { return };
    let written = n
        .as_i64()
        .map_or_else(|| float.to_string(), |whole| whole.to_string());
    let format = checks.format.as_deref().unwrap_or_default();
    let in_range = match (node.ty, format) {
        (Type::Integer, "int32") => written.parse::<i32>().is_ok(),
        (Type::Integer, _) => written.parse::<i64>().is_ok(),
        (Type::Number, "float" | "float32") => written.parse().is_ok_and(f32::is_finite),
        _ => true,
    };
    if !in_range {
        let of = match format {
            "" => "(default format)".to_owned(),
            format => format!("with format {format}"),
        };
        let ty = node.ty.as_str();
        let detail = format!("Checked value must be of type {ty} {of} in {name}");
        out.add(Cause::invalid("", &Value::from(""), &detail));
    }
    // A number that is an integer is held against integers: what the schema says loses its fraction.
    let cut = n.is_i64() && node.ty != Type::Integer;
    let bound = |bound: f64| if cut { bound.trunc() } else { bound };
    if let Some(factor) = checks.multiple_of.map(bound) {
        if factor <= 0.0 {
            let shown = go_float(factor);
            let detail = format!("factor MultipleOf declared for {name} must be positive: {shown}");
            out.add(Cause::invalid(name, &factor.into(), &detail));
        } else if !is_multiple(float, factor) {
            let detail = format!("{name} in body should be a multiple of {}", go_float(factor));
            out.add(Cause::invalid(name, &value, &detail));
        }
    }
    if let Some((min, exclusive)) = checks.minimum.map(|(min, exclusive)| (bound(min), exclusive))
        && (float < min || (exclusive && (float - min).abs() == 0.0))
    {
        let words = if exclusive {
            "greater than"
        } else {
            "greater than or equal to"
        };
        out.add(Cause::invalid(
            name,
            &value,
            &format!("{name} in body should be {words} {}", go_float(min)),
        ));
    }
    if let Some((max, exclusive)) = checks.maximum.map(|(max, exclusive)| (bound(max), exclusive))
        && (float > max || (exclusive && (float - max).abs() == 0.0))
    {
        let words = if exclusive {
            "less than"
        } else {
            "less than or equal to"
        };
        out.add(Cause::invalid(
            name,
            &value,
            &format!("{name} in body should be {words} {}", go_float(max)),
        ));
    }
    out.matches += 1;
}

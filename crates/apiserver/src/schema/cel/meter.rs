//! What it costs to evaluate an expression, in the units of the reference implementation, which limits them.
//!
//! The CEL crate has no meter. This one walks through the expression as an evaluation does, and counts; it never
//! decides anything but when to stop. Most expressions cannot become expensive on small values: [`super::bound`] tells,
//! and then nothing is walked.

use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, operators};
use kube_cel::cel::objects::Key;
use kube_cel::cel::{ExecutionError, Value as Cel};

use super::expression::{self, call};
use super::gathering::{self, Gathered, Kind, Step};
use super::{keyed, named_formats, optional, signatures, type_values};

/// What one evaluation may cost.
pub(crate) const PER_CALL: u64 = 1_000_000;
/// What all rules of one object, or all expressions of one policy, may cost.
pub(crate) const PER_OBJECT: u64 = 10_000_000;
/// What the match conditions of one webhook or policy may cost.
pub(crate) const PER_CONDITIONS: u64 = 2_500_000;
/// What the reference implementation says when an evaluation costs too much.
pub(crate) const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";
/// What it says when everything together costs too much.
pub(crate) const OUT_OF_BUDGET: &str =
    "validation failed due to running out of cost budget, no further validation rules will be run";

pub(super) const LIST: u64 = 10;
pub(super) const MAP: u64 = 30;
pub(super) const AUTHORIZER_CHECK: u64 = 350_000;

/// What an evaluation with these names costs; nothing if more than the limit.
pub(super) fn cost(expression: &IdedExpr, names: &[(String, Cel)], limit: u64) -> Option<u64> {
    let mut meter = Meter { spent: 0, limit };
    match meter.value(expression, &Scope::Root(names)) {
        Err(Stop::Limit) => None,
        Ok(_) | Err(Stop::Failed) => Some(meter.spent),
    }
}

enum Stop {
    Limit,
    /// The evaluation ends in an error; what it cost until then counts.
    Failed,
}

impl From<ExecutionError> for Stop {
    fn from(_: ExecutionError) -> Self {
        Self::Failed
    }
}

/// What names mean.
enum Scope<'a> {
    Root(&'a [(String, Cel)]),
    Inner {
        name: &'a str,
        value: &'a Cel,
        outer: &'a Scope<'a>,
    },
}

impl Scope<'_> {
    fn find(&self, wanted: &str) -> Option<&Cel> {
        match self {
            Self::Root(names) => names
                .iter()
                .rev()
                .find(|(name, _)| name == wanted)
                .map(|(_, value)| value),
            Self::Inner { name, value, .. } if *name == wanted => Some(value),
            Self::Inner { outer, .. } => outer.find(wanted),
        }
    }
}

struct Meter {
    spent: u64,
    limit: u64,
}

impl Meter {
    fn spend(&mut self, cost: u64) -> Result<(), Stop> {
        self.spent = self.spent.saturating_add(cost);
        if self.spent > self.limit {
            Err(Stop::Limit)
        } else {
            Ok(())
        }
    }

    fn value(&mut self, expression: &IdedExpr, scope: &Scope<'_>) -> Result<Cel, Stop> {
        match &expression.expr {
            Expr::Literal(literal) => Ok(literal.to_val().as_ref().try_into()?),
            Expr::Ident(name) => {
                self.spend(1)?;
                let found = scope.find(name).cloned();
                found.or_else(|| type_values::value(name)).ok_or(Stop::Failed)
            }
            Expr::Select(select) => {
                let of = self.value(&select.operand, scope)?;
                self.spend(1)?;
                if !matches!(of, Cel::Map(_)) {
                    return expression::select(&of, select).map_err(|_| Stop::Failed);
                }
                let found = field(&of, &select.field);
                if select.test {
                    return Ok(Cel::Bool(found.is_some()));
                }
                found.ok_or(Stop::Failed)
            }
            Expr::Call(call) => self.call(call, scope),
            Expr::Comprehension(all) => self.comprehension(all, scope),
            Expr::List(list) => {
                let literal = |part: &IdedExpr| matches!(part.expr, Expr::Literal(_));
                // A list of constants is made once, when the expression is compiled.
                if !list.elements.iter().all(literal) {
                    self.spend(LIST)?;
                }
                let mut parts = Vec::new();
                for (at, part) in list.elements.iter().enumerate() {
                    let value = self.value(part, scope)?;
                    let maybe = list.optional_indices.contains(&at);
                    parts.extend(if maybe { held(value) } else { Some(value) });
                }
                Ok(Cel::List(Arc::new(parts)))
            }
            Expr::Map(map) => {
                self.spend(MAP)?;
                let mut entries = keyed::Entries::new();
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        let key = self.value(&entry.key, scope)?;
                        let value = self.value(&entry.value, scope)?;
                        let value = if entry.optional { held(value) } else { Some(value) };
                        keyed::put(&mut entries, key, value)?;
                    }
                }
                Ok(keyed::map(entries))
            }
            Expr::Struct(_) | Expr::Unspecified => Err(Stop::Failed),
        }
    }

    fn comprehension(&mut self, all: &ComprehensionExpr, scope: &Scope<'_>) -> Result<Cel, Stop> {
        let mut gathered = self.value(&all.accu_init, scope)?;
        let range = self.value(&all.iter_range, scope)?;
        let steps = gathering::steps(&range, all.iter_var2.is_some()).ok_or(Stop::Failed)?;
        if let Some(step) = Step::of(all) {
            return self.gather(all, &step, steps, scope);
        }
        for (first, second) in steps {
            let outer = Scope::Inner {
                name: &all.accu_var,
                value: &gathered,
                outer: scope,
            };
            if matches!(self.value(&all.loop_cond, &outer)?, Cel::Bool(false)) {
                break;
            }
            let inner = Scope::Inner {
                name: &all.iter_var,
                value: &first,
                outer: &outer,
            };
            let both = Scope::Inner {
                name: all.iter_var2.as_deref().unwrap_or_default(),
                value: &second,
                outer: &inner,
            };
            gathered = self.value(&all.loop_step, &both)?;
        }
        let outer = Scope::Inner {
            name: &all.accu_var,
            value: &gathered,
            outer: scope,
        };
        self.value(&all.result, &outer)
    }

    /// A loop whose result is not copied at each step, at the price of those that are.
    fn gather(
        &mut self,
        all: &ComprehensionExpr,
        step: &Step<'_>,
        steps: impl Iterator<Item = (Cel, Cel)>,
        scope: &Scope<'_>,
    ) -> Result<Cel, Stop> {
        let mut gathered = Gathered::new(step.kind);
        for (first, second) in steps {
            let inner = Scope::Inner {
                name: &all.iter_var,
                value: &first,
                outer: scope,
            };
            let both = Scope::Inner {
                name: all.iter_var2.as_deref().unwrap_or_default(),
                value: &second,
                outer: &inner,
            };
            let wanted = step
                .filter
                .map_or(Ok(Cel::Bool(true)), |filter| self.value(filter, &both));
            // What was gathered so far is named, whether or not something is added.
            match wanted? {
                Cel::Bool(true) => self.spend(1)?,
                Cel::Bool(false) => {
                    self.spend(1)?;
                    continue;
                }
                _ => return Err(Stop::Failed),
            }
            self.spend(match step.kind {
                // The list of one item to add.
                Kind::Items if !matches!(step.item.expr, Expr::Literal(_)) => LIST,
                Kind::Items | Kind::Maps => 0,
                // The name of the key.
                Kind::Entries => 1,
            })?;
            let item = self.value(step.item, &both)?;
            self.spend(1)?;
            gathered.add(&first, item)?;
        }
        self.spend(1)?;
        Ok(gathered.value())
    }

    fn call(&mut self, called: &CallExpr, scope: &Scope<'_>) -> Result<Cel, Stop> {
        let name = called.func_name.as_str();
        match (name, called.args.as_slice()) {
            (operators::CONDITIONAL, [condition, yes, no]) => {
                return match self.value(condition, scope)? {
                    Cel::Bool(true) => self.value(yes, scope),
                    Cel::Bool(false) => self.value(no, scope),
                    _ => Err(Stop::Failed),
                };
            }
            (operators::LOGICAL_AND, [a, b]) => return self.either(a, b, false, scope),
            (operators::LOGICAL_OR, [a, b]) => return self.either(a, b, true, scope),
            (operators::NOT_STRICTLY_FALSE, [of]) => {
                self.spend(1)?;
                return match self.value(of, scope) {
                    Err(Stop::Limit) => Err(Stop::Limit),
                    Ok(Cel::Bool(false)) => Ok(Cel::Bool(false)),
                    _ => Ok(Cel::Bool(true)),
                };
            }
            _ => {}
        }
        let target = match called.target.as_deref() {
            // `math.abs(x)`: the target is no value.
            Some(IdedExpr {
                expr: Expr::Ident(prefix),
                ..
            }) if scope.find(prefix).is_none() && signatures::known(&format!("{prefix}.{name}")) => None,
            Some(target) => Some(self.value(target, scope)?),
            None => None,
        };
        let of_value = target.is_some();
        let mut values: Vec<Cel> = target.into_iter().collect();
        for argument in &called.args {
            values.push(self.value(argument, scope)?);
        }
        let before = price(name, &values);
        self.spend(before)?;
        let value = apply(called, of_value, &values)?;
        if name == "join" {
            self.spend(tenths(2 * size(&value)))?;
        }
        Ok(value)
    }

    /// `&&` and `||`: one side may decide alone, even where the other fails.
    fn either(&mut self, a: &IdedExpr, b: &IdedExpr, decides: bool, scope: &Scope<'_>) -> Result<Cel, Stop> {
        let mut open = None;
        for side in [a, b] {
            match self.value(side, scope) {
                Err(Stop::Limit) => return Err(Stop::Limit),
                Ok(Cel::Bool(value)) if value == decides => return Ok(Cel::Bool(decides)),
                Ok(Cel::Bool(_)) => {}
                Ok(_) | Err(Stop::Failed) => open = Some(Stop::Failed),
            }
        }
        open.map_or(Ok(Cel::Bool(!decides)), Err)
    }
}

/// What becomes of `?` in a list or a map.
fn held(value: Cel) -> Option<Cel> {
    match optional::maybe(&value) {
        Some(optional) => optional.value().cloned(),
        None => Some(value),
    }
}

fn field(of: &Cel, name: &str) -> Option<Cel> {
    match of {
        Cel::Map(map) => map.map.get(&Key::String(Arc::new(name.to_owned()))).cloned(),
        _ => None,
    }
}

/// The value of a call whose arguments are known.
fn apply(called: &CallExpr, of_value: bool, values: &[Cel]) -> Result<Cel, Stop> {
    let name = called.func_name.as_str();
    match (name, values) {
        (operators::EQUALS, [a, b]) => return Ok(Cel::Bool(a == b)),
        (operators::NOT_EQUALS, [a, b]) => return Ok(Cel::Bool(a != b)),
        (operators::LOGICAL_NOT, [Cel::Bool(value)]) => return Ok(Cel::Bool(!value)),
        (operators::IN, [item, Cel::List(list)]) => return Ok(Cel::Bool(list.contains(item))),
        (operators::INDEX, [Cel::List(list), Cel::Int(at)]) => {
            let item = usize::try_from(*at).ok().and_then(|at| list.get(at));
            return item.cloned().ok_or(Stop::Failed);
        }
        (operators::INDEX, [map @ Cel::Map(_), Cel::String(name)]) => {
            return field(map, name).ok_or(Stop::Failed);
        }
        _ => {}
    }
    call(called, of_value, values).map_err(|_| Stop::Failed)
}

/// What a call costs besides its arguments.
fn price(name: &str, values: &[Cel]) -> u64 {
    let length = |at: usize| values.get(at).map_or(0, size);
    match name {
        "check" => AUTHORIZER_CHECK,
        "fieldSelector" | "labelSelector" => {
            let requirements = length(1).div_ceil(2);
            LIST + tenths(length(1)) + requirements * (LIST + 40)
        }
        "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" => values.first().map_or(0, traversal),
        "startsWith"
        | "endsWith"
        | "url"
        | "lowerAscii"
        | "upperAscii"
        | "substring"
        | "trim"
        | "jsonpatch.escapeKey"
        | "escapeKey"
        | "cidr"
        | "isIP"
        | "isCIDR"
        | "ip"
        | "quantity"
        | "isQuantity"
        | "semver"
        | "isSemver"
        | "bytes"
        | "quote"
        | "format" => tenths(length(0)),
        "replace" | "split" | "isCanonical" => tenths(2 * length(0)),
        // Paid when its result is known.
        "join" => 0,
        "matches" | "find" | "findAll" => tenths(1 + length(0)) * length(1).div_ceil(4),
        "contains" => match values {
            [Cel::String(_), ..] => tenths(length(0)) * tenths(length(1)),
            _ => 1,
        },
        "validate" => tenths(1 + length(1)) * values.first().map_or(0, named_formats::length).div_ceil(4),
        operators::IN => match values.get(1) {
            Some(list @ Cel::List(_)) => size(list),
            _ => 1,
        },
        operators::EQUALS | operators::NOT_EQUALS => tenths(length(0).min(length(1))),
        operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS => {
            match values {
                [Cel::String(_) | Cel::Bytes(_), _] => tenths(length(0).min(length(1))),
                _ => 1,
            }
        }
        operators::ADD => match values {
            [Cel::String(_) | Cel::Bytes(_), _] => tenths(length(0) + length(1)),
            _ => 1,
        },
        _ => 1,
    }
}

/// A tenth, rounded up: what reading a text costs.
fn tenths(length: u64) -> u64 {
    length.div_ceil(10)
}

pub(super) fn len(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}

fn size(value: &Cel) -> u64 {
    match value {
        Cel::String(text) => len(text.chars().count()),
        Cel::Bytes(bytes) => len(bytes.len()),
        Cel::List(list) => len(list.len()),
        Cel::Map(map) => len(map.map.len()),
        other => keyed::entries(other).map_or(1, |entries| len(entries.len())),
    }
}

fn traversal(value: &Cel) -> u64 {
    match value {
        Cel::String(text) => len(text.chars().count()) / 10,
        Cel::Bytes(bytes) => len(bytes.len()) / 10,
        Cel::List(list) => list.iter().map(traversal).sum(),
        other => keyed::entries(other).map_or(1, |entries| {
            let each = entries
                .iter()
                .map(|(key, value)| traversal(key) + traversal(value));
            each.sum()
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{Activation, Expression, bound::Extent};
    use super::*;

    fn measured(rule: &str, value: &Value) -> (Option<u64>, u64) {
        let mut activation = Activation::default();
        activation.bind("self", value);
        let expression = Expression::compile(rule).unwrap();
        (
            expression.cost(&activation, PER_CALL),
            expression.bound().with(Extent::of(value)),
        )
    }

    /// What the reference implementation's own cost tests say of the same expressions.
    #[test]
    fn steps_cost_what_they_cost_there() {
        let value = json!({"n": 5, "s": "x".repeat(95), "l": [1, 2, 3], "e": "", "m": {"a": "b"}});
        for (rule, cost) in [
            ("true", 0),
            ("self.n == 5", 3),
            ("has(self.n)", 2),
            ("self.s == self.s", 14),
            ("self.s.startsWith('x')", 12),
            ("self.s.contains('xxxxxxxxxxx')", 22),
            ("self.s.matches('xxxx+')", 22),
            ("2 in self.l", 5),
            ("self.n in [1, 2, 5]", 5),
            // Two to read the list; per item two for the condition, one for what was gathered, two for the comparison;
            // one for the result.
            ("self.l.all(x, x > 0)", 2 + 3 * (2 + 1 + 2) + 1),
            // The condition is asked once more before the third.
            ("self.l.exists(x, x == 2)", 2 + 2 * (3 + 1 + 2) + 3 + 1),
            ("self.m.all(k, k == 'a')", 2 + (2 + 1 + 2) + 1),
            ("self.n == 5 || self.l.all(x, x > 0)", 3),
            ("[self.n, 1].size() == 2", 10 + 2 + 1 + 1),
            ("self.s.lowerAscii() == 'x'", 2 + 10 + 1),
            ("self.nothing == 1", 2),
            // What was not counted on the way would be free afterwards.
            ("type(self.n) == int && self.n == 5", 3 + 1 + 1 + 3),
            ("self.?m.a.orValue('') == 'b' && self.n == 5", 2 + 1 + 1 + 1 + 3),
            ("[?self.?n].all(x, x == 5)", 10 + 2 + (2 + 1 + 2) + 1),
        ] {
            let (found, bound) = measured(rule, &value);
            assert_eq!(found, Some(cost), "{rule}");
            assert!(bound >= cost, "{rule}: {bound} < {cost}");
        }
    }

    #[test]
    fn loops_within_loops_are_stopped() {
        let list: Vec<i64> = (0..300).collect();
        let value = json!({"l": list});
        let rule = "self.l.all(a, self.l.all(b, self.l.all(c, a + b + c >= 0)))";
        assert_eq!(measured(rule, &value).0, None);
        // Errors do not hide the limit.
        let rule = format!("{rule} || true");
        assert_eq!(measured(&rule, &value).0, None);
    }
}

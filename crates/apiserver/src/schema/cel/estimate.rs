//! What an expression may cost at most, told from the sizes that a schema allows.
//!
//! This follows the reference implementation step by step, where it is odd too: the outcome decides which
//! definitions are accepted. [`super::bound`] is ours and cruder, it only tells when nothing need be measured.

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};

use super::check::Scope;
use super::prices::{self, Called};
use super::sizes::Size;
use super::types::Ty;
use super::{Expression, macros, signatures};

/// From the least to the most; costs and sizes alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) min: u64,
    pub(super) max: u64,
}

impl Range {
    pub(super) const UNKNOWN: Self = Self {
        min: 0,
        max: u64::MAX,
    };
    /// What a union begins with.
    const NONE: Self = Self {
        min: u64::MAX,
        max: 0,
    };

    pub(super) const fn fixed(size: u64) -> Self {
        Self { min: size, max: size }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_add(other.min),
            max: self.max.saturating_add(other.max),
        }
    }

    pub(super) fn times(self, other: Self) -> Self {
        Self {
            min: self.min.saturating_mul(other.min),
            max: self.max.saturating_mul(other.max),
        }
    }

    pub(super) fn factor(self, factor: f64) -> Self {
        Self {
            min: scaled(self.min, factor),
            max: scaled(self.max, factor),
        }
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self {
            min: self.min.min(other.min),
            max: self.max.max(other.max),
        }
    }
}

/// A product, rounded up.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is reckoned in floating point there, too, and `as` stops at the largest number"
)]
fn scaled(size: u64, factor: f64) -> u64 {
    (size as f64 * factor).ceil() as u64
}

/// The sizes of keys (or places) and values of a list or map that an expression makes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    list: bool,
    key: Range,
    value: Range,
}

impl Entry {
    fn or(self, other: Self) -> Self {
        Self {
            list: self.list,
            key: self.key.or(other.key),
            value: self.value.or(other.value),
        }
    }
}

/// What is known about a part of an expression.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    pub(super) cost: Range,
    /// Where its value comes from, beginning with a variable; empty if it is made here.
    pub(super) path: Vec<String>,
    pub(super) size: Option<Range>,
    entry: Option<Entry>,
    pub(super) ty: Ty,
    pub(super) expr: &'a Expr,
}

impl Part<'_> {
    pub(super) fn size_or_unknown(&self) -> Range {
        self.size.unwrap_or(Range::UNKNOWN)
    }
}

/// A name within a loop.
struct Local<'a> {
    name: &'a str,
    path: Vec<String>,
    size: Option<Range>,
    entry: Option<Entry>,
}

impl Expression {
    /// What an evaluation costs at most, if values are as large as the schema allows.
    pub(crate) fn estimate(&self, scope: &Scope<'_>, size: &Size) -> u64 {
        self.walk(|program| {
            let mut estimate = Estimate {
                size,
                locals: Vec::new(),
            };
            Ok(estimate.part(program, scope).cost.max)
        })
        .unwrap_or(0)
    }
}

pub(super) struct Estimate<'a> {
    size: &'a Size,
    locals: Vec<Local<'a>>,
}

impl<'a> Estimate<'a> {
    fn local(&self, name: &str) -> Option<&Local<'a>> {
        self.locals.iter().rev().find(|local| local.name == name)
    }

    /// The size that the schema says. Whatever variable a path begins with, it is the one that the rule is about.
    pub(super) fn of_path(&self, path: &[String]) -> Option<Range> {
        let (_, below) = path.split_first()?;
        let max = self.size.at(below)?;
        Some(Range { min: 0, max })
    }

    fn part(&mut self, expression: &'a IdedExpr, scope: &Scope<'_>) -> Part<'a> {
        let expr = &expression.expr;
        let mut part = Part {
            cost: Range::fixed(0),
            path: Vec::new(),
            size: None,
            entry: None,
            ty: scope.type_of(expression).unwrap_or(Ty::Dyn),
            expr,
        };
        match expr {
            Expr::Literal(literal) => part.size = Some(Range::fixed(literal_size(literal))),
            Expr::Ident(name) => {
                part.cost = Range::fixed(1);
                let local = self.local(name);
                part.path = local.map_or_else(|| vec![name.clone()], |local| local.path.clone());
                let own = local.and_then(|local| local.size);
                part.entry = local.and_then(|local| local.entry);
                part.size = self.of_path(&part.path).or_else(|| type_size(&part.ty)).or(own);
            }
            Expr::Select(select) => {
                let of = self.part(&select.operand, scope);
                part.cost = of.cost;
                if !select.test {
                    if matches!(of.ty, Ty::Map(_) | Ty::Keyed(..) | Ty::Object(..) | Ty::Record(_)) {
                        part.cost = part.cost.plus(Range::fixed(1));
                    }
                    part.path = of.path;
                    part.path.push(select.field.clone());
                }
                part.size = self.of_path(&part.path).or_else(|| type_size(&part.ty));
            }
            Expr::Call(call) => self.call(call, scope, &mut part),
            Expr::List(list) => {
                let mut items = if list.elements.is_empty() {
                    Range::fixed(0)
                } else {
                    Range::NONE
                };
                for element in &list.elements {
                    let element = self.part(element, scope);
                    part.cost = part.cost.plus(element.cost);
                    items = items.or(element.size_or_unknown());
                }
                part.cost = part.cost.plus(Range::fixed(super::meter::LIST));
                part.size = Some(Range::fixed(super::meter::len(list.elements.len())));
                part.entry = Some(Entry {
                    list: true,
                    key: Range::fixed(1),
                    value: items,
                });
            }
            Expr::Map(map) => {
                let start = if map.entries.is_empty() {
                    Range::fixed(0)
                } else {
                    Range::NONE
                };
                let (mut keys, mut values) = (start, start);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        let (key, value) = (self.part(&entry.key, scope), self.part(&entry.value, scope));
                        part.cost = part.cost.plus(key.cost).plus(value.cost);
                        keys = keys.or(key.size_or_unknown());
                        values = values.or(value.size_or_unknown());
                    }
                }
                part.cost = part.cost.plus(Range::fixed(super::meter::MAP));
                part.size = Some(Range::fixed(super::meter::len(map.entries.len())));
                part.entry = Some(Entry {
                    list: false,
                    key: keys,
                    value: values,
                });
            }
            Expr::Comprehension(all) => self.comprehension(all, scope, &mut part),
            Expr::Struct(_) | Expr::Unspecified => {}
        }
        part
    }

    /// A name for what is looped over, with the size of its keys or values.
    fn push_item(&mut self, name: &'a str, range: &Part<'_>, keys: Option<bool>) {
        let list = range
            .entry
            .map_or_else(|| matches!(range.ty, Ty::List(_)), |entry| entry.list);
        let key = keys.unwrap_or(!list);
        let step = match (key, list) {
            (true, true) => "@indices",
            (true, false) => "@keys",
            (false, true) => "@items",
            (false, false) => "@values",
        };
        let mut path = range.path.clone();
        path.push(step.to_owned());
        let size = range.entry.map(|entry| if key { entry.key } else { entry.value });
        self.locals.push(Local {
            name,
            path,
            size,
            entry: None,
        });
    }

    fn comprehension(&mut self, all: &'a ComprehensionExpr, scope: &Scope<'_>, part: &mut Part<'a>) {
        let range = self.part(&all.iter_range, scope);
        let init = self.part(&all.accu_init, scope);
        part.cost = range.cost.plus(init.cost);
        let before = self.locals.len();
        self.locals.push(Local {
            name: &all.accu_var,
            path: init.path.clone(),
            size: init.size,
            entry: init.entry,
        });
        let inner = scope.inside(all);
        if binds(all) {
            let result = self.part(&all.result, &inner);
            self.locals.truncate(before);
            part.cost = part.cost.plus(result.cost);
            part.size = result.size;
            part.entry = result.entry;
            return;
        }
        match &all.iter_var2 {
            Some(second) => {
                self.push_item(&all.iter_var, &range, Some(true));
                self.push_item(second, &range, Some(false));
            }
            None => self.push_item(&all.iter_var, &range, None),
        }
        let condition = self.part(&all.loop_cond, &inner);
        let step = self.part(&all.loop_step, &inner);
        self.locals.truncate(before + 1);
        let result = self.part(&all.result, &inner);
        self.locals.truncate(before);
        let count = range.size_or_unknown();
        let rounds = count.times(step.cost.plus(condition.cost));
        part.cost = part.cost.plus(result.cost).plus(rounds);
        match &all.accu_init.expr {
            Expr::Literal(_) => part.size = init.size,
            Expr::List(_) | Expr::Map(_) => {
                part.size = Some(count);
                part.entry = step.entry;
            }
            _ => part.size = type_size(&part.ty),
        }
    }

    fn call(&mut self, call: &'a CallExpr, scope: &Scope<'_>, part: &mut Part<'a>) {
        if let (macros::FIRST, [of]) = (call.func_name.as_str(), call.args.as_slice())
            && let Expr::Comprehension(all) = &of.expr
        {
            self.optional(all, scope, part);
            return;
        }
        let mixing = (call.func_name == "format").then(|| scope.mixing());
        let scope = mixing.as_ref().unwrap_or(scope);
        let arguments: Vec<Part<'a>> = call.args.iter().map(|arg| self.part(arg, scope)).collect();
        if let ("dyn", [of]) = (call.func_name.as_str(), arguments.as_slice()) {
            part.cost = Range::fixed(1).plus(of.cost);
            part.size = of.size;
            part.entry = of.entry;
            return;
        }
        let mut name = call.func_name.clone();
        let mut target = None;
        match call.target.as_deref() {
            // `ip.isCanonical(x)`: the target is no value.
            Some(IdedExpr {
                expr: Expr::Ident(prefix),
                ..
            }) if !scope.names(prefix) && signatures::known(&format!("{prefix}.{name}")) => {
                name = format!("{prefix}.{name}");
            }
            Some(of) => target = Some(self.part(of, scope)),
            None => {}
        }
        let called = Called {
            name: &name,
            target: target.as_ref(),
            arguments: &arguments,
        };
        let priced = prices::price(self, &called);
        part.cost = target
            .as_ref()
            .map_or(Range::fixed(0), |target| target.cost)
            .plus(priced.cost);
        part.size = priced.size;
        match (name.as_str(), arguments.as_slice()) {
            (operators::INDEX, [of, _]) if !matches!(of.ty, Ty::Optional(_)) => {
                let list = matches!(of.ty, Ty::List(_));
                part.size = of.entry.map(|entry| entry.value);
                part.path.clone_from(&of.path);
                part.path.push(if list { "@items" } else { "@values" }.to_owned());
            }
            (operators::CONDITIONAL, [_, yes, no]) => {
                part.entry = yes.entry.zip(no.entry).map(|(yes, no)| yes.or(no));
            }
            (operators::ADD, [a, b]) => {
                part.entry = a.entry.zip(b.entry).map(|(a, b)| b.or(a));
            }
            _ => {}
        }
        part.size = part
            .size
            .or_else(|| self.of_path(&part.path))
            .or_else(|| type_size(&part.ty));
    }

    /// `a.optMap(x, f)`: there it is `a.hasValue() ? optional.of(f) : optional.none()`, with a name for `a.value()`.
    fn optional(&mut self, all: &'a ComprehensionExpr, scope: &Scope<'_>, part: &mut Part<'a>) {
        let (Expr::Call(items), Expr::Call(step)) = (&all.iter_range.expr, &all.loop_step.expr) else {
            return;
        };
        let (Some(of), Some(more)) = (items.args.first(), step.args.last()) else {
            return;
        };
        let of = self.part(of, scope);
        let (body, wrap) = match &more.expr {
            Expr::List(list) => (list.elements.first(), 1),
            Expr::Call(call) => (call.args.first(), 0),
            _ => (None, 0),
        };
        let inner = scope.inside(all);
        let held = match &of.ty {
            Ty::Optional(of) => type_size(of),
            _ => None,
        };
        self.locals.push(Local {
            name: &all.iter_var,
            path: Vec::new(),
            size: held,
            entry: None,
        });
        let body = body.map(|body| self.part(body, &inner).cost);
        self.locals.pop();
        let one = Range::fixed(1);
        let some = body
            .unwrap_or(one)
            .plus(of.cost)
            .plus(Range::fixed(super::meter::LIST + 1 + wrap));
        part.cost = of.cost.plus(one).plus(some.or(one));
        part.size = type_size(&part.ty);
    }
}

/// A loop that never runs gives a value a name.
fn binds(all: &ComprehensionExpr) -> bool {
    let empty = matches!(&all.iter_range.expr, Expr::List(list) if list.elements.is_empty());
    let never = matches!(&all.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(value)) if !*value.inner());
    empty && never && all.accu_var != "@result"
}

fn literal_size(literal: &LiteralValue) -> u64 {
    match literal {
        LiteralValue::String(text) => super::meter::len(text.inner().chars().count()),
        LiteralValue::Bytes(bytes) => super::meter::len(bytes.inner().len()),
        _ => 1,
    }
}

/// The size of what is of one size.
fn type_size(ty: &Ty) -> Option<Range> {
    match ty {
        Ty::Bool | Ty::Double | Ty::Duration | Ty::Int | Ty::Timestamp | Ty::Uint => Some(Range::fixed(1)),
        Ty::Optional(of) => type_size(of),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::schema::Schema;

    /// What the real server accepts and refuses by these is in the transcripts.
    #[test]
    fn costs_follow_the_sizes_of_the_schema() {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "integer"},
            "s": {"type": "string"},
            "t": {"type": "string", "maxLength": 10},
            "e": {"type": "string", "enum": ["a", "bbb"]},
            "l": {"type": "array", "items": {"type": "string", "maxLength": 10}},
            "k": {"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 10}},
        }});
        let compiled = Schema::compile(&schema).unwrap();
        let size = Size::of(&schema, false).unwrap();
        let scope = Scope::of_schema(&compiled, false, false);
        let wanted = [
            ("true", 0),
            ("self.n > 1", 3),
            ("self.n == 1", 2),
            // A tenth of the shorter one, rounded up.
            ("self.t == self.e", 5),
            ("self.t == self.t", 8),
            ("self.s == self.s", 314_577),
            ("self.s.matches('abcd')", 314_575),
            ("self.t.contains('abc')", 6),
            ("self.k.size() > 1", 4),
            ("self.k.all(x, x == 'a')", 2 + 10 * 5 + 1),
            ("self.k.exists(x, x == 'a')", 2 + 10 * 6 + 1),
            ("self.l.all(x, x == 'a')", 5_242_878),
            ("self.k.map(x, x + 'a').size() > 0", 2 + 10 + 10 * 18 + 1 + 2),
            ("has(self.t) && self.t == 'a'", 4),
            ("self.n > 1 ? self.t == 'a' : true", 6),
            ("self.k.sort() == self.k", 226),
            ("self.?t.optMap(x, x.size()).orValue(0) > 0", 21),
        ];
        let estimate = |rule| Expression::compile(rule).unwrap().estimate(&scope, &size);
        assert_eq!(wanted.map(|(rule, _)| (rule, estimate(rule))), wanted);
        assert_eq!(size.times(), 3 * 1024 * 1024 / 3);
    }
}

//! Fields and items: `a.b`, `a[b]`, `a.?b`, `a[?b]`, `has(a.b)`.
//!
//! The evaluator says `false` for a field of what has no fields, and knows no optional in the middle of a path. So it does not get
//! to see any of these: each becomes the call of a function that does what the reference implementation does. A whole path is
//! one call, so that only its end is copied.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel::common::types::{CelBool, CelDouble, CelInt, CelList, CelMap, CelString, CelUInt};
use kube_cel::cel::common::value::Val;
use kube_cel::cel::objects::Key;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

use super::described::Described;
use super::{conversions, equality, keyed, optional, qualifiers, quantities, sums, unreadable};

/// A value, and the names and places that lead further from it.
const PATH: &str = "@path";
/// The same, asking whether the last is there.
const HAS: &str = "@has";
/// Marks a name or a place that may be missing. It is never called.
const MAYBE: &str = "@maybe";
/// Whether a path can be followed to its end.
const REACHES: &str = "@reaches";
/// What the key begins with under which a map keeps why it lacks another key. No text of JSON is likely to begin so.
const LACKING: char = '\0';

/// The key under which a map keeps why it lacks a key.
pub(crate) fn why_lacking(key: &str) -> String {
    format!("{LACKING}{key}")
}

fn call(name: &str, args: Vec<IdedExpr>) -> Expr {
    Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    })
}

/// A path that goes one further than the value does, which may be a path itself.
fn further(value: IdedExpr, by: IdedExpr) -> Vec<IdedExpr> {
    match value.expr {
        Expr::Call(CallExpr {
            func_name, mut args, ..
        }) if func_name == PATH => {
            args.push(by);
            args
        }
        _ => vec![value, by],
    }
}

/// A list is not copied only to be read: a path of names that can be followed is left to the evaluator.
pub(super) fn read(expression: &mut IdedExpr) -> bool {
    let Expr::Call(CallExpr { func_name, args, .. }) = &expression.expr else {
        return false;
    };
    let name = |step: &IdedExpr| matches!(step.expr, Expr::Literal(LiteralValue::String(_)));
    let index = |of, step: &IdedExpr| IdedExpr {
        id: 0,
        expr: call(operators::INDEX, vec![of, step.clone()]),
    };
    let read = match args.as_slice() {
        [from, steps @ ..]
            if func_name == PATH && matches!(from.expr, Expr::Ident(_)) && steps.iter().all(name) =>
        {
            steps.iter().fold(from.clone(), index)
        }
        _ => return false,
    };
    let reaches = IdedExpr {
        id: 0,
        expr: call(REACHES, args.clone()),
    };
    let copied = std::mem::take(expression);
    expression.expr = call(operators::CONDITIONAL, vec![reaches, read, copied]);
    true
}

/// Replaces an expression whose parts are replaced already; tells whether it was one to replace.
pub(super) fn lower(expression: &mut IdedExpr) -> bool {
    let id = expression.id;
    let lowered = match std::mem::take(&mut expression.expr) {
        Expr::Select(select) => {
            let field = LiteralValue::String(CelString::from(select.field.as_str()));
            let by = IdedExpr {
                id,
                expr: Expr::Literal(field),
            };
            call(if select.test { HAS } else { PATH }, further(*select.operand, by))
        }
        Expr::Call(mut called) if called.func_name == "size" => {
            let of = called.target.as_deref_mut().or(called.args.first_mut());
            let changed = of.is_some_and(read);
            expression.expr = Expr::Call(called);
            return changed;
        }
        Expr::Call(mut called) if called.target.is_none() => {
            match (called.func_name.as_str(), called.args.len()) {
                ("dyn", 1) => called.args.pop().unwrap_or_default().expr,
                (operators::INDEX | operators::OPT_INDEX | operators::OPT_SELECT, 2) => {
                    let mut by = called.args.pop().unwrap_or_default();
                    if called.func_name != operators::INDEX {
                        by = IdedExpr {
                            id,
                            expr: call(MAYBE, vec![by]),
                        };
                    }
                    call(PATH, further(called.args.pop().unwrap_or_default(), by))
                }
                (operators::IN, 2) => {
                    called.args.last_mut().map(read);
                    call(equality::IN, called.args)
                }
                _ => {
                    let changed = conversions::lower(&mut called)
                        || equality::lower(&mut called)
                        || sums::lower(&mut called);
                    expression.expr = Expr::Call(called);
                    return changed;
                }
            }
        }
        other => {
            expression.expr = other;
            return keyed::lower(expression) || optional::lower(expression) || quantities::lower(expression);
        }
    };
    expression.expr = lowered;
    true
}

/// Adds what is called.
pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(PATH, |called: &FunctionContext<'_, '_>| path(called));
    context.add_function(HAS, |called: &FunctionContext<'_, '_>| has(called));
    context.add_function(
        REACHES,
        |called: &FunctionContext<'_, '_>| -> Result<bool, ExecutionError> {
            let from = argument(called, 0)?;
            Ok(reaches(called, from.as_ref()))
        },
    );
}

pub(super) fn argument<'a>(
    called: &'a FunctionContext<'_, '_>,
    at: usize,
) -> Result<Cow<'a, dyn Val>, ExecutionError> {
    let expression = called.args.get(at).ok_or(ExecutionError::NoSuchOverload)?;
    Cel::resolve_val(expression, called.ptx)
}

/// Whether the evaluator can follow a path of names: through maps alone.
fn reaches(called: &FunctionContext<'_, '_>, from: &dyn Val) -> bool {
    let mut value = from;
    for step in called.args.iter().skip(1) {
        let name = Cel::resolve_val(step, called.ptx);
        let map = value.downcast_ref::<CelMap>();
        match map
            .zip(name.ok())
            .and_then(|(map, name)| entry(map, name.as_ref()))
        {
            Some(found) => value = found,
            None => return false,
        }
    }
    true
}

/// Where a path ends.
enum End<'a> {
    Value(Cow<'a, dyn Val>),
    /// What an optional holds.
    Held(Cow<'a, dyn Val>),
    /// An optional that holds nothing.
    Nothing,
}

fn path(called: &FunctionContext<'_, '_>) -> ResolveResult {
    let from = argument(called, 0)?;
    let opened = opened(from.as_ref())?;
    match follow(called, opened.start(from.as_ref()), false)? {
        End::Value(value) => {
            unreadable::read_val(value.as_ref())?;
            Cel::try_from(value.as_ref())
        }
        End::Held(value) => Ok(optional::optional(Some(Cel::try_from(value.as_ref())?))),
        End::Nothing => Ok(optional::optional(None)),
    }
}

/// Where a path begins, if that is an optional: with what it holds.
enum Opened {
    Plain,
    Held(Option<Box<dyn Val>>),
}

impl Opened {
    fn start<'a>(&'a self, plain: &'a dyn Val) -> Start<'a> {
        match self {
            Self::Plain => Start::Value(plain),
            Self::Held(held) => Start::Optional(held.as_deref()),
        }
    }
}

fn opened(from: &dyn Val) -> Result<Opened, ExecutionError> {
    let Some(optional) = optional::maybe_of(from) else {
        return Ok(Opened::Plain);
    };
    let held = optional.value().cloned().map(Box::<dyn Val>::try_from);
    Ok(Opened::Held(held.transpose()?))
}

#[derive(Clone, Copy)]
enum Start<'a> {
    Value(&'a dyn Val),
    Optional(Option<&'a dyn Val>),
}

fn has(called: &FunctionContext<'_, '_>) -> Result<bool, ExecutionError> {
    let from = argument(called, 0)?;
    let opened = opened(from.as_ref())?;
    let end = follow(called, opened.start(from.as_ref()), true)?;
    Ok(!matches!(end, End::Nothing))
}

/// Follows a path. After an optional everything may be missing; if `test`, so may the last.
fn follow<'a>(
    called: &FunctionContext<'_, '_>,
    from: Start<'a>,
    test: bool,
) -> Result<End<'a>, ExecutionError> {
    let (mut value, mut optional) = match from {
        Start::Value(value) => (Cow::Borrowed(value), false),
        Start::Optional(Some(held)) => (Cow::Borrowed(held), true),
        Start::Optional(None) => return Ok(End::Nothing),
    };
    let mut steps = called.args.iter().skip(1).peekable();
    while let Some(step) = steps.next() {
        let by = match &step.expr {
            Expr::Call(CallExpr { func_name, args, .. }) if func_name == MAYBE => {
                optional = true;
                args.first().unwrap_or(step)
            }
            _ => step,
        };
        let by = Cel::resolve_val(by, called.ptx)?;
        let found = match &value {
            Cow::Borrowed(of) => find(*of, by.as_ref())?,
            Cow::Owned(of) => find(of.as_ref(), by.as_ref())?.map(|found| Cow::Owned(found.into_owned())),
        };
        value = match found {
            Ok(found) => found,
            Err(_) if optional || (test && steps.peek().is_none()) => return Ok(End::Nothing),
            Err(missing) => return Err(missing.error(by.as_ref())),
        };
    }
    Ok(if optional {
        End::Held(value)
    } else {
        End::Value(value)
    })
}

/// What is not there.
enum Missing {
    Key,
    Item,
}

impl Missing {
    fn error(&self, by: &dyn Val) -> ExecutionError {
        let name = match Cel::try_from(by) {
            Ok(Cel::String(text)) => text.to_string(),
            Ok(Cel::Int(number)) => number.to_string(),
            Ok(Cel::UInt(number)) => number.to_string(),
            Ok(Cel::Float(number)) => number.to_string(),
            Ok(Cel::Bool(value)) => value.to_string(),
            _ => by.get_type().name().to_owned(),
        };
        match self {
            Self::Key => ExecutionError::NoSuchKey(Arc::new(name)),
            Self::Item => ExecutionError::function_error(PATH, format!("index out of bounds: {name}")),
        }
    }
}

/// What has neither keys nor places lacks all of them.
fn find<'a>(of: &'a dyn Val, by: &dyn Val) -> Result<Result<Cow<'a, dyn Val>, Missing>, ExecutionError> {
    unreadable::read_val(of)?;
    qualifiers::check(by)?;
    if let Some(map) = of.downcast_ref::<CelMap>() {
        let found = entry(map, by);
        if found.is_none()
            && let Some(key) = by.downcast_ref::<CelString>()
            && let Some(why) = entry(map, &CelString::from(why_lacking(key.inner()).as_str()))
            && let Ok(Cel::String(why)) = Cel::try_from(why)
        {
            return Err(ExecutionError::function_error(PATH, why.to_string()));
        }
        return Ok(found.map(Cow::Borrowed).ok_or(Missing::Key));
    }
    if let Some(list) = of.downcast_ref::<CelList>() {
        let item = place(by)?.and_then(|at| list.inner().get(at));
        return Ok(item.map(|item| Cow::Borrowed(item.as_ref())).ok_or(Missing::Item));
    }
    let (found, missing) = match &Described::of_val(of) {
        Some(Described::Object(fields)) => {
            let found = field(fields, by)?;
            // Of a field, other than of an item, even who only asks whether it is there hears that it cannot be read.
            found.map_or(Ok(()), unreadable::read)?;
            (found.cloned(), Missing::Key)
        }
        Some(Described::List(.., items)) => {
            let item = place(by)?.and_then(|at| items.get(at));
            (item.cloned(), Missing::Item)
        }
        None => {
            let entries = keyed::of_val(of).unwrap_or_default();
            (keyed::find(&entries, &Cel::try_from(by)?)?.cloned(), Missing::Key)
        }
    };
    let found = found.map(Box::<dyn Val>::try_from).transpose()?;
    Ok(found.map(Cow::Owned).ok_or(missing))
}

/// The field of an object that a value names.
pub(super) fn field<'a>(
    fields: &'a HashMap<Key, Cel>,
    by: &dyn Val,
) -> Result<Option<&'a Cel>, ExecutionError> {
    let name = by.downcast_ref::<CelString>();
    let name = name.ok_or(ExecutionError::NoSuchOverload)?;
    Ok(fields.get(&Key::String(Arc::new(name.inner().to_owned()))))
}

/// The place in a list that a value names; none if there is no such place in any.
fn place(by: &dyn Val) -> Result<Option<usize>, ExecutionError> {
    let Some(at) = whole(by) else {
        let why = match by.downcast_ref::<CelDouble>() {
            Some(number) => format!("unsupported index value {} in list", number.inner()),
            None => format!("unsupported index type '{}' in list", by.get_type().name()),
        };
        return Err(ExecutionError::function_error(PATH, why));
    };
    Ok(usize::try_from(at).ok())
}

/// A whole number, of whatever type.
fn whole(number: &dyn Val) -> Option<i128> {
    if let Some(number) = number.downcast_ref::<CelInt>() {
        return Some(i128::from(*number.inner()));
    }
    if let Some(number) = number.downcast_ref::<CelUInt>() {
        return Some(i128::from(*number.inner()));
    }
    let number = *number.downcast_ref::<CelDouble>()?.inner();
    #[expect(
        clippy::cast_possible_truncation,
        reason = "it is whole, and a cast stops at the ends"
    )]
    (number.fract() == 0.0).then_some(number as i128)
}

pub(super) fn entry<'a>(map: &'a CelMap, key: &dyn Val) -> Option<&'a dyn Val> {
    let get = |key: &dyn Val| match map.as_indexer()?.get(key) {
        Ok(Cow::Borrowed(value)) => Some(value),
        _ => None,
    };
    if key.downcast_ref::<CelString>().is_some() || key.downcast_ref::<CelBool>().is_some() {
        return get(key);
    }
    let number = whole(key)?;
    let signed = i64::try_from(number).ok().map(CelInt::from);
    let unsigned = u64::try_from(number).ok().map(CelUInt::from);
    signed
        .and_then(|key| get(&key))
        .or_else(|| unsigned.and_then(|key| get(&key)))
}

/// Whether two numbers are one, of whatever types.
pub(super) fn same_number(a: &dyn Val, b: &dyn Val) -> bool {
    // What is not whole equals only its own type, and was compared.
    matches!((whole(a), whole(b)), (Some(a), Some(b)) if a == b)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Activation, Expression};

    #[test]
    fn paths_end_as_they_do_there() {
        let mut values = Activation::default();
        values.bind(
            "self",
            &json!({"n": 1, "s": "x", "o": {"s": "x"}, "l": [{"s": "x"}], "m": {"a": {"a": "x"}}, "f": 1.5}),
        );
        values.bind("nothing", &json!(null));
        for (rule, wanted) in [
            ("nothing.data.a != 'locked'", Err("no such key: data")),
            ("nothing['data'] != 'locked'", Err("no such key: data")),
            ("self.s.b == 'x'", Err("no such key: b")),
            ("self.s.b.c == 'x' || true", Ok(true)),
            ("self.nope == 'x'", Err("no such key: nope")),
            ("self.l.b == 'x'", Err("unsupported index type 'string' in list")),
            ("self.l[1].s == 'x'", Err("index out of bounds: 1")),
            ("self.l[-1].s == 'x'", Err("index out of bounds: -1")),
            ("has(self.s.b)", Ok(false)),
            ("has(nothing.b)", Ok(false)),
            ("has(nothing.b.c)", Err("no such key: b")),
            ("has(self.o.s) && !has(self.o.t)", Ok(true)),
            ("self.?o.s.orValue('d') == 'x'", Ok(true)),
            ("self.?p.s.orValue('d') == 'd'", Ok(true)),
            ("self.l[?0].s.orValue('d') == 'x'", Ok(true)),
            ("self.l[?1].s.orValue('d') == 'd'", Ok(true)),
            ("self.?l[0].s.orValue('d') == 'x'", Ok(true)),
            ("self.?m['a'].a.orValue('d') == 'x'", Ok(true)),
            ("optional.of(self).n.value() == 1", Ok(true)),
            ("optional.of(self).nope.hasValue()", Ok(false)),
            ("has(self.?o.s) && !has(self.?o.t) && !has(self.?p.s)", Ok(true)),
            ("self.?n == optional.of(1) && self.?n != optional.of(2)", Ok(true)),
            (
                "[self.?n] == [optional.of(1)] && [self.?n] != [self.?o]",
                Ok(true),
            ),
            (
                "self.?nope == optional.none() && self.?n != optional.none()",
                Ok(true),
            ),
            ("nothing.?data.hasValue() || nothing[?'a'].hasValue()", Ok(false)),
            (
                "dyn(self.n) == 1 && dyn(self.n) == 1.0 && dyn([1]) == [1.0]",
                Ok(true),
            ),
            ("dyn(self.f) == 1 || dyn(self.f) != 1.5", Ok(false)),
            ("dyn({'a': 1, 'b': [2]}) == {'a': 1u, 'b': [2.0]}", Ok(true)),
            ("{1: 'a'}[1u] == 'a' && {true: 'b'}[true] == 'b'", Ok(true)),
            (
                "type(self.n) == int && type(self.s) == string && type(1u) == uint",
                Ok(true),
            ),
            (
                "type(self.l) == list && type(self.o) == map && type(self.f) == double",
                Ok(true),
            ),
            (
                "type(nothing) == null_type && type(true) == bool && type(b'a') == bytes",
                Ok(true),
            ),
            (
                "type(type(1)) == type && type(1) != string && [type(1), int].size() == 2",
                Ok(true),
            ),
            ("type(duration('1s')) == google.protobuf.Duration", Ok(true)),
            (
                "type(timestamp('2020-01-01T00:00:00Z')) == google.protobuf.Timestamp",
                Ok(true),
            ),
            ("type(self.?n) == optional_type", Ok(true)),
            (
                "type(self.n) == int ? self.n < 100 : self.n.contains('%')",
                Ok(true),
            ),
        ] {
            let found = Expression::compile(rule).unwrap().evaluate_bool(&values);
            assert_eq!(found, wanted.map_err(str::to_owned), "{rule}");
        }
    }
}

//! Maps with keys that the evaluator has none for: floats, null, lists, and all else that is no text, whole number, yes or no.
//!
//! A key is found by `in`, and by itself when a map is made. Only what is compared by value there is found again: a list or an
//! object is another one each time it is written or read.

use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, MapExpr};
use kube_cel::cel::common::types::CelMap;
use kube_cel::cel::common::value::Val;
use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

use super::{equality, macros, optional, type_values};

/// Makes a map of keys and values in turn.
const MAKE: &str = "@map";
/// A value that is an optional, in such a map.
const MAYBE: &str = "@maybe";
/// The keys of such a map, as a list; all else as it is.
const KEYS: &str = "@keys";
const TYPE: &str = "@keyed";

/// Keys and their values.
pub(super) type Entries = Vec<(Cel, Cel)>;

#[derive(Clone, Debug)]
struct Keyed(Entries);

impl PartialEq for Keyed {
    fn eq(&self, other: &Self) -> bool {
        equality::same(
            &Cel::Opaque(Arc::new(self.clone())),
            &Cel::Opaque(Arc::new(other.clone())),
        )
    }
}

// As other values: nobody looks for `NaN`.
impl Eq for Keyed {}

impl Opaque for Keyed {
    fn runtime_type_name(&self) -> &'static str {
        TYPE
    }
}

/// Whether an expression may have to do with such maps: it makes one, or may name one that another expression made.
fn concerns(expression: &IdedExpr) -> bool {
    match &expression.expr {
        Expr::Ident(name) => name == "variables",
        Expr::Map(map) => odd(map),
        _ => false,
    }
}

/// Whether a map may have keys that the evaluator has none for.
fn odd(map: &MapExpr) -> bool {
    use LiteralValue::{Boolean, Int, String, UInt};
    map.entries.iter().any(|entry| match &entry.expr {
        EntryExpr::MapEntry(entry) => !matches!(
            &entry.key.expr,
            Expr::Literal(Boolean(_) | Int(_) | String(_) | UInt(_))
        ),
        EntryExpr::StructField(_) => false,
    })
}

/// Replaces a map whose parts are replaced already; tells whether it was one to replace.
pub(super) fn lower(expression: &mut IdedExpr) -> bool {
    let Expr::Map(map) = &mut expression.expr else {
        return false;
    };
    if !odd(map) {
        return false;
    }
    let mut args = Vec::new();
    for entry in std::mem::take(&mut map.entries) {
        if let EntryExpr::MapEntry(entry) = entry.expr {
            let value = if entry.optional {
                call(MAYBE, vec![entry.value])
            } else {
                entry.value
            };
            args.extend([entry.key, value]);
        }
    }
    *expression = call(MAKE, args);
    true
}

/// Lets a loop run over the keys of such a map.
pub(super) fn iterate(range: &mut IdedExpr) {
    if !matches!(range.expr, Expr::List(_)) {
        *range = call(KEYS, vec![std::mem::take(range)]);
    }
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    let called = CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    };
    IdedExpr {
        id: 0,
        expr: Expr::Call(called),
    }
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(MAKE, |called: &FunctionContext<'_, '_>| -> ResolveResult {
        let mut entries = Entries::new();
        for pair in called.args.chunks_exact(2) {
            let [key, value] = pair else { continue };
            let key = Cel::resolve(key, called.ptx)?;
            let value = match &value.expr {
                Expr::Call(maybe) if maybe.func_name == MAYBE => {
                    let held = maybe.args.first().ok_or(ExecutionError::NoSuchOverload)?;
                    let held = Cel::resolve(held, called.ptx)?;
                    optional::maybe(&held)
                        .ok_or(ExecutionError::NoSuchOverload)?
                        .value()
                        .cloned()
                }
                _ => Some(Cel::resolve(value, called.ptx)?),
            };
            put(&mut entries, key, value)?;
        }
        Ok(map(entries))
    });
    context.add_function(KEYS, |value: Cel| -> ResolveResult {
        Ok(match keyed(&value) {
            Some(keyed) => Cel::List(Arc::new(keyed.0.iter().map(|(key, _)| key.clone()).collect())),
            None => value,
        })
    });
}

/// Sets what a key stands for; without a value it stands for nothing.
pub(super) fn put(entries: &mut Entries, key: Cel, value: Option<Cel>) -> Result<(), ExecutionError> {
    hashable(&key)?;
    let known = entries.iter().position(|(other, _)| same_key(other, &key));
    match (known.and_then(|at| entries.get_mut(at)), value) {
        (Some((_, held)), Some(value)) => *held = value,
        (None, Some(value)) => entries.push((key, value)),
        (_, None) => entries.retain(|(other, _)| !same_key(other, &key)),
    }
    Ok(())
}

/// Whether the evaluator has such keys.
pub(super) fn plain(key: &Cel) -> bool {
    matches!(key, Cel::Bool(_) | Cel::Int(_) | Cel::String(_) | Cel::UInt(_))
}

/// A map of entries whose keys differ: one of the evaluator's own, if it has keys for all of them.
pub(super) fn map(entries: Entries) -> Cel {
    if !entries.iter().all(|(key, _)| plain(key)) {
        return Cel::Opaque(Arc::new(Keyed(entries)));
    }
    let keyed = entries.into_iter().filter_map(|(key, value)| {
        let key: Key = key.try_into().ok()?;
        Some((key, value))
    });
    Cel::Map(Map {
        map: Arc::new(keyed.collect()),
    })
}

/// The entries of any map; nothing if a value is none.
pub(super) fn entries(value: &Cel) -> Option<Entries> {
    match value {
        Cel::Map(map) => {
            let entry = |(key, value): (&Key, &Cel)| (Cel::from(key.clone()), value.clone());
            Some(map.map.iter().map(entry).collect())
        }
        other => keyed(other).map(|keyed| keyed.0.clone()),
    }
}

/// The entries of a map as the evaluator has it, if it is such a map.
pub(super) fn of_val(value: &dyn Val) -> Option<Entries> {
    if value.get_type().name() != TYPE {
        return None;
    }
    entries(&Cel::try_from(value).ok()?)
}

/// The same of any map.
pub(super) fn of_any_val(value: &dyn Val) -> Option<Entries> {
    if value.downcast_ref::<CelMap>().is_some() {
        return entries(&Cel::try_from(value).ok()?);
    }
    of_val(value)
}

fn keyed(value: &Cel) -> Option<&Keyed> {
    match value {
        Cel::Opaque(opaque) => opaque.downcast_ref(),
        _ => None,
    }
}

/// Whether a value is such a map.
pub(super) fn is(value: &Cel) -> bool {
    keyed(value).is_some()
}

/// What a key stands for.
pub(super) fn find<'a>(entries: &'a Entries, key: &Cel) -> Result<Option<&'a Cel>, ExecutionError> {
    if entries.is_empty() {
        return Ok(None);
    }
    hashable(key)?;
    Ok(found(key, |key| exactly(entries, key)))
}

/// What a key itself stands for.
pub(super) fn exactly<'a>(entries: &'a Entries, key: &Cel) -> Option<&'a Cel> {
    let mut entries = entries.iter();
    entries
        .find(|(other, _)| same_key(other, key))
        .map(|(_, value)| value)
}

/// What a key stands for, where `get` knows what it stands for itself. A number stands for itself as a whole number of another
/// type, but never as a float.
pub(super) fn found<'a>(key: &Cel, get: impl Fn(&Cel) -> Option<&'a Cel>) -> Option<&'a Cel> {
    let signed = |number: i128| {
        i64::try_from(number)
            .ok()
            .and_then(|number| get(&Cel::Int(number)))
    };
    let unsigned = |number: i128| {
        u64::try_from(number)
            .ok()
            .and_then(|number| get(&Cel::UInt(number)))
    };
    get(key).or_else(|| match key {
        Cel::Int(number) => unsigned(i128::from(*number)),
        Cel::UInt(number) => signed(i128::from(*number)),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "it is whole, and a cast stops at the ends"
        )]
        Cel::Float(number) if number.fract() == 0.0 => {
            let number = *number as i128;
            signed(number).or_else(|| unsigned(number))
        }
        _ => None,
    })
}

/// Some values cannot be keys, nor be looked for among them.
pub(super) fn hashable(key: &Cel) -> Result<(), ExecutionError> {
    let kind = match (key, type_values::name(key)) {
        (Cel::Bytes(_), _) => "types.Bytes",
        (_, "kubernetes.Semver") => "cel.Semver",
        (_, "kubernetes.NamedFormat") => "cel.Format",
        _ => return Ok(()),
    };
    let why = format!("internal error: runtime error: hash of unhashable type {kind}");
    Err(ExecutionError::function_error("map", why))
}

fn same_key(a: &Cel, b: &Cel) -> bool {
    match (a, b) {
        (Cel::Timestamp(a), Cel::Timestamp(b)) => {
            // Zones of whole hours are shared, others are made anew each time.
            let zone = a.offset().local_minus_utc();
            zone % 3600 == 0 && zone == b.offset().local_minus_utc() && a == b
        }
        (Cel::Opaque(_), Cel::Opaque(_)) => {
            matches!(type_values::name(a), "type" | "net.IP" | "net.CIDR") && a == b
        }
        (Cel::List(_) | Cel::Map(_), _) => false,
        (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b) && a == b,
    }
}

/// Whether anything in an expression does.
pub(super) fn within(expression: &mut IdedExpr) -> bool {
    concerns(expression) || macros::below(expression).into_iter().any(within)
}

#[cfg(test)]
mod tests {
    use super::super::{Activation, Expression};

    #[test]
    fn any_value_is_a_key() {
        for (rule, wanted) in [
            ("{1.5: 'a'}[1.5] == 'a' && {1.5: 'a'}.size() == 1", Ok(true)),
            ("{1.0: 'a'}[dyn(1)] == 'a'", Err("no such key: 1")),
            (
                "{1.0: 'a'} == dyn({1: 'a'}) && dyn({1: 'a'}) != dyn({1.0: 'a'})",
                Ok(true),
            ),
            ("{null: 'a'}.all(k, v, k == null && v == 'a')", Ok(true)),
            ("{[1]: 'a'}.all(k, k == [1]) && !([1] in {[1]: 'a'})", Ok(true)),
            ("[1.5].transformMapEntry(i, v, {v: i}) == {1.5: 0}", Ok(true)),
            (
                "{?1.5: optional.none()} == {} && type({null: 1}) == map",
                Ok(true),
            ),
            (
                "{dyn(b'a'): 1}.size() == 1",
                Err("internal error: runtime error: hash of unhashable type types.Bytes"),
            ),
        ] {
            let found = Expression::compile(rule)
                .unwrap()
                .evaluate_bool(&Activation::default());
            assert_eq!(found, wanted.map_err(str::to_owned), "{rule}");
        }
    }
}

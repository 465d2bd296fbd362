//! `a == b`, `a != b` and `a in b`.
//!
//! The evaluator finds numbers of two types never equal, nor two optionals. And there are values that cannot be compared with
//! others at all, which is an error by itself and inside of what a schema describes, and no difference inside of other lists and
//! maps.

use std::borrow::Cow;
use std::collections::HashMap;

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel::common::types::{CelList, CelMap};
use kube_cel::cel::common::value::Val;
use kube_cel::cel::objects::Key;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as Cel};

use super::access::{self, argument};
use super::described::{self, Described, Identity};
use super::{keyed, optional, unreadable};

const EQUAL: &str = "@equal";
const DIFFERENT: &str = "@different";
pub(super) const IN: &str = "@contained";

/// Texts and the like equal nothing but their own kind: that needs no help.
fn plain(expression: &IdedExpr) -> bool {
    matches!(
        expression.expr,
        Expr::Literal(
            LiteralValue::Boolean(_) | LiteralValue::Bytes(_) | LiteralValue::Null | LiteralValue::String(_)
        )
    )
}

/// Replaces a comparison whose parts are replaced already; tells whether it was one to replace.
pub(super) fn lower(call: &mut CallExpr) -> bool {
    let name = match call.func_name.as_str() {
        operators::EQUALS => EQUAL,
        operators::NOT_EQUALS => DIFFERENT,
        _ => return false,
    };
    let [left, right] = call.args.as_slice() else {
        return false;
    };
    // What is compared with a text may still be a list of a schema, for which that is an error.
    if plain(left) || (plain(right) && !matches!(left.expr, Expr::Call(_) | Expr::Ident(_))) {
        return false;
    }
    name.clone_into(&mut call.func_name);
    true
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(
        EQUAL,
        |called: &FunctionContext<'_, '_>| -> Result<bool, ExecutionError> {
            match compare(called)? {
                Outcome::Same => Ok(true),
                Outcome::Other => Ok(false),
                Outcome::Incomparable => Err(ExecutionError::NoSuchOverload),
            }
        },
    );
    context.add_function(
        DIFFERENT,
        |called: &FunctionContext<'_, '_>| -> Result<bool, ExecutionError> {
            match compare(called) {
                // What cannot be read is different at least.
                Err(error) if unreadable::caused(&error) => Ok(true),
                compared => Ok(compared? != Outcome::Same),
            }
        },
    );
    context.add_function(IN, |called: &FunctionContext<'_, '_>| contained(called));
}

fn contained(called: &FunctionContext<'_, '_>) -> Result<bool, ExecutionError> {
    let (item, of) = (argument(called, 0)?, argument(called, 1)?);
    unreadable::read_val(of.as_ref())?;
    if let Some(described) = Described::of_val(of.as_ref()) {
        return held_by(&described, item.as_ref());
    }
    if let Some(list) = of.downcast_ref::<CelList>() {
        for other in list.inner() {
            if outcome(item.as_ref(), other.as_ref())? == Outcome::Same {
                return Ok(true);
            }
        }
        return Ok(false);
    }
    if let Some(map) = of.downcast_ref::<CelMap>() {
        if !map.inner().is_empty() {
            keyed::hashable(&Cel::try_from(item.as_ref())?)?;
        }
        return Ok(access::entry(map, item.as_ref()).is_some());
    }
    let entries = keyed::of_val(of.as_ref()).ok_or(ExecutionError::NoSuchOverload)?;
    Ok(keyed::find(&entries, &Cel::try_from(item.as_ref())?)?.is_some())
}

/// One item is enough; without one, an item that cannot be compared is an error.
fn held_by(of: &Described, item: &dyn Val) -> Result<bool, ExecutionError> {
    let items = match of {
        Described::Object(fields) => {
            let found = access::field(fields, item)?;
            found.map_or(Ok(()), unreadable::read)?;
            return Ok(found.is_some());
        }
        Described::List(.., items) => items,
    };
    let mut failed = None;
    for other in items.iter() {
        let error = match outcome(val(other)?.as_ref(), item) {
            Ok(Outcome::Same) => return Ok(true),
            Ok(Outcome::Other) => continue,
            Ok(Outcome::Incomparable) => ExecutionError::NoSuchOverload,
            Err(error) => error,
        };
        failed.get_or_insert(error);
    }
    failed.map_or(Ok(false), Err)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Same,
    Other,
    Incomparable,
}

impl From<bool> for Outcome {
    fn from(same: bool) -> Self {
        if same { Self::Same } else { Self::Other }
    }
}

type Compared = Result<Outcome, ExecutionError>;

/// Whether two values are equal.
pub(super) fn same(a: &Cel, b: &Cel) -> bool {
    // Most are one of these, and need not become what the evaluator compares.
    if matches!(
        (a, b),
        (Cel::String(_), Cel::String(_)) | (Cel::Int(_), Cel::Int(_))
    ) {
        return a == b;
    }
    let compared = || outcome(val(a)?.as_ref(), val(b)?.as_ref());
    compared() == Ok(Outcome::Same)
}

fn compare(called: &FunctionContext<'_, '_>) -> Compared {
    let (a, b) = (argument(called, 0)?, argument(called, 1)?);
    outcome(a.as_ref(), b.as_ref())
}

fn val(value: &Cel) -> Result<Box<dyn Val>, ExecutionError> {
    value.clone().try_into()
}

/// Numbers are equal whatever their types, and optionals if they hold equals, or both nothing.
fn outcome(a: &dyn Val, b: &dyn Val) -> Compared {
    unreadable::read_val(a)?;
    if unreadable::read_val(b).is_err() {
        return Ok(Outcome::Other);
    }
    if let Some(a) = optional::maybe_of(a) {
        let Some(b) = optional::maybe_of(b) else {
            return Ok(Outcome::Other);
        };
        return match (a.value(), b.value()) {
            (Some(a), Some(b)) => outcome(val(a)?.as_ref(), val(b)?.as_ref()),
            (None, None) => Ok(Outcome::Same),
            _ => Ok(Outcome::Other),
        };
    }
    let null = |value: &dyn Val| value.get_type().name() == "null_type";
    if null(a) || null(b) {
        return Ok((null(a) && null(b)).into());
    }
    match Described::of_val(a) {
        Some(Described::List(identity, _, items)) => {
            return match items_of(b)? {
                Some(others) => described_lists(&identity, &items, &others),
                None => Ok(Outcome::Incomparable),
            };
        }
        Some(Described::Object(fields)) => return objects(&fields, b),
        None => {}
    }
    // The left side alone says how to compare.
    if let Some(b) = Described::of_val(b) {
        return outcome(a, val(&b.held())?.as_ref());
    }
    if let Some(list) = a.downcast_ref::<CelList>() {
        return b
            .downcast_ref::<CelList>()
            .map_or(Ok(Outcome::Other), |other| lists(list, other));
    }
    if let (Some(a), Some(b)) = (a.downcast_ref::<CelMap>(), b.downcast_ref::<CelMap>()) {
        return maps(a, b);
    }
    if let (Some(a), Some(b)) = (keyed::of_any_val(a), keyed::of_any_val(b)) {
        return keyed_maps(&a, &b);
    }
    if of_kubernetes(a.get_type().name()) && a.get_type().name() != b.get_type().name() {
        return Ok(Outcome::Incomparable);
    }
    Ok((a == b || access::same_number(a, b)).into())
}

/// Whether values of a type can be compared with each other only.
fn of_kubernetes(name: &str) -> bool {
    name.starts_with("kubernetes.") || name.starts_with("net.")
}

fn lists(a: &CelList, b: &CelList) -> Compared {
    if a.inner().len() != b.inner().len() {
        return Ok(Outcome::Other);
    }
    for (a, b) in a.inner().iter().zip(b.inner()) {
        if unreadable::read_val(a.as_ref()).is_ok() && outcome(a.as_ref(), b.as_ref())? == Outcome::Other {
            return Ok(Outcome::Other);
        }
    }
    Ok(Outcome::Same)
}

/// Maps of which one has keys that the evaluator does not know.
fn keyed_maps(a: &keyed::Entries, b: &keyed::Entries) -> Compared {
    if a.len() != b.len() {
        return Ok(Outcome::Other);
    }
    for (key, value) in a {
        match keyed::find(b, key)? {
            Some(other) if outcome(val(value)?.as_ref(), val(other)?.as_ref())? != Outcome::Other => {}
            _ => return Ok(Outcome::Other),
        }
    }
    Ok(Outcome::Same)
}

fn maps(a: &CelMap, b: &CelMap) -> Compared {
    if a.inner().len() != b.inner().len() {
        return Ok(Outcome::Other);
    }
    for (key, value) in a.inner() {
        let Some(other) = access::entry(b, key.inner()) else {
            return Ok(Outcome::Other);
        };
        if outcome(value.as_ref(), other)? == Outcome::Other {
            return Ok(Outcome::Other);
        }
    }
    Ok(Outcome::Same)
}

/// The items of any list.
fn items_of(value: &dyn Val) -> Result<Option<Vec<Cel>>, ExecutionError> {
    if let Some(Described::List(.., items)) = Described::of_val(value) {
        return Ok(Some(items.to_vec()));
    }
    let Some(list) = value.downcast_ref::<CelList>() else {
        return Ok(None);
    };
    let items = list.inner().iter().map(|item| Cel::try_from(item.as_ref()));
    items.collect::<Result<_, _>>().map(Some)
}

fn described_lists(identity: &Identity, items: &[Cel], others: &[Cel]) -> Compared {
    if items.len() != others.len() {
        return Ok(Outcome::Other);
    }
    for (at, other) in others.iter().enumerate() {
        let item = match identity {
            Identity::Place => items.get(at),
            Identity::Item(members) => {
                members.iter().chain([other]).try_for_each(described::hashable)?;
                if !members.iter().any(|member| described::identical(member, other)) {
                    return Ok(Outcome::Other);
                }
                continue;
            }
            Identity::Fields(fields) => {
                let alike = |item: &&Cel| described::same_fields(fields, item, other);
                items.iter().rfind(alike)
            }
        };
        let Some(item) = item else {
            return Ok(Outcome::Other);
        };
        let compared = outcome(val(item)?.as_ref(), val(other)?.as_ref())?;
        if compared != Outcome::Same {
            return Ok(compared);
        }
    }
    Ok(Outcome::Same)
}

fn objects(fields: &HashMap<Key, Cel>, b: &dyn Val) -> Compared {
    let held = match Described::of_val(b) {
        Some(described) => Cow::Owned(val(&described.held())?),
        None => Cow::Borrowed(b),
    };
    let Some(others) = held.downcast_ref::<CelMap>() else {
        return Ok(Outcome::Incomparable);
    };
    if fields.len() != others.inner().len() {
        return Ok(Outcome::Other);
    }
    for (key, value) in fields {
        let Some(other) = access::entry(others, val(&Cel::from(key.clone()))?.as_ref()) else {
            return Ok(Outcome::Other);
        };
        let compared = outcome(val(value)?.as_ref(), other)?;
        if compared != Outcome::Same {
            return Ok(compared);
        }
    }
    Ok(Outcome::Same)
}

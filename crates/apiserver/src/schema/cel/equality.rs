//! `a == b`, `a != b` and `a in b`.
//!
//! The evaluator finds numbers of two types never equal, nor two optionals. And there are values that cannot be compared with
//! others at all, which is an error by itself, and no difference inside of a list or a map.

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel::common::types::{CelBool, CelList, CelMap};
use kube_cel::cel::common::value::Val;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, Value as Cel};

use super::access::{self, argument};
use super::optional;

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
    let from_schema = access::is_untyped(left);
    if !from_schema && (plain(left) || plain(right)) {
        return false;
    }
    name.clone_into(&mut call.func_name);
    if from_schema {
        call.args.push(IdedExpr {
            id: 0,
            expr: Expr::Literal(LiteralValue::Boolean(CelBool::from(true))),
        });
    }
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
            Ok(compare(called)? != Outcome::Same)
        },
    );
    context.add_function(IN, |called: &FunctionContext<'_, '_>| contained(called));
}

fn contained(called: &FunctionContext<'_, '_>) -> Result<bool, ExecutionError> {
    let (item, of) = (argument(called, 0)?, argument(called, 1)?);
    if let Some(list) = of.downcast_ref::<CelList>() {
        let same = |other: &dyn Val| outcome(other, item.as_ref(), false) == Outcome::Same;
        return Ok(list.inner().iter().any(|other| same(other.as_ref())));
    }
    let map = of
        .downcast_ref::<CelMap>()
        .ok_or(ExecutionError::NoSuchOverload)?;
    Ok(access::entry(map, item.as_ref()).is_some())
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

fn compare(called: &FunctionContext<'_, '_>) -> Result<Outcome, ExecutionError> {
    let (a, b) = (argument(called, 0)?, argument(called, 1)?);
    Ok(outcome(a.as_ref(), b.as_ref(), called.args.len() > 2))
}

/// Numbers are equal whatever their types, and optionals if they hold equals, or both nothing.
fn outcome(a: &dyn Val, b: &dyn Val, from_schema: bool) -> Outcome {
    if let Some(a) = optional::maybe_of(a) {
        let Some(b) = optional::maybe_of(b) else {
            return Outcome::Other;
        };
        return match (a.value(), b.value()) {
            (Some(a), Some(b)) => held_alike(a.clone(), b.clone(), from_schema),
            (None, None) => Outcome::Same,
            _ => Outcome::Other,
        };
    }
    let null = |value: &dyn Val| value.get_type().name() == "null_type";
    if null(a) || null(b) {
        return (null(a) && null(b)).into();
    }
    if let Some(list) = a.downcast_ref::<CelList>() {
        return match b.downcast_ref::<CelList>() {
            Some(other) => lists(list, other),
            None if from_schema => Outcome::Incomparable,
            None => Outcome::Other,
        };
    }
    if let Some(map) = a.downcast_ref::<CelMap>() {
        return match b.downcast_ref::<CelMap>() {
            Some(other) => maps(map, other),
            None if from_schema => Outcome::Incomparable,
            None => Outcome::Other,
        };
    }
    if of_kubernetes(a.get_type().name()) && a.get_type().name() != b.get_type().name() {
        return Outcome::Incomparable;
    }
    (a == b || access::same_number(a, b)).into()
}

/// Whether values of a type can be compared with each other only.
fn of_kubernetes(name: &str) -> bool {
    name.starts_with("kubernetes.") || name.starts_with("net.")
}

fn held_alike(a: Cel, b: Cel, from_schema: bool) -> Outcome {
    match (Box::<dyn Val>::try_from(a), Box::<dyn Val>::try_from(b)) {
        (Ok(a), Ok(b)) => outcome(a.as_ref(), b.as_ref(), from_schema),
        _ => Outcome::Incomparable,
    }
}

fn lists(a: &CelList, b: &CelList) -> Outcome {
    let alike = |a: &dyn Val, b: &dyn Val| outcome(a, b, false) != Outcome::Other;
    let mut pairs = a.inner().iter().zip(b.inner());
    (a.inner().len() == b.inner().len() && pairs.all(|(a, b)| alike(a.as_ref(), b.as_ref()))).into()
}

fn maps(a: &CelMap, b: &CelMap) -> Outcome {
    let alike = |key: &dyn Val, value: &dyn Val| {
        access::entry(b, key).is_some_and(|other| outcome(value, other, false) != Outcome::Other)
    };
    let mut entries = a.inner().iter();
    (a.inner().len() == b.inner().len() && entries.all(|(key, value)| alike(key.inner(), value.as_ref())))
        .into()
}

//! `a + b`, `a - b` and `-a` where the evaluator does otherwise: lists that a schema describes, durations, which end after 292
//! years, and the least of all numbers.

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, operators};
use kube_cel::cel::common::types::CelTimestamp;
use kube_cel::cel::common::value::Val;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

use super::access::argument;
use super::described::{self, Described};
use super::unreadable;

const SUM: &str = "@sum";
const DIFFERENCE: &str = "@difference";
const NEGATED: &str = "@negated";

/// Replaces a sum whose parts are replaced already; tells whether it was one to replace.
pub(super) fn lower(call: &mut CallExpr) -> bool {
    let name = match call.func_name.as_str() {
        operators::ADD => SUM,
        operators::SUBSTRACT => DIFFERENCE,
        operators::NEGATE => NEGATED,
        _ => return false,
    };
    // With texts and numbers, and where a loop gathers its items, nothing can differ.
    let simple = |part: &IdedExpr| match &part.expr {
        Expr::Literal(_) => true,
        Expr::Ident(name) => matches!(name.as_str(), "@result" | "__result__"),
        _ => false,
    };
    if name != NEGATED && call.args.iter().any(simple) {
        return false;
    }
    name.clone_into(&mut call.func_name);
    true
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(SUM, |called: &FunctionContext<'_, '_>| {
        let (a, b) = (argument(called, 0)?, argument(called, 1)?);
        sum(a.as_ref(), b.as_ref())
    });
    context.add_function(NEGATED, |value: Cel| match value {
        // The least number has none.
        Cel::Int(number) => {
            number
                .checked_neg()
                .map(Cel::Int)
                .ok_or(ExecutionError::Overflow("minus", value, Cel::Null))
        }
        Cel::Float(number) => Ok(Cel::Float(-number)),
        Cel::Duration(duration) => in_range(Cel::Duration(-duration)),
        _ => Err(ExecutionError::NoSuchOverload),
    });
    context.add_function(DIFFERENCE, |called: &FunctionContext<'_, '_>| {
        let (a, b) = (argument(called, 0)?, argument(called, 1)?);
        let subtractor = a.as_subtractor().ok_or(ExecutionError::NoSuchOverload)?;
        let difference = subtractor.sub(b.as_ref());
        in_range(Cel::try_from(
            of_time(difference, a.as_ref(), b.as_ref())?.as_ref(),
        )?)
    });
}

fn sum(a: &dyn Val, b: &dyn Val) -> ResolveResult {
    unreadable::read_val(a)?;
    unreadable::read_val(b)?;
    let more = match Described::of_val(b) {
        Some(described) => Some(Box::<dyn Val>::try_from(described.held())?),
        None => None,
    };
    let b = more.as_deref().unwrap_or(b);
    if let Some(Described::List(identity, kind, items)) = Described::of_val(a) {
        let Cel::List(more) = Cel::try_from(b)? else {
            return Err(ExecutionError::NoSuchOverload);
        };
        return described::extended(&identity, kind, &items, &more).map(Cel::from);
    }
    // A duration takes no time, but a time takes a duration.
    let (a, b) = if b.downcast_ref::<CelTimestamp>().is_some() {
        (b, a)
    } else {
        (a, b)
    };
    let adder = a.as_adder().ok_or(ExecutionError::NoSuchOverload)?;
    in_range(Cel::try_from(of_time(adder.add(b), a, b)?.as_ref())?)
}

/// The end of time has an error of its own.
fn of_time<T>(result: Result<T, ExecutionError>, a: &dyn Val, b: &dyn Val) -> Result<T, ExecutionError> {
    let time = |value: &dyn Val| value.downcast_ref::<CelTimestamp>().is_some();
    result.map_err(|error| match error {
        ExecutionError::Overflow(..) if time(a) != time(b) => {
            ExecutionError::function_error("timestamp", "timestamp overflow")
        }
        other => other,
    })
}

/// Durations are counted in nanoseconds.
pub(super) fn in_range(value: Cel) -> ResolveResult {
    match &value {
        Cel::Duration(duration) if duration.num_nanoseconds().is_none() => {
            Err(ExecutionError::Overflow("add", value, Cel::Null))
        }
        _ => Ok(value),
    }
}

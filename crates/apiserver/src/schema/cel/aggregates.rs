//! `sum`, `min` and `max` of lists.

use std::cmp::Ordering;

use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};

use super::sums::in_range;
use super::type_values;

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function("min", |This(list): This<Cel>| {
        extreme("min", &list, Ordering::Less)
    });
    context.add_function("max", |This(list): This<Cel>| {
        extreme("max", &list, Ordering::Greater)
    });
    context.add_function("sum", |This(list): This<Cel>| sum(&list));
}

fn items<'a>(function: &str, list: &'a Cel) -> Result<&'a [Cel], ExecutionError> {
    match list {
        Cel::List(items) => Ok(items),
        other => Err(ExecutionError::function_error(
            function,
            format!("no such overload: {function}({})", type_values::name(other)),
        )),
    }
}

fn extreme(function: &str, list: &Cel, wanted: Ordering) -> ResolveResult {
    let mut items = items(function, list)?.iter();
    let Some(mut found) = items.next() else {
        let why = format!("{function} called on empty list");
        return Err(ExecutionError::function_error(function, why));
    };
    for item in items {
        if order(item, found)? == wanted {
            found = item;
        }
    }
    Ok(found.clone())
}

fn order(a: &Cel, b: &Cel) -> Result<Ordering, ExecutionError> {
    match (a, b) {
        (Cel::Bool(a), Cel::Bool(b)) => Ok(a.cmp(b)),
        (Cel::Bytes(a), Cel::Bytes(b)) => Ok(a.cmp(b)),
        _ => a.partial_cmp(b).ok_or(ExecutionError::NoSuchOverload),
    }
}

fn sum(list: &Cel) -> ResolveResult {
    let mut items = items("sum", list)?.iter().cloned();
    let Some(first) = items.next() else {
        return Ok(Cel::Int(0));
    };
    items.try_fold(first, |sum, item| match (sum, item) {
        (Cel::Duration(a), Cel::Duration(b)) => a
            .checked_add(&b)
            .map(Cel::Duration)
            .ok_or_else(|| ExecutionError::function_error("sum", "integer overflow"))
            .and_then(in_range),
        (a @ (Cel::Int(_) | Cel::UInt(_) | Cel::Float(_)), b) => a + b,
        _ => Err(ExecutionError::NoSuchOverload),
    })
}

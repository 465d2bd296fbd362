//! Values that may be missing.
//!
//! The evaluator has optionals of its own, but it loses them where it copies a list. So these are ours throughout.

use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr};
use kube_cel::cel::common::value::Val;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Opaque, OptionalValue};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

use super::type_values;

/// Makes one of the evaluator's of one of ours, for what it makes a list or a map of.
const THEIRS: &str = "@theirs";
const TYPE: &str = "optional_type";

/// A value, or none.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Maybe(Option<Cel>);

impl Maybe {
    /// What it holds.
    pub(super) fn value(&self) -> Option<&Cel> {
        self.0.as_ref()
    }
}

// Values are equal to themselves but for `NaN`, which nobody puts into one of these to find it again.
impl Eq for Maybe {}

impl Opaque for Maybe {
    fn runtime_type_name(&self) -> &'static str {
        TYPE
    }
}

/// An optional that holds a value, or nothing.
pub(super) fn optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(Maybe(value)))
}

/// A value as an optional, if it is one.
pub(super) fn maybe(value: &Cel) -> Option<&Maybe> {
    match value {
        Cel::Opaque(opaque) => opaque.downcast_ref(),
        _ => None,
    }
}

/// The same of a value as the evaluator has it.
pub(super) fn maybe_of(value: &dyn Val) -> Option<Maybe> {
    if value.get_type().name() != TYPE {
        return None;
    }
    maybe(&Cel::try_from(value).ok()?).cloned()
}

/// Replaces an expression whose parts are replaced already; tells whether it was one to replace.
pub(super) fn lower(expression: &mut IdedExpr) -> bool {
    let wrap = |name: &str, of: &mut IdedExpr| {
        let of = std::mem::take(of);
        IdedExpr {
            id: of.id,
            expr: Expr::Call(CallExpr {
                func_name: name.to_owned(),
                target: None,
                args: vec![of],
            }),
        }
    };
    match &mut expression.expr {
        Expr::List(list) => {
            for at in &list.optional_indices {
                if let Some(element) = list.elements.get_mut(*at) {
                    *element = wrap(THEIRS, element);
                }
            }
            !list.optional_indices.is_empty()
        }
        Expr::Map(map) => {
            let mut changed = false;
            for entry in &mut map.entries {
                if let EntryExpr::MapEntry(entry) = &mut entry.expr
                    && entry.optional
                {
                    entry.value = wrap(THEIRS, &mut entry.value);
                    changed = true;
                }
            }
            changed
        }
        _ => false,
    }
}

fn no_overload(function: &str, value: &Cel) -> ExecutionError {
    let why = format!("no such overload: {function}({})", type_values::name(value));
    ExecutionError::function_error(function, why)
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(THEIRS, |value: Cel| -> ResolveResult {
        let theirs = match maybe(&value).ok_or(ExecutionError::NoSuchOverload)?.value() {
            Some(value) => OptionalValue::of(value.clone()),
            None => OptionalValue::none(),
        };
        Ok(Cel::Opaque(Arc::new(theirs)))
    });
    context.add_function("optional.none", || -> ResolveResult { Ok(optional(None)) });
    context.add_function("optional.of", |value: Cel| -> ResolveResult {
        Ok(optional(Some(value)))
    });
    context.add_function("optional.ofNonZeroValue", |value: Cel| -> ResolveResult {
        Ok(optional(Some(value).filter(|value| !is_zero(value))))
    });
    context.add_function(
        "hasValue",
        |This(value): This<Cel>| -> Result<bool, ExecutionError> {
            let optional = maybe(&value).ok_or_else(|| no_overload("hasValue", &value))?;
            Ok(optional.value().is_some())
        },
    );
    context.add_function("value", |This(value): This<Cel>| -> ResolveResult {
        let optional = maybe(&value).ok_or_else(|| no_overload("value", &value))?;
        optional
            .value()
            .cloned()
            .ok_or_else(|| ExecutionError::function_error("value", "optional.none() dereference"))
    });
    context.add_function("or", |called: &FunctionContext<'_, '_>| {
        alternative(called, false)
    });
    context.add_function("orValue", |called: &FunctionContext<'_, '_>| {
        alternative(called, true)
    });
    context.add_function("first", |This(list): This<Cel>| match &list {
        Cel::List(items) => Ok(optional(items.first().cloned())),
        _ => Err(ExecutionError::NoSuchOverload),
    });
    context.add_function("last", |This(list): This<Cel>| match &list {
        Cel::List(items) => Ok(optional(items.last().cloned())),
        _ => Err(ExecutionError::NoSuchOverload),
    });
}

/// What is there needs no alternative, which is not even looked at.
fn alternative(called: &FunctionContext<'_, '_>, value: bool) -> ResolveResult {
    let (Some(this), Some(other)) = (&called.this, called.args.first()) else {
        return Err(ExecutionError::NoSuchOverload);
    };
    match maybe(this).map(Maybe::value) {
        Some(None) => Cel::resolve(other, called.ptx),
        Some(Some(held)) if value => Ok(held.clone()),
        _ => Ok(this.clone()),
    }
}

fn is_zero(value: &Cel) -> bool {
    match value {
        // The beginning of all years.
        Cel::Timestamp(time) => time.timestamp() == -62_135_596_800 && time.timestamp_subsec_nanos() == 0,
        // Not even an optional that holds nothing, nor an empty list of a schema.
        Cel::Opaque(_) => false,
        other => other.is_zero(),
    }
}

//! Quantities, which the engine has in another way than the reference implementation: there a quantity is an integer only if it
//! was counted in 64 bits, and none is smaller than a billionth.

use std::cmp::Ordering;
use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr};
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

use crate::quantity::Quantity;

/// What versions have, too. The engine's own are still needed for those.
const COMPARISONS: [(&str, &str, Comparison); 3] = [
    ("isGreaterThan", "@isGreaterThan", |order| {
        Cel::Bool(order.is_gt())
    }),
    ("isLessThan", "@isLessThan", |order| Cel::Bool(order.is_lt())),
    ("compareTo", "@compareTo", |order| Cel::Int(order as i64)),
];

type Comparison = fn(Ordering) -> Cel;

#[derive(Debug, PartialEq, Eq)]
struct Amount(Quantity);

impl Opaque for Amount {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.Quantity"
    }
}

/// Replaces a call whose parts are replaced already; tells whether it was one to replace.
pub(super) fn lower(expression: &mut IdedExpr) -> bool {
    let Expr::Call(call) = &mut expression.expr else {
        return false;
    };
    let ours = COMPARISONS
        .iter()
        .find(|(name, ..)| call.target.is_some() && call.func_name == *name);
    if let Some((_, ours, _)) = ours {
        (*ours).clone_into(&mut call.func_name);
    }
    ours.is_some()
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function("quantity", |text: Arc<String>| -> ResolveResult {
        let quantity = Quantity::read(&text);
        let quantity = quantity.map_err(|why| ExecutionError::function_error("quantity", why))?;
        Ok(value(quantity))
    });
    context.add_function("isQuantity", |text: Arc<String>| Quantity::parse(&text).is_some());
    context.add_function("isInteger", |This(this): This<Cel>| -> ResolveResult {
        Ok(Cel::Bool(amount(&this)?.integer().is_some()))
    });
    context.add_function("asInteger", |This(this): This<Cel>| -> ResolveResult {
        let why = || ExecutionError::function_error("asInteger", "cannot convert value to integer");
        amount(&this)?.integer().map(Cel::Int).ok_or_else(why)
    });
    context.add_function("asApproximateFloat", |This(this): This<Cel>| -> ResolveResult {
        Ok(Cel::Float(amount(&this)?.float()))
    });
    context.add_function("sign", |This(this): This<Cel>| -> ResolveResult {
        Ok(Cel::Int(amount(&this)?.cmp(&Quantity::ZERO) as i64))
    });
    context.add_function("add", |This(this): This<Cel>, other: Cel| -> ResolveResult {
        Ok(value(amount(&this)?.plus(amount_or_number(&other)?)))
    });
    context.add_function("sub", |This(this): This<Cel>, other: Cel| -> ResolveResult {
        Ok(value(amount(&this)?.minus(amount_or_number(&other)?)))
    });
    for (engines, ours, comparison) in COMPARISONS {
        context.add_function(ours, move |called: &FunctionContext<'_, '_>| {
            let this = called.this.clone().ok_or(ExecutionError::NoSuchOverload)?;
            let other = super::conversions::only_argument(called)?;
            match (amount(&this), amount(&other)) {
                (Ok(this), Ok(other)) => Ok(comparison(this.cmp(&other))),
                _ => engines_own(engines, this, other, called),
            }
        });
    }
}

fn value(quantity: Quantity) -> Cel {
    Cel::Opaque(Arc::new(Amount(quantity)))
}

fn amount(value: &Cel) -> Result<Quantity, ExecutionError> {
    let amount = match value {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Amount>(),
        _ => None,
    };
    amount
        .map(|amount| amount.0)
        .ok_or(ExecutionError::NoSuchOverload)
}

fn amount_or_number(value: &Cel) -> Result<Quantity, ExecutionError> {
    match value {
        Cel::Int(number) => Ok(Quantity::count(*number)),
        other => amount(other),
    }
}

/// Calls a method of the engine.
fn engines_own(method: &str, this: Cel, other: Cel, called: &FunctionContext<'_, '_>) -> ResolveResult {
    let mut inner = called.ptx.new_inner_scope();
    let mut variable = |name: &str, value: Cel| {
        inner.add_variable_from_value(name, value);
        IdedExpr {
            id: 0,
            expr: Expr::Ident(name.to_owned()),
        }
    };
    let call = CallExpr {
        func_name: method.to_owned(),
        target: Some(Box::new(variable("@this", this))),
        args: vec![variable("@other", other)],
    };
    inner.resolve(&IdedExpr {
        id: 0,
        expr: Expr::Call(call),
    })
}

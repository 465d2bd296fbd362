//! `all` and `exists`: one item may decide alone, even where another fails.
//!
//! The evaluator ends a loop with the first error. So what was gathered so far may be an error here, as a value, until the loop is over.

use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

const ALL: &str = "@all";
const EXISTS: &str = "@exists";
const OPEN: &str = "@open";
const VERDICT: &str = "@verdict";

/// An error that waits for the end of a loop.
#[derive(Debug)]
struct Postponed(ExecutionError);

impl PartialEq for Postponed {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for Postponed {}

impl Opaque for Postponed {
    fn runtime_type_name(&self) -> &'static str {
        "error"
    }
}

/// Replaces the parts of a loop that gathers one verdict; tells whether it was one.
pub(super) fn lower(all: &mut ComprehensionExpr) -> bool {
    let Expr::Literal(LiteralValue::Boolean(_)) = all.accu_init.expr else {
        return false;
    };
    let Expr::Call(step) = &mut all.loop_step.expr else {
        return false;
    };
    let name = match step.func_name.as_str() {
        operators::LOGICAL_AND => ALL,
        operators::LOGICAL_OR => EXISTS,
        _ => return false,
    };
    let Some(Expr::Ident(gathered)) = step.args.first().map(|first| &first.expr) else {
        return false;
    };
    if *gathered != all.accu_var {
        return false;
    }
    let call = |name: &str, of: IdedExpr| IdedExpr {
        id: 0,
        expr: Expr::Call(CallExpr {
            func_name: name.to_owned(),
            target: None,
            args: vec![of],
        }),
    };
    let gathered = || IdedExpr {
        id: 0,
        expr: Expr::Ident(all.accu_var.clone()),
    };
    let verdict = call(VERDICT, gathered());
    // Whether it is what it was in the beginning: to be decided.
    let mut open = call(OPEN, gathered());
    if let Expr::Call(open) = &mut open.expr {
        open.args.push(all.accu_init.clone());
    }
    name.clone_into(&mut step.func_name);
    all.loop_cond = open;
    all.result = verdict;
    true
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(ALL, |called: &FunctionContext<'_, '_>| gather(called, false));
    context.add_function(EXISTS, |called: &FunctionContext<'_, '_>| gather(called, true));
    context.add_function(OPEN, |gathered: Cel, first: Cel| -> ResolveResult {
        Ok(Cel::Bool(postponed(&gathered).is_some() || gathered == first))
    });
    context.add_function(VERDICT, |gathered: Cel| -> ResolveResult {
        match postponed(&gathered) {
            Some(error) => Err(error.clone()),
            None => Ok(gathered),
        }
    });
}

fn postponed(value: &Cel) -> Option<&ExecutionError> {
    match value {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Postponed>().map(|error| &error.0),
        _ => None,
    }
}

/// The verdict after one more item.
fn gather(called: &FunctionContext<'_, '_>, decides: bool) -> ResolveResult {
    let [gathered, item] = called.args else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let gathered = Cel::resolve(gathered, called.ptx)?;
    let error = match Cel::resolve(item, called.ptx) {
        Ok(Cel::Bool(value)) if value == decides => return Ok(Cel::Bool(decides)),
        Ok(Cel::Bool(_)) => return Ok(gathered),
        Ok(_) => ExecutionError::NoSuchOverload,
        Err(error) => error,
    };
    // The first error is the one that is told.
    Ok(match postponed(&gathered) {
        Some(_) => gathered,
        None => Cel::Opaque(Arc::new(Postponed(error))),
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Activation, Expression};

    #[test]
    fn one_item_decides_over_errors() {
        for (rule, wanted) in [
            ("[0, 1].exists(x, 1 / x == 1)", Ok(true)),
            ("[0, 1].all(x, 1 / x == 2)", Ok(false)),
            ("[0, 1].all(x, 1 / x == 1)", Err("division by zero")),
            ("[0, 1].exists(i, v, 1 / v == 1)", Ok(true)),
            ("[[0], [1]].exists(x, x.all(y, 1 / y == 1))", Ok(true)),
            ("[optional.of(1)].all(x, x.hasValue())", Ok(true)),
        ] {
            let found = Expression::compile(rule)
                .unwrap()
                .evaluate_bool(&Activation::default());
            assert_eq!(found, wanted.map_err(str::to_owned), "{rule}");
        }
    }
}

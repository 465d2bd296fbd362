//! The names that an expression uses without defining them.

use kube_cel::cel::{
    Context, ExecutionError, Program,
    common::ast::{EntryExpr, Expr},
};

/// The first name that is neither one of these variables, nor a variable of a loop, nor a function.
pub(super) fn unknown(
    expression: &Expr,
    variables: &[&str],
    functions: &[&str],
    context: &Context,
) -> Option<String> {
    let mut names = Names {
        scope: variables.to_vec(),
        functions,
        context,
    };
    names.walk(expression)
}

/// How deep the tree of the expression is.
pub(super) fn depth(expression: &Expr) -> usize {
    1 + parts(expression).into_iter().map(depth).max().unwrap_or_default()
}

/// Whether the expression holds something that the engine cannot run.
pub(super) fn holds_a_message(expression: &Expr) -> bool {
    matches!(expression, Expr::Struct(_) | Expr::Unspecified)
        || parts(expression).into_iter().any(holds_a_message)
}

struct Names<'a> {
    scope: Vec<&'a str>,
    functions: &'a [&'a str],
    context: &'a Context<'a>,
}

impl<'a> Names<'a> {
    fn walk(&mut self, expression: &'a Expr) -> Option<String> {
        match expression {
            Expr::Ident(name) => {
                (!self.scope.contains(&name.as_str())).then(|| format!("there is no variable {name:?}"))
            }
            Expr::Comprehension(of) => {
                if let Some(unknown) = self.walk(&of.iter_range.expr) {
                    return Some(unknown);
                }
                let depth = self.scope.len();
                self.scope.push(&of.accu_var);
                self.scope.push(&of.iter_var);
                self.scope.extend(of.iter_var2.as_deref());
                let unknown = [&of.accu_init, &of.loop_cond, &of.loop_step, &of.result]
                    .into_iter()
                    .find_map(|part| self.walk(&part.expr));
                self.scope.truncate(depth);
                unknown
            }
            Expr::Call(call) => {
                // `math.abs(x)` is one name, unless there is a variable `math`.
                let prefix = match call.target.as_deref().map(|target| &target.expr) {
                    Some(Expr::Ident(prefix)) if !self.scope.contains(&prefix.as_str()) => Some(prefix),
                    _ => None,
                };
                if let Some(prefix) = prefix {
                    let qualified = format!("{prefix}.{}", call.func_name);
                    if self.is_function(&qualified) {
                        return call.args.iter().find_map(|part| self.walk(&part.expr));
                    }
                }
                let mut parts = call.target.as_deref().into_iter().chain(&call.args);
                if let Some(unknown) = parts.find_map(|part| self.walk(&part.expr)) {
                    return Some(unknown);
                }
                let is_operator = call.func_name.starts_with(['_', '@', '!', '-']);
                (!is_operator && !self.is_function(&call.func_name))
                    .then(|| format!("there is no function {:?}", call.func_name))
            }
            other => parts(other).into_iter().find_map(|part| self.walk(part)),
        }
    }

    /// The engine does not tell its functions; called without anything it tells whether it knows one.
    fn is_function(&self, name: &str) -> bool {
        self.functions.contains(&name)
            || Program::compile(&format!("{name}()")).is_ok_and(|call| {
                !matches!(
                    call.execute(self.context),
                    Err(ExecutionError::UndeclaredReference(_))
                )
            })
    }
}

/// The expressions that an expression is made of.
pub(super) fn parts(expression: &Expr) -> Vec<&Expr> {
    match expression {
        Expr::Call(call) => {
            let parts = call.target.as_deref().into_iter().chain(&call.args);
            parts.map(|part| &part.expr).collect()
        }
        Expr::Comprehension(of) => [
            &of.iter_range,
            &of.accu_init,
            &of.loop_cond,
            &of.loop_step,
            &of.result,
        ]
        .map(|part| &part.expr)
        .to_vec(),
        Expr::List(list) => list.elements.iter().map(|part| &part.expr).collect(),
        Expr::Map(map) => {
            let entries = map.entries.iter();
            entries
                .flat_map(|entry| match &entry.expr {
                    EntryExpr::MapEntry(entry) => vec![&entry.key.expr, &entry.value.expr],
                    EntryExpr::StructField(field) => vec![&field.value.expr],
                })
                .collect()
        }
        Expr::Select(select) => vec![&select.operand.expr],
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

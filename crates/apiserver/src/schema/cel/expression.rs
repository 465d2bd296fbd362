//! One CEL expression, compiled once and evaluated with named values.

use std::cell::RefCell;
use std::fmt;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, Expr, SelectExpr};
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};
use serde_json::Value;

use super::bound::{Bound, Extent};
use super::convert;
use super::depth;
use super::described;
use super::macros;
use super::meter;

/// Longer expressions are refused before they are parsed, as there.
const MAX_LENGTH: usize = 100_000;

thread_local! {
    /// Registering the Kubernetes functions costs more than evaluating a rule, so it is done once per thread.
    static BASE: RefCell<Context<'static>> = RefCell::new(base());
}

/// The functions of Kubernetes.
fn base() -> Context<'static> {
    let mut context = Context::default().with_all();
    super::authorizer::register(&mut context);
    macros::register(&mut context);
    for register in [
        super::access::register,
        super::aggregates::register,
        super::conversions::register,
        super::described::register,
        super::equality::register,
        super::format::register,
        super::gathering::register,
        super::keyed::register,
        super::members::register,
        super::named_formats::register,
        super::optional::register,
        super::quantities::register,
        super::strings::register,
        super::sums::register,
        super::times::register,
        super::type_values::register,
        super::urls::register,
        super::verdicts::register,
    ] {
        register(&mut context);
    }
    context
}

/// Runs foreign code that panics on some inputs; to its caller that is one more error.
fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).unwrap_or_else(|_| failed())
}

fn failed<T>() -> Result<T, String> {
    Err("the expression cannot be evaluated".into())
}

/// A compiled expression.
pub struct Expression {
    source: Box<str>,
    program: IdedExpr,
    /// What the evaluator gets instead, where it cannot do with the program.
    lowered: Option<IdedExpr>,
    levels: usize,
    bound: Bound,
}

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The evaluation failed.
    Error(String),
    /// What everything together may cost is spent.
    OutOfBudget,
}

/// What the expressions of one decision may cost together.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    left: u64,
}

impl Budget {
    pub(crate) fn new(left: u64) -> Self {
        Self { left }
    }

    /// Takes what an evaluation costs. One that is too expensive by itself is an error.
    pub(super) fn spend(&mut self, expression: &Expression, activation: &Activation) -> Result<(), Failure> {
        let limit = meter::PER_CALL.min(self.left);
        match expression.cost(activation, limit) {
            Some(cost) => {
                self.left -= cost;
                Ok(())
            }
            None if limit < meter::PER_CALL => Err(Failure::OutOfBudget),
            None => Err(Failure::Error(meter::EXCEEDED.into())),
        }
    }
}

/// An evaluation that cannot cost more is not measured: policies have few expressions.
const CHEAP: u64 = 50_000;

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

/// The values an expression may name.
#[derive(Clone, Debug, Default)]
pub struct Activation {
    variables: Vec<(String, Cel)>,
    extent: Extent,
}

impl Activation {
    /// Binds a JSON value.
    pub fn bind(&mut self, name: &str, value: &Value) {
        self.extent = self.extent.or(Extent::of(value));
        self.bind_cel(name, convert::dynamic(value));
    }

    /// Binds a CEL value.
    pub(crate) fn bind_cel(&mut self, name: &str, value: Cel) {
        self.variables.retain(|(known, _)| known != name);
        self.variables.push((name.to_owned(), value));
    }

    /// Binds a CEL value that may be large.
    pub(crate) fn bind_large(&mut self, name: &str, value: Cel) {
        self.extent = self.extent.or(Extent::of_cel(&value));
        self.bind_cel(name, value);
    }
}

impl Expression {
    /// Compiles an expression.
    pub fn compile(source: &str) -> Result<Self, String> {
        Self::compile_for(source, false)
    }

    /// Compiles an expression that may name values that a schema describes.
    pub(super) fn compile_for_schema(source: &str) -> Result<Self, String> {
        Self::compile_for(source, true)
    }

    fn compile_for(source: &str, schema: bool) -> Result<Self, String> {
        let length = source.chars().count();
        if length > MAX_LENGTH {
            return Err(format!(
                "expression code point size exceeds limit: size: {length}, limit {MAX_LENGTH}"
            ));
        }
        let text = depth::readable(source)?;
        let parse = || -> Result<Self, String> {
            let mut program = Parser::new()
                .enable_optional_syntax(true)
                // It allows one more than it is told.
                .max_recursion_depth(depth::NESTED - 1)
                .parse(&text)
                .map_err(|e| e.to_string())?;
            // Before they can become more.
            depth::levels(&program)?;
            macros::expand(&mut program)?;
            let mut lowered = macros::lower(&program);
            if schema {
                described::open(lowered.get_or_insert_with(|| program.clone()));
            }
            Ok(Self {
                source: source.into(),
                levels: depth::levels(&program)?.max(lowered.as_ref().map_or(Ok(0), depth::levels)?),
                bound: Bound::of(&program),
                lowered,
                program,
            })
        };
        depth::parsing(&text, || guarded(parse)).unwrap_or_else(failed)
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Does something with what was parsed, on a stack that is large enough.
    pub(super) fn walk<T: Send>(
        &self,
        run: impl FnOnce(&IdedExpr) -> Result<T, String> + Send,
    ) -> Result<T, String> {
        depth::walking(self.levels, || run(&self.program)).unwrap_or_else(failed)
    }

    /// Whether the expression names a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.walk(|program| Ok(program.references().has_variable(variable)))
            .unwrap_or(true)
    }

    /// How expensive it can become.
    pub(super) fn bound(&self) -> Bound {
        self.bound
    }

    /// What an evaluation costs; nothing if more than the limit.
    pub(super) fn cost(&self, activation: &Activation, limit: u64) -> Option<u64> {
        let open = |(name, value): &(String, Cel)| (name.clone(), described::laid_open(value));
        let variables: Vec<_> = activation.variables.iter().map(open).collect();
        let cost = |program: &IdedExpr| Ok(meter::cost(program, &variables, limit));
        self.walk(cost).ok()?
    }

    /// The value of the expression, if there is budget for it.
    pub(crate) fn evaluate_within(
        &self,
        activation: &Activation,
        budget: &mut Budget,
    ) -> Result<Cel, Failure> {
        if self.is_measured(activation) {
            budget.spend(self, activation)?;
        }
        self.evaluate(activation).map_err(Failure::Error)
    }

    /// Whether an evaluation takes anything from a budget.
    pub(crate) fn is_measured(&self, activation: &Activation) -> bool {
        self.bound.with(activation.extent) > CHEAP
    }

    /// The value of a yes-or-no expression, if there is budget for it.
    pub(crate) fn decide_within(
        &self,
        activation: &Activation,
        budget: &mut Budget,
    ) -> Result<bool, Failure> {
        boolean(&self.evaluate_within(activation, budget)?).map_err(Failure::Error)
    }

    /// The value of the expression.
    pub(crate) fn evaluate(&self, activation: &Activation) -> Result<Cel, String> {
        self.walk(|program| {
            BASE.with_borrow(|base| {
                let mut context = base.new_inner_scope();
                for (name, value) in &activation.variables {
                    context.add_variable_from_value(name.as_str(), value.clone());
                }
                let program = self.lowered.as_ref().unwrap_or(program);
                guarded(|| context.resolve(program).map_err(|e| describe(&e)))
            })
        })
    }

    /// The value of a yes-or-no expression.
    pub fn evaluate_bool(&self, activation: &Activation) -> Result<bool, String> {
        boolean(&self.evaluate(activation)?)
    }

    /// The value of a text expression, if there is budget for it.
    pub(crate) fn text_within(
        &self,
        activation: &Activation,
        budget: &mut Budget,
    ) -> Result<String, Failure> {
        text(self.evaluate_within(activation, budget)?).map_err(Failure::Error)
    }

    /// The value of a text expression.
    pub fn evaluate_string(&self, activation: &Activation) -> Result<String, String> {
        text(self.evaluate(activation)?)
    }
}

fn text(value: Cel) -> Result<String, String> {
    match value {
        Cel::String(value) => Ok(value.to_string()),
        other => Err(format!("expected string, got {}", other.type_of())),
    }
}

impl Drop for Expression {
    /// Taking it apart is recursive, too.
    fn drop(&mut self) {
        let nothing = || IdedExpr {
            id: 0,
            expr: Expr::Unspecified,
        };
        let parts = (
            std::mem::replace(&mut self.program, nothing()),
            self.lowered.take(),
        );
        depth::walking(self.levels, || drop(parts));
    }
}

fn boolean(value: &Cel) -> Result<bool, String> {
    match value {
        Cel::Bool(value) => Ok(*value),
        other => Err(format!("expected bool, got {}", other.type_of())),
    }
}

/// Calls a function with values: the first is what it is called on, if it is called on one.
pub(super) fn call(called: &CallExpr, on_value: bool, values: &[Cel]) -> Result<Cel, String> {
    let mut idents = (0..values.len()).map(|at| IdedExpr {
        id: 0,
        expr: Expr::Ident(format!("@{at}")),
    });
    let target = if on_value {
        idents.next().map(Box::new)
    } else {
        called.target.clone()
    };
    let program = Expr::Call(CallExpr {
        func_name: called.func_name.clone(),
        target,
        args: idents.collect(),
    });
    evaluate(program, values)
}

/// A field of a value, or whether it has it.
pub(super) fn select(of: &Cel, select: &SelectExpr) -> Result<Cel, String> {
    let program = Expr::Select(SelectExpr {
        operand: Box::new(IdedExpr {
            id: 0,
            expr: Expr::Ident("@0".to_owned()),
        }),
        field: select.field.clone(),
        test: select.test,
    });
    evaluate(program, std::slice::from_ref(of))
}

/// Evaluates what names the values `@0`, `@1` and so on.
fn evaluate(expr: Expr, values: &[Cel]) -> Result<Cel, String> {
    let mut program = IdedExpr { id: 0, expr };
    macros::rewrite(&mut program, false);
    BASE.with_borrow(|base| {
        let mut context = base.new_inner_scope();
        for (at, value) in values.iter().enumerate() {
            context.add_variable_from_value(format!("@{at}"), value.clone());
        }
        guarded(|| context.resolve(&program).map_err(|e| describe(&e)))
    })
}

/// An evaluation error in the words of the reference implementation, where they differ.
pub(super) fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..) => "no such overload".into(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        ExecutionError::DivisionByZero(_) => "division by zero".into(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".into(),
        ExecutionError::Overflow(_, Cel::UInt(_), _) => "unsigned integer overflow".into(),
        ExecutionError::Overflow(..) => "integer overflow".into(),
        ExecutionError::FunctionError { message, .. } => message.clone(),
        other => other.to_string(),
    }
}

//! One CEL expression, compiled once and evaluated with named values.

use std::cell::RefCell;
use std::fmt;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, ExecutionError, IdedExpr, Value as Cel};
use serde_json::Value;

use super::convert;

/// Longer expressions are refused: evaluation has no cost meter, so the text is bounded.
const MAX_LENGTH: usize = 16 * 1024;

thread_local! {
    /// Registering the Kubernetes functions costs more than evaluating a rule, so it is done once per thread.
    static BASE: RefCell<Context<'static>> = RefCell::new(base());
}

/// The functions of Kubernetes.
fn base() -> Context<'static> {
    let mut context = Context::default().with_all();
    super::authorizer::register(&mut context);
    context
}

/// Runs foreign code that panics on some inputs; to its caller that is one more error.
fn guarded<T>(run: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run))
        .unwrap_or_else(|_| Err("the expression cannot be evaluated".into()))
}

/// A compiled expression.
pub struct Expression {
    source: Box<str>,
    program: IdedExpr,
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.source).finish()
    }
}

/// The values an expression may name.
#[derive(Clone, Debug, Default)]
pub struct Activation {
    variables: Vec<(String, Cel)>,
}

impl Activation {
    /// Binds a JSON value.
    pub fn bind(&mut self, name: &str, value: &Value) {
        self.bind_cel(name, convert::dynamic(value));
    }

    /// Binds a CEL value.
    pub(crate) fn bind_cel(&mut self, name: &str, value: Cel) {
        self.variables.push((name.to_owned(), value));
    }
}

impl Expression {
    /// Compiles an expression.
    pub fn compile(source: &str) -> Result<Self, String> {
        if source.len() > MAX_LENGTH {
            return Err(format!("expression is longer than {MAX_LENGTH} bytes"));
        }
        let parse = || Parser::new().enable_optional_syntax(true).parse(source);
        let program = guarded(|| parse().map_err(|e| e.to_string()))?;
        Ok(Self {
            source: source.into(),
            program,
        })
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn ast(&self) -> &IdedExpr {
        &self.program
    }

    /// Whether the expression names a variable.
    pub fn uses(&self, variable: &str) -> bool {
        self.program.references().has_variable(variable)
    }

    /// The value of the expression.
    pub(crate) fn evaluate(&self, activation: &Activation) -> Result<Cel, String> {
        BASE.with_borrow(|base| {
            let mut context = base.new_inner_scope();
            for (name, value) in &activation.variables {
                context.add_variable_from_value(name.as_str(), value.clone());
            }
            guarded(|| context.resolve(&self.program).map_err(|e| describe(&e)))
        })
    }

    /// The value of a yes-or-no expression.
    pub fn evaluate_bool(&self, activation: &Activation) -> Result<bool, String> {
        match self.evaluate(activation)? {
            Cel::Bool(value) => Ok(value),
            other => Err(format!("expected bool, got {}", other.type_of())),
        }
    }

    /// The value of a text expression.
    pub fn evaluate_string(&self, activation: &Activation) -> Result<String, String> {
        match self.evaluate(activation)? {
            Cel::String(value) => Ok(value.to_string()),
            other => Err(format!("expected string, got {}", other.type_of())),
        }
    }
}

/// An evaluation error in the words of the reference implementation, where they differ.
fn describe(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::NoSuchOverload => "no such overload".into(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        ExecutionError::DivisionByZero(_) => "division by zero".into(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".into(),
        ExecutionError::Overflow(..) => "integer overflow".into(),
        other => other.to_string(),
    }
}

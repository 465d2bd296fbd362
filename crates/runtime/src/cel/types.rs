//! What is wrong with an expression whatever it is run with: fields that a schema does not have, and an outcome that is
//! never true or false. Where nothing is known, nothing is said.

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, LiteralValue, operators};
use serde_json::Value;

/// The first mistake in an expression about one variable that has this schema, in the words of a definition's.
pub(super) fn mistake(expression: &Expr, variable: &str, schema: &Value) -> Option<String> {
    let mut types = Types {
        scope: vec![(variable, Type::Schema(schema))],
    };
    match types.of(expression) {
        Ok(outcome) if outcome.is_bool() == Some(false) => Some("it is never true or false".into()),
        Ok(_) => None,
        Err(mistake) => Some(mistake),
    }
}

/// What is known of a value before the expression runs.
#[derive(Clone, Copy)]
enum Type<'a> {
    Schema(&'a Value),
    Bool,
    /// Neither true nor false.
    Other,
    Any,
}

impl Type<'_> {
    fn is_bool(self) -> Option<bool> {
        match self {
            Self::Schema(schema) => Some(schema.get("type")? == "boolean"),
            Self::Bool => Some(true),
            Self::Other => Some(false),
            Self::Any => None,
        }
    }

    fn field(self, name: &str) -> Result<Self, String> {
        let Self::Schema(schema) = self else {
            return Ok(Self::Any);
        };
        let properties = schema.get("properties");
        if let Some(field) = properties.and_then(|fields| fields.get(name)) {
            return Ok(Self::Schema(field));
        }
        let open = schema.get("x-kubernetes-preserve-unknown-fields").is_some();
        match schema.get("type").and_then(Value::as_str) {
            Some("object") if properties.is_some() && !open => {}
            Some("object") | None => return Ok(self.element()),
            Some(_) => {}
        }
        Err(format!("there is no field {name:?}"))
    }

    /// What a list or a map holds.
    fn element(self) -> Self {
        let Self::Schema(schema) = self else {
            return Self::Any;
        };
        let element = schema.get("items").or_else(|| schema.get("additionalProperties"));
        element.filter(|e| e.is_object()).map_or(Self::Any, Self::Schema)
    }

    fn is_list(self) -> bool {
        matches!(self, Self::Schema(schema) if schema.get("items").is_some())
    }
}

struct Types<'a> {
    scope: Vec<(&'a str, Type<'a>)>,
}

impl<'a> Types<'a> {
    fn of(&mut self, expression: &'a Expr) -> Result<Type<'a>, String> {
        match expression {
            Expr::Ident(name) => {
                let known = self.scope.iter().rev().find(|(known, _)| known == name);
                Ok(known.map_or(Type::Any, |(_, type_)| *type_))
            }
            Expr::Literal(LiteralValue::Boolean(_)) => Ok(Type::Bool),
            Expr::Literal(_) => Ok(Type::Other),
            Expr::Select(select) => {
                let field = self.of(&select.operand.expr)?.field(&select.field)?;
                Ok(if select.test { Type::Bool } else { field })
            }
            Expr::List(_) | Expr::Map(_) => {
                for part in super::names::parts(expression) {
                    self.of(part)?;
                }
                Ok(Type::Other)
            }
            Expr::Call(call) => self.of_call(call),
            Expr::Comprehension(of) => self.of_loop(of),
            Expr::Struct(_) | Expr::Unspecified => Ok(Type::Any),
        }
    }

    fn of_call(&mut self, call: &'a CallExpr) -> Result<Type<'a>, String> {
        let mut parts = Vec::new();
        for part in call.target.as_deref().into_iter().chain(&call.args) {
            parts.push(self.of(&part.expr)?);
        }
        Ok(match (call.func_name.as_str(), parts.as_slice()) {
            (operators::CONDITIONAL, [_, yes, no]) => match (yes.is_bool(), no.is_bool()) {
                (Some(true), Some(true)) => Type::Bool,
                (Some(false), Some(false)) => Type::Other,
                _ => Type::Any,
            },
            (operators::INDEX, [of, _]) => match call.args.get(1).map(|key| &key.expr) {
                Some(Expr::Literal(LiteralValue::String(name))) => of.field(name.inner())?,
                _ => of.element(),
            },
            (
                operators::LOGICAL_AND
                | operators::LOGICAL_OR
                | operators::LOGICAL_NOT
                | operators::EQUALS
                | operators::NOT_EQUALS
                | operators::GREATER
                | operators::GREATER_EQUALS
                | operators::LESS
                | operators::LESS_EQUALS
                | operators::IN
                | operators::NOT_STRICTLY_FALSE,
                _,
            ) => Type::Bool,
            (
                operators::ADD
                | operators::SUBSTRACT
                | operators::MULTIPLY
                | operators::DIVIDE
                | operators::MODULO
                | operators::NEGATE
                | "size"
                | "int"
                | "uint"
                | "double"
                | "string",
                _,
            ) => Type::Other,
            _ => Type::Any,
        })
    }

    fn of_loop(&mut self, of: &'a ComprehensionExpr) -> Result<Type<'a>, String> {
        let range = self.of(&of.iter_range.expr)?;
        let start = self.of(&of.accu_init.expr)?;
        let depth = self.scope.len();
        // Of two variables the second is the element; of a map, one alone is the key.
        let first = if of.iter_var2.is_none() && range.is_list() {
            range.element()
        } else {
            Type::Any
        };
        self.scope.push((&of.accu_var, start));
        self.scope.push((&of.iter_var, first));
        if let Some(second) = &of.iter_var2 {
            self.scope.push((second, range.element()));
        }
        let mut run = || {
            self.of(&of.loop_cond.expr)?;
            self.of(&of.loop_step.expr)?;
            self.of(&of.result.expr)
        };
        let outcome = run();
        self.scope.truncate(depth);
        outcome
    }
}

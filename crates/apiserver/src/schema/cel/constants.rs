//! What is computed once, before an expression is ever evaluated: conversions of constants, and patterns.
//!
//! The reference implementation does so when it makes a program of an expression whose types are right, and what cannot be
//! computed is no program.

use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

use super::Expression;
use super::expression;
use super::{keyed, macros, qualifiers, type_values};

/// Functions of one value that are computed if the value is a constant.
const CONVERSIONS: [&str; 10] = [
    "bool",
    "bytes",
    "double",
    "duration",
    "dyn",
    "int",
    "string",
    "timestamp",
    "type",
    "uint",
];

impl Expression {
    /// Whether all can be computed that is computed beforehand.
    pub(crate) fn instantiate(&self) -> Result<(), String> {
        let failed = |why| format!("program instantiation failed: {why}");
        self.walk(|program| fold(&mut program.clone()).map(|_| ()).map_err(failed))
    }
}

/// The value of a constant; nothing if it is none.
fn fold(expression: &mut IdedExpr) -> Result<Option<Cel>, String> {
    match &mut expression.expr {
        Expr::Literal(literal) => Ok(Cel::try_from(literal.to_val().as_ref()).ok()),
        Expr::List(list) if list.optional_indices.is_empty() => {
            let mut items = Some(Vec::new());
            for element in &mut list.elements {
                let item = fold(element)?;
                items = items.zip(item).map(|(mut items, item)| {
                    items.push(item);
                    items
                });
            }
            Ok(items.map(|items| Cel::List(Arc::new(items))))
        }
        Expr::Map(map) => {
            let mut entries = Some(keyed::Entries::new());
            for entry in &mut map.entries {
                let EntryExpr::MapEntry(entry) = &mut entry.expr else {
                    continue;
                };
                let (key, value) = (fold(&mut entry.key)?, fold(&mut entry.value)?);
                let constant = key.zip(value).filter(|_| !entry.optional);
                entries = entries.zip(constant).map(|(mut entries, constant)| {
                    entries.push(constant);
                    entries
                });
            }
            Ok(entries.map(keyed::map))
        }
        Expr::Ident(name) => Ok(type_values::value(name)),
        Expr::Call(call) => self::call(call),
        _ => {
            for part in macros::below(expression) {
                fold(part)?;
            }
            Ok(None)
        }
    }
}

fn call(call: &mut CallExpr) -> Result<Option<Cel>, String> {
    if let Some(target) = &mut call.target {
        fold(target)?;
    }
    let mut arguments = Vec::new();
    for argument in &mut call.args {
        arguments.push(fold(argument)?);
    }
    match (call.func_name.as_str(), &call.target, arguments.as_slice()) {
        (name, None, [Some(value)]) if CONVERSIONS.contains(&name) => {
            expression::call(call, false, std::slice::from_ref(value)).map(Some)
        }
        (operators::INDEX | operators::OPT_INDEX, None, [_, Some(by)]) => {
            qualifiers::check_value(by).map_err(|why| expression::describe(&why))?;
            Ok(None)
        }
        ("find" | "findAll" | "matches", _, [Some(Cel::String(pattern)), ..])
        | ("matches", None, [_, Some(Cel::String(pattern))]) => {
            self::pattern(pattern)?;
            Ok(None)
        }
        _ => Ok(None),
    }
}

/// Whether a pattern is one.
pub(super) fn pattern(pattern: &str) -> Result<(), String> {
    let Err(problem) = regex::Regex::new(pattern) else {
        return Ok(());
    };
    let text = problem.to_string();
    let why = text.lines().last().unwrap_or_default();
    Err(format!(
        "error parsing regexp: {}",
        why.trim_start_matches("error: ")
    ))
}

/// The pattern that a call of `matches` is given as it stands there.
pub(super) fn literal_pattern(call: &CallExpr) -> Option<&str> {
    match call.args.last().map(|argument| &argument.expr) {
        Some(Expr::Literal(LiteralValue::String(pattern))) if call.func_name == "matches" => {
            Some(pattern.inner())
        }
        _ => None,
    }
}

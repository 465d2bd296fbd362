//! Types as values: `type(a)`, `int`, `google.protobuf.Duration`.

use std::sync::Arc;

use kube_cel::cel::common::ast::{Expr, SelectExpr};
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ResolveResult, Value as Cel};

use super::keyed;

/// Words that name types.
const TYPES: [&str; 13] = [
    "bool",
    "bytes",
    "double",
    "google.protobuf.Duration",
    "google.protobuf.Timestamp",
    "int",
    "list",
    "map",
    "null_type",
    "optional_type",
    "string",
    "type",
    "uint",
];

/// The word that names a type, if it does.
pub(super) fn named(word: &str) -> Option<&'static str> {
    TYPES.into_iter().find(|name| *name == word)
}

/// The type that a path of names stands for, if it is one.
pub(super) fn qualified(select: &SelectExpr) -> Option<&'static str> {
    let Expr::Select(outer) = &select.operand.expr else {
        return None;
    };
    let google = matches!(&outer.operand.expr, Expr::Ident(name) if name == "google");
    match select.field.as_str() {
        _ if !google || outer.field != "protobuf" || select.test => None,
        "Duration" => Some("google.protobuf.Duration"),
        "Timestamp" => Some("google.protobuf.Timestamp"),
        _ => None,
    }
}

/// The type that a word names, as a value.
pub(super) fn value(word: &str) -> Option<Cel> {
    named(word).map(type_value)
}

fn type_value(name: &str) -> Cel {
    Cel::Opaque(Arc::new(TypeName(name.to_owned())))
}

/// A type as a value.
#[derive(Debug, PartialEq, Eq)]
struct TypeName(String);

impl Opaque for TypeName {
    fn runtime_type_name(&self) -> &'static str {
        "type"
    }
}

/// What the type is called that a value is; nothing if the value is no type.
pub(super) fn named_by(value: &Cel) -> Option<&str> {
    match value {
        Cel::Opaque(opaque) => opaque.downcast_ref::<TypeName>().map(|name| name.0.as_str()),
        _ => None,
    }
}

/// What the type of a value is called.
pub(super) fn name(value: &Cel) -> &str {
    match value {
        Cel::Null => "null_type",
        Cel::Bool(_) => "bool",
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        map if keyed::is(map) => "map",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Opaque(opaque) => opaque.runtime_type_name(),
        Cel::Function(..) => "function",
    }
}

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function("type", |value: Cel| -> ResolveResult {
        Ok(type_value(name(&value)))
    });
    for name in TYPES {
        context.add_variable_from_value(name, type_value(name));
    }
}

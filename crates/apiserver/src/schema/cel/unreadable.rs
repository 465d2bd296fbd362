//! Values that are not as their schema says, and yet are there: they are counted, but whoever reads one fails.
//!
//! A whole float is valid where an integer belongs, and is none. And the reference implementation reads all items of a list by
//! the schema of the list again, also those that an expression added: a list or a map that an expression made is no list and no
//! map of a schema, nor is a time a text.

use std::sync::Arc;

use kube_cel::cel::common::value::Val;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{ExecutionError, Value as Cel};

use super::super::node::{Node, Type};
use super::described::Described;

const TYPE: &str = "@unreadable";

/// What the items of a list are read as.
#[derive(Clone, Copy, Debug)]
pub(super) enum Items {
    Lists,
    Objects,
    Texts,
    /// Whole numbers and the like, which are what they are.
    Others,
}

impl Items {
    pub(super) fn of(node: &Node) -> Self {
        match node.ty {
            Type::Array => Self::Lists,
            Type::Object => Self::Objects,
            Type::String => Self::Texts,
            _ => Self::Others,
        }
    }

    /// An item as it is found when it is read again.
    pub(super) fn added(self, item: &Cel) -> Cel {
        let why = match (self, item, Described::of(item)) {
            (Self::Lists, _, Some(Described::List(..)))
            | (Self::Objects, _, Some(Described::Object(_)))
            | (Self::Texts, Cel::String(_), _)
            | (Self::Others, ..) => return item.clone(),
            (Self::Lists, ..) => "an array for the provided schema with type=array".to_owned(),
            (Self::Objects, ..) => "a map for the provided schema with type=object".to_owned(),
            (Self::Texts, item, _) => format!("string, got {}", internal_name(item)),
        };
        value(&why)
    }
}

/// What is something else than was `expected`.
pub(super) fn value(expected: &str) -> Cel {
    Cel::Opaque(Arc::new(Unreadable(format!("invalid data, expected {expected}"))))
}

/// What the reference implementation holds inside of a value.
fn internal_name(value: &Cel) -> &'static str {
    match value {
        Cel::Bool(_) => "bool",
        Cel::Bytes(_) => "[]uint8",
        Cel::Duration(_) => "time.Duration",
        Cel::Float(_) => "float64",
        Cel::Int(_) => "int64",
        Cel::List(_) => "[]ref.Val",
        Cel::Map(_) => "map[ref.Val]ref.Val",
        Cel::Null => "structpb.NullValue",
        Cel::Timestamp(_) => "time.Time",
        Cel::UInt(_) => "uint64",
        _ => "ref.Val",
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Unreadable(String);

impl Opaque for Unreadable {
    fn runtime_type_name(&self) -> &'static str {
        TYPE
    }
}

/// Fails for what cannot be read.
pub(super) fn read(value: &Cel) -> Result<(), ExecutionError> {
    let found = match value {
        Cel::Opaque(opaque) => opaque.downcast_ref::<Unreadable>(),
        _ => None,
    };
    match found {
        Some(Unreadable(why)) => Err(ExecutionError::function_error(TYPE, why)),
        None => Ok(()),
    }
}

/// Whether that is why something failed.
pub(super) fn caused(error: &ExecutionError) -> bool {
    matches!(error, ExecutionError::FunctionError { function, .. } if function == TYPE)
}

/// The same of a value as the evaluator has it.
pub(super) fn read_val(value: &dyn Val) -> Result<(), ExecutionError> {
    if value.get_type().name() != TYPE {
        return Ok(());
    }
    read(&Cel::try_from(value)?)
}

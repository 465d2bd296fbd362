//! JSON to CEL values. The schema decides what is an integer, a time or a field name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, Program, Value as Cel};
use serde_json::Value;

use super::super::node::{Additional, Arena, ListType, Node, NodeId, Type};
use super::described::{Described, Identity};
use super::unreadable::{self, Items};

/// Without a schema: numbers are what JSON says they are.
pub(crate) fn dynamic(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(b) => Cel::Bool(*b),
        Value::Number(n) => match (n.as_i64(), n.as_u64()) {
            (Some(i), _) => Cel::Int(i),
            (None, Some(u)) => Cel::UInt(u),
            _ => Cel::Float(n.as_f64().unwrap_or_default()),
        },
        Value::String(text) => string(text),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(dynamic).collect())),
        Value::Object(map) => Cel::Map(Map {
            map: Arc::new(fields(map.iter().map(|(k, v)| (k.clone(), dynamic(v))))),
        }),
    }
}

/// With a schema: fields have escaped names, times are times.
pub(super) fn typed(arena: &Arena, id: NodeId, value: &Value) -> Cel {
    let node = arena.get(id);
    match value {
        Value::Number(n) if node.ty == Type::Number => Cel::Float(n.as_f64().unwrap_or_default()),
        Value::Number(n) if node.ty == Type::Integer => {
            // A whole float is valid, and yet no integer.
            n.as_i64()
                .map_or_else(|| unreadable::value("int, got float64"), Cel::Int)
        }
        Value::String(text) => formatted(node, text),
        Value::Array(list) => match node.items {
            Some(items) => {
                let identity = match node.list_type {
                    ListType::Atomic => Identity::Place,
                    ListType::Set => Identity::Item(Arc::new(list.iter().map(dynamic).collect())),
                    ListType::Map => Identity::fields(&node.map_keys),
                };
                let kind = Items::of(arena.get(items));
                let items = list.iter().map(|item| typed(arena, items, item)).collect();
                Described::List(identity, kind, Arc::new(items)).into()
            }
            None => dynamic(value),
        },
        Value::Object(map) => {
            let structure = !node.properties.is_empty() || node.embedded_resource;
            let fields = fields(map.iter().flat_map(|(name, value)| {
                match (node.property(name), node.additional) {
                    // A property that is null is none, though an item or a value of a map is.
                    (Some(_), _) if value.is_null() => vec![],
                    (Some(id), _) => {
                        let value = typed(arena, id, value);
                        // A reserved word is a good field name too, in a selector: `self.namespace`.
                        let plain = reserved(name).then(|| (name.clone(), value.clone()));
                        escape(name)
                            .map(|name| (name, value))
                            .into_iter()
                            .chain(plain)
                            .collect::<Vec<_>>()
                    }
                    (None, Additional::Schema(id)) => vec![(name.clone(), typed(arena, id, value))],
                    (None, _)
                        if structure && !matches!(name.as_str(), "apiVersion" | "kind" | "metadata") =>
                    {
                        vec![]
                    }
                    (None, _) => vec![(name.clone(), dynamic(value))],
                }
            }));
            Described::Object(Arc::new(fields)).into()
        }
        _ => dynamic(value),
    }
}

fn string(text: &str) -> Cel {
    Cel::String(Arc::new(text.to_owned()))
}

fn fields(fields: impl Iterator<Item = (String, Cel)>) -> HashMap<Key, Cel> {
    fields
        .map(|(name, value)| (Key::String(Arc::new(name)), value))
        .collect()
}

static TIMESTAMP: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("timestamp(text)").ok());
static DURATION: LazyLock<Option<Program>> = LazyLock::new(|| Program::compile("duration(text)").ok());

fn formatted(node: &Node, text: &str) -> Cel {
    let parse = |program: &Option<Program>, text: &str| {
        let mut context = Context::default();
        context.add_variable_from_value("text", text.to_owned());
        program.as_ref().and_then(|p| p.execute(&context).ok())
    };
    let parsed = match node.checks.as_deref().and_then(|c| c.format.as_deref()) {
        Some("date-time" | "datetime") => parse(&TIMESTAMP, text),
        Some("date") => parse(&TIMESTAMP, &format!("{text}T00:00:00Z")),
        Some("duration") => parse(&DURATION, text),
        Some("byte") => STANDARD
            .decode(text)
            .ok()
            .map(|bytes| Cel::Bytes(Arc::new(bytes))),
        _ => None,
    };
    parsed.unwrap_or_else(|| string(text))
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// Whether CEL has reserved the word: as a field name it is escaped, but may be selected unescaped as well.
pub(crate) fn reserved(name: &str) -> bool {
    RESERVED.contains(&name)
}

/// A field name as CEL identifier; names that CEL cannot spell are not visible to rules.
pub(super) fn escape(name: &str) -> Option<String> {
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    if reserved(name) {
        return Some(format!("__{name}__"));
    }
    if !name
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c))
    {
        return None;
    }
    Some(
        name.replace("__", "__underscores__")
            .replace('.', "__dot__")
            .replace('-', "__dash__")
            .replace('/', "__slash__"),
    )
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_escaped() {
        for (name, escaped) in [
            ("a", Some("a")),
            ("a-b.c/d", Some("a__dash__b__dot__c__slash__d")),
            ("namespace", Some("__namespace__")),
            ("a__b", Some("a__underscores__b")),
            ("1a", None),
            ("a b", None),
        ] {
            assert_eq!(super::escape(name).as_deref(), escaped, "{name}");
        }
    }
}

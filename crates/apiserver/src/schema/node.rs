//! The compiled form of a schema: nodes in one arena, so that recursive built-in types need no copies.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::cel::Rule;
use super::normalize::Presence;

/// A node's place in its arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(pub(super) u32);

/// The JSON type a node asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Type {
    /// No type given: anything goes.
    #[default]
    Any,
    Object,
    Array,
    String,
    Integer,
    Number,
    Boolean,
}

impl Type {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Any => "",
            Self::Object => "object",
            Self::Array => "array",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Number => "number",
            Self::Boolean => "boolean",
        }
    }

    fn parse(text: Option<&str>) -> Self {
        match text {
            Some("object") => Self::Object,
            Some("array") => Self::Array,
            Some("string") => Self::String,
            Some("integer") => Self::Integer,
            Some("number") => Self::Number,
            Some("boolean") => Self::Boolean,
            _ => Self::Any,
        }
    }
}

/// How the items of a list are told apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ListType {
    /// Nothing said: the list is one value.
    #[default]
    Atomic,
    /// Items are scalars, each at most once.
    Set,
    /// Items are objects with a key.
    Map,
}

/// What may stand beside the named properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Additional {
    /// Nothing said.
    #[default]
    None,
    /// `additionalProperties: false`.
    Denied,
    /// `additionalProperties: true`.
    Anything,
    /// Every other property follows this schema.
    Schema(NodeId),
}

/// One place in a schema.
#[derive(Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are the flags of the schema language"
)]
pub(crate) struct Node {
    pub(crate) ty: Type,
    pub(crate) nullable: bool,
    pub(crate) preserve_unknown: bool,
    pub(crate) int_or_string: bool,
    pub(crate) embedded_resource: bool,
    pub(crate) atomic_map: bool,
    pub(crate) list_type: ListType,
    /// Sorted by name.
    pub(crate) properties: Box<[(Box<str>, NodeId)]>,
    pub(crate) additional: Additional,
    pub(crate) items: Option<NodeId>,
    pub(crate) map_keys: Box<[Box<str>]>,
    pub(crate) default: Option<Box<Value>>,
    pub(crate) checks: Option<Box<Checks>>,
    pub(crate) patch: Option<Box<PatchHints>>,
    pub(crate) rules: Box<[Rule]>,
    /// How the fields of a built-in type are written out; others as they were given.
    pub(crate) presence: Box<[(Box<str>, Presence)]>,
}

/// Strategic merge hints of built-in types.
#[derive(Debug, Default, Clone)]
pub(crate) struct PatchHints {
    pub(crate) merge: bool,
    pub(crate) merge_key: Option<Box<str>>,
    /// The fields of this type that are not merged with what a patch says of them.
    pub(crate) replaced: Box<[Box<str>]>,
}

/// Value validations; most nodes have none.
#[derive(Debug, Default)]
pub(crate) struct Checks {
    pub(crate) format: Option<Box<str>>,
    pub(crate) required: Box<[Box<str>]>,
    pub(crate) enumeration: Option<Box<[Value]>>,
    pub(crate) maximum: Option<(f64, bool)>,
    pub(crate) minimum: Option<(f64, bool)>,
    pub(crate) multiple_of: Option<f64>,
    pub(crate) max_length: Option<i64>,
    pub(crate) min_length: Option<i64>,
    pub(crate) pattern: Option<(Box<str>, Arc<regex::Regex>)>,
    pub(crate) max_items: Option<i64>,
    pub(crate) min_items: Option<i64>,
    pub(crate) unique_items: bool,
    pub(crate) max_properties: Option<i64>,
    pub(crate) min_properties: Option<i64>,
    pub(crate) all_of: Box<[NodeId]>,
    pub(crate) any_of: Box<[NodeId]>,
    pub(crate) one_of: Box<[NodeId]>,
    pub(crate) not: Option<NodeId>,
}

impl Node {
    /// The schema of a named property, or of any other property.
    pub(crate) fn field(&self, name: &str) -> Option<NodeId> {
        self.property(name).or(match self.additional {
            Additional::Schema(id) => Some(id),
            _ => None,
        })
    }

    /// The schema of a named property.
    pub(crate) fn property(&self, name: &str) -> Option<NodeId> {
        let i = self
            .properties
            .binary_search_by(|(n, _)| n.as_ref().cmp(name))
            .ok()?;
        self.properties.get(i).map(|(_, id)| *id)
    }
}

/// The nodes of one schema, or of all built-in ones.
#[derive(Debug, Default)]
pub(crate) struct Arena {
    nodes: Vec<Node>,
}

static EMPTY: std::sync::LazyLock<Node> = std::sync::LazyLock::new(Node::default);

impl Arena {
    /// The node; an id from another arena reads as "anything".
    pub(crate) fn get(&self, id: NodeId) -> &Node {
        self.nodes.get(id.0 as usize).unwrap_or(&EMPTY)
    }

    /// A place for a node that is filled in later.
    pub(super) fn reserve(&mut self) -> NodeId {
        self.nodes.push(Node::default());
        NodeId(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
    }

    pub(super) fn set(&mut self, id: NodeId, node: Node) {
        if let Some(slot) = self.nodes.get_mut(id.0 as usize) {
            *slot = node;
        }
    }
}

/// Turns OpenAPI JSON into nodes. `resolve` answers `$ref`s.
pub(super) struct Builder<'a, 'd> {
    pub(super) arena: &'a mut Arena,
    pub(super) resolve: &'a dyn Fn(&str) -> Option<(NodeId, &'d Value)>,
    pub(super) problems: Vec<(String, String)>,
}

/// Deeper schemas are refused; the real server's decoder stops earlier.
const MAX_DEPTH: usize = 128;

impl Builder<'_, '_> {
    pub(super) fn build(&mut self, schema: &Value, path: &str, depth: usize) -> NodeId {
        // A `$ref` is wrapped in a one-element allOf when it carries a default or description.
        let reference = schema.get("$ref").or_else(|| {
            match schema.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
                Some([only]) => only.get("$ref"),
                _ => None,
            }
        });
        if let Some((id, definition)) = reference.and_then(Value::as_str).and_then(|r| (self.resolve)(r)) {
            // Beside a reference may stand that this one is owned by its fields, though others are owned as a whole.
            return match (schema.get("x-kubernetes-map-type"), definition.as_object()) {
                (Some(map_type), Some(definition)) => {
                    let mut definition = definition.clone();
                    definition.insert("x-kubernetes-map-type".into(), map_type.clone());
                    self.build(&definition.into(), path, depth)
                }
                _ => id,
            };
        }
        let id = self.arena.reserve();
        let node = self.node(schema, path, depth);
        self.arena.set(id, node);
        id
    }

    pub(super) fn node(&mut self, schema: &Value, path: &str, depth: usize) -> Node {
        let Some(map) = schema.as_object() else {
            return Node::default();
        };
        if depth > MAX_DEPTH {
            self.problems
                .push((path.to_owned(), "schema is nested too deeply".into()));
            return Node::default();
        }
        let flag = |name: &str| map.get(name).and_then(Value::as_bool).unwrap_or(false);
        let strings = |name: &str| -> Box<[Box<str>]> {
            map.get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(Into::into)
                .collect()
        };
        let mut properties: Vec<(Box<str>, NodeId)> = Vec::new();
        if let Some(children) = map.get("properties").and_then(Value::as_object) {
            for (name, child) in children {
                let path = format!("{path}.properties[{name}]");
                properties.push((name.as_str().into(), self.build(child, &path, depth + 1)));
            }
        }
        properties.sort_by(|a, b| a.0.cmp(&b.0));
        let additional = match map.get("additionalProperties") {
            None | Some(Value::Null) => Additional::None,
            Some(Value::Bool(true)) => Additional::Anything,
            Some(Value::Bool(false)) => Additional::Denied,
            Some(schema) => {
                Additional::Schema(self.build(schema, &format!("{path}.additionalProperties"), depth + 1))
            }
        };
        let items = map
            .get("items")
            .filter(|i| i.is_object())
            .map(|i| self.build(i, &format!("{path}.items"), depth + 1));
        let strategy = map.get("x-kubernetes-patch-strategy").and_then(Value::as_str);
        let merge_key = map.get("x-kubernetes-patch-merge-key").and_then(Value::as_str);
        // Of a field that is a reference, the type itself says nothing.
        let is_replaced = |field: &Value| {
            let strategy = field.get("x-kubernetes-patch-strategy");
            strategy.and_then(Value::as_str) == Some("replace")
        };
        let fields = map.get("properties").and_then(Value::as_object);
        let replaced: Box<[Box<str>]> = fields
            .into_iter()
            .flatten()
            .filter(|(_, field)| is_replaced(field))
            .map(|(name, _)| name.as_str().into())
            .collect();
        let has_hints = strategy.is_some() || merge_key.is_some() || !replaced.is_empty();
        let hints = has_hints.then(|| {
            let strategy = strategy.unwrap_or_default();
            Box::new(PatchHints {
                merge: strategy.split(',').any(|s| s == "merge"),
                merge_key: merge_key.map(Into::into),
                replaced,
            })
        });
        // Built-in lists without a list type are merged as their patch strategy says.
        let merged = strategy.is_some_and(|s| s.split(',').any(|s| s == "merge"));
        let (list_type, map_keys) = match (
            map.get("x-kubernetes-list-type").and_then(Value::as_str),
            merge_key,
        ) {
            (Some("set"), _) => (ListType::Set, Box::default()),
            (Some("map"), _) => (ListType::Map, strings("x-kubernetes-list-map-keys")),
            (None, Some(key)) if merged => (ListType::Map, Box::from([key.into()])),
            (None, None) if merged => (ListType::Set, Box::default()),
            _ => (ListType::Atomic, Box::default()),
        };
        let rules = Rule::compile_all(
            map.get("x-kubernetes-validations"),
            &format!("{path}.x-kubernetes-validations"),
            &mut self.problems,
        );
        let format = map.get("format").and_then(Value::as_str);
        Node {
            ty: Type::parse(map.get("type").and_then(Value::as_str)),
            nullable: flag("nullable"),
            preserve_unknown: flag("x-kubernetes-preserve-unknown-fields"),
            int_or_string: flag("x-kubernetes-int-or-string") || format == Some("int-or-string"),
            embedded_resource: flag("x-kubernetes-embedded-resource"),
            atomic_map: map.get("x-kubernetes-map-type").and_then(Value::as_str) == Some("atomic"),
            list_type,
            properties: properties.into(),
            additional,
            items,
            map_keys,
            default: map.get("default").filter(|d| !d.is_null()).cloned().map(Box::new),
            checks: self.checks(map, path, depth),
            patch: hints,
            rules,
            presence: map
                .get("x-go")
                .and_then(Value::as_object)
                .into_iter()
                .flatten()
                .filter_map(|(name, p)| Some((name.as_str().into(), Presence::parse(p.as_str()?)?)))
                .collect(),
        }
    }

    fn checks(&mut self, map: &Map<String, Value>, path: &str, depth: usize) -> Option<Box<Checks>> {
        const KEYS: [&str; 19] = [
            "format",
            "required",
            "enum",
            "maximum",
            "minimum",
            "multipleOf",
            "maxLength",
            "minLength",
            "pattern",
            "maxItems",
            "minItems",
            "uniqueItems",
            "maxProperties",
            "minProperties",
            "allOf",
            "anyOf",
            "oneOf",
            "not",
            "exclusiveMaximum",
        ];
        if !KEYS.iter().any(|k| map.contains_key(*k)) {
            return None;
        }
        let branches = |this: &mut Self, name: &str| -> Box<[NodeId]> {
            map.get(name)
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .enumerate()
                .map(|(i, s)| this.build(s, &format!("{path}.{name}[{i}]"), depth + 1))
                .collect()
        };
        let int = |name: &str| map.get(name).and_then(Value::as_i64);
        let limit = |name: &str, exclusive: &str| {
            let exclusive = map.get(exclusive).and_then(Value::as_bool).unwrap_or(false);
            map.get(name).and_then(Value::as_f64).map(|v| (v, exclusive))
        };
        let pattern = map
            .get("pattern")
            .and_then(Value::as_str)
            .filter(|p| !p.is_empty());
        let pattern = pattern.and_then(|p| match super::regexes::get(p) {
            Ok(regex) => Some((p.into(), regex)),
            Err(e) => {
                self.problems.push((
                    format!("{path}.pattern"),
                    format!("must be a valid regular expression, but isn't: {e}"),
                ));
                None
            }
        });
        Some(Box::new(Checks {
            format: map.get("format").and_then(Value::as_str).map(Into::into),
            required: map
                .get("required")
                .and_then(Value::as_array)
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .map(Into::into)
                .collect(),
            enumeration: map
                .get("enum")
                .and_then(Value::as_array)
                .map(|e| e.clone().into()),
            maximum: limit("maximum", "exclusiveMaximum"),
            minimum: limit("minimum", "exclusiveMinimum"),
            multiple_of: map.get("multipleOf").and_then(Value::as_f64),
            max_length: int("maxLength"),
            min_length: int("minLength"),
            pattern,
            max_items: int("maxItems"),
            min_items: int("minItems"),
            unique_items: map.get("uniqueItems").and_then(Value::as_bool).unwrap_or(false),
            max_properties: int("maxProperties"),
            min_properties: int("minProperties"),
            all_of: branches(self, "allOf"),
            any_of: branches(self, "anyOf"),
            one_of: branches(self, "oneOf"),
            not: map
                .get("not")
                .filter(|n| n.is_object())
                .map(|n| self.build(n, &format!("{path}.not"), depth + 1)),
        }))
    }
}

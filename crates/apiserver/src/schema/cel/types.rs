//! Types of CEL expressions: what the checker knows about a value before it exists.

use std::sync::Arc;

use super::super::Schema;
use super::super::node::{Additional, Arena, Node, NodeId, Type};
use super::convert::{escape, reserved};

/// The type of an expression. What cannot be told is [`Ty::Dyn`], which fits everywhere.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    Dyn,
    /// Not decided: the items of an empty list.
    Free,
    Null,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Duration,
    Timestamp,
    List(Box<Ty>),
    Map(Box<Ty>),
    /// A map whose keys are no texts.
    Keyed(Box<Ty>, Box<Ty>),
    /// A value that may be missing.
    Optional(Box<Ty>),
    /// The type of a type.
    Type(Box<Ty>),
    /// A type of Kubernetes: quantities, URLs, addresses.
    Named(&'static str),
    /// A place in a schema that is an object with named fields, and the way there: two places are two types, however
    /// alike they look.
    Object(NodeId, String),
    /// Named fields that are known without a schema.
    Record(Arc<[(String, Ty)]>),
}

impl Ty {
    /// The type of types.
    pub(super) const TYPE: Self = Self::Named("type");

    /// The type that a word names.
    pub(super) fn named(word: &'static str) -> Self {
        match word {
            "bool" => Self::Bool,
            "bytes" => Self::Bytes,
            "double" => Self::Double,
            "google.protobuf.Duration" => Self::Duration,
            "google.protobuf.Timestamp" => Self::Timestamp,
            "int" => Self::Int,
            "list" => Self::list(Self::Dyn),
            "map" => Self::map(Self::Dyn),
            "null_type" => Self::Null,
            "optional_type" => Self::Optional(Box::new(Self::Dyn)),
            "string" => Self::String,
            "uint" => Self::Uint,
            other => Self::Named(other),
        }
    }

    pub(super) fn list(of: Self) -> Self {
        Self::List(Box::new(of))
    }

    pub(super) fn map(of: Self) -> Self {
        Self::Map(Box::new(of))
    }

    pub(super) fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether a value of one type may stand where one of the other is meant.
    pub(super) fn fits(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::List(a), Self::List(b))
            | (Self::Map(a), Self::Map(b))
            | (Self::Optional(a), Self::Optional(b)) => a.fits(b),
            (Self::Keyed(k, a), Self::Keyed(l, b)) => k.fits(l) && a.fits(b),
            (Self::Keyed(..), Self::Map(values)) | (Self::Map(values), Self::Keyed(..)) => {
                **values == Self::Free
            }
            // Two types can be compared, whatever they are.
            (Self::Dyn | Self::Free, _) | (_, Self::Dyn | Self::Free) | (Self::Type(_), Self::Type(_)) => {
                true
            }
            (Self::Type(_), other) | (other, Self::Type(_)) if *other == Self::TYPE => true,
            (Self::Null, other) | (other, Self::Null) => other.nullable(),
            (a, b) => a == b,
        }
    }

    /// Whether a value of this type may be null.
    fn nullable(&self) -> bool {
        matches!(
            self,
            Self::Null
                | Self::Object(..)
                | Self::Record(_)
                | Self::Named(_)
                | Self::Type(_)
                | Self::Optional(_)
                | Self::Duration
                | Self::Timestamp
        )
    }

    /// The type that both are, if they are one: what is not decided is decided by the other.
    pub(super) fn same(&self, other: &Self) -> Option<Self> {
        Some(match (self, other) {
            (Self::Free, ty) | (ty, Self::Free) => ty.clone(),
            (Self::List(a), Self::List(b)) => Self::list(a.same(b)?),
            (Self::Map(a), Self::Map(b)) => Self::map(a.same(b)?),
            (Self::Optional(a), Self::Optional(b)) => Self::Optional(Box::new(a.same(b)?)),
            (Self::Keyed(k, a), Self::Keyed(l, b)) => Self::Keyed(Box::new(k.same(l)?), Box::new(a.same(b)?)),
            (ty @ Self::Keyed(..), Self::Map(values)) | (Self::Map(values), ty @ Self::Keyed(..))
                if **values == Self::Free =>
            {
                ty.clone()
            }
            (a, b) if a == b => a.clone(),
            _ => return None,
        })
    }

    /// The type of a value: what was not decided may be anything.
    pub(super) fn decided(self) -> Self {
        match self {
            Self::Free => Self::Dyn,
            ty => ty,
        }
    }

    /// The type that a variable of a policy has: what is no plain value, list or map of them may be anything.
    pub(crate) fn declared(&self) -> Self {
        match self {
            Self::List(of) => Self::list(of.declared()),
            Self::Map(of) => Self::map(of.declared()),
            Self::Keyed(keys, of) => Self::Keyed(Box::new(keys.declared()), Box::new(of.declared())),
            Self::Dyn
            | Self::Free
            | Self::Optional(_)
            | Self::Type(_)
            | Self::Named(_)
            | Self::Object(..)
            | Self::Record(_) => Self::Dyn,
            plain => plain.clone(),
        }
    }

    /// As errors name it.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Dyn | Self::Free => "dyn".into(),
            Self::Null => "null_type".into(),
            Self::Bool => "bool".into(),
            Self::Int => "int".into(),
            Self::Uint => "uint".into(),
            Self::Double => "double".into(),
            Self::String => "string".into(),
            Self::Bytes => "bytes".into(),
            Self::Duration => "google.protobuf.Duration".into(),
            Self::Timestamp => "google.protobuf.Timestamp".into(),
            Self::List(of) => format!("list({})", of.name()),
            Self::Map(of) => format!("map(string, {})", of.name()),
            Self::Keyed(key, of) => format!("map({}, {})", key.name(), of.name()),
            Self::Optional(of) => format!("optional_type({})", of.name()),
            Self::Type(of) => format!("type({})", of.name()),
            Self::Named(name) => (*name).into(),
            Self::Object(_, path) => format!("self{path}"),
            Self::Record(_) => "object".into(),
        }
    }

    /// The type of whole objects of a schema, laid out so that expressions can name objects of several schemas.
    pub(crate) fn of_objects(schema: &Schema, metadata: &Schema) -> Self {
        let mut layout = Layout {
            schema,
            above: Vec::new(),
        };
        let whole = layout.of(Self::of(&schema.arena, schema.root, ""));
        let (Self::Record(fields), false) = (&whole, schema.typed) else {
            return whole;
        };
        let given = [
            ("apiVersion", Self::String),
            ("kind", Self::String),
            ("metadata", Self::of_objects(metadata, metadata)),
        ];
        let others = fields
            .iter()
            .filter(|(name, _)| given.iter().all(|(field, _)| field != name));
        let given = given.iter().map(|(name, ty)| ((*name).to_owned(), ty.clone()));
        Self::Record(others.cloned().chain(given).collect())
    }

    /// The type of a place in a schema.
    pub(super) fn of(arena: &Arena, id: NodeId, path: &str) -> Self {
        let node = arena.get(id);
        if node.int_or_string {
            return Self::Dyn;
        }
        match node.ty {
            Type::Any => Self::Dyn,
            Type::Boolean => Self::Bool,
            Type::Integer => Self::Int,
            Type::Number => Self::Double,
            Type::String => match node.checks.as_deref().and_then(|c| c.format.as_deref()) {
                Some("date" | "date-time" | "datetime") => Self::Timestamp,
                Some("duration") => Self::Duration,
                Some("byte") => Self::Bytes,
                _ => Self::String,
            },
            Type::Array => {
                let of = |items| Self::of(arena, items, &format!("{path}.@idx"));
                Self::list(node.items.map_or(Self::Dyn, of))
            }
            Type::Object => match node.additional {
                Additional::Schema(values) if node.properties.is_empty() => {
                    Self::map(Self::of(arena, values, &format!("{path}.@elem")))
                }
                Additional::Anything if node.properties.is_empty() => Self::Dyn,
                _ => Self::Object(id, path.to_owned()),
            },
        }
    }
}

/// Makes types that need no schema any more.
struct Layout<'a> {
    schema: &'a Schema,
    /// The places around the one that is laid out.
    above: Vec<NodeId>,
}

impl Layout<'_> {
    fn of(&mut self, ty: Ty) -> Ty {
        let arena = &self.schema.arena;
        match ty {
            Ty::List(of) => Ty::list(self.of(*of)),
            Ty::Map(of) => Ty::map(self.of(*of)),
            // Nobody looks into what is part of itself.
            Ty::Object(id, _) if self.above.contains(&id) => Ty::Record(Arc::default()),
            Ty::Object(id, _) => {
                self.above.push(id);
                let mut fields = Vec::new();
                for (name, property) in &arena.get(id).properties {
                    let Some(ty) = self.of_property(*property) else {
                        continue;
                    };
                    if reserved(name) {
                        fields.push((name.to_string(), ty.clone()));
                    }
                    fields.extend(escape(name).map(|name| (name, ty)));
                }
                self.above.pop();
                Ty::Record(fields.into())
            }
            plain => plain,
        }
    }

    fn of_property(&mut self, id: NodeId) -> Option<Ty> {
        let arena = &self.schema.arena;
        // What holds anything is an object of no fields there.
        if self.schema.typed && arena.get(id).preserve_unknown {
            return Some(Ty::Record(Arc::default()));
        }
        (visible(arena, id) && !self.holds_quantities(id)).then(|| self.of(Ty::of(arena, id, "")))
    }

    /// Quantities of built-in kinds are texts or numbers, which is no type there.
    fn holds_quantities(&self, id: NodeId) -> bool {
        let node = self.schema.arena.get(id);
        let format = node.checks.as_deref().and_then(|checks| checks.format.as_deref());
        let below = match node.additional {
            Additional::Schema(values) => Some(values),
            _ => node.items,
        };
        self.schema.typed && (format == Some("quantity") || below.is_some_and(|id| self.holds_quantities(id)))
    }
}

/// The type of a field of an object in a schema. `root` is the schema of whole objects, which has metadata.
pub(super) fn field(
    arena: &Arena,
    root: Option<NodeId>,
    (id, path): (NodeId, &str),
    name: &str,
) -> Result<Ty, String> {
    let node: &Node = arena.get(id);
    let path = format!("{path}.{name}");
    if root == Some(id) || node.embedded_resource {
        match name {
            "apiVersion" | "kind" => return Ok(Ty::String),
            "metadata" => {
                let fields = ["name", "generateName"].map(|name| (name.to_owned(), Ty::String));
                return Ok(Ty::Record(fields.into()));
            }
            _ => {}
        }
    }
    let found = node.properties.iter().find(|(property, _)| {
        // A reserved word may be selected as it is, too.
        escape(property).as_deref() == Some(name) || (reserved(property) && property.as_ref() == name)
    });
    match (found, node.additional) {
        (Some((_, id)), _) if visible(arena, *id) => Ok(Ty::of(arena, *id, &path)),
        (None, Additional::Schema(id)) => Ok(Ty::of(arena, id, &path)),
        _ => Err(format!("undefined field '{name}'")),
    }
}

/// Whether rules see a property. They do not see what has no type, nor lists or maps of it.
fn visible(arena: &Arena, id: NodeId) -> bool {
    let node = arena.get(id);
    match (node.ty, node.additional) {
        (Type::Any, _) => node.int_or_string,
        (Type::Array, _) => node.items.is_none_or(|items| visible(arena, items)),
        (Type::Object, Additional::Schema(values)) if node.properties.is_empty() => visible(arena, values),
        _ => true,
    }
}

//! What a schema says about merging: which values are scalars, lists or maps, and which of those are one
//! value as a whole.

use serde_json::Value;

use super::fieldset::{Element, Set, spelled};
use crate::schema::{Additional, Arena, ListType, NodeId, Schema, Type};

/// The type of a place in an object.
#[derive(Clone, Copy, Debug)]
pub(super) enum TypeRef<'a> {
    /// The root of an object; the metadata of custom resources is implied.
    Root { schema: &'a Schema, meta: &'a Schema },
    /// A place the schema describes; unknown fields below may be allowed by a place above.
    Node {
        arena: &'a Arena,
        id: NodeId,
        preserve: bool,
    },
    /// Not described: objects are merged field by field, lists are one value.
    Deduced,
    /// Not described: every object and list is one value.
    Untyped,
}

/// What a value at a place may be.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Atom<'a> {
    pub(super) scalar: Option<Scalar>,
    pub(super) list: Option<List<'a>>,
    pub(super) map: Option<Fields<'a>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scalar {
    Numeric,
    Text,
    Boolean,
    Untyped,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct List<'a> {
    pub(super) atomic: bool,
    /// Without keys, the items of a list that is not atomic are scalars.
    pub(super) keys: &'a [Box<str>],
    pub(super) item: TypeRef<'a>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    pub(super) atomic: bool,
    owner: TypeRef<'a>,
    /// The type of fields that are not named.
    pub(super) other: Option<TypeRef<'a>>,
}

/// Which of its forms an atom takes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Form<'a> {
    Map(Fields<'a>),
    Scalar(Scalar),
    List(List<'a>),
}

impl<'a> Fields<'a> {
    /// The type of a named field.
    pub(super) fn named(&self, name: &str) -> Option<TypeRef<'a>> {
        match self.owner {
            TypeRef::Root { schema, meta } => match name {
                "metadata" if !schema.typed => Some(TypeRef::Node {
                    arena: &meta.arena,
                    id: meta.root,
                    preserve: false,
                }),
                "apiVersion" | "kind" if !schema.typed => Some(TypeRef::Deduced),
                _ => {
                    let node = schema.root();
                    let preserve = node.preserve_unknown;
                    node.property(name).map(|id| TypeRef::Node {
                        arena: &schema.arena,
                        id,
                        preserve,
                    })
                }
            },
            TypeRef::Node { arena, id, preserve } => {
                let node = arena.get(id);
                if node.embedded_resource
                    && let Some(ty) = embedded(name)
                {
                    return Some(ty);
                }
                let preserve = preserve || node.preserve_unknown;
                node.property(name)
                    .map(|id| TypeRef::Node { arena, id, preserve })
            }
            TypeRef::Deduced | TypeRef::Untyped => None,
        }
    }

    /// Whether nothing is said of any field, not by name and not by type.
    pub(super) fn is_free(&self) -> bool {
        let named = match self.owner {
            TypeRef::Root { .. } => true,
            TypeRef::Node { arena, id, .. } => {
                let node = arena.get(id);
                node.embedded_resource || !node.properties.is_empty()
            }
            TypeRef::Deduced | TypeRef::Untyped => false,
        };
        !named
            && match self.other {
                Some(TypeRef::Deduced) => true,
                Some(ty @ TypeRef::Node { .. }) => ty.atom().scalar == Some(Scalar::Untyped),
                _ => false,
            }
    }

    /// The type of any field.
    pub(super) fn field(&self, name: &str) -> Option<TypeRef<'a>> {
        self.named(name).or(self.other)
    }
}

/// What every resource has, also one that is embedded in another, whatever else its schema says.
fn embedded(name: &str) -> Option<TypeRef<'static>> {
    let meta: &'static Schema = &super::META;
    let id = match name {
        "metadata" => meta.root,
        // Texts, as a name is one.
        "apiVersion" | "kind" => meta.root().property("name")?,
        _ => return None,
    };
    Some(TypeRef::Node {
        arena: &meta.arena,
        id,
        preserve: false,
    })
}

impl<'a> TypeRef<'a> {
    pub(super) fn atom(self) -> Atom<'a> {
        let (arena, id, preserve) = match self {
            Self::Deduced | Self::Untyped => {
                return Atom {
                    scalar: Some(Scalar::Untyped),
                    list: Some(List {
                        atomic: true,
                        keys: &[],
                        item: Self::Untyped,
                    }),
                    map: Some(Fields {
                        atomic: matches!(self, Self::Untyped),
                        owner: self,
                        other: Some(self),
                    }),
                };
            }
            Self::Root { schema, .. } => (schema.arena.as_ref(), schema.root, false),
            Self::Node { arena, id, preserve } => (arena, id, preserve),
        };
        let node = arena.get(id);
        let preserve = preserve || node.preserve_unknown;
        let map = || {
            let other = match node.additional {
                Additional::Schema(id) => Some(Self::Node { arena, id, preserve }),
                Additional::Anything => Some(Self::Deduced),
                Additional::Denied => None,
                Additional::None => (preserve || node.properties.is_empty()).then_some(Self::Deduced),
            };
            Fields {
                atomic: node.atomic_map,
                owner: self,
                other,
            }
        };
        let list = || {
            let item = node
                .items
                .map_or(Self::Untyped, |id| Self::Node { arena, id, preserve });
            List {
                atomic: node.list_type == ListType::Atomic,
                keys: &node.map_keys,
                item,
            }
        };
        let scalar = |scalar| Atom {
            scalar: Some(scalar),
            ..Atom::default()
        };
        let plain = node
            .checks
            .as_deref()
            .and_then(|c| c.format.as_deref())
            .is_none_or(|f| f == "byte");
        match node.ty {
            Type::Object => Atom {
                map: Some(map()),
                ..Atom::default()
            },
            Type::Array => Atom {
                list: Some(list()),
                ..Atom::default()
            },
            Type::String if plain => scalar(Scalar::Text),
            Type::String => scalar(Scalar::Untyped),
            Type::Integer | Type::Number => scalar(Scalar::Numeric),
            Type::Boolean => scalar(Scalar::Boolean),
            Type::Any => Atom {
                scalar: Some(Scalar::Untyped),
                list: Some(list()),
                map: Some(map()),
            },
        }
    }
}

impl<'a> Atom<'a> {
    /// The form that fits a value; where none does, the atom's first.
    pub(super) fn form(&self, value: Option<&Value>) -> Option<Form<'a>> {
        match value {
            Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) if self.scalar.is_some() => {
                return self.scalar.map(Form::Scalar);
            }
            Some(Value::Array(_)) if self.list.is_some() => return self.list.map(Form::List),
            _ => {}
        }
        self.map
            .map(Form::Map)
            .or(self.scalar.map(Form::Scalar))
            .or(self.list.map(Form::List))
    }
}

impl Scalar {
    pub(super) fn fits(self, value: &Value) -> bool {
        match self {
            Self::Numeric => value.is_number(),
            Self::Text => value.is_string(),
            Self::Boolean => value.is_boolean(),
            Self::Untyped => !value.is_object() && !value.is_array(),
        }
    }
}

impl Form<'_> {
    /// Whether a value can be read in this form, and all of it if it is one value as a whole.
    pub(super) fn fits(&self, value: &Value) -> bool {
        let is_readable = |value: &Value, ty: TypeRef<'_>| {
            let form = ty.atom().form(Some(value));
            form.is_some_and(|form| form.fits(value))
        };
        match (self, value) {
            (_, Value::Null) => true,
            (Form::Scalar(scalar), _) => scalar.fits(value),
            (Form::List(list), Value::Array(items)) => {
                !list.atomic || items.iter().all(|item| is_readable(item, list.item))
            }
            (Form::Map(map), Value::Object(fields)) => {
                let fits = |(name, value): (&String, &Value)| {
                    let ty = map.field(name);
                    ty.is_none_or(|ty| is_readable(value, ty))
                };
                !map.atomic || fields.iter().all(fits)
            }
            (Form::List(_) | Form::Map(_), _) => false,
        }
    }

    pub(super) fn same_kind(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

/// The step that leads to an item of a list that is not atomic.
pub(super) fn item_element(list: &List<'_>, item: &Value) -> Result<Element, String> {
    if list.keys.is_empty() {
        return match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
            scalar => Ok(Element::Value(spelled(scalar))),
        };
    }
    let Some(map) = item.as_object() else {
        return Err(match item {
            Value::Null => "associative list with keys may not have a null element".into(),
            _ => "associative list with keys may not have non-map elements".into(),
        });
    };
    let default = |key: &str| match list.item {
        TypeRef::Node { arena, id, .. } => arena
            .get(id)
            .property(key)
            .and_then(|id| arena.get(id).default.as_deref())
            .cloned(),
        _ => None,
    };
    let fields = list.keys.iter().filter_map(|key| {
        let value = map.get(key.as_ref()).cloned().or_else(|| default(key))?;
        Some((key.to_string(), value))
    });
    let fields: serde_json::Map<String, Value> = fields.collect();
    if fields.is_empty() {
        let keys: Vec<String> = list.keys.iter().map(|k| format!("{k:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
            keys.join(" ")
        ));
    }
    Ok(Element::Key(spelled(&Value::Object(fields))))
}

/// Adds the named fields on the way to members, which sets usually leave out.
pub(super) fn with_named_fields(set: &Set, ty: Option<TypeRef<'_>>) -> Set {
    let atom = ty.map(TypeRef::atom).unwrap_or_default();
    let mut out = Set {
        members: set.members.clone(),
        ..Set::default()
    };
    for (element, below) in &set.children {
        let next = match element {
            Element::Field(name) => {
                if atom.map.is_some_and(|m| m.named(name).is_some()) {
                    out.members.insert(element.clone());
                }
                atom.map.and_then(|m| m.field(name))
            }
            Element::Key(_) => atom.list.map(|l| l.item),
            _ => None,
        };
        out.children
            .insert(element.clone(), with_named_fields(below, next));
    }
    out
}

//! Built-in objects pass through typed structures in the real server, which leaves marks: empty optional
//! fields vanish, some fields always appear. This reproduces those marks.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::Schema;
use super::node::{Additional, Arena, ListType, NodeId, Type};
use crate::quantity::{self, Quantity};

/// How a field of a typed structure is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Presence {
    /// Left out when empty: `""`, `0`, `false`, `[]`, `{}`.
    OmitEmpty,
    /// A nested structure that is always there.
    Structure,
    /// Always there: an empty text, number or boolean, or null for lists, maps and times.
    Always(Zero),
}

/// The value of a field that was not given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Zero {
    Null,
    Text,
    Number,
    Boolean,
    Quantity,
}

impl Presence {
    pub(super) fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "o" => Self::OmitEmpty,
            "s" => Self::Structure,
            "n" => Self::Always(Zero::Null),
            "t" => Self::Always(Zero::Text),
            "0" => Self::Always(Zero::Number),
            "b" => Self::Always(Zero::Boolean),
            "q" => Self::Always(Zero::Quantity),
            _ => return None,
        })
    }
}

/// When an object gets the form of its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As it was read: an empty list is another value than none. Nobody sees it, but it can count as a change of what is
    /// stored, where there are none.
    Read,
    /// As owners are found: so it is inside of lists that are compared as a whole, and nowhere else.
    Compared,
    /// As it is shown.
    Shown,
    /// As it is stored: there is no difference between an empty list and none at all.
    Stored,
}

impl Schema {
    /// Gives a built-in object the form it has after a round trip through the real server's types.
    pub fn normalize(&self, object: &mut Value) {
        name_no_owners(object);
        self.fill_nulls(object);
        normalize(&self.arena, object, self.root, Form::Shown, false);
    }

    /// The same for an object that was just read, with its empty lists and maps; the next two take them out.
    pub fn normalize_read(&self, object: &mut Value) {
        name_no_owners(object);
        self.fill_nulls(object);
        normalize(&self.arena, object, self.root, Form::Read, false);
    }

    /// Takes out the empty lists and maps that make nobody the owner of anything. Says whether there were any.
    pub fn forget_uncompared(&self, object: &mut Value) -> bool {
        self.forget(object, Form::Compared)
    }

    /// Takes out all of them. Says whether there were any.
    pub fn forget_empty(&self, object: &mut Value) -> bool {
        self.forget(object, Form::Shown)
    }

    fn forget(&self, object: &mut Value, form: Form) -> bool {
        // Most objects have none, and to look needs no schema.
        has_empty(object) && normalize(&self.arena, object, self.root, form, false)
    }

    /// The same for an object that was read before.
    pub fn normalize_written(&self, object: &mut Value) {
        normalize(&self.arena, object, self.root, Form::Shown, false);
    }

    /// The same for an object that is about to be stored: storage knows no difference between an empty list and none.
    pub fn normalize_stored(&self, object: &mut Value) {
        normalize(&self.arena, object, self.root, Form::Stored, false);
    }

    /// Cuts integers to the width of their fields: the real server does so where it makes typed objects of untyped
    /// ones, and refuses nothing.
    pub fn cut_integers(&self, object: &mut Value) {
        cut_integers(&self.arena, object, self.root);
    }

    /// The first value that a typed decoder would refuse, described as it would.
    pub fn decode_error(&self, object: &Value) -> Option<String> {
        let kind = object.get("kind").and_then(Value::as_str).unwrap_or("Object");
        self.decode_error_of(object, kind)
    }

    /// The same for a part of an object, whose type has this name.
    pub(crate) fn decode_error_of(&self, object: &Value, owner: &str) -> Option<String> {
        decode_error(&self.arena, object, self.root, owner, "")
    }
}

/// Not the same as none: owners are forgotten by an empty list, as by a single empty one, which survives.
fn name_no_owners(object: &mut Value) {
    if let Some(owners) = object.pointer_mut("/metadata/managedFields")
        && owners.as_array().is_some_and(Vec::is_empty)
    {
        *owners = serde_json::json!([{}]);
    }
}

fn has_empty(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.is_empty() || map.values().any(has_empty),
        Value::Array(list) => list.is_empty() || list.iter().any(has_empty),
        _ => false,
    }
}

/// `whole` says that the value is part of a list that is compared as a whole. Answers whether an empty list or map was
/// taken out.
fn normalize(arena: &Arena, value: &mut Value, id: NodeId, form: Form, whole: bool) -> bool {
    let node = arena.get(id);
    let mut dropped = false;
    match value {
        Value::Object(map) => {
            if !node.properties.is_empty() {
                map.retain(|_, v| !v.is_null());
            }
            for (name, presence) in &node.presence {
                dropped |= apply(map, name, *presence, form, whole);
            }
            for (name, value) in map.iter_mut() {
                if let Some(id) = node.property(name) {
                    dropped |= normalize(arena, value, id, form, whole);
                } else if let Additional::Schema(id) = node.additional {
                    // Storage knows no bytes but empty ones where none are given.
                    if form == Form::Stored && value.is_null() && arena.get(id).ty == Type::String {
                        *value = Value::from("");
                    }
                    if is_quantity(arena.get(id)) {
                        write_quantity(value, true);
                    }
                    dropped |= normalize(arena, value, id, form, whole);
                }
            }
        }
        Value::Array(list) => {
            let Some(items) = node.items else { return false };
            let whole = whole || node.list_type == ListType::Atomic;
            for item in list {
                dropped |= normalize(arena, item, items, form, whole);
            }
        }
        _ if is_quantity(node) => write_quantity(value, false),
        _ => {}
    }
    dropped
}

/// Writes a quantity in its one form.
fn write_quantity(value: &mut Value, in_list: bool) {
    let written = match value {
        Value::String(text) => quantity::written(quantity::trimmed(text), in_list),
        Value::Number(number) => quantity::written(&number.to_string(), in_list),
        _ => None,
    };
    if let Some(written) = written {
        *value = written.into();
    }
}

fn cut_integers(arena: &Arena, value: &mut Value, id: NodeId) {
    let node = arena.get(id);
    match value {
        Value::Object(map) => {
            for (name, value) in map.iter_mut() {
                if let Some(id) = node.field(name) {
                    cut_integers(arena, value, id);
                }
            }
        }
        Value::Array(list) => {
            for item in list {
                if let Some(id) = node.items {
                    cut_integers(arena, item, id);
                }
            }
        }
        Value::Number(number) if node.ty == Type::Integer && !node.int_or_string => {
            let format = node.checks.as_deref().and_then(|c| c.format.as_deref());
            if let Some(whole) = number.as_i64().filter(|_| format == Some("int32")) {
                #[expect(clippy::cast_possible_truncation, reason = "that is what happens there")]
                let cut = whole as i32;
                *value = cut.into();
            }
        }
        _ => {}
    }
}

fn apply(map: &mut Map<String, Value>, name: &str, presence: Presence, form: Form, whole: bool) -> bool {
    match presence {
        Presence::OmitEmpty => {
            let Some(value) = map.get(name).filter(|value| empty(value)) else {
                return false;
            };
            let container = value.is_array() || value.is_object();
            if container && (form == Form::Read || (whole && form == Form::Compared)) {
                return false;
            }
            map.remove(name);
            return container;
        }
        Presence::Structure => {
            map.entry(name).or_insert_with(|| Value::Object(Map::new()));
        }
        Presence::Always(zero) => {
            // A text that may be missing is another thing than an empty one.
            let none = |value: &Value| empty(value) && !value.is_string();
            if form == Form::Stored && zero == Zero::Null && map.get(name).is_some_and(none) {
                map.remove(name);
            }
            map.entry(name).or_insert_with(|| match zero {
                Zero::Null => Value::Null,
                Zero::Text => Value::from(""),
                Zero::Number => Value::from(0),
                Zero::Boolean => Value::from(false),
                Zero::Quantity => Value::from("0"),
            });
        }
    }
    false
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

fn decode_error(arena: &Arena, value: &Value, id: NodeId, owner: &str, path: &str) -> Option<String> {
    let node = arena.get(id);
    let refuse = |found: &str, wanted: &str| {
        Some(format!(
            "json: cannot unmarshal {found} into Go struct field {owner}.{path} of type {wanted}"
        ))
    };
    let join = |name: &str| {
        if path.is_empty() {
            name.to_owned()
        } else {
            format!("{path}.{name}")
        }
    };
    match (value, node.ty) {
        (Value::Null, _) => None,
        (Value::String(_), _) if node.int_or_string => None,
        (found, _) if node.int_or_string => {
            let fits = found.as_i64().is_some_and(|number| i32::try_from(number).is_ok());
            let found = match found {
                Value::Number(number) => format!("number {number}"),
                other => kind_of(other).to_owned(),
            };
            (!fits).then(|| format!("json: cannot unmarshal {found} into Go value of type int32"))
        }
        // Kept as it is written, whatever it is.
        (_, Type::Object) if node.preserve_unknown && node.properties.is_empty() => None,
        (Value::Object(_), Type::Object) if node.preserve_unknown => None,
        (Value::Object(map), Type::Object) => map
            .iter()
            .find_map(|(name, value)| decode_error(arena, value, node.field(name)?, owner, &join(name))),
        (Value::Array(list), Type::Array) => list
            .iter()
            .find_map(|item| decode_error(arena, item, node.items?, owner, path)),
        (Value::String(text), Type::String) if is_quantity(node) => {
            let why = Quantity::read(quantity::trimmed(text)).err();
            why.map(str::to_owned)
        }
        (Value::Number(_), Type::String) if is_quantity(node) => None,
        (_, Type::Any) | (Value::Number(_), Type::Number) | (Value::Bool(_), Type::Boolean) => None,
        (Value::String(text), Type::String) => {
            let byte = node
                .checks
                .as_deref()
                .is_some_and(|c| c.format.as_deref() == Some("byte"));
            let time = node
                .checks
                .as_deref()
                .is_some_and(|c| c.format.as_deref() == Some("date-time"));
            if time && !is_time(text, path) {
                return Some(format!(
                    "parsing time {text:?} as \"2006-01-02T15:04:05Z07:00\": cannot parse {text:?}"
                ));
            }
            let bad = byte.then(|| STANDARD.decode(text).err()).flatten();
            bad.map(|e| match e {
                base64::DecodeError::InvalidByte(at, _) => format!("illegal base64 data at input byte {at}"),
                _ => format!(
                    "illegal base64 data at input byte {}",
                    text.len().saturating_sub(1)
                ),
            })
        }
        (Value::Number(n), Type::Integer) => {
            let wanted = node
                .checks
                .as_deref()
                .and_then(|c| c.format.as_deref())
                .unwrap_or("int64");
            let fits = match (n.as_i64(), wanted) {
                (Some(i), "int32") => i32::try_from(i).is_ok(),
                (Some(_), _) => true,
                // Not even a whole number, if it was written as a float.
                (None, _) => false,
            };
            if fits {
                None
            } else {
                refuse(&format!("number {n}"), wanted)
            }
        }
        (found, wanted) => {
            let wanted = match wanted {
                Type::Integer => node
                    .checks
                    .as_deref()
                    .and_then(|c| c.format.as_deref())
                    .unwrap_or("int64"),
                Type::Boolean => "bool",
                Type::Array => "[]interface {}",
                Type::Object => "map[string]interface {}",
                other => other.as_str(),
            };
            refuse(kind_of(found), wanted)
        }
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        _ => "object",
    }
}

/// Fields whose times have microseconds, exactly.
const FINE_TIMES: [&str; 4] = ["acquireTime", "eventTime", "lastObservedTime", "renewTime"];

fn is_time(text: &str, path: &str) -> bool {
    let name = path.rsplit('.').next().unwrap_or_default();
    let fine = || {
        let fraction = text.split_once('.').map(|(_, fraction)| fraction);
        let digits = fraction.map(|fraction| fraction.bytes().take_while(u8::is_ascii_digit).count());
        digits == Some(6)
    };
    text.as_bytes().get(10) == Some(&b'T')
        && text.parse::<jiff::Timestamp>().is_ok()
        && (!FINE_TIMES.contains(&name) || fine())
}

/// Quantities are texts that may be written as numbers.
pub(super) fn is_quantity(node: &super::Node) -> bool {
    node.checks
        .as_deref()
        .is_some_and(|c| c.format.as_deref() == Some("quantity"))
}

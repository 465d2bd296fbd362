//! How large values can become by their schema, as the reference implementation reckons it.

use std::collections::BTreeMap;

use serde_json::Value;

use super::convert::escape;

/// The largest request.
const MAX_REQUEST: u64 = 3 * 1024 * 1024;

/// What is known about the size of a place in a schema.
#[derive(Clone, Debug, Default)]
pub(crate) struct Size {
    /// Characters, items or entries at most; 0 for what has no size.
    pub(super) max: u64,
    /// Bytes of JSON at least.
    smallest: u64,
    inside: Inside,
}

#[derive(Clone, Debug, Default)]
enum Inside {
    #[default]
    Nothing,
    Items(Box<Size>),
    Values(Box<Size>),
    Fields(BTreeMap<String, Size>),
}

impl Size {
    /// Reads it off a schema; nothing where expressions cannot look.
    pub(crate) fn of(schema: &Value, whole: bool) -> Option<Self> {
        let number = |name: &str| schema.get(name).and_then(Value::as_i64);
        let limit = |name: &str| number(name).map(|n| u64::try_from(n).unwrap_or(0));
        let flag = |name: &str| schema.get(name).and_then(Value::as_bool) == Some(true);
        let text = |name: &str| schema.get(name).and_then(Value::as_str).unwrap_or_default();
        // A character may be four bytes.
        let letters = || limit("maxLength").map(|n| n.saturating_mul(4));
        if flag("x-kubernetes-int-or-string") {
            return Some(Self::plain(letters().unwrap_or(MAX_REQUEST - 2), 1));
        }
        match text("type") {
            "array" => {
                let items = below(schema.get("items")?)?;
                let max = limit("maxItems").unwrap_or((MAX_REQUEST - 2) / (items.smallest + 1));
                Some(Self {
                    max,
                    smallest: 2,
                    inside: Inside::Items(Box::new(items)),
                })
            }
            "object" => match schema.get("additionalProperties").filter(|v| v.is_object()) {
                Some(values) => {
                    let values = below(values)?;
                    let max = limit("maxProperties").unwrap_or((MAX_REQUEST - 2) / (values.smallest + 6));
                    Some(Self {
                        max,
                        smallest: 2,
                        inside: Inside::Values(Box::new(values)),
                    })
                }
                None => Some(Self::object(
                    schema,
                    whole || flag("x-kubernetes-embedded-resource"),
                )),
            },
            "string" => Some(match text("format") {
                "byte" => Self::plain(limit("maxLength").unwrap_or(MAX_REQUEST - 2), 2),
                "duration" => Self::plain(32, 3),
                "date" => Self::plain(12, 12),
                "date-time" => Self::plain(32, 21),
                _ => Self::plain(
                    letters().unwrap_or_else(|| longest(schema).unwrap_or(MAX_REQUEST - 2)),
                    2,
                ),
            }),
            "boolean" => Some(Self::plain(0, 4)),
            "number" | "integer" => Some(Self::plain(0, 1)),
            _ => None,
        }
    }

    fn plain(max: u64, smallest: u64) -> Self {
        Self {
            max,
            smallest,
            inside: Inside::Nothing,
        }
    }

    fn object(schema: &Value, whole: bool) -> Self {
        let mut fields = BTreeMap::new();
        let mut smallest = 2;
        let required = schema.get("required").and_then(Value::as_array);
        let required = |name: &str| {
            let mut names = required.into_iter().flatten();
            names.any(|required| required.as_str() == Some(name))
        };
        let properties = schema.get("properties").and_then(Value::as_object);
        for (name, property) in properties.into_iter().flatten() {
            let Some(size) = below(property) else { continue };
            if required(name) && property.get("default").is_none_or(Value::is_null) {
                let name = u64::try_from(name.len()).unwrap_or(u64::MAX);
                smallest += name + size.smallest + 4;
            }
            if let Some(name) = escape(name) {
                fields.insert(name, size);
            }
        }
        if whole && !says_its_name(schema) {
            let text = || Self::plain(MAX_REQUEST - 2, 2);
            let names = ["name", "generateName"].map(|name| (name.to_owned(), text()));
            let metadata = Self {
                max: 0,
                smallest: 2,
                inside: Inside::Fields(names.into()),
            };
            fields.insert("metadata".to_owned(), metadata);
            for name in ["apiVersion", "kind"] {
                fields.insert(name.to_owned(), text());
            }
        }
        Self {
            max: 0,
            smallest,
            inside: Inside::Fields(fields),
        }
    }

    /// How often a value of this schema fits into one request.
    pub(crate) fn times(&self) -> u64 {
        MAX_REQUEST / (self.smallest + 1)
    }

    /// The size of what is found by a path below.
    pub(super) fn at(&self, path: &[String]) -> Option<u64> {
        let Some((step, rest)) = path.split_first() else {
            return Some(self.max);
        };
        match (step.as_str(), &self.inside) {
            ("@items" | "@values", Inside::Items(inside) | Inside::Values(inside)) => inside.at(rest),
            // Nobody knows how long a key is: it is taken for nothing.
            ("@keys", Inside::Values(_)) => rest.is_empty().then_some(0),
            (name, Inside::Fields(fields)) => {
                let found = fields.get(name).or_else(|| fields.get(&escape(name)?));
                found?.at(rest)
            }
            _ => None,
        }
    }
}

/// Whether the schema itself has all that the root of a resource has anyway.
fn says_its_name(schema: &Value) -> bool {
    let is = |pointer: &str, ty: &str| schema.pointer(pointer).and_then(Value::as_str) == Some(ty);
    is("/properties/kind/type", "string")
        && is("/properties/apiVersion/type", "string")
        && is("/properties/metadata/type", "object")
        && is("/properties/metadata/properties/name/type", "string")
        && is("/properties/metadata/properties/generateName/type", "string")
}

fn below(schema: &Value) -> Option<Size> {
    Size::of(schema, false)
}

/// The longest of the texts that are allowed.
fn longest(schema: &Value) -> Option<u64> {
    let allowed = schema
        .get("enum")
        .and_then(Value::as_array)
        .filter(|list| !list.is_empty())?;
    let lengths = allowed.iter().filter_map(Value::as_str).map(str::len);
    u64::try_from(lengths.max().unwrap_or(0)).ok()
}

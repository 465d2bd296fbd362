//! Validation errors in the real server's words: what `status.details.causes` carries.

use std::collections::HashSet;
use std::fmt::{self, Write as _};

use serde_json::Value;

/// Why a field is wrong. The names are those of `causes[].reason`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// A value that refers to something that is not there.
    NotFound,
    /// A value that must be there is not.
    Required,
    /// A value that must be unique is not.
    Duplicate,
    /// A malformed value.
    Invalid,
    /// A value outside an enumeration.
    NotSupported,
    /// A value that is well-formed but not allowed here.
    Forbidden,
    /// Too many bytes.
    TooLong,
    /// Too many items.
    TooMany,
    /// A value of the wrong JSON type.
    TypeInvalid,
    /// A fault of the server.
    Internal,
}

impl Reason {
    /// The machine-readable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// One wrong field.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cause {
    /// The field's path, such as `spec.items[0].name`; `<nil>` for the object itself.
    pub field: String,
    /// Why it is wrong.
    pub reason: Reason,
    /// The message, without the field.
    pub message: String,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl Cause {
    fn new(field: impl Into<String>, reason: Reason, value: Option<&Value>, detail: &str) -> Self {
        let mut message = reason.words().to_owned();
        if let Some(value) = value {
            message.push_str(": ");
            message.push_str(&render(value));
        }
        if !detail.is_empty() {
            message.push_str(": ");
            message.push_str(detail);
        }
        let field = field.into();
        Self {
            field: if field.is_empty() { "<nil>".into() } else { field },
            reason,
            message,
        }
    }

    /// A required value is missing.
    pub fn required(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Reason::Required, None, detail)
    }

    /// A malformed value.
    pub fn invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(field, Reason::Invalid, Some(value), detail)
    }

    /// A malformed value that is too large to print.
    pub fn invalid_omitting_value(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Reason::Invalid, None, detail)
    }

    /// A value of the wrong type.
    pub fn type_invalid(field: impl Into<String>, value: &Value, detail: &str) -> Self {
        Self::new(field, Reason::TypeInvalid, Some(value), detail)
    }

    /// A value that is there twice.
    pub fn duplicate(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, Reason::Duplicate, Some(value), "")
    }

    /// A duplicate whose value is not printed.
    pub fn duplicate_omitting_value(field: impl Into<String>) -> Self {
        Self::new(field, Reason::Duplicate, None, "")
    }

    /// A value that is not allowed.
    pub fn forbidden(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Reason::Forbidden, None, detail)
    }

    /// A reference to nothing.
    pub fn not_found(field: impl Into<String>, value: &Value) -> Self {
        Self::new(field, Reason::NotFound, Some(value), "")
    }

    /// A value outside an enumeration.
    pub fn not_supported<S: AsRef<str>>(field: impl Into<String>, value: &Value, allowed: &[S]) -> Self {
        let quoted: Vec<String> = allowed.iter().map(|v| quote(v.as_ref())).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::new(field, Reason::NotSupported, Some(value), &detail)
    }

    /// Something that failed and should not have.
    pub fn internal(field: impl Into<String>, detail: &str) -> Self {
        Self::new(field, Reason::Internal, None, detail)
    }

    /// More bytes than allowed.
    pub fn too_long(field: impl Into<String>, max: i64) -> Self {
        let detail = if max >= 0 {
            format!(
                "may not be more than {max} {}",
                if max == 1 { "byte" } else { "bytes" }
            )
        } else {
            "value is too long".into()
        };
        Self::new(field, Reason::TooLong, None, &detail)
    }

    /// More items than allowed.
    pub fn too_many(field: impl Into<String>, actual: i64, max: i64) -> Self {
        let detail = if max >= 0 {
            format!(
                "must have at most {max} {}",
                if max == 1 { "item" } else { "items" }
            )
        } else {
            "has too many items".into()
        };
        Self::new(field, Reason::TooMany, Some(&Value::from(actual)), &detail)
    }
}

/// Go's `%q` for the texts that appear in messages.
pub fn quote(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            c if c.is_control() && !c.is_ascii() => {
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c if c.is_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A value as it stands in a message.
fn render(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Number(n) => match n.as_f64() {
            Some(f) if n.is_f64() => go_float(f),
            _ => n.to_string(),
        },
        other => other.to_string(),
    }
}

/// Go's `%v` of a float: short form, exponent from 1e21 on.
pub fn go_float(value: f64) -> String {
    if value != 0.0 && (value.abs() >= 1e21 || value.abs() < 1e-4) {
        let text = format!("{value:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, digits) = exponent.strip_prefix('-').map_or(("+", exponent), |d| ("-", d));
        return format!("{mantissa}e{sign}{digits:0>2}");
    }
    format!("{value}")
}

/// The sentence of a 422 answer: `Kind.group "name" is invalid: ...`.
pub fn invalid_message(kind: &str, group: &str, name: &str, causes: &[Cause]) -> String {
    let qualified = if group.is_empty() {
        kind.to_owned()
    } else {
        format!("{kind}.{group}")
    };
    let head = format!("{qualified} {} is invalid", quote(name));
    let mut seen = HashSet::new();
    let texts: Vec<String> = causes
        .iter()
        .map(ToString::to_string)
        .filter(|t| seen.insert(t.clone()))
        .collect();
    match texts.as_slice() {
        [] => head,
        [only] => format!("{head}: {only}"),
        _ => format!("{head}: [{}]", texts.join(", ")),
    }
}

/// Appends a field name to a path.
pub fn child(path: &str, name: &str) -> String {
    if path.is_empty() {
        name.to_owned()
    } else {
        format!("{path}.{name}")
    }
}

/// Appends a list index to a path.
pub fn index(path: &str, i: usize) -> String {
    format!("{path}[{i}]")
}

/// Appends a map key to a path.
pub fn key(path: &str, key: &str) -> String {
    format!("{path}[{key}]")
}

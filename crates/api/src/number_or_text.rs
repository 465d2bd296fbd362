//! A number or a text, as wide as the definitions allow.

use std::{borrow::Cow, fmt};

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

/// What `x-kubernetes-int-or-string` lets through. A server stores any number there, also one that is too large for the
/// 32 bits of Go's type: an object must not become unreadable by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum NumberOrText {
    /// A number.
    Number(serde_json::Number),
    /// A text, such as `50%` or `16Gi`.
    Text(String),
}

impl fmt::Display for NumberOrText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl From<i64> for NumberOrText {
    fn from(number: i64) -> Self {
        Self::Number(number.into())
    }
}

impl From<String> for NumberOrText {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl JsonSchema for NumberOrText {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "NumberOrText".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true})
    }
}

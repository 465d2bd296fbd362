//! Reading the body of a request: JSON or YAML, with duplicate fields noticed.

use std::cell::RefCell;
use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::BodyExt;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::Body;
use crate::status::{Failure, Result};

/// The real server's limit for the body of one request.
pub(crate) const LIMIT: usize = 3 << 20;

/// Reads the whole body, up to the limit.
pub(crate) async fn read(body: Body) -> Result<Bytes> {
    match http_body_util::Limited::new(body, LIMIT).collect().await {
        Ok(all) => Ok(all.to_bytes()),
        Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Failure::too_large(LIMIT)),
        Err(error) => Err(Failure::bad_request(format!("unable to read the body: {error}"))),
    }
}

/// The media type of the body without parameters; JSON if nothing is said.
pub(crate) fn media_type(headers: &HeaderMap) -> &str {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .filter(|value| !value.is_empty())
        .map_or("application/json", |value| {
            value.split(';').next().unwrap_or_default().trim()
        })
}

/// A parsed body with the paths of the fields that were there twice.
pub(crate) struct Decoded {
    pub value: Value,
    pub duplicates: Vec<String>,
}

/// Parses JSON or YAML by the content type.
pub(crate) fn decode(headers: &HeaderMap, body: &[u8]) -> Result<Result<Decoded, String>> {
    match media_type(headers) {
        "application/json" => Ok(json(body)),
        "application/yaml" => Ok(yaml(body)),
        "application/vnd.kubernetes.protobuf" => Ok(super::protobuf::decode(body).map(|value| Decoded {
            value,
            duplicates: Vec::new(),
        })),
        _ => Err(Failure::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ])),
    }
}

/// Parses JSON.
pub(crate) fn json(body: &[u8]) -> Result<Decoded, String> {
    let duplicates = RefCell::new(Vec::new());
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Seed {
        path: String::new(),
        duplicates: &duplicates,
    }
    .deserialize(&mut deserializer)
    .and_then(|value| deserializer.end().map(|()| value))
    .map_err(|error| format!("json parse error: {error}"))?;
    Ok(Decoded {
        value,
        duplicates: duplicates.into_inner(),
    })
}

/// Parses YAML (of which JSON is a part).
pub(crate) fn yaml(body: &[u8]) -> Result<Decoded, String> {
    // Most of it is JSON, which is read faster and may be deeper.
    if body.first() == Some(&b'{')
        && let Ok(decoded) = json(body)
        && decoded.duplicates.is_empty()
    {
        return Ok(decoded);
    }
    // One document of YAML becomes JSON first, so that both take the same way from there.
    let text = std::str::from_utf8(body).map_err(|error| format!("yaml parse error: {error}"))?;
    let value: Value = serde_saphyr::from_str(text).map_err(|error| format!("yaml parse error: {error}"))?;
    Ok(Decoded {
        value,
        duplicates: Vec::new(),
    })
}

struct Seed<'a> {
    path: String,
    duplicates: &'a RefCell<Vec<String>>,
}

impl Seed<'_> {
    fn at(&self, path: String) -> Seed<'_> {
        Seed {
            path,
            duplicates: self.duplicates,
        }
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut out = Vec::new();
        while let Some(value) = list.next_element_seed(self.at(format!("{}[{}]", self.path, out.len())))? {
            out.push(value);
        }
        Ok(Value::Array(out))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(name) = entries.next_key::<String>()? {
            let path = if self.path.is_empty() {
                name.clone()
            } else {
                format!("{}.{name}", self.path)
            };
            let value = entries.next_value_seed(self.at(path.clone()))?;
            if out.insert(name, value).is_some() {
                self.duplicates.borrow_mut().push(path);
            }
        }
        Ok(Value::Object(out))
    }
}

/// The first characters of a body, for messages about what cannot be read.
pub(crate) fn summary(body: &[u8], length: usize) -> String {
    let text = String::from_utf8_lossy(body);
    if text.chars().count() > length {
        format!("{} ...", text.chars().take(length).collect::<String>())
    } else {
        text.into_owned()
    }
}

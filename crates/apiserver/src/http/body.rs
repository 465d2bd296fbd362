//! Reading the body of a request: JSON or YAML, with duplicate fields noticed.

use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::{self, Write as _};

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};
use serde_saphyr::DuplicateKeyPolicy;

use super::Body;
use super::characters::yaml_text;
use crate::go_numbers::without_whole_floats;
use crate::status::{Failure, Result};

/// The real server's limit for the body of one request.
pub(crate) const LIMIT: usize = 3 << 20;
/// How much of a larger body is heard out and forgotten.
const HEARD: usize = 16 << 20;
/// How many duplicate and unknown fields are named, as there: a body may have as many as it has bytes.
pub(crate) const NAMED: usize = 100;

/// Reads the whole body, up to the limit.
pub(crate) async fn read(mut body: Body) -> Result<Bytes> {
    match Limited::new(&mut body, LIMIT).collect().await {
        Ok(all) => Ok(all.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => {
            // Who still sends when the connection is closed may miss why.
            let mut rest = Limited::new(body, HEARD);
            while let Some(Ok(_)) = rest.frame().await {}
            Err(Failure::too_large(LIMIT))
        }
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

/// A parsed body, with what there is to say about fields that were there twice.
pub(crate) struct Decoded {
    pub value: Value,
    pub duplicates: Vec<String>,
}

/// Parses a body by its content type. In protobuf it may leave out its version and its kind; then they are the `usual` ones.
pub(crate) fn decode(
    headers: &HeaderMap,
    body: &[u8],
    usual: (&str, &str),
) -> Result<Result<Decoded, String>> {
    match media_type(headers).to_ascii_lowercase().as_str() {
        "application/json" => Ok(json(body)),
        "application/yaml" => Ok(yaml(body)),
        "application/vnd.kubernetes.protobuf" => {
            Ok(super::protobuf::decode(body, usual).map(|value| Decoded {
                value,
                duplicates: Vec::new(),
            }))
        }
        _ => Err(Failure::unsupported_media_type(&[
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
        ])),
    }
}

/// Parses JSON.
pub(crate) fn json(body: &[u8]) -> Result<Decoded, String> {
    strict_json(&mended(body))
}

fn strict_json(body: &[u8]) -> Result<Decoded, String> {
    let noted = RefCell::new(Noted::default());
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = Seed(&noted)
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| format!("json parse error: {error}"))?;
    Ok(Decoded {
        value,
        duplicates: noted.into_inner().duplicates,
    })
}

/// Parses the first document of YAML (of which JSON is a part).
pub(crate) fn yaml(body: &[u8]) -> Result<Decoded, String> {
    let text = yaml_text(body)?;
    let body = text.as_bytes();
    // Most of it is JSON, which is read faster and may be deeper.
    if body.first() == Some(&b'{')
        && let Ok(decoded) = strict_json(body)
        && decoded.duplicates.is_empty()
    {
        // YAML has other escapes for them.
        if has_surrogates(body) {
            return Err("yaml: found invalid Unicode character escape code".into());
        }
        return Ok(Decoded {
            value: without_whole_floats(decoded.value),
            ..decoded
        });
    }
    // One document of YAML becomes JSON first, so that both take the same way from there.
    let failed = |error: &dyn fmt::Display| format!("yaml parse error: {error}");
    let text = first_document(&text);
    let read = |duplicate_keys| {
        let options = serde_saphyr::options! {
            duplicate_keys: duplicate_keys,
            legacy_octal_numbers: true,
        };
        let noted = RefCell::new(Noted::default());
        serde_saphyr::with_deserializer_from_str_with_options(text, options, |deserializer| {
            Seed(&noted).deserialize(deserializer)
        })
    };
    let value = read(DuplicateKeyPolicy::LastWins).map_err(|error| failed(&error))?;
    let mut duplicates = Vec::new();
    if let Err(error) = read(DuplicateKeyPolicy::Error) {
        let line = error.location().map_or(0, |location| location.line());
        let key = match error.without_snippet() {
            serde_saphyr::Error::DuplicateMappingKey { key, .. } => key.clone().unwrap_or_default(),
            _ => String::new(),
        };
        duplicates.push(format!("line {line}: key {key:?} already set in map"));
    }
    Ok(Decoded {
        value: without_whole_floats(value),
        duplicates,
    })
}

/// What comes before the second document.
fn first_document(text: &str) -> &str {
    let mut begun = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let marks = |marker: &str| {
            let rest = line.strip_prefix(marker);
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
        };
        let (start, end) = (marks("---"), marks("..."));
        if begun && (start || end) {
            return text.get(..at).unwrap_or(text);
        }
        let said = line.trim_start_matches(['\u{feff}', ' ', '\t']);
        begun |= start || !(end || said.trim_end().is_empty() || said.starts_with(['#', '%']));
        at += line.len();
    }
    text
}

/// One half of a character in an escape.
fn surrogate(body: &[u8], at: usize) -> Option<u16> {
    let digits = body.get(at..at + 6)?.strip_prefix(b"\\u")?;
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let unit = u16::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
    Some(unit).filter(|unit| (0xd800..0xe000).contains(unit))
}

/// The places of escapes: after an escaped backslash there is none.
fn escapes(body: &[u8]) -> impl Iterator<Item = usize> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let found = at + body.get(at..)?.iter().position(|byte| *byte == b'\\')?;
        at = found + 2;
        Some(found)
    })
}

fn has_surrogates(body: &[u8]) -> bool {
    escapes(body).any(|at| surrogate(body, at).is_some())
}

/// As Go writes JSON: safe to stand in HTML.
pub(crate) fn escape_marks(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for character in json.chars() {
        match character {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            other => out.push(other),
        }
    }
    out
}

/// JSON in which lone surrogates and bytes that are no UTF-8 are replaced, as Go's parser does, so that a stricter one reads it.
pub(crate) fn mended(body: &[u8]) -> Cow<'_, [u8]> {
    match readable(body) {
        Cow::Borrowed(body) => paired(body),
        Cow::Owned(body) => Cow::Owned(paired(&body).into_owned()),
    }
}

/// Bytes that are no UTF-8 become the replacement character, one each.
fn readable(body: &[u8]) -> Cow<'_, [u8]> {
    if std::str::from_utf8(body).is_ok() {
        return Cow::Borrowed(body);
    }
    let mut out = String::with_capacity(body.len());
    for chunk in body.utf8_chunks() {
        out.push_str(chunk.valid());
        out.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    Cow::Owned(out.into_bytes())
}

/// Half a pair of surrogates is replaced.
fn paired(body: &[u8]) -> Cow<'_, [u8]> {
    const REPLACEMENT: &[u8] = b"\\ufffd";
    let (high, low) = (0xd800..0xdc00u16, 0xdc00..0xe000u16);
    let mut out = Vec::new();
    // Up to where it is written, and up to where it is in order.
    let (mut done, mut paired) = (0, 0);
    for at in escapes(body) {
        let Some(unit) = surrogate(body, at).filter(|_| at >= paired) else {
            continue;
        };
        let follows = surrogate(body, at + 6).is_some_and(|second| low.contains(&second));
        if high.contains(&unit) && follows {
            paired = at + 12;
            continue;
        }
        out.extend_from_slice(body.get(done..at).unwrap_or_default());
        out.extend_from_slice(REPLACEMENT);
        done = at + 6;
    }
    if done == 0 {
        return Cow::Borrowed(body);
    }
    out.extend_from_slice(body.get(done..).unwrap_or_default());
    Cow::Owned(out)
}

/// A key of YAML, which need not be text, as the key of an object.
struct Key;

impl<'de> DeserializeSeed<'de> for Key {
    type Value = String;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Key {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key that is text, a number or a boolean")
    }

    fn visit_str<E>(self, key: &str) -> Result<String, E> {
        Ok(key.to_owned())
    }

    fn visit_bool<E>(self, key: bool) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_i64<E>(self, key: i64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_u64<E>(self, key: u64) -> Result<String, E> {
        Ok(key.to_string())
    }

    fn visit_f64<E>(self, key: f64) -> Result<String, E> {
        Ok(key.to_string())
    }
}

/// Where the reader is, and what was there twice.
#[derive(Default)]
struct Noted {
    path: String,
    duplicates: Vec<String>,
    /// How many bytes there were to compare.
    compared: usize,
}

impl Noted {
    /// Each is said once, and not without end.
    fn twice(&mut self, name: &str) {
        self.compared += self.path.len() + name.len();
        if self.duplicates.len() >= NAMED || self.compared > LIMIT {
            return;
        }
        let dot = if self.path.is_empty() { "" } else { "." };
        let twice = format!("duplicate field \"{}{dot}{name}\"", self.path);
        if !self.duplicates.contains(&twice) {
            self.duplicates.push(twice);
        }
    }
}

struct Seed<'a>(&'a RefCell<Noted>);

impl Seed<'_> {
    /// Goes a step further down, and says where it was.
    fn enter(&self, step: fmt::Arguments<'_>) -> usize {
        let path = &mut self.0.borrow_mut().path;
        let length = path.len();
        // Writing to memory does not fail.
        let _ = path.write_fmt(step);
        length
    }

    fn leave(&self, length: usize) {
        self.0.borrow_mut().path.truncate(length);
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
        loop {
            let length = self.enter(format_args!("[{}]", out.len()));
            let value = list.next_element_seed(Seed(self.0))?;
            self.leave(length);
            match value {
                Some(value) => out.push(value),
                None => return Ok(Value::Array(out)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut out = Map::new();
        while let Some(name) = entries.next_key_seed(Key)? {
            let dot = if self.0.borrow().path.is_empty() { "" } else { "." };
            let length = self.enter(format_args!("{dot}{name}"));
            let value = entries.next_value_seed(Seed(self.0))?;
            self.leave(length);
            match out.entry(name) {
                Entry::Vacant(place) => drop(place.insert(value)),
                Entry::Occupied(mut place) => {
                    self.0.borrow_mut().twice(place.key());
                    place.insert(value);
                }
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let read = |body: &[u8]| json(body).map(|decoded| decoded.value);
        // One for each byte, also of a character that is cut off.
        let value = read(b"{\"a\xff\": \"x\xe2\x82y \xf0\x9f\x98\x80\"}").unwrap();
        assert_eq!(
            value,
            serde_json::json!({ "a\u{fffd}": "x\u{fffd}\u{fffd}y \u{1f600}" })
        );
        assert!(read(b"{\xff}").is_err());
    }

    #[test]
    fn the_first_document_is_read() {
        for (text, wanted) in [
            ("a: 1\n---\nb: 2\n", json!({"a": 1})),
            ("---\na: 1\n...\nb: 2\n", json!({"a": 1})),
            ("# c\n%YAML 1.1\n--- # d\na: 1\n--- x\n", json!({"a": 1})),
            ("---\n---\nb: 2\n", json!(null)),
            ("a: |\n  ---\n  b\n", json!({"a": "---\nb\n"})),
            ("a: b---\n----: c\n", json!({"a": "b---", "----": "c"})),
            ("a: 2.0\nb: 2.5\nyes: 010\n", json!({"a": 2, "b": 2.5, "true": 8})),
            ("{\"a\": 2.0}", json!({"a": 2})),
            ("a: 1\na: 2\n", json!({"a": 2})),
        ] {
            assert_eq!(yaml(text.as_bytes()).unwrap().value, wanted, "{text}");
        }
        let twice = yaml(b"x:\n  a: 1\n  a: 2\n").unwrap();
        assert_eq!(twice.duplicates, ["line 3: key \"a\" already set in map"]);
        assert!(yaml(b"{\"a\": \"\\ud83d\\ude00\"}").is_err());
    }

    #[test]
    fn lone_surrogates_are_replaced() {
        for (text, wanted) in [
            (r#"["\ud800"]"#, "\u{fffd}"),
            (r#"["\udc00x\uDBFF"]"#, "\u{fffd}x\u{fffd}"),
            (r#"["\ud800\ud83d\ude00"]"#, "\u{fffd}\u{1f600}"),
            (r#"["\\ud800"]"#, "\\ud800"),
            (r#"["a\n\u0041"]"#, "a\nA"),
        ] {
            assert_eq!(json(text.as_bytes()).unwrap().value, json!([wanted]), "{text}");
        }
        assert!(json(br#"["\ud8"]"#).is_err());
    }
}

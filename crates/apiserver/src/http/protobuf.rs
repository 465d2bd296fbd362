//! Bodies in Kubernetes' protobuf, which `kubectl` sends for built-in kinds, and webhooks may answer with. They are only read:
//! everybody who writes protobuf also accepts JSON.
//!
//! `messages.txt` is the list of fields of Kubernetes' `generated.proto` files (v1.36): one message per line, `number name type`
//! per field, under the name that the field has in JSON. `*` is a list, `%` a map from text, `!` a message whose fields belong to the outer one in JSON.

use std::collections::HashMap;
use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value};

/// What a body in protobuf starts with.
const MAGIC: &[u8] = b"k8s\0";
/// Messages inside messages; the deepest that Kubernetes has is far from this.
const DEPTH: usize = 64;

struct Field {
    name: &'static str,
    list: bool,
    map: bool,
    inline: bool,
    kind: &'static str,
}

type Message = HashMap<u64, Field>;

static MESSAGES: LazyLock<HashMap<&'static str, Message>> = LazyLock::new(|| {
    include_str!("messages.txt")
        .lines()
        .filter_map(|line| {
            let mut parts = line.split('|');
            let name = parts.next()?;
            let fields = parts.filter_map(|part| {
                let mut words = part.split(' ');
                let (number, name, kind) = (words.next()?.parse().ok()?, words.next()?, words.next()?);
                let inline = kind.starts_with('!');
                let kind = kind.trim_start_matches('!');
                Some((
                    number,
                    Field {
                        name,
                        list: kind.starts_with('*'),
                        map: kind.starts_with('%'),
                        inline,
                        kind: kind.trim_start_matches(['*', '%']),
                    },
                ))
            });
            Some((name, fields.collect()))
        })
        .collect()
});

/// Whether these bytes are Kubernetes' protobuf, whatever they are said to be.
pub(crate) fn is_protobuf(bytes: &[u8]) -> bool {
    bytes.starts_with(MAGIC)
}

/// The object in a body. It may leave out its version and its kind; then they are the `usual` ones.
pub(crate) fn decode(body: &[u8], usual: (&str, &str)) -> Result<Value, String> {
    let body = body
        .strip_prefix(MAGIC)
        .ok_or("the body is no Kubernetes protobuf")?;
    let (mut api_version, mut kind, mut raw) = (String::new(), String::new(), &[][..]);
    for entry in Reader(body) {
        match entry? {
            (1, Wire::Bytes(bytes)) => {
                for entry in Reader(bytes) {
                    match entry? {
                        (1, Wire::Bytes(text)) => api_version = utf8(text)?,
                        (2, Wire::Bytes(text)) => kind = utf8(text)?,
                        _ => {}
                    }
                }
            }
            (2, Wire::Bytes(bytes)) => raw = bytes,
            _ => {}
        }
    }
    for (said, usual) in [(&mut api_version, usual.0), (&mut kind, usual.1)] {
        if said.is_empty() {
            usual.clone_into(said);
        }
    }
    let name = message_name(&api_version, &kind);
    let mut value = message(&name, raw, 0)?;
    if let Some(map) = value.as_object_mut() {
        map.insert("apiVersion".into(), api_version.into());
        map.insert("kind".into(), kind.into());
    }
    Ok(value)
}

/// The name of a kind's message in the table.
fn message_name(api_version: &str, kind: &str) -> String {
    if kind == "DeleteOptions" {
        return "~apis.meta.v1.DeleteOptions".into();
    }
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let package = group
        .split('.')
        .next()
        .filter(|package| !package.is_empty())
        .unwrap_or("core");
    format!("{package}.{version}.{kind}")
}

fn utf8(bytes: &[u8]) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|_| "proto: invalid UTF-8".to_owned())
}

fn message(name: &str, bytes: &[u8], depth: usize) -> Result<Value, String> {
    if depth > DEPTH {
        return Err("proto: messages are nested too deep".into());
    }
    if let Some(value) = special(name, bytes)? {
        return Ok(value);
    }
    let fields = MESSAGES
        .get(name)
        .ok_or_else(|| format!("no kind {name:?} is registered for protobuf"))?;
    let mut out = Map::new();
    for entry in Reader(bytes) {
        let (number, wire) = entry?;
        let Some(field) = fields.get(&number) else {
            continue;
        };
        if field.map {
            let (key, value) = pair(field.kind, wire, depth)?;
            let slot = out.entry(field.name).or_insert_with(|| Value::Object(Map::new()));
            if let Some(map) = slot.as_object_mut() {
                map.insert(key, value);
            }
            continue;
        }
        let value = scalar(field.kind, wire, depth)?;
        if field.inline {
            if let Value::Object(inner) = value {
                out.extend(inner);
            }
        } else if field.list {
            let slot = out.entry(field.name).or_insert_with(|| Value::Array(Vec::new()));
            if let Some(list) = slot.as_array_mut() {
                list.push(value);
            }
        } else if !value.is_null() {
            out.insert(field.name.to_owned(), value);
        }
    }
    Ok(Value::Object(out))
}

fn pair(kind: &str, wire: Wire<'_>, depth: usize) -> Result<(String, Value), String> {
    let Wire::Bytes(bytes) = wire else {
        return Err("proto: a map must be made of messages".into());
    };
    let mut key = String::new();
    let mut value = if kind == "s" { Value::from("") } else { Value::Null };
    for entry in Reader(bytes) {
        match entry? {
            (1, Wire::Bytes(text)) => key = utf8(text)?,
            (2, wire) => value = scalar(kind, wire, depth)?,
            _ => {}
        }
    }
    Ok((key, value))
}

fn scalar(kind: &str, wire: Wire<'_>, depth: usize) -> Result<Value, String> {
    Ok(match (kind, wire) {
        ("s", Wire::Bytes(bytes)) => utf8(bytes)?.into(),
        ("x", Wire::Bytes(bytes)) => STANDARD.encode(bytes).into(),
        ("i", Wire::Number(number)) => number.cast_signed().into(),
        ("b", Wire::Number(number)) => (number != 0).into(),
        ("d", Wire::Number(number)) => f64::from_bits(number).into(),
        ("s" | "x" | "i" | "b" | "d" | "f", _) | (_, Wire::Number(_)) => {
            return Err("proto: wrong wireType".into());
        }
        (name, Wire::Bytes(bytes)) => message(name, bytes, depth + 1)?,
    })
}

/// Messages whose JSON is no object with the same fields.
fn special(name: &str, bytes: &[u8]) -> Result<Option<Value>, String> {
    let numbers = || -> Result<HashMap<u64, i64>, String> {
        let mut all = HashMap::new();
        for entry in Reader(bytes) {
            if let (field, Wire::Number(number)) = entry? {
                all.insert(field, number.cast_signed());
            }
        }
        Ok(all)
    };
    let texts = |wanted: u64| -> Result<Vec<&[u8]>, String> {
        let mut all = Vec::new();
        for entry in Reader(bytes) {
            match entry? {
                (field, Wire::Bytes(text)) if field == wanted => all.push(text),
                _ => {}
            }
        }
        Ok(all)
    };
    Ok(Some(match name {
        "~apis.meta.v1.Time" | "~apis.meta.v1.MicroTime" => {
            let numbers = numbers()?;
            let Some(seconds) = numbers.get(&1) else {
                return Ok(Some(Value::Null));
            };
            let nanos = numbers.get(&2).copied().unwrap_or(0);
            let at = Timestamp::new(*seconds, i32::try_from(nanos).unwrap_or(0))
                .map_err(|error| error.to_string())?;
            let format = if name.ends_with("MicroTime") {
                "%Y-%m-%dT%H:%M:%S.%6fZ"
            } else {
                "%Y-%m-%dT%H:%M:%SZ"
            };
            at.strftime(format).to_string().into()
        }
        "~api.resource.Quantity" => utf8(texts(1)?.last().copied().unwrap_or_default())?.into(),
        "~util.intstr.IntOrString" => {
            let numbers = numbers()?;
            if numbers.get(&1).copied().unwrap_or(0) == 0 {
                numbers.get(&2).copied().unwrap_or(0).into()
            } else {
                utf8(texts(3)?.last().copied().unwrap_or_default())?.into()
            }
        }
        "~apis.meta.v1.FieldsV1" | "~runtime.RawExtension" => {
            let raw = texts(1)?;
            let raw = raw.last().copied().unwrap_or_default();
            if raw.is_empty() {
                Value::Null
            } else {
                serde_json::from_slice(raw).map_err(|error| error.to_string())?
            }
        }
        "~apis.meta.v1.Verbs"
        | "authorization.v1.ExtraValue"
        | "authentication.v1.ExtraValue"
        | "certificates.v1.ExtraValue" => {
            let items: Result<Vec<String>, String> = texts(1)?.into_iter().map(utf8).collect();
            items?.into()
        }
        _ => return Ok(None),
    }))
}

/// One field on the wire.
#[derive(Clone, Copy)]
enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads the fields of one message.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first()?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(bytes)
    }

    fn fixed(&mut self, length: usize) -> Option<u64> {
        Some(
            self.take(length)?
                .iter()
                .rev()
                .fold(0, |all, byte| (all << 8) | u64::from(*byte)),
        )
    }

    fn field(&mut self) -> Option<(u64, Wire<'a>)> {
        let tag = self.varint()?;
        let wire = match tag & 7 {
            0 => Wire::Number(self.varint()?),
            1 => Wire::Number(self.fixed(8)?),
            2 => {
                let length = usize::try_from(self.varint()?).ok()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => Wire::Number(self.fixed(4)?),
            _ => return None,
        };
        Some((tag >> 3, wire))
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Result<(u64, Wire<'a>), String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_none() {
            self.0 = &[];
        }
        Some(field.ok_or_else(|| "unexpected EOF".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_config_map_as_kubectl_sends_it() {
        // apiVersion v1, kind ConfigMap; metadata.name "a"; data x=y.
        let body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x11\x0a\x05\x0a\x01a\x42\x00\x12\x06\x0a\x01x\x12\x01y\x1a\x00\"\x00";
        let mut body = body.to_vec();
        // The length of what follows the type: metadata and one pair.
        body[22] = 15;
        let value = decode(&body, ("", "")).unwrap();
        assert_eq!(value["metadata"]["name"], "a");
        assert_eq!(value["data"]["x"], "y");
    }

    #[test]
    fn fields_have_their_names_in_json() {
        for (message, fields) in MESSAGES.iter() {
            let name = match message.strip_prefix('~') {
                Some(name) => format!("io.k8s.apimachinery.pkg.{name}"),
                None => format!("io.k8s.api.{message}"),
            };
            let definition = crate::builtin::definitions().get(&name);
            let Some(known) = definition.and_then(|it| it.get("properties")?.as_object()) else {
                continue;
            };
            for field in fields.values().filter(|field| !field.inline) {
                assert!(known.contains_key(field.name), "{name}: {}", field.name);
            }
        }
    }

    proptest! {
        #[test]
        fn never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut body = MAGIC.to_vec();
            body.extend_from_slice(b"\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12");
            body.push(u8::try_from(bytes.len() & 0x7f).unwrap());
            body.extend_from_slice(&bytes);
            let _ = decode(&body, ("", ""));
        }
    }
}

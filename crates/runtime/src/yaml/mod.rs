//! YAML in and out, behind one door: the parser's crate may change, its callers need not.
//!
//! A text means here what it means to `kubectl`, scalar by scalar. One difference is deliberate: a key that is twice
//! in one map is refused, where `kubectl` keeps the last.

mod scalar;
mod tree;

#[cfg(test)]
mod tests;

use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;

use writ_controller::Error;

/// How much anchors and aliases may add to what is written: a few lines of them can stand for more than any memory holds.
#[derive(Debug)]
pub struct Aliases(usize);

impl Default for Aliases {
    fn default() -> Self {
        Self(500_000)
    }
}

/// Reads one document.
pub fn from_str<T: DeserializeOwned>(text: &str) -> Result<T, Error> {
    let mut all = tree::documents(text, &mut Aliases::default()).map_err(|reason| unexpected(&reason))?;
    if all.len() > 1 {
        return Err(unexpected("there is more than one document"));
    }
    typed(all.pop().unwrap_or_default())
}

/// Reads every document of a stream; empty ones are left out.
pub fn documents<T: DeserializeOwned>(text: &str) -> Result<Vec<T>, Error> {
    documents_sharing(text, &mut Aliases::default())
}

/// The same for one of several texts, whose aliases together may add so much.
pub fn documents_sharing<T: DeserializeOwned>(text: &str, aliases: &mut Aliases) -> Result<Vec<T>, Error> {
    tree::documents(text, aliases)
        .map_err(|reason| unexpected(&reason))?
        .into_iter()
        .filter(|document| !document.is_null())
        .map(typed)
        .collect()
}

fn typed<T: DeserializeOwned>(value: Value) -> Result<T, Error> {
    serde_json::from_value(value).map_err(|error| {
        // What stands in quotes is from the document, which may be a Secret.
        let text = error.to_string();
        match (text.find('"'), text.rfind('"')) {
            (Some(first), Some(last)) if first < last => unexpected(&format!(
                "{}...{}",
                text.get(..=first).unwrap_or_default(),
                text.get(last..).unwrap_or_default()
            )),
            _ => unexpected(&text),
        }
    })
}

/// Only the first line of the parser's words: more could quote the document.
fn unexpected(reason: &str) -> Error {
    Error::Invalid(format!(
        "not the YAML that is expected: {}",
        reason.lines().next().unwrap_or_default()
    ))
}

/// Writes one document.
pub fn to_string<T: Serialize>(value: &T) -> Result<String, Error> {
    let failed =
        |error: &dyn std::fmt::Display| Error::Invalid(format!("cannot be written as YAML: {error}"));
    let tree = serde_json::to_value(value).map_err(|error| failed(&error))?;
    if has_doubtful_key(&tree) {
        // The writer puts quotes around such texts, but not around such keys. JSON is YAML too.
        let text = serde_json::to_string_pretty(&tree).map_err(|error| failed(&error))?;
        return Ok(format!("{text}\n"));
    }
    serde_saphyr::to_string(value).map_err(|error| failed(&error))
}

/// Whether a map has a key that would be read as something else, such as `y`.
fn has_doubtful_key(value: &Value) -> bool {
    match value {
        Value::Object(map) => map.iter().any(|(key, value)| {
            scalar::plain(key).map_or(true, |read| read != **key) || has_doubtful_key(value)
        }),
        Value::Array(items) => items.iter().any(has_doubtful_key),
        _ => false,
    }
}

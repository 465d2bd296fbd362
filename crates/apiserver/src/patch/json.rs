//! JSON patch as the real server knows it. It is not quite RFC 6902: keys that are not there are null, indexes may
//! count from the end, and what is before the first slash of a path is not looked at.

use std::collections::HashMap;

use serde_json::Value;
use serde_json::value::RawValue;

use super::{MAX_DEPTH, PatchError, deeper_than};
use crate::http::{decode_json, escape_marks, mended};

/// A JSON patch may not have more operations.
const MAX_OPERATIONS: usize = 10_000;

/// What all copies of a JSON patch may add, so that copies of copies do not fill the memory: the limit of a request.
const MAX_COPIED: usize = 3 << 20;

/// After how many operations the depth is looked at: often enough that the stack is never in danger, and no more.
const LOOK_EVERY: usize = 16;

/// The fields of an operation as they were written; no value is null.
type Operation<'a> = HashMap<String, Option<&'a RawValue>>;

/// Why an operation cannot be done.
type Refused = String;

/// Applies a JSON patch.
pub fn json_patch(document: &Value, patch: &[u8]) -> Result<Value, PatchError> {
    let patch = mended(patch);
    let operations: Option<Vec<Option<Operation<'_>>>> = serde_json::from_slice(&patch)
        .map_err(|e| PatchError::Malformed(format!("error decoding patch: {e}")))?;
    let operations = operations.unwrap_or_default();
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::Malformed(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut out = document.clone();
    let mut copied = 0;
    for (at, operation) in operations.into_iter().enumerate() {
        let operation = operation.unwrap_or_default();
        perform(&mut out, &operation, &mut copied).map_err(PatchError::Unprocessable)?;
        if at % LOOK_EVERY == 0 {
            check_depth(&out)?;
        }
    }
    check_depth(&out)?;
    Ok(out)
}

/// Fields of operations that are unknown or there twice; operations that are no operations are refused.
pub fn json_patch_problems(patch: &[u8]) -> Result<Vec<String>, PatchError> {
    let malformed = |why: &str| PatchError::Malformed(format!("error decoding patch: {why}"));
    let decoded = decode_json(patch).map_err(|error| malformed(&error))?;
    let operations = match &decoded.value {
        Value::Array(list) => list.as_slice(),
        Value::Null => &[],
        _ => return Err(malformed("a JSON patch is a list")),
    };
    let twice = decoded.duplicates.iter();
    let mut problems: Vec<String> = twice.map(|field| format!("json patch {field}")).collect();
    for (at, operation) in operations.iter().enumerate() {
        match operation {
            Value::Null => {}
            Value::Object(fields) => {
                for (name, value) in fields {
                    match name.as_str() {
                        "value" => {}
                        "op" | "path" | "from" if value.is_string() || value.is_null() => {}
                        "op" | "path" | "from" => return Err(malformed(&format!("{name} is no text"))),
                        _ => problems.push(format!("json patch unknown field \"[{at}].{name}\"")),
                    }
                }
            }
            _ => return Err(malformed("an operation is an object")),
        }
    }
    Ok(problems)
}

fn check_depth(value: &Value) -> Result<(), PatchError> {
    if deeper_than(value, MAX_DEPTH) {
        let why = format!("the patch nests the object deeper than {MAX_DEPTH} levels");
        return Err(PatchError::Unprocessable(why));
    }
    Ok(())
}

/// A field of an operation that is a text.
fn text(operation: &Operation<'_>, name: &str) -> Option<String> {
    let written = operation.get(name).copied().flatten()?;
    serde_json::from_str(written.get()).ok()
}

fn perform(document: &mut Value, operation: &Operation<'_>, copied: &mut usize) -> Result<(), Refused> {
    let op = text(operation, "op").unwrap_or_else(|| "unknown".into());
    let place =
        |name: &str| text(operation, name).ok_or_else(|| format!("{op} operation failed to decode {name}"));
    let missing = |path: &str| format!("{op} operation does not apply: doc is missing path: {path:?}");
    // A value that is not given is null.
    let value = || match operation.get("value").copied().flatten() {
        Some(written) => serde_json::from_str(written.get()).map_err(|e| e.to_string()),
        None => Ok(Value::Null),
    };
    match op.as_str() {
        "add" => {
            let path = place("path")?;
            let (parent, key) = find(document, &path).ok_or_else(|| missing(&path))?;
            add(parent, &key, value()?)
        }
        "remove" => {
            let path = place("path")?;
            let (parent, key) = find(document, &path).ok_or_else(|| missing(&path))?;
            remove(parent, &key).map(drop)
        }
        "replace" => {
            let path = place("path")?;
            if path.is_empty() {
                let whole = value()?;
                if !whole.is_object() && !whole.is_array() {
                    return Err("replace operation value must be object or array".into());
                }
                *document = whole;
                return Ok(());
            }
            let (parent, key) = find(document, &path).ok_or_else(|| missing(&path))?;
            replace(parent, &key, value()?)
        }
        "move" => {
            let from = place("from")?;
            let (parent, key) = find(document, &from).ok_or_else(|| missing(&from))?;
            let moved = remove(parent, &key)?;
            let path = place("path")?;
            let (parent, key) = find(document, &path).ok_or_else(|| missing(&path))?;
            add(parent, &key, moved)
        }
        "copy" => {
            let from = place("from")?;
            let (parent, key) = find(document, &from).ok_or_else(|| missing(&from))?;
            let copy = get(parent, &key)?.clone();
            let path = place("path")?;
            let (parent, key) = find(document, &path).ok_or_else(|| missing(&path))?;
            if !copy.is_null() {
                *copied += copy.to_string().len();
            }
            if *copied > MAX_COPIED {
                return Err(format!(
                    "unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
                ));
            }
            add(parent, &key, copy)
        }
        "test" => {
            let path = place("path")?;
            let wanted = operation.get("value").copied().flatten();
            let passed = if path.is_empty() {
                same(document, wanted)
            } else {
                let (parent, key) = find(document, &path).ok_or_else(|| missing(&path))?;
                same(get(parent, &key)?, wanted)
            };
            if passed {
                Ok(())
            } else {
                Err(format!("testing value {path} failed"))
            }
        }
        other => Err(format!("Unexpected kind: {other}")),
    }
}

/// The map or list that a path ends in, and the key there.
fn find<'d>(document: &'d mut Value, path: &str) -> Option<(&'d mut Value, String)> {
    let mut parts = path.split('/').skip(1).map(unescaped);
    let mut key = parts.next()?;
    let mut here = document;
    for next in parts {
        here = match here {
            Value::Object(map) => map.get_mut(&key)?,
            Value::Array(list) => {
                let at = index(&key, list.len()).ok()?;
                list.get_mut(at)?
            }
            _ => return None,
        };
        key = next;
    }
    (here.is_object() || here.is_array()).then_some((here, key))
}

/// Both escapes are undone in one go; any other `~` is itself.
fn unescaped(part: &str) -> String {
    let mut pieces = part.split('~');
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let (escaped, rest) = match piece.as_bytes().first() {
            Some(b'0') => ('~', piece.get(1..)),
            Some(b'1') => ('/', piece.get(1..)),
            _ => ('~', Some(piece)),
        };
        out.push(escaped);
        out.push_str(rest.unwrap_or_default());
    }
    out
}

/// The place in a list that a key means; negative ones count from the end. It may be past the end.
fn index(key: &str, length: usize) -> Result<usize, Refused> {
    let refused = || format!("Unable to access invalid index: {key}");
    let at: i64 = key.parse().map_err(|_| refused())?;
    if let Ok(at) = usize::try_from(at) {
        return Ok(at);
    }
    let back = usize::try_from(at.unsigned_abs()).map_err(|_| refused())?;
    length.checked_sub(back).ok_or_else(refused)
}

/// What is there; a key that is not there is null.
fn get<'d>(parent: &'d Value, key: &str) -> Result<&'d Value, Refused> {
    match parent {
        Value::Array(list) => {
            let at = index(key, list.len())?;
            list.get(at)
                .ok_or_else(|| format!("Unable to access invalid index: {key}"))
        }
        _ => Ok(parent.get(key).unwrap_or(&Value::Null)),
    }
}

fn add(parent: &mut Value, key: &str, value: Value) -> Result<(), Refused> {
    match parent {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(list) if key == "-" => list.push(value),
        Value::Array(list) => {
            // Counted in the list as it will be.
            let at = index(key, list.len() + 1)?;
            if at > list.len() {
                return Err(format!("Unable to access invalid index: {key}"));
            }
            list.insert(at, value);
        }
        _ => {}
    }
    Ok(())
}

fn replace(parent: &mut Value, key: &str, value: Value) -> Result<(), Refused> {
    match parent {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
        }
        Value::Array(list) => {
            let at = index(key, list.len())?;
            let slot = list.get_mut(at);
            *slot.ok_or_else(|| format!("Unable to access invalid index: {key}"))? = value;
        }
        _ => {}
    }
    Ok(())
}

fn remove(parent: &mut Value, key: &str) -> Result<Value, Refused> {
    let removed = match parent {
        Value::Object(map) => map.remove(key),
        Value::Array(list) => {
            let at = index(key, list.len())?;
            (at < list.len()).then(|| list.remove(at))
        }
        _ => None,
    };
    removed.ok_or_else(|| format!("Unable to remove nonexistent key: {key}"))
}

/// Whether a value is as it was written. Numbers and texts are compared letter by letter with the form in which the real
/// server writes the object: `1.0` is not `1`, and `<` is not there what it is here.
fn same(found: &Value, written: Option<&RawValue>) -> bool {
    let Some(written) = written else {
        return found.is_null();
    };
    match found {
        Value::Null => false,
        Value::Object(map) => {
            let wanted: Result<Operation<'_>, _> = serde_json::from_str(written.get());
            wanted.is_ok_and(|wanted| {
                wanted.len() == map.len()
                    && map
                        .iter()
                        .all(|(name, found)| wanted.get(name).is_some_and(|wanted| same(found, *wanted)))
            })
        }
        Value::Array(list) => {
            let wanted: Result<Vec<Option<&RawValue>>, _> = serde_json::from_str(written.get());
            wanted.is_ok_and(|wanted| {
                wanted.len() == list.len()
                    && list.iter().zip(wanted).all(|(found, wanted)| same(found, wanted))
            })
        }
        Value::String(_) | Value::Bool(_) | Value::Number(_) => {
            let text = escape_marks(&found.to_string());
            text == written.get()
        }
    }
}

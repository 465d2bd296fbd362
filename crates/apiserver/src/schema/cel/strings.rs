//! Functions of texts that the engine has in another way than the reference implementation.

use std::sync::Arc;

use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

use super::conversions::only_argument;
use super::equality::same;
use super::keyed;

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function("bool", boolean);
    context.add_function("size", |called: &FunctionContext<'_, '_>| {
        // The engine forgets why an argument has no value.
        let value = match &called.this {
            Some(value) => value.clone(),
            None => only_argument(called)?,
        };
        size(&value)
    });
    context.add_function("split", split);
    context.add_function("replace", replace);
    context.add_function("indexOf", index_of);
    context.add_function("lastIndexOf", last_index_of);
}

fn int(number: usize) -> Cel {
    Cel::Int(i64::try_from(number).unwrap_or(i64::MAX))
}

fn text(text: String) -> Cel {
    Cel::String(Arc::new(text))
}

fn boolean(value: Cel) -> ResolveResult {
    let text = match &value {
        Cel::Bool(_) => return Ok(value),
        Cel::String(text) => text,
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    match text.as_str() {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Cel::Bool(true)),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Cel::Bool(false)),
        _ => Err(ExecutionError::function_error(
            "bool",
            "type conversion error from 'string' to 'bool'",
        )),
    }
}

/// A text is as long as it has characters, not bytes.
fn size(value: &Cel) -> ResolveResult {
    Ok(int(match value {
        Cel::String(text) => text.chars().count(),
        Cel::Bytes(bytes) => bytes.len(),
        Cel::List(items) => items.len(),
        Cel::Map(map) => map.map.len(),
        map if keyed::is(map) => keyed::entries(map).map_or(0, |entries| entries.len()),
        _ => return Err(ExecutionError::NoSuchOverload),
    }))
}

/// Nothing separates all characters; a negative limit is none.
fn split(This(value): This<Arc<String>>, Arguments(arguments): Arguments) -> ResolveResult {
    let (separator, limit) = match arguments.as_slice() {
        [Cel::String(separator)] => (separator, -1),
        [Cel::String(separator), Cel::Int(limit)] => (separator, *limit),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let parts: Vec<Cel> = if limit == 0 {
        Vec::new()
    } else if separator.is_empty() {
        let mut rest = value.as_str();
        let mut parts = Vec::new();
        while let Some(first) = rest.chars().next() {
            if parts.len() + 1 == limit {
                parts.push(text(rest.to_owned()));
                break;
            }
            parts.push(text(first.to_string()));
            rest = rest.get(first.len_utf8()..).unwrap_or_default();
        }
        parts
    } else {
        let parts = value.splitn(limit, separator.as_str());
        parts.map(|part| text(part.to_owned())).collect()
    };
    Ok(Cel::List(Arc::new(parts)))
}

/// A negative limit is none.
fn replace(This(value): This<Arc<String>>, Arguments(arguments): Arguments) -> ResolveResult {
    let (from, to, limit) = match arguments.as_slice() {
        [Cel::String(from), Cel::String(to)] => (from, to, -1),
        [Cel::String(from), Cel::String(to), Cel::Int(limit)] => (from, to, *limit),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let replaced = usize::try_from(limit).map_or_else(
        |_| value.replace(from.as_str(), to),
        |limit| value.replacen(from.as_str(), to, limit),
    );
    Ok(text(replaced))
}

/// What is looked for, and from where.
fn wanted(arguments: &[Cel]) -> Result<(Vec<char>, Option<i64>), ExecutionError> {
    match arguments {
        [Cel::String(text)] => Ok((text.chars().collect(), None)),
        [Cel::String(text), Cel::Int(from)] => Ok((text.chars().collect(), Some(*from))),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

/// Where to begin: nowhere beyond the end.
fn begin(function: &str, from: i64, length: usize) -> Result<Option<usize>, ExecutionError> {
    let Ok(at) = usize::try_from(from) else {
        return Err(ExecutionError::function_error(
            function,
            format!("index out of range: {from}"),
        ));
    };
    Ok((at < length).then_some(at))
}

fn found(place: Option<usize>) -> Cel {
    place.map_or(Cel::Int(-1), int)
}

fn index_of(This(value): This<Cel>, Arguments(arguments): Arguments) -> ResolveResult {
    let value = match (&value, arguments.as_slice()) {
        (Cel::List(items), [wanted]) => return Ok(found(items.iter().position(|item| same(item, wanted)))),
        (Cel::String(text), _) => text.chars().collect::<Vec<char>>(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let (wanted, from) = wanted(&arguments)?;
    let from = from.unwrap_or(0);
    if wanted.is_empty() {
        return Ok(Cel::Int(from));
    }
    let Some(from) = begin("indexOf", from, value.len())? else {
        return Ok(found(None));
    };
    let places = value.windows(wanted.len()).enumerate().skip(from);
    let mut places = places.filter(|(_, part)| *part == wanted).map(|(at, _)| at);
    Ok(found(places.next()))
}

fn last_index_of(This(value): This<Cel>, Arguments(arguments): Arguments) -> ResolveResult {
    let value = match (&value, arguments.as_slice()) {
        (Cel::List(items), [wanted]) => return Ok(found(items.iter().rposition(|item| same(item, wanted)))),
        (Cel::String(text), _) => text.chars().collect::<Vec<char>>(),
        _ => return Err(ExecutionError::NoSuchOverload),
    };
    let (wanted, from) = wanted(&arguments)?;
    if wanted.is_empty() {
        return Ok(from.map_or_else(|| int(value.len()), Cel::Int));
    }
    let last = match from {
        Some(from) => begin("lastIndexOf", from, value.len())?,
        None => Some(value.len()),
    };
    let Some(last) = last else {
        return Ok(found(None));
    };
    let places = value
        .windows(wanted.len())
        .enumerate()
        .take(last.saturating_add(1));
    let mut places = places.filter(|(_, part)| *part == wanted).map(|(at, _)| at);
    Ok(found(places.next_back()))
}

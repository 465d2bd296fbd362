//! The part of Kubernetes' JSONPath that printer columns and scale paths use: fields, indexes, slices, `[*]`, and `[?(@.a=="b")]`.

use serde_json::Value;

#[derive(Debug, Clone, PartialEq)]
enum Step {
    Field(String),
    Index(i64),
    /// From, up to, and how many at a time.
    Slice(i64, Option<i64>, usize),
    All,
    /// Keep the items whose field (a path) compares with a value.
    Filter(Vec<Step>, bool, Value),
}

/// Everything a path finds. Nothing, for a path that cannot be read.
pub(crate) fn find<'a>(value: &'a Value, path: &str) -> Vec<&'a Value> {
    let path = path.trim();
    let path = path
        .strip_prefix('{')
        .and_then(|rest| rest.strip_suffix('}'))
        .unwrap_or(path);
    parse(path)
        .map(|steps| walk(vec![value], &steps))
        .unwrap_or_default()
}

fn walk<'a>(mut found: Vec<&'a Value>, steps: &[Step]) -> Vec<&'a Value> {
    for step in steps {
        found = found
            .into_iter()
            .flat_map(|value| -> Vec<&'a Value> {
                match (step, value) {
                    (Step::Field(name), Value::Object(map)) => map.get(name).into_iter().collect(),
                    (Step::Index(index), Value::Array(list)) => {
                        let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                        let index = if *index < 0 { length + index } else { *index };
                        usize::try_from(index)
                            .ok()
                            .and_then(|index| list.get(index))
                            .into_iter()
                            .collect()
                    }
                    (Step::Slice(start, end, step), Value::Array(list)) => {
                        let length = i64::try_from(list.len()).unwrap_or(i64::MAX);
                        let at = |index: i64| if index < 0 { length + index } else { index };
                        let (start, end) = (at(*start), at(end.unwrap_or(length)));
                        let range = usize::try_from(start).ok().zip(usize::try_from(end).ok());
                        let slice = range.and_then(|(start, end)| list.get(start..end));
                        slice.into_iter().flatten().step_by(*step).collect()
                    }
                    (Step::All, Value::Array(list)) => list.iter().collect(),
                    (Step::All, Value::Object(map)) => map.values().collect(),
                    (Step::Filter(path, equal, wanted), Value::Array(list)) => list
                        .iter()
                        .filter(|item| {
                            walk(vec![item], path)
                                .first()
                                .is_some_and(|have| (*have == wanted) == *equal)
                        })
                        .collect(),
                    _ => Vec::new(),
                }
            })
            .collect();
    }
    found
}

fn parse(path: &str) -> Option<Vec<Step>> {
    let mut steps = Vec::new();
    let mut rest = path.strip_prefix('$').unwrap_or(path);
    while !rest.is_empty() {
        if let Some(after) = rest.strip_prefix('[') {
            let end = closing(after)?;
            let (inside, after) = after.split_at_checked(end)?;
            steps.push(bracket(inside.trim())?);
            rest = after.strip_prefix(']')?;
        } else {
            let after = rest.strip_prefix('.').unwrap_or(rest);
            let mut name = String::new();
            let mut chars = after.char_indices();
            let mut end = after.len();
            while let Some((at, c)) = chars.next() {
                match c {
                    '\\' => name.extend(chars.next().map(|(_, c)| c)),
                    '.' | '[' => {
                        end = at;
                        break;
                    }
                    c => name.push(c),
                }
            }
            rest = after.get(end..)?;
            match name.as_str() {
                "" if rest.is_empty() => {}
                "" => {
                    if !rest.starts_with('[') {
                        return None;
                    }
                }
                "*" => steps.push(Step::All),
                _ => steps.push(Step::Field(name)),
            }
        }
    }
    Some(steps)
}

/// The bracket that ends what was opened, outside quotes and inner brackets.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut quote) = (0, None);
    for (at, c) in text.char_indices() {
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '\'' | '"') => quote = Some(c),
            (None, '[') => depth += 1,
            (None, ']') if depth == 0 => return Some(at),
            (None, ']') => depth -= 1,
            _ => {}
        }
    }
    None
}

fn quoted(text: &str) -> Option<&str> {
    ['\'', '"']
        .into_iter()
        .find_map(|q| text.strip_prefix(q)?.strip_suffix(q))
}

fn bracket(text: &str) -> Option<Step> {
    if text == "*" {
        return Some(Step::All);
    }
    if let Some(name) = quoted(text) {
        return Some(Step::Field(name.to_owned()));
    }
    if let Some(filter) = text.strip_prefix("?(").and_then(|rest| rest.strip_suffix(')')) {
        let (path, equal, wanted) = filter
            .split_once("==")
            .map(|(path, wanted)| (path, true, wanted))
            .or_else(|| {
                filter
                    .split_once("!=")
                    .map(|(path, wanted)| (path, false, wanted))
            })?;
        let wanted = wanted.trim();
        let wanted = match quoted(wanted) {
            Some(text) => Value::String(text.to_owned()),
            None => serde_json::from_str(wanted).ok()?,
        };
        return Some(Step::Filter(
            parse(path.trim().strip_prefix('@')?)?,
            equal,
            wanted,
        ));
    }
    let mut parts = text.split(':').map(str::trim);
    let number = |part: &str| -> Option<Option<i64>> {
        if part.is_empty() {
            return Some(None);
        }
        part.parse().ok().map(Some)
    };
    let first = number(parts.next()?)?;
    let Some(end) = parts.next() else {
        return first.map(Step::Index);
    };
    let step = parts.next().map_or(Some(None), number)?.unwrap_or(1);
    let step = usize::try_from(step).ok().filter(|step| *step > 0)?;
    Some(Step::Slice(first.unwrap_or(0), number(end)?, step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn finds() {
        let value = json!({
            "metadata": { "labels": { "a.b/c": "x" } },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Other", "status": "False" }] },
        });
        for (path, wanted) in [
            (".metadata.labels['a.b/c']", vec![json!("x")]),
            (".metadata.labels.a\\.b/c", vec![json!("x")]),
            (
                "{.status.conditions[?(@.type==\"Ready\")].status}",
                vec![json!("True")],
            ),
            (".status.conditions[?(@.type=='Gone')].status", vec![]),
            (".status.conditions[*].type", vec![json!("Ready"), json!("Other")]),
            (".status.conditions[-1].type", vec![json!("Other")]),
            (".status.conditions[-1:].type", vec![json!("Other")]),
            (".status.conditions[0:1].type", vec![json!("Ready")]),
            (".status.conditions[::2].type", vec![json!("Ready")]),
            (".status.conditions[2:9].type", vec![]),
            (".status.conditions[::0].type", vec![]),
            (".status.conditions[9].type", vec![]),
            ("..", vec![]),
            ("[", vec![]),
        ] {
            let found: Vec<Value> = find(&value, path).into_iter().cloned().collect();
            assert_eq!(found, wanted, "{path}");
        }
    }
}

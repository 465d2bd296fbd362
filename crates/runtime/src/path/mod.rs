//! Paths into JSON, in the three languages that Kubernetes users write: the JSONPath of kubectl, jq's path
//! expressions, and JSON pointers.

mod jq;
mod jsonpath;
mod scan;
#[cfg(test)]
mod tests;

use std::collections::HashSet;

use serde_json::Value;

/// How many bytes a path may have.
const LENGTH: usize = 4096;

/// How deep expressions may nest.
const DEPTH: usize = 32;

/// Why a path cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a {language} that is understood: {problem} at character {position}")]
pub struct PathError {
    /// What it should have been.
    pub language: &'static str,
    /// The path.
    pub path: String,
    /// What is wrong.
    pub problem: String,
    /// Where, counted from 1.
    pub position: usize,
}

/// One or more alternatives, each a chain of steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Path {
    alternatives: Vec<Vec<Step>>,
}

#[derive(Clone, Debug, PartialEq)]
enum Step {
    Key(String),
    Index(i64),
    Slice(Option<i64>, Option<i64>, i64),
    Each,
    /// This value and everything below it.
    Descend,
    /// Any of these steps.
    Union(Vec<Step>),
    /// Of a list, the elements for which it holds.
    Filter(Test),
    /// The value itself, if it holds for it.
    Select(Test),
}

#[derive(Clone, Debug, PartialEq)]
enum Test {
    Exists(Vec<Step>),
    Compare(Vec<Step>, Operator, Value),
    /// A test of what the steps lead to; of nothing, if that is nowhere.
    On(Vec<Step>, Box<Test>),
    /// A key of an object, or an index of a list.
    Has(Value),
    StartsWith(String),
    EndsWith(String),
    Contains(String),
    Matches(Pattern),
    OneOf(Vec<Value>),
    /// How many characters, elements or entries.
    Length(Operator, Value),
    Any(Box<Test>),
    All(Box<Test>),
    Not(Box<Test>),
    And(Box<Test>, Box<Test>),
    Or(Box<Test>, Box<Test>),
}

/// A regular expression; two are the same if they are written the same.
#[derive(Clone, Debug)]
struct Pattern(regex::Regex);

impl PartialEq for Pattern {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_str() == other.0.as_str()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operator {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Step {
    /// Whether it can lead to any number of places. Such a step that leads nowhere tests nothing; others test `null`.
    fn may_find_many(&self) -> bool {
        !matches!(self, Self::Key(_) | Self::Index(_))
    }
}

/// One step of a place: a key of an object or an index of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum At {
    /// A key of an object.
    Key(String),
    /// An index of a list.
    Index(usize),
}

impl Path {
    /// Reads kubectl's JSONPath: `.a.b`, `{.a.b}`, `$.a['b']`, `a\.b`, `[0]`, `[-1]`, `[0:2]`, `[*]`, `..a`,
    /// `[?(@.type=="Ready")]`.
    pub fn jsonpath(text: &str) -> Result<Self, PathError> {
        short("JSONPath", text)?;
        jsonpath::parse(text)
    }

    /// Reads a jq path expression: keys, indexes, slices, `[]`, `|`, `,`, `..`, `?`, `if`, `getpath`, and `select` with
    /// comparisons and the usual tests.
    pub fn jq(text: &str) -> Result<Self, PathError> {
        short("jq path expression", text)?;
        jq::parse(text)
    }

    /// Reads a JSON pointer (RFC 6901).
    pub fn pointer(text: &str) -> Result<Self, PathError> {
        short("JSON pointer", text)?;
        let problem = |problem: &str, position: usize| PathError {
            language: "JSON pointer",
            path: text.into(),
            problem: problem.into(),
            position,
        };
        let mut steps = Vec::new();
        if !text.is_empty() {
            let rest = text
                .strip_prefix('/')
                .ok_or_else(|| problem("it must begin with a slash", 1))?;
            for part in rest.split('/') {
                let wrong = part
                    .split('~')
                    .skip(1)
                    .any(|after| !after.starts_with(['0', '1']));
                if wrong {
                    return Err(problem("`~` must be written `~0`", 1));
                }
                let key = part.replace("~1", "/").replace("~0", "~");
                let step = match key.parse::<i64>() {
                    Ok(index) if index >= 0 => Step::Union(vec![Step::Index(index), Step::Key(key)]),
                    _ => Step::Key(key),
                };
                steps.push(step);
            }
        }
        Ok(Self {
            alternatives: vec![steps],
        })
    }

    /// The values that the path leads to; none if there is nothing there.
    pub fn select<'v>(&self, value: &'v Value) -> Vec<&'v Value> {
        self.places(value).into_iter().map(|(_, value)| value).collect()
    }

    /// Removes everything that the path leads to; returns how much that was.
    pub fn remove(&self, value: &mut Value) -> usize {
        let mut places: Vec<Vec<At>> = self.places(value).into_iter().map(|(place, _)| place).collect();
        // From the end, so that the places that are left stay where they are.
        places.sort();
        places.dedup();
        let count = places.len();
        for place in places.into_iter().rev() {
            remove_at(value, &place);
        }
        count
    }

    /// The values that the path leads to, and where they are.
    pub fn places<'v>(&self, value: &'v Value) -> Vec<(Vec<At>, &'v Value)> {
        self.alternatives
            .iter()
            .flat_map(|steps| walk(steps, value))
            .collect()
    }
}

/// What is very long is not even looked at: anybody may write a path, and parts of it are copied.
fn short(language: &'static str, text: &str) -> Result<(), PathError> {
    if text.len() <= LENGTH {
        return Ok(());
    }
    let start: String = text.chars().take(64).collect();
    Err(PathError {
        language,
        path: format!("{start}..."),
        problem: format!("it is longer than {LENGTH} bytes"),
        position: LENGTH + 1,
    })
}

fn remove_at(value: &mut Value, place: &[At]) {
    let Some((last, parents)) = place.split_last() else {
        *value = Value::Null;
        return;
    };
    let mut current = value;
    for step in parents {
        let next = match step {
            At::Key(key) => current.get_mut(key),
            At::Index(index) => current.get_mut(index),
        };
        match next {
            Some(next) => current = next,
            None => return,
        }
    }
    match (current, last) {
        (Value::Object(map), At::Key(key)) => {
            map.remove(key);
        }
        (Value::Array(elements), At::Index(index)) if *index < elements.len() => {
            elements.remove(*index);
        }
        _ => {}
    }
}

type Found<'v> = Vec<(Vec<At>, &'v Value)>;

fn walk<'v>(steps: &[Step], value: &'v Value) -> Found<'v> {
    let mut found: Found<'v> = vec![(Vec::new(), value)];
    for step in steps {
        found = found
            .into_iter()
            .flat_map(|(place, value)| {
                one(step, value).into_iter().map(move |(more, value)| {
                    let mut place = place.clone();
                    place.extend(more);
                    (place, value)
                })
            })
            .collect();
        if step.may_find_many() {
            // However often steps lead to a place, it is one place: otherwise a few `..` would be more than there is.
            let mut seen = HashSet::new();
            found.retain(|(_, value)| seen.insert(std::ptr::from_ref(*value)));
        }
    }
    found
}

fn one<'v>(step: &Step, value: &'v Value) -> Found<'v> {
    match (step, value) {
        (Step::Key(key), Value::Object(map)) => map
            .get(key)
            .map(|value| (vec![At::Key(key.clone())], value))
            .into_iter()
            .collect(),
        (Step::Index(index), Value::Array(list)) => position(*index, list.len())
            .and_then(|index| Some((vec![At::Index(index)], list.get(index)?)))
            .into_iter()
            .collect(),
        (Step::Slice(from, to, step), Value::Array(list)) => slice(list, *from, *to, *step),
        (Step::Each, Value::Array(_) | Value::Object(_)) => children(value),
        (Step::Descend, _) => {
            let mut all = vec![(Vec::new(), value)];
            for (place, child) in children(value) {
                for (more, value) in one(&Step::Descend, child) {
                    let mut place = place.clone();
                    place.extend(more);
                    all.push((place, value));
                }
            }
            all
        }
        (Step::Union(steps), _) => steps.iter().flat_map(|step| one(step, value)).collect(),
        (Step::Filter(test), Value::Array(_)) => children(value)
            .into_iter()
            .filter(|(_, element)| holds(test, element))
            .collect(),
        (Step::Select(test), _) if holds(test, value) => vec![(Vec::new(), value)],
        _ => Vec::new(),
    }
}

fn children(value: &Value) -> Found<'_> {
    match value {
        Value::Array(list) => list
            .iter()
            .enumerate()
            .map(|(index, value)| (vec![At::Index(index)], value))
            .collect(),
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (vec![At::Key(key.clone())], value))
            .collect(),
        _ => Vec::new(),
    }
}

fn position(index: i64, len: usize) -> Option<usize> {
    let len_signed = i64::try_from(len).ok()?;
    let index = if index < 0 { index + len_signed } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

fn slice(list: &[Value], from: Option<i64>, to: Option<i64>, step: i64) -> Found<'_> {
    let len = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let bound = |index: i64| (if index < 0 { index + len } else { index }).clamp(0, len);
    let (from, to) = (bound(from.unwrap_or(0)), bound(to.unwrap_or(len)));
    let step = usize::try_from(step).unwrap_or(1).max(1);
    (from..to)
        .step_by(step)
        .filter_map(|index| {
            let index = usize::try_from(index).ok()?;
            Some((vec![At::Index(index)], list.get(index)?))
        })
        .collect()
}

fn holds(test: &Test, value: &Value) -> bool {
    match test {
        Test::Exists(steps) => walk(steps, value)
            .iter()
            .any(|(_, found)| !found.is_null() && **found != Value::Bool(false)),
        Test::Compare(steps, operator, wanted) => {
            let found = walk(steps, value);
            if found.is_empty() {
                return *operator == Operator::NotEqual || (*operator == Operator::Equal && wanted.is_null());
            }
            found.iter().any(|(_, found)| compare(found, *operator, wanted))
        }
        Test::On(steps, test) => {
            let found = walk(steps, value);
            if found.is_empty() {
                return !steps.iter().any(Step::may_find_many) && holds(test, &Value::Null);
            }
            found.iter().any(|(_, found)| holds(test, found))
        }
        Test::Has(Value::String(key)) => value.get(key).is_some(),
        Test::Has(index) => {
            let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
            index.is_some_and(|index| value.get(index).is_some())
        }
        Test::StartsWith(part) => value.as_str().is_some_and(|value| value.starts_with(part)),
        Test::EndsWith(part) => value.as_str().is_some_and(|value| value.ends_with(part)),
        Test::Contains(part) => match value {
            Value::String(value) => value.contains(part),
            Value::Array(list) => list
                .iter()
                .any(|element| element.as_str().is_some_and(|value| value.contains(part))),
            _ => false,
        },
        Test::Matches(pattern) => value.as_str().is_some_and(|value| pattern.0.is_match(value)),
        Test::OneOf(values) => values
            .iter()
            .any(|wanted| compare(value, Operator::Equal, wanted)),
        Test::Length(operator, wanted) => {
            let length = match value {
                Value::String(value) => value.chars().count(),
                Value::Array(_) | Value::Object(_) => children(value).len(),
                _ => 0,
            };
            compare(&Value::from(length), *operator, wanted)
        }
        Test::Any(test) => children(value).iter().any(|(_, child)| holds(test, child)),
        Test::All(test) => children(value).iter().all(|(_, child)| holds(test, child)),
        Test::Not(test) => !holds(test, value),
        Test::And(a, b) => holds(a, value) && holds(b, value),
        Test::Or(a, b) => holds(a, value) || holds(b, value),
    }
}

fn compare(found: &Value, operator: Operator, wanted: &Value) -> bool {
    use std::cmp::Ordering::{Equal, Greater, Less};
    let order = match (found, wanted) {
        (Value::Number(a), Value::Number(b)) => {
            a.as_f64().zip(b.as_f64()).and_then(|(a, b)| a.partial_cmp(&b))
        }
        (Value::String(a), Value::String(b)) => Some(a.cmp(b)),
        (a, b) if a == b => Some(Equal),
        _ => None,
    };
    match operator {
        Operator::Equal => order == Some(Equal),
        Operator::NotEqual => order != Some(Equal),
        Operator::Less => order == Some(Less),
        Operator::LessOrEqual => matches!(order, Some(Less | Equal)),
        Operator::Greater => order == Some(Greater),
        Operator::GreaterOrEqual => matches!(order, Some(Greater | Equal)),
    }
}

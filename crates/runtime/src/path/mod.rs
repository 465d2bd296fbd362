//! Paths into JSON, in the three languages that Kubernetes users write: the JSONPath of kubectl, jq's path
//! expressions, and JSON pointers.

mod evaluate;
mod jq;
mod jsonpath;
mod scan;
#[cfg(test)]
mod tests;

use std::cell::Cell;

use serde_json::Value;

use self::evaluate::{Node, remove_all, walk};

/// How many bytes a path may have.
const LENGTH: usize = 4096;

/// How deep expressions may nest.
const DEPTH: usize = 32;

/// How many values all paths of one object may look at: a tenth of a second.
const BUDGET: usize = 1_000_000;

/// What a regular expression costs that was read, in values.
const PATTERN_COST: usize = 10_000;

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

    fn patterns(&self) -> usize {
        match self {
            Self::Union(steps) => steps.iter().map(Self::patterns).sum(),
            Self::Filter(test) | Self::Select(test) => test.patterns(),
            _ => 0,
        }
    }
}

impl Test {
    fn patterns(&self) -> usize {
        let of = |steps: &[Step]| steps.iter().map(Step::patterns).sum::<usize>();
        match self {
            Self::Matches(_) => 1,
            Self::Exists(steps) | Self::Compare(steps, ..) => of(steps),
            Self::On(steps, test) => of(steps) + test.patterns(),
            Self::Any(test) | Self::All(test) | Self::Not(test) => test.patterns(),
            Self::And(a, b) | Self::Or(a, b) => a.patterns() + b.patterns(),
            _ => 0,
        }
    }
}

/// One step of a place: a key of an object or an index of a list.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum At {
    Key(String),
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
    pub fn select<'v>(&self, value: &'v Value, budget: &Budget) -> Result<Vec<&'v Value>, TooMuch> {
        let found = self.places(value, budget)?;
        Ok(found.into_iter().map(|(_, value)| value).collect())
    }

    /// Removes everything that the path leads to; returns how much that was.
    pub fn remove(&self, value: &mut Value, budget: &Budget) -> Result<usize, TooMuch> {
        let found = self.places(value, budget)?;
        let places = found.iter().map(|(place, _)| Node::path(place.as_ref(), budget));
        let mut places: Vec<Vec<At>> = places.collect::<Result<_, _>>()?;
        places.sort();
        places.dedup();
        remove_all(value, &places.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Ok(places.len())
    }

    fn places<'v>(&self, value: &'v Value, budget: &Budget) -> Result<evaluate::Found<'v>, TooMuch> {
        budget.spend(PATTERN_COST.saturating_mul(self.patterns()))?;
        let mut all = Vec::new();
        for steps in &self.alternatives {
            all.extend(walk(steps, value, budget)?);
        }
        Ok(all)
    }

    /// How many regular expressions were read for it.
    fn patterns(&self) -> usize {
        self.alternatives.iter().flatten().map(Step::patterns).sum()
    }
}

/// What following paths may cost. Anybody who may write a work may write a path, and a path of a few characters can be
/// much work on a large object; one budget is for all paths of one object.
#[derive(Debug)]
pub struct Budget(Cell<usize>);

impl Default for Budget {
    fn default() -> Self {
        Self(Cell::new(BUDGET))
    }
}

impl Budget {
    fn spend(&self, cost: usize) -> Result<(), TooMuch> {
        let left = self.0.get().checked_sub(cost);
        // What is used up stays used up: the next path does not begin.
        self.0.set(left.unwrap_or_default());
        left.map(drop).ok_or(TooMuch)
    }
}

/// Following a path was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "it takes too many steps in this object: name fewer places, with keys instead of `..`, wildcards and tests"
)]
pub struct TooMuch;

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

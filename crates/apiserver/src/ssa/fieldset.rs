//! Sets of field paths, and their `fieldsV1` form.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// One step of a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Element {
    /// A field of an object.
    Field(String),
    /// An item of a list of objects, by its key fields as compact JSON.
    Key(String),
    /// An item of a list of scalars, by its value as compact JSON.
    Value(String),
    /// An item by position.
    Index(i64),
}

impl Element {
    /// Whether a step is of a kind that only newer servers know.
    fn newer(text: &str) -> bool {
        let mut bytes = text.bytes();
        bytes.next().is_some_and(|kind| !b"fkvi".contains(&kind)) && bytes.next() == Some(b':')
    }

    fn parse(text: &str) -> Option<Self> {
        let kind = text.get(..1)?;
        let rest = text.get(1..)?.strip_prefix(':')?;
        // Re-encoded, so that equal keys compare equal whatever their spelling.
        let json = || serde_json::from_str::<Value>(rest).ok();
        match kind {
            "f" => Some(Self::Field(rest.to_owned())),
            "k" => json().filter(Value::is_object).map(|v| Self::Key(spelled(&v))),
            "v" => json().map(|v| Self::Value(spelled(&v))),
            "i" => rest.parse().ok().map(Self::Index),
            _ => None,
        }
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(json) => format!("k:{json}"),
            Self::Value(json) => format!("v:{json}"),
            Self::Index(i) => format!("i:{i}"),
        }
    }

    /// The step as it stands in a message.
    pub(super) fn shown(&self) -> String {
        match self {
            Self::Field(name) => format!(".{name}"),
            Self::Key(json) => {
                let fields: Map<String, Value> = serde_json::from_str(json).unwrap_or_default();
                let fields: Vec<String> = fields
                    .iter()
                    .map(|(name, value)| format!("{name}={}", spelled(value)))
                    .collect();
                format!("[{}]", fields.join(","))
            }
            Self::Value(json) => format!("[={json}]"),
            Self::Index(i) => format!("[{i}]"),
        }
    }
}

/// Compact JSON in which every number has one form, as Go writes it: a whole float has no fraction.
pub(super) fn spelled(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let fields: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", Value::from(name.as_str()), spelled(value)))
                .collect();
            format!("{{{}}}", fields.join(","))
        }
        Value::Number(number) if number.is_f64() => {
            let number = number.as_f64().unwrap_or_default();
            let is_plain = number == 0.0 || (1e-6..1e21).contains(&number.abs());
            let exponential = format!("{number:e}");
            match exponential.split_once('e') {
                Some((digits, exponent)) if !is_plain => {
                    let sign = if exponent.starts_with('-') { '-' } else { '+' };
                    format!("{digits}e{sign}{:0>2}", exponent.trim_start_matches('-'))
                }
                _ => number.to_string(),
            }
        }
        other => other.to_string(),
    }
}

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) members: BTreeSet<Element>,
    pub(super) children: BTreeMap<Element, Set>,
}

impl Set {
    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty() && self.children.values().all(Self::is_empty)
    }

    pub(super) fn insert(&mut self, path: &[Element]) {
        match path {
            // The object itself is in no set.
            [] => {}
            [last] => {
                self.members.insert(last.clone());
            }
            [first, rest @ ..] => self.children.entry(first.clone()).or_default().insert(rest),
        }
    }

    pub(super) fn has(&self, element: &Element) -> bool {
        self.members.contains(element)
    }

    pub(super) fn has_path(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.has(last),
            [first, rest @ ..] => self.children.get(first).is_some_and(|set| set.has_path(rest)),
        }
    }

    /// What the set says below one step.
    pub(super) fn below(&self, element: &Element) -> Option<&Self> {
        self.children.get(element).filter(|set| !set.is_empty())
    }

    pub(super) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        out.members.extend(other.members.iter().cloned());
        for (element, set) in &other.children {
            let merged = out
                .children
                .get(element)
                .map_or_else(|| set.clone(), |mine| mine.union(set));
            out.children.insert(element.clone(), merged);
        }
        out
    }

    pub(super) fn intersection(&self, other: &Self) -> Self {
        Self {
            members: self.members.intersection(&other.members).cloned().collect(),
            children: self.combine(other, |mine, theirs| {
                theirs.map(|theirs| mine.intersection(theirs))
            }),
        }
    }

    /// The paths of this set that are not in the other, path by path.
    pub(super) fn difference(&self, other: &Self) -> Self {
        Self {
            members: self.members.difference(&other.members).cloned().collect(),
            children: self.combine(other, |mine, theirs| {
                Some(theirs.map_or_else(|| mine.clone(), |theirs| mine.difference(theirs)))
            }),
        }
    }

    fn combine(
        &self,
        other: &Self,
        f: impl Fn(&Self, Option<&Self>) -> Option<Self>,
    ) -> BTreeMap<Element, Self> {
        let pairs = self.children.iter().filter_map(|(element, mine)| {
            let set = f(mine, other.children.get(element))?;
            (!set.is_empty()).then(|| (element.clone(), set))
        });
        pairs.collect()
    }

    /// Without these fields (`spec`, `metadata.labels`) and everything below them.
    pub(super) fn without_fields(&self, paths: &[&str]) -> Self {
        let keep =
            |element: &Element| !matches!(element, Element::Field(name) if paths.contains(&name.as_str()));
        let below = |element: &Element| -> Vec<&str> {
            let Element::Field(name) = element else {
                return Vec::new();
            };
            let inner = paths
                .iter()
                .filter_map(|path| path.strip_prefix(name.as_str())?.strip_prefix('.'));
            inner.collect()
        };
        let children = self.children.iter().filter(|(e, _)| keep(e));
        Self {
            members: self.members.iter().filter(|e| keep(e)).cloned().collect(),
            children: children
                .map(|(e, set)| match below(e).as_slice() {
                    [] => (e.clone(), set.clone()),
                    inner => (e.clone(), set.without_fields(inner)),
                })
                .filter(|(_, set)| !set.is_empty())
                .collect(),
        }
    }

    /// Calls `visit` with every path.
    pub(super) fn each(&self, path: &mut Vec<Element>, visit: &mut impl FnMut(&[Element])) {
        for element in &self.members {
            path.push(element.clone());
            visit(path);
            path.pop();
        }
        for (element, set) in &self.children {
            path.push(element.clone());
            set.each(path, visit);
            path.pop();
        }
    }

    /// The `fieldsV1` form.
    pub(super) fn encode(&self) -> Value {
        let mut out = Map::new();
        for element in &self.members {
            out.insert(element.encode(), Value::Object(Map::new()));
        }
        for (element, set) in &self.children {
            if set.is_empty() {
                continue;
            }
            let mut below = set.encode();
            if self.members.contains(element)
                && let Some(map) = below.as_object_mut()
            {
                map.insert(".".into(), Value::Object(Map::new()));
            }
            out.insert(element.encode(), below);
        }
        Value::Object(out)
    }

    /// Reads the `fieldsV1` form; nothing comes back if it is malformed.
    pub(super) fn decode(fields: &Value) -> Option<Self> {
        let mut out = Self::default();
        for (name, below) in fields.as_object()? {
            if name == "." || Element::newer(name) {
                continue;
            }
            let element = Element::parse(name)?;
            let map = below.as_object()?;
            if map.is_empty() || map.contains_key(".") {
                out.members.insert(element.clone());
            }
            let set = Self::decode(below)?;
            if !set.is_empty() {
                out.children.insert(element, set);
            }
        }
        Some(out)
    }
}

//! Where a path leads, within a budget.

use std::{collections::HashSet, rc::Rc};

use serde_json::Value;

use super::{At, Budget, Operator, Step, Test, TooMuch};

/// How many bytes of a text are looked at for what one value costs.
const BYTES: usize = 32;

/// Values, and where they are.
pub(super) type Found<'v> = Vec<(Option<Rc<Node<'v>>>, &'v Value)>;

/// A place: the last step to it, and the place before. Places share their beginnings, so that none costs more than
/// another, however deep it lies and however long its keys are.
pub(super) struct Node<'v> {
    before: Option<Rc<Self>>,
    last: Last<'v>,
}

#[derive(Clone, Copy)]
enum Last<'v> {
    Key(&'v str),
    Index(usize),
}

impl<'v> Node<'v> {
    fn below(before: Option<&Rc<Self>>, last: Last<'v>) -> Rc<Self> {
        let before = before.cloned();
        Rc::new(Self { before, last })
    }

    /// All steps to a place, from the first to the last.
    pub(super) fn path(mut place: Option<&Rc<Self>>, budget: &Budget) -> Result<Vec<At>, TooMuch> {
        let mut path = Vec::new();
        while let Some(node) = place {
            path.push(match node.last {
                Last::Key(key) => {
                    text_cost(key, budget)?;
                    At::Key(key.to_owned())
                }
                Last::Index(index) => At::Index(index),
            });
            budget.spend(1)?;
            place = node.before.as_ref();
        }
        path.reverse();
        Ok(path)
    }
}

/// Removes these places, which are sorted and differ.
pub(super) fn remove_all(value: &mut Value, places: &[&[At]]) {
    let mut gone = HashSet::new();
    for group in places.chunk_by(|a, b| a.first() == b.first()) {
        let Some(first) = group.first().and_then(|place| place.first()) else {
            *value = Value::Null;
            return;
        };
        if group.iter().any(|place| place.len() == 1) {
            match (&mut *value, first) {
                (Value::Object(map), At::Key(key)) => {
                    map.remove(key);
                }
                (Value::Array(_), At::Index(index)) => {
                    gone.insert(*index);
                }
                _ => {}
            }
            continue;
        }
        let child = match first {
            At::Key(key) => value.get_mut(key),
            At::Index(index) => value.get_mut(index),
        };
        if let Some(child) = child {
            let rest: Vec<&[At]> = group.iter().filter_map(|place| place.get(1..)).collect();
            remove_all(child, &rest);
        }
    }
    if let (Value::Array(elements), false) = (value, gone.is_empty()) {
        let mut index = 0;
        elements.retain(|_| {
            index += 1;
            !gone.contains(&(index - 1))
        });
    }
}

pub(super) fn walk<'v>(steps: &[Step], value: &'v Value, budget: &Budget) -> Result<Found<'v>, TooMuch> {
    let mut found: Found<'v> = vec![(None, value)];
    for step in steps {
        let mut next = Vec::new();
        for (place, value) in &found {
            one(step, place.as_ref(), value, budget, &mut next)?;
        }
        found = next;
        if step.may_find_many() {
            // However often steps lead to a place, it is one place: otherwise a few `..` would be more than there is.
            let mut seen = HashSet::new();
            found.retain(|(_, value)| seen.insert(std::ptr::from_ref(*value)));
        }
    }
    Ok(found)
}

type Place<'a, 'v> = Option<&'a Rc<Node<'v>>>;

fn one<'v>(
    step: &Step,
    place: Place<'_, 'v>,
    value: &'v Value,
    budget: &Budget,
    into: &mut Found<'v>,
) -> Result<(), TooMuch> {
    budget.spend(1)?;
    match (step, value) {
        (Step::Key(key), Value::Object(map)) => {
            let found = map.get_key_value(key);
            into.extend(found.map(|(key, value)| (Some(Node::below(place, Last::Key(key))), value)));
        }
        (Step::Index(index), Value::Array(list)) => {
            let index = position(*index, list.len());
            let found = index.and_then(|index| Some((index, list.get(index)?)));
            into.extend(found.map(|(index, value)| (Some(Node::below(place, Last::Index(index))), value)));
        }
        (Step::Slice(from, to, step), Value::Array(list)) => {
            for (index, value) in slice(list, *from, *to, *step) {
                budget.spend(1)?;
                into.push((Some(Node::below(place, Last::Index(index))), value));
            }
        }
        (Step::Each, Value::Array(_) | Value::Object(_)) => {
            for (last, child) in children(value) {
                budget.spend(1)?;
                into.push((Some(Node::below(place, last)), child));
            }
        }
        (Step::Descend, _) => {
            into.push((place.cloned(), value));
            for (last, child) in children(value) {
                let place = Node::below(place, last);
                one(step, Some(&place), child, budget, into)?;
            }
        }
        (Step::Union(steps), _) => {
            for step in steps {
                one(step, place, value, budget, into)?;
            }
        }
        (Step::Filter(test), Value::Array(_)) => {
            for (last, element) in children(value) {
                if holds(test, element, budget)? {
                    into.push((Some(Node::below(place, last)), element));
                }
            }
        }
        (Step::Select(test), _) if holds(test, value, budget)? => into.push((place.cloned(), value)),
        _ => {}
    }
    Ok(())
}

fn children(value: &Value) -> Box<dyn Iterator<Item = (Last<'_>, &Value)> + '_> {
    match value {
        Value::Array(list) => Box::new(
            list.iter()
                .enumerate()
                .map(|(index, value)| (Last::Index(index), value)),
        ),
        Value::Object(map) => Box::new(map.iter().map(|(key, value)| (Last::Key(key), value))),
        _ => Box::new(std::iter::empty()),
    }
}

fn position(index: i64, len: usize) -> Option<usize> {
    let len_signed = i64::try_from(len).ok()?;
    let index = if index < 0 { index + len_signed } else { index };
    usize::try_from(index).ok().filter(|index| *index < len)
}

fn slice(
    list: &[Value],
    from: Option<i64>,
    to: Option<i64>,
    step: i64,
) -> impl Iterator<Item = (usize, &Value)> {
    let len = i64::try_from(list.len()).unwrap_or(i64::MAX);
    let bound = |index: i64| (if index < 0 { index + len } else { index }).clamp(0, len);
    let (from, to) = (bound(from.unwrap_or(0)), bound(to.unwrap_or(len)));
    let step = usize::try_from(step).unwrap_or(1).max(1);
    (from..to).step_by(step).filter_map(|index| {
        let index = usize::try_from(index).ok()?;
        Some((index, list.get(index)?))
    })
}

/// What looking at a text costs.
fn text_cost(text: &str, budget: &Budget) -> Result<(), TooMuch> {
    budget.spend(text.len() / BYTES)
}

/// What looking at a value itself costs.
fn value_cost(value: &Value, budget: &Budget) -> Result<(), TooMuch> {
    match value {
        Value::String(text) => text_cost(text, budget),
        _ => budget.spend(1),
    }
}

fn any(
    found: &[(Option<Rc<Node<'_>>>, &Value)],
    mut test: impl FnMut(&Value) -> Result<bool, TooMuch>,
) -> Result<bool, TooMuch> {
    for (_, value) in found {
        if test(value)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn holds(test: &Test, value: &Value, budget: &Budget) -> Result<bool, TooMuch> {
    budget.spend(1)?;
    Ok(match test {
        Test::Exists(steps) => walk(steps, value, budget)?
            .iter()
            .any(|(_, found)| !found.is_null() && **found != Value::Bool(false)),
        Test::Compare(steps, operator, wanted) => {
            let found = walk(steps, value, budget)?;
            if found.is_empty() {
                return Ok(
                    *operator == Operator::NotEqual || (*operator == Operator::Equal && wanted.is_null())
                );
            }
            any(&found, |found| {
                value_cost(wanted, budget)?;
                Ok(compare(found, *operator, wanted))
            })?
        }
        Test::On(steps, test) => {
            let found = walk(steps, value, budget)?;
            if found.is_empty() {
                return Ok(!steps.iter().any(Step::may_find_many) && holds(test, &Value::Null, budget)?);
            }
            any(&found, |found| holds(test, found, budget))?
        }
        Test::Has(Value::String(key)) => value.get(key).is_some(),
        Test::Has(index) => {
            let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
            index.is_some_and(|index| value.get(index).is_some())
        }
        Test::StartsWith(part) => value.as_str().is_some_and(|value| value.starts_with(part)),
        Test::EndsWith(part) => value.as_str().is_some_and(|value| value.ends_with(part)),
        Test::Contains(part) => match value {
            Value::String(value) => {
                text_cost(value, budget)?;
                value.contains(part)
            }
            Value::Array(list) => {
                for element in list {
                    value_cost(element, budget)?;
                    if element.as_str().is_some_and(|value| value.contains(part)) {
                        return Ok(true);
                    }
                }
                false
            }
            _ => false,
        },
        Test::Matches(pattern) => match value {
            Value::String(value) => {
                // A regular expression can take as many steps for one byte as it has states.
                budget.spend(value.len())?;
                pattern.0.is_match(value)
            }
            _ => false,
        },
        Test::OneOf(values) => {
            budget.spend(values.len())?;
            values
                .iter()
                .any(|wanted| compare(value, Operator::Equal, wanted))
        }
        Test::Length(operator, wanted) => {
            let length = match value {
                Value::String(value) => {
                    text_cost(value, budget)?;
                    value.chars().count()
                }
                Value::Array(list) => list.len(),
                Value::Object(map) => map.len(),
                _ => 0,
            };
            compare(&Value::from(length), *operator, wanted)
        }
        Test::Any(test) => {
            for (_, child) in children(value) {
                if holds(test, child, budget)? {
                    return Ok(true);
                }
            }
            false
        }
        Test::All(test) => {
            for (_, child) in children(value) {
                if !holds(test, child, budget)? {
                    return Ok(false);
                }
            }
            true
        }
        Test::Not(test) => !holds(test, value, budget)?,
        Test::And(a, b) => holds(a, value, budget)? && holds(b, value, budget)?,
        Test::Or(a, b) => holds(a, value, budget)? || holds(b, value, budget)?,
    })
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

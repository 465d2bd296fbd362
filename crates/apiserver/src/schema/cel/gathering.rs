//! Loops that gather what their items become: `map`, `filter`, `transformList`, `transformMap`, `transformMapEntry`.
//!
//! The evaluator copies what was gathered at each step, so that its time grows with the square of the items. For it such a loop
//! becomes the call of a function that runs it, and adds to one list or map.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, ListExpr, operators};
use kube_cel::cel::objects::{Key, Map};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

use super::described;
use super::keyed::{self, Entries};
use super::{conversions, macros, type_values, unreadable};

const ITEMS: &str = "@gather";
const ENTRIES: &str = "@gatherEntries";
const MAPS: &str = "@gatherMaps";

/// What a loop gathers.
#[derive(Clone, Copy)]
pub(super) enum Kind {
    /// A list of items.
    Items,
    /// A map in which the first variable is the key of each item.
    Entries,
    /// A map of what is in the items, which are maps.
    Maps,
}

/// What such a loop does with an item: the filter that it has to pass, and what it becomes.
pub(super) struct Step<'a> {
    pub kind: Kind,
    pub filter: Option<&'a IdedExpr>,
    pub item: &'a IdedExpr,
}

impl<'a> Step<'a> {
    /// The step of a loop, if the loop gathers.
    pub(super) fn of(all: &'a ComprehensionExpr) -> Option<Self> {
        let gathered = |part: &IdedExpr| matches!(&part.expr, Expr::Ident(name) if *name == all.accu_var);
        let empty = match &all.accu_init.expr {
            Expr::List(list) => list.elements.is_empty(),
            Expr::Map(map) => map.entries.is_empty(),
            _ => false,
        };
        if !empty || !gathered(&all.result) {
            return None;
        }
        let (filter, step) = match &all.loop_step.expr {
            Expr::Call(choice) if choice.func_name == operators::CONDITIONAL => {
                match choice.args.as_slice() {
                    [filter, step, otherwise] if gathered(otherwise) => (Some(filter), step),
                    _ => return None,
                }
            }
            _ => (None, &all.loop_step),
        };
        let Expr::Call(step) = &step.expr else {
            return None;
        };
        let (kind, item) = match (step.func_name.as_str(), step.args.as_slice()) {
            (operators::ADD, [so_far, item]) if gathered(so_far) => match &item.expr {
                Expr::List(list) => match list.elements.as_slice() {
                    [item] => (Kind::Items, item),
                    _ => return None,
                },
                _ => return None,
            },
            (macros::INSERT, [_, _, item]) => (Kind::Entries, item),
            (macros::INSERT_ALL, [_, item]) => (Kind::Maps, item),
            _ => return None,
        };
        Some(Self { kind, filter, item })
    }
}

/// What was gathered.
pub(super) enum Gathered {
    Items(Vec<Cel>),
    Entries(Growing),
    Maps(Growing),
}

impl Gathered {
    pub(super) fn new(kind: Kind) -> Self {
        match kind {
            Kind::Items => Self::Items(Vec::new()),
            Kind::Entries => Self::Entries(Growing::default()),
            Kind::Maps => Self::Maps(Growing::default()),
        }
    }

    /// Adds what an item became; `first` is the first variable of the loop.
    pub(super) fn add(&mut self, first: &Cel, item: Cel) -> Result<(), ExecutionError> {
        match self {
            Self::Items(items) => items.push(item),
            Self::Entries(map) => map.insert(first.clone(), item)?,
            Self::Maps(map) => {
                for (key, value) in keyed::entries(&item).ok_or(ExecutionError::NoSuchOverload)? {
                    map.insert(key, value)?;
                }
            }
        }
        Ok(())
    }

    pub(super) fn value(self) -> Cel {
        match self {
            Self::Items(items) => Cel::List(Arc::new(items)),
            Self::Entries(map) | Self::Maps(map) => map.value(),
        }
    }
}

/// A map that grows: keys that the evaluator has are looked up, others compared one by one.
#[derive(Default)]
pub(super) struct Growing {
    plain: HashMap<Key, Cel>,
    odd: Entries,
}

impl Growing {
    fn insert(&mut self, key: Cel, value: Cel) -> Result<(), ExecutionError> {
        keyed::hashable(&key)?;
        let known = keyed::found(&key, |key| match plain(key) {
            Some(key) => self.plain.get(&key),
            None => keyed::exactly(&self.odd, key),
        });
        if known.is_some() {
            let key = conversions::text(&key).unwrap_or_else(|| Ok(type_values::name(&key).to_owned()))?;
            let why = format!("insert failed: key {key} already exists");
            return Err(ExecutionError::function_error(macros::INSERT, why));
        }
        match plain(&key) {
            Some(key) => {
                self.plain.insert(key, value);
            }
            None => self.odd.push((key, value)),
        }
        Ok(())
    }

    fn value(self) -> Cel {
        if self.odd.is_empty() {
            return Cel::Map(Map {
                map: Arc::new(self.plain),
            });
        }
        let plain = self.plain.into_iter();
        keyed::map(
            plain
                .map(|(key, value)| (key.into(), value))
                .chain(self.odd)
                .collect(),
        )
    }
}

/// A key as the evaluator has it, if it has such keys.
fn plain(key: &Cel) -> Option<Key> {
    keyed::plain(key).then(|| key.clone().try_into().ok()).flatten()
}

/// What a loop gives its variables at each step: items or keys and nothing, or places and items, or keys and values.
pub(super) fn steps(range: &Cel, both: bool) -> Option<Box<dyn Iterator<Item = (Cel, Cel)> + '_>> {
    Some(match range {
        Cel::List(items) if both => Box::new((0i64..).map(Cel::Int).zip(items.iter().cloned())),
        Cel::List(items) => Box::new(items.iter().map(|item| (item.clone(), Cel::Null))),
        map => Box::new(keyed::entries(map)?.into_iter()),
    })
}

/// Replaces a loop that gathers; tells whether it was one. Its parts are still to be replaced.
pub(super) fn lower(expression: &mut IdedExpr) -> bool {
    let Expr::Comprehension(all) = &mut expression.expr else {
        return false;
    };
    let Some(step) = Step::of(all) else {
        return false;
    };
    let name = match step.kind {
        Kind::Items => ITEMS,
        Kind::Entries => ENTRIES,
        Kind::Maps => MAPS,
    };
    let node = |expr: Expr| IdedExpr { id: 0, expr };
    let filtered = step.filter.is_some();
    let names = [Some(std::mem::take(&mut all.iter_var)), all.iter_var2.take()];
    let names = names.into_iter().flatten().map(|name| node(Expr::Ident(name)));
    let mut args = vec![
        std::mem::take(&mut all.iter_range),
        node(Expr::List(ListExpr::new(names.collect()))),
    ];
    let mut step = std::mem::take(&mut all.loop_step);
    let mut filter = None;
    if filtered && let Expr::Call(choice) = step.expr {
        let mut parts = choice.args.into_iter();
        filter = parts.next();
        step = parts.next().unwrap_or_default();
    }
    let mut item = match step.expr {
        Expr::Call(mut call) => call.args.pop().unwrap_or_default(),
        _ => IdedExpr::default(),
    };
    if name == ITEMS
        && let Expr::List(list) = &mut item.expr
    {
        item = list.elements.pop().unwrap_or_default();
    }
    args.push(item);
    args.extend(filter);
    expression.expr = Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: None,
        args,
    });
    true
}

/// Whether a call is such a loop.
pub(super) fn gathers(called: &CallExpr) -> bool {
    matches!(called.func_name.as_str(), ITEMS | ENTRIES | MAPS)
}

pub(super) fn register(context: &mut Context<'_>) {
    for (name, kind) in [(ITEMS, Kind::Items), (ENTRIES, Kind::Entries), (MAPS, Kind::Maps)] {
        context.add_function(name, move |called: &FunctionContext<'_, '_>| gather(called, kind));
    }
}

fn gather(called: &FunctionContext<'_, '_>, kind: Kind) -> ResolveResult {
    let [range, names, item, filter @ ..] = called.args else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let name = |at: usize| match &names.expr {
        Expr::List(names) => match names.elements.get(at).map(|name| &name.expr) {
            Some(Expr::Ident(name)) => Some(name.as_str()),
            _ => None,
        },
        _ => None,
    };
    let first_name = name(0).ok_or(ExecutionError::NoSuchOverload)?;
    let second_name = name(1);
    let range = Cel::resolve(range, called.ptx)?;
    unreadable::read(&range)?;
    let range = described::opened(&range);
    let steps = steps(&range, second_name.is_some()).ok_or(ExecutionError::NoSuchOverload)?;
    let mut gathered = Gathered::new(kind);
    let mut scope = called.ptx.new_inner_scope();
    for (first, second) in steps {
        scope.add_variable_from_value(first_name, first.clone());
        if let Some(name) = second_name {
            scope.add_variable_from_value(name, second);
        }
        if let Some(filter) = filter.first() {
            match Cel::resolve(filter, &scope)? {
                Cel::Bool(true) => {}
                Cel::Bool(false) => continue,
                _ => return Err(ExecutionError::NoSuchOverload),
            }
        }
        gathered.add(&first, Cel::resolve(item, &scope)?)?;
    }
    Ok(gathered.value())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Activation, Expression};

    /// With a copy at each step these would take hours.
    #[test]
    fn many_items_are_gathered() {
        let map: serde_json::Map<_, _> = (0..30_000).map(|i| (format!("k{i}"), json!(i))).collect();
        let mut values = Activation::default();
        values.bind("m", &json!(map));
        for rule in [
            "m.map(k, k).size() == 30000 && m.filter(k, m[k] % 2 == 0).size() == 15000",
            "m.map(k, m[k] < 10, k).size() == 10",
            "m.transformList(k, v, v).transformList(i, v, v >= 1, v).size() == 29999",
            "m.transformMap(k, v, v < 20000, v + 1).size() == 20000",
            "m.transformMapEntry(k, v, {v: k})[29999] == 'k29999'",
            "m.map(k, m[k]).sortBy(v, -v)[0] == 29999",
        ] {
            let rule = Expression::compile(rule).unwrap();
            assert_eq!(rule.evaluate_bool(&values), Ok(true), "{rule:?}");
            assert!(rule.cost(&values, u64::MAX).is_some(), "{rule:?}");
        }
    }

    #[test]
    fn keys_are_gathered_once() {
        for (rule, wanted) in [
            (
                "[1, 2].transformMapEntry(i, v, {v: i, double(v) + 0.5: i}).size() == 4",
                Ok(true),
            ),
            (
                "[1.5, 2.5].transformMapEntry(i, v, {v: i}) == {1.5: 0, 2.5: 1}",
                Ok(true),
            ),
            (
                "[1, 1].transformMapEntry(i, v, {v: i}) == {}",
                Err("insert failed: key 1 already exists"),
            ),
            (
                "[dyn(1), dyn(1u)].transformMapEntry(i, v, {v: i}) == {}",
                Err("insert failed: key 1 already exists"),
            ),
            (
                "[dyn(1), dyn(1.0)].transformMapEntry(i, v, {v: i}) == {}",
                Err("insert failed: key 1 already exists"),
            ),
            (
                "[1.5, 1.5].transformMapEntry(i, v, {v: i}) == {}",
                Err("insert failed: key 1.5 already exists"),
            ),
            ("[1].map(x, dyn(x), x) == []", Err("no such overload")),
            ("dyn(1).map(x, x) == []", Err("no such overload")),
            (
                "[[1, 2], [3]].map(l, l.map(x, x + l.size())) == [[3, 4], [4]]",
                Ok(true),
            ),
            ("[1].map(x, [2].map(x, x)) == [[2]]", Ok(true)),
        ] {
            let found = Expression::compile(rule)
                .unwrap()
                .evaluate_bool(&Activation::default());
            assert_eq!(found, wanted.map_err(str::to_owned), "{rule}");
        }
    }
}

//! Macros that the CEL crate does not know: those with two variables, and those on optionals.
//!
//! What was parsed as calls becomes loops ([`expand`]). Checker and meter understand a loop with two variables; the evaluator does
//! not, so for it such a loop becomes one over pairs ([`lower`]).

use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, MapExpr, operators,
};
use kube_cel::cel::extractors::This;
use kube_cel::cel::{Context, ExecutionError, ResolveResult, Value as Cel};

use super::described::{Described, laid_open};
use super::optional::{maybe, optional as optional_of};
use super::{access, gathering, keyed, type_values, verdicts};

/// Adds an entry to a map: of a key and a value, or of a map.
pub(super) const INSERT: &str = "cel.@mapInsert";
pub(super) const INSERT_ALL: &str = "cel.@mapInsertAll";
/// The pairs of a map, or of the places and items of a list.
pub(super) const PAIRS: &str = "@pairs";
const PAIR: &str = "@pair";
const RESULT: &str = "@result";
/// What an optional holds as a list, and the other way round.
pub(super) const ITEMS: &str = "@items";
pub(super) const FIRST: &str = "@first";
/// Sorts a list by the order of another one.
pub(super) const SORT_BY: &str = "@sortByAssociatedKeys";
const SORTED: &str = "@__sortBy_input__";
/// What the parser reads for `existsOne`, of which there is none with one variable.
pub(super) const EXISTS_ONE: &str = "existsOne__of_two";

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn ident(name: &str) -> IdedExpr {
    node(Expr::Ident(name.to_owned()))
}

fn boolean(value: bool) -> IdedExpr {
    node(Expr::Literal(LiteralValue::Boolean(value.into())))
}

fn number(value: i64) -> IdedExpr {
    node(Expr::Literal(LiteralValue::Int(value.into())))
}

fn list(elements: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::List(ListExpr::new(elements)))
}

fn call(name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    member(None, name, args)
}

fn member(target: Option<IdedExpr>, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: name.to_owned(),
        target: target.map(Box::new),
        args,
    }))
}

/// `value` under a name in `of`: a loop that never runs.
fn bind(name: &str, value: IdedExpr, of: IdedExpr) -> IdedExpr {
    node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: list(Vec::new()),
        iter_var: "#unused".to_owned(),
        iter_var2: None,
        accu_var: name.to_owned(),
        accu_init: value,
        loop_cond: boolean(false),
        loop_step: ident(name),
        result: of,
    })))
}

/// Everything directly below.
pub(super) fn below(expression: &mut IdedExpr) -> Vec<&mut IdedExpr> {
    match &mut expression.expr {
        Expr::Call(call) => call
            .target
            .as_deref_mut()
            .into_iter()
            .chain(&mut call.args)
            .collect(),
        Expr::Comprehension(all) => {
            let all = &mut **all;
            vec![
                &mut all.iter_range,
                &mut all.accu_init,
                &mut all.loop_cond,
                &mut all.loop_step,
                &mut all.result,
            ]
        }
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => {
            let entries = map.entries.iter_mut().map(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
                EntryExpr::StructField(field) => vec![&mut field.value],
            });
            entries.flatten().collect()
        }
        Expr::Select(select) => vec![&mut *select.operand],
        Expr::Struct(message) => {
            let entries = message.entries.iter_mut().map(|entry| match &mut entry.expr {
                EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
                EntryExpr::StructField(field) => vec![&mut field.value],
            });
            entries.flatten().collect()
        }
        Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

/// Replaces the calls that are macros.
pub(super) fn expand(expression: &mut IdedExpr) -> Result<(), String> {
    for part in below(expression) {
        expand(part)?;
    }
    let called = match &mut expression.expr {
        Expr::Call(called) => called,
        Expr::Select(select) => {
            if let Some(name) = type_values::qualified(select) {
                *expression = ident(name);
            }
            return Ok(());
        }
        _ => return Ok(()),
    };
    let expanded = match (called.func_name.as_str(), called.args.len()) {
        ("all" | "exists" | EXISTS_ONE | "exists_one", 3)
        | ("transformList" | "transformMap" | "transformMapEntry", 3 | 4) => two_variables,
        ("optMap" | "optFlatMap", 2) => optional,
        ("sortBy", 2) => sort_by,
        _ => return Ok(()),
    };
    if let Some(target) = called.target.take() {
        let args = std::mem::take(&mut called.args);
        *expression = expanded(&called.func_name, *target, args)?;
    }
    Ok(())
}

fn variable(expression: Option<IdedExpr>) -> Result<String, String> {
    match expression.map(|e| e.expr) {
        Some(Expr::Ident(name)) if name == RESULT => {
            Err("iteration variable overwrites accumulator variable".into())
        }
        Some(Expr::Ident(name)) => Ok(name),
        _ => Err("argument must be a simple name".into()),
    }
}

fn two_variables(name: &str, target: IdedExpr, args: Vec<IdedExpr>) -> Result<IdedExpr, String> {
    let mut args = args.into_iter();
    let first = variable(args.next())?;
    let second = variable(args.next())?;
    if first == second {
        return Err(format!("duplicate variable name: {first}"));
    }
    let mut rest: Vec<IdedExpr> = args.collect();
    let body = rest.pop().unwrap_or_default();
    let so_far = || ident(RESULT);
    let mut result = so_far();
    let (init, condition, step) = match name {
        "all" => (
            boolean(true),
            call(operators::NOT_STRICTLY_FALSE, vec![so_far()]),
            call(operators::LOGICAL_AND, vec![so_far(), body]),
        ),
        "exists" => (
            boolean(false),
            call(
                operators::NOT_STRICTLY_FALSE,
                vec![call(operators::LOGICAL_NOT, vec![so_far()])],
            ),
            call(operators::LOGICAL_OR, vec![so_far(), body]),
        ),
        EXISTS_ONE | "exists_one" => {
            let more = call(operators::ADD, vec![so_far(), number(1)]);
            result = call(operators::EQUALS, vec![so_far(), number(1)]);
            (
                number(0),
                boolean(true),
                call(operators::CONDITIONAL, vec![body, more, so_far()]),
            )
        }
        "transformList" => (
            list(Vec::new()),
            boolean(true),
            call(operators::ADD, vec![so_far(), list(vec![body])]),
        ),
        "transformMap" => (
            node(Expr::Map(MapExpr::default())),
            boolean(true),
            call(INSERT, vec![so_far(), ident(&first), body]),
        ),
        _ => (
            node(Expr::Map(MapExpr::default())),
            boolean(true),
            call(INSERT_ALL, vec![so_far(), body]),
        ),
    };
    let step = match rest.pop() {
        Some(filter) => call(operators::CONDITIONAL, vec![filter, step, so_far()]),
        None => step,
    };
    Ok(node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: target,
        iter_var: first,
        iter_var2: Some(second),
        accu_var: RESULT.to_owned(),
        accu_init: init,
        loop_cond: condition,
        loop_step: step,
        result,
    }))))
}

/// A loop over what an optional holds, if anything. The evaluator cannot give an optional a name.
fn optional(name: &str, target: IdedExpr, args: Vec<IdedExpr>) -> Result<IdedExpr, String> {
    let mut args = args.into_iter();
    let variable = variable(args.next())?;
    let body = args.next().unwrap_or_default();
    let more = match name {
        "optMap" => list(vec![body]),
        _ => call(ITEMS, vec![body]),
    };
    let items = node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: call(ITEMS, vec![target]),
        iter_var: variable,
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: list(Vec::new()),
        loop_cond: boolean(true),
        loop_step: call(operators::ADD, vec![ident(RESULT), more]),
        result: ident(RESULT),
    })));
    Ok(call(FIRST, vec![items]))
}

/// `l.sortBy(x, f)`: the list under a name, sorted by what `l.map(x, f)` is.
fn sort_by(_: &str, target: IdedExpr, args: Vec<IdedExpr>) -> Result<IdedExpr, String> {
    let mut args = args.into_iter();
    let variable = variable(args.next())?;
    let body = args.next().unwrap_or_default();
    let keys = node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: ident(SORTED),
        iter_var: variable,
        iter_var2: None,
        accu_var: RESULT.to_owned(),
        accu_init: list(Vec::new()),
        loop_cond: boolean(true),
        loop_step: call(operators::ADD, vec![ident(RESULT), list(vec![body])]),
        result: ident(RESULT),
    })));
    let sorted = member(Some(ident(SORTED)), SORT_BY, vec![keys]);
    Ok(bind(SORTED, target, sorted))
}

/// The same for the evaluator, if it differs: loops over pairs, and what [`access`] does for it.
pub(super) fn lower(expression: &IdedExpr) -> Option<IdedExpr> {
    let mut lowered = expression.clone();
    let keyed = keyed::within(&mut lowered);
    rewrite(&mut lowered, keyed).then_some(lowered)
}

/// `keyed` if it has to do with maps that the evaluator does not know.
pub(super) fn rewrite(expression: &mut IdedExpr, keyed: bool) -> bool {
    let mut changed = gathering::lower(expression);
    for part in below(expression) {
        changed |= rewrite(part, keyed);
    }
    match &mut expression.expr {
        Expr::Comprehension(all) => {
            changed |= access::read(&mut all.iter_range) | verdicts::lower(all);
            let Some(second) = all.iter_var2.take() else {
                if keyed {
                    keyed::iterate(&mut all.iter_range);
                }
                return changed | keyed;
            };
            let part = |at: i64| call(operators::INDEX, vec![ident(PAIR), number(at)]);
            all.iter_range = call(PAIRS, vec![std::mem::take(&mut all.iter_range)]);
            let first = std::mem::replace(&mut all.iter_var, PAIR.to_owned());
            let step = std::mem::take(&mut all.loop_step);
            all.loop_step = bind(&first, part(0), bind(&second, part(1), step));
            true
        }
        Expr::Call(called) if gathering::gathers(called) => {
            // The range is not copied only to be read.
            called.args.first_mut().map(access::read);
            true
        }
        _ => access::lower(expression) || changed,
    }
}

/// Adds what the loops call.
pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(PAIRS, |range: Cel| {
        let steps = gathering::steps(&range, true).ok_or(ExecutionError::NoSuchOverload)?;
        let pairs = steps.map(|(first, second)| Cel::List(Arc::new(vec![first, second])));
        Ok(Cel::List(Arc::new(pairs.collect())))
    });
    context.add_function(ITEMS, |optional: Cel| {
        let held = maybe(&optional).ok_or(ExecutionError::NoSuchOverload)?.value();
        Ok(Cel::List(Arc::new(held.cloned().into_iter().collect())))
    });
    context.add_function(FIRST, |items: Cel| -> ResolveResult {
        let Cel::List(items) = &items else {
            return Err(ExecutionError::NoSuchOverload);
        };
        Ok(optional_of(items.first().map(bare)))
    });
    context.add_function(SORT_BY, |This(list): This<Cel>, keys: Cel| match (&list, &keys) {
        (Cel::List(list), Cel::List(keys)) if list.len() == keys.len() => {
            let mut pairs: Vec<(&Cel, &Cel)> = keys.iter().zip(list.iter()).collect();
            let kind = |key: &Cel| std::mem::discriminant(key);
            let same = |(key, _): &(&Cel, &Cel)| keys.first().is_some_and(|first| kind(first) == kind(key));
            if !pairs.iter().all(same) {
                return Err(ExecutionError::NoSuchOverload);
            }
            pairs.sort_by(|(a, _), (b, _)| a.partial_cmp(b).unwrap_or(std::cmp::Ordering::Equal));
            let sorted = pairs.into_iter().map(|(_, item)| item.clone()).collect();
            Ok(Cel::List(Arc::new(sorted)))
        }
        _ => Err(ExecutionError::NoSuchOverload),
    });
    context.add_function("unwrapOpt", |This(list): This<Cel>| unwrap(&list));
    context.add_function("optional.unwrap", |list: Cel| unwrap(&list));
}

/// A value as nothing but itself: what a schema says of it is forgotten, and an optional is what it holds.
fn bare(value: &Cel) -> Cel {
    match (maybe(value), Described::of(value)) {
        (Some(optional), _) => optional.value().map_or(Cel::Null, bare),
        (None, Some(_)) => laid_open(value),
        (None, None) => value.clone(),
    }
}

/// What those of a list of optionals hold that hold something.
fn unwrap(list: &Cel) -> ResolveResult {
    let Cel::List(list) = list else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let mut all = Vec::new();
    for optional in list.iter() {
        let optional = maybe(optional).ok_or(ExecutionError::NoSuchOverload)?;
        all.extend(optional.value().cloned());
    }
    Ok(Cel::List(Arc::new(all)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{Activation, Expression};

    #[test]
    fn with_two_variables() {
        let mut values = Activation::default();
        values.bind(
            "self",
            &json!({"l": ["a", "b", "c"], "m": {"x": 1, "y": 2}, "n": [[1, 2], [3]]}),
        );
        for (rule, wanted) in [
            ("self.l.all(i, v, i < 3 && v != 'd')", true),
            ("self.l.all(i, v, i < 2)", false),
            ("self.l.exists(i, v, i == 2 && v == 'c')", true),
            ("self.m.exists(k, v, k == 'x' && v == 2)", false),
            ("self.m.all(k, v, v > 0 && k.size() == 1)", true),
            ("self.l.existsOne(i, v, v > 'a')", false),
            ("self.l.existsOne(i, v, i == 0)", true),
            (
                "self.l.transformList(i, v, v + string(i)) == ['a0', 'b1', 'c2']",
                true,
            ),
            ("self.l.transformList(i, v, i > 0, v) == ['b', 'c']", true),
            ("self.m.transformMap(k, v, v + 1) == {'x': 2, 'y': 3}", true),
            ("self.m.transformMap(k, v, k == 'y', v) == {'y': 2}", true),
            (
                "self.l.transformMapEntry(i, v, {v: i}) == {'a': 0, 'b': 1, 'c': 2}",
                true,
            ),
            (
                "self.m.transformMapEntry(k, v, v == 2, {string(v): k}) == {'2': 'y'}",
                true,
            ),
            ("self.n.all(i, inner, inner.all(j, v, v == 2 * i + j + 1))", true),
            ("self.n.all(i, i, true) || true", true),
            ("[].all(i, v, false)", true),
            ("self.?l[?0].optMap(x, x + 'z').orValue('') == 'az'", true),
            ("self.?nope.optMap(x, x + 'z').orValue('q') == 'q'", true),
            ("self.?l.optFlatMap(x, x[?7]).hasValue()", false),
            ("self.?nope.?more.hasValue()", false),
            ("self.?m.?x.hasValue() && !self.?m.?z.hasValue()", true),
            ("self.l.sortBy(x, -self.l.indexOf(x)) == ['c', 'b', 'a']", true),
            (
                "[3, 1, 2].sortBy(x, x) == [1, 2, 3] && [].sortBy(x, x) == []",
                true,
            ),
            ("[self.?l, self.?nope].unwrapOpt() == [self.l]", true),
            ("optional.unwrap([optional.none(), optional.of(1)]) == [1]", true),
        ] {
            match Expression::compile(rule) {
                Ok(compiled) => assert_eq!(compiled.evaluate_bool(&values), Ok(wanted), "{rule}"),
                Err(why) => assert_eq!(why, "duplicate variable name: i", "{rule}"),
            }
        }
        let twice = Expression::compile("self.l.transformMapEntry(i, v, {'k': i}).size() > 0").unwrap();
        assert!(
            twice
                .evaluate_bool(&values)
                .unwrap_err()
                .contains("already exists")
        );
    }
}

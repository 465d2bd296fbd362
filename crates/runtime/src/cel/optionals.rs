//! What the engine does not know of optionals.
//!
//! It reads `a.?b`, `a[?b]` and `[?a]`, but fails where `a.?b` should be nothing, takes no field of an optional, and has
//! no macros for them. So the tree is changed to one that comes to what it should.

use std::sync::Arc;

use kube_cel::cel::{
    Context, ExecutionError, ResolveResult, Value as Cel,
    common::ast::{
        CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, ListExpr, LiteralValue, operators,
    },
    extractors::This,
    objects::OptionalValue,
};

/// What an optional holds, as a list.
pub(super) const ITEMS: &str = "@items";
/// The first element of a list, as an optional.
pub(super) const FIRST: &str = "@first";
/// What a loop has collected.
const COLLECTED: &str = "@collected";

/// Changes the tree, from the leaves on.
pub(super) fn rewrite(expression: &mut IdedExpr) -> Result<(), String> {
    for part in parts(expression) {
        rewrite(part)?;
    }
    match &mut expression.expr {
        Expr::Call(call) if call.func_name == operators::OPT_SELECT => {
            call.func_name = operators::OPT_INDEX.into();
        }
        Expr::Call(call) if matches!(call.func_name.as_str(), "optMap" | "optFlatMap") => {
            if let (Some(target), [_, _]) = (&mut call.target, call.args.as_slice()) {
                let target = std::mem::take(&mut **target);
                let args = std::mem::take(&mut call.args);
                *expression = map(&call.func_name, target, args)?;
            }
        }
        // A field of an optional is an optional.
        Expr::Select(select) if is_optional(&select.operand.expr) => {
            let field = LiteralValue::String(std::mem::take(&mut select.field).into());
            let field = node(Expr::Literal(field));
            let operand = std::mem::take(&mut *select.operand);
            let found = call(None, operators::OPT_INDEX, vec![operand, field]);
            *expression = if select.test {
                call(Some(found), "hasValue", Vec::new())
            } else {
                found
            };
        }
        _ => {}
    }
    Ok(())
}

/// Whether an expression is known to come to an optional.
fn is_optional(expression: &Expr) -> bool {
    let Expr::Call(call) = expression else {
        return false;
    };
    let on_optional = |part: Option<&IdedExpr>| part.is_some_and(|part| is_optional(&part.expr));
    match call.func_name.as_str() {
        operators::OPT_INDEX | FIRST | "or" => true,
        operators::INDEX => on_optional(call.args.first()),
        "of" | "ofNonZeroValue" | "none" => {
            matches!(call.target.as_deref().map(|target| &target.expr), Some(Expr::Ident(name)) if name == "optional")
        }
        _ => false,
    }
}

/// `o.optMap(x, f)` is a loop over what the optional holds, if anything.
fn map(name: &str, target: IdedExpr, args: Vec<IdedExpr>) -> Result<IdedExpr, String> {
    let mut args = args.into_iter();
    let Some(Expr::Ident(variable)) = args.next().map(|part| part.expr) else {
        return Err(format!("the first argument of {name} must be a simple name"));
    };
    let body = args.next().unwrap_or_default();
    let more = if name == "optMap" {
        list(vec![body])
    } else {
        call(None, ITEMS, vec![body])
    };
    let collected = || node(Expr::Ident(COLLECTED.into()));
    let items = node(Expr::Comprehension(Box::new(ComprehensionExpr {
        iter_range: call(None, ITEMS, vec![target]),
        iter_var: variable,
        iter_var2: None,
        accu_var: COLLECTED.into(),
        accu_init: list(Vec::new()),
        loop_cond: node(Expr::Literal(LiteralValue::Boolean(true.into()))),
        loop_step: call(None, operators::ADD, vec![collected(), more]),
        result: collected(),
    })));
    Ok(call(None, FIRST, vec![items]))
}

/// Adds the functions of optionals that the engine lacks.
pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(ITEMS, |optional: Cel| -> ResolveResult {
        let optional = <&OptionalValue>::try_from(&optional)?;
        let items = optional.value().cloned().into_iter().collect();
        Ok(Cel::List(Arc::new(items)))
    });
    context.add_function(FIRST, |items: Cel| -> ResolveResult {
        let Cel::List(items) = &items else {
            return Err(ExecutionError::NoSuchOverload);
        };
        let first = items.first().cloned();
        let optional = first.map_or_else(OptionalValue::none, OptionalValue::of);
        Ok(Cel::Opaque(Arc::new(optional)))
    });
    context.add_function("unwrapOpt", |This(list): This<Cel>| unwrap(&list));
    context.add_function("optional.unwrap", |list: Cel| unwrap(&list));
}

/// What those of a list of optionals hold that hold something.
fn unwrap(list: &Cel) -> ResolveResult {
    let Cel::List(list) = list else {
        return Err(ExecutionError::NoSuchOverload);
    };
    let mut held = Vec::new();
    for optional in list.iter() {
        held.extend(<&OptionalValue>::try_from(optional)?.value().cloned());
    }
    Ok(Cel::List(Arc::new(held)))
}

fn node(expr: Expr) -> IdedExpr {
    IdedExpr { id: 0, expr }
}

fn list(elements: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::List(ListExpr::new(elements)))
}

fn call(target: Option<IdedExpr>, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(Expr::Call(CallExpr {
        func_name: name.into(),
        target: target.map(Box::new),
        args,
    }))
}

/// The expressions that an expression is made of.
fn parts(expression: &mut IdedExpr) -> Vec<&mut IdedExpr> {
    match &mut expression.expr {
        Expr::Call(call) => {
            let target = call.target.as_deref_mut().into_iter();
            target.chain(&mut call.args).collect()
        }
        Expr::Comprehension(of) => {
            let of = &mut **of;
            vec![
                &mut of.iter_range,
                &mut of.accu_init,
                &mut of.loop_cond,
                &mut of.loop_step,
                &mut of.result,
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
        Expr::Struct(_) | Expr::Ident(_) | Expr::Literal(_) | Expr::Unspecified => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::cel::{Answer, Expression, Variable};

    #[test]
    fn optionals_stand_for_what_may_be_missing() {
        let object = Variable::from(&json!({"spec": {"replicas": 2, "text": "t"}, "list": [1, 2],
            "status": {"conditions": [{"type": "A", "status": "True"}]}}));
        for (text, expected) in [
            ("object.?status.?x.orValue(0) == 0", true),
            ("object.?nothing.?x.?y.orValue(0) == 0", true),
            ("object.?spec.?replicas.orValue(0) == 2", true),
            ("object.?spec.replicas.orValue(0) == 2", true),
            ("object.?nothing.replicas.hasValue()", false),
            ("has(object.?spec.replicas)", true),
            ("has(object.?nothing.replicas)", false),
            ("object.list[?5].orValue(7) == 7", true),
            ("object.?list[1].value() == 2", true),
            ("[?object.?nothing, ?object.?list[0]] == [1]", true),
            ("{?'a': object.?nothing, 'b': 1} == {'b': 1}", true),
            ("optional.of(1).or(optional.none()).value() == 1", true),
            ("optional.none().orValue('') == ''", true),
            ("object.?spec.?replicas.optMap(n, n + 1).value() == 3", true),
            ("object.?nothing.optMap(n, n + 1).hasValue()", false),
            ("object.?status.optFlatMap(s, s.?conditions).hasValue()", true),
            ("[object.?list[0], object.?nothing].unwrapOpt() == [1]", true),
            (
                "object.?status.?conditions.orValue([]).exists(c, c.?type.orValue('') == 'A')",
                true,
            ),
        ] {
            let expression = Expression::parse(text).unwrap();
            assert_eq!(expression.unknown_name(&["object"], &[]), None, "{text}");
            assert_eq!(
                expression.evaluate(&[("object", &object)]),
                Ok(Answer::Bool(expected)),
                "{text}"
            );
        }
        for text in [
            "object.?nothing.value() == 1",
            "object.?spec.orValue(1) == 1 + 'a'",
        ] {
            assert!(
                Expression::parse(text)
                    .unwrap()
                    .evaluate(&[("object", &object)])
                    .is_err(),
                "{text}"
            );
        }
        assert!(Expression::parse("object.?list.optMap(1, 2)").is_err());
        assert!(Expression::parse(&"object.?a".repeat(60)).is_err());
    }

    #[test]
    fn optionals_are_weighed() {
        // A long list is fine to look through, and not to square.
        let items: Vec<Value> = (0..2000).map(|n| json!({"name": format!("item-{n}")})).collect();
        let object = Variable::from(&json!({"list": items, "text": "x".repeat(3000)}));
        let run = |text: &str| Expression::parse(text).unwrap().evaluate(&[("object", &object)]);
        for text in [
            "object.?list.orValue([]).exists(i, i.?name.orValue('') == 'item-1999')",
            "object.?list.optMap(l, l.size()).orValue(0) == 2000",
            "optional.of(object.list).value().size() == 2000",
        ] {
            assert_eq!(run(text), Ok(Answer::Bool(true)), "{text}");
        }
        let mut grown = "object.?text".to_owned();
        for _ in 0..12 {
            grown += ".optMap(t, t + t + t)";
        }
        for text in [
            "object.?list.orValue([]).all(a, object.?list.orValue([]).all(b, a != b))",
            "object.?list.optMap(l, l.all(a, l.all(b, a != b))).value()",
            "[?object.?list, ?object.?list][0].all(a, object.list.all(b, a == b))",
            &format!("{grown}.value() == ''"),
        ] {
            let problem = run(text).unwrap_err();
            assert!(problem.contains("cost too much"), "{text}: {problem}");
        }
    }
}

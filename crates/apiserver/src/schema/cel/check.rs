//! Whether an expression can make sense, told when it is written and not when it is first evaluated: names, fields, types.
//!
//! The CEL crate has no type checker. This one follows the reference implementation where a type is known, and lets pass
//! what it does not know.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators,
};

use super::super::Schema;
use super::super::node::{Arena, NodeId};
use super::Expression;
use super::constants;
use super::expression;
use super::format;
use super::macros;
use super::operators::operator;
use super::signatures;
use super::type_values;
use super::types::{self, Ty};

/// What an expression may name.
pub(crate) struct Scope<'a> {
    variables: HashMap<String, Ty>,
    schema: Option<(&'a Arena, Option<NodeId>)>,
    /// Whether lists and maps may be of several types.
    mixed: bool,
}

impl<'a> Scope<'a> {
    /// Names and their types.
    pub(crate) fn new(variables: impl IntoIterator<Item = (&'static str, Ty)>) -> Self {
        Self {
            variables: variables
                .into_iter()
                .map(|(name, ty)| (name.to_owned(), ty))
                .collect(),
            schema: None,
            mixed: false,
        }
    }

    /// `self` and `oldSelf` at the root of a schema; `whole` if it is the schema of whole objects.
    pub(crate) fn of_schema(schema: &'a Schema, whole: bool, optional_old: bool) -> Self {
        let ty = Ty::of(&schema.arena, schema.root, "");
        let old = if optional_old {
            Ty::Optional(Box::new(ty.clone()))
        } else {
            ty.clone()
        };
        Self {
            schema: Some((&schema.arena, whole.then_some(schema.root))),
            ..Self::new([("self", ty), ("oldSelf", old)])
        }
    }

    /// The same names but one.
    pub(crate) fn without(&self, name: &str) -> Scope<'_> {
        let mut scope = self.same();
        scope.variables.remove(name);
        scope
    }

    /// Adds a name.
    pub(crate) fn bind(&mut self, name: &str, ty: Ty) {
        self.variables.insert(name.to_owned(), ty);
    }
}

impl Expression {
    /// The type of the value, or why there cannot be one.
    pub(crate) fn check(&self, scope: &Scope<'_>) -> Result<Ty, String> {
        self.walk(|program| scope.type_of(program))
    }

    /// Checks an expression that must have a value of one of these types, or any if there are none; returns the one it has.
    pub(crate) fn check_as(&self, wanted: &[Ty], scope: &Scope<'_>) -> Result<Ty, String> {
        let ty = self
            .check(scope)
            .map_err(|problem| format!("compilation failed: ERROR: {problem}"))?;
        // What may be anything is not known to be one of them.
        if wanted.is_empty() || wanted.contains(&ty) {
            return Ok(ty);
        }
        let names: Vec<String> = wanted.iter().map(Ty::name).collect();
        Err(match names.as_slice() {
            [only] => format!("must evaluate to {only} but got {}", ty.name()),
            several => format!(
                "must evaluate to one of [{}] but got {}",
                several.join(" "),
                ty.name()
            ),
        })
    }
}

pub(super) type Checked = Result<Ty, String>;

pub(super) fn no_overload(function: &str, arguments: &[&Ty]) -> String {
    let names: Vec<String> = arguments.iter().map(|ty| ty.name()).collect();
    format!(
        "found no matching overload for '{function}' applied to '({})'",
        names.join(", ")
    )
}

impl Scope<'_> {
    /// Whether a name is a variable.
    pub(super) fn names(&self, name: &str) -> bool {
        self.variables.contains_key(name)
    }

    pub(super) fn type_of(&self, expression: &IdedExpr) -> Checked {
        match &expression.expr {
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Ty::Bool,
                LiteralValue::Bytes(_) => Ty::Bytes,
                LiteralValue::Double(_) => Ty::Double,
                LiteralValue::Int(_) => Ty::Int,
                LiteralValue::Null => Ty::Null,
                LiteralValue::String(_) => Ty::String,
                LiteralValue::UInt(_) => Ty::Uint,
            }),
            Expr::Ident(name) => match self.variables.get(name) {
                // It takes what is a type for its name.
                Some(Ty::Type(_)) => Err(format!(
                    "program instantiation failed: reference to undefined type: {name}"
                )),
                Some(ty) => Ok(ty.clone()),
                None => match type_values::named(name) {
                    Some(name) => Ok(Ty::Type(Box::new(Ty::named(name)))),
                    None => Err(undeclared(name)),
                },
            },
            Expr::Select(select) => {
                let ty = self.field(&self.type_of(&select.operand)?, &select.field)?;
                Ok(if select.test { Ty::Bool } else { ty })
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(all) => self.comprehension(all),
            Expr::List(list) => {
                let mut common = None;
                for (at, element) in list.elements.iter().enumerate() {
                    let mut ty = self.type_of(element)?;
                    if list.optional_indices.contains(&at) {
                        ty = unwrapped(ty)?;
                    }
                    self.alike(&mut common, ty)?;
                }
                Ok(Ty::list(common.unwrap_or(Ty::Free)))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (None, None);
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.alike(&mut keys, self.type_of(&entry.key)?)?;
                        let mut value = self.type_of(&entry.value)?;
                        if entry.optional {
                            value = unwrapped(value)?;
                        }
                        self.alike(&mut values, value)?;
                    }
                }
                Ok(match keys {
                    None | Some(Ty::String) => Ty::map(values.unwrap_or(Ty::Free)),
                    Some(Ty::Dyn) => Ty::Dyn,
                    Some(keys) => Ty::Keyed(Box::new(keys), Box::new(values.unwrap_or(Ty::Free))),
                })
            }
            Expr::Struct(message) => Err(undeclared(&message.type_name)),
            Expr::Unspecified => Err("empty expression".into()),
        }
    }

    fn field(&self, of: &Ty, name: &str) -> Checked {
        match (of, self.schema) {
            (Ty::Dyn, _) => Ok(Ty::Dyn),
            (Ty::Map(values) | Ty::Keyed(_, values), _) => Ok((**values).clone().decided()),
            (Ty::Optional(of), _) => Ok(Ty::Optional(Box::new(self.field(of, name)?))),
            (&signatures::AUTHORIZER, _) if name == "requestResource" => Ok(signatures::RESOURCE_CHECK),
            (Ty::Object(id, path), Some((arena, root))) => types::field(arena, root, (*id, path), name),
            (Ty::Record(fields), _) => fields
                .iter()
                .find(|(field, _)| field == name)
                .map(|(_, ty)| ty.clone())
                .ok_or_else(|| format!("undefined field '{name}'")),
            (other, _) => Err(format!(
                "type '{}' does not support field selection",
                other.name()
            )),
        }
    }

    /// What the inside of a loop may name.
    pub(super) fn inside(&self, all: &ComprehensionExpr) -> Scope<'_> {
        self.looped(all).unwrap_or_else(|_| self.same())
    }

    fn same(&self) -> Scope<'_> {
        Scope {
            variables: self.variables.clone(),
            schema: self.schema,
            mixed: self.mixed,
        }
    }

    /// The same names where lists and maps may be of several types.
    pub(super) fn mixing(&self) -> Scope<'_> {
        Scope {
            mixed: true,
            ..self.same()
        }
    }

    fn comprehension(&self, all: &ComprehensionExpr) -> Checked {
        let inner = self.looped(all)?;
        inner.type_of(&all.result)
    }

    fn looped(&self, all: &ComprehensionExpr) -> Result<Scope<'_>, String> {
        let range = self.type_of(&all.iter_range)?;
        let (first, second) = match &range {
            Ty::Dyn => (Ty::Dyn, Ty::Dyn),
            Ty::List(items) if all.iter_var2.is_some() => (Ty::Int, (**items).clone().decided()),
            Ty::List(items) => ((**items).clone().decided(), Ty::Dyn),
            Ty::Map(values) => (Ty::String, (**values).clone().decided()),
            Ty::Keyed(keys, values) => ((**keys).clone(), (**values).clone().decided()),
            other => {
                return Err(format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.name()
                ));
            }
        };
        if [Some(&all.iter_var), all.iter_var2.as_ref()].contains(&Some(&"__result__".to_owned())) {
            return Err("iteration variable overwrites accumulator variable".into());
        }
        let mut inner = self.same();
        inner.bind(&all.iter_var, first);
        if let Some(name) = &all.iter_var2 {
            inner.bind(name, second);
        }
        let gathered = self.type_of(&all.accu_init)?;
        inner.bind(&all.accu_var, gathered);
        inner.type_of(&all.loop_cond)?;
        let step = inner.type_of(&all.loop_step)?;
        // A list or map that grows has the type of what it grows by.
        if matches!(step, Ty::List(_) | Ty::Map(_) | Ty::Keyed(..)) {
            inner.bind(&all.accu_var, step);
        }
        Ok(inner)
    }

    fn call(&self, call: &CallExpr) -> Checked {
        let name = call.func_name.as_str();
        if name == "format" && call.target.is_some() && !self.mixed {
            return self.mixing().call(call);
        }
        // `math.abs(x)`: the target is no value.
        if let Some(Expr::Ident(prefix)) = call.target.as_deref().map(|target| &target.expr)
            && !self.variables.contains_key(prefix)
            && let full = format!("{prefix}.{name}")
            && signatures::known(&full)
        {
            let arguments = self.arguments(call)?;
            let result = signatures::result(&full, None, &arguments).unwrap_or(Err(()));
            return result.map_err(|()| no_overload(&full, &arguments.iter().collect::<Vec<_>>()));
        }
        let target = call
            .target
            .as_deref()
            .map(|target| self.type_of(target))
            .transpose()?;
        let arguments = self.arguments(call)?;
        let all: Vec<&Ty> = target.iter().chain(&arguments).collect();
        if let Some(result) = operator(name, &all) {
            return result;
        }
        match (name, arguments.as_slice()) {
            ("type", [of]) if target.is_none() => return Ok(Ty::Type(Box::new(of.clone()))),
            (macros::INSERT, [_, Ty::String, value]) => return Ok(Ty::map(value.clone())),
            (macros::INSERT, [_, key, value]) if *key != Ty::Dyn => {
                return Ok(Ty::Keyed(Box::new(key.clone()), Box::new(value.clone())));
            }
            (macros::INSERT_ALL, [_, entry @ (Ty::Map(_) | Ty::Keyed(..) | Ty::Dyn)]) => {
                return Ok(entry.clone());
            }
            (macros::ITEMS, [Ty::Optional(of)]) => return Ok(Ty::List(of.clone())),
            (macros::ITEMS, [Ty::Dyn]) => return Ok(Ty::list(Ty::Dyn)),
            (macros::ITEMS, _) => return Err(no_overload("optMap", &all)),
            (macros::FIRST, [Ty::List(of)]) => return Ok(Ty::Optional(of.clone())),
            (macros::INSERT | macros::FIRST, _) => return Ok(Ty::Dyn),
            (macros::SORT_BY, [Ty::List(keys) | Ty::Optional(keys)]) => {
                let list = target.clone().unwrap_or(Ty::Dyn);
                let sorted = signatures::result("sort", Some(&Ty::List(keys.clone())), &[]);
                return match (sorted, list) {
                    (Some(Ok(_)), list @ (Ty::List(_) | Ty::Dyn)) => Ok(list),
                    _ => Err(no_overload("sortBy", &all)),
                };
            }
            (macros::SORT_BY, _) => return Ok(target.clone().unwrap_or(Ty::Dyn)),
            (macros::INSERT_ALL, _) => return Err(no_overload(macros::INSERT, &all)),
            _ => {}
        }
        match (name, call.args.as_slice()) {
            (operators::OPT_SELECT, [_, field]) => {
                let (Some(of), Expr::Literal(LiteralValue::String(field))) = (arguments.first(), &field.expr)
                else {
                    return Ok(Ty::Dyn);
                };
                let of = plain(of);
                return Ok(Ty::Optional(Box::new(self.field(of, field.inner())?)));
            }
            (operators::OPT_INDEX, _) => {
                let [of, at] = arguments.as_slice() else {
                    return Ok(Ty::Dyn);
                };
                // A list or a map: what the value would be of is not known, nor that it is one.
                if *plain(of) == Ty::Dyn {
                    return Ok(Ty::Dyn);
                }
                let item = operator(operators::INDEX, &[plain(of), at]).unwrap_or(Ok(Ty::Dyn))?;
                return Ok(Ty::Optional(Box::new(item)));
            }
            _ => {}
        }
        self.literals(call)?;
        match signatures::result(name, target.as_ref(), &arguments) {
            Some(Ok(ty)) => Ok(ty),
            Some(Err(())) => Err(no_overload(name, &all)),
            None => Err(undeclared(name)),
        }
    }

    /// What is written out in an expression must make sense.
    fn literals(&self, call: &CallExpr) -> Result<(), String> {
        let target = call.target.as_deref().map(|target| &target.expr);
        match (call.func_name.as_str(), target, call.args.as_slice()) {
            (name @ ("duration" | "timestamp"), None, [argument]) => {
                let value = match &argument.expr {
                    Expr::Literal(LiteralValue::String(text)) => {
                        Cel::String(Arc::new(text.inner().to_owned()))
                    }
                    Expr::Literal(LiteralValue::Int(number)) if name == "timestamp" => {
                        Cel::Int(*number.inner())
                    }
                    _ => return Ok(()),
                };
                expression::call(call, false, &[value])
                    .map(|_| ())
                    .map_err(|why| format!("invalid {name} argument: {why}"))
            }
            ("matches", ..) => match constants::literal_pattern(call) {
                Some(pattern) => {
                    constants::pattern(pattern).map_err(|why| format!("invalid matches argument: {why}"))
                }
                None => Ok(()),
            },
            (
                "format",
                Some(Expr::Literal(LiteralValue::String(format))),
                [
                    IdedExpr {
                        expr: Expr::List(values),
                        ..
                    },
                ],
            ) => format::check(format.inner(), &values.elements, self),
            _ => Ok(()),
        }
    }

    /// Lists and maps are of one type throughout, and what may be of any type is another than one that is known.
    fn alike(&self, common: &mut Option<Ty>, ty: Ty) -> Result<(), String> {
        let same = match common.take() {
            None => ty,
            Some(before) => match before.same(&ty) {
                Some(same) => same,
                None if self.mixed => Ty::Dyn,
                None => {
                    return Err(format!(
                        "expected type '{}' but found '{}'",
                        before.name(),
                        ty.name()
                    ));
                }
            },
        };
        *common = Some(same);
        Ok(())
    }

    fn arguments(&self, call: &CallExpr) -> Result<Vec<Ty>, String> {
        call.args.iter().map(|argument| self.type_of(argument)).collect()
    }
}

fn undeclared(name: &str) -> String {
    format!("undeclared reference to '{name}' (in container '')")
}

/// What an optional is of.
fn unwrapped(ty: Ty) -> Checked {
    match ty {
        Ty::Optional(of) => Ok(*of),
        ty @ (Ty::Dyn | Ty::Free) => Ok(ty),
        ty => Err(format!(
            "expected type 'optional_type({0})' but found '{0}'",
            ty.name()
        )),
    }
}

/// What an optional is of, or the type itself.
fn plain(ty: &Ty) -> &Ty {
    match ty {
        Ty::Optional(of) => of,
        ty => ty,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::super::Activation;
    use super::*;

    #[test]
    fn expressions_have_types() {
        let schema = json!({"type": "object", "properties": {
            "n": {"type": "integer"}, "s": {"type": "string"}, "l": {"type": "array", "items": {"type": "string"}},
            "m": {"type": "object", "additionalProperties": {"type": "integer"}},
        }});
        let schema = Schema::compile(&schema).unwrap();
        let scope = Scope::of_schema(&schema, false, false);
        for (rule, wanted) in [
            ("self.n + 1", Ok(Ty::Int)),
            ("self.l.map(x, size(x))", Ok(Ty::list(Ty::Int))),
            ("self.l.filter(x, x == 'a')", Ok(Ty::list(Ty::String))),
            ("self.m.exists(k, self.m[k] > 1)", Ok(Ty::Bool)),
            ("self.?s.orValue('')", Ok(Ty::String)),
            (
                "self.n + self.s",
                Err("found no matching overload for '_+_' applied to '(int, string)'"),
            ),
            ("self.x", Err("undefined field 'x'")),
            ("x", Err("undeclared reference to 'x' (in container '')")),
            (
                "Foo{a: 1}",
                Err("undeclared reference to 'Foo' (in container '')"),
            ),
        ] {
            let found = Expression::compile(rule).unwrap().check(&scope);
            assert_eq!(found, wanted.map_err(str::to_owned), "{rule}");
        }
    }

    #[test]
    fn what_the_engine_cannot_do_is_an_error() {
        let outcome = Expression::compile("Foo{a: 1}")
            .unwrap()
            .evaluate(&Activation::default());
        assert_eq!(outcome.unwrap_err(), "the expression cannot be evaluated");
    }

    proptest! {
        #[test]
        fn no_expression_panics(text in "(self|a|1|2.5|'x'|\\.|\\?|\\[|\\]|\\(|\\)|\\{|\\}|:|,| in |==|<|\\+|-|!|&&|all|map|has|size|check|x){0,12}") {
            if let Ok(expression) = Expression::compile(&text) {
                let scope = Scope::new([("self", Ty::Dyn), ("a", Ty::list(Ty::Int))]);
                let _ = expression.check(&scope);
                let mut activation = Activation::default();
                activation.bind("self", &json!({"x": [1, 2]}));
                activation.bind("a", &json!([1]));
                let _ = expression.evaluate(&activation);
            }
        }
    }
}

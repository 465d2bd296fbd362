//! CEL expressions about JSON objects, with the functions that Kubernetes knows.
//!
//! The author of an expression is not trusted with the process that runs it: an expression is refused if it is too long, too
//! deep, or may cost too much, and whatever the engine stumbles over is an error of the expression.

mod cost;
mod names;
mod optionals;
mod types;

use std::{
    collections::HashMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use kube_cel::{
    KubeCelExt,
    cel::{
        Context, ExecutionError, ResolveResult, Value as Cel,
        common::ast::IdedExpr,
        extractors::{Arguments, This},
        objects::Key,
        parser::Parser,
    },
};
use serde_json::Value;

/// The longest expression that is read.
const MAX_EXPRESSION: usize = 10 * 1024;
/// How deep brackets and conditions may nest: the parser needs stack for each.
const MAX_DEPTH: usize = 48;
/// How deep the tree of an expression may be: walking it takes stack for each level.
const MAX_TREE: usize = 64;
/// The stack of the parser: enough for the longest chain of operators in the longest expression. What is not used costs
/// nothing.
const PARSER_STACK: usize = 64 << 20;
/// The longest message about an expression that failed.
const MAX_MESSAGE: usize = 300;

/// What an expression came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// True or false.
    Bool(bool),
    /// A text.
    Text(String),
    /// Anything else.
    Other,
}

/// An expression that was understood.
#[derive(Debug)]
pub struct Expression(IdedExpr);

/// A JSON value as expressions see it; made once, used by many.
#[derive(Clone, Debug)]
pub struct Variable(Cel);

impl From<&Value> for Variable {
    fn from(value: &Value) -> Self {
        Self(to_cel(value))
    }
}

impl From<bool> for Variable {
    fn from(value: bool) -> Self {
        Self(Cel::Bool(value))
    }
}

/// A function of one text that looks its answer up; what is not there is an empty list.
#[derive(Clone, Debug, Default)]
pub struct Table(Arc<HashMap<String, Variable>>);

impl FromIterator<(String, Variable)> for Table {
    fn from_iter<I: IntoIterator<Item = (String, Variable)>>(entries: I) -> Self {
        Self(Arc::new(entries.into_iter().collect()))
    }
}

impl Expression {
    /// Reads an expression; `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_EXPRESSION {
            return Err(format!("it is longer than {MAX_EXPRESSION} bytes"));
        }
        if depth(text) > MAX_DEPTH {
            return Err(format!("it nests deeper than {MAX_DEPTH}"));
        }
        let tree = on_a_large_stack(|| {
            let parser = Parser::new().enable_optional_syntax(true);
            let mut tree = parser
                .parse(text)
                .map_err(|error| shortened(&error.to_string()))?;
            optionals::rewrite(&mut tree)?;
            let expression = &tree.expr;
            if names::depth(expression) > MAX_TREE {
                return Err(format!(
                    "it nests deeper than {MAX_TREE}: a chain of operators nests, too"
                ));
            }
            if names::holds_a_message(expression) {
                return Err("it makes a message of a named type, and there are no such types here".into());
            }
            Ok(tree)
        })??;
        Ok(Self(tree))
    }

    /// The first name in it that is neither one of these variables nor a function, these functions included.
    pub fn unknown_name(&self, variables: &[&str], functions: &[&str]) -> Option<String> {
        let expression = &self.0.expr;
        guarded(|| names::unknown(expression, variables, functions, &functions_of_kubernetes()))
            .unwrap_or_else(Some)
    }

    /// What is wrong with it whatever it is run with, if it is meant to be true or false about this variable: a field that
    /// the variable's schema does not have, or an outcome of another kind. The schema is one of a definition.
    pub fn mistake(&self, variable: &str, schema: &Value) -> Option<String> {
        types::mistake(&self.0.expr, variable, schema)
    }

    /// What it comes to with these variables.
    pub fn evaluate(&self, variables: &[(&str, &Variable)]) -> Result<Answer, String> {
        self.evaluate_with(variables, &[])
    }

    /// What it comes to with these variables and these functions.
    pub fn evaluate_with(
        &self,
        variables: &[(&str, &Variable)],
        tables: &[(&str, &Table)],
    ) -> Result<Answer, String> {
        let values: Vec<_> = variables.iter().map(|(name, v)| (*name, &v.0)).collect();
        let sizes: Vec<_> = tables
            .iter()
            .map(|(name, table)| {
                let values = table.0.values().map(|v| v.0.clone()).collect();
                (*name, cost::Size::of(&Cel::List(Arc::new(values))))
            })
            .collect();
        cost::check(&self.0.expr, &values, &sizes)?;
        let mut context = functions_of_kubernetes();
        for (name, variable) in variables {
            context.add_variable_from_value(*name, variable.0.clone());
        }
        for (name, table) in tables {
            let table = Arc::clone(&table.0);
            let look_up = move |Arguments(arguments): Arguments| -> ResolveResult {
                let Some(Cel::String(key)) = arguments.last() else {
                    return Err(ExecutionError::missing_argument_or_target());
                };
                let found = table.get(key.as_str());
                Ok(found.map_or_else(|| Cel::List(Arc::default()), |variable| variable.0.clone()))
            };
            context.add_function(name, look_up);
        }
        match guarded(|| context.resolve(&self.0))? {
            Ok(Cel::Bool(value)) => Ok(Answer::Bool(value)),
            Ok(Cel::String(text)) => Ok(Answer::Text(text.to_string())),
            Ok(_) => Ok(Answer::Other),
            Err(error) => Err(shortened(&error.to_string())),
        }
    }
}

fn functions_of_kubernetes() -> Context<'static> {
    let mut context = Context::default().with_all();
    context.add_function("hasConditions", has_conditions);
    context.add_function("parseJSON", parse_json);
    optionals::register(&mut context);
    context
}

/// The engine gives up on some input by a panic; here that is an error of the expression.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|_| "the engine cannot run it".to_owned())
}

/// The parser makes a tree that is as deep as a chain of operators is long, and walks it by recursion.
fn on_a_large_stack<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("cel-parser".into())
            .stack_size(PARSER_STACK)
            .spawn_scoped(scope, run)
            .map_err(|error| format!("it cannot be read now: {error}"))?
            .join()
            .map_err(|_| "the engine cannot read it".to_owned())
    })
}

/// How deep the text can nest. Text in quotes counts too, which is harmless.
fn depth(text: &str) -> usize {
    let (mut now, mut most, mut conditions) = (0_usize, 0, 0);
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => now += 1,
            ')' | ']' | '}' => now = now.saturating_sub(1),
            '?' => conditions += 1,
            _ => {}
        }
        most = most.max(now);
    }
    most.max(conditions)
}

/// A message that quotes values can be as long as they are.
fn shortened(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE) {
        Some((end, _)) => format!("{}...", message.get(..end).unwrap_or_default()),
        None => message.to_owned(),
    }
}

/// A text that holds JSON, as a value.
fn parse_json(This(text): This<Arc<String>>) -> ResolveResult {
    serde_json::from_str(&text)
        .map(|value: Value| to_cel(&value))
        .map_err(|error| ExecutionError::function_error("parseJSON", error))
}

/// Whether a status, or the status of an object, holds conditions.
fn has_conditions(value: Cel) -> bool {
    let field = |value: &Cel, name: &str| match value {
        Cel::Map(map) => map.map.get(&Key::from(name)).cloned(),
        _ => None,
    };
    let status = field(&value, "status").unwrap_or(value);
    matches!(field(&status, "conditions"), Some(Cel::List(list)) if !list.is_empty())
}

fn to_cel(value: &Value) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(value) => Cel::Bool(*value),
        Value::Number(number) => number
            .as_i64()
            .map(Cel::Int)
            .or_else(|| number.as_u64().map(Cel::UInt))
            .or_else(|| number.as_f64().map(Cel::Float))
            .unwrap_or(Cel::Null),
        Value::String(text) => Cel::String(Arc::new(text.clone())),
        Value::Array(list) => Cel::List(Arc::new(list.iter().map(to_cel).collect())),
        Value::Object(map) => {
            let map: HashMap<Key, Cel> = map
                .iter()
                .map(|(key, value)| (Key::from(key.as_str()), to_cel(value)))
                .collect();
            Cel::Map(map.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn expressions_see_objects_and_say_what_they_are() {
        let object =
            Variable::from(&json!({"spec": {"replicas": 2}, "status": {"conditions": [{"type": "A"}]}}));
        for (text, expected) in [
            ("object.spec.replicas == 2", Answer::Bool(true)),
            ("hasConditions(object)", Answer::Bool(true)),
            ("hasConditions(object.spec)", Answer::Bool(false)),
            ("string(object.spec.replicas) + '!'", Answer::Text("2!".into())),
            (
                "quantity('1Ki').isGreaterThan(quantity('1k'))",
                Answer::Bool(true),
            ),
            ("1 + 1", Answer::Other),
        ] {
            let expression = Expression::parse(text).unwrap();
            assert_eq!(
                expression.evaluate(&[("object", &object)]),
                Ok(expected),
                "{text}"
            );
        }
        assert!(Expression::parse("object.").is_err());
        assert!(
            Expression::parse(&"1+".repeat(6000))
                .unwrap_err()
                .contains("longer")
        );
        let missing = Expression::parse("object.status.nothing == 1").unwrap();
        assert!(missing.evaluate(&[("object", &object)]).is_err());
    }

    #[test]
    fn functions_look_up_and_read_json() {
        let cluster = Variable::from(&json!({"note": "{\"gpu\": [1, 2]}"}));
        let scores: Table = [(
            "usage".to_owned(),
            Variable::from(&json!([{"name": "cpu", "value": 90}, {"name": "memory", "value": -3}])),
        )]
        .into_iter()
        .collect();
        for (text, expected) in [
            (
                "c.scores('usage').filter(s, s.name == 'cpu').all(s, s.value > 80)",
                true,
            ),
            (
                "c.scores('usage').filter(s, s.name == 'memory').all(s, s.value > 80)",
                false,
            ),
            ("c.scores('nothing').all(s, false)", true),
            ("c.scores('nothing').exists(s, true)", false),
            ("c.note.parseJSON().gpu.exists(n, n == 2)", true),
            (
                "semver('v1.30.1', true).isGreaterThan(semver('v1.30.0', true))",
                true,
            ),
        ] {
            let expression = Expression::parse(text).unwrap();
            assert_eq!(expression.unknown_name(&["c"], &["scores"]), None, "{text}");
            let answer = expression.evaluate_with(&[("c", &cluster)], &[("scores", &scores)]);
            assert_eq!(answer, Ok(Answer::Bool(expected)), "{text}");
        }
        let broken = Expression::parse("'{'.parseJSON().a == 1").unwrap();
        assert!(broken.evaluate(&[]).unwrap_err().contains("parseJSON"));
    }

    #[test]
    fn names_that_nobody_defined_are_found() {
        for (text, unknown) in [
            ("cluster.a == 1", None),
            ("cluster.list.exists(c, c.a == cluster.b)", None),
            ("cluster.list.all(c, size(c) > math.abs(-1))", None),
            (
                "has(cluster.a) ? [1, 2].map(x, x + 1) == [2] : {'a': cluster} == cluster",
                None,
            ),
            ("clutser.a == 1", Some("variable \"clutser\"")),
            ("cluster.list.exists(c, d.a == 1)", Some("variable \"d\"")),
            ("cluster.list.exists(c, true) && c", Some("variable \"c\"")),
            ("cluster.scores('a').size() > 0", Some("function \"scores\"")),
            ("maths.abs(1) == 1", Some("variable \"maths\"")),
            ("siz(cluster) == 1", Some("function \"siz\"")),
        ] {
            let found = Expression::parse(text).unwrap().unknown_name(&["cluster"], &[]);
            match unknown {
                None => assert_eq!(found, None, "{text}"),
                Some(name) => assert!(
                    found.as_ref().is_some_and(|f| f.ends_with(name)),
                    "{text}: {found:?}"
                ),
            }
        }
    }

    #[test]
    fn mistakes_are_found_before_anything_runs() {
        let text = json!({"type": "string"});
        let claim = json!({"type": "object", "properties": {"name": text, "value": text}});
        let schema = json!({"type": "object", "properties": {
            "name": text,
            "ready": {"type": "boolean"},
            "labels": {"type": "object", "additionalProperties": text},
            "claims": {"type": "array", "items": claim},
            "free": {"type": "object", "properties": {}, "x-kubernetes-preserve-unknown-fields": true},
            "either": {"x-kubernetes-int-or-string": true},
        }});
        for text in [
            "c.ready",
            "!c.ready && c.name == 'a'",
            "c.labels['a'] == 'b' || c.labels.env in ['prod']",
            "has(c.labels.a) ? c.ready : false",
            "c.claims.exists(a, a.name == 'x' && a.value != '')",
            "c.claims.exists_one(a, a.name == 'x')",
            "c.claims.filter(a, a.name == 'x').all(a, a.anything == 1)",
            "c['name'] == 'a'",
            "c.free.whatever == 1 && c.either > 2",
            "c.labels.exists(key, key.startsWith('a'))",
            "c.name.startsWith('a')",
            // Its type is known only with values.
            "c.scores('a')[0].value",
            "true",
        ] {
            let mistake = Expression::parse(text).unwrap().mistake("c", &schema);
            assert_eq!(mistake, None, "{text}");
        }
        for (text, words) in [
            ("c.labls['a'] == 'b'", "\"labls\""),
            ("has(c.labls)", "\"labls\""),
            ("c['labls'] == 1", "\"labls\""),
            ("c.name.first == 'a'", "\"first\""),
            ("c.claims.exists(a, a.nam == 'x')", "\"nam\""),
            ("c.ready || [c.nam] == []", "\"nam\""),
            ("1 + 1", "never true or false"),
            ("c.name", "never true or false"),
            ("c.claims.map(a, a.name)", "never true or false"),
            ("c.ready ? 'a' : 'b'", "never true or false"),
            ("size(c.claims)", "never true or false"),
        ] {
            let mistake = Expression::parse(text).unwrap().mistake("c", &schema);
            assert!(
                mistake.as_ref().is_some_and(|m| m.contains(words)),
                "{text}: {mistake:?}"
            );
        }
    }

    #[test]
    fn no_expression_takes_the_process_down() {
        let claims: Vec<_> = (0..20)
            .map(|n| json!({"name": format!("claim-{n}"), "value": "some value"}))
            .collect();
        let cluster = Variable::from(&json!({"claims": claims, "name": "cluster1"}));
        let fine =
            "c.claims.filter(a, a.name.startsWith('claim-1')).map(a, a.value).all(v, v.matches('^[a-z ]+$'))";
        let expression = Expression::parse(fine).unwrap();
        assert_eq!(expression.evaluate(&[("c", &cluster)]), Ok(Answer::Bool(true)));
        let nested = "c.claims.all(a, ".repeat(8) + "true" + &")".repeat(8);
        let doubled = format!("[c.name]{}.size() > 0", ".map(a, a + a + a + a)".repeat(12));
        let replaced = format!("'aaaaaaaaaa'{} == ''", ".replace('a', 'aaaaaaaaaa')".repeat(12));
        for text in [
            nested.as_str(),
            &doubled,
            &replaced,
            "lists.range(1000000000).size() > 0",
            "lists.range(c.claims.size() * 100000000).size() > 0",
            "'%.70000f'.format([1.0]) == ''",
            "Cluster{name: 'a'} == c",
            &("(".repeat(5000) + "1" + &")".repeat(5000)),
            &("true ? 1 : ".repeat(900) + "1"),
            &format!("[{}].all(x, x)", "[".repeat(300) + &"]".repeat(300)),
            &("!".repeat(10_000) + "true"),
            &("-".repeat(10_000) + "1 == 1"),
            &("1 + ".repeat(2500) + "1 == 1"),
            &("1 + ".repeat(50) + "1 == 51"),
            &("c".to_owned() + &".name".repeat(2000) + " == 1"),
            &("c".to_owned() + &"[0]".repeat(3000) + " == 1"),
            &("1 in ".repeat(2000) + "[1]"),
            &("true && ".repeat(1200) + "true"),
            &format!("{}1{} == 1", "[".repeat(46), "]".repeat(46)),
        ] {
            let text = text.to_owned();
            let cluster = cluster.clone();
            // As little stack as a worker of the runtime has.
            let answer = std::thread::Builder::new()
                .stack_size(2 << 20)
                .spawn(move || Expression::parse(&text)?.evaluate(&[("c", &cluster)]).map(drop))
                .unwrap()
                .join()
                .unwrap();
            println!("{answer:?}");
        }
        for text in [&nested, &doubled, &replaced] {
            let problem = Expression::parse(text).unwrap().evaluate(&[("c", &cluster)]);
            assert!(problem.unwrap_err().contains("cost too much"), "{text}");
        }
    }
}

//! CEL expressions about JSON objects, with the functions that Kubernetes knows.

use std::{collections::HashMap, sync::Arc};

use kube_cel::{
    KubeCelExt,
    cel::{Context, Program, Value as Cel, objects::Key},
};
use serde_json::Value;

/// The longest expression that is read.
const MAX_EXPRESSION: usize = 10 * 1024;

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
pub struct Expression(Program);

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

impl Expression {
    /// Reads an expression; `Err` says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > MAX_EXPRESSION {
            return Err(format!("it is longer than {MAX_EXPRESSION} bytes"));
        }
        Program::compile(text)
            .map(Self)
            .map_err(|error| error.to_string())
    }

    /// What it comes to with these variables.
    pub fn evaluate(&self, variables: &[(&str, &Variable)]) -> Result<Answer, String> {
        let mut context = Context::default().with_all();
        context.add_function("hasConditions", has_conditions);
        for (name, variable) in variables {
            context.add_variable_from_value(*name, variable.0.clone());
        }
        match self.0.execute(&context) {
            Ok(Cel::Bool(value)) => Ok(Answer::Bool(value)),
            Ok(Cel::String(text)) => Ok(Answer::Text(text.to_string())),
            Ok(_) => Ok(Answer::Other),
            Err(error) => Err(error.to_string()),
        }
    }
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
}

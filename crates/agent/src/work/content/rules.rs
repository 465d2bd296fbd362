//! The conditions that rules compute from an object.

use serde_json::Value;
use writ_api::work::{ConditionRule, ConditionRuleType};
use writ_runtime::{
    cel::{Answer, Expression, Variable},
    condition::{Status, Wanted, clip},
};

/// The longest message that is computed: a thousand of them have to fit into one status.
const MAX_MESSAGE: usize = 1024;

/// One condition per rule.
pub fn evaluate(object: &Value, rules: &[ConditionRule]) -> Vec<Wanted> {
    rules
        .iter()
        .map(|rule| match rule.type_ {
            ConditionRuleType::Cel => by_cel(object, rule),
            ConditionRuleType::WellKnownConditions => well_known(object, rule),
        })
        .collect()
}

fn by_cel(object: &Value, rule: &ConditionRule) -> Wanted {
    if rule.cel_expressions.is_empty() {
        return Wanted::new(
            &rule.condition,
            Status::Unknown,
            "ConditionRuleInvalid",
            "celExpressions is empty: at least one expression is needed",
        );
    }
    let object = Variable::from(object);
    let mut result = true;
    for expression in &rule.cel_expressions {
        match run(expression, &[("object", &object)]) {
            Ok(Answer::Bool(value)) => result &= value,
            Ok(_) => return broken(rule, &format!("{expression:?} is not true or false")),
            Err(problem) => return broken(rule, &format!("{expression:?}: {problem}")),
        }
    }
    let mut message = rule.message.clone();
    if !rule.message_expression.is_empty() {
        let variables = [("object", &object), ("result", &Variable::from(result))];
        match run(&rule.message_expression, &variables) {
            Ok(Answer::Text(text)) if !text.is_empty() => message = clip(&text, MAX_MESSAGE),
            Ok(Answer::Text(_)) => {}
            Ok(_) => message = format!("messageExpression {:?} is not a text", rule.message_expression),
            Err(problem) => message = format!("messageExpression {:?}: {problem}", rule.message_expression),
        }
    }
    Wanted::new(&rule.condition, result, "ConditionRuleEvaluated", message)
}

fn run(expression: &str, variables: &[(&str, &Variable)]) -> Result<Answer, String> {
    Expression::parse(expression)?.evaluate(variables)
}

fn broken(rule: &ConditionRule, problem: &str) -> Wanted {
    Wanted::new(&rule.condition, false, "ConditionRuleExpressionError", problem)
}

fn well_known(object: &Value, rule: &ConditionRule) -> Wanted {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let type_ = if rule.condition.is_empty() {
        "Complete"
    } else {
        &rule.condition
    };
    let done = match (text("/apiVersion"), text("/kind"), type_) {
        ("batch/v1", "Job", "Complete") => object
            .pointer("/status/conditions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .any(|condition| {
                matches!(
                    condition.get("type").and_then(Value::as_str),
                    Some("Complete" | "Failed")
                ) && condition.get("status").and_then(Value::as_str) == Some("True")
            }),
        ("v1", "Pod", "Complete") => matches!(text("/status/phase"), "Succeeded" | "Failed"),
        (version, kind, _) => {
            return Wanted::new(
                type_,
                Status::Unknown,
                "ConditionRuleInvalid",
                format!("condition {type_} is not well known for {version}, Kind={kind}: use a CEL rule"),
            );
        }
    };
    let message = if !rule.message.is_empty() {
        rule.message.clone()
    } else if done {
        format!("{} is completed", text("/kind"))
    } else {
        format!("{} is not completed", text("/kind"))
    };
    Wanted::new(type_, done, "ConditionRuleEvaluated", message)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(object: &Value, rule: Value) -> (String, &'static str, String, String) {
        let rule: ConditionRule = serde_json::from_value(rule).unwrap();
        let found = evaluate(object, &[rule]).pop().unwrap();
        (found.type_, found.status.as_str(), found.reason, found.message)
    }

    #[test]
    fn expressions_are_anded_and_may_speak() {
        let object = json!({"status": {"replicas": 3, "ready": 3, "conditions": [{"type": "Ready", "status": "True"}]}});
        let (type_, status, reason, message) = one(
            &object,
            json!({"condition": "Fine", "type": "CEL", "message": "unused",
                "celExpressions": ["object.status.replicas == object.status.ready", "object.status.replicas > 2",
                    "object.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True')",
                    "hasConditions(object.status)"],
                "messageExpression": "'ready: ' + string(object.status.ready) + (result ? '!' : '?')"}),
        );
        assert_eq!(
            (type_.as_str(), status, reason.as_str()),
            ("Fine", "True", "ConditionRuleEvaluated")
        );
        assert_eq!(message, "ready: 3!");
        let (_, status, _, message) = one(
            &object,
            json!({"condition": "Fine", "type": "CEL", "message": "no", "celExpressions": ["object.status.ready == 2"]}),
        );
        assert_eq!((status, message.as_str()), ("False", "no"));
    }

    #[test]
    fn a_long_message_is_cut() {
        let object = json!({"status": {"text": "x".repeat(20_000)}});
        let (_, status, _, message) = one(
            &object,
            json!({"condition": "Fine", "type": "CEL", "celExpressions": ["true"], "messageExpression": "object.status.text"}),
        );
        assert_eq!(
            (status, message.len() <= MAX_MESSAGE),
            ("True", true),
            "{}",
            message.len()
        );
        assert!(message.starts_with("xxx"));
    }

    #[test]
    fn a_bad_expression_is_false_and_says_why() {
        for expression in [
            "object.status.",
            "object.status.missing == 1",
            "1 + 1",
            "nobody(object)",
        ] {
            let (_, status, reason, message) = one(
                &json!({"status": {}}),
                json!({"condition": "X", "type": "CEL", "celExpressions": [expression]}),
            );
            assert_eq!(
                (status, reason.as_str()),
                ("False", "ConditionRuleExpressionError"),
                "{expression}"
            );
            assert!(message.contains(expression), "{message}");
        }
    }

    #[test]
    fn jobs_and_pods_are_known_to_complete() {
        let rule = json!({"condition": "Complete", "type": "WellKnownConditions"});
        let job = |type_: &str| json!({"apiVersion": "batch/v1", "kind": "Job", "status": {"conditions": [{"type": type_, "status": "True"}]}});
        assert_eq!(one(&job("Complete"), rule.clone()).1, "True");
        assert_eq!(one(&job("Failed"), rule.clone()).1, "True");
        assert_eq!(one(&job("Suspended"), rule.clone()).1, "False");
        assert_eq!(
            one(&json!({"apiVersion": "v1", "kind": "Node"}), rule).2,
            "ConditionRuleInvalid"
        );
    }
}

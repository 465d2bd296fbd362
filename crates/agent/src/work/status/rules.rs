//! Pure: the conditions that rules compute from an object.

use serde_json::Value;
use writ_api::work::{ConditionRule, ConditionRuleType, MAX_RULE_EXPRESSIONS, RESERVED_CONDITIONS};
use writ_controller::condition::{Status, Wanted, clip};
use writ_runtime::cel::{Answer, Expression, Variable};

/// The longest computed message: a thousand of them have to fit into one status.
const MAX_MESSAGE: usize = 1024;

/// One condition per rule; none for a well-known condition that the object's kind does not have, or for a condition that
/// only the agent sets.
pub fn evaluate_rules(object: &Value, rules: &[ConditionRule]) -> Vec<Wanted> {
    let mut expressions = 0;
    let rules = rules
        .iter()
        .filter(|rule| !RESERVED_CONDITIONS.contains(&rule.condition.as_str()));
    let conditions = rules.filter_map(|rule| {
        expressions += rule.expressions().count();
        if expressions > MAX_RULE_EXPRESSIONS {
            return Some(too_many(rule));
        }
        match rule.type_ {
            ConditionRuleType::Cel => Some(by_cel(object, rule)),
            ConditionRuleType::WellKnownConditions => well_known(object, rule),
        }
    });
    conditions.collect()
}

fn too_many(rule: &ConditionRule) -> Wanted {
    Wanted::new(
        &rule.condition,
        Status::Unknown,
        "ConditionRuleInvalid",
        format!("the rules of one object may have {MAX_RULE_EXPRESSIONS} expressions in all, and have more"),
    )
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
            Ok(Answer::Bool(true)) => {}
            // The first false expression decides: later ones may presuppose it.
            Ok(Answer::Bool(false)) => {
                result = false;
                break;
            }
            Ok(_) => return broken(rule, &format!("{expression:?} is not true or false")),
            Err(problem) => return broken(rule, &format!("{expression:?}: {problem}")),
        }
    }
    let not = if result { "" } else { "not " };
    let plain = format!("Manifest is {not}{}", rule.condition);
    evaluated(&object, rule, result, plain)
}

/// The condition of a rule. Its message is that of the rule's messageExpression, else the rule's own, else `plain`.
fn evaluated(object: &Variable, rule: &ConditionRule, result: bool, plain: String) -> Wanted {
    let mut message = if rule.message.is_empty() {
        plain
    } else {
        rule.message.clone()
    };
    if !rule.message_expression.is_empty() {
        let variables = [("object", object), ("result", &Variable::from(result))];
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

/// The well-known condition of the object's kind; `None` for other kinds. A rule with wildcards matches those too, and an
/// unknown condition would hide the known ones in the aggregate.
fn well_known(object: &Value, rule: &ConditionRule) -> Option<Wanted> {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    let (done, plain) = match (text("/apiVersion"), text("/kind"), rule.condition.as_str()) {
        ("batch/v1", "Job", "Complete") => {
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            let finished = conditions.into_iter().flatten().any(|condition| {
                let field = |name: &str| condition.get(name).and_then(Value::as_str);
                matches!(field("type"), Some("Complete" | "Failed")) && field("status") == Some("True")
            });
            let not = if finished { "" } else { "not " };
            (finished, format!("Job is {not}finished"))
        }
        ("v1", "Pod", "Complete") => {
            let phase = text("/status/phase");
            let ended = matches!(phase, "Succeeded" | "Failed");
            (ended, format!("Pod is in phase {phase}"))
        }
        _ => return None,
    };
    Some(evaluated(&Variable::from(object), rule, done, plain))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn one(object: &Value, rule: Value) -> (String, &'static str, String, String) {
        let rule: ConditionRule = serde_json::from_value(rule).unwrap();
        let found = evaluate_rules(object, &[rule]).pop().unwrap();
        (found.type_, found.status.as_str(), found.reason, found.message)
    }

    #[test]
    fn rule_for_a_condition_of_the_agent_is_ignored() {
        let rules = ["Applied", "Deleting", "Fine"]
            .map(|name| json!({"condition": name, "type": "CEL", "celExpressions": ["true"]}));
        let rules: Vec<ConditionRule> = serde_json::from_value(rules.into()).unwrap();
        let found: Vec<String> = evaluate_rules(&json!({}), &rules)
            .into_iter()
            .map(|c| c.type_)
            .collect();
        assert_eq!(found, ["Fine"]);
    }

    #[test]
    fn expressions_are_anded_and_compute_the_message() {
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
    fn number_of_expressions_is_bounded() {
        let rule = |name: usize| json!({"condition": format!("C{name}"), "type": "CEL", "celExpressions": ["true", "true"]});
        let rules: Vec<ConditionRule> = (0..40)
            .map(|name| serde_json::from_value(rule(name)).unwrap())
            .collect();
        let found = evaluate_rules(&json!({}), &rules);
        let evaluated = found.iter().filter(|c| c.status == Status::True).count();
        assert_eq!((found.len(), evaluated), (40, MAX_RULE_EXPRESSIONS / 2));
        assert_eq!(found[39].reason, "ConditionRuleInvalid");
    }

    #[test]
    fn long_message_is_truncated() {
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
    fn invalid_expression_is_false_with_its_reason() {
        for expression in [
            "object.status.",
            "object.status.missing == 1",
            "1 + 1",
            "unknown(object)",
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
    fn conditions_and_messages_are_those_of_ocm() {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap", "spec": {"replicas": 2}});
        let job = |type_: &str| {
            json!({"apiVersion": "batch/v1", "kind": "Job",
                "status": {"conditions": [{"type": type_, "status": "True"}]}})
        };
        let pod = |phase: &str| json!({"apiVersion": "v1", "kind": "Pod", "status": {"phase": phase}});
        let cel =
            |expressions: Value| json!({"condition": "Fine", "type": "CEL", "celExpressions": expressions});
        let known = || json!({"condition": "Complete", "type": "WellKnownConditions"});
        let with = |mut rule: Value, field: &str, text: &str| {
            rule[field] = json!(text);
            rule
        };
        let result = "result ? 'yes' : 'no'";
        for (object, rule, status, message) in [
            (&object, cel(json!(["true"])), "True", "Manifest is Fine"),
            (&object, cel(json!(["false"])), "False", "Manifest is not Fine"),
            (
                &object,
                with(cel(json!(["true"])), "messageExpression", "''"),
                "True",
                "Manifest is Fine",
            ),
            // Fields that may be missing.
            (
                &object,
                cel(json!(["object.?status.?x.orValue(0) == 0"])),
                "True",
                "Manifest is Fine",
            ),
            (
                &object,
                cel(json!(["[?object.?status, ?object.spec.?replicas] == [2]"])),
                "True",
                "Manifest is Fine",
            ),
            // The first false expression decides.
            (
                &object,
                cel(json!(["has(object.status)", "object.status.ready == 1"])),
                "False",
                "Manifest is not Fine",
            ),
            (&job("Complete"), known(), "True", "Job is finished"),
            (&job("Failed"), known(), "True", "Job is finished"),
            (&job("Suspended"), known(), "False", "Job is not finished"),
            (
                &json!({"apiVersion": "batch/v1", "kind": "Job"}),
                known(),
                "False",
                "Job is not finished",
            ),
            (&pod("Running"), known(), "False", "Pod is in phase Running"),
            (&pod("Failed"), known(), "True", "Pod is in phase Failed"),
            (
                &job("Complete"),
                with(known(), "messageExpression", result),
                "True",
                "yes",
            ),
            (
                &pod("Running"),
                with(known(), "messageExpression", "object.status.phase"),
                "False",
                "Running",
            ),
            (&pod("Running"), with(known(), "message", "mine"), "False", "mine"),
        ] {
            let found = one(object, rule.clone());
            assert_eq!(found.2, "ConditionRuleEvaluated", "{rule}: {}", found.3);
            assert_eq!((found.1, found.3.as_str()), (status, message), "{rule}");
        }
    }

    #[test]
    fn unknown_well_known_condition_is_omitted() {
        for (kind, condition) in [("Node", "Complete"), ("Pod", "Progressing"), ("Pod", "")] {
            let rule = json!({"condition": condition, "type": "WellKnownConditions"});
            let rule: ConditionRule = serde_json::from_value(rule).unwrap();
            let object = json!({"apiVersion": "v1", "kind": kind, "status": {"phase": "Running"}});
            assert_eq!(evaluate_rules(&object, &[rule]), [], "{kind} {condition}");
        }
    }
}

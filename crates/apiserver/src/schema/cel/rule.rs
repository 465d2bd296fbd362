//! `x-kubernetes-validations`.

use std::ops::ControlFlow;
use std::sync::Arc;

use kube_cel::cel::Value as Cel;
use kube_cel::cel::objects::Key;
use serde_json::Value;

use super::super::cause::{Cause, child, index, key};
use super::super::lists::ByKey;
use super::super::node::{Additional, Arena, ListType, Node, NodeId, Type};
use super::super::unchanged::is_unchanged;
use super::super::validate::Verdict;
use super::bound::Extent;
use super::convert::typed;
use super::described::Described;
use super::expression::{Budget, Failure};
use super::meter::{OUT_OF_BUDGET, PER_CALL, PER_OBJECT};
use super::optional::optional;
use super::{Activation, Expression};

/// One compiled rule.
#[derive(Debug)]
pub(crate) struct Rule {
    expression: Expression,
    message: Box<str>,
    message_expression: Option<Expression>,
    reason: Option<Box<str>>,
    field_path: Box<str>,
    optional_old_self: bool,
    uses_old_self: bool,
}

impl Rule {
    /// Compiles a list of rules; what does not compile is reported by path.
    pub(crate) fn compile_all(
        rules: Option<&Value>,
        path: &str,
        problems: &mut Vec<(String, String)>,
    ) -> Box<[Self]> {
        let mut out = Vec::new();
        for (i, rule) in rules.and_then(Value::as_array).into_iter().flatten().enumerate() {
            let text = |name: &str| rule.get(name).and_then(Value::as_str).unwrap_or_default().trim();
            let source = text("rule");
            if source.is_empty() {
                problems.push((format!("{path}[{i}].rule"), "rule is not specified".into()));
                continue;
            }
            let mut compile = |field: &str, source: &str| {
                Expression::compile_for_schema(source)
                    .map_err(|e| {
                        problems.push((format!("{path}[{i}].{field}"), format!("compilation failed: {e}")));
                    })
                    .ok()
            };
            let Some(expression) = compile("rule", source) else {
                continue;
            };
            let message_expression = match text("messageExpression") {
                "" => None,
                source => compile("messageExpression", source),
            };
            out.push(Self {
                uses_old_self: expression.uses("oldSelf"),
                expression,
                message: text("message").into(),
                message_expression,
                reason: Some(text("reason")).filter(|r| !r.is_empty()).map(Into::into),
                field_path: text("fieldPath").into(),
                optional_old_self: rule
                    .get("optionalOldSelf")
                    .and_then(Value::as_bool)
                    .unwrap_or(false),
            });
        }
        out.into()
    }

    /// The text an error names when the rule has no message of its own.
    fn name(&self) -> &str {
        if self.message.is_empty() {
            self.expression.source()
        } else {
            &self.message
        }
    }

    /// What is wrong, if anything. No budget means that the rules cannot become expensive; where it is spent, no other
    /// rule runs.
    fn check(
        &self,
        node: &Node,
        new: &Value,
        self_value: &Cel,
        old: Option<&Cel>,
        path: &str,
        budget: &mut Option<Budget>,
    ) -> ControlFlow<Cause, Answer> {
        if self.uses_old_self && old.is_none() && !self.optional_old_self {
            return ControlFlow::Continue(Answer::Good);
        }
        let mut activation = Activation::default();
        activation.bind_cel("self", self_value.clone());
        if self.optional_old_self {
            let old = optional(old.cloned());
            activation.bind_cel("oldSelf", old);
        } else if let Some(value) = old {
            activation.bind_cel("oldSelf", value.clone());
        }
        let ty = Value::from(node.ty.as_str());
        let afforded = budget
            .as_mut()
            .map_or(Ok(()), |budget| budget.spend(&self.expression, &activation));
        match afforded {
            Ok(()) => {}
            Err(Failure::OutOfBudget) => return ControlFlow::Break(Cause::invalid(path, &ty, OUT_OF_BUDGET)),
            Err(Failure::Error(e)) => {
                let why = format!(
                    "'{e}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                    self.name()
                );
                return ControlFlow::Break(Cause::invalid(path, &ty, &why));
            }
        }
        match self.expression.evaluate_bool(&activation) {
            Ok(true) => return ControlFlow::Continue(Answer::Good),
            Ok(false) => {}
            Err(e) => {
                let why = if e.starts_with("no such overload") {
                    format!(
                        "'{e}': call arguments did not match a supported operator, function or macro signature for rule: {}",
                        self.name()
                    )
                } else {
                    format!("{e} evaluating rule: {}", self.name())
                };
                return ControlFlow::Continue(Answer::None(Cause::invalid(path, &ty, &why)));
            }
        }
        let path = match self.field_path.as_ref() {
            "" => path.to_owned(),
            rule_path => {
                let rule_path = normal_path(rule_path);
                if path.is_empty() {
                    rule_path
                } else {
                    format!("{path}.{rule_path}")
                }
            }
        };
        // What says what is wrong finds the old value itself, also where the rule finds it as one that may not be there.
        let mut plain = Activation::default();
        plain.bind_cel("self", self_value.clone());
        if let Some(value) = old {
            plain.bind_cel("oldSelf", value.clone());
        }
        let dynamic = self
            .message_expression
            .as_ref()
            .and_then(|e| e.evaluate_string(&plain).ok());
        let dynamic = dynamic
            .map(|m| m.trim().to_owned())
            .filter(|m| !m.is_empty() && !m.contains('\n') && m.len() <= 5 * 1024);
        let detail = dynamic.unwrap_or_else(|| match self.message.as_ref() {
            "" => format!("failed rule: {}", self.expression.source()),
            message => message.to_owned(),
        });
        let composite = matches!(node.ty, Type::Object | Type::Array);
        ControlFlow::Continue(Answer::Bad(match self.reason.as_deref() {
            Some("FieldValueForbidden") => Cause::forbidden(path, &detail),
            Some("FieldValueRequired") => Cause::required(path, &detail),
            Some("FieldValueDuplicate") if composite => Cause::duplicate_omitting_value(path),
            Some("FieldValueDuplicate") => Cause::duplicate(path, new),
            _ if composite => Cause::invalid_omitting_value(path, &detail),
            _ => Cause::invalid(path, new, &detail),
        }))
    }
}

/// What a rule says of a value.
enum Answer {
    Good,
    Bad(Cause),
    /// It cannot be evaluated.
    None(Cause),
}

/// `.a['b']` as a field path.
fn normal_path(path: &str) -> String {
    let path = path.strip_prefix('.').unwrap_or(path);
    path.replace("['", "[").replace("']", "]")
}

/// Whether any rule stands at or below the node.
pub(crate) fn has_rules(arena: &Arena, id: NodeId) -> bool {
    let node = arena.get(id);
    !node.rules.is_empty()
        || node.properties.iter().any(|(_, id)| has_rules(arena, *id))
        || node.items.is_some_and(|id| has_rules(arena, id))
        || matches!(node.additional, Additional::Schema(id) if has_rules(arena, id))
}

/// Runs every rule at and below the root.
pub(crate) fn validate(arena: &Arena, root: NodeId, new: &Value, old: Option<&Value>, verdict: &mut Verdict) {
    let old_extent = old.map(Extent::of).unwrap_or_default();
    let mut budget = (dearest(arena, root, new, old_extent) > PER_CALL).then(|| Budget::new(PER_OBJECT));
    // Where it breaks off, the reason is among the causes.
    let _ = walk(arena, root, new, old, false, "", true, &mut budget, verdict);
}

/// The rules at and below a node cost no more than this together.
fn dearest(arena: &Arena, id: NodeId, new: &Value, old: Extent) -> u64 {
    let node = arena.get(id);
    let mut sum = 0u64;
    if !node.rules.is_empty() {
        let extent = Extent::of(new).or(old);
        for rule in &node.rules {
            sum = sum.saturating_add(rule.expression.bound().with(extent));
        }
    }
    match new {
        Value::Array(list) => {
            if let Some(items) = node.items.filter(|id| has_rules(arena, *id)) {
                for item in list {
                    sum = sum.saturating_add(dearest(arena, items, item, old));
                }
            }
        }
        Value::Object(map) => {
            for (name, value) in map {
                let below = match (node.property(name), &node.additional) {
                    (Some(id), _) => id,
                    (None, Additional::Schema(id)) => *id,
                    _ => continue,
                };
                if has_rules(arena, below) {
                    sum = sum.saturating_add(dearest(arena, below, value, old));
                }
            }
        }
        _ => {}
    }
    sum
}

#[expect(clippy::too_many_arguments, reason = "it is the state of one recursion")]
fn walk(
    arena: &Arena,
    id: NodeId,
    new: &Value,
    old: Option<&Value>,
    within_unchanged: bool,
    path: &str,
    root: bool,
    budget: &mut Option<Budget>,
    verdict: &mut Verdict,
) -> ControlFlow<()> {
    if new.is_null() {
        return ControlFlow::Continue(());
    }
    let node = arena.get(id);
    // What cannot be found in the object before is as unchanged as what it is a part of.
    let unchanged = within_unchanged || old.is_some_and(|old| is_unchanged(arena, id, new, old));
    if !node.rules.is_empty() {
        let convert = |value: &Value| {
            let cel = typed(arena, id, value);
            if root { with_type_meta(cel, value) } else { cel }
        };
        let self_value = convert(new);
        let old_value = old.filter(|o| !o.is_null()).map(convert);
        for rule in &node.rules {
            match rule.check(node, new, &self_value, old_value.as_ref(), path, budget) {
                ControlFlow::Continue(Answer::Good) => {}
                ControlFlow::Continue(Answer::Bad(cause)) if unchanged && !rule.uses_old_self => {
                    verdict.tolerated.push(cause);
                }
                ControlFlow::Continue(Answer::Bad(cause) | Answer::None(cause)) => {
                    verdict.causes.push(cause);
                }
                ControlFlow::Break(cause) => {
                    verdict.causes.push(cause);
                    return ControlFlow::Break(());
                }
            }
        }
    }
    match new {
        Value::Array(list) => {
            let Some(items) = node.items else {
                return ControlFlow::Continue(());
            };
            let old = old
                .and_then(Value::as_array)
                .filter(|_| node.list_type == ListType::Map)
                .map(|old| ByKey::of(old, &node.map_keys));
            for (i, item) in list.iter().enumerate() {
                let old = old.as_ref().and_then(|old| old.find(item));
                walk(
                    arena,
                    items,
                    item,
                    old,
                    unchanged,
                    &index(path, i),
                    false,
                    budget,
                    verdict,
                )?;
            }
        }
        Value::Object(map) => {
            for (name, value) in map {
                let old = old.and_then(|o| o.get(name));
                if let Some(id) = node.property(name) {
                    walk(
                        arena,
                        id,
                        value,
                        old,
                        unchanged,
                        &child(path, name),
                        false,
                        budget,
                        verdict,
                    )?;
                } else if let Additional::Schema(id) = node.additional {
                    walk(
                        arena,
                        id,
                        value,
                        old,
                        unchanged,
                        &key(path, name),
                        false,
                        budget,
                        verdict,
                    )?;
                }
            }
        }
        _ => {}
    }
    ControlFlow::Continue(())
}

/// At the root, rules see `apiVersion`, `kind` and the name in `metadata`, whatever the schema says.
fn with_type_meta(cel: Cel, value: &Value) -> Cel {
    let Some(Described::Object(fields)) = Described::of(&cel) else {
        return cel;
    };
    let mut fields = fields.as_ref().clone();
    for name in ["apiVersion", "kind", "metadata"] {
        let meta = match (name, value.get(name)) {
            (_, None) => continue,
            ("metadata", Some(metadata)) => {
                let visible = ["name", "generateName"]
                    .iter()
                    .filter_map(|n| Some(((*n).to_owned(), metadata.get(*n)?.clone())));
                super::convert::dynamic(&Value::Object(visible.collect()))
            }
            (_, Some(text)) => super::convert::dynamic(text),
        };
        fields.insert(Key::String(Arc::new(name.to_owned())), meta);
    }
    Described::Object(Arc::new(fields)).into()
}

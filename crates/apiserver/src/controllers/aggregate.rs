//! Aggregated ClusterRoles hold the union of the rules of those that their selectors match.

use serde_json::Value;

use super::{Task, write};
use crate::selector::LabelSelector;
use crate::state::State;

const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";

/// The rules that an aggregated role should have; `None` for a role that is not aggregated.
pub(crate) fn union<'a>(role: &Value, others: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let selectors = role
        .pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array)?;
    let selectors: Vec<LabelSelector> = selectors
        .iter()
        .filter_map(|selector| LabelSelector::from_object(Some(selector)).ok())
        .collect();
    let name = |role: &Value| {
        role.pointer("/metadata/name")
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    let own = name(role);
    let mut others: Vec<&Value> = others
        .filter(|other| {
            other.get("kind").and_then(Value::as_str) == Some("ClusterRole") && name(other) != own
        })
        .collect();
    others.sort_by_key(|other| name(other));
    let mut rules: Vec<Value> = Vec::new();
    for selector in &selectors {
        for other in &others {
            let labels = other.pointer("/metadata/labels").and_then(Value::as_object);
            if !selector.matches(labels) {
                continue;
            }
            for rule in other.get("rules").and_then(Value::as_array).into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    Some(Value::Array(rules))
}

pub(super) fn sync(state: &State) {
    let (objects, _) = state.store.list(ROLES, None);
    let roles: Vec<Value> = objects.iter().map(|object| object.value()).collect();
    for (object, role) in objects.iter().zip(&roles) {
        let Some(wanted) = union(role, roles.iter()) else {
            continue;
        };
        let none = Value::Array(Vec::new());
        let have = role
            .get("rules")
            .filter(|rules| !rules.is_null())
            .unwrap_or(&none);
        if *have == wanted || object.deleting {
            continue;
        }
        let mut role = role.clone();
        if let Some(map) = role.as_object_mut() {
            map.insert("rules".into(), wanted);
        }
        // The write brings us back, for roles that aggregate this one.
        write(state, object, role, || Task::Aggregate);
    }
}

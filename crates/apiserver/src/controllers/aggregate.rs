//! Aggregated ClusterRoles hold the union of the rules of those that their selectors match.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Task, Who, admitted};
use crate::schema::Schema;
use crate::selector::LabelSelector;
use crate::ssa::{self, Manager};
use crate::state::State;
use crate::status::Result;
use crate::store::{Expect, Refused};

pub(super) const ROLES: &str = "clusterroles.rbac.authorization.k8s.io";
/// Who owns the rules of aggregated roles.
const OWNER: &str = "clusterrole-aggregation-controller";
const API: &str = "rbac.authorization.k8s.io/v1";

/// Tells which changes of roles can change an aggregated one: most cannot, and looking at all roles takes time.
#[derive(Default)]
pub(super) struct Aggregation {
    /// Whether some selector may match roles without labels.
    takes_bare_roles: AtomicBool,
}

impl Aggregation {
    /// Whether a role that is, or was, like this matters.
    pub fn concerns(&self, role: &Value) -> bool {
        let labels = role.pointer("/metadata/labels").and_then(Value::as_object);
        if let Some(selectors) = selectors(role) {
            if selectors.iter().any(|selector| selector.matches(None)) {
                self.takes_bare_roles.store(true, Ordering::Relaxed);
            }
            return true;
        }
        labels.is_some_and(|labels| !labels.is_empty()) || self.takes_bare_roles.load(Ordering::Relaxed)
    }
}

/// The selectors of an aggregated role.
fn selectors(role: &Value) -> Option<Vec<LabelSelector>> {
    let selectors = role
        .pointer("/aggregationRule/clusterRoleSelectors")
        .and_then(Value::as_array)?;
    let read = |selector| LabelSelector::from_object(Some(selector)).ok();
    Some(selectors.iter().filter_map(read).collect())
}

/// The rules that an aggregated role should have; `None` for a role that is not aggregated.
pub(crate) fn union<'a>(role: &Value, others: impl Iterator<Item = &'a Value>) -> Option<Value> {
    let selectors = selectors(role)?;
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

pub(super) async fn sync(state: &Arc<State>) -> Result<()> {
    let (objects, _) = state.store.list(ROLES, None);
    let roles: Vec<Value> = objects.iter().map(|object| object.value()).collect();
    let mut outcome = Ok(());
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
        let now = state.clock.now();
        let aggregated = with_rules(role, wanted.clone(), now);
        if aggregated == *role {
            continue;
        }
        if admitted::is_anybody_asked(state) {
            let make = |role: &Value| with_rules(role, wanted.clone(), now);
            outcome = outcome.and(admitted::apply(state, Who::ROLES, OWNER, "", object, make).await);
            continue;
        }
        // The write brings us back, for roles that aggregate this one.
        let expect = Expect::At(object.rv);
        if let Err(Refused::Changed | Refused::Missing) = state.store.put(&object.table, expect, aggregated) {
            state.work.push(Task::Aggregate);
        }
    }
    outcome
}

/// The role with rules that the controller applied, whoever owned them before. Where there are none it says nothing of
/// them: what the role says for itself stays, and what was aggregated before goes.
pub(crate) fn with_rules(role: &Value, rules: Value, time: Timestamp) -> Value {
    let mut configuration = json!({
        "apiVersion": API, "kind": "ClusterRole", "metadata": { "name": role.pointer("/metadata/name") },
    });
    let none = rules.as_array().is_none_or(Vec::is_empty);
    if let Some(map) = configuration.as_object_mut().filter(|_| !none) {
        map.insert("rules".into(), rules.clone());
    }
    let manager = Manager {
        name: OWNER,
        subresource: "",
        time,
        force: true,
        api_version: API,
        ignored: &[],
        versions: &[],
        variants: &[],
        others: ssa::Others::Forgotten,
    };
    let schema = crate::builtin::find("rbac.authorization.k8s.io", "v1", "clusterroles")
        .map_or_else(Schema::anything, crate::builtin::Kind::schema);
    let applied = ssa::apply(Some(role), &configuration, &manager, &schema);
    let mut aggregated = applied.unwrap_or_else(|_| {
        // Rights matter more than who owns them.
        let mut role = role.clone();
        if let Some(map) = role.as_object_mut() {
            map.insert("rules".into(), rules);
        }
        role
    });
    // A role without rules says so.
    if let Some(map) = aggregated.as_object_mut() {
        map.entry("rules").or_insert(Value::Null);
    }
    aggregated
}

//! Tells of every admission policy which generation of it was looked at, and which of its expressions make no sense for the
//! kinds that it names.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Task, Who, admitted};
use crate::builtin::policy_types::{Subject, warnings};
use crate::builtin::{self, Kind};
use crate::registry::{Resource, Snapshot};
use crate::schema::{Schema, Ty};
use crate::ssa::{self, Manager};
use crate::state::State;
use crate::status::Result;
use crate::store::{Expect, Refused};

pub(super) const TABLE: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";
/// Who owns the status.
const OWNER: &str = "validatingadmissionpolicy-status";
const API: &str = "admissionregistration.k8s.io/v1";
/// So many kinds of one rule are looked at.
const MOST: usize = 10;

pub(super) async fn sync(state: &Arc<State>, name: &Arc<str>) -> Result<()> {
    let Some(current) = state.store.get(TABLE, name) else {
        return Ok(());
    };
    let policy = current.value();
    let number = |pointer: &str| {
        policy
            .pointer(pointer)
            .and_then(Value::as_i64)
            .unwrap_or_default()
    };
    let generation = number("/metadata/generation");
    if generation <= number("/status/observedGeneration") {
        return Ok(());
    }
    let warnings = warned(&state.registry.snapshot(), &policy);
    let checked = if warnings.is_empty() {
        json!({})
    } else {
        json!({ "expressionWarnings": warnings })
    };
    let status = json!({ "observedGeneration": generation, "typeChecking": checked });
    let now = state.clock.now();
    let make = |policy: &Value| with_status(policy, &status, now);
    if admitted::is_anybody_asked(state) {
        return admitted::apply(state, Who::POLICIES, OWNER, "status", &current, make).await;
    }
    let expect = Expect::At(current.rv);
    match state.store.put(&current.table, expect, make(&policy)) {
        Err(Refused::Changed | Refused::Missing) => state.work.push(Task::Policy(name.clone())),
        Err(Refused::TooLarge) => tracing::warn!(policy = %name, "too large to be written"),
        _ => {}
    }
    Ok(())
}

/// The policy with a status that the controller applied, whoever owned it before.
fn with_status(policy: &Value, status: &Value, time: Timestamp) -> Value {
    let configuration = json!({
        "apiVersion": API, "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": policy.pointer("/metadata/name") }, "status": status,
    });
    let manager = Manager {
        name: OWNER,
        subresource: "status",
        time,
        force: true,
        api_version: API,
        ignored: &["spec"],
        versions: &[],
        variants: &[],
        others: ssa::Others::Forgotten,
    };
    let schema = builtin::find(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
    )
    .map_or_else(Schema::anything, Kind::schema);
    let applied = ssa::apply(Some(policy), &configuration, &manager, &schema);
    let mut policy = applied.unwrap_or_else(|_| policy.clone());
    schema.forget_empty(&mut policy);
    policy
}

fn warned(served: &Snapshot, policy: &Value) -> Vec<Value> {
    let metadata = builtin::object_meta();
    let type_of = |resource: &Resource, version: &str| {
        let schema = resource.version(version)?.schema.as_deref()?;
        Some(Ty::of_objects(schema, &metadata))
    };
    let subjects: Vec<Subject> = kinds(served, policy)
        .into_iter()
        .filter_map(|((_, version, kind), resource)| {
            let ty = type_of(&resource, &version)?;
            let kind = format!("{}, Kind={kind}", resource.api_version(&version));
            Some(Subject { kind, ty })
        })
        .collect();
    let params = policy.pointer("/spec/paramKind").map(|kind| {
        let text = |field: &str| kind.get(field).and_then(Value::as_str).unwrap_or_default();
        let api_version = text("apiVersion");
        let version = api_version.rsplit('/').next().unwrap_or_default();
        served
            .of_kind(api_version, text("kind"))
            .and_then(|resource| type_of(resource, version))
            .unwrap_or(Ty::Dyn)
    });
    warnings(policy, &subjects, params.as_ref())
}

/// A group, a version and a kind: in this order they are told.
type Named = (String, String, String);

/// The kinds that the rules of a policy name. What a rule leaves open is not looked at.
fn kinds(served: &Snapshot, policy: &Value) -> BTreeMap<Named, Arc<Resource>> {
    let mut kinds = BTreeMap::new();
    let rules = policy.pointer("/spec/matchConstraints/resourceRules");
    for rule in rules.and_then(Value::as_array).into_iter().flatten() {
        let mut found = 0;
        let (groups, versions) = (closed(rule, "apiGroups"), closed(rule, "apiVersions"));
        let resources: Vec<&str> = texts(rule, "resources")
            .into_iter()
            .filter(|resource| !resource.contains(['*', '/']))
            .collect();
        for group in groups {
            for version in &versions {
                for plural in &resources {
                    let Some(resource) = served.find(group, version, plural) else {
                        continue;
                    };
                    let named = (group.to_owned(), (*version).to_owned(), resource.kind.clone());
                    kinds.insert(named, resource.clone());
                    found += 1;
                    if found == MOST {
                        return kinds;
                    }
                }
            }
        }
    }
    kinds
}

fn texts<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    let list = rule.get(field).and_then(Value::as_array).into_iter().flatten();
    let mut texts: Vec<&str> = list.filter_map(Value::as_str).collect();
    texts.sort_unstable();
    texts
}

/// None of them if one may be any.
fn closed<'a>(rule: &'a Value, field: &str) -> Vec<&'a str> {
    let texts = texts(rule, field);
    if texts.iter().any(|text| text.contains('*')) {
        return Vec::new();
    }
    texts
}

//! The status of a sync, as far as the manager reports it. Pure.

use serde_json::{Value, json};
use writ_api::configsync::{RoleRefState, RoleRefStatus};
use writ_controller::condition::{FIELDS_IGNORED, ignored_message};

use super::{model::Bound, plan::Plan};
use crate::{
    model::{Sync, SyncKind},
    names,
    sync_status::Wanted,
};

/// What went wrong with a sync, apart from its bindings.
#[derive(Default)]
pub struct Setup {
    /// Why its account, its inventory or its reconciler could not be set up.
    pub failure: Option<String>,
    /// Why its Deployment is not available.
    pub unavailable: Option<String>,
}

/// The fields and the conditions of the status.
pub fn status(sync: &Sync, plan: &Plan, bound: &Bound, setup: &Setup) -> (Value, Vec<Wanted>) {
    let roles = role_statuses(plan, bound);
    let mut conditions = vec![stalled(plan, setup), reconciling(sync, setup)];
    if sync.id.kind == SyncKind::Root {
        conditions.push(roles_bound(plan, &roles));
    }
    conditions.extend(fields_ignored(sync));
    let fields = json!({
        "observedGeneration": sync.generation(),
        "reconciler": names::reconciler(&sync.id),
        "roleRefs": (!roles.is_empty()).then_some(roles),
    });
    (fields, conditions)
}

/// The state of each role, unless no binding was attempted.
fn role_statuses(plan: &Plan, bound: &Bound) -> Vec<RoleRefStatus> {
    let roles = plan.roles.iter().zip(&bound.failures);
    roles
        .map(|(role, failure)| role.report(failure.clone()))
        .collect()
}

fn stalled(plan: &Plan, setup: &Setup) -> Wanted {
    match (&plan.problem, &setup.failure) {
        (Some(problem), _) => Wanted::new("Stalled", "True", "Validation", problem),
        (None, Some(failure)) => Wanted::new("Stalled", "True", "Error", failure),
        (None, None) => Wanted::new("Stalled", "False", "", ""),
    }
}

fn reconciling(sync: &Sync, setup: &Setup) -> Wanted {
    if sync.deleting() {
        let message = "the sync is being deleted; its rights stay until its objects are gone";
        return Wanted::new("Reconciling", "True", "Teardown", message);
    }
    match (&setup.failure, &setup.unavailable) {
        (Some(_), _) => Wanted::new("Reconciling", "True", "Setup", "Setup stalled"),
        (None, Some(unavailable)) => Wanted::new("Reconciling", "True", "Deployment", unavailable),
        (None, None) => Wanted::new("Reconciling", "False", "", ""),
    }
}

/// Whether every role in force is bound.
fn roles_bound(plan: &Plan, roles: &[RoleRefStatus]) -> Wanted {
    let unbound: Vec<&RoleRefStatus> = roles
        .iter()
        .filter(|role| role.state != RoleRefState::Bound)
        .collect();
    if let Some(first) = unbound.first() {
        let reason = format!("{:?}", first.state);
        let messages = unbound.iter().map(|role| {
            let namespace = role.namespace.as_deref();
            let place = namespace.map(|namespace| format!(" in {namespace}"));
            let message = role.message.as_deref().unwrap_or_default();
            let (kind, place) = (role.kind.as_str(), place.unwrap_or_default());
            format!("{kind} {}{place}: {message}", role.name)
        });
        let messages: Vec<String> = messages.collect();
        return Wanted::new("RolesBound", "False", &reason, &messages.join("; "));
    }
    let (reason, message) = if plan.default_in_force {
        (
            "ClusterAdmin",
            "no roleRefs are set: the reconciler is cluster-admin",
        )
    } else if plan.roles.is_empty() {
        ("NoRoles", "no roleRefs are set: the reconciler may only report")
    } else {
        ("Bound", "every role is bound")
    };
    Wanted::new("RolesBound", "True", reason, message)
}

/// The condition for fields without effect, if there are any or have been.
fn fields_ignored(sync: &Sync) -> Option<Wanted> {
    let fields = ignored_fields(sync);
    let mut conditions = sync.status.conditions.iter().flatten();
    let was_reported = conditions.any(|condition| condition.type_ == FIELDS_IGNORED);
    if fields.is_empty() {
        return was_reported.then(|| Wanted::new(FIELDS_IGNORED, "False", "", ""));
    }
    let message = ignored_message(&fields);
    Some(Wanted::new(FIELDS_IGNORED, "True", "NotSupported", &message))
}

/// The fields of a spec that ask for something which syncs do not do here.
fn ignored_fields(sync: &Sync) -> Vec<&'static str> {
    let Some(set) = sync.spec.as_ref().ok().and_then(|spec| spec.override_.as_ref()) else {
        return Vec::new();
    };
    let is_repo = sync.id.kind == SyncKind::Repo;
    [
        ("spec.override.apiServerTimeout", set.api_server_timeout.is_some()),
        (
            "spec.override.enableShellInRendering",
            set.enable_shell_in_rendering == Some(true),
        ),
        ("spec.override.logLevels", set.log_levels.is_some()),
        (
            "spec.override.namespaceStrategy",
            is_repo && set.namespace_strategy.is_some(),
        ),
        ("spec.override.reconcileTimeout", set.reconcile_timeout.is_some()),
        ("spec.override.resources", set.resources.is_some()),
        // The mode "disabled" is how syncs always work here.
        (
            "spec.override.statusMode",
            set.status_mode.as_deref() == Some("enabled"),
        ),
    ]
    .into_iter()
    .filter_map(|(field, is_set)| is_set.then_some(field))
    .collect()
}

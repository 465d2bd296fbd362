//! Pure: from the plan, the reports of the agent and the answers of the hub to the status of a permission.

mod conditions;
mod deleting;
mod feedback;
mod progress;

use writ_api::rbac::{
    ClusterPermission,
    cluster_permission::{CONDITION_PENDING, ClusterPermissionStatus},
};
use writ_controller::condition::{self, Wanted};

pub use self::deleting::status_of_deleted;
use self::{
    conditions::{RoleCheck, subjects},
    progress::{Waiting, pending_revocation, progress, with_revocation},
};
use super::model::{Observation, Plan, Refused};

/// The status that the permission is to have.
pub fn status(seen: &Observation, plan: &Plan, refused: &Refused) -> ClusterPermissionStatus {
    let mut status = seen.permission.status.clone().unwrap_or_default();
    let generation = seen.permission.metadata.generation;
    let waiting = Waiting::new(&seen.permission, seen.cluster.as_deref(), seen.now);
    let progress = progress(seen, plan, refused, &waiting);
    let selections = feedback::selections(seen, plan);
    let revocation = pending_revocation(seen, plan, &selections, &waiting);
    let revocation = revocation.as_deref();
    let with_revocation = |condition: Wanted| Wanted {
        message: with_revocation(&condition.message, revocation),
        ..condition
    };

    let mut wanted = vec![
        conditions::validation(plan),
        conditions::subject_present(seen, plan, revocation),
        conditions::created(seen, plan, refused),
        with_revocation(conditions::applied(seen, plan, refused, &progress)),
    ];
    wanted.extend(RoleCheck::of(seen, plan, "Role").map(RoleCheck::roles_exist));
    wanted.extend(RoleCheck::of(seen, plan, "ClusterRole").map(RoleCheck::cluster_roles_exist));
    let ready = conditions::ready(plan, &wanted, &progress, &selections, revocation);
    wanted.push(with_revocation(ready));
    wanted.extend(waiting.condition(&progress, revocation));
    waiting.set_conditions(&mut status.conditions, &wanted, generation, seen.now);
    status.resource_status = feedback::resources(seen, plan, status.resource_status.as_ref());
    status.subjects = subjects(&plan.built.subjects);
    status.namespace_selections = feedback::bounded(selections);
    status
}

/// Whether the status only says that the agent has not answered yet. A stored `Ready` of this generation that does not hold any
/// more is replaced at once.
pub fn is_answer_awaited(permission: &ClusterPermission, status: &ClusterPermissionStatus) -> bool {
    let ready = condition::find(&status.conditions, "Ready");
    let is_pending = condition::is_true(&status.conditions, CONDITION_PENDING)
        || ready.is_some_and(|ready| ready.reason == "Pending");
    let stored = permission.status.iter().flat_map(|status| &status.conditions);
    let is_stale = stored
        .filter(|c| c.type_ == "Ready" && c.status == "True")
        .any(|c| c.observed_generation == permission.metadata.generation);
    is_pending && !is_stale
}

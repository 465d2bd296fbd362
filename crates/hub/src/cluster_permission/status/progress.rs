//! How far the agent is with what is wanted, and what it has not taken away yet. Nothing is called revoked before that.

use std::sync::Arc;

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::ResourceExt as _;
use writ_api::{
    cluster::{ManagedCluster, managed_cluster::CONDITION_AVAILABLE},
    rbac::{
        ClusterPermission,
        cluster_permission::{CONDITION_PENDING, NamespaceSelection},
    },
    work::{ManifestWork, PRUNED_CONDITION, PRUNED_REASON},
};
use writ_controller::condition::{self, Wanted, clip};

use super::feedback::Selected;
use crate::cluster_permission::{
    model::{Observation, Plan, Refused},
    reports,
};

/// How many bytes a message may have before the pending revocation is added, which must not be cut off.
const MAX_BEFORE: usize = 16 * 1024;
const MAX_REVOCATION: usize = 4 * 1024;
/// How many objects a message names.
const MAX_NAMES: usize = 10;

const NOT_APPLIED: &str = "the agent has not applied the work";
const BEING_DELETED: &str = "the work is being deleted; it is made again when it is gone";

/// How far the agent is with one work.
pub enum Progress<'a> {
    /// It has not processed the work as it is wanted now.
    Pending(String),
    /// It has tried and failed.
    Failed(&'a Condition),
    /// It has applied everything.
    Done(&'a Condition),
}

/// Since when the agent has something to do, and what keeps it, if its cluster is away.
pub struct Waiting {
    since: Timestamp,
    offline: String,
}

impl Waiting {
    /// Since the stored status says so, or since now.
    pub fn new(permission: &ClusterPermission, cluster: Option<&ManagedCluster>, now: Timestamp) -> Self {
        let since = stored_since(permission).unwrap_or(now);
        Self {
            // Whole seconds, as the API server stores them.
            since: Timestamp::from_second(since.as_second()).unwrap_or(since),
            offline: offline(cluster),
        }
    }

    /// What the agent has to do, in words.
    fn words(&self, what: &str) -> String {
        format!("pending since {}: {what}{}", self.since, self.offline)
    }

    /// The condition that keeps the time, as long as something is pending.
    pub fn condition(&self, progress: &[(usize, Progress<'_>)], revocation: Option<&str>) -> Option<Wanted> {
        let is_pending = |progress: &Progress<'_>| matches!(progress, Progress::Pending(_));
        let pending = revocation.is_some() || progress.iter().any(|(_, progress)| is_pending(progress));
        let message = format!("the agent has not done everything that is wanted{}", self.offline);
        pending.then(|| Wanted::new(CONDITION_PENDING, true, "WaitingForAgent", message))
    }

    /// Replaces the conditions by these; what is pending keeps its time.
    pub fn set_conditions(
        &self,
        conditions: &mut Vec<Condition>,
        wanted: &[Wanted],
        generation: Option<i64>,
        now: Timestamp,
    ) {
        conditions.retain(|condition| wanted.iter().any(|wanted| wanted.type_ == condition.type_));
        for condition in wanted {
            let is_pending = condition.type_ == CONDITION_PENDING;
            let since = if is_pending { self.since } else { now };
            condition::set(conditions, condition, generation, since);
        }
    }
}

/// The time of the condition `Pending`, which holds exactly while works or revocations are pending. Statuses of earlier versions
/// do not have it: there the reason of `Ready` tells the same.
fn stored_since(permission: &ClusterPermission) -> Option<Timestamp> {
    let conditions = permission.status.as_ref().map(|s| s.conditions.as_slice())?;
    let pending = condition::find(conditions, CONDITION_PENDING).filter(|c| c.status == "True");
    let earlier = || {
        let is_applied = condition::is_true(conditions, "AppliedRBACManifestWork");
        let ready = condition::find(conditions, "Ready").filter(|c| c.status == "False");
        ready.filter(|c| match c.reason.as_str() {
            "RevocationPending" | "Deleting" => true,
            "Pending" => !is_applied,
            _ => false,
        })
    };
    Some(pending.or_else(earlier)?.last_transition_time.0)
}

fn offline(cluster: Option<&ManagedCluster>) -> String {
    let Some(cluster) = cluster else {
        return String::new();
    };
    let conditions = cluster.status.as_ref().map(|s| s.conditions.as_slice());
    match condition::find(conditions.unwrap_or_default(), CONDITION_AVAILABLE) {
        Some(c) if c.status == "True" => String::new(),
        Some(c) => format!("; the cluster is not available: {}", clip(&c.message, 200)),
        None => "; the cluster has not reported yet".into(),
    }
}

/// How far each work is that is wanted and that the hub accepts.
pub fn progress<'a>(
    seen: &'a Observation,
    plan: &Plan,
    refused: &Refused,
    waiting: &Waiting,
) -> Vec<(usize, Progress<'a>)> {
    let pending = |what: &str| Progress::Pending(waiting.words(what));
    plan.works
        .iter()
        .filter(|(number, _)| !refused.contains_key(number))
        .map(|(number, wanted)| {
            let Some(work) = seen.works.get(number) else {
                return (*number, pending(NOT_APPLIED));
            };
            if work.metadata.deletion_timestamp.is_some() {
                return (*number, pending(BEING_DELETED));
            }
            let reported = reports::applied(work).filter(|_| work.spec == wanted.spec);
            let waits = plan.parts.get(number).is_some_and(|part| part.waits);
            let progress = match reported {
                None => pending(NOT_APPLIED),
                Some(c) if c.status == "True" && waits => pending("an object moves to another work"),
                Some(c) if c.status == "True" => Progress::Done(c),
                Some(c) => Progress::Failed(c),
            };
            (*number, progress)
        })
        .collect()
}

/// What may still be granted though it is not wanted any more, in words.
pub fn pending_revocation(
    seen: &Observation,
    plan: &Plan,
    selections: &[(NamespaceSelection, Selected)],
    waiting: &Waiting,
) -> Option<String> {
    let works = || {
        let works = seen.works.iter();
        works.map(|(number, work)| (&**work, plan.works.get(number)))
    };
    // What is known to be there comes before what may be.
    let cluster = seen.cluster.as_deref();
    let known =
        works().find_map(|(work, wanted)| not_pruned(cluster, work).or_else(|| unwanted(work, wanted)));
    let perhaps = || works().find_map(|(work, wanted)| outdated(work, wanted?));
    let what = known.or_else(perhaps).or_else(|| unfollowed(selections))?;
    Some(waiting.words(&clip(&what, MAX_REVOCATION)))
}

/// What may still be granted by works that all have to go, in words.
pub fn pending_deletion(
    works: &[Arc<ManifestWork>],
    cluster: Option<&ManagedCluster>,
    waiting: &Waiting,
) -> Option<String> {
    let pruned = works.iter().find_map(|work| not_pruned(cluster, work));
    let what = pruned.or_else(|| unwanted(works.first()?, None))?;
    Some(waiting.words(&clip(&what, MAX_REVOCATION)))
}

/// A message that also says which revocation is pending, if it does not yet.
pub fn with_revocation(message: &str, revocation: Option<&str>) -> String {
    match revocation.filter(|revocation| !message.contains(revocation)) {
        None => message.to_owned(),
        Some(revocation) => format!("{}; revocation {revocation}", clip(message, MAX_BEFORE)),
    }
}

/// What an agent of ours reports that it could not take away. Other agents do not know the condition and would never reset it.
fn not_pruned(cluster: Option<&ManagedCluster>, work: &ManifestWork) -> Option<String> {
    let ours = cluster.and_then(|cluster| cluster.agent_runs("work")) == Some(true);
    let said = condition::find(reports::conditions(work), PRUNED_CONDITION);
    let said = said.filter(|c| ours && c.status == "False" && c.reason == PRUNED_REASON)?;
    Some(said.message.clone())
}

fn unwanted(work: &ManifestWork, wanted: Option<&ManifestWork>) -> Option<String> {
    wanted.is_none().then(|| {
        format!(
            "ManifestWork {} is still there: what it grants ends when the agent has deleted it",
            work.name_any()
        )
    })
}

/// A work of which the agent may have applied more than is wanted. What it applied before is unknown here; the first generation
/// has no before.
fn outdated(work: &ManifestWork, wanted: &ManifestWork) -> Option<String> {
    if work.metadata.deletion_timestamp.is_some() {
        return Some(BEING_DELETED.into());
    }
    let still = &wanted.spec.workload.manifests;
    let drops = || {
        let mut manifests = work.spec.workload.manifests.iter();
        manifests.any(|manifest| !still.contains(manifest))
    };
    let first = work.metadata.generation == Some(1);
    match reports::applied(work) {
        None if !first => Some(NOT_APPLIED.into()),
        _ if work.spec != wanted.spec && drops() => Some(NOT_APPLIED.into()),
        Some(c) if c.status != "True" && !first => Some(not_written(work)),
        _ => None,
    }
}

/// What the agent could not write may still be as it was before, and grant more.
fn not_written(work: &ManifestWork) -> String {
    let failed = reports::of(work).filter(|report| !condition::is_true(&report.conditions, "Applied"));
    let mut names: Vec<String> = failed.map(|report| reports::id(report).to_string()).collect();
    let more = names.len().saturating_sub(MAX_NAMES);
    names.truncate(MAX_NAMES);
    if more > 0 {
        names.push(format!("and {more} more"));
    }
    if names.is_empty() {
        names.push(format!("ManifestWork {}", work.name_any()));
    }
    format!(
        "the agent could not apply {}, so what that granted before may still be in force",
        names.join(", ")
    )
}

/// A grant of which the agent still reports what it was before. Failing namespaces are part of `namespaceSelections`.
fn unfollowed(selections: &[(NamespaceSelection, Selected)]) -> Option<String> {
    let mut behind = selections
        .iter()
        .filter(|(selection, state)| *state == Selected::Pending && selection.selected.is_some());
    let (selection, _) = behind.next()?;
    Some(format!("the agent has not processed {} yet", selection.field))
}

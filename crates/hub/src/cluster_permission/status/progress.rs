//! Pure: how far the agent is with what is wanted, and what it has not taken away yet. Nothing is called revoked before
//! that.

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Condition, jiff::Timestamp};
use kube::ResourceExt as _;
use writ_api::{
    cluster::{ManagedCluster, managed_cluster::CONDITION_AVAILABLE},
    rbac::{ClusterPermission, cluster_permission::NamespaceSelection},
    work::{ManifestWork, PRUNED_CONDITION, PRUNED_REASON},
};
use writ_controller::condition::{self, clip};

use super::{
    plan::{Observation, Plan},
    report::{self, Selected},
    status::Refused,
};

/// How a message tells since when something is pending.
pub const PENDING_SINCE: &str = "pending since ";
/// How many bytes a message has before what is left is added: that must never be cut off, or nobody would know since when.
const MAX_BEFORE: usize = 16 * 1024;
const MAX_LEFT: usize = 4 * 1024;
/// How many objects a message names.
const MAX_NAMES: usize = 10;

const NOT_APPLIED: &str = "the agent has not applied the work";
const BEING_DELETED: &str = "the work is being deleted; it is made again when it is gone";

/// What the agent says of one work.
pub enum Progress<'a> {
    /// It has not seen the work as it is wanted.
    Pending(String),
    /// It has tried and failed.
    Failed(&'a Condition),
    /// It has applied everything.
    Done(&'a Condition),
}

/// Since when the agent has something to do, and why it does not, if its cluster is away.
pub struct Waiting {
    since: Timestamp,
    offline: String,
}

impl Waiting {
    /// Since the status says so, or since now.
    pub fn new(permission: &ClusterPermission, cluster: Option<&ManagedCluster>, now: Timestamp) -> Self {
        let since = said_since(permission).unwrap_or(now);
        Self {
            // Whole seconds: nobody needs more.
            since: Timestamp::from_second(since.as_second()).unwrap_or(since),
            offline: offline(cluster),
        }
    }

    fn words(&self, what: &str) -> String {
        format!("{PENDING_SINCE}{}: {what}{}", self.since, self.offline)
    }
}

/// The time in the words of the condition that always has them. Its own time is no help: that moves with the status only,
/// and it may have been False before for another reason.
fn said_since(permission: &ClusterPermission) -> Option<Timestamp> {
    let conditions = permission.status.as_ref().map(|s| s.conditions.as_slice());
    let applied = condition::find(conditions.unwrap_or_default(), "AppliedRBACManifestWork")?;
    // Names that somebody chose may come before it: a text that only looks like it must not make a new time each second.
    let texts = applied.message.split(PENDING_SINCE).skip(1);
    let mut times = texts.filter_map(|text| text.split_once(": ")?.0.parse().ok());
    times.next()
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
    seen: &Observation<'a>,
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
            let reported = said_applied(work).filter(|_| work.spec == wanted.spec);
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

/// What may still be granted though nobody wants it any more, in words.
pub fn left(
    seen: &Observation<'_>,
    plan: &Plan,
    selections: &[(NamespaceSelection, Selected)],
    waiting: &Waiting,
) -> Option<String> {
    let works = || {
        seen.works
            .iter()
            .map(|(number, work)| (*work, plan.works.get(number)))
    };
    // What is known to be there comes before what may be.
    let known =
        works().find_map(|(work, wanted)| not_pruned(seen.cluster, work).or_else(|| unwanted(work, wanted)));
    let perhaps = || works().find_map(|(work, wanted)| outdated(work, wanted?));
    let what = known.or_else(perhaps).or_else(|| unfollowed(selections))?;
    Some(waiting.words(&clip(&what, MAX_LEFT)))
}

/// What may still be granted by works that all have to go, in words.
pub fn left_of(
    works: &[ManifestWork],
    cluster: Option<&ManagedCluster>,
    waiting: &Waiting,
) -> Option<String> {
    let pruned = works.iter().find_map(|work| not_pruned(cluster, work));
    let what = pruned.or_else(|| unwanted(works.first()?, None))?;
    Some(waiting.words(&clip(&what, MAX_LEFT)))
}

/// A message that also says what is left, if it does not yet.
pub fn with_left(message: &str, left: Option<&str>) -> String {
    match left.filter(|left| !message.contains(left)) {
        None => message.to_owned(),
        Some(left) => format!("{}; revocation {left}", clip(message, MAX_BEFORE)),
    }
}

/// What an agent of ours says that it could not take away: others do not know the condition, and would never take it back.
fn not_pruned(cluster: Option<&ManagedCluster>, work: &ManifestWork) -> Option<String> {
    let ours = cluster.and_then(|cluster| cluster.agent_runs("work")) == Some(true);
    let said = condition::find(conditions(work), PRUNED_CONDITION);
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

/// A work of which the agent may have applied more than is wanted. What it applied before nobody can tell from here; of the
/// first generation there is no before.
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
    match said_applied(work) {
        None if !first => Some(NOT_APPLIED.into()),
        _ if work.spec != wanted.spec && drops() => Some(NOT_APPLIED.into()),
        Some(c) if c.status != "True" && !first => Some(not_written(work)),
        _ => None,
    }
}

/// What the agent could not write may still be as it was before, and grant more.
fn not_written(work: &ManifestWork) -> String {
    let reports = work.status.iter().flat_map(|s| &s.resource_status.manifests);
    let failed = reports.filter(|report| !condition::is_true(&report.conditions, "Applied"));
    let mut names: Vec<String> = failed.map(|report| report::id(report).to_string()).collect();
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

/// A grant of which the agent still reports what it was before. What it says of failing namespaces is told elsewhere.
fn unfollowed(selections: &[(NamespaceSelection, Selected)]) -> Option<String> {
    let mut behind = selections
        .iter()
        .filter(|(selection, state)| *state == Selected::Pending && selection.selected.is_some());
    let (selection, _) = behind.next()?;
    Some(format!("the agent has not followed {} yet", selection.field))
}

/// What the agent says of the work as it is now.
pub fn said_applied(work: &ManifestWork) -> Option<&Condition> {
    let applied = condition::find(conditions(work), "Applied");
    applied.filter(|c| c.observed_generation >= work.metadata.generation)
}

fn conditions(work: &ManifestWork) -> &[Condition] {
    let status = work.status.as_ref();
    status
        .map(|status| status.conditions.as_slice())
        .unwrap_or_default()
}

//! Pure: the works that a set should have, and its status.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use writ_api::work::{
    ManifestWork, ManifestWorkReplicaSet, ManifestWorkReplicaSetStatus, ManifestWorkSpec, PLACEMENT_LABEL,
    PlacementSummary, REPLICA_SET_LABEL, Summary,
};
use writ_controller::condition::{self, Wanted};

use crate::MANAGER;

/// How many failures a condition lists, and how many characters of each.
const MAX_NAMED: usize = 10;
const MAX_WHY: usize = 300;

use super::{
    model::{ClusterState, Group, Observed, Plan},
    ownership::{owner, work_name},
    progress_rules::with_rules,
    rollout,
};

/// Plans the works and the status of one set.
pub fn plan(observed: &Observed<'_>) -> Plan {
    let set = observed.set;
    let mut plan = Plan {
        status: set.status.clone().unwrap_or_default(),
        ..Plan::default()
    };
    let Some(owner) = owner(set) else {
        let message = "the label of its works would be longer than 63 characters: shorten the name of the \
                       ManifestWorkReplicaSet or of its namespace";
        plan.set(
            set,
            &Wanted::new("ManifestworkApplied", false, "InvalidManifestWorkName", message),
            observed.now,
        );
        return plan;
    };
    let spec = with_rules(&set.spec.manifest_work_template);
    let name = work_name(set);
    let (ours, of_ocm): (Vec<&ManifestWork>, Vec<&ManifestWork>) =
        observed.works.iter().partition(|work| work.name_any() == name);
    let by_cluster: BTreeMap<String, &ManifestWork> = ours
        .into_iter()
        .map(|work| (work.namespace().unwrap_or_default(), work))
        .collect();
    let mut wanted: BTreeSet<String> = BTreeSet::new();
    let mut absent: BTreeSet<&str> = BTreeSet::new();
    let mut summaries = Vec::new();
    let (mut found, mut complete) = (0, true);
    for reference in &set.spec.placement_refs {
        let Some(groups) = observed.placements.get(&reference.name) else {
            complete = false;
            absent.insert(&reference.name);
            summaries.push(PlacementSummary {
                name: reference.name.clone(),
                ..PlacementSummary::default()
            });
            continue;
        };
        found += 1;
        // A cluster that two placements select belongs to the first.
        let groups: Vec<Group> = groups
            .iter()
            .map(|group| Group {
                clusters: group
                    .clusters
                    .iter()
                    .filter(|cluster| !wanted.contains(*cluster))
                    .cloned()
                    .collect(),
                ..group.clone()
            })
            .collect();
        let state = |cluster: &str| match state(by_cluster.get(cluster).copied(), &spec, observed.now) {
            ClusterState::Pending if observed.attempts.written.contains(cluster) => {
                ClusterState::Progressing(Duration::ZERO)
            }
            ClusterState::Pending => match observed.unwritten.get(cluster) {
                Some(unwritten) if unwritten.due => ClusterState::Retry,
                Some(_) => ClusterState::Failed,
                None => ClusterState::Pending,
            },
            state => state,
        };
        let next = rollout::next(&reference.rollout_strategy, &groups, state);
        complete &= next.complete;
        plan.look_again = match (plan.look_again, next.look_again) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        for cluster in &next.apply {
            plan.apply
                .push(work(set, cluster, &reference.name, &owner, &spec));
        }
        let clusters: Vec<&String> = groups.iter().flat_map(|group| &group.clusters).collect();
        let failing = clusters.iter().filter(|cluster| {
            observed.unwritten.contains_key(**cluster)
                && matches!(state(cluster), ClusterState::Failed | ClusterState::Retry)
        });
        plan.failing.extend(failing.map(|cluster| (*cluster).clone()));
        summaries.push(summary(&reference.name, &groups, &clusters, &by_cluster, &spec));
        wanted.extend(clusters.into_iter().cloned());
    }
    // The works of a placement without decisions stay: that is no decision to delete them.
    let kept = |work: &ManifestWork| {
        let placement = work.labels().get(PLACEMENT_LABEL);
        placement.is_some_and(|placement| absent.contains(placement.as_str()))
    };
    let dropped = by_cluster
        .iter()
        .filter(|(cluster, work)| !wanted.contains(*cluster) && !kept(work));
    // A work of OCM's controller is deleted once ours exists.
    let replaced = of_ocm.iter().filter(|work| {
        let cluster = work.namespace().unwrap_or_default();
        by_cluster.contains_key(&cluster) || (!wanted.contains(&cluster) && !kept(work))
    });
    let going = dropped.map(|(_, work)| work).chain(replaced);
    plan.delete = going
        .filter(|work| work.metadata.deletion_timestamp.is_none())
        .map(|work| (*work).clone())
        .collect();
    let total = fold(summaries.iter().map(|placement| &placement.summary));
    let failures = failure_messages(&plan.failing, observed, wanted.len());
    for condition in conditions(set, found, wanted.len(), complete, &total, &failures) {
        plan.set(set, &condition, observed.now);
    }
    plan.status.summary = total;
    plan.status.placement_summary = summaries;
    plan
}

/// The status of a set that is being deleted while its works cannot be.
pub fn undeleted(
    set: &ManifestWorkReplicaSet,
    undeleted: &[String],
    now: Timestamp,
) -> ManifestWorkReplicaSetStatus {
    let mut status = set.status.clone().unwrap_or_default();
    let message = format!("works cannot be deleted: {}", first(undeleted));
    let wanted = Wanted::new("ManifestworkApplied", false, "NotAsExpected", message);
    condition::set(&mut status.conditions, &wanted, set.metadata.generation, now);
    status
}

impl Plan {
    fn set(&mut self, set: &ManifestWorkReplicaSet, wanted: &Wanted, now: Timestamp) {
        condition::set(&mut self.status.conditions, wanted, set.metadata.generation, now);
    }
}

fn work(
    set: &ManifestWorkReplicaSet,
    cluster: &str,
    placement: &str,
    owner: &str,
    spec: &ManifestWorkSpec,
) -> ManifestWork {
    let mut work = ManifestWork::new(&work_name(set), spec.clone());
    work.metadata.namespace = Some(cluster.into());
    work.metadata.labels = Some(
        [
            (REPLICA_SET_LABEL.to_owned(), owner.to_owned()),
            (PLACEMENT_LABEL.to_owned(), placement.to_owned()),
        ]
        .into(),
    );
    work
}

/// How far a cluster is with this spec.
fn state(work: Option<&ManifestWork>, spec: &ManifestWorkSpec, now: Timestamp) -> ClusterState {
    let Some(work) = work.filter(|work| work.spec == *spec) else {
        return ClusterState::Pending;
    };
    let since = |condition: &k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition| {
        Duration::try_from(now.duration_since(condition.last_transition_time.0)).unwrap_or_default()
    };
    let status = work.status.as_ref();
    let find = |type_: &str| {
        let conditions = status
            .map(|status| status.conditions.as_slice())
            .unwrap_or_default();
        condition::find(conditions, type_).filter(|c| c.observed_generation == work.metadata.generation)
    };
    let (Some(applied), Some(available)) = (find("Applied"), find("Available")) else {
        let age = last_written(work)
            .map(|written| Duration::try_from(now.duration_since(written)).unwrap_or_default());
        return ClusterState::Progressing(age.unwrap_or_default());
    };
    if applied.status != "True" {
        return ClusterState::Failed;
    }
    match (find("Progressing"), find("Degraded")) {
        (Some(progressing), Some(degraded)) if progressing.status == "True" && degraded.status == "True" => {
            ClusterState::Failed
        }
        (Some(progressing), _) if progressing.status == "False" => {
            ClusterState::Succeeded(since(progressing))
        }
        (Some(progressing), _) => ClusterState::Progressing(since(progressing)),
        (None, _) if available.status == "True" => ClusterState::Succeeded(since(available)),
        (None, _) => ClusterState::Progressing(since(available)),
    }
}

/// When this controller last wrote a work, which the API server records in the managed fields.
fn last_written(work: &ManifestWork) -> Option<Timestamp> {
    let ours = work
        .managed_fields()
        .iter()
        .filter(|entry| entry.manager.as_deref() == Some(MANAGER) && entry.subresource.is_none());
    let times = ours.filter_map(|entry| entry.time.as_ref());
    times
        .chain(&work.metadata.creation_timestamp)
        .map(|time| time.0)
        .max()
}

fn summary(
    name: &str,
    groups: &[Group],
    clusters: &[&String],
    works: &BTreeMap<String, &ManifestWork>,
    spec: &ManifestWorkSpec,
) -> PlacementSummary {
    let works: Vec<&ManifestWork> = clusters
        .iter()
        .filter_map(|cluster| works.get(*cluster).copied())
        .collect();
    let count = |what: &dyn Fn(&ManifestWork) -> bool| {
        i64::try_from(works.iter().filter(|work| what(work)).count()).unwrap_or(i64::MAX)
    };
    let is = |type_: &'static str| {
        move |work: &ManifestWork| {
            work.status
                .as_ref()
                .is_some_and(|status| condition::is_true(&status.conditions, type_))
        }
    };
    let summary = Summary {
        total: count(&|_| true),
        progressing: count(&is("Progressing")),
        available: count(&is("Available")),
        degraded: count(&is("Degraded")),
        applied: count(&is("Applied")),
        desired_total: i64::try_from(clusters.len()).unwrap_or(i64::MAX),
        updated: count(&|work| work.spec == *spec),
    };
    PlacementSummary {
        name: name.into(),
        available_decision_groups: format!(
            "{} ({} / {} clusters applied)",
            groups.len(),
            summary.applied,
            summary.desired_total
        ),
        summary,
    }
}

fn fold<'a>(parts: impl Iterator<Item = &'a Summary>) -> Summary {
    parts.fold(Summary::default(), |sum, part| Summary {
        total: sum.total + part.total,
        progressing: sum.progressing + part.progressing,
        available: sum.available + part.available,
        degraded: sum.degraded + part.degraded,
        applied: sum.applied + part.applied,
        desired_total: sum.desired_total + part.desired_total,
        updated: sum.updated + part.updated,
    })
}

/// The messages about works that could not be written or deleted; empty if all could.
#[derive(Default)]
struct FailureMessages {
    unwritten: String,
    undeleted: String,
}

fn failure_messages(failing: &BTreeSet<String>, observed: &Observed<'_>, selected: usize) -> FailureMessages {
    let mut messages = FailureMessages::default();
    if !failing.is_empty() {
        let unwritten = failing
            .iter()
            .filter_map(|cluster| observed.unwritten.get(cluster));
        let whys: Vec<&str> = unwritten.map(|unwritten| unwritten.why.as_str()).collect();
        messages.unwritten = format!(
            "{} of {selected} clusters cannot be written and are retried: {}",
            whys.len(),
            first(&whys)
        );
    }
    if !observed.attempts.undeleted.is_empty() {
        messages.undeleted = format!(
            "{} works of clusters that are not selected cannot be deleted and are retried: {}",
            observed.attempts.undeleted.len(),
            first(observed.attempts.undeleted)
        );
    }
    messages
}

/// The first failures, and how many more there are.
fn first(whys: &[impl AsRef<str>]) -> String {
    let shown = whys
        .iter()
        .take(MAX_NAMED)
        .map(|why| condition::clip(why.as_ref(), MAX_WHY));
    let more = whys.len().saturating_sub(MAX_NAMED);
    let more = (more > 0).then(|| format!("and {more} more"));
    shown.chain(more).collect::<Vec<_>>().join("; ")
}

fn conditions(
    set: &ManifestWorkReplicaSet,
    found: usize,
    selected: usize,
    complete: bool,
    total: &Summary,
    failures: &FailureMessages,
) -> [Wanted; 3] {
    let verified = if found < set.spec.placement_refs.len() {
        Wanted::new(
            "PlacementVerified",
            false,
            "PlacementDecisionNotFound",
            "a placement has no decisions: it does not exist, or is not scheduled yet; its works stay as they are",
        )
    } else if selected == 0 {
        Wanted::new(
            "PlacementVerified",
            false,
            "PlacementDecisionEmpty",
            "no cluster is selected",
        )
    } else {
        Wanted::new("PlacementVerified", true, "AsExpected", "")
    };
    let rolled_out = if complete {
        Wanted::new("PlacementRolledOut", true, "Complete", "")
    } else {
        Wanted::new("PlacementRolledOut", false, "Progressing", &*failures.unwritten)
    };
    let messages = [&*failures.unwritten, &*failures.undeleted].into_iter();
    let messages: Vec<&str> = messages.filter(|message| !message.is_empty()).collect();
    let applied = if !messages.is_empty() {
        Wanted::new("ManifestworkApplied", false, "NotAsExpected", messages.join("; "))
    } else if selected == 0 {
        Wanted::new("ManifestworkApplied", false, "PlacementDecisionEmpty", "")
    } else if total.applied == total.desired_total {
        Wanted::new("ManifestworkApplied", true, "AsExpected", "")
    } else if total.total < total.desired_total {
        Wanted::new("ManifestworkApplied", false, "Processing", "")
    } else {
        Wanted::new("ManifestworkApplied", false, "NotAsExpected", "")
    };
    [verified, rolled_out, applied]
}

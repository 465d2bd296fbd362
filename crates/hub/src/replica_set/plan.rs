//! Pure: from a replica set, the clusters that its placements select and the works that exist to the works that
//! should exist, and the status.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use sha2::{Digest, Sha256};
use writ_api::work::{
    ManifestWork, ManifestWorkReplicaSet, ManifestWorkReplicaSetStatus, ManifestWorkSpec, PLACEMENT_LABEL,
    PlacementSummary, REPLICA_SET_LABEL, Summary,
};
use writ_controller::condition::{self, Wanted};

use crate::MANAGER;

/// How many failures a condition names, and how much it says of each.
const MAX_NAMED: usize = 10;
const MAX_WHY: usize = 300;

use super::{
    failures::Unwritten,
    progress::with_rules,
    rollout::{self, Group, State},
};

/// What was observed.
pub struct Observed<'a> {
    /// The replica set.
    pub set: &'a ManifestWorkReplicaSet,
    /// The decision groups of each placement, by name; one that does not exist, or has no decisions, is not in it.
    pub placements: &'a BTreeMap<String, Vec<Group>>,
    /// The works that are the set's own, as [`is_own`] tells.
    pub works: &'a [ManifestWork],
    /// The clusters that could not be written.
    pub unwritten: &'a BTreeMap<String, Unwritten>,
    /// The clusters that were written since the works were listed.
    pub written: &'a BTreeSet<String>,
    /// Why works could not be deleted.
    pub undeleted: &'a [String],
    /// The time.
    pub now: Timestamp,
}

/// What should be.
#[derive(Debug, Default)]
pub struct Plan {
    /// Works to create or to change: cluster, placement, spec.
    pub apply: Vec<ManifestWork>,
    /// Works to delete.
    pub delete: Vec<ManifestWork>,
    /// The status.
    pub status: ManifestWorkReplicaSetStatus,
    /// The clusters that should be written and cannot.
    pub failing: BTreeSet<String>,
    /// When time alone changes the answer.
    pub look_again: Option<Duration>,
}

/// The value of the label that ties works to a set; `None` if it would not be a label.
pub fn owner(set: &ManifestWorkReplicaSet) -> Option<String> {
    let value = format!("{}.{}", set.namespace().unwrap_or_default(), set.name_any());
    (value.len() <= 63).then_some(value)
}

/// The name of a set's works: the set's name, and what tells it from sets of that name in other namespaces.
fn work_name(set: &ManifestWorkReplicaSet) -> String {
    let full = format!("{}/{}", set.namespace().unwrap_or_default(), set.name_any());
    let digest = Sha256::digest(full.as_bytes());
    let short = digest
        .iter()
        .take(4)
        .fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    format!("{}-{short}", set.name_any())
}

/// Whether a work was made for this set. A label alone does not say so: whoever may label works could have the works of
/// others deleted.
pub fn is_own(set: &ManifestWorkReplicaSet, work: &ManifestWork) -> bool {
    let labelled = owner(set).is_some_and(|owner| work.labels().get(REPLICA_SET_LABEL) == Some(&owner));
    labelled && (work.name_any() == work_name(set) || is_upstreams(set, work))
}

/// Why a work of the name that the set gives must not be replaced: it was not made for the set.
pub fn stranger(set: &ManifestWorkReplicaSet, work: &ManifestWork) -> Option<String> {
    (!is_own(set, work)).then(|| {
        format!(
            "ManifestWork {}/{} is not this ManifestWorkReplicaSet's and is left alone: delete it, or give it the label \
             {REPLICA_SET_LABEL}={} to have it replaced",
            work.namespace().unwrap_or_default(),
            work.name_any(),
            owner(set).unwrap_or_default()
        )
    })
}

/// Whether OCM's controller named this work: it lets the server put five characters behind the set's name, none of
/// which makes a word.
fn is_upstreams(set: &ManifestWorkReplicaSet, work: &ManifestWork) -> bool {
    let name = work.name_any();
    let suffix = name.strip_prefix(&set.name_any());
    suffix.is_some_and(|suffix| {
        suffix.len() == 5 && suffix.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c))
    })
}

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
    let (ours, upstreams): (Vec<&ManifestWork>, Vec<&ManifestWork>) =
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
            State::Pending if observed.written.contains(cluster) => State::Progressing(Duration::ZERO),
            State::Pending => match observed.unwritten.get(cluster) {
                Some(unwritten) if unwritten.due => State::Retry,
                Some(_) => State::Failed,
                None => State::Pending,
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
                && matches!(state(cluster), State::Failed | State::Retry)
        });
        plan.failing.extend(failing.map(|cluster| (*cluster).clone()));
        summaries.push(summary(&reference.name, &groups, &clusters, &by_cluster, &spec));
        wanted.extend(clusters.into_iter().cloned());
    }
    // Nobody decided that a work of a placement that is not there should go.
    let kept = |work: &ManifestWork| {
        let placement = work.labels().get(PLACEMENT_LABEL);
        placement.is_some_and(|placement| absent.contains(placement.as_str()))
    };
    let dropped = by_cluster
        .iter()
        .filter(|(cluster, work)| !wanted.contains(*cluster) && !kept(work));
    // What OCM made goes once ours is there.
    let replaced = upstreams.iter().filter(|work| {
        let cluster = work.namespace().unwrap_or_default();
        by_cluster.contains_key(&cluster) || (!wanted.contains(&cluster) && !kept(work))
    });
    let going = dropped.map(|(_, work)| work).chain(replaced);
    plan.delete = going
        .filter(|work| work.metadata.deletion_timestamp.is_none())
        .map(|work| (*work).clone())
        .collect();
    let total = fold(summaries.iter().map(|placement| &placement.summary));
    let failures = failures(&plan.failing, observed, wanted.len());
    for condition in conditions(set, found, wanted.len(), complete, &total, &failures) {
        plan.set(set, &condition, observed.now);
    }
    plan.status.summary = total;
    plan.status.placement_summary = summaries;
    plan
}

/// The status of a set that is deleted, and cannot go.
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
fn state(work: Option<&ManifestWork>, spec: &ManifestWorkSpec, now: Timestamp) -> State {
    let Some(work) = work.filter(|work| work.spec == *spec) else {
        return State::Pending;
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
        let age =
            written(work).map(|written| Duration::try_from(now.duration_since(written)).unwrap_or_default());
        return State::Progressing(age.unwrap_or_default());
    };
    if applied.status != "True" {
        return State::Failed;
    }
    match (find("Progressing"), find("Degraded")) {
        (Some(progressing), Some(degraded)) if progressing.status == "True" && degraded.status == "True" => {
            State::Failed
        }
        (Some(progressing), _) if progressing.status == "False" => State::Succeeded(since(progressing)),
        (Some(progressing), _) => State::Progressing(since(progressing)),
        (None, _) if available.status == "True" => State::Succeeded(since(available)),
        (None, _) => State::Progressing(since(available)),
    }
}

/// When this controller last wrote a work: the server keeps the time with what it wrote.
fn written(work: &ManifestWork) -> Option<Timestamp> {
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

/// What could not be done.
#[derive(Default)]
struct Words {
    written: String,
    deleted: String,
}

/// How many clusters could not be written, and which works could not be deleted.
fn failures(failing: &BTreeSet<String>, observed: &Observed<'_>, selected: usize) -> Words {
    let mut words = Words::default();
    if !failing.is_empty() {
        let unwritten = failing
            .iter()
            .filter_map(|cluster| observed.unwritten.get(cluster));
        let whys: Vec<&str> = unwritten.map(|unwritten| unwritten.why.as_str()).collect();
        words.written = format!(
            "{} of {selected} clusters cannot be written, which is tried again: {}",
            whys.len(),
            first(&whys)
        );
    }
    if !observed.undeleted.is_empty() {
        words.deleted = format!(
            "{} works of clusters that are not selected cannot be deleted, which is tried again: {}",
            observed.undeleted.len(),
            first(observed.undeleted)
        );
    }
    words
}

/// The first ones, and how many there are besides.
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
    failures: &Words,
) -> [Wanted; 3] {
    let verified = if found < set.spec.placement_refs.len() {
        Wanted::new(
            "PlacementVerified",
            false,
            "PlacementDecisionNotFound",
            "a placement has no decisions: it does not exist, or nothing is decided yet; its works stay as they are",
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
        Wanted::new("PlacementRolledOut", false, "Progressing", &*failures.written)
    };
    let whys = [&*failures.written, &*failures.deleted].into_iter();
    let whys: Vec<&str> = whys.filter(|words| !words.is_empty()).collect();
    let applied = if !whys.is_empty() {
        Wanted::new("ManifestworkApplied", false, "NotAsExpected", whys.join("; "))
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

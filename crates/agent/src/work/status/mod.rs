//! Pure: from the outcome of each manifest to the status of the work.
//!
//! `reports → conditions per manifest → conditions of the work → cut to what the hub stores`

pub mod content;
mod feedback;
pub mod in_flight;
pub mod pruning;
pub mod redact;
mod rules;
pub mod size_limit;
pub mod unwatched;

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::Timestamp;
use writ_api::work::{ManifestCondition, ManifestResourceMeta, ManifestResourceStatus, ManifestWorkStatus};
use writ_controller::condition::{self, Status, Wanted};

use self::size_limit::{fit_messages, stored_size};
use super::model::ManifestReport;

/// The condition of manifests and works that were written.
pub const APPLIED: &str = "Applied";
/// The condition of manifests and works whose objects exist.
pub const AVAILABLE: &str = "Available";
/// The condition of feedback that could be read.
pub const FEEDBACK: &str = "StatusFeedbackSynced";
/// The condition that ends the work on a manifest.
pub const COMPLETE: &str = "Complete";
/// The condition of a work that is being deleted.
pub const DELETING: &str = "Deleting";

/// The beginning of every reason of a computed condition.
pub const RULE_PREFIX: &str = "ConditionRule";
const AGGREGATED: &str = "ConditionRulesAggregated";

/// The bytes of a feedback value besides its name and itself.
const VALUE_OVERHEAD: usize = 64;

/// How many bytes the feedback of all manifests may have.
const MAX_FEEDBACK: usize = 256 * 1024;

/// The manifest was applied.
pub fn applied() -> Wanted {
    Wanted::new(
        APPLIED,
        true,
        "AppliedManifestComplete",
        "Apply manifest complete",
    )
}

/// The manifest could not be applied.
pub fn failed(message: &str) -> Wanted {
    Wanted::new(
        APPLIED,
        false,
        "AppliedManifestFailed",
        format!("Failed to apply manifest: {message}"),
    )
}

/// The manifest is allowed, but not written for another reason.
pub fn held_back(message: &str) -> Wanted {
    Wanted::new(APPLIED, false, "AppliedManifestHeldBack", message)
}

/// The object exists.
pub fn available() -> Wanted {
    Wanted::new(AVAILABLE, true, "ResourceAvailable", "Resource is available")
}

/// The object does not exist.
pub fn not_available() -> Wanted {
    Wanted::new(
        AVAILABLE,
        false,
        "ResourceNotAvailable",
        "Resource is not available",
    )
}

/// It is not known whether the object exists.
pub fn availability_unknown(message: &str) -> Wanted {
    Wanted::new(AVAILABLE, Status::Unknown, "FetchingResourceFailed", message)
}

/// The status of a work: one entry per report, and the conditions of the whole. `refusal` replaces the message of a failed
/// apply; `rest_size` is the size of the work without its status, in bytes.
pub fn work_status(
    current: &ManifestWorkStatus,
    reports: &[ManifestReport],
    refusal: Option<&str>,
    generation: Option<i64>,
    now: Timestamp,
    rest_size: usize,
) -> ManifestWorkStatus {
    let before: HashMap<_, &ManifestCondition> = current
        .resource_status
        .manifests
        .iter()
        .map(|manifest| (identity(&manifest.resource_meta), manifest))
        .collect();
    let mut manifests: Vec<ManifestCondition> = reports
        .iter()
        .map(|report| {
            let old = before.get(&identity(&report.meta)).copied();
            manifest(report, old, generation, now)
        })
        .collect();
    bound_feedback(&mut manifests, generation, now);
    let mut conditions = current.conditions.clone();
    // A complete work is no longer applied: its condition goes on to describe, and to name, the last revision that was.
    let ended = condition::is_true(&conditions, COMPLETE) && condition::find(&conditions, APPLIED).is_some();
    let wanted = work_conditions(&manifests, refusal);
    for wanted in wanted
        .into_iter()
        .filter(|wanted| !ended || wanted.type_ != APPLIED)
    {
        condition::set(&mut conditions, &wanted, generation, now);
    }
    let aggregated = aggregate(&manifests);
    conditions.retain(|c| c.reason != AGGREGATED || aggregated.iter().any(|a| a.type_ == c.type_));
    for wanted in aggregated {
        condition::set(&mut conditions, &wanted, generation, now);
    }
    let mut status = ManifestWorkStatus {
        conditions,
        resource_status: ManifestResourceStatus { manifests },
    };
    fit_messages(&mut status, rest_size);
    status
}

/// Drops the feedback of manifests beyond the limit: a status that is too large is never written, so writing one large
/// object on the cluster would silence the whole work.
fn bound_feedback(manifests: &mut [ManifestCondition], generation: Option<i64>, now: Timestamp) {
    let mut total = 0_usize;
    for manifest in manifests {
        let values = manifest.status_feedback.values.iter();
        let size: usize = values
            .map(|value| {
                let texts = [&value.value.string, &value.value.json_raw];
                VALUE_OVERHEAD
                    + value.name.len()
                    + texts.into_iter().flatten().map(stored_size).sum::<usize>()
            })
            .sum();
        if total.saturating_add(size) <= MAX_FEEDBACK {
            total += size;
            continue;
        }
        manifest.status_feedback.values.clear();
        let message = format!(
            "Sync status feedback failed with error all values of this work have more than {MAX_FEEDBACK} bytes, \
             those of this manifest are left out"
        );
        let dropped = Wanted::new(FEEDBACK, false, "StatusFeedbackSyncFailed", message);
        condition::set(&mut manifest.conditions, &dropped, generation, now);
    }
}

fn identity(meta: &ManifestResourceMeta) -> (&str, &str, &str, &str, i32) {
    // Manifests without a name are distinguished by their index.
    let index = if meta.name.is_empty() { meta.ordinal } else { -1 };
    (&meta.group, &meta.kind, &meta.namespace, &meta.name, index)
}

fn manifest(
    report: &ManifestReport,
    old: Option<&ManifestCondition>,
    generation: Option<i64>,
    now: Timestamp,
) -> ManifestCondition {
    let mut new = old.cloned().unwrap_or_default();
    new.resource_meta = report.meta.clone();
    // What is kept still holds for this revision, except whether it was applied.
    for kept in new.conditions.iter_mut().filter(|kept| kept.type_ != APPLIED) {
        kept.observed_generation = generation;
    }
    if let Some(applied) = &report.applied {
        condition::set(&mut new.conditions, applied, generation, now);
    }
    if let Some(available) = &report.available {
        condition::set(&mut new.conditions, available, generation, now);
    }
    if let Some(content) = &report.content {
        new.status_feedback.values.clone_from(&content.values);
        condition::set(&mut new.conditions, &content.feedback, generation, now);
        new.conditions.retain(|c| {
            !c.reason.starts_with(RULE_PREFIX) || content.rules.iter().any(|rule| rule.type_ == c.type_)
        });
        for rule in &content.rules {
            condition::set(&mut new.conditions, rule, generation, now);
        }
    }
    new
}

/// Whether a manifest or the work was complete, and is not any more: what was not written then has to be written now.
pub fn is_resumed(before: &ManifestWorkStatus, now: &ManifestWorkStatus) -> bool {
    fn complete(status: &ManifestWorkStatus) -> impl Iterator<Item = (&str, &str, &str, &str, i32)> {
        let manifests = status.resource_status.manifests.iter();
        let complete = manifests.filter(|manifest| condition::is_true(&manifest.conditions, COMPLETE));
        complete.map(|manifest| identity(&manifest.resource_meta))
    }
    let ended = |status: &ManifestWorkStatus| condition::is_true(&status.conditions, COMPLETE);
    let still: HashSet<_> = complete(now).collect();
    (ended(before) && !ended(now)) || complete(before).any(|manifest| !still.contains(&manifest))
}

fn work_conditions(manifests: &[ManifestCondition], refusal: Option<&str>) -> [Wanted; 2] {
    let all_applied = manifests
        .iter()
        .all(|manifest| condition::is_true(&manifest.conditions, APPLIED));
    let applied = if all_applied && refusal.is_none() {
        Wanted::new(
            APPLIED,
            true,
            "AppliedManifestWorkComplete",
            "Apply manifest work complete",
        )
    } else {
        let message = refusal.unwrap_or("Failed to apply manifest work");
        Wanted::new(APPLIED, false, "AppliedManifestWorkFailed", message)
    };
    let count = |status: Status| {
        manifests
            .iter()
            .filter(|manifest| {
                condition::find(&manifest.conditions, AVAILABLE)
                    .map_or(status == Status::Unknown, |c| c.status == status.as_str())
            })
            .count()
    };
    let (missing, unknown, total) = (count(Status::False), count(Status::Unknown), manifests.len());
    let available = if total == 0 {
        Wanted::new(
            AVAILABLE,
            Status::Unknown,
            "ResourcesStatusUnknown",
            "cannot get any available resource ",
        )
    } else if missing > 0 {
        Wanted::new(
            AVAILABLE,
            false,
            "ResourcesNotAvailable",
            format!("{missing} of {total} resources are not available"),
        )
    } else if unknown > 0 {
        Wanted::new(
            AVAILABLE,
            Status::Unknown,
            "ResourcesStatusUnknown",
            format!("{unknown} of {total} resources have unknown status"),
        )
    } else {
        Wanted::new(
            AVAILABLE,
            true,
            "ResourcesAvailable",
            "All resources are available",
        )
    };
    [applied, available]
}

/// The conditions that rules computed, aggregated: `False` beats `Unknown` beats `True`, except for `Progressing` and
/// `Degraded`, where one `True` is enough.
fn aggregate(manifests: &[ManifestCondition]) -> Vec<Wanted> {
    let mut by_type: BTreeMap<&str, Vec<(Status, &str)>> = BTreeMap::new();
    for condition in manifests.iter().flat_map(|manifest| &manifest.conditions) {
        if condition.reason.starts_with(RULE_PREFIX) {
            let status = match condition.status.as_str() {
                "True" => Status::True,
                "False" => Status::False,
                _ => Status::Unknown,
            };
            by_type
                .entry(&condition.type_)
                .or_default()
                .push((status, &condition.message));
        }
    }
    by_type
        .into_iter()
        .map(|(type_, found)| {
            let has = |status: Status| found.iter().any(|(s, _)| *s == status);
            let order = if matches!(type_, "Progressing" | "Degraded") {
                [Status::True, Status::Unknown, Status::False]
            } else {
                [Status::False, Status::Unknown, Status::True]
            };
            let status = order
                .into_iter()
                .find(|status| has(*status))
                .unwrap_or(Status::Unknown);
            let message = match found.as_slice() {
                [(_, only)] => (*only).to_owned(),
                many => format!("Aggregated from {} manifest conditions", many.len()),
            };
            Wanted::new(type_, status, AGGREGATED, message)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::work::model::ObjectContent;

    #[test]
    fn feedback_of_many_objects_is_bounded() {
        let report = |name: usize, length: usize| ManifestReport {
            meta: ManifestResourceMeta {
                kind: "ConfigMap".into(),
                name: format!("m{name}"),
                ..ManifestResourceMeta::default()
            },
            applied: Some(applied()),
            available: Some(available()),
            content: Some(ObjectContent {
                values: serde_json::from_value(
                    json!([{"name": "v", "fieldValue": {"type": "String", "string": "x".repeat(length)}}]),
                )
                .unwrap(),
                feedback: Wanted::new(FEEDBACK, true, "StatusFeedbackSynced", ""),
                rules: Vec::new(),
            }),
        };
        let mut reports: Vec<ManifestReport> = (0..100).map(|name| report(name, 16 * 1024)).collect();
        reports.push(report(100, 10));
        let status = work_status(
            &ManifestWorkStatus::default(),
            &reports,
            None,
            Some(1),
            Timestamp::UNIX_EPOCH,
            0,
        );
        let manifests = &status.resource_status.manifests;
        assert!(serde_json::to_vec(&status).unwrap().len() < 400_000);
        let has_values = |at: usize| !manifests[at].status_feedback.values.is_empty();
        let synced = |at: usize| condition::is_true(&manifests[at].conditions, FEEDBACK);
        assert!(has_values(0) && synced(0) && !has_values(99) && !synced(99));
        // Small values still fit after large ones were dropped.
        assert!(has_values(100) && synced(100));
        assert!(condition::is_true(&status.conditions, APPLIED));
    }

    #[test]
    fn status_with_a_thousand_long_errors_can_be_written() {
        let reports: Vec<ManifestReport> = (0..1000)
            .map(|name| ManifestReport {
                meta: ManifestResourceMeta {
                    kind: "ConfigMap".into(),
                    name: format!("m{name}"),
                    ..ManifestResourceMeta::default()
                },
                applied: Some(failed(&"<why>".repeat(8 * 1024))),
                available: Some(not_available()),
                content: None,
            })
            .collect();
        let at = |second: i64, before: &ManifestWorkStatus| {
            let now = Timestamp::from_second(second).unwrap();
            work_status(before, &reports, None, Some(1), now, 512 * 1024)
        };
        let first = at(1, &ManifestWorkStatus::default());
        assert!(stored_size(&first) < 1024 * 1024, "{}", stored_size(&first));
        let shown = &first.resource_status.manifests[999].conditions[0];
        assert!(
            shown.message.starts_with("Failed to apply manifest: <why>"),
            "{}",
            shown.message
        );
        assert_eq!(at(2, &first), first, "an unchanged status is not written");
    }

    #[test]
    fn complete_work_keeps_the_conditions_of_its_last_revision() {
        let report = |name: &str, applied: Option<Wanted>| ManifestReport {
            meta: ManifestResourceMeta {
                kind: "ConfigMap".into(),
                name: name.into(),
                ..ManifestResourceMeta::default()
            },
            applied,
            available: Some(available()),
            content: None,
        };
        let run = |before: &ManifestWorkStatus, reports: &[ManifestReport], generation: i64| {
            work_status(before, reports, None, Some(generation), Timestamp::UNIX_EPOCH, 0)
        };
        let mut first = run(&ManifestWorkStatus::default(), &[report("a", Some(applied()))], 1);
        let complete = Wanted::new(COMPLETE, true, AGGREGATED, "");
        condition::set(&mut first.conditions, &complete, Some(1), Timestamp::UNIX_EPOCH);
        let held = held_back("Not written: the work is complete");
        let second = run(&first, &[report("a", None), report("b", Some(held))], 2);
        let shown = |conditions: &[_], type_: &str| {
            let found = condition::find(conditions, type_).unwrap();
            (found.status.clone(), found.observed_generation.unwrap())
        };
        let manifest = |at: usize| &second.resource_status.manifests[at].conditions;
        assert_eq!(shown(&second.conditions, APPLIED), ("True".into(), 1));
        assert_eq!(shown(&second.conditions, AVAILABLE), ("True".into(), 2));
        assert_eq!(shown(manifest(0), APPLIED), ("True".into(), 1));
        assert_eq!(shown(manifest(0), AVAILABLE), ("True".into(), 2));
        assert_eq!(shown(manifest(1), APPLIED), ("False".into(), 2));
        // No rule computes that it is complete any more: what was held back is due.
        assert!(is_resumed(&first, &second));
        assert!(!is_resumed(&first, &first) && !is_resumed(&second, &first));
    }
}

//! Pure: when a work is deleted because it is complete.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use writ_api::work::{ManifestWork, REPLICA_SET_LABEL};
use writ_controller::condition;

/// Longer times to live count as this one, which a timer can hold.
const LONGEST: Duration = Duration::from_hours(100 * 365 * 24);

/// The time until the work is deleted; `None` if it stays.
pub fn due(work: &ManifestWork, now: Timestamp) -> Option<Duration> {
    if work.metadata.deletion_timestamp.is_some() || work.labels().contains_key(REPLICA_SET_LABEL) {
        return None;
    }
    let ttl = work.spec.delete_option.as_ref()?.ttl_seconds_after_finished?;
    let ttl = Duration::from_secs(u64::try_from(ttl).unwrap_or_default()).min(LONGEST);
    let complete = condition::find(&work.status.as_ref()?.conditions, "Complete")?;
    // A condition of an earlier revision says nothing about this one.
    let outdated = complete
        .observed_generation
        .is_some_and(|seen| Some(seen) != work.metadata.generation);
    if complete.status != "True" || outdated {
        return None;
    }
    let since = now.duration_since(complete.last_transition_time.0);
    Some(ttl.saturating_sub(Duration::try_from(since).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn complete_work_with_a_time_to_live_is_due() {
        let work = |ttl: Option<i64>, complete: &str, labels: &[(&str, &str)]| -> ManifestWork {
            let labels: std::collections::BTreeMap<_, _> = labels.iter().copied().collect();
            serde_json::from_value(json!({
                "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
                "metadata": {"name": "w", "labels": labels},
                "spec": {"deleteOption": {"ttlSecondsAfterFinished": ttl}},
                "status": {"conditions": [{"type": "Complete", "status": complete, "reason": "R", "message": "",
                    "lastTransitionTime": "1970-01-01T00:01:00Z"}]},
            }))
            .unwrap()
        };
        let now = Timestamp::from_second(90).unwrap();
        assert_eq!(
            due(&work(Some(60), "True", &[]), now),
            Some(Duration::from_secs(30))
        );
        assert_eq!(due(&work(Some(0), "True", &[]), now), Some(Duration::ZERO));
        assert_eq!(due(&work(None, "True", &[]), now), None);
        assert_eq!(due(&work(Some(0), "False", &[]), now), None);
        assert_eq!(
            due(&work(Some(0), "True", &[(REPLICA_SET_LABEL, "a.b")]), now),
            None
        );
        // The spec changed after the work was complete, and was not applied since.
        let mut revised = work(Some(0), "True", &[]);
        revised.metadata.generation = Some(2);
        for (seen, wanted) in [(1, None), (2, Some(Duration::ZERO))] {
            for condition in revised
                .status
                .iter_mut()
                .flat_map(|status| &mut status.conditions)
            {
                condition.observed_generation = Some(seen);
            }
            assert_eq!(due(&revised, now), wanted);
        }
    }
}

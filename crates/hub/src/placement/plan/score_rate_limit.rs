//! How often decisions are written because of scores alone.
//!
//! With `sortBy: Score` the decisions hold scores, which change all the time. While the same clusters are chosen, they are
//! written once per `scoreRateLimit`; a change of the chosen clusters is written at once.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use writ_api::cluster::placement_decision::ClusterDecision;

/// Decisions by the name of the object that holds them.
pub type Decisions<'a> = BTreeMap<String, &'a [ClusterDecision]>;

/// The default of `scoreRateLimit`.
const DEFAULT: Duration = Duration::from_mins(1);

/// Reads `scoreRateLimit`, such as `30s`.
pub fn limit(text: Option<&str>) -> Result<Duration, String> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(DEFAULT);
    };
    let bad = || format!("spec.scoreRateLimit: {text:?} is not a number with h, m or s");
    let unit = match text.chars().next_back() {
        Some('h') => 3600,
        Some('m') => 60,
        Some('s') => 1,
        _ => return Err(bad()),
    };
    let number: u64 = text
        .get(..text.len() - 1)
        .and_then(|n| n.parse().ok())
        .ok_or_else(bad)?;
    number.checked_mul(unit).map(Duration::from_secs).ok_or_else(bad)
}

/// Whether the same clusters are in the same objects, with other scores or in another order.
pub fn only_scores_differ(current: &Decisions, wanted: &Decisions) -> bool {
    let names = |all: &Decisions| -> BTreeMap<String, Vec<String>> {
        let sorted = |decisions: &[ClusterDecision]| {
            let mut names: Vec<String> = decisions.iter().map(|d| d.cluster_name.clone()).collect();
            names.sort_unstable();
            names
        };
        all.iter()
            .map(|(name, decisions)| (name.clone(), sorted(decisions)))
            .collect()
    };
    current != wanted && names(current) == names(wanted)
}

/// The time until scores may be written, given when they were last written.
pub fn wait(last: Option<&str>, limit: Duration, now: Timestamp) -> Option<Duration> {
    let last: Timestamp = last?.parse().ok()?;
    let passed = Duration::try_from(now.duration_since(last)).unwrap_or_default();
    limit.checked_sub(passed).filter(|left| !left.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_limit_is_parsed_as_in_the_schema() {
        for (text, wanted) in [
            (None, Some(60)),
            (Some(""), Some(60)),
            (Some("0s"), Some(0)),
            (Some("90s"), Some(90)),
            (Some("2h"), Some(7200)),
            (Some("2"), None),
            (Some("m"), None),
            (Some("1d"), None),
        ] {
            assert_eq!(limit(text).ok(), wanted.map(Duration::from_secs), "{text:?}");
        }
    }

    #[test]
    fn changed_scores_wait_and_changed_clusters_do_not() {
        let decision = |name: &str, score: i64| ClusterDecision {
            cluster_name: name.into(),
            reason: String::new(),
            score: Some(score),
        };
        let (old, reordered) = (
            [decision("a", 2), decision("b", 1)],
            [decision("b", 9), decision("a", 2)],
        );
        let other = [decision("a", 2), decision("c", 1)];
        let of = |decisions| -> Decisions { [("p-decision-1".to_owned(), decisions)].into() };
        assert!(only_scores_differ(&of(&old), &of(&reordered)));
        assert!(!only_scores_differ(&of(&old), &of(&old)));
        assert!(!only_scores_differ(&of(&old), &of(&other)));
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let minute = Duration::from_mins(1);
        assert_eq!(
            wait(Some("2026-01-01T00:00:20Z"), minute, now),
            Some(Duration::from_secs(20))
        );
        assert_eq!(wait(Some("2026-01-01T00:00:00Z"), minute, now), None);
        assert_eq!(wait(None, minute, now), None);
    }
}

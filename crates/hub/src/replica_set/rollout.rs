//! Pure: the clusters that may get the current template now.

use std::time::Duration;

use writ_api::{
    NumberOrText, go_duration,
    work::{MandatoryDecisionGroup, RolloutStrategy, RolloutType},
};

use super::model::{ClusterState, Group};

/// The next step of a rollout.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Next {
    /// The clusters that may get the template now.
    pub apply: Vec<String>,
    /// Whether every cluster succeeded.
    pub complete: bool,
    /// When time alone changes the step.
    pub look_again: Option<Duration>,
}

/// The limits of a strategy.
struct Limits<'a> {
    min_success: Duration,
    deadline: Option<Duration>,
    /// `None` for any number.
    max_failures: Option<&'a NumberOrText>,
    concurrency: Option<&'a NumberOrText>,
    mandatory: &'a [MandatoryDecisionGroup],
    per_group: bool,
}

/// Decides what happens next. The groups are in the order of their indexes.
pub fn next(strategy: &RolloutStrategy, groups: &[Group], state: impl Fn(&str) -> ClusterState) -> Next {
    let (all, progressive, per_group) = (
        strategy.all.clone().unwrap_or_default(),
        strategy.progressive.clone().unwrap_or_default(),
        strategy.progressive_per_group.clone().unwrap_or_default(),
    );
    let limits = match strategy.type_ {
        RolloutType::All => Limits {
            min_success: duration(&all.min_success_time).unwrap_or_default(),
            deadline: duration(&all.progress_deadline),
            max_failures: None,
            concurrency: None,
            mandatory: &[],
            per_group: false,
        },
        RolloutType::Progressive => Limits {
            min_success: duration(&progressive.min_success_time).unwrap_or_default(),
            deadline: duration(&progressive.progress_deadline),
            max_failures: Some(&progressive.max_failures),
            concurrency: progressive.max_concurrency.as_ref(),
            mandatory: &progressive.mandatory_decision_groups,
            per_group: false,
        },
        RolloutType::ProgressivePerGroup => Limits {
            min_success: duration(&per_group.min_success_time).unwrap_or_default(),
            deadline: duration(&per_group.progress_deadline),
            max_failures: Some(&per_group.max_failures),
            concurrency: None,
            mandatory: &per_group.mandatory_decision_groups,
            per_group: true,
        },
    };
    walk(&limits, groups, state)
}

fn walk(limits: &Limits<'_>, groups: &[Group], state: impl Fn(&str) -> ClusterState) -> Next {
    let total: usize = groups.iter().map(|group| group.clusters.len()).sum();
    let mut next = Next {
        complete: true,
        ..Next::default()
    };
    for (clusters, concurrency) in batches(limits, groups, total) {
        let tolerated = limits
            .max_failures
            .map_or(usize::MAX, |most| share(most, clusters.len()).unwrap_or_default());
        let (mut active, mut failed, mut pending, mut retries) = (0, 0, Vec::new(), Vec::new());
        for cluster in clusters {
            match state(cluster) {
                ClusterState::Pending => pending.push(cluster.to_owned()),
                ClusterState::Failed => failed += 1,
                ClusterState::Retry => {
                    failed += 1;
                    retries.push(cluster.to_owned());
                }
                ClusterState::Progressing(since) => match limits.deadline {
                    Some(deadline) if since >= deadline => failed += 1,
                    deadline => {
                        active += 1;
                        next.wait(deadline.map(|deadline| deadline.saturating_sub(since)));
                    }
                },
                ClusterState::Succeeded(since) if since < limits.min_success => {
                    active += 1;
                    next.wait(Some(limits.min_success.saturating_sub(since)));
                }
                ClusterState::Succeeded(_) => {}
            }
        }
        let done = pending.is_empty() && active == 0;
        next.complete &= done && failed == 0;
        let mut room = concurrency.saturating_sub(active);
        retries.truncate(room);
        room -= retries.len();
        next.apply.extend(retries);
        if failed > tolerated {
            // More failures than tolerated: the rollout stops until they are resolved.
            next.complete = false;
            return next;
        }
        next.apply.extend(pending.into_iter().take(room));
        if !done {
            return next;
        }
    }
    next
}

/// The batches of clusters in rollout order, with the number that may be in progress in each.
fn batches<'a>(limits: &Limits<'_>, groups: &'a [Group], total: usize) -> Vec<(Vec<&'a str>, usize)> {
    let names = |group: &'a Group| group.clusters.iter().map(String::as_str).collect::<Vec<_>>();
    let is_mandatory = |group: &Group| {
        limits.mandatory.iter().any(|wanted| {
            if wanted.group_name.is_empty() {
                wanted.group_index == group.index
            } else {
                wanted.group_name == group.name
            }
        })
    };
    let mut batches: Vec<(Vec<&str>, usize)> = Vec::new();
    for group in groups.iter().filter(|group| is_mandatory(group)) {
        batches.push((names(group), group.clusters.len()));
    }
    let rest = groups.iter().filter(|group| !is_mandatory(group));
    if limits.per_group {
        batches.extend(rest.map(|group| (names(group), group.clusters.len())));
    } else {
        let clusters: Vec<&str> = rest.flat_map(names).collect();
        let concurrency = limits
            .concurrency
            .and_then(|limit| share(limit, total))
            .unwrap_or(usize::MAX)
            .max(1);
        batches.push((clusters, concurrency));
    }
    batches
}

impl Next {
    fn wait(&mut self, delay: Option<Duration>) {
        if let Some(delay) = delay {
            self.look_again = Some(self.look_again.map_or(delay, |known| known.min(delay)));
        }
    }
}

/// A number, or a percentage of `total`, rounded down.
fn share(value: &NumberOrText, total: usize) -> Option<usize> {
    let text = value.to_string();
    match text.strip_suffix('%') {
        Some(percent) => Some(total.saturating_mul(percent.parse().ok()?) / 100),
        None => text.parse().ok(),
    }
}

/// The first deadline that is not a valid duration. The pattern in OCM's definition accepts some, and such a rollout would
/// never time out.
pub fn invalid_deadline(strategy: &RolloutStrategy) -> Option<String> {
    let details = [
        strategy.all.as_ref().map(|all| ("all", &all.progress_deadline)),
        strategy
            .progressive
            .as_ref()
            .map(|progressive| ("progressive", &progressive.progress_deadline)),
        strategy
            .progressive_per_group
            .as_ref()
            .map(|per_group| ("progressivePerGroup", &per_group.progress_deadline)),
    ];
    let (field, text) = details
        .into_iter()
        .flatten()
        .find(|(_, text)| *text != "None" && duration(text).is_none())?;
    Some(format!(
        "rolloutStrategy.{field}.progressDeadline: {text:?} is not a duration: use one like 90s, 5m or 2h, or None"
    ))
}

/// A duration such as `90s`, `5m` or `2h`; `None` for the text `None` and anything else.
fn duration(text: &str) -> Option<Duration> {
    let nanos = go_duration::nanoseconds(text)?;
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

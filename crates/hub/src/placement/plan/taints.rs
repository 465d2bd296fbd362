//! Taints and tolerations.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use writ_api::cluster::{managed_cluster::TaintEffect, placement::Toleration};

use crate::placement::{
    cluster_view::{ClusterView, TaintView},
    model::Verdict,
};

/// Checks the tolerations.
pub fn validate(tolerations: &[Toleration]) -> Result<(), String> {
    for (index, toleration) in tolerations.iter().enumerate() {
        let key = toleration.key.as_deref().unwrap_or_default();
        let value = toleration.value.as_deref().unwrap_or_default();
        let problem = match operator(toleration) {
            "Exists" if !value.is_empty() => Some("value must be empty when operator is Exists".to_owned()),
            "Exists" | "Equal" if key.is_empty() && operator(toleration) == "Equal" => {
                Some("operator must be Exists when key is empty".to_owned())
            }
            "Exists" | "Equal" => None,
            other => Some(format!("operator {other:?} is neither Exists nor Equal")),
        };
        if let Some(problem) = problem {
            return Err(format!("spec.tolerations[{index}]: {problem}"));
        }
    }
    Ok(())
}

/// The verdict on a cluster by its taints. `chosen` is whether the placement has chosen it already.
pub fn judge(cluster: &ClusterView, tolerations: &[Toleration], chosen: bool, now: Timestamp) -> Verdict {
    let mut verdict = Verdict::default();
    for taint in &cluster.taints {
        let mut tolerated = false;
        for toleration in tolerations.iter().filter(|t| matches(t, taint)) {
            match remaining(toleration, taint, now) {
                None => tolerated = true,
                Some(left) if left > Duration::ZERO => {
                    tolerated = true;
                    verdict.until = Some(verdict.until.map_or(left, |until| until.min(left)));
                }
                Some(_) => {}
            }
        }
        if tolerated {
            continue;
        }
        match taint.effect {
            TaintEffect::NoSelectIfNew if chosen => continue,
            TaintEffect::NoSelect | TaintEffect::NoSelectIfNew => {}
            TaintEffect::PreferNoSelect => {
                verdict.disliked += 1;
                continue;
            }
        }
        verdict.refusal.get_or_insert_with(|| {
            format!(
                "it has the taint {}={}:{} that is not tolerated",
                taint.key,
                taint.value,
                taint.effect.as_str()
            )
        });
    }
    verdict
}

fn operator(toleration: &Toleration) -> &str {
    match toleration.operator.as_deref() {
        None | Some("") => "Equal",
        Some(operator) => operator,
    }
}

fn matches(toleration: &Toleration, taint: &TaintView) -> bool {
    let key = toleration.key.as_deref().unwrap_or_default();
    (key.is_empty() || key == taint.key)
        && toleration.effect.is_none_or(|effect| effect == taint.effect)
        && (operator(toleration) == "Exists"
            || toleration.value.as_deref().unwrap_or_default() == taint.value)
}

/// The time until the toleration ends; `None` if it never does.
fn remaining(toleration: &Toleration, taint: &TaintView, now: Timestamp) -> Option<Duration> {
    let seconds = toleration.toleration_seconds?;
    // A taint without a time counts as just added.
    let since = taint.since.unwrap_or(now);
    let end = since.saturating_add(SignedDuration::from_secs(seconds)).ok()?;
    Some(Duration::try_from(end.duration_since(now)).unwrap_or_default())
}

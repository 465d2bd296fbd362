//! Spread constraints: keep the numbers of chosen clusters per topology close to each other.

use std::collections::BTreeMap;

use writ_api::cluster::placement::{SpreadConstraint, TopologyKeyType, WhenUnsatisfiable};

use super::facts::Facts;

/// Chooses up to `wanted` of the candidates, which come best first, as the constraints allow. Returns the indexes
/// of the chosen ones and of those that a hard constraint keeps out.
pub fn choose(
    candidates: &[&Facts],
    constraints: &[SpreadConstraint],
    wanted: usize,
) -> (Vec<usize>, Vec<usize>) {
    if constraints.is_empty() {
        return ((0..candidates.len().min(wanted)).collect(), Vec::new());
    }
    // The topologies that exist among the candidates, and how many are chosen of each.
    let topologies: Vec<Vec<Option<&str>>> = constraints
        .iter()
        .map(|constraint| candidates.iter().map(|c| topology(c, constraint)).collect())
        .collect();
    let mut counts: Vec<BTreeMap<&str, usize>> = topologies
        .iter()
        .map(|of| of.iter().flatten().map(|value| (*value, 0)).collect())
        .collect();
    let mut open: Vec<usize> = (0..candidates.len()).collect();
    let mut chosen = Vec::new();
    while chosen.len() < wanted && !open.is_empty() {
        // The first candidate that breaks the fewest soft constraints, the most important ones first.
        let best = open
            .iter()
            .enumerate()
            .filter_map(|(position, candidate)| {
                let broken = broken(*candidate, constraints, &topologies, &counts)?;
                Some((broken, position))
            })
            .min();
        let Some((_, position)) = best else { break };
        let candidate = open.remove(position);
        for (of, counts) in topologies.iter().zip(&mut counts) {
            if let Some(count) = of
                .get(candidate)
                .copied()
                .flatten()
                .and_then(|v| counts.get_mut(v))
            {
                *count += 1;
            }
        }
        chosen.push(candidate);
    }
    let kept_out = if chosen.len() < wanted { open } else { Vec::new() };
    (chosen, kept_out)
}

/// Which soft constraints choosing the candidate would break; `None` if it breaks a hard one.
fn broken(
    candidate: usize,
    constraints: &[SpreadConstraint],
    topologies: &[Vec<Option<&str>>],
    counts: &[BTreeMap<&str, usize>],
) -> Option<Vec<bool>> {
    constraints
        .iter()
        .zip(topologies)
        .zip(counts)
        .map(|((constraint, of), counts)| {
            let skew = usize::try_from(constraint.max_skew.unwrap_or(1).max(1)).unwrap_or(1);
            let value = of.get(candidate).copied().flatten();
            let breaks = match value {
                // A cluster without the topology is in none: it cannot be spread.
                None => true,
                Some(value) => {
                    let least = counts.values().min().copied().unwrap_or(0);
                    counts.get(value).copied().unwrap_or(0) + 1 > least + skew
                }
            };
            match constraint.when_unsatisfiable.unwrap_or_default() {
                WhenUnsatisfiable::DoNotSchedule if breaks => None,
                _ => Some(breaks),
            }
        })
        .collect()
}

fn topology<'a>(cluster: &'a Facts, constraint: &SpreadConstraint) -> Option<&'a str> {
    let values = match constraint.topology_key_type {
        TopologyKeyType::Label => &cluster.labels,
        TopologyKeyType::Claim => &cluster.claims,
    };
    values.get(&constraint.topology_key).map(String::as_str)
}

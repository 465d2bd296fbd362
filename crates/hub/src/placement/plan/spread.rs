//! Spread constraints: keep the numbers of chosen clusters per topology close to each other.
//!
//! Candidates with the same topologies are alike to the constraints, so only the best of each kind is looked at for
//! every choice: the work grows with the choices times the kinds, not with the square of the fleet.

use std::collections::{BTreeMap, HashMap, VecDeque};

use writ_api::cluster::placement::{SpreadConstraint, TopologyKeyType, WhenUnsatisfiable};

use crate::placement::cluster_view::ClusterView;

/// A value of each topology; `None` where a cluster has none.
type Kind<'a> = Vec<Option<&'a str>>;

/// How many clusters of each value of one topology are chosen.
struct Topology<'a> {
    skew: usize,
    hard: bool,
    chosen: HashMap<&'a str, usize>,
    /// How many values have been chosen so often: the first key is the least.
    values: BTreeMap<usize, usize>,
}

impl<'a> Topology<'a> {
    fn new(constraint: &SpreadConstraint, values: impl Iterator<Item = &'a str>) -> Self {
        let chosen: HashMap<&str, usize> = values.map(|value| (value, 0)).collect();
        Self {
            skew: usize::try_from(constraint.max_skew.unwrap_or(1).max(1)).unwrap_or(1),
            hard: constraint.when_unsatisfiable.unwrap_or_default() == WhenUnsatisfiable::DoNotSchedule,
            values: BTreeMap::from([(0, chosen.len())]),
            chosen,
        }
    }

    /// Whether one more of this value would break the constraint.
    fn breaks(&self, value: Option<&str>) -> bool {
        // A cluster without the topology is in none: it cannot be spread.
        value.is_none_or(|value| {
            let least = self.values.keys().next().copied().unwrap_or(0);
            self.chosen.get(value).copied().unwrap_or(0) + 1 > least + self.skew
        })
    }

    fn count(&mut self, value: Option<&str>) {
        let Some(count) = value.and_then(|value| self.chosen.get_mut(value)) else {
            return;
        };
        if let Some(values) = self.values.get_mut(count) {
            *values -= 1;
            if *values == 0 {
                self.values.remove(count);
            }
        }
        *count += 1;
        *self.values.entry(*count).or_default() += 1;
    }
}

/// Chooses up to `wanted` of the candidates, which come best first, as the constraints allow. Returns the indexes
/// of the chosen ones and of those that a hard constraint keeps out.
pub fn choose(
    candidates: &[&ClusterView],
    constraints: &[SpreadConstraint],
    wanted: usize,
) -> (Vec<usize>, Vec<usize>) {
    if constraints.is_empty() {
        return ((0..candidates.len().min(wanted)).collect(), Vec::new());
    }
    let mut numbers: HashMap<Kind, usize> = HashMap::new();
    let mut kinds: Vec<(Kind, VecDeque<usize>)> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let kind = constraints
            .iter()
            .map(|c| topology(candidate, c))
            .collect::<Kind>();
        let number = *numbers.entry(kind.clone()).or_insert_with(|| {
            kinds.push((kind, VecDeque::new()));
            kinds.len() - 1
        });
        if let Some((_, waiting)) = kinds.get_mut(number) {
            waiting.push_back(index);
        }
    }
    let mut topologies: Vec<Topology> = constraints
        .iter()
        .enumerate()
        .map(|(at, constraint)| {
            let values = kinds
                .iter()
                .filter_map(|(kind, _)| kind.get(at).copied().flatten());
            Topology::new(constraint, values)
        })
        .collect();
    let mut chosen = Vec::new();
    while chosen.len() < wanted {
        // The first candidate that breaks the fewest soft constraints, the most important ones first.
        let best = kinds
            .iter()
            .enumerate()
            .filter_map(|(number, (kind, waiting))| {
                Some((broken(kind, &topologies)?, *waiting.front()?, number))
            })
            .min();
        let Some((_, index, number)) = best else { break };
        if let Some((kind, waiting)) = kinds.get_mut(number) {
            waiting.pop_front();
            for (topology, value) in topologies.iter_mut().zip(kind.iter()) {
                topology.count(*value);
            }
        }
        chosen.push(index);
    }
    let kept_out = if chosen.len() < wanted {
        kinds.into_iter().flat_map(|(_, waiting)| waiting).collect()
    } else {
        Vec::new()
    };
    (chosen, kept_out)
}

/// Which soft constraints choosing a cluster of this kind would break; `None` if it breaks a hard one.
fn broken(kind: &[Option<&str>], topologies: &[Topology]) -> Option<Vec<bool>> {
    topologies
        .iter()
        .zip(kind)
        .map(|(topology, value)| {
            let breaks = topology.breaks(*value);
            (!(breaks && topology.hard)).then_some(breaks)
        })
        .collect()
}

/// The value that a cluster has for the topology of a constraint.
pub fn topology<'a>(cluster: &'a ClusterView, constraint: &SpreadConstraint) -> Option<&'a str> {
    let values = match constraint.topology_key_type {
        TopologyKeyType::Label => &cluster.labels,
        TopologyKeyType::Claim => &cluster.claims,
    };
    values.get(&constraint.topology_key).map(String::as_str)
}

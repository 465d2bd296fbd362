//! Spread constraints: similar numbers of chosen clusters per value of a topology.
//!
//! Candidates with the same values are equal to the constraints, so each choice compares only the best candidate of each
//! combination of values. The cost grows with choices times combinations, not with the square of the candidates.

use std::collections::{BTreeMap, HashMap, VecDeque};

use writ_api::cluster::placement::{SpreadConstraint, TopologyKeyType, WhenUnsatisfiable};

use crate::placement::cluster_view::ClusterView;

/// The values of a cluster, one per constraint; `None` where it has none.
type Values<'a> = Vec<Option<&'a str>>;

/// The topology of one constraint: how many clusters of each value are chosen.
struct Topology<'a> {
    skew: usize,
    hard: bool,
    chosen: HashMap<&'a str, usize>,
    /// How many values have each number of chosen clusters; the first key is the minimum.
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

    /// Whether choosing one more cluster of this value would break the constraint.
    fn breaks(&self, value: Option<&str>) -> bool {
        // A cluster without a value cannot be spread.
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

/// Chooses up to `wanted` of the candidates, which are sorted best first. Returns the indexes of the chosen candidates, and
/// of those that a hard constraint excludes.
pub fn choose(
    candidates: &[&ClusterView],
    constraints: &[SpreadConstraint],
    wanted: usize,
) -> (Vec<usize>, Vec<usize>) {
    if constraints.is_empty() {
        return ((0..candidates.len().min(wanted)).collect(), Vec::new());
    }
    let mut numbers: HashMap<Values, usize> = HashMap::new();
    let mut combinations: Vec<(Values, VecDeque<usize>)> = Vec::new();
    for (index, candidate) in candidates.iter().enumerate() {
        let values = constraints
            .iter()
            .map(|c| topology(candidate, c))
            .collect::<Values>();
        let number = *numbers.entry(values.clone()).or_insert_with(|| {
            combinations.push((values, VecDeque::new()));
            combinations.len() - 1
        });
        if let Some((_, waiting)) = combinations.get_mut(number) {
            waiting.push_back(index);
        }
    }
    let mut topologies: Vec<Topology> = constraints
        .iter()
        .enumerate()
        .map(|(at, constraint)| {
            let values = combinations
                .iter()
                .filter_map(|(values, _)| values.get(at).copied().flatten());
            Topology::new(constraint, values)
        })
        .collect();
    let mut chosen = Vec::new();
    while chosen.len() < wanted {
        // The first candidate that breaks the fewest soft constraints, the most important ones first.
        let best = combinations
            .iter()
            .enumerate()
            .filter_map(|(number, (values, waiting))| {
                Some((broken(values, &topologies)?, *waiting.front()?, number))
            })
            .min();
        let Some((_, index, number)) = best else { break };
        if let Some((values, waiting)) = combinations.get_mut(number) {
            waiting.pop_front();
            for (topology, value) in topologies.iter_mut().zip(values.iter()) {
                topology.count(*value);
            }
        }
        chosen.push(index);
    }
    let kept_out = if chosen.len() < wanted {
        combinations
            .into_iter()
            .flat_map(|(_, waiting)| waiting)
            .collect()
    } else {
        Vec::new()
    };
    (chosen, kept_out)
}

/// The soft constraints that choosing a cluster with these values would break; `None` if it breaks a hard one.
fn broken(values: &[Option<&str>], topologies: &[Topology]) -> Option<Vec<bool>> {
    topologies
        .iter()
        .zip(values)
        .map(|(topology, value)| {
            let breaks = topology.breaks(*value);
            (!(breaks && topology.hard)).then_some(breaks)
        })
        .collect()
}

/// The value of a cluster for the topology of a constraint.
pub fn topology<'a>(cluster: &'a ClusterView, constraint: &SpreadConstraint) -> Option<&'a str> {
    let values = match constraint.topology_key_type {
        TopologyKeyType::Label => &cluster.labels,
        TopologyKeyType::Claim => &cluster.claims,
    };
    values.get(&constraint.topology_key).map(String::as_str)
}

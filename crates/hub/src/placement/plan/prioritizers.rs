//! Scores: the order in which clusters are chosen.

use std::collections::BTreeMap;

use writ_api::cluster::placement::{PlacementSpec, ScoreType};

/// The source of a score.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Prefers clusters that few other placements have chosen.
    Balance,
    /// Prefers clusters that the placement has chosen already.
    Steady,
    /// Prefers clusters with more allocatable processors.
    Cpu,
    /// Prefers clusters with more allocatable memory.
    Memory,
    /// A score of an add-on: the name of the AddOnPlacementScore and the name of the score.
    AddOn(String, String),
}

/// The weight of every source that counts.
pub fn weights(spec: &PlacementSpec) -> Result<BTreeMap<Source, i64>, String> {
    let policy = spec.prioritizer_policy.clone().unwrap_or_default();
    let mut weights = match policy.mode.as_deref() {
        None | Some("" | "Additive") => BTreeMap::from([(Source::Balance, 1), (Source::Steady, 1)]),
        Some("Exact") => BTreeMap::new(),
        Some(other) => {
            return Err(format!(
                "spec.prioritizerPolicy.mode: {other:?} is neither Additive nor Exact"
            ));
        }
    };
    for (index, config) in policy.configurations.iter().enumerate() {
        let at =
            |why: String| format!("spec.prioritizerPolicy.configurations[{index}].scoreCoordinate: {why}");
        let coordinate = &config.score_coordinate;
        let source = match (coordinate.type_, &coordinate.built_in, &coordinate.add_on) {
            (ScoreType::BuiltIn, Some(name), _) => match name.as_str() {
                "Balance" => Source::Balance,
                "Steady" => Source::Steady,
                "ResourceAllocatableCPU" => Source::Cpu,
                "ResourceAllocatableMemory" => Source::Memory,
                other => return Err(at(format!("there is no built-in score {other:?}"))),
            },
            (ScoreType::AddOn, _, Some(score)) => {
                Source::AddOn(score.resource_name.clone(), score.score_name.clone())
            }
            (ScoreType::BuiltIn, None, _) => return Err(at("builtIn is missing".into())),
            (ScoreType::AddOn, _, None) => return Err(at("addOn is missing".into())),
        };
        weights.insert(source, i64::from(config.weight.unwrap_or(1)));
    }
    weights.retain(|_, weight| *weight != 0);
    Ok(weights)
}

/// Scales values linearly to -100 to 100; equal values are all 100, and a missing value is -100.
pub fn normalize(values: &[Option<i128>]) -> Vec<i64> {
    let known = || values.iter().flatten();
    let (Some(min), Some(max)) = (known().min(), known().max()) else {
        return vec![0; values.len()];
    };
    values
        .iter()
        .map(|value| match value {
            None => -100,
            Some(_) if min == max => 100,
            Some(value) => i64::try_from((value - min) * 200 / (max - min) - 100).unwrap_or_default(),
        })
        .collect()
}

/// The balance scores of clusters, from how often other placements have chosen each: -100 for the most often, 100 for
/// never.
pub fn balance(counts: &[usize]) -> Vec<i64> {
    let max = counts.iter().copied().max().unwrap_or(0);
    counts
        .iter()
        .map(|count| {
            if max == 0 {
                return 100;
            }
            let (count, max) = (
                i64::try_from(*count).unwrap_or(i64::MAX),
                i64::try_from(max).unwrap_or(i64::MAX),
            );
            100 - count.saturating_mul(200) / max
        })
        .collect()
}

//! AddOnScores: what makes one cluster better than another.

use std::collections::BTreeMap;

use writ_api::cluster::placement::{PlacementSpec, ScoreType};

/// Where a score comes from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// Clusters that few other placements chose come first.
    Balance,
    /// Clusters that the placement has already come first.
    Steady,
    /// Clusters with more allocatable processors come first.
    Cpu,
    /// Clusters with more allocatable memory come first.
    Memory,
    /// A score of an AddOnPlacementScore: its name and the score's.
    AddOn(String, String),
}

/// The weight of every score that counts.
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

/// Spreads values linearly over -100 to 100; 100 for all if they are equal. What has no value gets the least.
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

/// The balance score of clusters that are chosen so often by other placements: 100 for the least, -100 for the most.
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

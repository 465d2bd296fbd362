//! Decision groups, and which object each chosen cluster is written in.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::core::{Selector, SelectorExt};
use writ_api::cluster::{placement::PlacementSpec, placement_decision::MAX_DECISIONS};

use super::{facts::Facts, predicates};

/// How the chosen clusters are divided.
pub struct Groups {
    named: Vec<(String, Selector, Selector)>,
    size: Size,
}

enum Size {
    Number(usize),
    Percent(usize),
}

/// One decision object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// Its number, which is part of its name and stays.
    pub slot: usize,
    /// The number of the group that it belongs to.
    pub group: usize,
    /// The name of that group, empty if it has none.
    pub group_name: String,
    /// The clusters in it, by name.
    pub clusters: Vec<String>,
}

impl Groups {
    /// Reads the strategy of a placement.
    pub fn compile(spec: &PlacementSpec) -> Result<Self, String> {
        let strategy = spec
            .decision_strategy
            .clone()
            .and_then(|s| s.group_strategy)
            .unwrap_or_default();
        let mut named = Vec::new();
        for (index, group) in strategy.decision_groups.iter().enumerate() {
            let at =
                |why: String| format!("spec.decisionStrategy.groupStrategy.decisionGroups[{index}]: {why}");
            let selector = &group.group_cluster_selector;
            named.push((
                group.group_name.clone(),
                predicates::labels(selector.label_selector.as_ref()).map_err(at)?,
                predicates::claims(selector.claim_selector.as_ref()).map_err(at)?,
            ));
        }
        let bad =
            |text: &str| format!("spec.decisionStrategy.groupStrategy.clustersPerDecisionGroup: {text:?}");
        let size = match &strategy.clusters_per_decision_group {
            None => Size::Percent(100),
            Some(IntOrString::Int(number)) => {
                Size::Number(usize::try_from(*number).map_err(|_| bad(&number.to_string()))?)
            }
            Some(IntOrString::String(text)) => match text.strip_suffix('%') {
                Some(percent) => Size::Percent(percent.parse().map_err(|_| bad(text))?),
                None => Size::Number(text.parse().map_err(|_| bad(text))?),
            },
        };
        Ok(Self { named, size })
    }

    /// Whether there is only one group, whatever is chosen.
    pub fn is_one(&self) -> bool {
        self.named.is_empty() && matches!(self.size, Size::Percent(100))
    }

    /// The number of the named group that a cluster belongs to.
    pub fn group_of(&self, cluster: &Facts) -> Option<usize> {
        self.named.iter().position(|(_, labels, claims)| {
            labels.matches(&cluster.labels) && claims.matches(&cluster.claims)
        })
    }

    /// Divides the chosen clusters into groups, in order, and each group into objects of at most a hundred.
    ///
    /// `before` tells the object that each cluster was written in. A cluster stays in its object as long as it
    /// stays in its group, so that nobody who reads the objects one by one sees it vanish.
    pub fn divide(&self, chosen: &[&Facts], before: &BTreeMap<String, usize>) -> Vec<Object> {
        let size = match self.size {
            Size::Number(number) => number,
            Size::Percent(percent) => (chosen.len() * percent).div_ceil(100),
        }
        .max(1);
        let mut rest: Vec<&Facts> = chosen.to_vec();
        let mut objects = Vec::new();
        let mut number = 0;
        let mut used = BTreeSet::new();
        for (name, labels, claims) in &self.named {
            let (members, others): (Vec<&Facts>, Vec<&Facts>) = rest
                .into_iter()
                .partition(|c| labels.matches(&c.labels) && claims.matches(&c.claims));
            rest = others;
            cut(members, name, size, &mut number, before, &mut used, &mut objects);
        }
        cut(rest, "", size, &mut number, before, &mut used, &mut objects);
        if objects.is_empty() {
            // There is always one object, if only an empty one: who waits for decisions sees that there are none.
            objects.push(Object::default());
        }
        objects
    }
}

fn cut(
    members: Vec<&Facts>,
    name: &str,
    size: usize,
    number: &mut usize,
    before: &BTreeMap<String, usize>,
    used: &mut BTreeSet<usize>,
    objects: &mut Vec<Object>,
) {
    let mut members: Vec<&str> = members.into_iter().map(|c| c.name.as_str()).collect();
    members.sort_unstable();
    for group in members.chunks(size) {
        let mut of_group: BTreeMap<usize, Vec<String>> = BTreeMap::new();
        let mut homeless = Vec::new();
        let room = |of_group: &BTreeMap<usize, Vec<String>>, slot: usize| {
            of_group.get(&slot).map_or(0, Vec::len) < MAX_DECISIONS
        };
        for cluster in group {
            match before.get(*cluster) {
                Some(slot) if !used.contains(slot) && room(&of_group, *slot) => {
                    of_group.entry(*slot).or_default().push((*cluster).to_owned());
                }
                _ => homeless.push((*cluster).to_owned()),
            }
        }
        let mut next = 0;
        for cluster in homeless {
            while used.contains(&next) || !room(&of_group, next) {
                next += 1;
            }
            of_group.entry(next).or_default().push(cluster);
        }
        for (slot, mut clusters) in of_group {
            clusters.sort_unstable();
            used.insert(slot);
            objects.push(Object {
                slot,
                group: *number,
                group_name: name.to_owned(),
                clusters,
            });
        }
        *number += 1;
    }
}

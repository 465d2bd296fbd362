//! Decision groups, and the decision object in which each chosen cluster is written.

use std::{cmp::Reverse, collections::BTreeMap};

use kube::core::{Selector, SelectorExt};
use writ_api::cluster::{placement::PlacementSpec, placement_decision::MAX_DECISIONS};

use super::predicates;
use crate::placement::{
    cluster_view::ClusterView,
    model::{DecisionObject, Location},
};

/// How the chosen clusters are divided into groups.
pub struct Groups {
    named: Vec<(String, Selector, Selector)>,
    size: Size,
}

enum Size {
    Number(usize),
    Percent(usize),
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
        let written = strategy
            .clusters_per_decision_group
            .map_or("100%".into(), |size| size.to_string());
        let size = match written.strip_suffix('%') {
            Some(percent) => Size::Percent(percent.parse().map_err(|_| bad(&written))?),
            None => Size::Number(written.parse().map_err(|_| bad(&written))?),
        };
        Ok(Self { named, size })
    }

    /// Whether there is only one group, whatever is chosen.
    pub fn is_one(&self) -> bool {
        self.named.is_empty() && matches!(self.size, Size::Percent(100))
    }

    /// The number of the named group that a cluster belongs to.
    pub fn group_of(&self, cluster: &ClusterView) -> Option<usize> {
        self.named.iter().position(|(_, labels, claims)| {
            labels.matches(&cluster.labels) && claims.matches(&cluster.claims)
        })
    }

    /// Divides the chosen clusters into groups, in order, and each group into objects of at most a hundred clusters.
    ///
    /// `before` is where each cluster was written. A cluster stays in its group while that is not full, so that a new
    /// cluster does not restart a rollout by groups. It stays in its object while it stays in its group, so that a reader
    /// of single objects does not see it vanish.
    pub fn divide(
        &self,
        chosen: &[&ClusterView],
        before: &BTreeMap<String, Location>,
    ) -> Vec<DecisionObject> {
        let size = match self.size {
            Size::Number(number) => number,
            Size::Percent(percent) => (chosen.len() * percent).div_ceil(100),
        }
        .max(1);
        let mut rest: Vec<&ClusterView> = chosen.to_vec();
        let mut groups = Vec::new();
        for (name, labels, claims) in &self.named {
            let (members, others): (Vec<&ClusterView>, Vec<&ClusterView>) = rest
                .into_iter()
                .partition(|c| labels.matches(&c.labels) && claims.matches(&c.claims));
            rest = others;
            groups.extend(gather(&members, name, size, before));
        }
        groups.extend(gather(&rest, "", size, before));
        let mut objects = lay_out(&groups, before);
        if objects.is_empty() {
            // An empty object shows readers that the placement is scheduled and has no clusters.
            objects.push(DecisionObject::default());
        }
        objects
    }
}

/// One group: the clusters that stay in it, and the clusters that enter it.
#[derive(Default)]
struct Group<'a> {
    name: &'a str,
    stay: Vec<&'a str>,
    enter: Vec<&'a str>,
}

/// Divides clusters into as few groups of one name as can hold them. Clusters keep their group; clusters without one fill
/// existing groups, then new ones. If there are more groups than needed, the smallest are dissolved.
fn gather<'a>(
    members: &[&'a ClusterView],
    name: &'a str,
    size: usize,
    before: &BTreeMap<String, Location>,
) -> Vec<Group<'a>> {
    let mut members: Vec<&str> = members.iter().map(|c| c.name.as_str()).collect();
    members.sort_unstable();
    let wanted = members.len().div_ceil(size);
    let mut known: BTreeMap<usize, Vec<&str>> = BTreeMap::new();
    let mut entering = Vec::new();
    for cluster in members {
        let location = before.get(cluster).filter(|location| location.group_name == name);
        match location.map(|location| known.entry(location.group).or_default()) {
            Some(group) if group.len() < size => group.push(cluster),
            _ => entering.push(cluster),
        }
    }
    let mut known: Vec<(usize, Vec<&str>)> = known.into_iter().collect();
    known.sort_by_key(|(number, stay)| (Reverse(stay.len()), *number));
    let dissolved = known.split_off(wanted.min(known.len()));
    entering.extend(dissolved.into_iter().flat_map(|(_, clusters)| clusters));
    entering.sort_unstable();
    known.sort_by_key(|(number, _)| *number);
    let mut groups: Vec<Group> = known
        .into_iter()
        .map(|(_, stay)| Group {
            name,
            stay,
            enter: Vec::new(),
        })
        .collect();
    groups.resize_with(wanted, || Group {
        name,
        ..Group::default()
    });
    let mut entering = entering.into_iter();
    for group in &mut groups {
        let room = size.saturating_sub(group.stay.len());
        group.enter.extend(entering.by_ref().take(room));
    }
    groups
}

/// Divides each group into objects. Clusters that stay in the group stay in their object; the others enter the first object
/// that is not full.
fn lay_out(groups: &[Group], before: &BTreeMap<String, Location>) -> Vec<DecisionObject> {
    // The group of each object, and its clusters.
    let mut objects: BTreeMap<usize, (usize, Vec<&str>)> = BTreeMap::new();
    let mut unplaced: Vec<(usize, &str)> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        for cluster in &group.stay {
            let slot = before.get(*cluster).map_or(0, |location| location.slot);
            match objects.entry(slot).or_insert_with(|| (number, Vec::new())) {
                (owner, clusters) if *owner == number && clusters.len() < MAX_DECISIONS => {
                    clusters.push(cluster);
                }
                _ => unplaced.push((number, cluster)),
            }
        }
        unplaced.extend(group.enter.iter().map(|cluster| (number, *cluster)));
    }
    unplaced.sort_by_key(|(number, _)| *number);
    let (mut of, mut next) = (0, 0);
    for (number, cluster) in unplaced {
        if number != of {
            (of, next) = (number, 0);
        }
        loop {
            let (owner, clusters) = objects.entry(next).or_insert_with(|| (number, Vec::new()));
            if *owner == number && clusters.len() < MAX_DECISIONS {
                clusters.push(cluster);
                break;
            }
            next += 1;
        }
    }
    let mut objects: Vec<DecisionObject> = objects
        .into_iter()
        .map(|(slot, (group, mut clusters))| {
            clusters.sort_unstable();
            DecisionObject {
                slot,
                group,
                group_name: groups.get(group).map_or("", |group| group.name).to_owned(),
                clusters: clusters.into_iter().map(str::to_owned).collect(),
            }
        })
        .collect();
    objects.sort_by_key(|object| (object.group, object.slot));
    objects
}

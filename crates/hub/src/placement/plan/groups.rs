//! Decision groups, and which object each chosen cluster is written in.

use std::{cmp::Reverse, collections::BTreeMap};

use kube::core::{Selector, SelectorExt};
use writ_api::cluster::{placement::PlacementSpec, placement_decision::MAX_DECISIONS};

use super::predicates;
use crate::placement::{
    cluster_view::ClusterView,
    model::{DecisionObject, Location},
};

/// How the chosen clusters are divided.
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

    /// Divides the chosen clusters into groups, in order, and each group into objects of at most a hundred.
    ///
    /// `before` tells where each cluster was written. A cluster stays in its group while the group has room for it, and
    /// in its object as long as it stays in its group: no rollout by groups starts anew because one cluster came, and
    /// nobody who reads the objects one by one sees it vanish.
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
            // There is always one object, if only an empty one: who waits for decisions sees that there are none.
            objects.push(DecisionObject::default());
        }
        objects
    }
}

/// One group: who was in it before, and who comes.
#[derive(Default)]
struct Group<'a> {
    name: &'a str,
    stay: Vec<&'a str>,
    come: Vec<&'a str>,
}

/// Cuts clusters into as few groups of one name as can hold them. Who has a group keeps it; who has none fills up what
/// is there, then new ones. If there are too many groups, the smallest are given up.
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
    let mut come = Vec::new();
    for cluster in members {
        let home = before.get(cluster).filter(|home| home.group_name == name);
        match home.map(|home| known.entry(home.group).or_default()) {
            Some(group) if group.len() < size => group.push(cluster),
            _ => come.push(cluster),
        }
    }
    let mut known: Vec<(usize, Vec<&str>)> = known.into_iter().collect();
    known.sort_by_key(|(number, stay)| (Reverse(stay.len()), *number));
    let given_up = known.split_off(wanted.min(known.len()));
    come.extend(given_up.into_iter().flat_map(|(_, clusters)| clusters));
    come.sort_unstable();
    known.sort_by_key(|(number, _)| *number);
    let mut groups: Vec<Group> = known
        .into_iter()
        .map(|(_, stay)| Group {
            name,
            stay,
            come: Vec::new(),
        })
        .collect();
    groups.resize_with(wanted, || Group {
        name,
        ..Group::default()
    });
    let mut come = come.into_iter();
    for group in &mut groups {
        let room = size.saturating_sub(group.stay.len());
        group.come.extend(come.by_ref().take(room));
    }
    groups
}

/// Divides each group into objects. Who stays in the group stays in the object; who comes enters the first with room.
fn lay_out(groups: &[Group], before: &BTreeMap<String, Location>) -> Vec<DecisionObject> {
    // Which group has an object, and who is in it.
    let mut objects: BTreeMap<usize, (usize, Vec<&str>)> = BTreeMap::new();
    let mut homeless: Vec<(usize, &str)> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        for cluster in &group.stay {
            let slot = before.get(*cluster).map_or(0, |home| home.slot);
            match objects.entry(slot).or_insert_with(|| (number, Vec::new())) {
                (owner, clusters) if *owner == number && clusters.len() < MAX_DECISIONS => {
                    clusters.push(cluster);
                }
                _ => homeless.push((number, cluster)),
            }
        }
        homeless.extend(group.come.iter().map(|cluster| (number, *cluster)));
    }
    homeless.sort_by_key(|(number, _)| *number);
    let (mut of, mut next) = (0, 0);
    for (number, cluster) in homeless {
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

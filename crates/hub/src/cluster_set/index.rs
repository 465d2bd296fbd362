//! Which clusters are members of which set, kept up to date at the cost of what a change touches.

use std::collections::{BTreeMap, BTreeSet};

use super::membership::{Labels, Membership, Selection, SetView};

/// All sets and clusters with their memberships.
#[derive(Debug, Default)]
pub struct MembershipIndex {
    sets: BTreeMap<String, SetEntry>,
    clusters: BTreeMap<String, ClusterEntry>,
    /// The sets that do not select by one label; every cluster is compared with each of them.
    by_selector: BTreeSet<String>,
}

#[derive(Debug)]
struct SetEntry {
    view: SetView,
    members: BTreeSet<String>,
    unconfirmed: BTreeSet<String>,
}

#[derive(Debug, Default, PartialEq)]
struct ClusterEntry {
    labels: Labels,
    joined: Option<String>,
    sets: BTreeMap<String, Membership>,
}

impl MembershipIndex {
    /// Adds or replaces a cluster; returns the sets whose membership of it changed.
    pub fn upsert_cluster(&mut self, name: &str, labels: &Labels, joined: Option<&str>) -> BTreeSet<String> {
        if let Some(known) = self.clusters.get(name)
            && known.labels == *labels
            && known.joined.as_deref() == joined
        {
            return BTreeSet::new();
        }
        let sets = self.memberships(labels, joined);
        let entry = ClusterEntry {
            labels: labels.clone(),
            joined: joined.map(str::to_owned),
            sets: sets.clone(),
        };
        let before = self
            .clusters
            .insert(name.to_owned(), entry)
            .map(|e| e.sets)
            .unwrap_or_default();
        self.move_cluster(name, &before, &sets)
    }

    /// Removes a cluster; returns the sets that lost it.
    pub fn remove_cluster(&mut self, name: &str) -> BTreeSet<String> {
        let before = self.clusters.remove(name).map(|e| e.sets).unwrap_or_default();
        self.move_cluster(name, &before, &BTreeMap::new())
    }

    /// Adds or replaces a set; returns the clusters whose membership changed.
    pub fn upsert_set(&mut self, view: SetView) -> BTreeSet<String> {
        if self.sets.get(&view.name).is_some_and(|known| known.view == view) {
            return BTreeSet::new();
        }
        let name = view.name.clone();
        let mut changed = self.remove_set(&name);
        if !matches!(view.selection, Selection::Label { .. }) {
            self.by_selector.insert(name.clone());
        }
        let (mut members, mut unconfirmed) = (BTreeSet::new(), BTreeSet::new());
        for (cluster, entry) in &mut self.clusters {
            let membership = view.membership(&entry.labels, entry.joined.as_deref());
            match membership {
                Membership::Member => members.insert(cluster.clone()),
                Membership::Unconfirmed => unconfirmed.insert(cluster.clone()),
                Membership::NotMember => continue,
            };
            entry.sets.insert(name.clone(), membership);
            changed.insert(cluster.clone());
        }
        self.sets.insert(
            name,
            SetEntry {
                view,
                members,
                unconfirmed,
            },
        );
        changed
    }

    /// Removes a set; returns the clusters that it selected.
    pub fn remove_set(&mut self, name: &str) -> BTreeSet<String> {
        self.by_selector.remove(name);
        let Some(entry) = self.sets.remove(name) else {
            return BTreeSet::new();
        };
        let clusters: BTreeSet<String> = entry.members.into_iter().chain(entry.unconfirmed).collect();
        for cluster in &clusters {
            if let Some(entry) = self.clusters.get_mut(cluster) {
                entry.sets.remove(name);
            }
        }
        clusters
    }

    /// The set of that name.
    pub fn set(&self, name: &str) -> Option<&SetView> {
        self.sets.get(name).map(|entry| &entry.view)
    }

    /// The members of a set, in order.
    pub fn members(&self, set: &str) -> Option<&BTreeSet<String>> {
        self.sets.get(set).map(|entry| &entry.members)
    }

    /// The clusters that carry the label of a set and are not confirmed in it.
    pub fn unconfirmed(&self, set: &str) -> Option<&BTreeSet<String>> {
        self.sets.get(set).map(|entry| &entry.unconfirmed)
    }

    /// The sets that a cluster is a member of.
    pub fn sets_of(&self, cluster: &str) -> impl Iterator<Item = &str> {
        self.clusters
            .get(cluster)
            .into_iter()
            .flat_map(|entry| &entry.sets)
            .filter(|(_, membership)| **membership == Membership::Member)
            .map(|(set, _)| set.as_str())
    }

    /// The exclusive keys of all sets.
    pub fn keys(&self) -> BTreeSet<&str> {
        self.sets
            .values()
            .filter_map(|entry| match &entry.view.selection {
                Selection::Label { key, .. } => Some(key.as_str()),
                _ => None,
            })
            .collect()
    }

    /// The names of all clusters.
    pub fn cluster_names(&self) -> impl Iterator<Item = &String> {
        self.clusters.keys()
    }

    /// The clusters with a label of this value, under any key.
    pub fn clusters_with_label_value<'a>(&'a self, value: &'a str) -> impl Iterator<Item = &'a String> {
        let clusters = self.clusters.iter();
        clusters
            .filter(move |(_, entry)| entry.labels.values().any(|known| known == value))
            .map(|(name, _)| name)
    }

    fn memberships(&self, labels: &Labels, joined: Option<&str>) -> BTreeMap<String, Membership> {
        // The value of the label is the name of the set, so no key has to be searched for.
        let by_label = labels.values().filter_map(|value| {
            let entry = self.sets.get(value)?;
            matches!(entry.view.selection, Selection::Label { .. }).then_some(entry)
        });
        let by_selector = self.by_selector.iter().filter_map(|name| self.sets.get(name));
        by_label
            .chain(by_selector)
            .map(|entry| (entry.view.name.clone(), entry.view.membership(labels, joined)))
            .filter(|(_, membership)| *membership != Membership::NotMember)
            .collect()
    }

    fn move_cluster(
        &mut self,
        cluster: &str,
        before: &BTreeMap<String, Membership>,
        after: &BTreeMap<String, Membership>,
    ) -> BTreeSet<String> {
        let mut changed = BTreeSet::new();
        for name in before.keys().chain(after.keys()) {
            let (was, is) = (before.get(name), after.get(name));
            if was == is {
                continue;
            }
            changed.insert(name.clone());
            if let Some(entry) = self.sets.get_mut(name) {
                entry.members.remove(cluster);
                entry.unconfirmed.remove(cluster);
                match is {
                    Some(Membership::Member) => entry.members.insert(cluster.to_owned()),
                    Some(Membership::Unconfirmed) => entry.unconfirmed.insert(cluster.to_owned()),
                    _ => false,
                };
            }
        }
        changed
    }
}

//! Follows sets and clusters, and names what each change concerns.

use std::{
    collections::BTreeSet,
    sync::{Mutex, MutexGuard, PoisonError},
};

use kube::ResourceExt;
use writ_api::cluster::{DEFAULT_SET, GLOBAL_SET, ManagedCluster, ManagedClusterSet};

use super::{
    index::MembershipIndex,
    membership::{JOINED_ANNOTATION, SetView},
    model::Item,
};

/// The memberships, shared by the watches and the reconciles.
#[derive(Debug)]
pub struct Observed {
    state: Mutex<State>,
    guard_default_key: bool,
}

/// What the watches have shown.
#[derive(Debug, Default)]
pub struct State {
    /// The memberships.
    pub index: MembershipIndex,
    /// The keys of sets that were deleted while this process ran: clusters may still carry their labels.
    pub gone_keys: BTreeSet<String>,
}

impl Observed {
    /// Nothing is observed yet. `guard_default_key` is the hub's option of that name.
    pub fn new(guard_default_key: bool) -> Self {
        Self {
            state: Mutex::default(),
            guard_default_key,
        }
    }

    /// What the watches have shown so far.
    pub fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a cluster. It concerns the sets that gain or lose it, and its own reports.
    pub fn take_cluster(&self, name: &str, new: Option<&ManagedCluster>) -> Vec<Item> {
        let index = &mut self.lock().index;
        let sets = match new {
            Some(cluster) => {
                let joined = cluster.annotations().get(JOINED_ANNOTATION).map(String::as_str);
                index.upsert_cluster(name, cluster.labels(), joined)
            }
            None => index.remove_cluster(name),
        };
        let cluster = new.map(|_| Item::Cluster(name.to_owned()));
        cluster
            .into_iter()
            .chain(sets.into_iter().map(Item::Set))
            .collect()
    }

    /// Takes in a set. It concerns the clusters whose membership or namespaces change, and the labels that name it.
    pub fn take_set(
        &self,
        name: &str,
        old: Option<&ManagedClusterSet>,
        new: Option<&ManagedClusterSet>,
    ) -> Vec<Item> {
        let State { index, gone_keys } = &mut *self.lock();
        let keys = |index: &MembershipIndex| -> BTreeSet<String> {
            index.keys().into_iter().map(str::to_owned).collect()
        };
        let known_keys = keys(index);
        let mut clusters = match new {
            Some(set) => index.upsert_set(SetView::of(set, self.guard_default_key)),
            None => index.remove_set(name),
        };
        if old.map(asked_namespaces) != new.map(asked_namespaces) {
            clusters.extend(index.members(name).into_iter().flatten().cloned());
        }
        if old.is_none() || new.is_none() {
            clusters.extend(index.clusters_with_label_value(name).cloned());
        }
        if keys(index) != known_keys {
            clusters.extend(index.cluster_names().cloned());
        }
        if new.is_none() {
            gone_keys.extend(old.and_then(|set| set.spec.key()).map(str::to_owned));
        }
        let is_standing = [DEFAULT_SET, GLOBAL_SET].contains(&name);
        [Item::Set(name.to_owned())]
            .into_iter()
            .chain(is_standing.then_some(Item::StandingSets))
            .chain(clusters.into_iter().map(Item::Cluster))
            .collect()
    }
}

/// The namespaces that a set asks its clusters for.
fn asked_namespaces(set: &ManagedClusterSet) -> Vec<String> {
    if set.metadata.deletion_timestamp.is_some() {
        return Vec::new();
    }
    let namespaces = set.spec.managed_namespaces.iter();
    namespaces.map(|namespace| namespace.name.clone()).collect()
}

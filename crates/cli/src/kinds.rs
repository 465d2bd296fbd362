//! The kinds that people name on the command line.

use anyhow::{Result, bail};
use kube::{api::ApiResource, core::Resource};
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccount,
    cluster::{ManagedCluster, ManagedClusterSet, Placement},
    configsync::{RepoSync, RootSync},
    rbac::ClusterPermission,
    work::ManifestWork,
};

use crate::fleet::Choice;

/// A kind with the words that mean it.
pub struct Kind {
    /// The words, the usual one first.
    pub words: &'static [&'static str],
    /// What it is on the server.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether its objects live on managed clusters; the others live on the hub.
    pub on_clusters: bool,
}

fn kind<K: Resource<DynamicType = ()>>(words: &'static [&'static str], namespaced: bool) -> Kind {
    Kind {
        words,
        resource: ApiResource::erase::<K>(&()),
        namespaced,
        on_clusters: ApiResource::erase::<K>(&()).group == ApiResource::erase::<RootSync>(&()).group,
    }
}

impl Kind {
    /// The usual word.
    pub fn word(&self) -> &'static str {
        self.words.first().copied().unwrap_or_default()
    }

    /// An object as kubectl names it.
    pub fn object(&self, name: &str) -> String {
        format!("{}.{}/{name}", self.resource.plural, self.resource.group)
    }

    /// Refuses to look on managed clusters for what lives on the hub: there would be nothing.
    pub fn must_be_there(&self, choice: &Choice) -> Result<()> {
        if choice.is_named() && !self.on_clusters {
            let place = if self.namespaced {
                ", in the namespace of the cluster: -n CLUSTER"
            } else {
                ""
            };
            bail!("{} live on the hub{place}", self.word());
        }
        Ok(())
    }
}

/// Every kind that has a word.
pub fn all() -> Vec<Kind> {
    vec![
        kind::<ManagedCluster>(&["clusters", "cluster", "managedclusters"], false),
        kind::<ClusterPermission>(&["permissions", "permission", "clusterpermissions"], true),
        kind::<ManifestWork>(&["works", "work", "manifestworks"], true),
        kind::<ManagedServiceAccount>(&["accounts", "account", "managedserviceaccounts"], true),
        kind::<ManagedClusterSet>(&["sets", "set", "managedclustersets"], false),
        kind::<RootSync>(&["syncs", "sync", "rootsyncs"], true),
        kind::<RepoSync>(&["reposyncs", "reposync"], true),
        kind::<Placement>(&["placements", "placement"], true),
        kind::<ManagedClusterAddOn>(&["addons", "addon", "managedclusteraddons"], true),
    ]
}

/// The kind that a word means.
pub fn find(word: &str) -> Result<Kind> {
    let mut all = all();
    if let Some(at) = all.iter().position(|kind| kind.words.contains(&word)) {
        return Ok(all.swap_remove(at));
    }
    let known: Vec<_> = all.iter().map(Kind::word).collect();
    bail!("there is no kind {word:?}; there are: {}", known.join(", "))
}

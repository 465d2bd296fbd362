//! The kinds that commands accept, and the words for them.

use anyhow::{Result, bail};
use kube::{CustomResourceExt, api::ApiResource, core::Resource};
use writ_api::{
    addon::ManagedClusterAddOn,
    authentication::ManagedServiceAccount,
    cluster::{ManagedCluster, ManagedClusterSet, Placement},
    configsync::{RepoSync, RootSync},
    rbac::ClusterPermission,
    work::ManifestWork,
};

use crate::cluster_choice::Choice;

/// A kind with the words for it.
pub struct Kind {
    /// Our plural and singular; the names of its definition are accepted too.
    words: [&'static str; 2],
    /// Its short names.
    short: &'static [&'static str],
    /// The resource on the server.
    pub resource: ApiResource,
    /// Whether its objects live in namespaces.
    pub namespaced: bool,
    /// Whether its objects live on managed clusters; the others live on the hub.
    pub on_clusters: bool,
}

fn kind<K: Resource<DynamicType = ()> + CustomResourceExt>(
    words: [&'static str; 2],
    namespaced: bool,
) -> Kind {
    Kind {
        words,
        short: K::shortnames(),
        resource: ApiResource::erase::<K>(&()),
        namespaced,
        on_clusters: ApiResource::erase::<K>(&()).group == ApiResource::erase::<RootSync>(&()).group,
    }
}

impl Kind {
    /// The plural that messages use.
    pub fn word(&self) -> &'static str {
        let [many, _] = self.words;
        many
    }

    fn is_meant_by(&self, word: &str) -> bool {
        let word = &*word.to_lowercase();
        self.words.contains(&word)
            || self.short.contains(&word)
            || word == self.resource.plural
            || word == self.resource.kind.to_lowercase()
    }

    /// An object as kubectl names it.
    pub fn object(&self, name: &str) -> String {
        format!("{}.{}/{name}", self.resource.plural, self.resource.group)
    }

    /// Refuses to search managed clusters for kinds that live on the hub only.
    pub fn check_location(&self, choice: &Choice) -> Result<()> {
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

/// Every kind that commands accept.
pub fn all() -> Vec<Kind> {
    vec![
        kind::<ManagedCluster>(["clusters", "cluster"], false),
        kind::<ClusterPermission>(["permissions", "permission"], true),
        kind::<ManifestWork>(["works", "work"], true),
        kind::<ManagedServiceAccount>(["accounts", "account"], true),
        kind::<ManagedClusterSet>(["sets", "set"], false),
        kind::<RootSync>(["syncs", "sync"], true),
        kind::<RepoSync>(["reposyncs", "reposync"], true),
        kind::<Placement>(["placements", "placement"], true),
        kind::<ManagedClusterAddOn>(["addons", "addon"], true),
    ]
}

/// The kind for a word.
pub fn find(word: &str) -> Result<Kind> {
    let mut all = all();
    if let Some(at) = all.iter().position(|kind| kind.is_meant_by(word)) {
        return Ok(all.swap_remove(at));
    }
    let known: Vec<_> = all.iter().map(Kind::word).collect();
    bail!("there is no kind {word:?}; there are: {}", known.join(", "))
}

/// Parses a kind and a name as kubectl takes them: `KIND NAME` or `KIND/NAME`.
pub fn parse<'a>(word: &'a str, name: Option<&'a str>) -> Result<(Kind, Option<&'a str>)> {
    match (word.split_once('/'), name) {
        (None, name) => Ok((find(word)?, name)),
        (Some((word, name)), None) if !name.is_empty() => Ok((find(word)?, Some(name))),
        _ => bail!("say KIND NAME or KIND/NAME, with one name"),
    }
}

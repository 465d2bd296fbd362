//! What the manager knows of the cluster: one watch per kind, and what of each object matters.

use std::{fmt::Debug, sync::Arc};

use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;
use writ_api::{
    configsync::{RepoSync, RoleRefKind, RootSync},
    kpt::ResourceGroup,
};
use writ_controller::{Cache, Name, Watch, tolerant::Tolerant};

use super::{
    model::{KeptBinding, made_for},
    plan::World,
};
use crate::{
    INSTALL,
    model::{SYSTEM_NAMESPACE, Sync, SyncId, SyncKind},
    names::{self, MANAGED_BY, MANAGED_BY_VALUE},
};

/// What is known of the cluster. Cheap to clone.
#[derive(Clone)]
pub struct Caches {
    /// RootSyncs.
    pub root_syncs: Cache<Sync>,
    /// RepoSyncs.
    pub repo_syncs: Cache<Sync>,
    /// Accounts made for syncs.
    pub accounts: Cache<ServiceAccount>,
    /// Inventories made for syncs.
    pub inventories: Cache<ResourceGroup>,
    /// Deployments made for syncs.
    pub deployments: Cache<Deployment>,
    /// All Roles; only those made for syncs are kept whole.
    pub roles: Cache<Option<Role>>,
    /// All ClusterRoles, by name.
    pub cluster_roles: Cache<()>,
    /// All RoleBindings; only those that the manager may change are kept whole.
    pub role_bindings: Cache<KeptBinding<RoleBinding>>,
    /// All ClusterRoleBindings; only those that the manager may change are kept whole.
    pub cluster_role_bindings: Cache<KeptBinding<ClusterRoleBinding>>,
    /// All namespaces, and whether they are terminating.
    pub namespaces: Cache<bool>,
}

impl Caches {
    /// Starts the watches. They end at shutdown.
    pub fn start(client: &Client, shutdown: &CancellationToken) -> Self {
        let ours = format!("{MANAGED_BY}={MANAGED_BY_VALUE}");
        Self {
            root_syncs: all::<RootSync>(client).keep(Sync::from).start(shutdown),
            repo_syncs: all::<RepoSync>(client).keep(Sync::from).start(shutdown),
            accounts: Watch::new(Api::namespaced(client.clone(), SYSTEM_NAMESPACE))
                .labels(&ours)
                .start(shutdown),
            inventories: all::<ResourceGroup>(client).labels(&ours).start(shutdown),
            deployments: Watch::new(Api::namespaced(client.clone(), SYSTEM_NAMESPACE))
                .labels(&ours)
                .start(shutdown),
            roles: all::<Role>(client)
                .keep(|role| made_for(&role).is_some().then_some(role))
                .start(shutdown),
            cluster_roles: all::<ClusterRole>(client).keep(drop).start(shutdown),
            role_bindings: all::<RoleBinding>(client)
                .keep(KeptBinding::of)
                .index(KeptBinding::index)
                .start(shutdown),
            cluster_role_bindings: all::<ClusterRoleBinding>(client)
                .keep(KeptBinding::of)
                .index(KeptBinding::index)
                .start(shutdown),
            namespaces: all::<Namespace>(client)
                .keep(|namespace| namespace.metadata.deletion_timestamp.is_some())
                .start(shutdown),
        }
    }

    /// The syncs of a kind.
    pub fn syncs_of(&self, kind: SyncKind) -> &Cache<Sync> {
        match kind {
            SyncKind::Root => &self.root_syncs,
            SyncKind::Repo => &self.repo_syncs,
        }
    }

    /// A sync, if it exists. If its spec does not parse, the reason takes its place.
    pub fn sync(&self, id: &SyncId) -> Option<Arc<Sync>> {
        let name = Name::new(id.namespace.clone(), id.name.clone());
        let (sync, problem) = self.syncs_of(id.kind).partial(&name)?;
        Some(match problem {
            None => sync,
            Some(problem) => Arc::new(sync.with_problem(&problem)),
        })
    }

    /// The ids of all syncs, also of those whose spec does not parse.
    fn ids(&self) -> impl Iterator<Item = SyncId> {
        [SyncKind::Root, SyncKind::Repo].into_iter().flat_map(|kind| {
            let names = self.syncs_of(kind).names();
            names.into_iter().map(move |name| SyncId {
                kind,
                namespace: name.namespace,
                name: name.name,
            })
        })
    }

    /// All syncs whose spec parses.
    pub fn readable_syncs(&self) -> impl Iterator<Item = Arc<Sync>> {
        let (roots, repos) = (self.root_syncs.all(), self.repo_syncs.all());
        roots.into_iter().chain(repos).map(|(_, sync)| sync)
    }

    /// The syncs whose reconciler has this account. There should be one, but names of accounts are not unique.
    pub fn syncs_with_account(&self, account: &str) -> Vec<SyncId> {
        self.ids().filter(|id| names::reconciler(id) == account).collect()
    }

    /// The sync that a manager annotation names.
    pub fn sync_of_annotation(&self, manager: &str) -> Option<SyncId> {
        self.ids().find(|id| names::manager_value(id) == manager)
    }

    /// The inventory of a sync.
    pub fn inventory(&self, id: &SyncId) -> Option<Arc<ResourceGroup>> {
        let name = Name::new(id.namespace.clone(), id.name.clone());
        self.inventories.get(&name)
    }

    /// Whether a namespace is terminating; `None` if the cache does not show it, which may be because it lags behind.
    pub fn is_terminating(&self, namespace: &str) -> Option<bool> {
        self.namespaces
            .get(&Name::global(namespace))
            .map(|terminating| *terminating)
    }
}

fn all<K>(client: &Client) -> Watch<K>
where
    K: Resource<DynamicType = ()>
        + Clone
        + Debug
        + DeserializeOwned
        + Default
        + Send
        + std::marker::Sync
        + 'static,
{
    Watch::new(Api::<Tolerant<K>>::all(client.clone())).advise(INSTALL)
}

impl World for Caches {
    fn has_namespace(&self, name: &str) -> bool {
        self.is_terminating(name) == Some(false)
    }

    fn has_role(&self, kind: RoleRefKind, namespace: Option<&str>, name: &str) -> bool {
        match (kind, namespace) {
            (RoleRefKind::ClusterRole, _) => self.cluster_roles.contains(&Name::global(name)),
            (RoleRefKind::Role, Some(namespace)) => self.roles.contains(&Name::new(namespace, name)),
            (RoleRefKind::Role, None) => false,
        }
    }

    fn owner(&self, account: &str) -> Option<SyncId> {
        let since = |id: &SyncId| {
            let created = self.sync(id)?.metadata.creation_timestamp.clone();
            created.map(|time| time.0)
        };
        self.syncs_with_account(account)
            .into_iter()
            .min_by_key(|id| (since(id), id.clone()))
    }
}

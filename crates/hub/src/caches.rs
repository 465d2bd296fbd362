//! The caches that controllers of the hub share: one watch per kind and process, started by the first that needs it.

use std::sync::OnceLock;

use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{ClusterRole, Role},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, Resource as _, ResourceExt as _};
use tokio_util::sync::CancellationToken;
use writ_api::{
    addon::{LABEL_ADDON, ManagedClusterAddOn},
    authentication::ManagedServiceAccount,
    cluster::{ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, PlacementDecision},
    rbac::ClusterPermission,
    work::{ManifestWork, REPLICA_SET_LABEL},
};
use writ_controller::{Cache, Watch, cache::index_key};

use crate::MANAGER;

/// The caches of one process, while it leads.
pub struct Caches {
    client: Client,
    shutdown: CancellationToken,
    clusters: OnceLock<Cache<ManagedCluster>>,
    sets: OnceLock<Cache<ManagedClusterSet>>,
    set_bindings: OnceLock<Cache<ManagedClusterSetBinding>>,
    decisions: OnceLock<Cache<PlacementDecision>>,
    works: OnceLock<Cache<ManifestWork>>,
    add_ons: OnceLock<Cache<ManagedClusterAddOn>>,
    accounts: OnceLock<Cache<ManagedServiceAccount>>,
    namespaces: OnceLock<Cache<Namespace>>,
    roles: OnceLock<Cache<Role>>,
    cluster_roles: OnceLock<Cache<ClusterRole>>,
}

impl Caches {
    /// No watch runs yet; each that is started ends at shutdown.
    pub fn new(client: Client, shutdown: CancellationToken) -> Self {
        Self {
            client,
            shutdown,
            clusters: OnceLock::new(),
            sets: OnceLock::new(),
            set_bindings: OnceLock::new(),
            decisions: OnceLock::new(),
            works: OnceLock::new(),
            add_ons: OnceLock::new(),
            accounts: OnceLock::new(),
            namespaces: OnceLock::new(),
            roles: OnceLock::new(),
            cluster_roles: OnceLock::new(),
        }
    }

    /// All clusters.
    pub fn clusters(&self) -> &Cache<ManagedCluster> {
        self.clusters
            .get_or_init(|| Watch::new(Api::all(self.client.clone())).start(&self.shutdown))
    }

    /// All sets of clusters.
    pub fn sets(&self) -> &Cache<ManagedClusterSet> {
        self.sets
            .get_or_init(|| Watch::new(Api::all(self.client.clone())).start(&self.shutdown))
    }

    /// All bindings of sets to namespaces.
    pub fn set_bindings(&self) -> &Cache<ManagedClusterSetBinding> {
        self.set_bindings
            .get_or_init(|| Watch::new(Api::all(self.client.clone())).start(&self.shutdown))
    }

    /// All decisions of placements.
    pub fn decisions(&self) -> &Cache<PlacementDecision> {
        self.decisions
            .get_or_init(|| Watch::new(Api::all(self.client.clone())).start(&self.shutdown))
    }

    /// All works, those that no controller of the hub made without their manifests; see `prune_work`. Indexed by
    /// [`works_of_permission`] and [`works_of_replica_set`].
    pub fn works(&self) -> &Cache<ManifestWork> {
        self.works.get_or_init(|| {
            Watch::new(Api::all(self.client.clone()))
                .with_managed_fields()
                .keep(prune_work)
                .compressed()
                .index(work_index)
                .start(&self.shutdown)
        })
    }

    /// All add-ons of clusters.
    pub fn add_ons(&self) -> &Cache<ManagedClusterAddOn> {
        self.add_ons
            .get_or_init(|| Watch::new(Api::all(self.client.clone())).start(&self.shutdown))
    }

    /// All managed accounts. Indexed by [`accounts_of_name`].
    pub fn accounts(&self) -> &Cache<ManagedServiceAccount> {
        self.accounts.get_or_init(|| {
            Watch::new(Api::all(self.client.clone()))
                .index(|account: &ManagedServiceAccount| vec![accounts_of_name(&account.name_any())])
                .start(&self.shutdown)
        })
    }

    /// All namespaces of the hub.
    pub fn namespaces(&self) -> &Cache<Namespace> {
        self.namespaces
            .get_or_init(|| Watch::new(Api::all(self.client.clone())).start(&self.shutdown))
    }

    /// All Roles of the hub.
    pub fn roles(&self) -> &Cache<Role> {
        self.roles
            .get_or_init(|| Watch::new(Api::all(self.client.clone())).start(&self.shutdown))
    }

    /// All ClusterRoles of the hub.
    pub fn cluster_roles(&self) -> &Cache<ClusterRole> {
        self.cluster_roles
            .get_or_init(|| Watch::new(Api::all(self.client.clone())).start(&self.shutdown))
    }
}

/// The entry, in the index of accounts, of the accounts of one name in all namespaces.
pub fn accounts_of_name(name: &str) -> u64 {
    index_key(("account", name))
}

/// The entry, in the index of works, of a ClusterPermission.
pub fn works_of_permission(namespace: &str, name: &str) -> u64 {
    index_key(("permission", namespace, name))
}

/// The entry, in the index of works, of a ManifestWorkReplicaSet, as the label spells it: `namespace.name`.
pub fn works_of_replica_set(label: &str) -> u64 {
    index_key(("replica set", label))
}

/// The ClusterPermission that controls a work.
pub fn owning_permission(work: &ManifestWork) -> Option<&OwnerReference> {
    work.owner_references().iter().find(|owner| {
        owner.kind == ClusterPermission::kind(&())
            && owner.api_version.split('/').next() == Some(&*ClusterPermission::group(&()))
    })
}

fn work_index(work: &ManifestWork) -> Vec<u64> {
    let permission = owning_permission(work)
        .map(|owner| works_of_permission(&work.namespace().unwrap_or_default(), &owner.name));
    let replica_set = work
        .labels()
        .get(REPLICA_SET_LABEL)
        .map(|label| works_of_replica_set(label));
    permission.into_iter().chain(replica_set).collect()
}

/// Works of others are many and large: of these, what they carry and what became of each object is dropped. Of the
/// managed fields only the times of our own writes are kept.
fn prune_work(mut work: ManifestWork) -> ManifestWork {
    let mut fields = work.metadata.managed_fields.take().unwrap_or_default();
    fields.retain(|entry| entry.manager.as_deref() == Some(MANAGER));
    for entry in &mut fields {
        entry.fields_v1 = None;
    }
    let labels = work.labels();
    let in_set = labels.contains_key(REPLICA_SET_LABEL);
    let ours = in_set || labels.contains_key(LABEL_ADDON) || owning_permission(&work).is_some();
    if in_set {
        work.metadata.managed_fields = Some(fields);
    }
    if !ours {
        work.spec.workload.manifests.clear();
        work.spec.manifest_configs.clear();
        work.spec.executor = None;
        if let Some(status) = &mut work.status {
            status.resource_status.manifests.clear();
        }
    }
    work
}

//! What is observed of clusters: the caches that this controller reads, and when each lease was last renewed.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;
use k8s_openapi::api::{
    certificates::v1::CertificateSigningRequest,
    coordination::v1::Lease,
    core::v1::{Namespace, ServiceAccount},
    rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding},
};
use kube::{Api, Resource, ResourceExt as _};
use writ_api::{
    addon::ManagedClusterAddOn,
    cluster::{CLUSTER_NAME_LABEL, ManagedCluster},
    work::ManifestWork,
};
use writ_controller::{
    Cache, Name, Watch,
    cache::{Change, index_key},
};

use super::{
    model::{LABEL, LEASE, Observation},
    plan::cluster::grace,
};
use crate::{Context, agent_identity::AGENT_ACCOUNT};

/// The caches that this controller reads.
pub struct Caches {
    /// Clusters.
    pub clusters: Cache<ManagedCluster>,
    /// Namespaces.
    pub namespaces: Cache<Namespace>,
    /// When each agent's lease says that it was renewed.
    pub leases: Cache<Option<Timestamp>>,
    /// ManifestWorks.
    pub works: Cache<ManifestWork>,
    /// ManagedClusterAddOns.
    pub add_ons: Cache<ManagedClusterAddOn>,
    /// Certificate requests of clusters.
    pub requests: Cache<CertificateSigningRequest>,
    /// ClusterRoles.
    pub cluster_roles: Cache<ClusterRole>,
    /// ClusterRoleBindings of agents.
    pub cluster_bindings: Cache<ClusterRoleBinding>,
    /// RoleBindings of agents.
    pub bindings: Cache<RoleBinding>,
    /// The agents' ServiceAccounts.
    pub accounts: Cache<()>,
}

impl Caches {
    /// Starts the watches that no other controller shares.
    pub fn start(context: &Context) -> Self {
        let (client, shutdown) = (&context.client, &context.shutdown);
        let named = |name: &str| format!("metadata.name={name}");
        Self {
            clusters: context.caches.clusters().clone(),
            namespaces: context.caches.namespaces().clone(),
            leases: Watch::new(Api::all(client.clone()))
                .fields(&named(LEASE))
                .keep(|lease: Lease| Some(lease.spec?.renew_time?.0))
                .start(shutdown),
            works: context.caches.works().clone(),
            add_ons: context.caches.add_ons().clone(),
            requests: Watch::new(Api::all(client.clone()))
                .labels(CLUSTER_NAME_LABEL)
                .index(|request| cluster_of(request).map(index_key).into_iter().collect())
                .start(shutdown),
            cluster_roles: context.caches.cluster_roles().clone(),
            cluster_bindings: Watch::new(Api::all(client.clone())).labels(LABEL).start(shutdown),
            bindings: Watch::new(Api::all(client.clone())).labels(LABEL).start(shutdown),
            accounts: Watch::new(Api::all(client.clone()))
                .fields(&named(AGENT_ACCOUNT))
                .keep(|_: ServiceAccount| ())
                .start(shutdown),
        }
    }

    /// The certificate requests of a cluster.
    pub fn requests_of(&self, cluster: &str) -> Vec<Arc<CertificateSigningRequest>> {
        let requests = self.requests.all_indexed(index_key(cluster));
        requests.into_iter().map(|(_, request)| request).collect()
    }

    /// What is observed of a cluster besides its ManagedCluster.
    pub fn observe(&self, cluster: &str, heartbeats: &Heartbeats) -> Observation {
        let (silent_for, clock_off) = heartbeats.of(cluster);
        Observation {
            silent_for,
            clock_off,
            works: self.works.count_in(cluster),
            addons: self.add_ons.count_in(cluster),
        }
    }
}

/// The cluster that an object's label names.
pub fn cluster_of<K: Resource>(object: &K) -> Option<&str> {
    object.labels().get(CLUSTER_NAME_LABEL).map(String::as_str)
}

/// The clusters that the label of an object names now, and named before the change.
pub fn labelled_clusters<K: Resource>(change: &Change<'_, K>) -> Vec<Arc<str>> {
    let objects = [change.new.clone(), change.old()];
    let clusters = objects
        .iter()
        .flatten()
        .filter_map(|object| cluster_of(&**object));
    clusters.map(Into::into).collect()
}

/// When each agent renewed its lease, by this process's clock: the clocks of others are not trusted.
#[derive(Default)]
pub struct Heartbeats {
    beats: Mutex<HashMap<Arc<str>, Beat>>,
}

#[derive(Clone, Copy)]
struct Beat {
    renewed: Option<Timestamp>,
    seen: Instant,
    /// How far the agent's clock was from this one's when the lease was renewed; `None` if that was not seen.
    clock_off: Option<Duration>,
}

impl Heartbeats {
    /// Takes in a change of a lease. Returns its cluster if that is to be reconciled: a heartbeat alone changes nothing, as
    /// the cluster's timer reads it when it is due, unless clocks begin or cease to agree.
    pub fn take(
        &self,
        change: &Change<'_, Option<Timestamp>>,
        clusters: &Cache<ManagedCluster>,
    ) -> Option<Arc<str>> {
        let cluster = &change.name.namespace;
        let mut beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let before = beats.get(cluster).copied();
        let Some(renewed) = change.new.as_deref().copied() else {
            beats.remove(cluster);
            return Some(cluster.clone());
        };
        if before.is_some_and(|before| before.renewed == renewed) {
            return None;
        }
        let beat = Beat {
            renewed,
            seen: Instant::now(),
            // The renewal that is seen first may be long ago.
            clock_off: renewed
                .filter(|_| before.is_some())
                .map(|renewed| Timestamp::now().duration_since(renewed).unsigned_abs()),
        };
        beats.insert(cluster.clone(), beat);
        let grace = clusters.get(&Name::global(cluster.clone())).map(|c| grace(&c));
        let agrees = |beat: &Beat| beat.clock_off.zip(grace).map(|(off, most)| off < most);
        before
            .is_none_or(|before| agrees(&before) != agrees(&beat))
            .then(|| cluster.clone())
    }

    /// For how long the lease of a cluster has not been renewed, and how far the agent's clock is off.
    fn of(&self, cluster: &str) -> (Option<Duration>, Option<Duration>) {
        let beats = self.beats.lock().unwrap_or_else(PoisonError::into_inner);
        let beat = beats.get(cluster);
        (
            beat.map(|beat| beat.seen.elapsed()),
            beat.and_then(|beat| beat.clock_off),
        )
    }
}

//! What the reconciles of one agent share, and what is kept of each work between them.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use kube::{
    Api, Client,
    core::{ApiResource, GroupVersionKind},
};
use tokio::sync::Semaphore;
use writ_api::work::{AppliedManifestWork, ManifestWork};
use writ_controller::{Cache, Name, Queue, RestMapper, ServedKind, Watch};

use super::{
    drift::{self, DriftIndex, DriftWatches},
    gate::Gate,
    model::{Key, Prerequisite},
    options::WorkOptions,
    plan::rbac::RBAC_GROUP,
    status::in_flight::InFlightStatus,
};
use crate::owner::hub_hash;
use crate::{Context, RecreateLock};

/// How many objects of all works are written or read at once: each request under way is a connection with its buffers.
const TURNS: usize = 24;

/// Everything that the reconciles of one agent share.
pub struct Agent {
    /// A client of the hub.
    pub hub: Client,
    /// A client of the managed cluster.
    pub spoke: Client,
    /// The name of this cluster, which is its namespace on the hub.
    pub cluster_name: String,
    /// How works are delivered.
    pub options: WorkOptions,
    /// The hash of the hub's address.
    pub hub_hash: String,
    /// The identity of this agent among the agents of the cluster.
    pub id: String,
    /// The ManifestWorks on the hub.
    pub works: Cache<ManifestWork>,
    /// The AppliedManifestWorks on the managed cluster.
    pub applied: Cache<AppliedManifestWork>,
    /// What is kept of each work.
    pub states: WorkStates,
    /// The works to reconcile.
    pub queue: Queue<Key>,
    /// The kinds of the managed cluster.
    pub mapper: RestMapper,
    /// Kinds that works wait for.
    pub well_known: WellKnownKinds,
    /// The objects of works, as they were last seen.
    pub drift: DriftIndex,
    /// The watches on these objects.
    pub watches: DriftWatches,
    /// Checks executors.
    pub gate: Gate,
    /// Taken while an object is read or written.
    pub turns: Semaphore,
    /// Held while an object is deleted and recreated.
    pub recreate_lock: RecreateLock,
}

impl Agent {
    /// Starts the watches of an agent that reconciles the keys of this queue.
    pub fn new(context: &Context, queue: Queue<Key>) -> Self {
        let (cluster_name, options) = (context.options.cluster_name.clone(), context.options.work.clone());
        let hub_hash = hub_hash(&options.hub_server);
        let id = options.agent_id.clone().unwrap_or_else(|| hub_hash.clone());
        let (drift, well_known) = (DriftIndex::default(), WellKnownKinds::default());
        let poll_every = options.status_sync_interval.unwrap_or(drift::POLL);
        let watches = DriftWatches::new(
            context.spoke.clone(),
            drift.clone(),
            queue.clone(),
            poll_every.max(drift::MIN_POLL),
            well_known.rbac.to_vec(),
        );
        Self {
            hub: context.hub.clone(),
            spoke: context.spoke.clone(),
            hub_hash,
            id,
            works: Watch::new(Api::namespaced(context.hub.clone(), &cluster_name))
                .compressed()
                .start(&context.shutdown),
            applied: Watch::new(Api::all(context.spoke.clone()))
                .compressed()
                .start(&context.shutdown),
            states: WorkStates::default(),
            mapper: RestMapper::default(),
            well_known,
            drift,
            watches,
            gate: Gate::new(context, queue.clone()),
            queue,
            turns: Semaphore::new(TURNS),
            recreate_lock: context.recreate_lock.clone(),
            cluster_name,
            options,
        }
    }

    /// The works of this cluster.
    pub fn hub_works(&self) -> Api<ManifestWork> {
        Api::namespaced(self.hub.clone(), &self.cluster_name)
    }

    /// The name of the AppliedManifestWork of a work.
    pub fn applied_name(&self, work: &str) -> String {
        format!("{}-{work}", self.hub_hash)
    }

    /// The name of a work in the cache.
    pub fn name_of_work(&self, work: &str) -> Name {
        Name::new(self.cluster_name.as_str(), work)
    }

    /// A work, as far as it parses.
    pub fn work(&self, work: &str) -> Option<ManifestWork> {
        let (work, _) = self.works.partial(&self.name_of_work(work))?;
        Some(Arc::unwrap_or_clone(work))
    }

    /// Whether there is a work of this name, even one that does not parse.
    pub fn is_on_hub(&self, work: &str) -> bool {
        self.works.contains(&self.name_of_work(work))
    }

    /// An AppliedManifestWork, as far as it parses.
    pub fn applied(&self, name: &str) -> Option<AppliedManifestWork> {
        let (applied, _) = self.applied.partial(&Name::global(name))?;
        Some(Arc::unwrap_or_clone(applied))
    }

    /// Forgets everything about a work that is gone from the hub, but for its AppliedManifestWork.
    pub fn forget_work(&self, name: &str) {
        self.states.forget(name);
        self.stop_delivering(&Key::work(name));
    }

    /// Ends the delivery of a work, or the deletion of its objects: they are no longer watched, and its executor is no longer
    /// checked.
    pub fn stop_delivering(&self, key: &Key) {
        if let Key::Work(name) = key {
            self.states.with(name, |state| state.waits_for.clear());
        }
        self.gate.forget(key);
        if self.drift.set_interest(key, &[], &[]) {
            self.watches.refresh();
        }
    }
}

/// What is kept of one work between its reconciles.
#[derive(Debug, Default, PartialEq)]
pub struct WorkState {
    /// The statuses that the watch has not shown yet.
    pub in_flight: InFlightStatus,
    /// The generation for which the status reports that the work cannot be parsed.
    pub reported_broken: Option<i64>,
    /// While the work is being deleted: the objects that still exist, as the status describes them; `None` before they were
    /// looked at.
    pub still_present: Option<Vec<String>>,
    /// What has to happen before the work can be delivered completely.
    pub waits_for: HashSet<Prerequisite>,
}

/// The states of all works, by name. Works without anything to keep take no memory.
#[derive(Default)]
pub struct WorkStates(Mutex<HashMap<Arc<str>, WorkState>>);

impl WorkStates {
    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<str>, WorkState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads or changes the state of a work.
    pub fn with<T>(&self, work: &str, access: impl FnOnce(&mut WorkState) -> T) -> T {
        let mut states = self.lock();
        if let Some(state) = states.get_mut(work) {
            let result = access(state);
            if *state == WorkState::default() {
                states.remove(work);
            }
            return result;
        }
        let mut state = WorkState::default();
        let result = access(&mut state);
        if state != WorkState::default() {
            states.insert(work.into(), state);
        }
        result
    }

    /// Forgets a work.
    pub fn forget(&self, work: &str) {
        self.lock().remove(work);
    }
}

/// Kinds that works wait for.
pub struct WellKnownKinds {
    /// Namespaces.
    pub namespaces: Arc<ServedKind>,
    /// CustomResourceDefinitions.
    pub definitions: Arc<ServedKind>,
    /// Roles, RoleBindings, ClusterRoles and ClusterRoleBindings.
    pub rbac: [Arc<ServedKind>; 4],
}

impl Default for WellKnownKinds {
    fn default() -> Self {
        let kind = |group: &str, kind: &str, plural: &str| {
            Arc::new(ServedKind {
                resource: ApiResource::from_gvk_with_plural(
                    &GroupVersionKind::gvk(group, "v1", kind),
                    plural,
                ),
                namespaced: matches!(kind, "Role" | "RoleBinding"),
            })
        };
        Self {
            namespaces: kind("", "Namespace", "namespaces"),
            definitions: kind(
                "apiextensions.k8s.io",
                "CustomResourceDefinition",
                "customresourcedefinitions",
            ),
            rbac: [
                kind(RBAC_GROUP, "Role", "roles"),
                kind(RBAC_GROUP, "RoleBinding", "rolebindings"),
                kind(RBAC_GROUP, "ClusterRole", "clusterroles"),
                kind(RBAC_GROUP, "ClusterRoleBinding", "clusterrolebindings"),
            ],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_without_content_is_not_kept() {
        let states = WorkStates::default();
        assert!(states.with("w", |state| state.waits_for.is_empty()));
        assert!(states.lock().is_empty());
        states.with("w", |state| state.waits_for.insert(Prerequisite::Kind));
        states.with("w", |state| state.reported_broken = Some(3));
        states.with("w", |state| state.waits_for.clear());
        assert_eq!(states.with("w", |state| state.reported_broken), Some(3));
        states.with("w", |state| state.reported_broken = None);
        assert!(states.lock().is_empty());
    }

    #[test]
    fn forgotten_work_has_no_state() {
        let states = WorkStates::default();
        states.with("w", |state| {
            state.waits_for.insert(Prerequisite::Kind);
            state.reported_broken = Some(3);
            state.still_present = Some(Vec::new());
        });
        states.forget("w");
        assert!(states.with("w", |state| *state == WorkState::default()));
    }
}

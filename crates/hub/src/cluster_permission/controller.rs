//! Watches everything that can change the answer, plans, and writes the difference.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use k8s_openapi::jiff::Timestamp;
use kube::{Api, Resource as _, ResourceExt as _, api::PostParams, runtime::reflector::ObjectRef};
use writ_api::{
    authentication::ManagedServiceAccount,
    cluster::ManagedCluster,
    rbac::{
        ClusterPermission,
        cluster_permission::{CONDITION_PENDING, ClusterPermissionStatus},
    },
    work::{
        Executor, ExecutorServiceAccount, ExecutorSubject, ExecutorSubjectType, MANIFEST_WORK_FINALIZER,
        ManifestWork,
    },
};
use writ_controller::{
    Error, condition,
    error::Context as _,
    events::Events,
    queue::{Next, Queue},
    write,
};

use super::{
    expected::Expected,
    model::{Account, HubRole, Id, Limits, Observation, Plan, Refused, SelectedBy},
    naming::{self, MAX_PARTS},
    observe::{self, is_available},
    plan,
    replace::replace,
    spec::references::{account_names, hub_roles, uses_selector},
    status::{status, status_of_deleted},
    watches::{Key, Watches, owner_of},
};
use crate::{Context, MANAGER, upsert::will_try_again};

/// How many permissions are worked on at the same time.
const CONCURRENCY: usize = 8;

/// How long a process that starts may take to read what permissions name before it says that it has not.
const READ_WITHIN: Duration = Duration::from_secs(5);

/// The add-on that keeps the ServiceAccounts of ManagedServiceAccounts.
const ADD_ON: &str = "managed-serviceaccount";

/// Runs the controller until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let executor = context
        .options
        .permission_executor
        .as_deref()
        .map(executor)
        .transpose()?;
    let queue = Queue::default();
    let watches = Watches::start(&context, &queue);
    tokio::select! {
        () = context.shutdown.cancelled() => return Ok(()),
        () = watches.ready() => {}
    }
    let shutdown = context.shutdown.clone();
    let meter = context.health.meter("cluster_permission");
    let controller = Arc::new(Reconciler {
        events: Events::new(context.client.clone(), "writ-hub/cluster_permission"),
        context,
        watches,
        expected: Expected::default(),
        started: Instant::now(),
        executor,
    });
    queue
        .run(CONCURRENCY, &shutdown, &meter, move |key: Key| {
            let controller = controller.clone();
            async move {
                match controller.reconcile(&key).await {
                    Ok(next) => next,
                    Err(error) => {
                        controller.failed(&key, &error).await;
                        Next::Retry
                    }
                }
            }
        })
        .await;
    Ok(())
}

/// `namespace/name` of a ServiceAccount, as the executor of works.
fn executor(text: &str) -> Result<Executor, Error> {
    let parts = text
        .split_once('/')
        .filter(|(ns, name)| !ns.is_empty() && !name.is_empty() && !name.contains('/'));
    let (namespace, name) = parts.ok_or_else(|| {
        Error::Invalid(format!(
            "the permission executor {text:?} is not of the form namespace/name"
        ))
    })?;
    Ok(Executor {
        subject: Some(ExecutorSubject {
            type_: ExecutorSubjectType::ServiceAccount,
            service_account: Some(ExecutorServiceAccount {
                namespace: namespace.into(),
                name: name.into(),
            }),
        }),
    })
}

struct Reconciler {
    context: Context,
    events: Events,
    watches: Watches,
    expected: Expected,
    started: Instant,
    executor: Option<Executor>,
}

impl Reconciler {
    async fn failed(&self, key: &Key, error: &Error) {
        let permission = self.watches.permissions.get(&key.namespace, &key.name);
        let about = permission.map(|permission| permission.object_ref(&()));
        will_try_again(&key.to_string(), error, &self.events, about).await;
    }

    async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        let Some(permission) = self.watches.permissions.get(&key.namespace, &key.name) else {
            return self.gone(key).await;
        };
        if permission.metadata.deletion_timestamp.is_some() {
            return self.end(key, &permission).await;
        }
        let cluster = self.watches.clusters.get(&ObjectRef::new(&key.namespace));
        let permission = Arc::new(permission);
        let selected_by = observe::selected_by(self.context.options.namespace_selector, cluster.as_deref());
        let by_hub = selected_by == SelectedBy::Hub;
        let not_synced = self.watches.not_synced(&permission, !by_hub);
        let neighbours = self.neighbours(key);
        let selects = uses_selector(&permission) || neighbours.iter().any(|other| uses_selector(other));
        let hub_namespaces = selects.then(|| self.watches.namespaces()).flatten();
        if (not_synced.any() || (selects && by_hub && hub_namespaces.is_none()))
            && let Some(left) = READ_WITHIN.checked_sub(self.started.elapsed())
        {
            // A process that starts has not read everything, and says nothing of it yet.
            return Ok(Next::After(left));
        }
        let add_on = self
            .watches
            .add_ons
            .get(&ObjectRef::new(ADD_ON).within(&key.namespace));
        let seen = Observation {
            works: self.works(&permission),
            accounts: self.accounts(&permission),
            add_on: observe::add_on(add_on.as_deref()),
            hub_roles: self.hub_roles(&permission),
            permission: permission.clone(),
            cluster: cluster.clone(),
            selected_by,
            hub_namespaces,
            not_synced,
            neighbours,
            executor: self.executor.clone(),
            limits: Limits::within(self.context.options.admission.manifest_limit),
            now: Timestamp::now(),
        };
        let plan = plan::plan(&seen);
        let (refused, mut failed) = self.write(&seen, &plan).await;
        if self.watches.has_former_works(key, &permission) {
            failed = self.delete_former_works(key).await.err().or(failed);
        }
        let status = status(&seen, &plan, &refused);
        if failed.is_none() && is_available(cluster.as_deref()) {
            let ready = condition::find(&status.conditions, "Ready");
            let waits = ready.is_some_and(|c| c.reason == "Pending")
                || condition::is_true(&status.conditions, CONDITION_PENDING);
            // Whoever waits for this generation must not read a "True" that is over.
            let said = permission.status.iter().flat_map(|s| &s.conditions);
            let stale = said
                .filter(|c| c.type_ == "Ready" && c.status == "True")
                .any(|c| c.observed_generation == permission.metadata.generation);
            if let Some(left) = self.expected.wait(key, waits && !stale) {
                return Ok(Next::After(left));
            }
        }
        self.write_status(key, &permission, &status).await?;
        match failed {
            Some(error) => Err(error),
            None => Ok(Next::Wait),
        }
    }

    async fn write_status(
        &self,
        key: &Key,
        permission: &ClusterPermission,
        status: &ClusterPermissionStatus,
    ) -> Result<(), Error> {
        let api: Api<ClusterPermission> = write::namespaced(&self.context.client, &key.namespace);
        match write::ensure_status(&api, permission, status, MANAGER).await {
            // It was deleted meanwhile; the watch says so next.
            Err(error) if error.is_code(404) => Ok(()),
            written => written.map(|_| ()),
        }
    }

    /// It is being deleted: its works go. Somebody's finalizer may keep it, and then it says what is left.
    async fn end(&self, key: &Key, permission: &ClusterPermission) -> Result<Next, Error> {
        self.expected.wait(key, false);
        let works: Vec<_> = self.watches.works_of(key).into_iter().map(Arc::new).collect();
        let mut failed = None;
        for work in &works {
            failed = self.delete_work(work).await.err().or(failed);
        }
        let cluster = self.watches.clusters.get(&ObjectRef::new(&key.namespace));
        let status = status_of_deleted(permission, &works, cluster.as_deref(), Timestamp::now());
        self.write_status(key, permission, &status).await?;
        match failed {
            Some(error) => Err(error),
            None => Ok(Next::Wait),
        }
    }

    /// Writes the works that differ, then deletes the ones that are not wanted. A refusal is the first result;
    /// the second is the error to retry for.
    async fn write(&self, seen: &Observation, plan: &Plan) -> (Refused, Option<Error>) {
        let (mut refused, mut failed) = (Refused::new(), None);
        for (number, wanted) in &plan.works {
            let current = seen.works.get(number).map(|work| &**work);
            let Err(error) = self.ensure_work(current, wanted, seen.cluster.as_deref()).await else {
                continue;
            };
            if error.is_code(409) {
                // The cache is behind; the watch brings the news.
                failed = Some(error);
                continue;
            }
            refused.insert(*number, error.to_string());
            if let Some(current) = current.filter(|_| is_refusal(&error)) {
                let reduced = self.reduce(current, wanted).await;
                failed = reduced.err().or(failed);
            }
            failed = Some(failed.unwrap_or(error));
        }
        for number in &plan.delete {
            let Some(work) = seen
                .works
                .get(number)
                .filter(|w| w.metadata.deletion_timestamp.is_none())
            else {
                continue;
            };
            failed = self.delete_work(work).await.err().or(failed);
        }
        (refused, failed)
    }

    async fn ensure_work(
        &self,
        current: Option<&ManifestWork>,
        wanted: &ManifestWork,
        cluster: Option<&ManagedCluster>,
    ) -> Result<(), Error> {
        let namespace = wanted.namespace().unwrap_or_default();
        let api: Api<ManifestWork> = write::namespaced(&self.context.client, &namespace);
        let name = wanted.name_any();
        let Some(current) = current else {
            let params = PostParams {
                field_manager: Some(MANAGER.into()),
                ..PostParams::default()
            };
            let mut wanted = wanted.clone();
            if is_available(cluster) && cluster.and_then(|cluster| cluster.agent_runs("work")) == Some(true) {
                // The agent is there and would ask for it before it applies anything: one write less to wait for.
                wanted.finalizers_mut().push(MANIFEST_WORK_FINALIZER.to_owned());
            }
            api.create(&params, &wanted)
                .await
                .context(|| format!("create ManifestWork {namespace}/{name}"))?;
            return Ok(());
        };
        if current.metadata.deletion_timestamp.is_some() {
            // It cannot be saved any more; when it is gone the watch brings us back to make it again.
            return Ok(());
        }
        let owners = wanted.owner_references();
        let same_owners = owners
            .iter()
            .all(|owner| current.owner_references().contains(owner));
        if current.spec == wanted.spec && same_owners {
            return Ok(());
        }
        let owners = (!same_owners).then_some(owners);
        replace(&api, current, wanted, owners)
            .await
            .context(|| format!("change ManifestWork {namespace}/{name}"))
    }

    /// The hub refuses the new content: what the old one granted and the new one does not is still revoked.
    async fn reduce(&self, current: &ManifestWork, wanted: &ManifestWork) -> Result<(), Error> {
        let (namespace, name) = (current.namespace().unwrap_or_default(), current.name_any());
        let api: Api<ManifestWork> = write::namespaced(&self.context.client, &namespace);
        // The cache holds no content of a work whose owner somebody took away.
        let live = api
            .get_opt(&name)
            .await
            .context(|| format!("read ManifestWork {namespace}/{name}"))?;
        let Some(live) = live.filter(|live| live.metadata.uid == current.metadata.uid) else {
            return Ok(());
        };
        let mut kept = live.clone();
        kept.metadata
            .owner_references
            .clone_from(&wanted.metadata.owner_references);
        let still = &wanted.spec.workload.manifests;
        kept.spec
            .workload
            .manifests
            .retain(|manifest| still.contains(manifest));
        if kept.spec.workload.manifests.is_empty() {
            return self.delete_work(&live).await;
        }
        let revokes = kept.spec.workload.manifests.len() < live.spec.workload.manifests.len();
        match self.ensure_work(Some(&live), &kept, None).await {
            // Not even less is accepted. What must go goes, with what could have stayed.
            Err(error) if revokes && is_refusal(&error) => self.delete_work(&live).await,
            other => other,
        }
    }

    /// The permission is not in the cache: if it is really gone, so are its works. One that was seen to end does not
    /// come back, and nobody has to be asked.
    async fn gone(&self, key: &Key) -> Result<Next, Error> {
        self.expected.wait(key, false);
        let ended = self.watches.ended(key);
        let works = self.watches.works_of(key);
        let (its, others): (Vec<_>, Vec<_>) = works
            .iter()
            .filter(|work| work.metadata.deletion_timestamp.is_none())
            .partition(|work| owner_of(work).is_some_and(|owner| Some(&owner.uid) == ended.as_ref()));
        for work in its {
            self.delete_work(work).await?;
        }
        if !others.is_empty() {
            self.delete_former_works(key).await?;
        }
        Ok(Next::Wait)
    }

    /// Deletes the works of permissions of this name that are gone; one that was made again has works of its own.
    async fn delete_former_works(&self, key: &Key) -> Result<(), Error> {
        let api: Api<ClusterPermission> = write::namespaced(&self.context.client, &key.namespace);
        // The cache may be behind, and a work of the permission that is there must stay.
        let live = api
            .get_metadata_opt(&key.name)
            .await
            .context(|| format!("read ClusterPermission {key}"))?;
        let uid = live.and_then(|live| live.metadata.uid);
        for work in self.watches.works_of(key) {
            if owner_of(&work).map(|owner| &owner.uid) != uid.as_ref() {
                self.delete_work(&work).await?;
            }
        }
        Ok(())
    }

    async fn delete_work(&self, work: &ManifestWork) -> Result<(), Error> {
        if work.metadata.deletion_timestamp.is_some() {
            return Ok(());
        }
        let api: Api<ManifestWork> =
            write::namespaced(&self.context.client, &work.namespace().unwrap_or_default());
        write::delete(&api, &work.name_any(), work.metadata.uid.as_deref()).await
    }

    fn works(&self, permission: &ClusterPermission) -> BTreeMap<usize, Arc<ManifestWork>> {
        let namespace = permission.namespace().unwrap_or_default();
        let mut works = BTreeMap::new();
        for part in 1..=MAX_PARTS {
            let work = self
                .watches
                .works
                .get(&namespace, &naming::work(permission, part));
            works.extend(work.map(|work| (part, Arc::new(work))));
        }
        works
    }

    /// The other permissions of the cluster that name an object of the same kind and name, and stay.
    fn neighbours(&self, key: &Key) -> Vec<Arc<ClusterPermission>> {
        let keys = self.watches.permissions.neighbours(key).into_iter();
        keys.filter_map(|key| self.watches.permissions.get(&key.namespace, &key.name))
            .filter(|other| other.metadata.deletion_timestamp.is_none())
            .map(Arc::new)
            .collect()
    }

    fn accounts(&self, permission: &ClusterPermission) -> BTreeMap<String, Account> {
        let namespace = permission.namespace().unwrap_or_default();
        account_names(permission)
            .into_iter()
            .filter_map(|name| {
                let reference = ObjectRef::<ManagedServiceAccount>::new(&name).within(&namespace);
                let account = self.watches.accounts.get(&reference)?;
                Some((name, observe::account(&account)?))
            })
            .collect()
    }

    fn hub_roles(&self, permission: &ClusterPermission) -> BTreeMap<Id, HubRole> {
        let mut roles = BTreeMap::new();
        for id in hub_roles(permission) {
            let role = if id.kind == "ClusterRole" {
                let role = self.watches.cluster_roles.get(&ObjectRef::new(&id.name));
                role.map(|role| observe::hub_role(role.as_ref(), role.rules.as_deref()))
            } else {
                let reference = ObjectRef::new(&id.name).within(&id.namespace);
                let role = self.watches.roles.get(&reference);
                role.map(|role| observe::hub_role(role.as_ref(), role.rules.as_deref()))
            };
            roles.extend(role.map(|role| (id, role)));
        }
        roles
    }
}

/// Whether the hub says no to what is written, and would say so again.
fn is_refusal(error: &Error) -> bool {
    [400, 403, 413, 422].iter().any(|code| error.is_code(*code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executor_is_a_namespace_and_a_name() {
        let account = executor("ns/name").unwrap();
        assert_eq!(
            account.service_account().unwrap().user(),
            "system:serviceaccount:ns:name"
        );
        for wrong in ["name", "/name", "ns/", "a/b/c"] {
            assert!(executor(wrong).is_err(), "{wrong}");
        }
    }
}

//! Makes one namespace hold what the grants want there, and lets one grant report what became of it.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::{api::core::v1::ObjectReference, jiff::Timestamp};
use kube::{Api, Client, Resource, runtime::events::EventType};
use writ_api::{
    work::{AppliedManifestWork, ManifestWork},
    writ::NamespaceGrant,
};
use writ_controller::{
    Error, Name, Next, Queue,
    cache::Change,
    error::{Context as _, status_code},
    events::Events,
    write,
};

use super::{
    apply,
    model::{Active, Key, Live, Objects, Outcome, WRITER},
    object::{Kind, Object},
    observe::{Caches, OwnObjects},
    ownership, plan, status,
};
use crate::{Context, MANAGER, RecreateLock};

/// The finalizer of an object that is deleted in the foreground and waits for its dependents.
const FOREGROUND: &str = "foregroundDeletion";

/// What became of each grant in each namespace.
#[derive(Default)]
pub struct Outcomes {
    by_grant: Mutex<HashMap<Arc<str>, BTreeMap<String, Outcome>>>,
}

impl Outcomes {
    /// Forgets what became of a grant that is gone, also if another one has its name now.
    pub fn forget_former(&self, change: &Change<'_, Active>) {
        let uid = |active: &Arc<Active>| active.grant.metadata.uid.clone();
        if change.old().as_ref().map(uid) != change.new.as_ref().map(uid) {
            let mut outcomes = self.by_grant.lock().unwrap_or_else(PoisonError::into_inner);
            outcomes.remove(&change.name.name);
        }
    }

    /// What became of a grant, by namespace.
    pub fn of(&self, grant: &str) -> BTreeMap<String, Outcome> {
        let outcomes = self.by_grant.lock().unwrap_or_else(PoisonError::into_inner);
        outcomes.get(grant).cloned().unwrap_or_default()
    }

    /// Records what became of a grant in a namespace. Returns true if that is new.
    pub fn record(&self, grant: &Arc<str>, namespace: &str, outcome: Option<&Outcome>) -> bool {
        let mut outcomes = self.by_grant.lock().unwrap_or_else(PoisonError::into_inner);
        let outcomes = outcomes.entry(grant.clone()).or_default();
        let before = match outcome {
            Some(outcome) => outcomes.insert(namespace.to_owned(), outcome.clone()),
            None => outcomes.remove(namespace),
        };
        before.as_ref() != outcome
    }
}

/// Reconciles namespaces and grants.
pub struct Reconciler {
    spoke: Client,
    recreate_lock: RecreateLock,
    /// The cluster's namespace on the hub.
    cluster: String,
    /// Events on the hub.
    events: Events,
    queue: Queue<Key>,
    caches: Arc<Caches>,
    own: Arc<OwnObjects>,
    outcomes: Arc<Outcomes>,
}

impl Reconciler {
    /// A reconciler that sees what these caches show.
    pub fn new(
        context: &Context,
        events: Events,
        queue: Queue<Key>,
        caches: Arc<Caches>,
        own: Arc<OwnObjects>,
        outcomes: Arc<Outcomes>,
    ) -> Self {
        Self {
            spoke: context.spoke.clone(),
            recreate_lock: context.recreate_lock.clone(),
            cluster: context.options.cluster_name.clone(),
            events,
            queue,
            caches,
            own,
            outcomes,
        }
    }

    /// Reconciles a namespace or a grant.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        match key {
            Key::Namespace(name) => self.namespace(name).await?,
            Key::Grant(name) => self.grant(name).await?,
        }
        Ok(Next::Wait)
    }

    /// Makes one namespace hold what the grants want there.
    async fn namespace(&self, name: &str) -> Result<(), Error> {
        let labels = self.caches.labels(name);
        let grants = self.caches.grants.all();
        let mut objects = self.caches.objects(name, &self.own);
        let mut unanswered = self.drop_unconfirmed_works(&mut objects).await;
        let mut plan = {
            let grants: Vec<&Active> = grants.iter().map(|(_, active)| &**active).collect();
            plan::namespace(name, labels.as_ref(), &grants, &objects)
        };
        let mut failed = None;
        for (step, grants) in plan.steps {
            let object = step.object();
            let done = match unanswered.remove(&key(&object)) {
                Some(error) => Err(error),
                None => apply::step(&self.spoke, &self.recreate_lock, name, &step).await,
            };
            if let Err(error) = done {
                // The event of a conflicting write brings the namespace back.
                if grants.is_empty() && !error.is_code(409) {
                    plan.orphans.push((object, error.to_string()));
                }
                for grant in grants {
                    plan.outcomes.insert(grant, Some(error.to_string()));
                }
                failed = Some(error);
            }
        }
        for (object, why) in &plan.orphans {
            self.warn_of_orphan(object, why).await;
        }
        for (grant, active) in &grants {
            let outcome = plan.outcomes.remove(&*grant.name).map(|failure| Outcome {
                generation: active.grant.metadata.generation,
                failure,
                roleless: plan.roleless.contains(&*grant.name),
            });
            if self.outcomes.record(&grant.name, name, outcome.as_ref()) {
                self.queue.add(Key::Grant(grant.name.clone()));
            }
        }
        failed.or(unanswered.into_values().next()).map_or(Ok(()), Err)
    }

    /// Asks the records of works whether they deliver those of the grants' objects whose owner references say so. Objects
    /// that no record confirms become the grants' alone; if they change meanwhile, the event brings the namespace back. An
    /// object for which the question failed is returned with the error and left as it is, without blocking others.
    async fn drop_unconfirmed_works(&self, objects: &mut Objects) -> HashMap<(Kind, String), Error> {
        let mut unanswered = HashMap::new();
        for (key, live) in objects {
            let Live::Delivered { object, ours: true } = live else {
                continue;
            };
            match self.is_confirmed(object).await {
                Ok(true) => {}
                Ok(false) => *live = Live::Granted(object.clone()),
                Err(error) => drop(unanswered.insert(key.clone(), error)),
            }
        }
        unanswered
    }

    /// Returns true if the record of one of the works that own an object confirms it.
    async fn is_confirmed(&self, object: &Object) -> Result<bool, Error> {
        let api: Api<AppliedManifestWork> = Api::all(self.spoke.clone());
        for owner in ownership::works(object) {
            let record = match api.get_opt(&owner.name).await {
                // Without the kind there are no works.
                Err(error) if status_code(&error) == Some(404) => None,
                record => record.context(|| format!("read AppliedManifestWork {}", owner.name))?,
            };
            if record.is_some_and(|record| ownership::confirms(&record, object)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Publishes an event about the permission's work on the hub: the grant that would report the object is gone, and its
    /// permission may be too.
    async fn warn_of_orphan(&self, object: &Object, why: &str) {
        let Some(work) = ownership::granting_work(object) else {
            return;
        };
        let meta = object.meta();
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        let note = format!(
            "{} {}/{} is not revoked yet: {why}",
            object.kind(),
            namespace.unwrap_or_default(),
            name.unwrap_or_default()
        );
        tracing::warn!("{note}");
        let about = ObjectReference {
            api_version: Some(ManifestWork::api_version(&()).into_owned()),
            kind: Some(ManifestWork::kind(&()).into_owned()),
            namespace: Some(self.cluster.clone()),
            name: Some(work),
            ..ObjectReference::default()
        };
        let orphan = ObjectReference {
            kind: Some(object.kind().to_string()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            ..ObjectReference::default()
        };
        self.events
            .publish_with(
                &about,
                Some(orphan),
                EventType::Warning,
                "RevocationPending",
                note,
            )
            .await;
    }

    /// Writes the status of a grant, or lets a deleted one go when nothing of what it made is left.
    async fn grant(&self, name: &str) -> Result<(), Error> {
        let Some(active) = self.caches.grants.get(&Name::global(name)) else {
            return Ok(());
        };
        if active.grant.metadata.deletion_timestamp.is_some() {
            return self.release_grant(&active.grant).await;
        }
        let selected = self.caches.selected(&active);
        let outcomes = self.outcomes.of(name);
        let Some(status) = status::status(&active, &selected, &outcomes, Timestamp::now()) else {
            return Ok(());
        };
        let api: Api<NamespaceGrant> = Api::all(self.spoke.clone());
        match write::ensure_status(&api, &active.grant, &status, MANAGER).await {
            Err(error) if error.is_code(404) => Ok(()),
            written => written.map(drop),
        }
    }

    /// Removes the finalizer of foreground deletion. The garbage collector would do it too, but takes half a minute to notice
    /// a kind that is new to it.
    async fn release_grant(&self, grant: &NamespaceGrant) -> Result<(), Error> {
        if !self.caches.is_empty_of(grant) {
            return Ok(());
        }
        let api: Api<NamespaceGrant> = Api::all(self.spoke.clone());
        write::set_finalizer(&api, grant, FOREGROUND, false, WRITER)
            .await
            .map(drop)
    }
}

fn key(object: &Object) -> (Kind, String) {
    (object.kind(), object.meta().name.clone().unwrap_or_default())
}

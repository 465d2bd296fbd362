//! Watches namespaces, grants, Roles and RoleBindings of the managed cluster, and writes what differs.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use k8s_openapi::{
    api::{
        core::v1::{Namespace, ObjectReference},
        rbac::v1::{Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::{
    Api, CustomResourceExt as _, Resource, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::{
        WatchStreamExt as _,
        events::EventType,
        wait::{await_condition, conditions},
        watcher::{self, Event},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::json;
use tokio::sync::oneshot;
use writ_api::{
    work::{AppliedManifestWork, ManifestWork},
    writ::NamespaceGrant,
};
use writ_controller::{
    Error,
    error::{Context as _, status_code},
    events::Events,
    queue::{Next, Queue},
    write,
};
use writ_process::crds;

use super::{
    object::Object,
    observe::{Followed, Key, Known},
    ownership::{self, Live},
    plan::{self, Active, Kind, Step, WRITER},
    status::{self, Outcome},
};
use crate::{Context, MANAGER};

/// How many namespaces and grants are worked on at the same time.
const CONCURRENCY: usize = 8;
/// By which an object that is deleted in the foreground waits for what belongs to it.
const FOREGROUND: &str = "foregroundDeletion";
/// How long the API server may take to serve a new definition.
const ESTABLISH: Duration = Duration::from_secs(30);

/// Runs the controller until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    install(&context).await?;
    let known = Arc::new(Known::default());
    let queue = Queue::default();
    let ready = [
        follow::<Namespace>(&context, &known, &queue),
        follow::<NamespaceGrant>(&context, &known, &queue),
        follow::<Role>(&context, &known, &queue),
        follow::<RoleBinding>(&context, &known, &queue),
    ];
    for watch in ready {
        tokio::select! {
            () = context.shutdown.cancelled() => return Ok(()),
            // An error means that the watch ended, which happens only at shutdown.
            _ = watch => {}
        }
    }
    let (shutdown, meter) = (context.shutdown.clone(), context.health.meter("grants"));
    let events = Events::new(context.hub.clone(), "writ-agent/grants");
    let worker = Arc::new(Worker {
        context,
        events,
        known,
    });
    let more = queue.clone();
    queue
        .run(CONCURRENCY, &shutdown, &meter, move |key| {
            let (worker, queue) = (worker.clone(), more.clone());
            async move {
                let done = match &key {
                    Key::Namespace(name) => worker.namespace(name, &queue).await,
                    Key::Grant(name) => match worker.ended(name) {
                        Some(grant) => worker.let_go(&grant).await,
                        None => worker.report(name).await,
                    },
                };
                match done {
                    Ok(()) => Next::Wait,
                    Err(error) => {
                        tracing::warn!(?key, %error, "cannot reconcile, will try again");
                        Next::Retry
                    }
                }
            }
        })
        .await;
    Ok(())
}

/// Installs the definition of NamespaceGrant, or brings it up to date.
async fn install(context: &Context) -> Result<(), Error> {
    let wanted = NamespaceGrant::crd();
    let name = wanted.name_any();
    let api: Api<CustomResourceDefinition> = Api::all(context.spoke.clone());
    let current = api
        .get_opt(&name)
        .await
        .context(|| format!("read CustomResourceDefinition {name}"))?;
    if current.is_none_or(|current| !crds::compare(&current, &wanted).is_empty()) {
        api.patch(
            &name,
            &PatchParams::apply(MANAGER).force(),
            &Patch::Apply(&wanted),
        )
        .await
        .context(|| format!("install CustomResourceDefinition {name}"))?;
    }
    let established = await_condition(api, &name, conditions::is_crd_established());
    match tokio::time::timeout(ESTABLISH, established).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(Error::io(
            format!("wait for CustomResourceDefinition {name}"),
            error,
        )),
        Err(late) => Err(Error::io(
            format!("wait for CustomResourceDefinition {name}"),
            late,
        )),
    }
}

/// Follows one kind; the answer comes when everything there is has been seen.
fn follow<K>(context: &Context, known: &Arc<Known>, queue: &Queue<Key>) -> oneshot::Receiver<()>
where
    K: Followed + Resource + Clone + Debug + Default + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let gate = context.health.gate(format!("grants: watch {}", K::WHAT));
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    let api = Api::<writ_controller::tolerant::Guarded<K>>::all(context.spoke.clone());
    let (known, queue, shutdown) = (known.clone(), queue.clone(), context.shutdown.clone());
    let stream = writ_controller::tolerant::guarded(api, watcher::Config::default()).default_backoff();
    tokio::spawn(async move {
        let mut stream = std::pin::pin!(stream);
        let mut listed = BTreeSet::new();
        loop {
            let event = tokio::select! {
                () = shutdown.cancelled() => return,
                event = stream.next() => event,
            };
            let keys = match event {
                None => return,
                Some(Err(error)) => {
                    tracing::warn!(%error, "the watch of {} was interrupted", K::WHAT);
                    continue;
                }
                Some(Ok(Event::Init)) => {
                    listed.clear();
                    continue;
                }
                Some(Ok(Event::InitApply(object))) => {
                    listed.insert((object.namespace().unwrap_or_default(), object.name_any()));
                    object.put(&mut known.lock())
                }
                Some(Ok(Event::InitDone)) => {
                    gate.open();
                    sender.take().map(|sender| sender.send(()));
                    K::retain(&std::mem::take(&mut listed), &mut known.lock())
                }
                Some(Ok(Event::Apply(object))) => object.put(&mut known.lock()),
                Some(Ok(Event::Delete(object))) => object.remove(&mut known.lock()),
            };
            for key in keys {
                queue.add(key);
            }
        }
    });
    receiver
}

struct Worker {
    context: Context,
    /// Events on the hub.
    events: Events,
    known: Arc<Known>,
}

impl Worker {
    /// Makes one namespace hold what the grants want there.
    async fn namespace(&self, name: &str, queue: &Queue<Key>) -> Result<(), Error> {
        let (unconfirmed, mut unknown) = self.unconfirmed(name).await;
        let (mut plan, generations) = {
            let state = self.known.lock();
            let grants: Vec<&Active> = state.grants.values().collect();
            let nothing = BTreeMap::new();
            let mut live = Cow::Borrowed(state.objects.get(name).unwrap_or(&nothing));
            for object in unconfirmed {
                live.to_mut().insert(key(&object), Live::Granted(object));
            }
            let plan = plan::namespace(name, state.namespaces.get(name), &grants, &live);
            let generations: BTreeMap<String, Option<i64>> = state
                .grants
                .iter()
                .map(|(name, active)| (name.clone(), active.grant.metadata.generation))
                .collect();
            (plan, generations)
        };
        let mut failed = None;
        for (step, grants) in plan.steps {
            let object = step.object();
            let done = match unknown.remove(&key(&object)) {
                Some(error) => Err(error),
                None => self.step(name, &step).await,
            };
            if let Err(error) = done {
                // Somebody wrote it in the same moment; what he wrote brings us back.
                if grants.is_empty() && !error.is_code(409) {
                    plan.left.push((object, error.to_string()));
                }
                for grant in grants {
                    plan.outcomes.insert(grant, Some(error.to_string()));
                }
                failed = Some(error);
            }
        }
        for (object, why) in &plan.left {
            self.tell(object, why).await;
        }
        let mut state = self.known.lock();
        for (grant, generation) in generations {
            let table = state.outcomes.entry(grant.clone()).or_default();
            let outcome = plan.outcomes.remove(&grant).map(|failure| Outcome {
                generation,
                failure,
                roleless: plan.roleless.contains(&grant),
            });
            let before = match &outcome {
                Some(outcome) => table.insert(name.to_owned(), outcome.clone()),
                None => table.remove(name),
            };
            if before != outcome {
                queue.add(Key::Grant(grant));
            }
        }
        failed.or(unknown.into_values().next()).map_or(Ok(()), Err)
    }

    /// Asks the records of works whether they deliver those of the grants' objects that say so. What none confirms is the
    /// grants' alone; if it has changed meanwhile, the event brings us back. An object about which nobody answers is left
    /// as it is, and holds up no other.
    async fn unconfirmed(&self, namespace: &str) -> (Vec<Object>, HashMap<(Kind, String), Error>) {
        let doubtful: Vec<Object> = {
            let state = self.known.lock();
            let objects = state.objects.get(namespace).into_iter().flatten();
            let doubtful = objects.filter_map(|(_, live)| match live {
                Live::Delivered { object, ours: true } => Some(object.clone()),
                _ => None,
            });
            doubtful.collect()
        };
        let (mut unconfirmed, mut unknown) = (Vec::new(), HashMap::new());
        for object in doubtful {
            match self.confirmed(&object).await {
                Ok(true) => {}
                Ok(false) => unconfirmed.push(object),
                Err(error) => {
                    unknown.insert(key(&object), error);
                }
            }
        }
        (unconfirmed, unknown)
    }

    /// Whether one of the works that an object says it belongs to says so, too.
    async fn confirmed(&self, object: &Object) -> Result<bool, Error> {
        let api: Api<AppliedManifestWork> = Api::all(self.context.spoke.clone());
        for owner in ownership::works(object) {
            let record = match api.get_opt(&owner.name).await {
                // Where the kind is not known there are no works.
                Err(error) if status_code(&error) == Some(404) => None,
                record => record.context(|| format!("read AppliedManifestWork {}", owner.name))?,
            };
            if record.is_some_and(|record| ownership::confirms(&record, object)) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn step(&self, namespace: &str, step: &Step) -> Result<(), Error> {
        let roles: Api<Role> = write::namespaced(&self.context.spoke, namespace);
        let bindings: Api<RoleBinding> = write::namespaced(&self.context.spoke, namespace);
        match step {
            Step::Create(Object::Role(role)) => create(&roles, role.as_ref()).await,
            Step::Create(Object::RoleBinding(binding)) => {
                // A work may be about to make it again, with another role.
                let _nobody_replaces = self.context.recreate_lock.read().await;
                create(&bindings, binding.as_ref()).await
            }
            // What our field manager says counts, and nobody else has a say in what goes.
            Step::Change(Object::Role(role)) | Step::Empty(Object::Role(role)) => {
                change(&roles, role.as_ref()).await
            }
            Step::Change(Object::RoleBinding(binding)) | Step::Empty(Object::RoleBinding(binding)) => {
                change(&bindings, binding.as_ref()).await
            }
            Step::Replace { to, was } => {
                let _alone = self.context.recreate_lock.write().await;
                match was {
                    // Only that: a work may have made its own while this one waited for its turn.
                    Some(was) => write::delete_as_seen(&bindings, was.as_ref()).await?,
                    None => write::delete(&bindings, &to.name_any(), None).await?,
                }
                create(&bindings, to.as_ref()).await
            }
            Step::Release(Object::Role(role)) => release(&roles, role.as_ref()).await,
            Step::Release(Object::RoleBinding(binding)) => release(&bindings, binding.as_ref()).await,
            // A work may have taken it over since, and no grant's end takes it away then.
            Step::Delete(Object::Role(role)) => write::delete_as_seen(&roles, role.as_ref()).await,
            Step::Delete(Object::RoleBinding(binding)) => {
                write::delete_as_seen(&bindings, binding.as_ref()).await
            }
        }
    }

    /// The grant is gone that would report it, and so may be the permission: its work on the hub is told.
    async fn tell(&self, object: &Object, why: &str) {
        let Some(work) = ownership::former_work(object) else {
            return;
        };
        let meta = object.meta();
        let (namespace, name) = (meta.namespace.as_deref(), meta.name.as_deref());
        let what = format!(
            "{} {}/{} is not revoked yet: {why}",
            object.kind(),
            namespace.unwrap_or_default(),
            name.unwrap_or_default()
        );
        tracing::warn!("{what}");
        let about = ObjectReference {
            api_version: Some(ManifestWork::api_version(&()).into_owned()),
            kind: Some(ManifestWork::kind(&()).into_owned()),
            namespace: Some(self.context.options.cluster_name.clone()),
            name: Some(work),
            ..ObjectReference::default()
        };
        let left = ObjectReference {
            kind: Some(object.kind().to_string()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            ..ObjectReference::default()
        };
        self.events
            .publish_with(&about, Some(left), EventType::Warning, "RevocationPending", what)
            .await;
    }

    /// The grant of this name, if it is being deleted and nothing of what it made is left.
    fn ended(&self, name: &str) -> Option<NamespaceGrant> {
        let state = self.known.lock();
        let grant = &state.grants.get(name)?.grant;
        let mut objects = state.objects.values().flat_map(BTreeMap::values);
        let going = grant.metadata.deletion_timestamp.is_some();
        (going && !objects.any(|live| ownership::made_by(grant, live))).then(|| grant.clone())
    }

    /// Everything that a grant made is gone, so it may go. The garbage collector would say so as well, but does not look at
    /// a kind that is new to it for half a minute.
    async fn let_go(&self, grant: &NamespaceGrant) -> Result<(), Error> {
        let finalizers = grant.metadata.finalizers.as_deref().unwrap_or_default();
        let kept: Vec<&String> = finalizers.iter().filter(|name| *name != FOREGROUND).collect();
        if kept.len() == finalizers.len() {
            return Ok(());
        }
        let api: Api<NamespaceGrant> = Api::all(self.context.spoke.clone());
        let name = grant.name_any();
        let patch = json!({"metadata": {
            "uid": grant.metadata.uid,
            "resourceVersion": grant.metadata.resource_version,
            "finalizers": kept,
        }});
        let params = PatchParams {
            field_manager: Some(WRITER.into()),
            ..PatchParams::default()
        };
        match api.patch_metadata(&name, &params, &Patch::Merge(&patch)).await {
            // It is gone, or has changed, and the event brings us back.
            Err(error) if matches!(status_code(&error), Some(404 | 409)) => Ok(()),
            done => done.map(drop).context(|| format!("let NamespaceGrant {name} go")),
        }
    }

    /// Writes the status of one grant, once every namespace that it selects has been worked on.
    async fn report(&self, name: &str) -> Result<(), Error> {
        let (grant, status) = {
            let state = self.known.lock();
            let Some(active) = state
                .grants
                .get(name)
                .filter(|a| a.grant.metadata.deletion_timestamp.is_none())
            else {
                return Ok(());
            };
            let selected = state.selected(active);
            let nothing = BTreeMap::new();
            let outcomes = state.outcomes.get(name).unwrap_or(&nothing);
            let Some(status) = status::status(active, &selected, outcomes, Timestamp::now()) else {
                return Ok(());
            };
            (active.grant.clone(), status)
        };
        let api: Api<NamespaceGrant> = Api::all(self.context.spoke.clone());
        match write::ensure_status(&api, &grant, &status, MANAGER).await {
            Err(error) if error.is_code(404) => Ok(()),
            written => written.map(drop),
        }
    }
}

/// What an object is found by.
fn key(object: &Object) -> (Kind, String) {
    (object.kind(), object.meta().name.clone().unwrap_or_default())
}

/// Makes it. Not by force: what somebody made of that name in this very moment stays his.
async fn create<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    write(api, "create", object, &PatchParams::apply(WRITER), object).await
}

/// Makes the content exactly this; owners, labels and annotations of others stay.
async fn change<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    write(api, "change", object, &PatchParams::apply(WRITER).force(), object).await
}

/// Lets go of it: whoever holds it as well keeps it as it is.
async fn release<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let kind = K::DynamicType::default();
    let meta = object.meta();
    // Only as it was seen: if the work lets go in the same moment, somebody has to delete it.
    let nothing = json!({
        "apiVersion": K::api_version(&kind),
        "kind": K::kind(&kind),
        "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": meta.resource_version},
    });
    write(
        api,
        "release",
        object,
        &PatchParams::apply(WRITER).force(),
        &nothing,
    )
    .await
}

async fn write<K>(
    api: &Api<K>,
    verb: &str,
    object: &K,
    params: &PatchParams,
    fields: &(impl Serialize + Debug),
) -> Result<(), Error>
where
    K: Resource + Clone + Debug + DeserializeOwned,
    K::DynamicType: Default,
{
    let name = object.name_any();
    let written = api.patch(&name, params, &Patch::Apply(fields)).await.map(drop);
    written.context(|| format!("{verb} {} {name}", K::kind(&K::DynamicType::default())))
}

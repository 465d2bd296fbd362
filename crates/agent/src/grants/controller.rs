//! Watches namespaces, grants, Roles and RoleBindings of the managed cluster, and writes what differs.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
    time::Duration,
};

use futures::StreamExt as _;
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    jiff::Timestamp,
};
use kube::{
    Api, CustomResourceExt as _, Resource, ResourceExt as _,
    api::{Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt as _,
        wait::{await_condition, conditions},
        watcher::{self, Event},
    },
};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::oneshot;
use writ_api::writ::NamespaceGrant;
use writ_runtime::{
    Error, apply, crds,
    error::Context as _,
    queue::{Next, Queue},
};

use super::{
    plan::{self, Active, Kind, Object, Outcome, Step},
    watches::{Followed, Key, Known},
};
use crate::{Context, MANAGER};

/// How many namespaces and grants are worked on at the same time.
const CONCURRENCY: usize = 8;
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
    let shutdown = context.shutdown.clone();
    let (worker, more) = (Arc::new(Worker { context, known }), queue.clone());
    queue
        .run(CONCURRENCY, &shutdown, move |key| {
            let (worker, queue) = (worker.clone(), more.clone());
            async move {
                let done = match &key {
                    Key::Namespace(name) => worker.namespace(name, &queue).await,
                    Key::Grant(name) => worker.report(name).await,
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
    K: Followed + Resource + Clone + Debug + DeserializeOwned + Send + 'static,
    K::DynamicType: Default,
{
    let gate = context.health.gate(format!("grants: watch {}", K::WHAT));
    let (sender, receiver) = oneshot::channel();
    let mut sender = Some(sender);
    let api = Api::<K>::all(context.spoke.clone());
    let (known, queue, shutdown) = (known.clone(), queue.clone(), context.shutdown.clone());
    let stream = watcher::watcher(api, watcher::Config::default())
        .modify(|object| object.meta_mut().managed_fields = None)
        .default_backoff();
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
    known: Arc<Known>,
}

impl Worker {
    /// Makes one namespace hold what the grants want there.
    async fn namespace(&self, name: &str, queue: &Queue<Key>) -> Result<(), Error> {
        let (mut plan, generations) = {
            let state = self.known.lock();
            let grants: Vec<&Active> = state.grants.values().collect();
            let nothing = BTreeMap::new();
            let live = state.objects.get(name).unwrap_or(&nothing);
            let plan = plan::namespace(name, state.namespaces.get(name), &grants, live);
            let generations: BTreeMap<String, Option<i64>> = state
                .grants
                .iter()
                .map(|(name, active)| (name.clone(), active.grant.metadata.generation))
                .collect();
            (plan, generations)
        };
        let mut failed = None;
        for (step, grants) in plan.steps {
            if let Err(error) = self.step(name, &step).await {
                for grant in grants {
                    plan.outcomes.insert(grant, Some(error.to_string()));
                }
                failed = Some(error);
            }
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
        failed.map_or(Ok(()), Err)
    }

    async fn step(&self, namespace: &str, step: &Step) -> Result<(), Error> {
        let roles: Api<Role> = apply::namespaced(&self.context.spoke, namespace);
        let bindings: Api<RoleBinding> = apply::namespaced(&self.context.spoke, namespace);
        match step {
            Step::Create(Object::Role(role)) => create(&roles, role.as_ref()).await,
            Step::Create(Object::RoleBinding(binding)) => create(&bindings, binding.as_ref()).await,
            Step::Change {
                to: Object::Role(role),
                ..
            } => replace(&roles, role.as_ref()).await,
            Step::Change {
                to: Object::RoleBinding(binding),
                replace: again,
            } => {
                if *again {
                    apply::delete(&bindings, &binding.name_any(), None).await?;
                    return create(&bindings, binding.as_ref()).await;
                }
                replace(&bindings, binding.as_ref()).await
            }
            Step::Delete { kind, name, uid } => match kind {
                Kind::Role => apply::delete(&roles, name, uid.as_deref()).await,
                Kind::RoleBinding => apply::delete(&bindings, name, uid.as_deref()).await,
            },
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
            let Some(status) = plan::status(active, &selected, outcomes, Timestamp::now()) else {
                return Ok(());
            };
            (active.grant.clone(), status)
        };
        let api: Api<NamespaceGrant> = Api::all(self.context.spoke.clone());
        match apply::ensure_status(&api, &grant, &status, MANAGER).await {
            Err(error) if error.is_code(404) => Ok(()),
            written => written.map(drop),
        }
    }
}

async fn create<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let params = PostParams {
        field_manager: Some(MANAGER.into()),
        ..PostParams::default()
    };
    api.create(&params, object).await.map(drop).context(|| {
        format!(
            "create {} {}",
            K::kind(&K::DynamicType::default()),
            object.name_any()
        )
    })
}

/// Makes the content and the owners exactly these; labels and annotations of others stay.
async fn replace<K>(api: &Api<K>, object: &K) -> Result<(), Error>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
    K::DynamicType: Default,
{
    let params = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    api.patch(&object.name_any(), &params, &Patch::Merge(object))
        .await
        .map(drop)
        .context(|| {
            format!(
                "change {} {}",
                K::kind(&K::DynamicType::default()),
                object.name_any()
            )
        })
}

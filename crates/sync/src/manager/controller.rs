//! One pass per sync: observe, plan, write the difference, report.

use std::sync::Arc;

use kube::{
    Api,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::json;
use tokio::task::JoinSet;
use writ_api::configsync::{RoleRefState, RoleRefStatus};
use writ_controller::{
    Error,
    condition::{FIELDS_IGNORED, ignored_message},
    error::Context as _,
    queue::{Next, Queue},
};

use super::{
    apply::{self, Bound},
    deployment,
    manager_view::Overview,
    observe::{self, Stores},
    plan::{self, Plan},
};
use crate::{
    Context, FIELD_MANAGER, Isolation,
    model::{MANAGER_FINALIZER, RECONCILER_FINALIZER, Sync, SyncId, SyncKind},
    names,
    reconciler::Tasks,
    sync_status::{self, FINALIZED, Wanted},
};

/// How many syncs are worked on at once.
const CONCURRENCY: usize = 16;

/// Runs until the context's shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let queue = Queue::default();
    let tasks = Tasks::new(&context);
    let mut watching = JoinSet::new();
    let stores = observe::start(&context.client, &context.health, &queue, &tasks, &mut watching);
    let overview = Overview::new(context.client.clone(), stores.clone());
    tasks.set_manager_view(Arc::new(overview.clone()));
    let pass = Arc::new(Pass {
        context: context.clone(),
        stores,
        overview,
        tasks: tasks.clone(),
    });
    tokio::select! {
        () = context.health.ready() => {}
        () = context.shutdown.cancelled() => return Ok(()),
    }
    let meter = context.health.meter("sync");
    let serve = queue.run(CONCURRENCY, &context.shutdown, &meter, |id| {
        let pass = pass.clone();
        async move {
            match pass.reconcile(&id).await {
                Ok(()) => Next::Wait,
                Err(error) => {
                    tracing::warn!(sync = %id, %error, "the pass failed, will try again");
                    Next::Retry
                }
            }
        }
    });
    tokio::select! {
        () = serve => {}
        Some(_) = watching.join_next() => {
            return Err(Error::Invalid("a watch of the manager ended".into()));
        }
    }
    tasks.stop_all().await;
    Ok(())
}

struct Pass {
    context: Context,
    stores: Stores,
    overview: Overview,
    tasks: Tasks,
}

impl Pass {
    async fn reconcile(&self, id: &SyncId) -> Result<(), Error> {
        let client = &self.context.client;
        let Some(sync) = self.stores.sync(id) else {
            return self.forget(id).await;
        };
        let plan = plan::plan(&sync, self.context.options.default_role, &self.stores);
        if plan.refused {
            // Nothing is made for it, and nothing of a namesake elsewhere is touched.
            self.tasks.stop(id).await;
            if sync.deleting() {
                return self
                    .finalizers(&sync, &[], &[RECONCILER_FINALIZER, MANAGER_FINALIZER])
                    .await;
            }
            return self.report(&sync, &plan, &Bound::default(), None).await;
        }
        if sync.deleting() {
            if !sync.has_finalizer(RECONCILER_FINALIZER) {
                return self.tear_down(&sync).await;
            }
            if torn_down(&sync) || (id.kind == SyncKind::Repo && self.goes(&id.namespace).await?) {
                return self.finalizers(&sync, &[], &[RECONCILER_FINALIZER]).await;
            }
        } else {
            self.finalizers(&sync, &[RECONCILER_FINALIZER, MANAGER_FINALIZER], &[])
                .await?;
        }
        // Until the reconciler has finished, everything it needs is kept up, deletion or not.
        let base = apply::ensure_base(client, &self.stores, id, &plan).await;
        let bound = apply::ensure_bindings(client, &self.stores, id, &plan).await;
        let mut problem = base.as_ref().err().map(ToString::to_string);
        // One that nobody understands any more still has objects to take away.
        if problem.is_none() && (sync.spec.is_ok() || sync.deleting()) {
            let started = match self.context.options.isolation {
                Isolation::Task => {
                    self.tasks.ensure(sync.clone());
                    if let Some(group) = self.stores.inventory(id) {
                        self.tasks.set_inventory(id, &group);
                    }
                    // Of another way to run, or of Config Sync's own manager.
                    deployment::remove(client, &self.stores, id).await
                }
                Isolation::Pod => deployment::ensure(client, &self.stores, &self.context.options, id).await,
            };
            problem = started.err().map(|error| error.to_string());
        }
        if bound.changed || matches!(base, Ok(true)) {
            self.tasks.poke(id);
        }
        self.report(&sync, &plan, &bound, problem).await?;
        base?;
        bound.error.map_or(Ok(()), Err)
    }

    /// Whether a namespace goes away, and everything in it.
    async fn goes(&self, namespace: &str) -> Result<bool, Error> {
        Ok(self.overview.terminating(namespace).await?.unwrap_or(true))
    }

    /// A sync that is gone without its finalizers leaves nothing behind either.
    async fn forget(&self, id: &SyncId) -> Result<(), Error> {
        let resource = id.kind.resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), &id.namespace, &resource);
        let there = api
            .get_opt(&id.name)
            .await
            .context(|| format!("read {id}"))?
            .is_some();
        if there {
            return Ok(());
        }
        self.tasks.stop(id).await;
        apply::remove_all(&self.context.client, id).await
    }

    async fn tear_down(&self, sync: &Sync) -> Result<(), Error> {
        self.tasks.stop(&sync.id).await;
        apply::remove_all(&self.context.client, &sync.id).await?;
        self.stores.legacy.revoke(&self.context.client, &sync.id).await?;
        self.finalizers(sync, &[], &[MANAGER_FINALIZER]).await
    }

    /// Adds and removes finalizers, and marks the sync as the parent of its set of objects.
    async fn finalizers(&self, sync: &Sync, add: &[&str], remove: &[&str]) -> Result<(), Error> {
        let have = sync.metadata.finalizers.clone().unwrap_or_default();
        let mut want: Vec<String> = have
            .iter()
            .filter(|name| !remove.contains(&name.as_str()))
            .cloned()
            .collect();
        for name in add {
            if !want.iter().any(|have| have == name) {
                want.push((*name).to_owned());
            }
        }
        let set = names::apply_set(&sync.id);
        let marked = sync.deleting()
            || sync
                .metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.get("applyset.kubernetes.io/id") == Some(&set));
        if have == want && marked {
            return Ok(());
        }
        let mut metadata = json!({
            "finalizers": want,
            "uid": sync.metadata.uid,
            // Finalizers are a list: a merge patch must not overwrite somebody else's.
            "resourceVersion": sync.metadata.resource_version,
        });
        if !sync.deleting()
            && let Some(metadata) = metadata.as_object_mut()
        {
            metadata.insert("labels".into(), json!({ "applyset.kubernetes.io/id": set }));
            metadata.insert(
                "annotations".into(),
                json!({ "applyset.kubernetes.io/tooling": "configsync.gke.io/v1" }),
            );
        }
        let resource = sync.id.kind.resource();
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.context.client.clone(), &sync.id.namespace, &resource);
        let params = PatchParams {
            field_manager: Some(FIELD_MANAGER.into()),
            ..PatchParams::default()
        };
        let patched = api
            .patch(
                &sync.id.name,
                &params,
                &Patch::Merge(&json!({ "metadata": metadata })),
            )
            .await;
        match patched {
            Ok(_) => Ok(()),
            // Our copy is old; the newer one is on its way and asks for another pass.
            Err(kube::Error::Api(status))
                if status.code == 409 || (status.code == 404 && sync.deleting()) =>
            {
                Ok(())
            }
            Err(error) => Err(error).context(|| format!("change the finalizers of {}", sync.id)),
        }
    }

    async fn report(
        &self,
        sync: &Sync,
        plan: &Plan,
        bound: &Bound,
        failure: Option<String>,
    ) -> Result<(), Error> {
        let failures = bound.failures.iter().cloned().chain(std::iter::repeat(None));
        let roles: Vec<RoleRefStatus> = if bound.failures.is_empty() {
            Vec::new()
        } else {
            plan.roles
                .iter()
                .zip(failures)
                .map(|(role, failure)| role.report(failure))
                .collect()
        };
        let pods = self.context.options.isolation == Isolation::Pod && !plan.refused;
        let waiting = pods
            .then(|| deployment::waiting(&self.stores, &sync.id))
            .flatten();
        let mut conditions = vec![match (&plan.problem, &failure) {
            (Some(problem), _) => Wanted::new("Stalled", "True", "Validation", problem),
            (None, Some(failure)) => Wanted::new("Stalled", "True", "Error", failure),
            (None, None) => Wanted::new("Stalled", "False", "", ""),
        }];
        conditions.push(match (&failure, sync.deleting()) {
            (_, true) => Wanted::new(
                "Reconciling",
                "True",
                "Teardown",
                "the sync is being deleted; its rights stay until its objects are gone",
            ),
            (Some(_), _) => Wanted::new("Reconciling", "True", "Setup", "Setup stalled"),
            (None, _) => match waiting {
                Some(waiting) => Wanted::new("Reconciling", "True", "Deployment", &waiting),
                None => Wanted::new("Reconciling", "False", "", ""),
            },
        });
        if sync.id.kind == SyncKind::Root {
            conditions.push(roles_bound(plan, &roles));
        }
        let known = sync.status.conditions.iter().flatten();
        let was_ignored = known
            .into_iter()
            .any(|condition| condition.type_ == FIELDS_IGNORED);
        match plan::ignored(sync).as_slice() {
            [] if was_ignored => conditions.push(Wanted::new(FIELDS_IGNORED, "False", "", "")),
            [] => {}
            fields => conditions.push(Wanted::new(
                FIELDS_IGNORED,
                "True",
                "NotSupported",
                &ignored_message(fields),
            )),
        }
        sync_status::write(
            &self.context.client,
            sync,
            FIELD_MANAGER,
            json!({
                "observedGeneration": sync.generation(),
                "reconciler": names::reconciler(&sync.id),
                "roleRefs": (!roles.is_empty()).then_some(roles),
            }),
            &conditions,
        )
        .await
    }
}

/// Whether the reconciler has reported, for this very deletion, that it is done.
fn torn_down(sync: &Sync) -> bool {
    sync.status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "ReconcilerFinalizing"
            && condition.status == "False"
            && condition.reason.as_deref() == Some(FINALIZED)
            && condition.observed_generation == Some(sync.generation())
    })
}

/// Whether every role in force is bound, in one condition.
fn roles_bound(plan: &Plan, roles: &[RoleRefStatus]) -> Wanted {
    let broken: Vec<&RoleRefStatus> = roles
        .iter()
        .filter(|role| role.state != RoleRefState::Bound)
        .collect();
    if let Some(first) = broken.first() {
        let reason = format!("{:?}", first.state);
        let text: Vec<String> = broken
            .iter()
            .map(|role| {
                let place = role
                    .namespace
                    .as_deref()
                    .map(|n| format!(" in {n}"))
                    .unwrap_or_default();
                let message = role.message.as_deref().unwrap_or_default();
                format!("{} {}{place}: {message}", role.kind.as_str(), role.name)
            })
            .collect();
        return Wanted::new("RolesBound", "False", &reason, &text.join("; "));
    }
    if plan.default_in_force {
        return Wanted::new(
            "RolesBound",
            "True",
            "ClusterAdmin",
            "no roleRefs are set: the reconciler is cluster-admin",
        );
    }
    if plan.roles.is_empty() {
        return Wanted::new(
            "RolesBound",
            "True",
            "NoRoles",
            "no roleRefs are set: the reconciler may only report",
        );
    }
    Wanted::new("RolesBound", "True", "Bound", "every role is bound")
}

//! Reconciles one sync: observe, plan, write the difference, report.

use std::sync::Arc;

use writ_controller::{Controller, Error, Next, error::Context as _};

use super::{
    affected::Affected,
    apply, config_sync_bindings, deployment,
    manager_view::ManagerView,
    model::Bound,
    observe::Caches,
    plan::{self, Plan},
    status::{self, Setup},
};
use crate::{
    Context, FIELD_MANAGER, Isolation,
    model::{MANAGER_FINALIZER, RECONCILER_FINALIZER, Sync, SyncId, SyncKind},
    reconciler::Tasks,
    sync_status::{self, FINALIZED},
};

/// The number of syncs that are reconciled side by side.
const CONCURRENCY: usize = 16;

/// Runs the manager until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let caches = Caches::start(&context.client, &context.shutdown);
    let tasks = Tasks::new(&context);
    let view = ManagerView::new(context.client.clone(), caches.clone());
    tasks.set_manager_view(Arc::new(view.clone()));
    let affected = Affected::new(caches.clone(), tasks.clone());
    let controller = Controller::new("sync", &context.health)
        .watch(&caches.root_syncs, affected.by(Affected::root_sync))
        .watch(&caches.repo_syncs, affected.by(Affected::repo_sync))
        .watch(&caches.accounts, affected.by(Affected::made_object))
        .watch(&caches.inventories, affected.by(Affected::made_object))
        .watch(&caches.deployments, affected.by(Affected::made_object))
        .watch(&caches.roles, affected.by(Affected::role))
        .watch(&caches.cluster_roles, affected.by(Affected::cluster_role))
        .watch(&caches.role_bindings, affected.by(Affected::binding))
        .watch(&caches.cluster_role_bindings, affected.by(Affected::binding))
        .watch(&caches.namespaces, affected.by(Affected::namespace));
    let (health, shutdown) = (context.health.clone(), context.shutdown.clone());
    let manager = Arc::new(Manager {
        context,
        caches,
        view,
        tasks: tasks.clone(),
    });
    controller
        .run(CONCURRENCY, &shutdown, |id| {
            let (manager, health) = (manager.clone(), health.clone());
            async move {
                // The whole process first: with admission, no sync is reconciled that was not checked.
                health.ready().await;
                manager.reconcile(&id).await.map(|()| Next::Wait)
            }
        })
        .await;
    tasks.stop_all().await;
    Ok(())
}

struct Manager {
    context: Context,
    caches: Caches,
    view: ManagerView,
    tasks: Tasks,
}

impl Manager {
    async fn reconcile(&self, id: &SyncId) -> Result<(), Error> {
        let (client, caches) = (&self.context.client, &self.caches);
        let Some(sync) = caches.sync(id) else {
            return self.forget(id).await;
        };
        let plan = plan::plan(&sync, self.context.options.default_role, caches);
        if plan.refused {
            // Nothing is made for it, and nothing of another sync with its names is touched.
            self.tasks.stop(id).await;
            if sync.deleting() {
                let all = [RECONCILER_FINALIZER, MANAGER_FINALIZER];
                return apply::set_finalizers(client, &sync, &[], &all).await;
            }
            return self.report(&sync, &plan, &Bound::default(), None).await;
        }
        if sync.deleting() {
            if !sync.has_finalizer(RECONCILER_FINALIZER) {
                return self.tear_down(&sync).await;
            }
            if is_finalized(&sync) || (id.kind == SyncKind::Repo && self.is_ending(&id.namespace).await?) {
                return apply::set_finalizers(client, &sync, &[], &[RECONCILER_FINALIZER]).await;
            }
        } else {
            let all = [RECONCILER_FINALIZER, MANAGER_FINALIZER];
            apply::set_finalizers(client, &sync, &all, &[]).await?;
        }
        // Until the reconciler has finished, everything it needs is kept up, even while the sync is being deleted.
        let base = apply::ensure_base(client, caches, id, &plan).await;
        let bound = apply::ensure_bindings(client, caches, id, &plan).await;
        let mut failure = base.as_ref().err().map(ToString::to_string);
        // A sync whose spec does not parse still has objects to remove when it is deleted.
        if failure.is_none() && (sync.spec.is_ok() || sync.deleting()) {
            let started = self.start_reconciler(&sync).await;
            failure = started.err().map(|error| error.to_string());
        }
        if bound.is_changed || matches!(base, Ok(true)) {
            self.tasks.poke(id);
        }
        self.report(&sync, &plan, &bound, failure).await?;
        base?;
        bound.error.map_or(Ok(()), Err)
    }

    async fn start_reconciler(&self, sync: &Arc<Sync>) -> Result<(), Error> {
        let (client, options) = (&self.context.client, &self.context.options);
        match options.isolation {
            Isolation::Pod => deployment::ensure(client, &self.caches, options, &sync.id).await,
            Isolation::Task => {
                self.tasks.ensure(sync.clone());
                if let Some(group) = self.caches.inventory(&sync.id) {
                    self.tasks.set_inventory(&sync.id, &group);
                }
                // A Deployment of the other isolation, or of Config Sync's own manager.
                deployment::remove(client, &self.caches, &sync.id).await
            }
        }
    }

    /// Whether a namespace is terminating or gone, and everything in it.
    async fn is_ending(&self, namespace: &str) -> Result<bool, Error> {
        Ok(self.view.is_terminating(namespace).await?.unwrap_or(true))
    }

    /// Removes what was made for a sync that is gone without its finalizers.
    async fn forget(&self, id: &SyncId) -> Result<(), Error> {
        let client = &self.context.client;
        let live = apply::sync_api(client, id).get_opt(&id.name).await;
        if live.context(|| format!("read {id}"))?.is_some() {
            return Ok(());
        }
        self.tasks.stop(id).await;
        apply::remove_all(client, id).await
    }

    async fn tear_down(&self, sync: &Sync) -> Result<(), Error> {
        let client = &self.context.client;
        self.tasks.stop(&sync.id).await;
        apply::remove_all(client, &sync.id).await?;
        config_sync_bindings::revoke(client, &self.caches, &sync.id).await?;
        apply::set_finalizers(client, sync, &[], &[MANAGER_FINALIZER]).await
    }

    async fn report(
        &self,
        sync: &Sync,
        plan: &Plan,
        bound: &Bound,
        failure: Option<String>,
    ) -> Result<(), Error> {
        let has_deployment = self.context.options.isolation == Isolation::Pod && !plan.refused;
        let setup = Setup {
            failure,
            unavailable: has_deployment
                .then(|| deployment::unavailable(&self.caches, &sync.id))
                .flatten(),
        };
        let (fields, conditions) = status::status(sync, plan, bound, &setup);
        sync_status::write(&self.context.client, sync, FIELD_MANAGER, fields, &conditions).await
    }
}

/// Whether the reconciler has reported the end of its teardown for this very deletion.
fn is_finalized(sync: &Sync) -> bool {
    sync.status.conditions.iter().flatten().any(|condition| {
        condition.type_ == "ReconcilerFinalizing"
            && condition.status == "False"
            && condition.reason.as_deref() == Some(FINALIZED)
            && condition.observed_generation == Some(sync.generation())
    })
}

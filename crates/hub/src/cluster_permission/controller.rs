//! Watches everything that can change the answer, plans, and writes the difference.

use std::{sync::Arc, time::Duration};

use k8s_openapi::jiff::Timestamp;
use kube::{Api, Client, Resource as _};
use writ_api::{
    rbac::{ClusterPermission, cluster_permission::ClusterPermissionStatus},
    work::ManifestWork,
};
use writ_controller::{Controller, Error, Name, Next, Queue, events::Events, write};

use super::{
    apply::{apply, delete_work},
    dependents::{self, watch_referenced},
    former_works::{Ended, delete_former_works, has_former_works},
    observe::{Observer, is_available},
    plan::plan,
    status::{is_answer_awaited, status, status_of_deleted},
};
use crate::{Context, MANAGER};

/// How many permissions are reconciled side by side.
const CONCURRENCY: usize = 8;

/// How long an agent that is available may take before the status says that it has not answered: a status that says "not yet"
/// is not worth a write if the next one replaces it.
const PROMPT: Duration = Duration::from_millis(200);

/// Runs the controller until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let observer = Observer::start(&context)?;
    let (permissions, caches) = (observer.permissions.clone(), &context.caches);
    let controller = Controller::new("cluster_permission", &context.health);
    let reconciler = Arc::new(Reconciler {
        client: context.client.clone(),
        observer,
        queue: controller.queue(),
        ended: Ended::default(),
    });
    let (neighbours, of_work, of_cluster, about) = (
        permissions.clone(),
        permissions.clone(),
        permissions.clone(),
        permissions.clone(),
    );
    let ends = reconciler.clone();
    let controller = controller
        .watch(&permissions, move |change| {
            ends.ended.note(change);
            dependents::of_permission(&neighbours, change)
        })
        .watch(caches.works(), move |change| {
            dependents::of_work(&of_work, change)
        })
        .watch(caches.clusters(), move |change| {
            dependents::of_cluster(&of_cluster, &change.name)
        });
    let referenced = (&context, &permissions);
    let of_object = dependents::of_cluster_object;
    let controller = watch_referenced(controller, referenced, caches.accounts(), of_object);
    let controller = watch_referenced(controller, referenced, caches.add_ons(), of_object);
    let of_role = dependents::of_role;
    let controller = watch_referenced(controller, referenced, caches.roles(), of_role);
    let controller = watch_referenced(controller, referenced, caches.cluster_roles(), of_role);
    let of_namespace = dependents::of_namespace;
    watch_referenced(controller, referenced, caches.namespaces(), of_namespace)
        .report(
            Events::new(context.client.clone(), "writ-hub/cluster_permission"),
            move |name| about.get(name).map(|permission| permission.object_ref(&())),
        )
        .run(CONCURRENCY, &context.shutdown, |name| {
            let reconciler = reconciler.clone();
            async move { reconciler.reconcile(&name).await }
        })
        .await;
    Ok(())
}

struct Reconciler {
    client: Client,
    observer: Observer,
    queue: Queue<Name>,
    ended: Ended,
}

impl Reconciler {
    async fn reconcile(&self, name: &Name) -> Result<Next, Error> {
        let owned = self.observer.owned_works(name);
        let Some(permission) = self.observer.permissions.get(name) else {
            self.queue.forget(name);
            self.ended.delete_works(&self.client, name, &owned).await?;
            return Ok(Next::Wait);
        };
        if permission.metadata.deletion_timestamp.is_some() {
            return self.delete(name, &permission, &owned).await;
        }
        let seen = match self.observer.observe(&permission, &owned) {
            Ok(seen) => seen,
            Err(left) => return Ok(Next::After(left)),
        };
        let plan = plan(&seen);
        let (refused, mut failed) = apply(&self.client, &seen, &plan).await;
        if has_former_works(&permission, &owned) {
            let deleted = delete_former_works(&self.client, name, &owned).await;
            failed = deleted.err().or(failed);
        }
        let status = status(&seen, &plan, &refused);
        let may_answer = failed.is_none() && is_available(seen.cluster.as_deref());
        if may_answer && is_answer_awaited(&permission, &status) {
            if let Some(left) = self.queue.hold_back(name, PROMPT) {
                return Ok(Next::After(left));
            }
        } else {
            self.queue.release(name);
        }
        self.write_status(name, &permission, &status).await?;
        failed.map_or(Ok(Next::Wait), Err)
    }

    /// The permission is being deleted: its works go. While a finalizer keeps it, its status says what is left.
    async fn delete(
        &self,
        name: &Name,
        permission: &ClusterPermission,
        owned: &[Arc<ManifestWork>],
    ) -> Result<Next, Error> {
        self.queue.release(name);
        let mut failed = None;
        for work in owned {
            failed = delete_work(&self.client, work).await.err().or(failed);
        }
        let cluster = self.observer.cluster(name);
        let status = status_of_deleted(permission, owned, cluster.as_deref(), Timestamp::now());
        self.write_status(name, permission, &status).await?;
        failed.map_or(Ok(Next::Wait), Err)
    }

    async fn write_status(
        &self,
        name: &Name,
        permission: &ClusterPermission,
        status: &ClusterPermissionStatus,
    ) -> Result<(), Error> {
        let api: Api<ClusterPermission> = write::namespaced(&self.client, &name.namespace);
        match write::ensure_status(&api, permission, status, MANAGER).await {
            // It was deleted meanwhile; the watch says so next.
            Err(error) if error.is_code(404) => Ok(()),
            written => written.map(drop),
        }
    }
}

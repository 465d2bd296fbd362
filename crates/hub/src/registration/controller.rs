//! Observes one cluster, plans, writes what differs, and answers its certificate requests.

use std::sync::Arc;

use kube::Resource as _;
use writ_controller::{Controller, Error, Name, Next, events::Events};

use super::{
    apply::Apply,
    certificate_requests::CertificateRequests,
    model::Level,
    observe::{Caches, Heartbeats, labelled_clusters},
    plan::cluster::{has_finalizer, plan},
};
use crate::Context;

/// How many clusters are reconciled side by side.
const CONCURRENCY: usize = 8;

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let caches = Arc::new(Caches::start(&context));
    let heartbeats = Arc::new(Heartbeats::default());
    let events = Events::new(context.client.clone(), "writ-hub/registration");
    let shutdown = context.shutdown.clone();
    let controller = watch(&context, &caches, &heartbeats, events.clone());
    let reconciler = Arc::new(Reconciler {
        apply: Apply::new(&context, caches.clone()),
        requests: CertificateRequests::new(&context, caches.clone(), events),
        caches,
        heartbeats,
    });
    controller
        .run(CONCURRENCY, &shutdown, move |cluster| {
            let reconciler = reconciler.clone();
            async move { reconciler.reconcile(&cluster).await }
        })
        .await;
    Ok(())
}

/// What brings a cluster, by name, to be reconciled.
fn watch(
    context: &Context,
    caches: &Caches,
    heartbeats: &Arc<Heartbeats>,
    events: Events,
) -> Controller<Arc<str>> {
    let (heartbeats, clusters) = (heartbeats.clone(), caches.clusters.clone());
    let is_cluster = {
        let clusters = clusters.clone();
        move |name: &Arc<str>| {
            clusters
                .contains(&Name::global(name.clone()))
                .then(|| name.clone())
        }
    };
    let (has_namespace, has_account) = (is_cluster.clone(), is_cluster);
    let about = clusters.clone();
    Controller::new("registration", &context.health)
        .watch(&caches.clusters, |change| [change.name.name.clone()])
        .watch(&caches.namespaces, move |change| has_namespace(&change.name.name))
        .watch(&caches.leases, move |change| heartbeats.take(change, &clusters))
        // Of works and add-ons only their number matters.
        .watch(&caches.works, |change| {
            change.is_gone().then(|| change.name.namespace.clone())
        })
        .watch(&caches.add_ons, |change| {
            change.is_gone().then(|| change.name.namespace.clone())
        })
        .watch(&caches.requests, labelled_clusters)
        .watch(&caches.cluster_roles, labelled_clusters)
        .watch(&caches.cluster_bindings, labelled_clusters)
        .watch(&caches.bindings, |change| [change.name.namespace.clone()])
        .watch(&caches.accounts, move |change| {
            has_account(&change.name.namespace)
        })
        .report(events, move |cluster| {
            Some(about.get(&Name::global(cluster.clone()))?.object_ref(&()))
        })
}

struct Reconciler {
    caches: Arc<Caches>,
    heartbeats: Arc<Heartbeats>,
    apply: Apply,
    requests: CertificateRequests,
}

impl Reconciler {
    /// Brings one cluster in shape: rights first when they grow, last when everything else of the cluster is gone.
    async fn reconcile(&self, name: &str) -> Result<Next, Error> {
        let Some(cluster) = self.caches.clusters.get(&Name::global(name)) else {
            self.apply.rights(name, None, Level::Nothing).await?;
            return Ok(Next::Wait);
        };
        let deleting = cluster.metadata.deletion_timestamp.is_some();
        let mut observed = self.caches.observe(name, &self.heartbeats);
        if deleting && observed.works + observed.addons == 0 {
            // The caches may lag: before the agent loses its rights for good, the server is asked.
            (observed.works, observed.addons) = self.apply.count_remaining(name).await?;
        }
        let plan = plan(&cluster, &observed);
        // Each write returns the version that the next one needs.
        let mut latest = (*cluster).clone();
        if plan.finalizer {
            self.apply.finalizer(&mut latest, true, plan.taken_over).await?;
        }
        if plan.home {
            self.apply.namespace(name).await?;
            self.apply.lease(name, observed.silent_for.is_some()).await?;
        }
        self.apply.rights(name, Some(&cluster), plan.level).await?;
        self.apply.taints(&mut latest, plan.taints.as_deref()).await?;
        self.apply.conditions(&mut latest, &plan.conditions).await?;
        self.apply.delete(name, plan.delete).await?;
        self.requests.answer(&latest).await?;
        if !plan.finalizer {
            if deleting && has_finalizer(&cluster) {
                self.apply.clear_namespace(name).await?;
            }
            self.apply.finalizer(&mut latest, false, None).await?;
        }
        Ok(plan.again_in.map_or(Next::Wait, Next::After))
    }
}

//! Renews the cluster's lease once per lease duration, and reports facts whenever one changes.

use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use writ_controller::{Controller, Error, Next, Queue};

use super::{
    apply::Apply,
    heartbeat::{self, Health, Heartbeat},
    model::Facts,
    observe::Caches,
    plan,
};
use crate::Context;

/// What is reconciled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Key {
    /// The lease, and whether the cluster's API server is healthy.
    Heartbeat,
    /// The status of the ManagedCluster.
    Report,
}

/// Both run side by side: a slow report must not delay the lease.
const CONCURRENCY: usize = 2;

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let caches = Arc::new(Caches::start(&context));
    let controller = watch(&context, &caches);
    let shutdown = context.shutdown.clone();
    let reconciler = Arc::new(Reconciler {
        apply: Apply::new(&context),
        heartbeat: Heartbeat::new(&context),
        queue: controller.queue(),
        health: Mutex::default(),
        controllers: context.running_controllers(),
        context,
        caches,
    });
    reconciler.queue.add(Key::Heartbeat);
    controller
        .run(CONCURRENCY, &shutdown, move |key| {
            let reconciler = reconciler.clone();
            async move {
                match key {
                    Key::Heartbeat => Ok(reconciler.beat().await),
                    Key::Report => reconciler.report().await,
                }
            }
        })
        .await;
    Ok(())
}

fn watch(context: &Context, caches: &Caches) -> Controller<Key> {
    Controller::new("registration", &context.health)
        .watch(&caches.clusters, |_| [Key::Report])
        .watch(&caches.nodes, |change| {
            let changed = change.old().as_deref() != change.new.as_deref();
            changed.then_some(Key::Report)
        })
        .watch(&caches.claims, |_| [Key::Report])
        // Without the right to watch namespaces everything else is still reported.
        .watch_unawaited(&caches.namespaces, |_| [Key::Report])
        .on_list(&caches.namespaces, || [Key::Report])
}

struct Reconciler {
    context: Context,
    caches: Arc<Caches>,
    apply: Apply,
    heartbeat: Heartbeat,
    queue: Queue<Key>,
    /// The cluster's API server, once it was asked.
    health: Mutex<Option<Health>>,
    controllers: Vec<String>,
}

impl Reconciler {
    /// Renews the lease and asks for the health of the cluster's API server, which the next report tells. A failure is
    /// logged, and the pause until the next heartbeat is shorter.
    async fn beat(&self) -> Next {
        let before = self.health();
        let every = heartbeat::interval(self.caches.cluster().as_deref());
        let (health, pause) = self.heartbeat.beat(before, every).await;
        *self.health.lock().unwrap_or_else(PoisonError::into_inner) = Some(health);
        self.queue.add(Key::Report);
        Next::After(pause)
    }

    fn health(&self) -> Option<Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    async fn report(&self) -> Result<Next, Error> {
        // Before the first heartbeat nothing is known of the API server.
        let (Some(cluster), Some(health)) = (self.caches.cluster(), self.health()) else {
            return Ok(Next::Wait);
        };
        let nodes = self.caches.nodes.all();
        let claims = self.caches.claims.all();
        let namespaces = self
            .caches
            .namespaces
            .is_ready()
            .then(|| self.caches.namespaces.all());
        let facts = Facts {
            unhealthy: health.problem,
            version: health.version,
            resources: plan::resources(nodes.iter().map(|(_, node)| &**node)),
            claims: plan::claims(
                claims.iter().map(|(_, claim)| &**claim),
                &self.controllers,
                &self.context.options.agent_namespace,
            ),
            labels: self.apply.labels(&cluster).await?,
            namespaces: self.apply.namespaces(&cluster, namespaces.as_deref()).await?,
        };
        if let Some(patch) = plan::status_patch(&cluster, &facts, Timestamp::now()) {
            let written = self.apply.status(&cluster, &patch).await?;
            self.caches.clusters.record(written)?;
        }
        Ok(Next::Wait)
    }
}

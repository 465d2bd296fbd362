//! Watches ManifestWorks on the hub and AppliedManifestWorks on the managed cluster, and runs the reconciles.

use std::sync::{Arc, atomic::Ordering};

use kube::{Api, ResourceExt};
use writ_api::work::{AppliedManifestWork, ManifestWork};
use writ_controller::{Error, queue::Next};

use super::{
    mirror::{Change, follow},
    model::Key,
    state::Agent,
};
use crate::Context;

/// How many works are reconciled side by side.
const WORKERS: usize = 10;

/// Delivers works until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let works_gate = context.health.gate("watch ManifestWorks");
    let applied_gate = context.health.gate("watch AppliedManifestWorks");
    let agent = Arc::new(Agent::new(&context));

    let applied_watch = {
        let agent = agent.clone();
        let api: Api<AppliedManifestWork> = Api::all(context.spoke.clone());
        async move {
            follow(api, &agent.applied, |event| match event {
                Change::Put(applied) => agent.queue.add(Key::applied(&applied.name_any())),
                Change::Gone(name) => {
                    agent.queue.add(Key::applied(&name));
                    // The name is the hub's hash, a dash, and the name of the work.
                    if let Some((_, work)) = name.split_once('-') {
                        agent.queue.add(Key::work(work));
                    }
                }
                Change::Broken(name, error) => {
                    tracing::error!(name, error, "an AppliedManifestWork cannot be parsed");
                }
                Change::Listed => {
                    agent.are_applied_listed.store(true, Ordering::SeqCst);
                    // Works that are being deleted wait to know what was applied.
                    for name in agent.works.names() {
                        agent.queue.add(Key::work(&name));
                    }
                    applied_gate.open();
                }
            })
            .await;
        }
    };
    let works_watch = {
        let agent = agent.clone();
        let api: Api<ManifestWork> = agent.hub_works();
        async move {
            follow(api, &agent.works, |event| match event {
                Change::Put(work) => agent.work_changed(&work.name_any()),
                Change::Broken(name, _) | Change::Gone(name) => agent.work_changed(&name),
                Change::Listed => {
                    agent.is_hub_listed.store(true, Ordering::SeqCst);
                    for name in agent.applied.names() {
                        agent.queue.add(Key::applied(&name));
                    }
                    works_gate.open();
                }
            })
            .await;
        }
    };
    let meter = context.health.meter("work");
    let serve = agent.queue.run(WORKERS, &context.shutdown, &meter, |key| {
        let agent = agent.clone();
        async move { agent.reconcile(key).await }
    });
    let gate = agent.gate.run(&context.shutdown);
    tokio::select! {
        () = context.shutdown.cancelled() => {}
        () = async { futures::join!(applied_watch, works_watch, serve, gate); } => {}
    }
    Ok(())
}

impl Agent {
    async fn reconcile(&self, key: Key) -> Next {
        let reconciled = match &key {
            Key::Work(name) => self.reconcile_work(name).await,
            Key::Applied(name) => self.reconcile_applied(name).await,
            Key::AgentRights => {
                self.watches.retry_refused();
                Ok(Next::Wait)
            }
        };
        reconciled.unwrap_or_else(|error| {
            tracing::warn!(?key, %error, "could not finish, will try again");
            Next::Retry
        })
    }

    fn work_changed(&self, work: &str) {
        for key in [Key::work(work), Key::applied(&self.applied_name(work))] {
            self.queue.forgive(&key);
            self.queue.add(key);
        }
    }
}

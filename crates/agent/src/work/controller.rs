//! Watches ManifestWorks on the hub and AppliedManifestWorks on the managed cluster, and runs the reconciles.

use std::sync::Arc;

use writ_controller::{
    Controller, Error, Next,
    cache::{Change, Event},
};

use super::{model::Key, state::Agent};
use crate::Context;

/// How many works are reconciled side by side.
const WORKERS: usize = 10;

/// Delivers works until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let controller = Controller::new("work", &context.health);
    let agent = Arc::new(Agent::new(&context, controller.queue()));
    // What has to be deleted on the managed cluster is, also while the hub cannot be reached. Until its works are known
    // the agent is not ready, and evicts nothing.
    let hub_gate = context.health.gate("work: watch ManifestWorks");
    let _hub_listed = agent.works.subscribe(move |event| {
        if let Event::Listed = event {
            hub_gate.open();
        }
    });
    let (hub_hash, applied) = (agent.hub_hash.clone(), agent.applied.clone());
    controller
        .watch(&agent.applied, keys_of_applied)
        .watch_unawaited(&agent.works, move |change| {
            // What this process wrote is no news.
            if change.recorded {
                return Vec::new();
            }
            let name = &change.name.name;
            vec![
                Key::Work(name.clone()),
                Key::applied(&format!("{hub_hash}-{name}")),
            ]
        })
        .on_list(&agent.works, move || {
            applied.names().into_iter().map(|name| Key::Applied(name.name))
        })
        .run(WORKERS, &context.shutdown, move |key| {
            let agent = agent.clone();
            async move { agent.reconcile(key).await }
        })
        .await;
    Ok(())
}

/// The AppliedManifestWork; and its work if it is gone, which then has to be recreated, or may lose its finalizer.
fn keys_of_applied<V>(change: &Change<'_, V>) -> Vec<Key> {
    let name = &change.name.name;
    let mut keys = Vec::new();
    if !change.recorded {
        keys.push(Key::Applied(name.clone()));
    }
    // The name is the hash of the hub, a dash, and the name of the work.
    if change.is_gone()
        && let Some((_, work)) = name.split_once('-')
    {
        keys.push(Key::work(work));
    }
    keys
}

impl Agent {
    async fn reconcile(&self, key: Key) -> Result<Next, Error> {
        match &key {
            Key::Work(name) => self.reconcile_work(name).await,
            Key::Applied(name) => self.reconcile_applied(name).await,
            Key::AgentRights => {
                self.watches.retry_refused();
                Ok(Next::Wait)
            }
        }
    }
}

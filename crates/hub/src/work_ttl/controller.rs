//! Watches works, and deletes a complete one once its time to live is over.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Api;
use writ_api::work::ManifestWork;
use writ_controller::{Controller, Error, Name, Next, error::Context as _, write};

use super::plan;
use crate::Context;

/// How many works are deleted side by side.
const CONCURRENCY: usize = 4;

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let context = Arc::new(context);
    Controller::new("work_ttl", &context.health)
        .watch(context.caches.works(), |change| {
            let asks = change
                .new
                .as_ref()
                .is_some_and(|work| plan::due(work, Timestamp::now()).is_some());
            asks.then(|| change.name.clone())
        })
        .run(CONCURRENCY, &context.shutdown, |name| {
            let context = context.clone();
            async move { expire(&context, &name).await }
        })
        .await;
    Ok(())
}

async fn expire(context: &Context, name: &Name) -> Result<Next, Error> {
    let seen = context.caches.works().get(name);
    let Some(delay) = seen.and_then(|work| plan::due(&work, Timestamp::now())) else {
        return Ok(Next::Wait);
    };
    if !delay.is_zero() {
        return Ok(Next::After(delay));
    }
    // The cache may be stale, so the work is read again before it is deleted.
    let api: Api<ManifestWork> = write::namespaced(&context.client, &name.namespace);
    let live = api
        .get_opt(&name.name)
        .await
        .context(|| format!("read ManifestWork {name}"))?;
    let due = live.filter(|work| plan::due(work, Timestamp::now()).is_some_and(|delay| delay.is_zero()));
    if let Some(work) = due {
        write::delete_as_seen(&api, &work).await?;
    }
    Ok(Next::Wait)
}

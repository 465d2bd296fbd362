//! Deletes works that are complete, so many seconds later as they ask for.
//!
//! Only `spec.deleteOption.ttlSecondsAfterFinished` counts, and only once the condition `Complete` is true. Works of
//! a ManifestWorkReplicaSet are left alone: it would make them again. Nothing is cached: the watch names a time,
//! and at that time the work is read once more.

mod plan;

use futures::{StreamExt, pin_mut};
use jiff::Timestamp;
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Preconditions},
    runtime::{WatchStreamExt, watcher},
};
use writ_api::work::ManifestWork;
use writ_controller::{
    Error,
    error::status_code,
    queue::{Next, Queue},
    tolerant::guarded,
};

use crate::Context;

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let gate = context.health.gate("watch ManifestWorks for their time to live");
    let queue: Queue<(String, String)> = Queue::default();
    let watch = async {
        let config = watcher::Config::default().page_size(100);
        let events = guarded::<ManifestWork>(Api::all(context.client.clone()), config).default_backoff();
        pin_mut!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(work) | watcher::Event::InitApply(work)) => {
                    if let Some(delay) = plan::due(&work, Timestamp::now()) {
                        queue.add_after((work.namespace().unwrap_or_default(), work.name_any()), delay);
                    }
                }
                Ok(watcher::Event::InitDone) => gate.open(),
                Ok(watcher::Event::Init | watcher::Event::Delete(_)) => {}
                Err(error) => tracing::warn!(%error, "watch on works interrupted, will try again"),
            }
        }
    };
    let meter = context.health.meter("work_ttl");
    let serve = queue.run(4, &context.shutdown, &meter, |(namespace, name)| {
        let api: Api<ManifestWork> = Api::namespaced(context.client.clone(), &namespace);
        async move { expire(&api, &name).await }
    });
    tokio::select! {
        () = watch => {}
        () = serve => {}
    }
    Ok(())
}

async fn expire(api: &Api<ManifestWork>, name: &str) -> Next {
    let work = match api.get_opt(name).await {
        Ok(Some(work)) => work,
        Ok(None) => return Next::Wait,
        Err(_) => return Next::Retry,
    };
    match plan::due(&work, Timestamp::now()) {
        None => return Next::Wait,
        Some(delay) if !delay.is_zero() => return Next::After(delay),
        Some(_) => {}
    }
    let exact = DeleteParams::default().preconditions(Preconditions {
        uid: work.uid(),
        resource_version: work.resource_version(),
    });
    match api.delete(name, &exact).await {
        Ok(_) => Next::Wait,
        Err(error) if status_code(&error) == Some(404) => Next::Wait,
        Err(_) => Next::Retry,
    }
}

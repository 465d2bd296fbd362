//! A watch that goes on until shutdown: failures are retried with growing pauses and logged once a minute at most.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use futures::{Stream, StreamExt as _};
use kube::{
    Api, Resource,
    runtime::{
        WatchStreamExt as _,
        wait::{Condition, await_condition},
        watcher::{self, Event, watcher},
    },
};
use serde::de::DeserializeOwned;

use crate::backoff::Backoff;

/// How often a watch that stays broken is logged.
const LOGGED_EVERY: Duration = Duration::from_mins(1);

/// The events of a watch; `None` says that it was interrupted, and that changes may be seen late. `what` names it in the
/// log, in the plural: `ManagedClusters`.
pub fn events<K>(
    api: Api<K>,
    config: watcher::Config,
    what: impl Into<String>,
) -> impl Stream<Item = Option<Event<K>>> + Send
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let mut outage = Outage {
        what: what.into(),
        logged: None,
    };
    watcher(api, config)
        .default_backoff()
        .map(move |event| outage.log(event))
}

/// The log of one watch.
struct Outage {
    what: String,
    /// When the present outage was last logged.
    logged: Option<Instant>,
}

impl Outage {
    fn log<K>(&mut self, event: watcher::Result<Event<K>>) -> Option<Event<K>> {
        let what = &self.what;
        match event {
            // A list begins again before it is known to succeed.
            Ok(Event::Init) => {}
            Ok(_) => {
                if self.logged.take().is_some() {
                    tracing::info!("the watch of {what} works again");
                }
            }
            Err(error) => {
                if self.logged.is_none_or(|logged| logged.elapsed() >= LOGGED_EVERY) {
                    self.logged = Some(Instant::now());
                    tracing::warn!(%error, "the watch of {what} is interrupted, trying again");
                } else {
                    tracing::debug!(%error, "the watch of {what} is still interrupted");
                }
                return None;
            }
        }
        event.ok()
    }
}

/// Waits until a watch of this one object shows it as `wanted`, and then for the next of the growing pauses, as a right
/// counts only some moments after it was granted. Without the right to watch there is only the pause.
pub async fn until<K>(api: &Api<K>, name: &str, wanted: impl Condition<K>, pauses: &mut Backoff)
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + 'static,
{
    if let Err(error) = await_condition(api.clone(), name, wanted).await {
        tracing::debug!(%name, %error, "cannot watch the object, pausing instead");
    }
    tokio::time::sleep(pauses.next_delay()).await;
}

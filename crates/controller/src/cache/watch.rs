//! The log of a watch that fails and is retried: a line for the beginning of an outage, then one a minute at most.

use std::{
    fmt::Debug,
    time::{Duration, Instant},
};

use kube::{
    Api, Resource,
    runtime::{
        wait::{Condition, await_condition},
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;

use crate::backoff::Backoff;

/// How often a watch that stays broken is logged.
const LOGGED_EVERY: Duration = Duration::from_mins(1);

/// The log of one watch, through all its restarts.
pub struct Outage {
    what: String,
    advice: &'static str,
    /// When the present outage was last logged.
    logged: Option<Instant>,
}

impl Outage {
    /// The log of a watch of `what`, in the plural: `ManagedClusters`. `advice` is logged where the API server does not know
    /// the kind.
    pub fn new(what: &str, advice: &'static str) -> Self {
        Self {
            what: what.to_owned(),
            advice,
            logged: None,
        }
    }

    /// The event; `None`, and a line in the log, if the watch is interrupted.
    pub fn log<K>(&mut self, event: watcher::Result<Event<K>>) -> Option<Event<K>> {
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
                    // Advice does not get better by repetition.
                    let is_new = self.logged.replace(Instant::now()).is_none();
                    let advice = if is_new && is_unserved(&error) {
                        self.advice
                    } else {
                        ""
                    };
                    tracing::warn!(%error, advice, "the watch of {what} is interrupted, trying again");
                } else {
                    tracing::debug!(%error, "the watch of {what} is still interrupted");
                }
                return None;
            }
        }
        event.ok()
    }
}

/// Whether the API server does not know the kind.
fn is_unserved(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
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

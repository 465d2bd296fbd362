//! Leader election: at most one of several processes acts at a time.
//!
//! The vote is a Lease, read with GET and written with PUT and its resourceVersion, so two candidates can never
//! both win one round. Clocks of other machines are not trusted: a candidate takes over when the Lease has not changed for its
//! whole duration *as measured here*, and a leader steps down when its own renewals have failed for less than
//! that, measured from before it sent the last one that succeeded.

mod store;
#[cfg(test)]
mod tests;

use std::{future::Future, time::Duration};

use kube::{Api, Client};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use store::{Named, Record, Refused, Store};
use writ_controller::backoff::jitter;

/// The intervals of an election.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// A Lease that has not changed for this long is up for grabs.
    pub duration: Duration,
    /// A leader that could not renew for this long steps down; less than `duration`.
    pub renew_deadline: Duration,
    /// How often to try.
    pub retry: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry: Duration::from_secs(2),
        }
    }
}

/// One candidate.
pub struct Candidate<S> {
    store: S,
    identity: String,
    timing: Timing,
    /// The Lease as last seen, and when it was first seen like that.
    observed: Option<(Record, Instant)>,
    /// What the log advises if the Lease cannot be written at all.
    advice: &'static str,
    /// Failed writes in a row.
    failures: u32,
}

/// After this many failed writes in a row a warning is logged, once. A single failure only means that another candidate
/// was faster.
const FAILURES_BEFORE_WARNING: u32 = 2;

impl Candidate<Named> {
    /// A candidate for the Lease of that name. The identity must differ between processes.
    pub fn new(client: Client, namespace: &str, name: &str, identity: String, timing: Timing) -> Self {
        let store = Named {
            api: Api::namespaced(client, namespace),
            name: name.into(),
        };
        Self::with_store(store, identity, timing)
    }
}

impl<S: Store> Candidate<S> {
    /// A candidate with a store of its own, for tests.
    pub fn with_store(store: S, identity: String, timing: Timing) -> Self {
        Self {
            store,
            identity,
            timing,
            observed: None,
            advice: "",
            failures: 0,
        }
    }

    /// Adds advice to the log line about a Lease that cannot be written.
    #[must_use]
    pub fn advise(mut self, advice: &'static str) -> Self {
        self.advice = advice;
        self
    }

    /// Waits until elected, runs `work` with a token that is cancelled when leadership is lost, and stands for
    /// election again when it has ended. Releases the Lease and returns on shutdown.
    pub async fn run<F, Fut>(mut self, shutdown: CancellationToken, mut work: F)
    where
        F: FnMut(CancellationToken) -> Fut,
        Fut: Future<Output = ()>,
    {
        while let Some(until) = self.acquire(&shutdown).await {
            let lost = CancellationToken::new();
            let work = work(lost.clone());
            tokio::pin!(work);
            tokio::select! {
                () = &mut work => {}
                () = self.renew(until, &shutdown) => {
                    lost.cancel();
                    // It may finish its work only while no other candidate can have taken over.
                    let grace = self.timing.duration.saturating_sub(self.timing.renew_deadline);
                    let _ = tokio::time::timeout(grace, work).await;
                }
            }
            self.release().await;
            if shutdown.is_cancelled() {
                return;
            }
        }
    }

    /// Tries until elected; `None` on shutdown. The instant is when leadership ends unless it is renewed.
    async fn acquire(&mut self, shutdown: &CancellationToken) -> Option<Instant> {
        loop {
            let sent = Instant::now();
            if shutdown.is_cancelled() {
                return None;
            }
            if self.attempt().await {
                return Some(sent + self.timing.renew_deadline);
            }
            tokio::select! {
                () = shutdown.cancelled() => return None,
                () = tokio::time::sleep(jitter(self.timing.retry)) => {}
            }
        }
    }

    /// Renews until that has failed for too long, or shutdown.
    async fn renew(&mut self, mut until: Instant, shutdown: &CancellationToken) {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return,
                () = tokio::time::sleep(self.timing.retry) => {}
            }
            let sent = Instant::now();
            // A renewal that hangs must not outlive the deadline.
            match tokio::time::timeout_at(until, self.attempt()).await {
                Ok(true) => until = sent + self.timing.renew_deadline,
                Ok(false) if self.lost() || Instant::now() >= until => return,
                Ok(false) => {}
                Err(_) => return,
            }
        }
    }

    /// Whether another candidate holds the Lease, as far as is known.
    fn lost(&self) -> bool {
        self.observed
            .as_ref()
            .is_some_and(|(record, _)| record.holder.as_deref() != Some(&self.identity))
    }

    /// One round: reads the Lease and writes it if it may. True if it is ours now.
    async fn attempt(&mut self) -> bool {
        let current = match self.store.read().await {
            Ok(current) => current,
            Err(Refused(why)) => {
                tracing::warn!(identity = self.identity, why, "cannot read the lease");
                return false;
            }
        };
        let now = Instant::now();
        if let Some(record) = &current {
            match &self.observed {
                Some((seen, _)) if seen == record => {}
                _ => self.observed = Some((record.clone(), now)),
            }
            let ours = record.holder.as_deref() == Some(&self.identity);
            let held = record.holder.is_some();
            let since = self.observed.as_ref().map_or(now, |(_, since)| *since);
            // The duration in the Lease counts: another version of this program may use a longer one.
            let duration = record.duration.max(self.timing.duration);
            if held && !ours && now < since + duration {
                return false;
            }
        }
        let wanted = Record::held_by(&self.identity, self.timing.duration, current.as_ref());
        match self.store.write(wanted).await {
            Ok(written) => {
                self.observed = Some((written, Instant::now()));
                self.failures = 0;
                true
            }
            Err(Refused(why)) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures == FAILURES_BEFORE_WARNING {
                    let advice = self.advice;
                    tracing::warn!(
                        identity = self.identity,
                        why,
                        advice,
                        "cannot write the lease: controllers stay idle until it succeeds"
                    );
                } else {
                    tracing::debug!(identity = self.identity, why, "did not get the lease");
                }
                false
            }
        }
    }

    /// Gives the Lease back, so that the next leader need not wait.
    async fn release(&mut self) {
        let Some((record, _)) = self
            .observed
            .take()
            .filter(|(r, _)| r.holder.as_deref() == Some(&self.identity))
        else {
            return;
        };
        let released = tokio::time::timeout(self.timing.retry, self.store.write(record.released())).await;
        if !matches!(released, Ok(Ok(_))) {
            tracing::debug!(
                identity = self.identity,
                "the lease was not released, it will expire"
            );
        }
    }
}

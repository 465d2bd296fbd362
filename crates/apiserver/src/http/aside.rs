//! Requests that take long keep nobody else waiting.
//!
//! What a request asks for is worked out without a pause, and the runtime has no more threads than the machine has processors:
//! a few requests that are large enough would stop all others. So such a request is worked on aside, by a thread that takes turns
//! with the rest: one with a large body at once, and one of a sort of which another took long lately.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::Method;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Semaphore;

use super::{Query, Route};

/// Bodies from this size on are large.
const LARGE: usize = 16 << 10;
/// A request that goes on for longer without a pause takes long.
const LONG: Duration = Duration::from_millis(10);
/// How many threads work aside at most. More requests than that take turns with all others: a thread that waits for a webhook is
/// lost to the rest, and the runtime has no more than some hundreds.
const THREADS: usize = 64;
/// How long a sort of requests is remembered.
const LATELY: Duration = Duration::from_secs(10);

/// What requests that cost about the same have in common: what is done to which resource.
pub(super) struct Sort {
    verb: &'static str,
    group: String,
    resource: String,
}

impl Sort {
    pub fn of(method: &Method, route: &Route, query: &Query) -> Self {
        let (verb, group, resource) = match route {
            Route::Resource(target) => (
                target.verb(method, query),
                target.group.clone(),
                target.resource.clone(),
            ),
            Route::Other(_) => Default::default(),
        };
        Self {
            verb,
            group,
            resource,
        }
    }
}

/// The sorts of requests of which one took long lately, and who works on such ones.
pub(crate) struct Slow {
    sorts: Mutex<HashMap<(&'static str, String, String), Instant>>,
    threads: Semaphore,
}

impl Default for Slow {
    fn default() -> Self {
        Self {
            sorts: Mutex::default(),
            threads: Semaphore::new(THREADS),
        }
    }
}

impl Slow {
    fn has(&self, sort: &Sort) -> bool {
        let sorts = self.sorts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = sorts.iter();
        all.any(|((verb, group, resource), at)| {
            (*verb, group, resource) == (sort.verb, &sort.group, &sort.resource) && at.elapsed() < LATELY
        })
    }

    fn add(&self, sort: Sort) {
        let mut sorts = self.sorts.lock().unwrap_or_else(PoisonError::into_inner);
        sorts.retain(|_, at| at.elapsed() < LATELY);
        sorts.insert((sort.verb, sort.group, sort.resource), Instant::now());
    }

    /// Works on a request, aside if it looks as if it took long.
    pub(super) async fn work<T>(&self, sort: Sort, body: usize, work: impl Future<Output = T>) -> T {
        let runtime = Handle::current();
        let can = runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
        let thread = (can && (body >= LARGE || self.has(&sort)))
            .then(|| self.threads.try_acquire().ok())
            .flatten();
        let (done, longest) = if thread.is_some() {
            tokio::task::block_in_place(|| runtime.block_on(timed(work)))
        } else {
            timed(work).await
        };
        drop(thread);
        if longest > LONG {
            self.add(sort);
        }
        done
    }
}

/// Also says for how long it went on at most without a pause.
async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let mut work = pin!(work);
    let mut longest = Duration::ZERO;
    let done = poll_fn(|context| {
        let since = Instant::now();
        let polled = work.as_mut().poll(context);
        longest = longest.max(since.elapsed());
        polled
    })
    .await;
    (done, longest)
}

//! Tasks that came to nothing because somebody said no: they are tried again, less and less often.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::Task;
use crate::state::State;
use crate::status::Result;

const FIRST: Duration = Duration::from_millis(5);
const LONGEST: Duration = Duration::from_mins(1);

#[derive(Default)]
struct Refused {
    times: u32,
    /// Whether it will be tried again already.
    waiting: bool,
}

/// The tasks that were refused.
#[derive(Default)]
pub(super) struct Retries(Mutex<BTreeMap<Task, Refused>>);

impl Retries {
    fn all(&self) -> MutexGuard<'_, BTreeMap<Task, Refused>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long to wait now, unless somebody waits already.
    fn refused(&self, task: &Task) -> Option<Duration> {
        let mut all = self.all();
        let refused = all.entry(task.clone()).or_default();
        if refused.waiting {
            return None;
        }
        let delay = FIRST.saturating_mul(1 << refused.times.min(16)).min(LONGEST);
        refused.times += 1;
        refused.waiting = true;
        Some(delay)
    }

    fn woken(&self, task: &Task) {
        if let Some(refused) = self.all().get_mut(task) {
            refused.waiting = false;
        }
    }

    /// It came to something, or there is nothing left to do.
    pub fn done(&self, task: &Task) {
        self.all().remove(task);
    }
}

/// Tries a task again that somebody refused, or was faster than.
pub(super) fn settle(state: &Arc<State>, task: &Task, outcome: Result<()>) {
    match outcome {
        Ok(()) => state.work.retries.done(task),
        Err(failure) => {
            tracing::debug!(?task, why = failure.message(), "a controller is refused");
            later(state, task.clone());
        }
    }
}

/// Tries a task again after a while.
fn later(state: &Arc<State>, task: Task) {
    let Some(delay) = state.work.retries.refused(&task) else {
        return;
    };
    let state = state.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = state.stop.cancelled() => {}
            () = tokio::time::sleep(delay) => {
                state.work.retries.woken(&task);
                state.work.push(task);
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_is_refused_waits_longer_each_time() {
        let (retries, task) = (Retries::default(), Task::Aggregate);
        let mut waited = Vec::new();
        for _ in 0..20 {
            waited.push(retries.refused(&task).unwrap_or_default());
            assert_eq!(retries.refused(&task), None, "one waits already");
            retries.woken(&task);
        }
        assert_eq!(waited.first(), Some(&FIRST));
        assert_eq!(waited.last(), Some(&LONGEST));
        assert!(waited.is_sorted());
        retries.done(&task);
        assert_eq!(retries.refused(&task), Some(FIRST));
    }
}

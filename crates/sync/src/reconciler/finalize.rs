//! The end of a sync: its objects are deleted or given up, as its annotation says.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use kube::api::PropagationPolicy;
use tokio::time::Instant;

use super::{
    apply::{self, Cause, Failure, Removal, inventory},
    engine::Engine,
    error::{Code, Problem},
    object::{Key, rank},
    rest_mapper::Kind,
    status::{self, Finalizing},
};
use crate::model::{ABANDON, DELETION_POLICY};

/// How many objects are deleted at once.
const WRITERS: usize = 32;
/// How long one round waits for objects to go.
const ROUND: Duration = Duration::from_secs(30);
/// The same, where those that stay are left behind.
const ABANDONED: Duration = Duration::from_secs(2);

impl Engine {
    /// Deletes or gives up every object of the inventory; returns whether that is done and reported.
    pub(super) async fn finalize(&mut self) -> bool {
        // Nothing is watched or applied any more.
        self.watches.clear();
        self.declared.clear();
        if matches!(self.state.finalizing, Some(Finalizing::Done(_))) {
            return self.tell().await;
        }
        let keys = match inventory::read(&self.client, &self.id).await {
            // What somebody took out of it a moment ago is still ours.
            Ok(keys) => self
                .inventory
                .iter()
                .flatten()
                .cloned()
                .chain(keys)
                .collect::<BTreeSet<_>>(),
            Err(error) => {
                self.unauthorized |= error.is_code(401);
                self.state.finalizing =
                    Some(Finalizing::Failed(vec![Problem::new(Code::ApiServer, error.to_string())]));
                self.tell().await;
                return false;
            }
        };
        if !keys.is_empty() && self.state.finalizing.is_none() {
            self.state.finalizing = Some(Finalizing::Working);
            self.tell().await;
        }
        let foreground = self.sync.annotation(DELETION_POLICY) == Some("Foreground");
        let mut left = Vec::new();
        let mut problems: Vec<Problem> = Vec::new();
        // Whether something failed that is not left behind.
        let mut stuck = false;
        let mut order: BTreeMap<u8, Vec<Key>> = BTreeMap::new();
        for key in keys {
            order.entry(u8::MAX - rank(&key)).or_default().push(key);
        }
        for keys in order.into_values() {
            // What the others need stays as long as they do.
            if stuck {
                left.extend(keys);
                continue;
            }
            let this = &*self;
            let work: Vec<BoxFuture<'_, _>> = keys
                .into_iter()
                .map(|key| {
                    async move {
                        let act = |kind| {
                            let key = key.clone();
                            async move { this.end(&key, &kind, foreground).await }.boxed()
                        };
                        let outcome = this.in_any_version(&key, act).await;
                        (key, outcome)
                    }
                    .boxed()
                })
                .collect();
            let outcomes: Vec<(Key, Result<(), Failure>)> =
                stream::iter(work).buffer_unordered(WRITERS).collect().await;
            for (key, outcome) in outcomes {
                if let Err(failure) = outcome {
                    self.unauthorized |= failure.cause == Cause::Unauthorized;
                    stuck |= !self.abandons(&failure);
                    left.push(key);
                    problems.push(failure.problem);
                }
            }
        }
        if !stuck {
            let message = if problems.is_empty() {
                "no managed object is left".to_owned()
            } else {
                let left: Vec<String> = left.iter().map(ToString::to_string).collect();
                tracing::warn!(sync = %self.id, left = %left.join(", "), "objects were left behind, as asked");
                format!("left behind, as asked: {}", left.join(", "))
            };
            self.state.finalizing = Some(Finalizing::Done(message));
            return self.tell().await;
        }
        let left = left.into_iter().collect();
        if let Err(error) = inventory::write(&self.client, &self.id, &left).await {
            tracing::warn!(sync = %self.id, %error, "the inventory was not written");
        }
        self.inventory = Some(left);
        problems.sort();
        self.state.finalizing = Some(Finalizing::Failed(problems));
        self.tell().await;
        false
    }

    async fn tell(&mut self) -> bool {
        match status::write(&self.client, &self.sync, &self.state).await {
            Ok(()) => true,
            Err(error) => {
                self.unauthorized |= error.is_code(401);
                tracing::warn!(sync = %self.id, %error, "the status was not written");
                false
            }
        }
    }

    async fn end(&self, key: &Key, kind: &Kind, foreground: bool) -> Result<(), Failure> {
        if !foreground {
            return apply::give_up(&self.client, &self.id, kind, key, &self.claims()).await;
        }
        let (client, id, claims) = (&self.client, &self.id, self.claims());
        let abandon = self.sync.annotation(ABANDON) == Some("true");
        let deadline = Instant::now() + if abandon { ABANDONED } else { ROUND };
        let mut wait = Duration::from_millis(50);
        loop {
            match apply::delete(client, id, kind, key, PropagationPolicy::Foreground, &claims).await? {
                Removal::Gone => return Ok(()),
                Removal::Asked if Instant::now() >= deadline => {
                    let problem = Problem::new(Code::Apply, format!("{key} is still being deleted"));
                    return Err(Failure::refused(problem.about(key)));
                }
                Removal::Asked => tokio::time::sleep(wait).await,
            }
            wait = (wait * 2).min(Duration::from_secs(1));
        }
    }
}

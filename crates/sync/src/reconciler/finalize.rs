//! The end of a sync: its objects are deleted or given up, as an annotation of the sync asks.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::{StreamExt as _, future::BoxFuture, stream};
use kube::api::PropagationPolicy;
use tokio::time::Instant;
use writ_controller::{ObjectId, ServedKind};

use super::{
    apply::{Removal, inventory},
    error::{Cause, Code, Failure, Problem},
    execute::Executor,
    object::full_name,
    observed::Observed,
    plan::removal_order,
    session::Session,
    status::{self, Finalizing, Report},
};
use crate::model::{ABANDON, DELETION_POLICY};

/// The number of objects that are removed at once.
const WRITERS: usize = 32;
/// The time for an object to go, before the sync reports it and tries again.
const GONE_WITHIN: Duration = Duration::from_secs(30);
/// The same for a sync that leaves behind objects that stay.
const ABANDONED_AFTER: Duration = Duration::from_secs(2);

/// The result of the removal of all objects.
#[derive(Debug, Default)]
struct Teardown {
    /// The objects that are left.
    left: BTreeSet<ObjectId>,
    /// Why they are left.
    problems: Vec<Problem>,
    /// Whether an object is left that must not be left behind.
    is_stuck: bool,
    /// Whether the token of the account was refused.
    is_unauthorized: bool,
}

/// Removes every object of the inventory from the cluster or from the sync. Returns true if that is done and reported.
pub async fn finalize(session: &Session, observed: &mut Observed, report: &mut Report) -> bool {
    if matches!(report.finalizing, Some(Finalizing::Done(_))) {
        return status::send(session, observed, report).await;
    }
    let mut objects = match inventory::read(session.client(), session.id()).await {
        Ok(objects) => objects,
        Err(error) => {
            observed.is_unauthorized |= error.is_code(401);
            let problem = Problem::new(Code::ApiServer, error.to_string());
            report.finalizing = Some(Finalizing::Failed(vec![problem]));
            status::send(session, observed, report).await;
            return false;
        }
    };
    // An entry that another writer removed a moment ago is still an object of this sync.
    objects.extend(observed.inventory.objects.iter().flatten().cloned());
    if !objects.is_empty() && report.finalizing.is_none() {
        report.finalizing = Some(Finalizing::Working);
        status::send(session, observed, report).await;
    }
    let delete = session.sync.annotation(DELETION_POLICY) == Some("Foreground");
    let teardown = tear_down(&session.executor(), &objects, delete).await;
    observed.is_unauthorized |= teardown.is_unauthorized;
    if !teardown.is_stuck {
        report.finalizing = Some(Finalizing::Done(summary(session, &teardown.left)));
        return status::send(session, observed, report).await;
    }
    if let Err(error) = inventory::write(session.client(), session.id(), &teardown.left).await {
        tracing::warn!(sync = %session.id(), %error, "the inventory was not written, will try again");
    }
    observed.inventory.objects = Some(teardown.left);
    report.finalizing = Some(Finalizing::Failed(teardown.problems));
    status::send(session, observed, report).await;
    false
}

fn summary(session: &Session, left: &BTreeSet<ObjectId>) -> String {
    if left.is_empty() {
        return "no managed object is left".to_owned();
    }
    let names: Vec<String> = left.iter().map(full_name).collect();
    let names = names.join(", ");
    tracing::warn!(sync = %session.id(), objects = %names, "objects are left behind, as the sync asks");
    format!("left behind, as the annotation {ABANDON} asks: {names}")
}

/// Removes objects, those that others need last: deletes them if `delete` is set, and gives them up otherwise.
async fn tear_down(executor: &Executor<'_>, objects: &BTreeSet<ObjectId>, delete: bool) -> Teardown {
    let mut teardown = Teardown::default();
    for wave in removal_order(objects) {
        // Objects that are left may need those of the following waves.
        if teardown.is_stuck {
            teardown.left.extend(wave);
            continue;
        }
        let removals: Vec<BoxFuture<'_, _>> = wave
            .into_iter()
            .map(|id| -> BoxFuture<'_, _> {
                Box::pin(async move {
                    let remove = |kind| -> BoxFuture<'_, _> { Box::pin(remove(executor, &id, kind, delete)) };
                    let removed = executor.in_any_version(&id, remove).await;
                    (id, removed)
                })
            })
            .collect();
        let removed: Vec<(ObjectId, Result<(), Failure>)> =
            stream::iter(removals).buffer_unordered(WRITERS).collect().await;
        for (id, removed) in removed {
            if let Err(failure) = removed {
                teardown.is_unauthorized |= failure.cause == Cause::Unauthorized;
                teardown.is_stuck |= !(executor.abandons() && failure.cause.may_be_abandoned());
                teardown.left.insert(id);
                teardown.problems.push(failure.problem);
            }
        }
    }
    teardown.problems.sort();
    teardown
}

async fn remove(
    executor: &Executor<'_>,
    id: &ObjectId,
    kind: Arc<ServedKind>,
    delete: bool,
) -> Result<(), Failure> {
    if !delete {
        return executor.writer.give_up(&kind, id).await;
    }
    let limit = if executor.abandons() {
        ABANDONED_AFTER
    } else {
        GONE_WITHIN
    };
    let deadline = Instant::now() + limit;
    let mut pause = Duration::from_millis(50);
    loop {
        let removal = executor
            .writer
            .delete(&kind, id, PropagationPolicy::Foreground)
            .await?;
        match removal {
            Removal::Gone => return Ok(()),
            Removal::Requested if Instant::now() >= deadline => {
                let problem = Problem::new(Code::Apply, format!("{} is still being deleted", full_name(id)));
                return Err(Failure::refused(problem.about(id)));
            }
            Removal::Requested => tokio::time::sleep(pause).await,
        }
        pause = (pause * 2).min(Duration::from_secs(1));
    }
}

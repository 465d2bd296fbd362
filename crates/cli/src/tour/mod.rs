//! The tour: each of the five design documents on a running fleet, step by step, with proofs.
//!
//! Each chapter is a file: it shows manifests, applies them, and proves their effect with a SubjectAccessReview and a real
//! request of the subject, before and after. What it wrote is removed at its end.

mod account;
mod executor;
mod guide;
mod permission;
mod proof;
mod sets;
mod sync;

use std::time::Duration;

use anyhow::Result;
use futures::{FutureExt, future::LocalBoxFuture};
use tokio_util::sync::CancellationToken;
use writ_fleet::Fleet;

use guide::Guide;

/// One chapter: its title, and what happens in it.
type Chapter = (
    &'static str,
    for<'g, 'f> fn(&'g mut Guide<'f>) -> LocalBoxFuture<'g, Result<()>>,
);

const CHAPTERS: &[Chapter] = &[
    ("a permission reaches a cluster, and is revoked", |guide| {
        permission::show(guide).boxed_local()
    }),
    ("a work waits for the rights of its executor", |guide| {
        executor::show(guide).boxed_local()
    }),
    (
        "an account on a cluster, with a token that works and rotates",
        |guide| account::show(guide).boxed_local(),
    ),
    (
        "overlapping sets of clusters, and a join that is refused",
        |guide| sets::show(guide).boxed_local(),
    ),
    (
        "a RootSync that may write only into its tenant's namespace",
        |guide| sync::show(guide).boxed_local(),
    ),
];

/// How a tour ended.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Every proof held.
    Held,
    /// A proof failed.
    Failed,
    /// It was interrupted, and has removed what it wrote.
    Stopped,
}

/// Walks through every chapter. A failed proof ends its chapter and fails the tour. An interrupted tour removes what it
/// wrote.
pub async fn walk(fleet: &Fleet, yes: bool, patience: Duration, stop: &CancellationToken) -> Result<End> {
    let mut guide = Guide::new(fleet, yes, patience);
    let mut failed = Vec::new();
    for (number, (title, show)) in (1..).zip(CHAPTERS) {
        println!("\n== {number}. {title}");
        let outcome = stop.run_until_cancelled(show(&mut guide)).await;
        if outcome.is_none() {
            println!("\n  stopped: what the chapter wrote is taken away");
        }
        let cleaned = guide.clean_up().await;
        let Some(outcome) = outcome else {
            cleaned?;
            return Ok(End::Stopped);
        };
        if let Err(error) = outcome.and(cleaned) {
            println!("  {error:#}");
            failed.push(format!("{number}. {title}"));
        }
    }
    println!("\n{} proofs held", guide.proven());
    for chapter in &failed {
        println!("FAILED: {chapter}");
    }
    Ok(if failed.is_empty() { End::Held } else { End::Failed })
}

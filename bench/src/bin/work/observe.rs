//! How a user sees that a work is applied: by a watch.

use std::collections::HashSet;

use anyhow::{Context, Result, bail};
use futures::{StreamExt as _, pin_mut};
use kube::{
    Api, ResourceExt as _,
    api::{WatchEvent, WatchParams},
    runtime::{WatchStreamExt as _, watcher},
};
use writ_api::work::ManifestWork;

/// Whether the current revision has `Applied` with this status.
pub fn is(work: &ManifestWork, applied: &str) -> bool {
    work.status
        .iter()
        .flat_map(|status| &status.conditions)
        .any(|condition| {
            condition.type_ == "Applied"
                && condition.status == applied
                && condition.observed_generation == work.metadata.generation
        })
}

/// Does something, and waits until this work is as wanted.
pub async fn until(
    works: &Api<ManifestWork>,
    name: &str,
    act: impl Future<Output = Result<()>>,
    wanted: impl Fn(&ManifestWork) -> bool,
) -> Result<()> {
    let params = WatchParams::default().fields(&format!("metadata.name={name}"));
    let events = works.watch(&params, "0").await?;
    pin_mut!(events);
    let seen = async {
        while let Some(event) = events.next().await {
            match event? {
                WatchEvent::Added(work) | WatchEvent::Modified(work) if wanted(&work) => return Ok(()),
                WatchEvent::Error(error) => bail!("{error}"),
                _ => {}
            }
        }
        bail!("the watch on {name} ended")
    };
    let (acted, observed) = tokio::join!(act, seen);
    acted?;
    observed
}

/// Waits until so many works of the namespace are applied.
pub async fn all_applied(works: &Api<ManifestWork>, count: usize) -> Result<()> {
    let events = watcher(works.clone(), watcher::Config::default()).applied_objects();
    pin_mut!(events);
    let mut applied = HashSet::new();
    while applied.len() < count {
        let work = events.next().await.context("the watch ended")??;
        if is(&work, "True") {
            applied.insert(work.name_any());
        }
    }
    Ok(())
}

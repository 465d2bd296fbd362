//! What a promise of time costs nobody: how long a binding is away while its role changes, and how long a change by
//! hand lasts.

use std::{
    pin::pin,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use futures::StreamExt as _;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::json;
use writ_api::rbac::ClusterPermission;

/// The role of a binding cannot be changed, so it is made again: for at most this long there is none.
const AWAY: Duration = Duration::from_millis(100);
/// What somebody changes is put right within this time.
const DRIFT: Duration = Duration::from_secs(1);

/// What was measured, one entry a round.
#[derive(Default)]
pub struct Measured {
    away: Vec<Duration>,
    drift: Vec<Duration>,
}

impl Measured {
    /// Forgets the rounds so far.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// One round, with a permission that grants and is settled; it is as before afterwards.
    pub async fn round(
        &mut self,
        permissions: &Api<ClusterPermission>,
        bindings: &Api<RoleBinding>,
        name: &str,
    ) -> Result<()> {
        for role in ["edit", "view"] {
            let mut wanted = super::permission(name, true);
            if let Some(reference) = wanted.pointer_mut("/spec/roleBindings/1/roleRef/name") {
                *reference = json!(role);
            }
            let change = async {
                let patch = Patch::Merge(wanted);
                permissions.patch(name, &PatchParams::default(), &patch).await
            };
            self.away.push(away(bindings, role, change).await?);
            super::settled(permissions, name).await?;
        }
        let started = Instant::now();
        let patch = Patch::Merge(json!({ "subjects": null }));
        bindings.patch(name, &PatchParams::default(), &patch).await?;
        while bindings.get(name).await?.subjects.is_none_or(|s| s.is_empty()) {
            if started.elapsed() > Duration::from_mins(1) {
                bail!("{name} is not put right after a minute");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.drift.push(started.elapsed());
        Ok(())
    }

    /// Prints a table and says which limits are broken.
    pub fn report(&mut self) -> Vec<String> {
        println!("\n| promise | p50 | p99 | limit |");
        println!("| --- | --- | --- | --- |");
        let rows = [
            ("no binding while its role changes", &mut self.away, AWAY),
            ("a change by hand is put right", &mut self.drift, DRIFT),
        ];
        let mut broken = Vec::new();
        for (what, times, limit) in rows {
            let (p50, p99) = super::quantiles(times);
            println!("| {what} | {p50:.1?} | {p99:.1?} | {limit:?} |");
            if p99 > limit {
                broken.push(format!("{what}: {p99:.1?}, at most {limit:?} is allowed"));
            }
        }
        broken
    }
}

/// How long there is no binding, as somebody sees it who watches.
async fn away(
    bindings: &Api<RoleBinding>,
    role: &str,
    change: impl Future<Output = Result<ClusterPermission, kube::Error>>,
) -> Result<Duration> {
    let now = bindings.list(&ListParams::default().limit(1)).await?;
    let version = now.metadata.resource_version.unwrap_or_default();
    let mut events = pin!(bindings.watch(&WatchParams::default(), &version).await?);
    change.await?;
    let mut deleted = Instant::now();
    loop {
        match events.next().await {
            Some(Ok(WatchEvent::Deleted(_))) => deleted = Instant::now(),
            Some(Ok(WatchEvent::Added(made))) if made.role_ref.name == role => return Ok(deleted.elapsed()),
            Some(Ok(_)) => {}
            other => bail!("the watch ended: {other:?}"),
        }
    }
}

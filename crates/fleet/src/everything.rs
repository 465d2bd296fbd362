//! Everything of writ on a fleet, started as fast as the machine allows.

use std::{path::Path, time::Duration};

use anyhow::{Context, Error, Result};
use futures::{
    FutureExt, StreamExt, TryStreamExt,
    future::{select_all, try_join_all},
    stream,
};
use k8s_openapi::api::authorization::v1::ResourceAttributes;

use crate::{Fleet, Running, wait};

/// How long everything may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(20);
/// How many clusters are brought up at once.
const AT_ONCE: usize = 16;

/// All that runs on a fleet.
pub struct Everything {
    hub: Running,
    on_clusters: Vec<Running>,
}

impl Everything {
    /// Stops the agents and syncs, then the hub. Parts that take too long end with the process.
    pub async fn stop(self) -> Result<()> {
        let stopped = async {
            try_join_all(self.on_clusters.into_iter().map(Running::stop)).await?;
            self.hub.stop().await
        };
        tokio::time::timeout(STOP_WITHIN, stopped)
            .await
            .with_context(|| format!("not everything stopped within {} seconds", STOP_WITHIN.as_secs()))?
    }

    /// Waits until a part ends without having been stopped, and returns which part and why.
    pub async fn ended(&mut self) -> Error {
        let all = std::iter::once(&mut self.hub).chain(&mut self.on_clusters);
        let (first, ..) = select_all(all.map(|running| running.ended().boxed())).await;
        first
    }
}

impl Fleet {
    /// Runs the hub; then accepts every cluster, and runs its agent and its syncs.
    ///
    /// Clones are kept below `clones`.
    pub async fn run_everything(&self, clones: &Path) -> Result<Everything> {
        let hub = self.run_hub(Self::hub_options()).await?;
        let on_clusters: Vec<[Running; 2]> = stream::iter(1..=self.clusters.len())
            .map(|number| self.run_on(number, clones))
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        Ok(Everything {
            hub,
            on_clusters: on_clusters.into_iter().flatten().collect(),
        })
    }

    async fn run_on(&self, number: usize, clones: &Path) -> Result<[Running; 2]> {
        let agent = async {
            self.accept(number).await?;
            self.wait_for_rights(number).await?;
            self.run_agent(number, writ_agent::Options::default()).await
        };
        let options = writ_sync::Options {
            cache: clones.join(format!("cluster{number}")),
            ..writ_sync::Options::default()
        };
        let (agent, sync) = tokio::try_join!(agent, self.run_sync(number, options))?;
        Ok([agent, sync])
    }

    /// Waits until the hub has granted the agent its rights: an agent that is refused first pauses for long.
    async fn wait_for_rights(&self, number: usize) -> Result<()> {
        let cluster = self.cluster(number)?.name();
        let user = format!("system:open-cluster-management:{cluster}:agent");
        let group = format!("system:open-cluster-management:{cluster}");
        let groups = [group.as_str(), "system:open-cluster-management:managed-clusters"];
        let of = |group: &str, resource: &str, verb: &str, namespace: Option<&str>, name: Option<&str>| {
            ResourceAttributes {
                group: Some(group.into()),
                resource: Some(resource.into()),
                verb: Some(verb.into()),
                namespace: namespace.map(Into::into),
                name: name.map(Into::into),
                ..ResourceAttributes::default()
            }
        };
        let here = Some(cluster);
        let needed = [
            of(
                "cluster.open-cluster-management.io",
                "managedclusters",
                "get",
                None,
                here,
            ),
            of(
                "work.open-cluster-management.io",
                "manifestworks",
                "watch",
                here,
                None,
            ),
            of(
                "authentication.open-cluster-management.io",
                "managedserviceaccounts",
                "watch",
                here,
                None,
            ),
            // Granted by another binding than the works, possibly later.
            of(
                "addon.open-cluster-management.io",
                "managedclusteraddons",
                "watch",
                here,
                Some("managed-serviceaccount"),
            ),
            of(
                "coordination.k8s.io",
                "leases",
                "patch",
                here,
                Some("managed-cluster-lease"),
            ),
        ];
        for what in needed {
            wait::until_true(&format!("the rights of the agent of {cluster}: {what:?}"), || {
                self.hub.allows(&user, &groups, what.clone())
            })
            .await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::fleet::start;

    /// A part that is ready at once and ends with an error when `end` is cancelled.
    async fn part(name: &str, end: &CancellationToken) -> Running {
        let end = end.clone();
        let run = |health: writ_controller::health::Health, shutdown: CancellationToken| async move {
            health.gate("part").open();
            tokio::select! {
                () = end.cancelled() => Err(writ_controller::Error::Invalid("it broke".into())),
                () = shutdown.cancelled() => Ok(()),
            }
        };
        start(name, run).await.unwrap()
    }

    #[tokio::test]
    async fn part_that_ends_by_itself_is_named() {
        let (never, breaks) = (CancellationToken::new(), CancellationToken::new());
        let mut all = Everything {
            hub: part("the hub", &never).await,
            on_clusters: vec![part("sync", &never).await, part("the agent", &breaks).await],
        };
        assert!(all.ended().now_or_never().is_none(), "all run");
        breaks.cancel();
        assert_eq!(format!("{:#}", all.ended().await), "the agent ended: it broke");
        let mut whole = Everything {
            hub: part("the hub", &never).await,
            on_clusters: vec![part("the agent", &never).await],
        };
        assert!(
            whole.ended().now_or_never().is_none(),
            "waiting for an end ends nothing"
        );
        whole.stop().await.unwrap();
    }
}

//! The small example of `writ up`: one object of each kind that people meet first.

use anyhow::Result;
use writ_fleet::{Fleet, manifests};
use writ_testenv::git::Repository;

/// On the hub.
const HUB: &str = include_str!("../examples/hub.yaml");
/// On the first managed cluster.
const CLUSTER: &str = include_str!("../examples/cluster1.yaml");
/// In the repository of the RootSync.
const REPOSITORY: &str = include_str!("../examples/repository/settings.yaml");

/// Applies the example; the repository lives as long as the answer.
pub async fn apply(fleet: &Fleet) -> Result<Option<Repository>> {
    let Some(cluster) = fleet.clusters.first() else {
        return Ok(None);
    };
    let repository = Repository::new()?;
    repository.commit("main", &[("settings.yaml", REPOSITORY)])?;
    let on_cluster = CLUSTER.replace("file:///REPOSITORY", &repository.url());
    let (hub, admin) = (fleet.hub.admin().await?, cluster.admin().await?);
    manifests::apply(&admin, &on_cluster).await?;
    manifests::apply(&hub, HUB).await?;
    Ok(Some(repository))
}

//! The example of `writ up`: one object of each kind that users meet first.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use writ_fleet::{Fleet, git::Repository, manifests};

/// On the hub.
const HUB: &str = include_str!("../examples/hub.yaml");
/// On the first managed cluster.
const CLUSTER: &str = include_str!("../examples/cluster1.yaml");
/// In the repository of the RootSync.
const REPOSITORY: &str = include_str!("../examples/repository/settings.yaml");

/// Where the repository is below the folder of `--data`.
const FOLDER: &str = "repository";
/// A file that marks the example as applied, so that later changes by users are kept.
const APPLIED: &str = "example-applied";

/// Applies the example; if the fleet is kept in a folder, only once. The repository is in that folder, or temporary and
/// removed with the returned value.
pub async fn apply(fleet: &Fleet, data: Option<&Path>) -> Result<Option<Repository>> {
    let Some(cluster) = fleet.clusters.first() else {
        return Ok(None);
    };
    let repository = match data {
        Some(data) => Repository::at(&data.join(FOLDER))?,
        None => Repository::new()?,
    };
    let applied = data.map(|data| data.join(APPLIED));
    if applied.as_ref().is_some_and(|file| file.exists()) {
        return Ok(Some(repository));
    }
    if !repository.has_branch("main") {
        repository.commit("main", &[("settings.yaml", REPOSITORY)])?;
    }
    let on_cluster = CLUSTER.replace("file:///REPOSITORY", &repository.url());
    let (hub, admin) = (fleet.hub.admin().await?, cluster.admin().await?);
    manifests::apply(&admin, &on_cluster).await?;
    manifests::apply(&hub, HUB).await?;
    if let Some(file) = applied {
        fs::write(&file, "").with_context(|| format!("write {}", file.display()))?;
    }
    Ok(Some(repository))
}

//! What somebody's finalizer keeps is told, also by an agent that has just started.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use writ_api::work::{ManifestWork, PRUNED_CONDITION};
use writ_controller::condition::find;

use super::support::{
    agent, change, condition, config_map, config_maps, create, gone, holds, spoke, status_of, works,
};
use crate::{Fleet, wait};

async fn finalizers(maps: &Api<ConfigMap>, name: &str, finalizers: Value) -> Result<()> {
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    maps.patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Waits until the work says that this object is still there.
async fn told(works: &Api<ManifestWork>, object: &str) -> Result<()> {
    let work = condition(works, "w", PRUNED_CONDITION, "False").await?;
    let status = status_of(&work);
    let said = find(&status.conditions, PRUNED_CONDITION).map(|c| c.message.clone());
    ensure!(
        said.as_ref().is_some_and(|said| said.contains(object)),
        "{said:?} does not name {object}"
    );
    Ok(())
}

/// Takes out what was told, so that only who looks can tell it again.
async fn untold(works: &Api<ManifestWork>) -> Result<()> {
    let nothing = Patch::Merge(json!({"status": {"conditions": []}}));
    works.patch_status("w", &PatchParams::default(), &nothing).await?;
    Ok(())
}

/// The agent ends while a finalizer keeps what a work dropped, then what a work that is deleted leaves: the next agent
/// tells it, too, and until it is gone.
pub async fn across_a_restart(fleet: Fleet) -> Result<()> {
    let running = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let of = |names: &[&str]| {
        let all: Vec<Value> = names
            .iter()
            .map(|name| config_map("default", name, "1"))
            .collect();
        json!({"workload": {"manifests": all}})
    };
    create(&works, "w", of(&["stays", "dropped"])).await?;
    condition(&works, "w", "Available", "True").await?;
    let keep = json!(["example.com/keep"]);
    finalizers(&maps, "dropped", keep.clone()).await?;
    change(&works, "w", json!({"spec": of(&["stays"])})).await?;
    told(&works, "configmaps default/dropped: not gone yet").await?;

    running.stop().await?;
    untold(&works).await?;
    let running = agent(&fleet, writ_agent::Options::default()).await?;
    told(&works, "configmaps default/dropped: not gone yet").await?;
    finalizers(&maps, "dropped", Value::Null).await?;
    gone(&maps, "dropped").await?;
    wait::until_true("nothing is left to tell", || async {
        let status = status_of(&works.get("w").await?);
        Ok(find(&status.conditions, PRUNED_CONDITION).is_none())
    })
    .await?;
    condition(&works, "w", "Applied", "True").await?;

    finalizers(&maps, "stays", keep).await?;
    works.delete("w", &DeleteParams::default()).await?;
    told(&works, "configmaps default/stays: not gone yet").await?;
    running.stop().await?;
    untold(&works).await?;
    holds(&maps, "stays", "1").await?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    told(&works, "configmaps default/stays: not gone yet").await?;
    finalizers(&maps, "stays", Value::Null).await?;
    gone(&maps, "stays").await?;
    wait::until_true("the work is gone", || async {
        Ok(works.get_opt("w").await?.is_none())
    })
    .await
}

//! What is created instead of applied is owned, shared and given up all the same.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::support::{agent, change, condition, config_maps, create, delete, gone, spoke, works};
use crate::{Fleet, wait};

fn map(name: &str, data: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": name}, "data": data})
}

fn spec(manifest: &Value) -> Value {
    json!({"workload": {"manifests": [manifest]}})
}

/// Waits until a ConfigMap holds exactly this.
async fn is(maps: &Api<ConfigMap>, name: &str, data: &Value) -> Result<ConfigMap> {
    wait::until(&format!("ConfigMap {name} with {data}"), || async {
        let found = maps.get(name).await?;
        Ok((json!(found.data) == *data).then_some(found))
    })
    .await
}

/// One write makes an object; what leaves the manifest later goes, what others add stays, and what two works share is
/// given up by the one that goes.
pub async fn created(fleet: Fleet) -> Result<()> {
    let running = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    create(
        &works,
        "one",
        spec(&map("one", &json!({"a": "1", "b": "1", "c": "1"}))),
    )
    .await?;
    condition(&works, "one", "Applied", "True").await?;
    let live = maps.get("one").await?;
    let writers: Vec<_> = live
        .managed_fields()
        .iter()
        .map(|entry| &entry.operation)
        .collect();
    ensure!(writers == [&Some("Update".to_owned())], "{writers:?}");
    ensure!(live.owner_references().len() == 1);
    let theirs = json!({"data": {"theirs": "1"}});
    maps.patch("one", &PatchParams::default(), &Patch::Merge(&theirs))
        .await?;
    // A value changes, then a key leaves, then another one after a restart.
    for (data, wanted) in [
        (
            json!({"a": "2", "b": "1", "c": "1"}),
            json!({"a": "2", "b": "1", "c": "1", "theirs": "1"}),
        ),
        (
            json!({"a": "2", "c": "1"}),
            json!({"a": "2", "c": "1", "theirs": "1"}),
        ),
    ] {
        let patch = json!({"spec": spec(&map("one", &data))});
        change(&works, "one", patch).await?;
        is(&maps, "one", &wanted).await?;
        condition(&works, "one", "Applied", "True").await?;
    }
    create(&works, "late", spec(&map("late", &json!({"a": "1", "b": "1"})))).await?;
    condition(&works, "late", "Applied", "True").await?;
    running.stop().await?;
    change(
        &works,
        "late",
        json!({"spec": spec(&map("late", &json!({"a": "1"})))}),
    )
    .await?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    is(&maps, "late", &json!({"a": "1"})).await?;

    // Two works, each with a key of its own: the first creates, the second applies.
    create(
        &works,
        "first",
        spec(&map("shared", &json!({"both": "1", "first": "1"}))),
    )
    .await?;
    condition(&works, "first", "Applied", "True").await?;
    create(
        &works,
        "second",
        spec(&map("shared", &json!({"both": "1", "second": "1"}))),
    )
    .await?;
    condition(&works, "second", "Applied", "True").await?;
    is(
        &maps,
        "shared",
        &json!({"both": "1", "first": "1", "second": "1"}),
    )
    .await?;
    delete(&works, "first").await?;
    let left = is(&maps, "shared", &json!({"both": "1", "second": "1"})).await?;
    ensure!(left.owner_references().len() == 1);
    delete(&works, "second").await?;
    gone(&maps, "shared").await?;

    // A field that nobody knows does not keep the rest from being delivered: the server drops it.
    let odd = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "default", "name": "odd"},
        "data": {"a": "1"}, "dta": {"b": "1"}});
    create(&works, "odd", spec(&odd)).await?;
    condition(&works, "odd", "Applied", "True").await?;
    let left = is(&maps, "odd", &json!({"a": "1"})).await?;
    ensure!(left.owner_references().len() == 1);
    Ok(())
}

//! How works end: what they take with them, what they leave behind, and what a complete one still does.

use anyhow::{Result, ensure};
use kube::{ResourceExt, api::DeleteParams};
use serde_json::{Value, json};
use writ_api::work::ManifestWork;

use super::{
    executor::{ALL, grant, spec},
    support::{
        agent, change, condition, config_map, config_maps, create, delete, gone, holds, manifest_condition,
        spoke, status_of, works,
    },
};
use crate::{Fleet, wait, yaml};

fn of(names: &[&str]) -> Value {
    let manifests: Vec<Value> = names
        .iter()
        .map(|name| config_map("default", name, "1"))
        .collect();
    json!({"workload": {"manifests": manifests}})
}

fn orphan() -> Value {
    json!({"spec": {"deleteOption": {"propagationPolicy": "Orphan"}}})
}

/// What a work says when it is deleted counts, whether or not it was ever written: what it leaves behind stays, and
/// belongs to it no more.
pub async fn left_behind(fleet: Fleet) -> Result<()> {
    let running = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");

    // The executor has lost its rights: nothing of the revision is written, and it counts all the same.
    yaml::apply(&client, &grant("a", ALL)).await?;
    create(
        &works,
        "refused",
        spec("a", &json!([config_map("default", "refused", "1")])),
    )
    .await?;
    condition(&works, "refused", "Applied", "True").await?;
    yaml::apply(&client, &grant("a", "get")).await?;
    condition(&works, "refused", "Applied", "False").await?;
    change(&works, "refused", orphan()).await?;
    condition(&works, "refused", "Applied", "False").await?;
    delete(&works, "refused").await?;
    ensure!(holds(&maps, "refused", "1").await?.owner_references().is_empty());

    // What is only read belongs to nobody.
    create(&works, "read", of(&["read"])).await?;
    condition(&works, "read", "Applied", "True").await?;
    let configs = json!([{"resourceIdentifier": {"resource": "configmaps", "namespace": "*", "name": "*"},
        "updateStrategy": {"type": "ReadOnly"}}]);
    change(&works, "read", json!({"spec": {"manifestConfigs": configs}})).await?;
    condition(&works, "read", "Applied", "True").await?;
    ensure!(holds(&maps, "read", "1").await?.owner_references().is_empty());
    delete(&works, "read").await?;
    holds(&maps, "read", "1").await?;

    // All that happens while the agent is away: one object is dropped, two are left behind, one of them has another owner.
    create(&works, "away", of(&["kept", "shared", "dropped"])).await?;
    create(&works, "other", of(&["shared"])).await?;
    condition(&works, "away", "Applied", "True").await?;
    condition(&works, "other", "Applied", "True").await?;
    wait::until_true("two owners", || async {
        Ok(maps.get("shared").await?.owner_references().len() == 2)
    })
    .await?;
    running.stop().await?;
    change(&works, "away", json!({"spec": of(&["kept", "shared"])})).await?;
    change(&works, "away", orphan()).await?;
    works.delete("away", &DeleteParams::default()).await?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    wait::until_true("the work is gone", || async {
        Ok(works.get_opt("away").await?.is_none())
    })
    .await?;
    ensure!(holds(&maps, "kept", "1").await?.owner_references().is_empty());
    ensure!(holds(&maps, "shared", "1").await?.owner_references().len() == 1);
    gone(&maps, "dropped").await?;
    delete(&works, "other").await?;
    gone(&maps, "shared").await
}

/// A complete work writes nothing more, and does not say that it did; once it is not complete it goes on.
pub async fn complete(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let rules = |expression: &str| {
        json!([{"resourceIdentifier": {"resource": "configmaps", "namespace": "default", "name": "task"},
            "conditionRules": [{"condition": "Complete", "type": "CEL", "celExpressions": [expression]}]}])
    };
    let mut first = of(&["task"]);
    if let Some(spec) = first.as_object_mut() {
        spec.insert("manifestConfigs".into(), rules("object.data.key == '1'"));
    }
    create(&works, "task", first).await?;
    condition(&works, "task", "Complete", "True").await?;

    let manifests = json!([
        config_map("default", "task", "2"),
        config_map("default", "late", "1")
    ]);
    change(
        &works,
        "task",
        json!({"spec": {"workload": {"manifests": manifests}}}),
    )
    .await?;
    let work = condition(&works, "task", "Available", "False").await?;
    let applied = |work: &ManifestWork| {
        let status = status_of(work);
        let found = status.conditions.iter().find(|c| c.type_ == "Applied").cloned();
        found.map(|c| (c.status, c.observed_generation))
    };
    let kept = applied(&work);
    ensure!(kept == Some(("True".into(), Some(1))), "{kept:?}");
    let (status, _, message) = manifest_condition(&work, 1, "Applied")?;
    ensure!(
        status == "False" && message == "Not written: the work is complete",
        "{status} {message}"
    );
    ensure!(maps.get_opt("late").await?.is_none());
    holds(&maps, "task", "1").await?;

    change(
        &works,
        "task",
        json!({"spec": {"manifestConfigs": rules("object.data.key == '3'")}}),
    )
    .await?;
    holds(&maps, "late", "1").await?;
    holds(&maps, "task", "2").await?;
    condition(&works, "task", "Applied", "True").await?;
    Ok(())
}

/// An executor that was never asked about the deletion of an object does not get it deleted: neither by a delete option nor by
/// a strategy that was refused.
pub async fn refused_takes_nothing(fleet: Fleet) -> Result<()> {
    let running = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    yaml::apply(&client, &grant("a", "create, update, patch, get")).await?;
    yaml::apply(&client, &grant("g", "get")).await?;
    let manifest = |name: &str| json!([config_map("default", name, "1")]);
    let keeps = json!({"deleteOption": {"propagationPolicy": "Orphan"}});

    // It was left behind, and a revision that is refused would own it.
    for name in ["precious", "later"] {
        let mut orphaned = spec("a", &manifest(name));
        merge(&mut orphaned, &keeps);
        create(&works, name, orphaned).await?;
        condition(&works, name, "Applied", "True").await?;
        change(&works, name, json!({"spec": {"deleteOption": null}})).await?;
        condition(&works, name, "Applied", "False").await?;
    }
    delete(&works, "precious").await?;

    // It is a work of the same name that once made it, and this one was only to read it.
    let mut mine = of(&["read"]);
    merge(&mut mine, &keeps);
    create(&works, "read", mine).await?;
    condition(&works, "read", "Applied", "True").await?;
    delete(&works, "read").await?;
    let mut reads = spec("g", &manifest("read"));
    let configs = json!({"manifestConfigs": [{"resourceIdentifier": {"resource": "configmaps", "namespace": "*", "name": "*"},
        "updateStrategy": {"type": "ReadOnly"}}]});
    merge(&mut reads, &configs);
    create(&works, "read", reads).await?;
    condition(&works, "read", "Applied", "True").await?;
    change(&works, "read", json!({"spec": {"manifestConfigs": null}})).await?;
    condition(&works, "read", "Applied", "False").await?;
    delete(&works, "read").await?;

    // Nor by an agent that remembers nothing.
    running.stop().await?;
    works.delete("later", &DeleteParams::default()).await?;
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    wait::until_true("the work is gone", || async {
        Ok(works.get_opt("later").await?.is_none())
    })
    .await?;
    for name in ["precious", "read", "later"] {
        ensure!(maps.get_opt(name).await?.is_some(), "{name} is gone");
    }
    Ok(())
}

fn merge(into: &mut Value, more: &Value) {
    if let (Some(into), Some(more)) = (into.as_object_mut(), more.as_object()) {
        into.extend(more.clone());
    }
}

//! Two permissions of one cluster that name the same object.

use anyhow::{Result, ensure};
use k8s_openapi::{api::rbac::v1::RoleBinding, jiff::Timestamp};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use writ_api::rbac::ClusterPermission;

use super::support::{
    Always, allowed, cluster_role, condition, delete, hub_controllers, may, permission, spoke, start, user,
};
use crate::{Fleet, wait};

fn binding(name: &str, who: &str) -> Value {
    json!({"namespace": "a", "name": name, "roleRef": cluster_role("view"), "subject": user(who)})
}

/// Waits until what is made now is younger than this permission: times of creation are whole seconds.
async fn outlived(fleet: &Fleet, name: &str) -> Result<()> {
    let api: Api<ClusterPermission> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    let made = api.get(name).await?.creation_timestamp();
    wait::until_true("the second of its creation is over", || async {
        let now = Timestamp::now().as_second();
        Ok(made.as_ref().is_some_and(|made| made.0.as_second() < now))
    })
    .await
}

/// The older one has it, through a restart, too; the other gets it the moment that it is free.
pub async fn older_first(fleet: Fleet) -> Result<()> {
    let parts = start(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let client = spoke(&fleet).await?;
    permission(&fleet, "z", json!({"roleBindings": [binding("x", "alice")]})).await?;
    condition(&fleet, "z", "Ready", "True", "Granted").await?;
    outlived(&fleet, "z").await?;
    permission(
        &fleet,
        "b",
        json!({"roleBindings": [binding("x", "bob"), binding("y", "carol")]}),
    )
    .await?;
    let told = "spec.roleBindings[0]: conflict: the older ClusterPermission z makes RoleBinding a/x";
    condition(&fleet, "b", "Ready", "False", told).await?;
    // The rest of it is delivered, and the older one does not notice.
    allowed(&fleet, "carol", "get", "a", true).await?;
    let alice = Always::may(&client, "alice", "get", "a");
    condition(&fleet, "z", "Ready", "True", "Granted").await?;
    parts.hub.stop().await?;
    let hub = fleet
        .run_hub(writ_hub::Options {
            controllers: hub_controllers(),
            ..writ_hub::Options::default()
        })
        .await?;
    // What was written meanwhile is followed: the hub is up, and it has looked at both.
    permission(&fleet, "b", json!({"roleBindings": [binding("x", "bob")]})).await?;
    allowed(&fleet, "carol", "get", "a", false).await?;
    condition(&fleet, "b", "Ready", "False", told).await?;
    ensure!(!may(&client, "bob", "get", "a").await?, "bob has what is not his");
    alice.end().await?;

    // They agree: both have it. The older one goes, and nobody notices.
    permission(&fleet, "z", json!({"roleBindings": [binding("x", "bob")]})).await?;
    allowed(&fleet, "alice", "get", "a", false).await?;
    condition(&fleet, "z", "Ready", "True", "Granted").await?;
    condition(&fleet, "b", "Ready", "True", "Granted").await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "a");
    wait::until_true("it is of both", || async {
        Ok(bindings.get("x").await?.owner_references().len() == 2)
    })
    .await?;
    let uid = bindings.get("x").await?.uid();
    let bob = Always::may(&client, "bob", "get", "a");
    delete(&fleet, "z").await?;
    wait::until_true("it is of one", || async {
        Ok(bindings.get("x").await?.owner_references().len() == 1)
    })
    .await?;
    condition(&fleet, "b", "Ready", "True", "Granted").await?;
    bob.end().await?;
    ensure!(bindings.get("x").await?.uid() == uid, "it was made again");

    // An older one takes it, and lets go again; then it goes with its permission, and the next one gets it.
    outlived(&fleet, "b").await?;
    permission(&fleet, "a", json!({"roleBindings": [binding("x", "dave")]})).await?;
    let told = "conflict: the older ClusterPermission b makes RoleBinding a/x";
    condition(&fleet, "a", "Ready", "False", told).await?;
    permission(&fleet, "b", json!({"roleBindings": [binding("y", "bob")]})).await?;
    condition(&fleet, "a", "Ready", "True", "Granted").await?;
    allowed(&fleet, "dave", "get", "a", true).await?;
    let both = json!({"roleBindings": [binding("x", "bob"), binding("y", "bob")]});
    permission(&fleet, "b", both).await?;
    condition(&fleet, "a", "Ready", "False", told).await?;
    allowed(&fleet, "dave", "get", "a", false).await?;
    condition(&fleet, "b", "Ready", "True", "Granted").await?;
    delete(&fleet, "b").await?;
    condition(&fleet, "a", "Ready", "True", "Granted").await?;
    allowed(&fleet, "dave", "get", "a", true).await?;
    allowed(&fleet, "bob", "get", "a", false).await?;
    delete(&fleet, "a").await?;
    allowed(&fleet, "dave", "get", "a", false).await?;
    hub.stop().await
}

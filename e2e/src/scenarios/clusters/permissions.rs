//! Sets and labels with and without the rights that they take.

use anyhow::{Result, ensure};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet};
use writ_hub::options::KeyGrants;

use super::{
    create, grant, refused, registration::condition, relabel, rule, run_hub, set_yaml, user, wait_members,
};
use crate::{Fleet, fleet::HUB_NAMESPACE, wait, yaml};

async fn post(client: &Client, name: &str, key: &str) -> Result<ManagedClusterSet> {
    let set: ManagedClusterSet = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
        "metadata": {"name": name}, "spec": {"exclusiveKey": key},
    }))?;
    let api: Api<ManagedClusterSet> = Api::all(client.clone());
    Ok(api.create(&PostParams::default(), &set).await?)
}

async fn patch(client: &Client, name: &str, change: Value) -> Result<ManagedClusterSet> {
    let api: Api<ManagedClusterSet> = Api::all(client.clone());
    Ok(api
        .patch(name, &PatchParams::default(), &Patch::Merge(change))
        .await?)
}

async fn delete(client: &Client, name: &str) -> Result<()> {
    let api: Api<ManagedClusterSet> = Api::all(client.clone());
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}

/// Create, update and delete with and without `managedclustersets/exclusiveKey`; the key never changes.
pub async fn keys(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let all = rule(
        "managedclustersets",
        &[],
        &["create", "get", "patch", "update", "delete"],
    );
    grant(&fleet, "without", user("without"), &json!([all.clone()])).await?;
    let key = rule("managedclustersets/exclusiveKey", &["region"], &["create"]);
    grant(&fleet, "with", user("with"), &json!([all, key])).await?;
    let without = fleet.hub.user("without", &[]).await?;
    let with = fleet.hub.user("with", &[]).await?;

    refused(post(&without, "apac", "region").await, "exclusiveKey \"region\"")?;
    refused(post(&with, "apac", "vendor").await, "exclusiveKey \"vendor\"")?;
    wait::until_true("the one with the key creates the set", || async {
        Ok(post(&with, "apac", "region").await.is_ok())
    })
    .await?;
    // Nothing changes for those who use no key.
    post(&without, "plain", "").await?;
    // Updates and deletes need no right on the key.
    patch(&without, "apac", json!({"metadata": {"labels": {"team": "a"}}})).await?;
    for client in [&without, &with, &admin] {
        refused(
            patch(client, "apac", json!({"spec": {"exclusiveKey": "vendor"}})).await,
            "cannot be changed",
        )?;
        refused(
            patch(client, "plain", json!({"spec": {"exclusiveKey": "vendor"}})).await,
            "cannot be changed",
        )?;
    }
    delete(&without, "apac").await?;

    // A cluster that carries the label keeps people without `update` on all clusters from making the set.
    create(&admin, "mc1", json!({"region": "us"})).await?;
    refused(post(&with, "us", "region").await, "update on all managedclusters")?;
    post(&admin, "us", "region").await?;
    wait_members(&fleet, "us", 1).await?;
    // A set with members is deleted only by somebody with join.
    refused(delete(&without, "us").await, "managedclustersets/join")?;
    grant(
        &fleet,
        "joiner",
        user("without"),
        &json!([rule("managedclustersets/join", &["us"], &["create"])]),
    )
    .await?;
    wait::until_true("the one with join deletes the set", || async {
        Ok(delete(&without, "us").await.is_ok())
    })
    .await?;

    // Its label dangles, and no set is left that would know the key: the cluster says so, for the next hub as well.
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    let dangles = async || {
        wait::until_true("the label is reported", || async {
            let said = condition(&clusters, "mc1", "ManagedClusterSetLabelsValid").await?;
            Ok(said.as_deref() == Some("False"))
        })
        .await
    };
    dangles().await?;
    hub.stop().await?;
    let hub = run_hub(&fleet, |_| {}).await?;
    relabel(&fleet, &admin, "mc1", &[("env", Some("dev"))]).await?;
    wait_members(&fleet, "global", 1).await?;
    dangles().await?;

    // Without a hub nothing that it should check goes through.
    hub.stop().await?;
    refused(post(&admin, "eu", "region").await, "failed calling webhook")?;
    refused(create(&admin, "mc2", json!({})).await, "failed calling webhook")?;
    for label in [("region", Some("eu")), ("env", Some("prod"))] {
        refused(
            relabel(&fleet, &admin, "mc1", &[label]).await,
            "failed calling webhook",
        )?;
    }
    Ok(())
}

/// The leak of the document's example (c), without a cure, with the ConfigMap, and with grants on pairs.
pub async fn leak(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let rules = json!([
        rule("managedclustersets/exclusiveKey", &["region"], &["create"]),
        rule("managedclustersets", &["apac"], &["*"]),
        rule("managedclustersets/exclusiveKey", &["vendor"], &["create"]),
        rule("managedclustersets", &["aws"], &["*"]),
    ]);
    grant(&fleet, "both", user("both"), &rules).await?;
    let both = fleet.hub.user("both", &[]).await?;
    wait::until_true("the leak is there", || async {
        Ok(yaml_apply(&both, "apac", "vendor").await.is_ok())
    })
    .await?;
    delete(&both, "apac").await?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "clusterset-validation", "namespace": HUB_NAMESPACE},
        "data": {"region": "apac, us", "vendor": "aws, gcp"},
    });
    yaml::apply(&admin, &map.to_string()).await?;
    refused(
        yaml_apply(&both, "apac", "vendor").await,
        "is not in the ConfigMap",
    )?;
    refused(
        yaml_apply(&both, "aws", "region").await,
        "is not in the ConfigMap",
    )?;
    yaml_apply(&both, "apac", "region").await?;
    delete(&both, "apac").await?;
    hub.stop().await?;

    // The tighter way, without a ConfigMap.
    let maps: Api<k8s_openapi::api::core::v1::ConfigMap> = Api::namespaced(admin.clone(), HUB_NAMESPACE);
    maps.delete("clusterset-validation", &DeleteParams::default())
        .await?;
    let hub = run_hub(&fleet, |options| options.guards.key_grants = KeyGrants::Pair).await?;
    wait::until_true("grants on keys count no more", || async {
        Ok(refused(yaml_apply(&both, "apac", "vendor").await, "\"vendor:apac\"").is_ok())
    })
    .await?;
    let pairs = json!([rule(
        "managedclustersets/exclusiveKey",
        &["region:apac", "vendor:aws"],
        &["create"]
    )]);
    grant(&fleet, "pairs", user("both"), &pairs).await?;
    wait::until_true("the pair is allowed", || async {
        Ok(yaml_apply(&both, "apac", "region").await.is_ok())
    })
    .await?;
    refused(yaml_apply(&both, "aws", "region").await, "\"region:aws\"")?;
    hub.stop().await
}

async fn yaml_apply(client: &Client, name: &str, key: &str) -> Result<()> {
    let api: Api<ManagedClusterSet> = Api::all(client.clone());
    let set = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
        "metadata": {"name": name}, "spec": {"exclusiveKey": key},
    });
    api.patch(name, &PatchParams::apply("kubectl"), &Patch::Apply(set))
        .await?;
    Ok(())
}

/// Every label change asks for join on what is left and what is entered; so does create, and so does an agent.
pub async fn moves(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    yaml::apply(&admin, &set_yaml("apac", "region")).await?;
    yaml::apply(&admin, &set_yaml("us", "region")).await?;
    create(&admin, "mc1", json!({"region": "us"})).await?;
    wait_members(&fleet, "us", 1).await?;
    let rules = json!([
        rule("managedclusters", &[], &["create", "update", "delete"]),
        rule("managedclustersets/join", &["apac", "default"], &["create"]),
    ]);
    grant(&fleet, "mover", user("mover"), &rules).await?;
    let mover = fleet.hub.user("mover", &[]).await?;
    let left = "ManagedClusterSet \"us\"";
    wait::until_true("join is missing on the set that is left", || async {
        let answer = relabel(&fleet, &mover, "mc1", &[("region", Some("apac"))]).await;
        Ok(refused(answer, left).is_ok())
    })
    .await?;
    refused(relabel(&fleet, &mover, "mc1", &[("region", None)]).await, left)?;
    let clusters: Api<ManagedCluster> = Api::all(mover.clone());
    let gone = clusters.delete("mc1", &DeleteParams::default()).await;
    refused(gone.map_err(Into::into), left)?;
    refused(create(&mover, "mc2", json!({"region": "us"})).await, left)?;
    create(&mover, "mc2", json!({"region": "apac"})).await?;
    wait_members(&fleet, "apac", 1).await?;
    // Two keys in one update: the right on one set carries nothing along into the other, nor out of it.
    yaml::apply(&admin, &set_yaml("aws", "vendor")).await?;
    create(&admin, "mc4", json!({"vendor": "aws"})).await?;
    create(&admin, "mc5", json!({})).await?;
    wait_members(&fleet, "aws", 1).await?;
    for (name, vendor) in [("mc4", None), ("mc5", Some("aws"))] {
        let both = [("region", Some("apac")), ("vendor", vendor)];
        refused(
            relabel(&fleet, &mover, name, &both).await,
            "ManagedClusterSet \"aws\"",
        )?;
        relabel(&fleet, &mover, name, &[("region", Some("apac"))]).await?;
    }
    wait_members(&fleet, "apac", 3).await?;
    wait_members(&fleet, "aws", 1).await?;

    // The shared bootstrap identity joins `default` and nothing else.
    let bootstrap = fleet
        .hub
        .service_account(HUB_NAMESPACE, "agent-registration-bootstrap")
        .await?;
    refused(
        create(&bootstrap, "mc3", json!({"region": "apac"})).await,
        "ManagedClusterSet \"apac\"",
    )?;
    let mc3 = create(&bootstrap, "mc3", json!({})).await?;
    ensure!(
        mc3.labels()
            .get("cluster.open-cluster-management.io/clusterset")
            .is_some_and(|set| set == "default")
    );
    // A label that can name no set is reported on its cluster.
    relabel(&fleet, &admin, "mc3", &[("region", Some("APAC"))]).await?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    wait::until_true("the label is reported", || async {
        let status = clusters.get("mc3").await?.status.unwrap_or_default();
        Ok(status.conditions.iter().any(|c| {
            c.type_ == "ManagedClusterSetLabelsValid"
                && c.status == "False"
                && c.message.contains("region=APAC")
        }))
    })
    .await?;
    hub.stop().await
}

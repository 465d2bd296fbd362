//! Accounts that become others: for the clusters of sets, and from the older group.

use anyhow::{Context, Result, ensure};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use writ_api::{
    authentication::ManagedServiceAccountStatus,
    cluster::{ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding},
    proxy,
};
use writ_controller::condition;

use super::{Stage, gone};
use crate::{Fleet, wait::until, yaml};

const LABEL: &str = "cluster.open-cluster-management.io/clusterset";

pub async fn follows_its_clusters(fleet: Fleet) -> Result<()> {
    let stage = Stage::set(fleet).await?;
    let admin = stage.admin.clone();
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    let join = async |cluster: &str, set: Option<&str>| {
        let patch = json!({ "metadata": { "labels": { LABEL: set } } });
        clusters
            .patch(cluster, &PatchParams::default(), &Patch::Merge(&patch))
            .await
    };
    for namespace in ["team-a", "team-b"] {
        stage.fleet.hub.namespace(namespace).await?;
    }
    stage
        .create("team-a", "robot", json!({ "rotation": { "validity": "24h" } }))
        .await?;
    let status =
        async |namespace: &str, what: &str, holds: &(dyn Fn(&ManagedServiceAccountStatus) -> bool + Sync)| {
            until(what, || async {
                let account = stage.accounts(namespace).get("robot").await?;
                Ok(account.status.filter(|status| holds(status)))
            })
            .await
        };
    status("team-a", "word that the namespace is not bound", &|status| {
        condition::find(&status.conditions, "AllServiceAccountPresent")
            .is_some_and(|c| c.reason == "NamespaceNotBound")
    })
    .await?;

    let set: ManagedClusterSet = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
        "metadata": { "name": "prod" }, "spec": {},
    }))?;
    Api::all(admin.clone())
        .create(&PostParams::default(), &set)
        .await?;
    let binding: ManagedClusterSetBinding = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
        "metadata": { "name": "prod" }, "spec": { "clusterSet": "prod" },
    }))?;
    let bindings = |namespace: &str| Api::<ManagedClusterSetBinding>::namespaced(admin.clone(), namespace);
    bindings("team-a")
        .create(&PostParams::default(), &binding)
        .await?;
    join("cluster1", Some("prod")).await?;
    let first = stage.token("cluster1", "robot", &[]).await?;
    ensure!(stage.user_of(1, &first).await?.is_some());
    ensure!(stage.accounts("cluster2").get_opt("robot").await?.is_none());
    ensure!(
        stage.secrets("team-a").get_opt("robot").await?.is_none(),
        "the Secret is with the cluster"
    );
    status("team-a", "one of one", &|status| {
        status
            .clusters
            .as_ref()
            .is_some_and(|counts| (counts.total, counts.ready) == (1, 1))
    })
    .await?;

    // A cluster that joins gets the account, one where the name is taken is left alone and named.
    stage
        .create("cluster2", "robot", json!({ "rotation": {} }))
        .await?;
    let theirs = stage.token("cluster2", "robot", &[]).await?;
    join("cluster2", Some("prod")).await?;
    let conflict = status("team-a", "a conflict", &|status| {
        condition::is_true(&status.conditions, "Conflict")
    })
    .await?;
    let counts = conflict.clusters.context("no counts")?;
    ensure!(counts.failing.len() == 1 && counts.failing.iter().all(|failing| failing.name == "cluster2"));
    ensure!(stage.token("cluster2", "robot", &[]).await? == theirs);
    stage
        .accounts("cluster2")
        .delete("robot", &DeleteParams::default())
        .await?;
    stage.token("cluster2", "robot", &[&theirs]).await?;

    // Another set namespace with the same name shares nothing.
    bindings("team-b")
        .create(&PostParams::default(), &binding)
        .await?;
    stage.create("team-b", "robot", json!({ "rotation": {} })).await?;
    status("team-b", "a conflict", &|status| {
        condition::is_true(&status.conditions, "Conflict")
    })
    .await?;

    // A cluster that leaves loses the account, and its tokens die; without a binding all do.
    join("cluster1", None).await?;
    gone("the account", &stage.accounts("cluster1"), "robot").await?;
    until("the token to be refused", || async {
        Ok(stage.user_of(1, &first).await?.is_none().then_some(()))
    })
    .await?;
    bindings("team-a")
        .delete("prod", &DeleteParams::default())
        .await?;
    until("the other namespace's account to follow", || async {
        let account = stage.accounts("cluster2").get("robot").await?;
        let parent = account
            .annotations()
            .get("authentication.writ.dev/parent")
            .cloned();
        Ok((parent.as_deref() == Some("team-b/robot")).then_some(()))
    })
    .await?;
    stage
        .accounts("team-b")
        .delete("robot", &DeleteParams::default())
        .await?;
    gone("the account", &stage.accounts("cluster2"), "robot").await
}

/// Whoever has the credential that all clusters join with may ask for a cluster that is called like a namespace of a
/// team. That ends none of the team's tokens; accepting it does.
pub async fn becomes_a_clusters(fleet: Fleet) -> Result<()> {
    const TEAM: &str = "team-c";
    let stage = Stage::set(fleet).await?;
    stage.fleet.hub.namespace(TEAM).await?;
    for object in [
        json!({"apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
            "metadata": {"name": "prod"}, "spec": {}}),
        json!({"apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": {"name": "prod", "namespace": TEAM}, "spec": {"clusterSet": "prod"}}),
    ] {
        yaml::apply(&stage.admin, &object.to_string()).await?;
    }
    let clusters: Api<ManagedCluster> = Api::all(stage.admin.clone());
    let join = Patch::Merge(json!({ "metadata": { "labels": { LABEL: "prod" } } }));
    clusters.patch("cluster1", &PatchParams::default(), &join).await?;
    stage.create(TEAM, "robot", json!({ "rotation": {} })).await?;
    let token = stage.token("cluster1", "robot", &[]).await?;
    let child = stage.accounts("cluster1").get("robot").await?.uid();

    let asked: ManagedCluster = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1", "kind": "ManagedCluster",
        "metadata": { "name": TEAM }, "spec": { "hubAcceptsClient": false },
    }))?;
    clusters.create(&PostParams::default(), &asked).await?;
    // What is changed still reaches the cluster: the hub has looked, and sees the team's account as before.
    let key = "authentication.writ.dev/secret-keys";
    for keys in ["kubeconfig", "argocd", "kubeconfig,argocd"] {
        let change = Patch::Merge(json!({ "metadata": { "annotations": { key: keys } } }));
        stage
            .accounts(TEAM)
            .patch("robot", &PatchParams::default(), &change)
            .await?;
        until("the cluster's account to follow", || async {
            let found = stage.accounts("cluster1").get_opt("robot").await?;
            let child = found.context("the account on the cluster is gone")?;
            Ok((child.annotations().get(key).map(String::as_str) == Some(keys)).then_some(()))
        })
        .await?;
    }
    ensure!(
        stage.accounts("cluster1").get("robot").await?.uid() == child,
        "it is another account"
    );
    ensure!(stage.user_of(1, &token).await?.is_some(), "its token is dead");

    let accept = Patch::Merge(json!({ "spec": { "hubAcceptsClient": true } }));
    clusters.patch(TEAM, &PatchParams::default(), &accept).await?;
    gone("the account", &stage.accounts("cluster1"), "robot").await?;
    until("the counts to go", || async {
        let status = stage
            .accounts(TEAM)
            .get("robot")
            .await?
            .status
            .unwrap_or_default();
        Ok(status.clusters.is_none().then_some(()))
    })
    .await?;
    until("the token to be refused", || async {
        Ok(stage.user_of(1, &token).await?.is_none().then_some(()))
    })
    .await
}

pub async fn the_older_group(fleet: Fleet) -> Result<()> {
    let stage = Stage::set(fleet).await?;
    let api: Api<proxy::ManagedServiceAccount> = Api::namespaced(stage.admin.clone(), "cluster1");
    let named = |name: &str| -> Result<proxy::ManagedServiceAccount> {
        Ok(serde_json::from_value(json!({
            "apiVersion": "proxy.open-cluster-management.io/v1alpha1", "kind": "ManagedServiceAccount",
            "metadata": { "name": name },
            "spec": { "rotation": { "enabled": true, "validity": "4320h0m0s" } },
        }))?)
    };
    stage
        .create("cluster1", "taken", json!({ "rotation": {} }))
        .await?;
    for name in ["fine", "taken"] {
        api.create(&PostParams::default(), &named(name)?).await?;
    }
    let token = stage.token("cluster1", "fine", &[]).await?;
    ensure!(stage.user_of(1, &token).await?.is_some());
    until("the status to be copied", || async {
        let status = api.get("fine").await?.status.unwrap_or_default();
        let present = condition::is_true(&status.conditions, "AllServiceAccountPresent");
        Ok((present && status.token_secret_ref.is_some()).then_some(()))
    })
    .await?;
    until("the conflict to be named", || async {
        let status = api.get("taken").await?.status.unwrap_or_default();
        Ok(condition::is_true(&status.conditions, "Conflict").then_some(()))
    })
    .await?;
    ensure!(
        stage
            .accounts("cluster1")
            .get("taken")
            .await?
            .owner_references()
            .is_empty()
    );
    api.delete("fine", &DeleteParams::default()).await?;
    gone("the account", &stage.accounts("cluster1"), "fine").await?;
    until("the token to be refused", || async {
        Ok(stage.user_of(1, &token).await?.is_none().then_some(()))
    })
    .await
}

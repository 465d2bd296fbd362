//! What sets are made of, what they say, and what never happens in between.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::ClusterRole};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding};

use super::{create, grant, refused, relabel, rule, run_hub, set_yaml, user, wait_members};
use crate::{Fleet, fleet::HUB_NAMESPACE, wait, yaml};

async fn post(client: &Client, name: &str, spec: Value) -> Result<ManagedClusterSet> {
    let set: ManagedClusterSet = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSet",
        "metadata": {"name": name}, "spec": spec,
    }))?;
    let api: Api<ManagedClusterSet> = Api::all(client.clone());
    Ok(api.create(&PostParams::default(), &set).await?)
}

async fn condition(fleet: &Fleet, set: &str, type_: &str) -> Result<Option<(String, String)>> {
    let api: Api<ManagedClusterSet> = Api::all(fleet.hub.admin().await?);
    let conditions = api.get(set).await?.status.unwrap_or_default().conditions;
    let found = conditions.into_iter().find(|c| c.type_ == type_);
    Ok(found.map(|c| (c.reason, c.message)))
}

/// What no set can be; what a set says about itself; how it goes.
pub async fn shapes(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let long = "a".repeat(64);
    for (name, spec, words) in [
        (long.as_str(), json!({"exclusiveKey": "region"}), "at most 63"),
        ("x", json!({"exclusiveKey": "not a key"}), "spec.exclusiveKey"),
        (
            "x",
            json!({"exclusiveKey": "region", "clusterLabel": {"key": "region", "value": "y"}}),
            "spec.clusterLabel must be the exclusive key and the name of the set",
        ),
        (
            "x",
            json!({"exclusiveKey": "region", "clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}}),
            "select exactly region=x",
        ),
        (
            "x",
            json!({"clusterSelector": {"selectorType": "LabelSelector",
                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}),
            "operator \"In\"",
        ),
    ] {
        refused(post(&admin, name, spec).await, words)?;
    }
    // A legacy form is rewritten; `clusterLabel` is welcome when it is right, and shown.
    let legacy = post(
        &admin,
        "old",
        json!({"clusterSelector": {"selectorType": "LegacyClusterSetLabel"}}),
    )
    .await?;
    ensure!(
        serde_json::to_value(&legacy.spec.cluster_selector)?
            == json!({"selectorType": "ExclusiveClusterSetLabel"})
    );
    post(
        &admin,
        "apac",
        json!({"exclusiveKey": "region", "clusterLabel": {"key": "region", "value": "apac"}}),
    )
    .await?;
    let says = async |reason: &str, message: &str| -> Result<()> {
        wait::until_true(&format!("apac says {reason}"), || async {
            Ok(condition(&fleet, "apac", "ClusterSetEmpty").await? == Some((reason.into(), message.into())))
        })
        .await
    };
    says("NoClusterMatched", "No ManagedCluster selected").await?;
    create(&admin, "mc1", json!({"region": "apac"})).await?;
    says("ClustersSelected", "1 ManagedClusters selected").await?;
    let sets: Api<ManagedClusterSet> = Api::all(admin.clone());
    let label = sets
        .get("apac")
        .await?
        .status
        .and_then(|s| s.cluster_label)
        .context("no label")?;
    ensure!((label.key.as_str(), label.value.as_str()) == ("region", "apac"));
    // Nobody makes the selector lie to those who know no keys.
    let lie = json!({"spec": {"clusterSelector": {"labelSelector": {"matchLabels": null}}}});
    refused(
        sets.patch("apac", &PatchParams::default(), &Patch::Merge(lie))
            .await
            .map_err(Into::into),
        "select exactly region=apac",
    )?;

    // `default` and `global` come back, and are rolled back.
    wait_members(&fleet, "global", 1).await?;
    wait_members(&fleet, "default", 1).await?;
    sets.delete("global", &DeleteParams::default()).await?;
    wait::until("global comes back", || async {
        Ok(sets.get_opt("global").await?)
    })
    .await?;

    // Each set has roles that reach that set only.
    let roles: Api<ClusterRole> = Api::all(admin.clone());
    let role = wait::until("the admin role of apac", || async {
        Ok(roles
            .get_opt("open-cluster-management:managedclusterset:admin:apac")
            .await?)
    })
    .await?;
    let named = |rule: &k8s_openapi::api::rbac::v1::PolicyRule| {
        rule.resource_names.as_deref() == Some(&["apac".to_owned()])
    };
    ensure!(role.rules.unwrap_or_default().iter().all(named));

    // A set that asks for it takes its label along.
    let mark = json!({"metadata": {"annotations": {"writ.dev/remove-labels-on-delete": "true"}}});
    sets.patch("apac", &PatchParams::default(), &Patch::Merge(mark))
        .await?;
    wait::until_true("the set is held until its label is gone", || async {
        Ok(!sets.get("apac").await?.finalizers().is_empty())
    })
    .await?;
    sets.delete("apac", &DeleteParams::default()).await?;
    let clusters: Api<ManagedCluster> = Api::all(admin.clone());
    wait::until_true("the label is gone, and the set", || async {
        Ok(!clusters.get("mc1").await?.labels().contains_key("region")
            && sets.get_opt("apac").await?.is_none())
    })
    .await?;
    hub.stop().await
}

/// Selectors never take clusters by surprise; with `--guard-selector-sets` and `--guard-default-key` labels ask too.
pub async fn guards(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    create(&admin, "mc1", json!({"env": "prod"})).await?;
    let rules = json!([
        rule("managedclustersets", &[], &["create", "update", "patch", "get"]),
        rule("managedclusters", &["mc1"], &["update"]),
    ]);
    grant(&fleet, "dev1", user("dev1"), &rules).await?;
    let dev1 = fleet.hub.user("dev1", &[]).await?;
    let selecting = |env: &str| json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"env": env}}}});
    refused(
        post(&dev1, "prod", selecting("prod")).await,
        "update on all managedclusters",
    )?;
    post(&dev1, "dev", selecting("dev")).await?;
    let sets: Api<ManagedClusterSet> = Api::all(dev1.clone());
    let wider = json!({"spec": selecting("prod")});
    refused(
        sets.patch("dev", &PatchParams::default(), &Patch::Merge(wider))
            .await
            .map_err(Into::into),
        "update on all managedclusters",
    )?;
    // As upstream: the label is free, and so is a set with the default key.
    relabel(&fleet, &dev1, "mc1", &[("env", Some("dev"))]).await?;
    wait_members(&fleet, "dev", 1).await?;
    post(&dev1, "plain", json!({})).await?;
    hub.stop().await?;

    let hub = run_hub(&fleet, |options| {
        options.guards.selector_sets = true;
        options.guards.default_key = true;
    })
    .await?;
    wait::until_true("the label asks for join", || async {
        let answer = relabel(&fleet, &dev1, "mc1", &[("env", None)]).await;
        Ok(refused(answer, "ManagedClusterSet \"dev\"").is_ok())
    })
    .await?;
    refused(
        post(&dev1, "other", json!({})).await,
        "exclusiveKey \"cluster.open-cluster-management.io/clusterset\"",
    )?;
    hub.stop().await
}

/// The ConfigMap `clusterset-validation`, with keys that have a prefix, and malformed.
pub async fn pairs(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let maps: Api<ConfigMap> = Api::namespaced(admin.clone(), HUB_NAMESPACE);
    let write = async |data: Value| -> Result<()> {
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "clusterset-validation", "namespace": HUB_NAMESPACE}, "data": data});
        let _ = maps
            .delete("clusterset-validation", &DeleteParams::default())
            .await;
        yaml::apply(&admin, &map.to_string()).await
    };
    let key = "example.com/region";
    let try_set = async |name: &str, key: &str| -> Result<()> {
        post(&admin, name, json!({"exclusiveKey": key})).await?;
        let sets: Api<ManagedClusterSet> = Api::all(admin.clone());
        sets.delete(name, &DeleteParams::default()).await?;
        Ok(())
    };
    let listed = "is not in the ConfigMap";
    write(json!({"vendor": "aws, gcp", "_pairs": "example.com/region: apac, us\n"})).await?;
    try_set("apac", key).await?;
    try_set("aws", "vendor").await?;
    try_set("team-a", "team").await?;
    refused(try_set("apac", "vendor").await, listed)?;
    refused(try_set("aws", key).await, listed)?;
    refused(try_set("eu", key).await, listed)?;
    refused(try_set("apac", "team").await, listed)?;
    for broken in [
        json!({"region": "apac, NOT A NAME"}),
        json!({"_pairs": "example.com/region apac"}),
        json!({"region": ""}),
    ] {
        write(broken).await?;
        refused(
            try_set("team-a", "team").await,
            "cannot be read, so no set can be created",
        )?;
    }
    maps.delete("clusterset-validation", &DeleteParams::default())
        .await?;
    try_set("apac", "vendor").await?;
    hub.stop().await
}

/// A set is created and a cluster labelled at the same moment, by two people who may do no more than that: however
/// it ends, no cluster is a member that nobody with the right to join put there.
pub async fn race(fleet: Fleet) -> Result<()> {
    const ROUNDS: usize = 20;
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let maker = json!([
        rule("managedclustersets/exclusiveKey", &["region"], &["create"]),
        rule("managedclustersets", &[], &["create", "patch", "update", "get"]),
    ]);
    grant(&fleet, "maker", user("maker"), &maker).await?;
    // May update every cluster there is, one by one, and no other.
    let names: Vec<String> = (0..ROUNDS).map(|n| format!("mc{n}")).collect();
    let all: Vec<&str> = names.iter().map(String::as_str).collect();
    grant(
        &fleet,
        "labeller",
        user("labeller"),
        &json!([rule("managedclusters", &all, &["update"])]),
    )
    .await?;
    let (maker, labeller) = (
        fleet.hub.user("maker", &[]).await?,
        fleet.hub.user("labeller", &[]).await?,
    );
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for (n, cluster) in names.iter().enumerate() {
        create(&admin, cluster, json!({})).await?;
        let set = format!("s{n}");
        let label = [("region", Some(set.as_str()))];
        let (made, moved) = tokio::join!(
            post(&maker, &set, json!({"exclusiveKey": "region"})),
            relabel(&fleet, &labeller, cluster, &label),
        );
        *seen
            .entry(match (made.is_ok(), moved.is_ok()) {
                (true, true) => "both went through",
                (true, false) => "the label was refused",
                (false, true) => "the set was refused",
                (false, false) => "both were refused",
            })
            .or_default() += 1;
        if made.is_err() {
            continue;
        }
        let clusters: Api<ManagedCluster> = Api::all(admin.clone());
        let carries = clusters.get(cluster).await?.labels().get("region") == Some(&set);
        if carries {
            wait::until_true("the cluster is reported, and left out", || async {
                let conflict = condition(&fleet, &set, "ClusterSetConflict").await?;
                Ok(conflict.is_some_and(|(reason, message)| {
                    reason == "UnconfirmedMembers" && message.contains(cluster.as_str())
                }))
            })
            .await?;
            // What the maker writes about it is put back; somebody with the right confirms.
            let sets: Api<ManagedClusterSet> = Api::all(maker.clone());
            let confirm = json!({"metadata": {"annotations": {"writ.dev/members-confirmed": "true"}}});
            let answer = sets
                .patch(&set, &PatchParams::default(), &Patch::Merge(&confirm))
                .await?;
            ensure!(
                answer
                    .annotations()
                    .get("writ.dev/members-confirmed")
                    .is_some_and(|v| v == "false")
            );
            let sets: Api<ManagedClusterSet> = Api::all(admin.clone());
            wait_members(&fleet, &set, 0).await?;
            sets.patch(&set, &PatchParams::default(), &Patch::Merge(&confirm))
                .await?;
            wait_members(&fleet, &set, 1).await?;
        } else {
            wait_members(&fleet, &set, 0).await?;
        }
    }
    tracing::info!(?seen, "how the rounds ended");
    hub.stop().await
}

/// A set is offered to a namespace by somebody who may bind it, and by nobody else.
pub async fn bindings(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    fleet.hub.namespace("team-a").await?;
    yaml::apply(&admin, &set_yaml("apac", "region")).await?;
    let rules = json!([
        rule("managedclustersetbindings", &[], &["create"]),
        rule("managedclustersets/bind", &["apac", "later"], &["create"]),
    ]);
    grant(&fleet, "binder", user("binder"), &rules).await?;
    let api: Api<ManagedClusterSetBinding> = Api::namespaced(fleet.hub.user("binder", &[]).await?, "team-a");
    let bind = async |name: &str, set: &str| -> Result<()> {
        let binding = serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": {"name": name}, "spec": {"clusterSet": set},
        }))?;
        api.create(&PostParams::default(), &binding).await?;
        Ok(())
    };
    refused(
        bind("global", "global").await,
        "is not allowed to bind cluster set \"global\"",
    )?;
    refused(bind("mine", "apac").await, "must have the same name")?;
    bind("apac", "apac").await?;
    bind("later", "later").await?;
    let api: Api<ManagedClusterSetBinding> = Api::namespaced(admin.clone(), "team-a");
    let bound = async |name: &str, wanted: &str| -> Result<()> {
        wait::until_true(&format!("{name} is {wanted}"), || async {
            let conditions = api.get(name).await?.status.unwrap_or_default().conditions;
            Ok(conditions
                .iter()
                .any(|c| c.type_ == "Bound" && c.reason == wanted))
        })
        .await
    };
    bound("apac", "ClusterSetBound").await?;
    bound("later", "ClusterSetNotFound").await?;
    yaml::apply(&admin, &set_yaml("later", "region")).await?;
    bound("later", "ClusterSetBound").await?;
    hub.stop().await
}

//! The three user stories of the design document, each person with the role given there.
//!
//! Where that role is too small for its own story, what is added is marked and listed in `docs/compatibility.md`.

use anyhow::Result;
use kube::Api;
use serde_json::json;

use super::{create, grant, refused, relabel, rule, run_hub, set_yaml, user, wait_members};
use crate::{Fleet, wait, yaml};

/// What everybody who creates a cluster needs, and no role of the document has: `create`, and `join` on `default`.
fn creator() -> [serde_json::Value; 2] {
    [
        rule("managedclusters", &[], &["create"]),
        rule("managedclustersets/join", &["default"], &["create"]),
    ]
}

/// As cluster admin, I want a set of all clusters in one region.
pub async fn region(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    // 1. The admin creates the set.
    yaml::apply(&admin, &set_yaml("apac", "region")).await?;
    // 3. dev1 creates the cluster (added: create, join on default); the admin accepts it.
    grant(&fleet, "dev1", user("dev1"), &json!(creator())).await?;
    create(&fleet.hub.user("dev1", &[]).await?, "mc1", json!({})).await?;
    writ_hub::registration::operator_actions::accept(&admin, "mc1", None).await?;
    // 4. Without step 2 the agent cannot add the label.
    let agent = fleet.agent_identity("mc1").await?;
    let label = [("region", Some("apac"))];
    refused(relabel(&fleet, &agent, "mc1", &label).await, "cannot update")?;
    // 2. The admin gives the agent join (corrected: update is on managedclusters, not managedclustersets).
    let group = json!({"kind": "Group", "name": "system:open-cluster-management:mc1"});
    let rules = json!([
        rule("managedclustersets/join", &["apac"], &["create"]),
        rule("managedclusters", &["mc1"], &["update"]),
    ]);
    grant(&fleet, "clustersetrole", group, &rules).await?;
    wait::until_true("the agent joins its region", || async {
        Ok(relabel(&fleet, &agent, "mc1", &label).await.is_ok())
    })
    .await?;
    wait_members(&fleet, "apac", 1).await?;
    hub.stop().await
}

/// As an SRE, I want a set for disaster recovery over several regions.
pub async fn disaster_recovery(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    // 1. The role of the document; added: patch on the set (server-side apply is a PATCH), and what it takes to
    // create and label clusters.
    let mut rules = vec![
        rule(
            "managedclustersets/exclusiveKey",
            &["clusterAttribute"],
            &["create"],
        ),
        rule("managedclustersets", &["backup"], &["create"]),
        rule("managedclustersets/join", &["backup"], &["create"]),
        rule("managedclustersets", &["backup"], &["patch"]),
        rule("managedclusters", &["a", "b", "c"], &["update"]),
    ];
    rules.extend(creator());
    grant(&fleet, "sre1", user("sre1"), &json!(rules)).await?;
    let sre1 = fleet.hub.user("sre1", &[]).await?;
    // 2. The set, by server-side apply: a POST could not match the name in the role.
    wait::until_true("sre1 applies the set", || async {
        apply_as(&fleet, "sre1", &set_yaml("backup", "clusterAttribute")).await?;
        Ok(true)
    })
    .await?;
    refused(
        apply_as(&fleet, "sre1", &set_yaml("backup2", "clusterAttribute")).await,
        "backup2",
    )?;
    // 3. and 4. Three clusters in three regions, labelled.
    for (name, region) in [("a", "apac"), ("b", "us"), ("c", "europe")] {
        create(&sre1, name, json!({"region": region})).await?;
        relabel(&fleet, &sre1, name, &[("clusterAttribute", Some("backup"))]).await?;
    }
    wait_members(&fleet, "backup", 3).await?;
    // The set is stored in a form that upstream's components read.
    let stored = Api::<writ_api::cluster::ManagedClusterSet>::all(fleet.hub.admin().await?)
        .get("backup")
        .await?;
    anyhow::ensure!(
        stored.spec.cluster_selector
            == writ_hub::cluster_set::membership::selector_of("clusterAttribute", "backup"),
        "{:?}",
        stored.spec.cluster_selector
    );
    hub.stop().await
}

/// `kubectl apply --server-side` as this user, with kubectl itself where the control plane brought it along.
async fn apply_as(fleet: &Fleet, user: &str, text: &str) -> Result<()> {
    let Ok(assets) = writ_testenv::Assets::find() else {
        return yaml::apply(&fleet.hub.user(user, &[]).await?, text).await;
    };
    let folder = tempfile::tempdir()?;
    let (config, set) = (folder.path().join("kubeconfig"), folder.path().join("set.yaml"));
    let kubeconfig = fleet.hub.kubeconfig_as(user, &["system:authenticated"]);
    std::fs::write(&config, writ_runtime::yaml::to_string(&kubeconfig)?)?;
    std::fs::write(&set, text)?;
    let output = tokio::process::Command::new(assets.binary("kubectl"))
        .args(["apply", "--server-side", "-f"])
        .arg(&set)
        .env("KUBECONFIG", &config)
        .env("HOME", folder.path())
        .output()
        .await?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

/// As a developer, I want to group clusters by middleware.
pub async fn middleware(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    let label = [("middlewareAttribute", Some("middlewareenabled"))];
    // 1. and 2. dev1 creates and labels mc1, before there is a set (added: create, join on default, update on mc1).
    let mut rules = creator().to_vec();
    rules.push(rule("managedclusters", &["mc1"], &["update"]));
    grant(&fleet, "dev1", user("dev1"), &json!(rules)).await?;
    let dev1 = fleet.hub.user("dev1", &[]).await?;
    wait::until_true("dev1 creates mc1", || async {
        Ok(create(&dev1, "mc1", json!({})).await.is_ok())
    })
    .await?;
    relabel(&fleet, &dev1, "mc1", &label).await?;
    // 3. The admin, who may update every cluster, creates the set: mc1 is in it.
    yaml::apply(&admin, &set_yaml("middlewareenabled", "middlewareAttribute")).await?;
    wait_members(&fleet, "middlewareenabled", 1).await?;
    // 4. to 6. dev2 (corrected: join on middlewareenabled, not apac; added as for dev1).
    let mut rules = creator().to_vec();
    rules.push(rule("managedclusters", &["mc2"], &["update"]));
    grant(&fleet, "dev2", user("dev2"), &json!(rules)).await?;
    let dev2 = fleet.hub.user("dev2", &[]).await?;
    wait::until_true("dev2 creates mc2", || async {
        Ok(create(&dev2, "mc2", json!({})).await.is_ok())
    })
    .await?;
    refused(
        relabel(&fleet, &dev2, "mc2", &label).await,
        "cannot add/remove a ManagedCluster to/from ManagedClusterSet \"middlewareenabled\"",
    )?;
    let join = json!([rule(
        "managedclustersets/join",
        &["middlewareenabled"],
        &["create"]
    )]);
    grant(&fleet, "clustersetrole", user("dev2"), &join).await?;
    wait::until_true("dev2 joins mc2", || async {
        Ok(relabel(&fleet, &dev2, "mc2", &label).await.is_ok())
    })
    .await?;
    wait_members(&fleet, "middlewareenabled", 2).await?;
    hub.stop().await
}

//! The hub goes away and comes back, the agent ends and starts again, a work is large.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::{authorization::v1::ResourceAttributes, core::v1::ConfigMap};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    config::AuthInfo,
};
use serde_json::{Value, json};
use writ_agent::options::WorkOptions;
use writ_api::work::{AppliedManifestWork, ManifestWork};

use super::{
    count::{Requests, together},
    link::Link,
    support::{
        accept, agent, change, condition, config_map, config_maps, create, delete, gone, holds, spoke, works,
    },
};
use crate::{
    Fleet, cluster,
    fleet::{self, Running},
    wait, yaml,
};

const GRACE: Duration = Duration::from_secs(1);

/// An agent whose hub is at the other end of a line.
async fn agent_over(fleet: &Fleet, link: &Link) -> Result<Running> {
    accept(fleet, "cluster1").await?;
    let groups = ["system:open-cluster-management:cluster1", "system:authenticated"];
    let identity = fleet
        .hub
        .kubeconfig_as("system:open-cluster-management:cluster1:agent", &groups);
    let hub = cluster::client(link.over(identity)).await?;
    let spoke = fleet
        .cluster(1)?
        .service_account(fleet::AGENT_NAMESPACE, "writ-agent")
        .await?;
    let options = writ_agent::Options {
        cluster_name: "cluster1".into(),
        controllers: vec!["work".into()],
        work: WorkOptions {
            eviction_grace_period: GRACE,
            ..WorkOptions::default()
        },
        ..writ_agent::Options::default()
    };
    fleet::start("the agent", |health, shutdown| {
        writ_agent::run(hub, spoke, options, health, shutdown)
    })
    .await
}

fn one(name: &str, value: &str) -> Value {
    json!({"workload": {"manifests": [config_map("default", name, value)]}})
}

/// A work that tells what is in an object of somebody else.
fn told() -> Value {
    let identifier = json!({"group": "", "resource": "configmaps", "namespace": "default", "name": "theirs"});
    json!({
        "workload": {"manifests": [config_map("default", "theirs", "")]},
        "manifestConfigs": [{
            "resourceIdentifier": identifier,
            "updateStrategy": {"type": "ReadOnly"},
            "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "key", "path": ".data.key"}]}],
        }],
    })
}

/// Waits until the work tells this.
async fn reported(works: &Api<ManifestWork>, name: &str, value: &str) -> Result<()> {
    wait::until_true(&format!("{name} tells {value}"), || async {
        let status = works.get(name).await?.status.unwrap_or_default();
        let manifests = status.resource_status.manifests.iter();
        let mut values = manifests.flat_map(|manifest| &manifest.status_feedback.values);
        Ok(values.any(|found| found.value.string.as_deref() == Some(value)))
    })
    .await
}

/// What was applied stays and is kept true while the hub is away; then nothing is lost, and nothing repeated.
pub async fn hub_away(fleet: Fleet) -> Result<()> {
    let link = Link::to(&fleet.hub.url()).await?;
    let _agent = agent_over(&fleet, &link).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    for name in ["kept", "changed", "dropped", "untouched"] {
        create(&works, name, one(name, "1")).await?;
        condition(&works, name, "Available", "True").await?;
    }
    let theirs: ConfigMap = serde_json::from_value(config_map("default", "theirs", "1"))?;
    maps.create(&PostParams::default(), &theirs).await?;
    create(&works, "told", told()).await?;
    reported(&works, "told", "1").await?;
    let before = (
        maps.get("untouched").await?.resource_version(),
        works.get("untouched").await?.resource_version(),
    );

    link.cut();
    let edit = json!({"data": {"key": "2"}});
    maps.patch("theirs", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    change(&works, "changed", json!({"spec": one("changed", "2")})).await?;
    works.delete("dropped", &DeleteParams::default()).await?;
    create(&works, "new", one("new", "1")).await?;
    let edit = json!({"data": {"key": "drift"}});
    maps.patch("kept", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    holds(&maps, "kept", "1").await?;
    maps.delete("changed", &DeleteParams::default()).await?;
    holds(&maps, "changed", "1").await?;
    // Longer than what is gone from the hub may stay.
    tokio::time::sleep(GRACE * 3).await;
    holds(&maps, "untouched", "1").await?;
    ensure!(maps.get_opt("new").await?.is_none());
    ensure!(maps.get_opt("dropped").await?.is_some());

    link.mend();
    reported(&works, "told", "2").await?;
    holds(&maps, "changed", "2").await?;
    holds(&maps, "new", "1").await?;
    gone(&maps, "dropped").await?;
    condition(&works, "changed", "Applied", "True").await?;
    condition(&works, "new", "Applied", "True").await?;
    wait::until_true("the deleted work is gone", || async {
        Ok(works.get_opt("dropped").await?.is_none())
    })
    .await?;
    let after = (
        maps.get("untouched").await?.resource_version(),
        works.get("untouched").await?.resource_version(),
    );
    ensure!(before == after, "{before:?} was written again: {after:?}");
    Ok(())
}

/// The versions of everything that the agent writes.
async fn versions(works: &Api<ManifestWork>, maps: &Api<ConfigMap>) -> Result<BTreeMap<String, String>> {
    let anchors: Api<AppliedManifestWork> = Api::all(maps.clone().into_client());
    let mut versions = BTreeMap::new();
    let all = ListParams::default();
    for work in works.list(&all).await? {
        versions.insert(
            format!("work {}", work.name_any()),
            work.resource_version().unwrap_or_default(),
        );
    }
    for anchor in anchors.list(&all).await? {
        versions.insert(
            format!("anchor {}", anchor.name_any()),
            anchor.resource_version().unwrap_or_default(),
        );
    }
    for map in maps.list(&all).await? {
        versions.insert(
            format!("map {}", map.name_any()),
            map.resource_version().unwrap_or_default(),
        );
    }
    Ok(versions)
}

/// An agent that starts again writes nothing that is there already, and goes on.
pub async fn restart(fleet: Fleet) -> Result<()> {
    let running = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    fleet.cluster(1)?.namespace("shop").await?;
    let maps = config_maps(&client, "shop");
    // Two objects each: one that stays as it is, one that drifts while nobody looks.
    let of = |name: &str, strategy: &str| {
        let drifts = format!("{name}-drifts");
        json!({"workload": {"manifests": [config_map("shop", name, "1"), config_map("shop", &drifts, "1")]},
            "manifestConfigs": [{"resourceIdentifier": {"resource": "configmaps", "namespace": "shop", "name": "*"},
                "updateStrategy": {"type": strategy, "serverSideApply": {"force": true}},
                "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "key", "path": ".data.key"}]}]}]})
    };
    let strategies = [("update", "Update"), ("apply", "ServerSideApply")];
    for (name, strategy) in strategies {
        create(&works, name, of(name, strategy)).await?;
        condition(&works, name, "Available", "True").await?;
    }
    // Records are written beside reports: it has written all when both are there.
    let anchors: Api<AppliedManifestWork> = Api::all(client.clone());
    wait::until_true("all is recorded", || async {
        let anchors = anchors.list(&ListParams::default()).await?;
        let recorded = anchors.iter().filter(|anchor| {
            let status = anchor.status.clone().unwrap_or_default();
            let known = status
                .applied_resources
                .iter()
                .filter(|known| !known.uid.is_empty());
            known.count() == 2
        });
        Ok(recorded.count() == strategies.len())
    })
    .await?;
    running.stop().await?;
    let before = versions(&works, &maps).await?;
    let edit = json!({"data": {"key": "drift while nobody looked"}});
    for (name, _) in strategies {
        let name = format!("{name}-drifts");
        maps.patch(&name, &PatchParams::default(), &Patch::Merge(&edit))
            .await?;
    }

    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    for (name, _) in strategies {
        holds(&maps, &format!("{name}-drifts"), "1").await?;
    }
    create(&works, "new", one("new", "1")).await?;
    condition(&works, "new", "Available", "True").await?;
    let after = versions(&works, &maps).await?;
    for (what, version) in before.iter().filter(|(what, _)| !what.ends_with("-drifts")) {
        let now = after.get(what).with_context(|| format!("{what} is gone"))?;
        ensure!(now == version, "{what} was written again");
    }
    Ok(())
}

/// Edits that come faster than reports are written: the last one counts, of the spec and of the labels.
pub async fn edits_in_a_row(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let maps = config_maps(&client, "default");
    let anchors: Api<AppliedManifestWork> = Api::all(client.clone());
    create(&works, "web", one("web", "0")).await?;
    for burst in 0..10 {
        for edit in 0..5 {
            let value = format!("{burst}-{edit}");
            change(&works, "web", json!({"spec": one("web", &value)})).await?;
            change(&works, "web", json!({"metadata": {"labels": {"edit": value}}})).await?;
        }
        let last = format!("{burst}-4");
        holds(&maps, "web", &last).await?;
        condition(&works, "web", "Applied", "True").await?;
        wait::until_true("the last label arrives", || async {
            let found = anchors.list(&ListParams::default()).await?.items;
            Ok(found
                .iter()
                .all(|anchor| anchor.labels().get("edit") == Some(&last)))
        })
        .await?;
    }
    Ok(())
}

/// Who delivers the large work.
const ROBOT: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: robot, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: edit}
subjects:
- {kind: ServiceAccount, name: robot, namespace: shop}
";

/// A thousand manifests under an executor: applied, changed, half of them pruned, deleted. What the executor may is
/// asked once for all of them, and what is as it should be is not asked about.
pub async fn large(fleet: Fleet) -> Result<()> {
    let requests = Requests::default();
    let _agent = counted_agent(&fleet, &requests).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    fleet.cluster(1)?.namespace("shop").await?;
    yaml::apply(&client, ROBOT).await?;
    // What is asked is counted from when the API server has heard of the grant: before, it would be asked again.
    let what = ResourceAttributes {
        verb: Some("create".into()),
        resource: Some("configmaps".into()),
        namespace: Some("shop".into()),
        ..ResourceAttributes::default()
    };
    wait::until_true("the robot may write", || async {
        let cluster = fleet.cluster(1)?;
        cluster
            .allows("system:serviceaccount:shop:robot", &[], what.clone())
            .await
    })
    .await?;
    let maps = config_maps(&client, "shop");
    let spec = |count: usize, value: &str| {
        let manifests: Vec<_> = (0..count)
            .map(|n| config_map("shop", &format!("m{n}"), value))
            .collect();
        json!({"workload": {"manifests": manifests}, "executor": {"subject": {"type": "ServiceAccount",
            "serviceAccount": {"namespace": "shop", "name": "robot"}}}})
    };
    let count = || async {
        let all = maps.list_metadata(&ListParams::default()).await?;
        anyhow::Ok(all.iter().filter(|map| map.name_any().starts_with('m')).count())
    };
    let reviews = || requests.holding("/subjectaccessreviews");
    create(&works, "large", spec(1000, "1")).await?;
    let work = condition(&works, "large", "Available", "True").await?;
    // One writer: a thousand objects are recorded in a handful of writes, and none of them is lost to another.
    let records = requests.holding("/appliedmanifestworks/");
    ensure!(records.len() <= 5, "the record was written by {records:?}");
    ensure!(count().await? == 1000);
    let reported = work.status.unwrap_or_default().resource_status.manifests.len();
    ensure!(reported == 1000, "{reported} manifests are reported");
    let asked = reviews().len();
    ensure!((1..=5).contains(&asked), "{asked} reviews for a full grant");

    // Another work is delivered meanwhile: nothing is asked about the thousand.
    requests.forget();
    create(&works, "small", one("small", "1")).await?;
    condition(&works, "small", "Available", "True").await?;
    let again = requests.holding("/namespaces/shop/");
    ensure!(
        again.is_empty(),
        "an unchanged work cost {}: {:?}",
        again.len(),
        again.first()
    );

    // One drifts: the answers are known. Then all change: a revision is judged by answers of its own.
    let edit = json!({"data": {"key": "drift"}});
    maps.patch("m7", &PatchParams::default(), &Patch::Merge(&edit))
        .await?;
    holds(&maps, "m7", "1").await?;
    let repair = requests.holding("/namespaces/shop/");
    ensure!(repair.len() <= 3, "the repair of one object cost {repair:?}");
    ensure!(
        reviews().is_empty(),
        "the second pass asked again: {:?}",
        reviews().len()
    );
    change(&works, "large", json!({"spec": spec(500, "2")})).await?;
    condition(&works, "large", "Applied", "True").await?;
    holds(&maps, "m499", "2").await?;
    wait::until_true("the other half is pruned", || async { Ok(count().await? == 500) }).await?;
    let asked = reviews().len();
    ensure!((1..=5).contains(&asked), "{asked} reviews for a new revision");
    delete(&works, "large").await?;
    ensure!(count().await? == 0);
    Ok(())
}

/// The namespace comes first, then its contents side by side, each with one write.
pub async fn side_by_side(fleet: Fleet) -> Result<()> {
    const MANY: usize = 10;
    let requests = Requests::default();
    let spoke = together(counted(&fleet, &requests).await?, "/configmaps", MANY);
    let _agent = agent_with(&fleet, spoke).await?;
    let works = works(&fleet).await?;
    let maps = (0..MANY).map(|n| config_map("new", &format!("m{n}"), "1"));
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "new"}});
    let manifests: Vec<_> = maps.chain([namespace]).collect();
    create(
        &works,
        "side-by-side",
        json!({"workload": {"manifests": manifests}}),
    )
    .await?;
    condition(&works, "side-by-side", "Available", "True").await?;
    let mut written = requests.holding("/api/v1/namespaces/new");
    written.retain(|asked| !asked.starts_with("GET "));
    let first = written
        .first()
        .is_some_and(|asked| !asked.contains("/configmaps"));
    ensure!(first && written.len() == MANY + 1, "{written:#?}");
    Ok(())
}

/// A client of the agent for the managed cluster, whose requests are counted.
async fn counted(fleet: &Fleet, requests: &Requests) -> Result<Client> {
    let cluster = fleet.cluster(1)?;
    let token = cluster.token(fleet::AGENT_NAMESPACE, "writ-agent").await?;
    requests
        .client(cluster.kubeconfig_with(AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        }))
        .await
}

/// An agent whose requests to the managed cluster are counted.
pub async fn counted_agent(fleet: &Fleet, requests: &Requests) -> Result<Running> {
    agent_with(fleet, counted(fleet, requests).await?).await
}

/// An agent that reaches its managed cluster with this client.
async fn agent_with(fleet: &Fleet, spoke: Client) -> Result<Running> {
    accept(fleet, "cluster1").await?;
    let hub = fleet.agent_identity("cluster1").await?;
    let options = writ_agent::Options {
        cluster_name: "cluster1".into(),
        controllers: vec!["work".into()],
        ..writ_agent::Options::default()
    };
    fleet::start("the agent", |health, shutdown| {
        writ_agent::run(hub, spoke, options, health, shutdown)
    })
    .await
}

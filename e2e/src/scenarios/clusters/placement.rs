//! Placements as people use them: sets by binding, what a cluster must be like, who comes first, who stays.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use kube::{
    Api, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, ManagedClusterSetBinding, Placement, PlacementDecision};
use writ_hub::placement::explain::explain;

use super::{run_hub, set_yaml};
use crate::{Fleet, wait, yaml};

const NAMESPACE: &str = "team-a";

/// The hub's administrator, who makes clusters and placements in one namespace.
struct Team {
    fleet: Fleet,
    placements: Api<Placement>,
    decisions: Api<PlacementDecision>,
    clusters: Api<ManagedCluster>,
}

impl Team {
    async fn start(fleet: Fleet) -> Result<Self> {
        let admin = fleet.hub.admin().await?;
        fleet.hub.namespace(NAMESPACE).await?;
        Ok(Self {
            placements: Api::namespaced(admin.clone(), NAMESPACE),
            decisions: Api::namespaced(admin.clone(), NAMESPACE),
            clusters: Api::all(admin),
            fleet,
        })
    }

    async fn bind(&self, set: &str) -> Result<()> {
        let api: Api<ManagedClusterSetBinding> = Api::namespaced(self.fleet.hub.admin().await?, NAMESPACE);
        let binding = serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta2", "kind": "ManagedClusterSetBinding",
            "metadata": {"name": set}, "spec": {"clusterSet": set},
        }))?;
        api.create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    /// A cluster that can be chosen: it tolerates no silence, so it is made without an agent and without a taint.
    async fn cluster(&self, name: &str, labels: Value, status: Value) -> Result<()> {
        let mut cluster = super::cluster(name, &labels)?;
        cluster.spec.hub_accepts_client = true;
        self.clusters.create(&PostParams::default(), &cluster).await?;
        if !status.is_null() {
            let patch = json!({"status": status});
            self.clusters
                .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
                .await?;
        }
        Ok(())
    }

    async fn place(&self, name: &str, spec: Value) -> Result<()> {
        let placement = json!({
            "apiVersion": "cluster.open-cluster-management.io/v1beta1", "kind": "Placement",
            "metadata": {"name": name}, "spec": spec,
        });
        self.placements
            .patch(
                name,
                &PatchParams::apply("kubectl").force(),
                &Patch::Apply(placement),
            )
            .await?;
        Ok(())
    }

    async fn chosen(&self, placement: &str) -> Result<Vec<(String, Vec<String>)>> {
        let params = ListParams::default().labels(&format!(
            "cluster.open-cluster-management.io/placement={placement}"
        ));
        let mut all: Vec<_> = self
            .decisions
            .list(&params)
            .await?
            .items
            .into_iter()
            .map(|d| {
                let decisions = d.status.clone().unwrap_or_default().decisions;
                (
                    d.name_any(),
                    decisions.into_iter().map(|d| d.cluster_name).collect(),
                )
            })
            .collect();
        all.sort();
        Ok(all)
    }

    async fn names(&self, placement: &str) -> Result<BTreeSet<String>> {
        Ok(self
            .chosen(placement)
            .await?
            .into_iter()
            .flat_map(|(_, names)| names)
            .collect())
    }

    async fn expect(&self, placement: &str, wanted: &[&str]) -> Result<()> {
        let wanted: BTreeSet<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
        let mut last = BTreeSet::new();
        let met = wait::until_true(&format!("{placement} chooses {wanted:?}"), || async {
            Ok(self.names(placement).await? == wanted && self.status(placement, wanted.len()).await?)
        })
        .await;
        if met.is_err() {
            last = self.names(placement).await?;
        }
        met.with_context(|| format!("it chose {last:?}"))
    }

    async fn status(&self, placement: &str, count: usize) -> Result<bool> {
        let status = self.placements.get(placement).await?.status.unwrap_or_default();
        Ok(usize::try_from(status.number_of_selected_clusters)? == count)
    }

    async fn says(&self, placement: &str, type_: &str, reason: &str, words: &str) -> Result<()> {
        wait::until_true(&format!("{placement} says {reason}"), || async {
            let conditions = self
                .placements
                .get(placement)
                .await?
                .status
                .unwrap_or_default()
                .conditions;
            Ok(conditions
                .iter()
                .any(|c| c.type_ == type_ && c.reason == reason && c.message.contains(words)))
        })
        .await
    }

    async fn taint(&self, cluster: &str, taints: Value) -> Result<()> {
        let patch = json!({"spec": {"taints": taints}});
        self.clusters
            .patch(cluster, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    async fn why_not(&self, placement: &str, cluster: &str) -> Result<String> {
        let explanation = explain(&self.fleet.hub.admin().await?, NAMESPACE, placement).await?;
        let reason = explanation.outcome.left_out.get(cluster).cloned();
        reason.with_context(|| format!("{cluster} was not left out"))
    }
}

/// Only what this folder's scenarios need: without registration nobody taints clusters that have no agent.
async fn run(fleet: &Fleet) -> Result<crate::Running> {
    run_hub(fleet, |options| {
        options.controllers = ["cluster_set", "placement"].map(str::to_owned).into();
    })
    .await
}

/// Sets by binding, each with its own key; predicates by labels, claims and CEL; every cluster left out has a reason.
pub async fn candidates(fleet: Fleet) -> Result<()> {
    let hub = run(&fleet).await?;
    let team = Team::start(fleet).await?;
    let admin = team.fleet.hub.admin().await?;
    for (set, key) in [("apac", "region"), ("backup", "clusterAttribute")] {
        yaml::apply(&admin, &set_yaml(set, key)).await?;
    }
    let claim = |value: &str| json!({"clusterClaims": [{"name": "platform", "value": value}], "version": {"kubernetes": "v1.36.3"}});
    team.cluster("a", json!({"region": "apac", "env": "prod"}), claim("aws"))
        .await?;
    team.cluster("b", json!({"region": "apac", "env": "dev"}), claim("gcp"))
        .await?;
    team.cluster("c", json!({"clusterAttribute": "backup"}), claim("aws"))
        .await?;
    team.cluster("d", json!({"region": "us"}), claim("aws")).await?;
    team.place("all", json!({})).await?;
    team.says("all", "PlacementSatisfied", "NoManagedClusterSetBindings", "")
        .await?;
    team.bind("apac").await?;
    team.expect("all", &["a", "b"]).await?;
    team.bind("backup").await?;
    team.expect("all", &["a", "b", "c"]).await?;
    team.place("one-set", json!({"clusterSets": ["backup", "unbound"]}))
        .await?;
    team.expect("one-set", &["c"]).await?;

    let required = |selector: Value| json!({"predicates": [{"requiredClusterSelector": selector}]});
    team.place(
        "by-label",
        required(json!({"labelSelector": {"matchLabels": {"env": "prod"}}})),
    )
    .await?;
    team.expect("by-label", &["a"]).await?;
    team.place(
        "by-claim",
        required(json!({"claimSelector": {"matchExpressions": [{"key": "platform", "operator": "In", "values": ["aws"]}]}})),
    )
    .await?;
    team.expect("by-claim", &["a", "c"]).await?;
    team.place(
        "by-cel",
        required(json!({"celSelector": {"celExpressions": [
            "managedCluster.status.version.kubernetes == 'v1.36.3'",
            "managedCluster.metadata.labels['env'] == 'dev'",
        ]}})),
    )
    .await?;
    team.expect("by-cel", &["b"]).await?;
    ensure!(
        team.why_not("by-label", "b")
            .await?
            .contains("its labels do not match env=prod")
    );
    ensure!(team.why_not("by-cel", "a").await?.contains("is false"));
    // A label moves a cluster from one to the other; a claim too.
    let patch = json!({"metadata": {"labels": {"env": "prod"}}});
    team.clusters
        .patch("b", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    team.expect("by-label", &["a", "b"]).await?;
    team.expect("by-cel", &[]).await?;

    // What cannot be understood keeps its decisions and says why.
    team.place(
        "by-label",
        required(json!({"labelSelector": {"matchExpressions": [{"key": "env", "operator": "Sometimes"}]}})),
    )
    .await?;
    team.says(
        "by-label",
        "PlacementMisconfigured",
        "Misconfigured",
        "operator \"Sometimes\"",
    )
    .await?;
    ensure!(
        team.names("by-label").await?.len() == 2,
        "a typo evicted clusters"
    );
    let misconfigured = explain(&admin, NAMESPACE, "by-label").await?;
    ensure!(misconfigured.misconfigured.is_some() && misconfigured.outcome.selected == 2);
    hub.stop().await
}

/// Taints with seconds, `PreferNoSelect`, scores, steadiness and spread.
pub async fn choice(fleet: Fleet) -> Result<()> {
    let hub = run(&fleet).await?;
    let team = Team::start(fleet).await?;
    team.bind("global").await?;
    let sized = |cpu: &str| json!({"allocatable": {"cpu": cpu, "memory": "8Gi"}});
    for (name, zone, cpu) in [
        ("a", "z1", "2"),
        ("b", "z1", "4"),
        ("c", "z2", "8"),
        ("d", "z2", "16"),
    ] {
        team.cluster(name, json!({"zone": zone}), sized(cpu)).await?;
    }
    // A taint is tolerated for some time, then it counts.
    let brief = |seconds: i64| json!({"tolerations": [{"key": "maintenance", "operator": "Exists", "tolerationSeconds": seconds}]});
    team.place("brief", brief(3600)).await?;
    team.place("strict", json!({})).await?;
    team.expect("strict", &["a", "b", "c", "d"]).await?;
    team.taint("a", json!([{"key": "maintenance", "effect": "NoSelect"}]))
        .await?;
    team.expect("strict", &["b", "c", "d"]).await?;
    team.expect("brief", &["a", "b", "c", "d"]).await?;
    // Not long after it was tainted: by then nothing happens but time.
    let tainted = team.clusters.get("a").await?.spec.taints;
    let since = tainted.first().and_then(|taint| taint.time_added.as_deref());
    let since: jiff::Timestamp = since.context("a taint without a time")?.parse()?;
    let passed = jiff::Timestamp::now().duration_since(since).as_secs();
    team.place("brief", brief(passed + 3)).await?;
    team.expect("brief", &["b", "c", "d"]).await?;
    ensure!(
        team.why_not("strict", "a")
            .await?
            .contains("taint maintenance=:NoSelect")
    );
    // NoSelectIfNew keeps who is in; PreferNoSelect comes last.
    team.taint("b", json!([{"key": "new", "effect": "NoSelectIfNew"}]))
        .await?;
    team.place("later", json!({})).await?;
    team.expect("later", &["c", "d"]).await?;
    team.expect("strict", &["b", "c", "d"]).await?;
    team.taint("a", json!([])).await?;
    team.taint("b", json!([])).await?;
    team.taint("d", json!([{"key": "old", "effect": "PreferNoSelect"}]))
        .await?;
    team.place("preferred", json!({"numberOfClusters": 3})).await?;
    team.expect("preferred", &["a", "b", "c"]).await?;
    team.place("all-preferred", json!({"numberOfClusters": 4}))
        .await?;
    team.expect("all-preferred", &["a", "b", "c", "d"]).await?;
    team.taint("d", json!([])).await?;

    let exact = |coordinate: Value, number: usize| {
        json!({"numberOfClusters": number, "prioritizerPolicy": {"mode": "Exact", "configurations": [
            {"scoreCoordinate": coordinate, "weight": 2}]}})
    };
    team.place("big", exact(json!({"builtIn": "ResourceAllocatableCPU"}), 2))
        .await?;
    team.expect("big", &["c", "d"]).await?;
    // An add-on's score, and its end.
    let admin = team.fleet.hub.admin().await?;
    team.fleet.hub.namespace("a").await?;
    let scores: Api<writ_api::cluster::AddOnPlacementScore> = Api::namespaced(admin.clone(), "a");
    let score = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1alpha1", "kind": "AddOnPlacementScore",
        "metadata": {"name": "cost"}, "spec": {},
    }))?;
    scores.create(&PostParams::default(), &score).await?;
    let cheap = json!({"status": {"scores": [{"name": "cheap", "value": 90}]}});
    scores
        .patch_status("cost", &PatchParams::default(), &Patch::Merge(cheap))
        .await?;
    team.place(
        "cheap",
        exact(
            json!({"type": "AddOn", "addOn": {"resourceName": "cost", "scoreName": "cheap"}}),
            1,
        ),
    )
    .await?;
    team.expect("cheap", &["a"]).await?;
    // An expression asks for scores, and sees them come, change and grow too old. A name that nobody defined is a
    // mistake of the placement: nobody is evicted.
    let asks = |expression: &str| json!({"predicates": [{"requiredClusterSelector": {"celSelector": {"celExpressions": [expression]}}}]});
    team.place(
        "scored",
        asks("managedCluster.scores('cost').filter(s, s.name == 'cheap').exists(s, s.value > 80)"),
    )
    .await?;
    team.expect("scored", &["a"]).await?;
    let report = async |value: i32, valid_until: Value| {
        let patch =
            json!({"status": {"scores": [{"name": "cheap", "value": value}], "validUntil": valid_until}});
        let params = PatchParams::default();
        scores.patch_status("cost", &params, &Patch::Merge(patch)).await
    };
    report(70, Value::Null).await?;
    team.expect("scored", &[]).await?;
    ensure!(team.why_not("scored", "a").await?.contains("is false"));
    report(99, Value::Null).await?;
    team.expect("scored", &["a"]).await?;
    team.place("scored", asks("managedCluster.score('cost').exists(s, true)"))
        .await?;
    team.says(
        "scored",
        "PlacementMisconfigured",
        "Misconfigured",
        "there is no function \"score\"",
    )
    .await?;
    team.expect("scored", &["a"]).await?;
    team.place(
        "scored",
        asks("managedCluster.scores('cost').exists(s, s.value > 80)"),
    )
    .await?;
    team.says("scored", "PlacementMisconfigured", "Succeedconfigured", "")
        .await?;
    // Nothing happens but time: the score is too old for both, the weight and the expression.
    let after =
        |seconds| json!((jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds)).to_string());
    report(99, after(3600)).await?;
    team.expect("scored", &["a"]).await?;
    report(99, after(3)).await?;
    team.expect("scored", &[]).await?;
    report(-99, after(3600)).await?;
    team.expect("cheap", &["b"]).await?;
    report(-99, after(3)).await?;
    team.expect("cheap", &["a"]).await?;
    // Steady: a better newcomer moves nobody, unless a score says so.
    team.place(
        "steady",
        json!({"numberOfClusters": 2, "prioritizerPolicy": {"mode": "Exact", "configurations": [
        {"scoreCoordinate": {"builtIn": "Steady"}, "weight": 1}]}}),
    )
    .await?;
    team.expect("steady", &["a", "b"]).await?;
    team.cluster("0-first-by-name", json!({"zone": "z1"}), sized("64"))
        .await?;
    team.expect("big", &["0-first-by-name", "d"]).await?;
    team.expect("steady", &["a", "b"]).await?;
    // Spread: as many of each zone as can be.
    team.place("spread", json!({"numberOfClusters": 4, "spreadPolicy": {"spreadConstraints": [
        {"topologyKey": "zone", "topologyKeyType": "Label", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}]}})).await?;
    wait::until_true("two of each zone", || async {
        let names = team.names("spread").await?;
        let z2 = names.iter().filter(|n| ["c", "d"].contains(&n.as_str())).count();
        Ok(names.len() == 4 && z2 == 2)
    })
    .await?;
    // The scheduler of somebody else.
    let patch = json!({"metadata": {"annotations": {"cluster.open-cluster-management.io/experimental-scheduling-disable": "true"}}});
    team.placements
        .patch("strict", &PatchParams::default(), &Patch::Merge(patch))
        .await?;
    // Placements and clusters are two watches: what is chosen for the next placement shows that the hub has seen this one.
    team.place("next", json!({"clusterSets": ["unbound"]})).await?;
    team.says("next", "PlacementSatisfied", "NoIntersection", "")
        .await?;
    team.taint("c", json!([{"key": "gone", "effect": "NoSelect"}]))
        .await?;
    team.expect("later", &["0-first-by-name", "a", "b", "d"]).await?;
    ensure!(team.names("strict").await?.contains("c"));
    hub.stop().await
}

/// Groups, more than a hundred decisions, and who stays in which object when clusters come and go.
pub async fn groups(fleet: Fleet) -> Result<()> {
    let hub = run(&fleet).await?;
    let team = Team::start(fleet).await?;
    team.bind("global").await?;
    for n in 0..150 {
        let env = if n % 10 == 0 { "canary" } else { "prod" };
        team.cluster(&format!("c{n:03}"), json!({"env": env}), Value::Null)
            .await?;
    }
    team.place("all", json!({})).await?;
    team.place(
        "grouped",
        json!({"decisionStrategy": {"groupStrategy": {"clustersPerDecisionGroup": "50%", "decisionGroups": [
            {"groupName": "canary", "groupClusterSelector": {"labelSelector": {"matchLabels": {"env": "canary"}}}}]}}}),
    )
    .await?;
    let sizes = async |placement: &str, wanted: &[usize]| -> Result<()> {
        wait::until_true(&format!("{placement} has objects of {wanted:?}"), || async {
            let chosen = team.chosen(placement).await?;
            Ok(chosen.iter().map(|(_, names)| names.len()).collect::<Vec<_>>() == wanted)
        })
        .await
    };
    sizes("all", &[100, 50]).await?;
    sizes("grouped", &[15, 75, 60]).await?;
    let first = team.decisions.get("grouped-decision-1").await?;
    let label = |key: &str| {
        first
            .labels()
            .get(&format!("cluster.open-cluster-management.io/{key}"))
            .cloned()
    };
    ensure!(
        label("decision-group-name").as_deref() == Some("canary")
            && label("decision-group-index").as_deref() == Some("0")
    );
    wait::until_true("the groups are in the status", || async {
        let groups = team
            .placements
            .get("grouped")
            .await?
            .status
            .unwrap_or_default()
            .decision_groups;
        Ok(groups.len() == 3 && groups.iter().map(|g| g.cluster_count).sum::<i32>() == 150)
    })
    .await?;
    // One more by name in front of all: nobody moves to another object.
    let before = team.chosen("all").await?;
    team.cluster("a-newcomer", json!({"env": "prod"}), Value::Null)
        .await?;
    sizes("all", &[100, 51]).await?;
    let after = team.chosen("all").await?;
    for ((name, was), (_, is)) in before.iter().zip(&after) {
        ensure!(
            was.iter().all(|cluster| is.contains(cluster)),
            "a cluster left {name}"
        );
    }
    // Groups that are no longer asked for leave nothing behind.
    team.place(
        "grouped",
        json!({"predicates": [{"requiredClusterSelector": {"labelSelector": {"matchLabels": {"env": "canary"}}}}]}),
    )
    .await?;
    sizes("grouped", &[15]).await?;
    wait::until_true("the name of the group is gone", || async {
        let first = team.decisions.get("grouped-decision-1").await?;
        let name = first
            .labels()
            .get("cluster.open-cluster-management.io/decision-group-name");
        Ok(name.is_none_or(String::is_empty))
    })
    .await?;
    hub.stop().await
}

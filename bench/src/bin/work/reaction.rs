//! How fast the agent reacts: to a grant, a revocation, drift, and a change that is reported.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::RoleBinding};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::json;
use writ_api::work::ManifestWork;
use writ_bench::limits::{Figures, Times};

use super::{baseline, observe, stage::Stage};

const RUNS: usize = 50;
const LIMIT: f64 = 1000.0;

/// Measures.
pub async fn run(figures: &mut Figures) -> Result<()> {
    let stage = Stage::start().await?;
    let _agent = stage.agent(&["work"]).await?;
    let works: Api<ManifestWork> = Api::namespaced(stage.admin.clone(), "cluster1");
    let maps: Api<ConfigMap> = Api::namespaced(stage.cluster.clone(), "default");
    let bindings: Api<RoleBinding> = Api::namespaced(stage.cluster.clone(), "default");

    let mut work = baseline::work("gate", "default", 10)?;
    work.spec.executor = Some(serde_json::from_value(
        json!({"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "default", "name": "robot"}}}),
    )?);
    let act = async {
        works.create(&PostParams::default(), &work).await?;
        Ok(())
    };
    observe::until(&works, "gate", act, |work| observe::is(work, "False")).await?;
    let binding: RoleBinding = serde_json::from_value(json!({"metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "robot"}]}))?;
    let (mut granted, mut revoked) = (Times::default(), Times::default());
    for _ in 0..RUNS {
        let started = Instant::now();
        let act = async {
            bindings.create(&PostParams::default(), &binding).await?;
            Ok(())
        };
        observe::until(&works, "gate", act, |work| observe::is(work, "True")).await?;
        granted.push(started.elapsed());
        let started = Instant::now();
        let act = async {
            bindings.delete("robot", &DeleteParams::default()).await?;
            Ok(())
        };
        observe::until(&works, "gate", act, |work| observe::is(work, "False")).await?;
        revoked.push(started.elapsed());
    }

    let mut work = baseline::work("drift", "default", 1)?;
    work.spec.manifest_configs = serde_json::from_value(json!([
        {"resourceIdentifier": {"resource": "configmaps", "namespace": "default", "name": "*"},
         "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "theirs", "path": ".data.theirs"}]}]}]))?;
    let act = async {
        works.create(&PostParams::default(), &work).await?;
        Ok(())
    };
    observe::until(&works, "drift", act, |work| observe::is(work, "True")).await?;
    let (mut repaired, mut reported) = (Times::default(), Times::default());
    for run in 0..RUNS {
        let value = format!("value {run}");
        let theirs = json!({"data": {"theirs": value}});
        let started = Instant::now();
        let act = async {
            maps.patch("drift-0", &PatchParams::default(), &Patch::Merge(&theirs))
                .await?;
            Ok(())
        };
        let shows =
            |work: &ManifestWork| serde_json::to_string(&work.status).is_ok_and(|text| text.contains(&value));
        observe::until(&works, "drift", act, shows).await?;
        reported.push(started.elapsed());

        // The agent fights at full speed only so often; each fight is over another object.
        let name = format!("gone{run}");
        let work = baseline::work(&name, "default", 1)?;
        let act = async {
            works.create(&PostParams::default(), &work).await?;
            Ok(())
        };
        observe::until(&works, &name, act, |work| observe::is(work, "True")).await?;
        let object = format!("{name}-0");
        let edit = json!({"data": {"key": "drift"}});
        maps.patch(&object, &PatchParams::default(), &Patch::Merge(&edit))
            .await?;
        let started = Instant::now();
        loop {
            let live = maps.get(&object).await?;
            if live.data.unwrap_or_default().get("key").map(String::as_str) == Some("value") {
                break;
            }
            ensure!(
                started.elapsed() < Duration::from_mins(1),
                "drift is not repaired"
            );
        }
        repaired.push(started.elapsed());
    }
    for (what, times) in [
        ("grant to applied (10 ConfigMaps)", granted),
        ("revocation to refused", revoked),
        ("drift to repaired", repaired),
        ("change to feedback", reported),
    ] {
        figures.at_most(
            &format!("{what}, p50 of {}", times.count()),
            times.quantile(50) * 1e3,
            LIMIT,
            " ms",
        );
        figures.at_most(&format!("{what}, p99"), times.quantile(99) * 1e3, LIMIT, " ms");
    }
    Ok(())
}

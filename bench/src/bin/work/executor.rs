//! A thousand ConfigMaps under an executor, from the moment of the grant, and how many reviews they take.

use std::time::Instant;

use anyhow::{Context, Result};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{
    Api, Client,
    api::{DeleteParams, PostParams},
};
use serde_json::json;
use writ_api::work::ManifestWork;
use writ_bench::limits::{Figures, Times};

use super::{
    baseline, observe,
    stage::{Stage, namespace},
};

const RUNS: usize = 30;
const MANIFESTS: usize = 1000;

/// Measures.
pub async fn run(figures: &mut Figures) -> Result<()> {
    let stage = Stage::start().await?;
    let _agent = stage.agent(&["work"]).await?;
    let works: Api<ManifestWork> = Api::namespaced(stage.admin.clone(), "cluster1");
    namespace(&stage.admin, "bare").await?;
    let bare_works: Api<ManifestWork> = Api::namespaced(stage.admin.clone(), "bare");
    // What must be written once the work may be: the manifests and one status. Also the manifests alone, to know what the
    // status costs.
    let (mut by_loop, mut with_status) = (Times::default(), Times::default());
    let mut by_agent = Times::default();
    let mut most_reviews = 0.0_f64;
    for run in 0..=RUNS {
        let (ours, theirs) = (format!("writ{run}"), format!("bare{run}"));
        namespace(&stage.cluster, &ours).await?;
        namespace(&stage.cluster, &theirs).await?;

        let bare = baseline::work(&theirs, &theirs, MANIFESTS)?;
        bare_works.create(&PostParams::default(), &bare).await?;
        let started = Instant::now();
        baseline::objects(&stage.cluster, &bare, None).await?;
        let bare_time = started.elapsed();
        baseline::report(&bare_works, &bare).await?;
        let reported_time = started.elapsed();
        bare_works.delete(&theirs, &DeleteParams::default()).await?;

        let mut work = baseline::work(&ours, &ours, MANIFESTS)?;
        work.spec.executor = Some(serde_json::from_value(
            json!({"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": ours, "name": "robot"}}}),
        )?);
        let act = async {
            works.create(&PostParams::default(), &work).await?;
            Ok(())
        };
        observe::until(&works, &ours, act, |work| observe::is(work, "False")).await?;
        let role: Role = serde_json::from_value(json!({"metadata": {"name": "robot"}, "rules": [
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get", "update", "patch", "delete"]}]}))?;
        Api::namespaced(stage.cluster.clone(), &ours)
            .create(&PostParams::default(), &role)
            .await?;
        let binding: RoleBinding = serde_json::from_value(json!({"metadata": {"name": "robot"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "robot"},
            "subjects": [{"kind": "ServiceAccount", "namespace": ours, "name": "robot"}]}))?;
        let bindings: Api<RoleBinding> = Api::namespaced(stage.cluster.clone(), &ours);
        let before = reviews(&stage.cluster).await?;
        let started = Instant::now();
        let act = async {
            bindings.create(&PostParams::default(), &binding).await?;
            Ok(())
        };
        observe::until(&works, &ours, act, |work| observe::is(work, "True")).await?;
        let time = started.elapsed();
        most_reviews = most_reviews.max(reviews(&stage.cluster).await? - before);
        // The first is to warm up.
        if run > 0 {
            by_loop.push(bare_time);
            with_status.push(reported_time);
            by_agent.push(time);
        }
    }
    figures.note(
        &format!("bare loop, {MANIFESTS} ConfigMaps and one status, {RUNS} runs"),
        with_status.text(),
    );
    figures.note("the same without the status", by_loop.text());
    figures.note(
        "agent, one work of them under an executor, granted to applied",
        by_agent.text(),
    );
    for percent in [50, 99] {
        let time = by_agent.quantile(percent);
        figures.at_most(
            &format!("granted to applied, p{percent}, agent / bare loop"),
            time / with_status.quantile(percent),
            2.0,
            "",
        );
        figures.note(
            &format!("granted to applied, p{percent}, agent / bare loop without a status"),
            format!("{:.2}", time / by_loop.quantile(percent)),
        );
    }
    figures.at_most(
        "reviews from grant to applied, the most of all runs",
        most_reviews,
        5.0,
        "",
    );
    Ok(())
}

/// How many SubjectAccessReviews the API server has answered.
async fn reviews(cluster: &Client) -> Result<f64> {
    let request = http::Request::get("/metrics").body(Vec::new())?;
    let text = cluster.request_text(request).await?;
    text.lines()
        .filter(|line| {
            line.starts_with("apiserver_request_total{") && line.contains("\"subjectaccessreviews\"")
        })
        .map(|line| {
            let count = line.rsplit(' ').next().context("a metric without a value")?;
            Ok(count.parse::<f64>()?)
        })
        .sum()
}

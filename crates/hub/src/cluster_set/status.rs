//! Reports on clusters: labels that name no set, and the namespaces that their sets ask for.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{
    Api, Client, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::cluster::{ManagedCluster, ManagedClusterSet};
use writ_controller::{Error, error::Context as _, write::answered};

use super::{
    membership::{REPORTED_LABELS_ANNOTATION, format_pairs},
    model::{LabelReport, ObservedCluster},
    plan,
};
use crate::MANAGER;

/// The field manager of the one condition that this controller writes on clusters.
const CONDITION_MANAGER: &str = "writ-hub-cluster-set";

/// Reports the labels that name no set, and remembers them on the cluster.
pub async fn report_labels(
    client: &Client,
    cluster: &ObservedCluster<'_>,
    report: &LabelReport,
) -> Result<(), Error> {
    let api: Api<ManagedCluster> = Api::all(client.clone());
    // The annotation passes admission, the status does not: without a webhook server, the condition is still written.
    let remembered = remember_labels(&api, cluster, report).await;
    let current: Vec<Condition> = cluster.condition.cloned().into_iter().collect();
    let conditions: Vec<Condition> = report
        .condition
        .iter()
        .map(|wanted| plan::timed(&current, wanted, cluster.generation, Timestamp::now()))
        .collect();
    if conditions == current {
        return remembered;
    }
    // Several writers share the conditions of a cluster: server-side apply changes only ours.
    let patch = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": cluster.name},
        "status": {"conditions": conditions},
    });
    let params = PatchParams::apply(CONDITION_MANAGER).force();
    let written = api
        .patch_status(&cluster.name, &params, &Patch::Apply(patch))
        .await;
    answered(written).context(|| format!("report on the labels of ManagedCluster {}", cluster.name))?;
    remembered
}

async fn remember_labels(
    api: &Api<ManagedCluster>,
    cluster: &ObservedCluster<'_>,
    report: &LabelReport,
) -> Result<(), Error> {
    if report.labels == cluster.reported {
        return Ok(());
    }
    let value = (!report.labels.is_empty()).then(|| format_pairs(&report.labels));
    let patch = json!({"metadata": {"annotations": {REPORTED_LABELS_ANNOTATION: value}}});
    let params = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    let written = api.patch(&cluster.name, &params, &Patch::Merge(patch)).await;
    answered(written).context(|| format!("remember the reported labels of ManagedCluster {}", cluster.name))
}

/// Reports the namespaces that the sets of a cluster ask for, for its agent to create.
pub async fn report_namespaces(
    client: &Client,
    cluster: &ObservedCluster<'_>,
    sets: &[&ManagedClusterSet],
) -> Result<(), Error> {
    let name = &cluster.name;
    if plan::managed_namespaces(cluster.namespaces, sets) == cluster.namespaces {
        return Ok(());
    }
    // The agent writes conditions into the same list: they are read live, and the version keeps newer ones.
    let api: Api<ManagedCluster> = Api::all(client.clone());
    let live = api
        .get_opt(name)
        .await
        .context(|| format!("read ManagedCluster {name}"))?;
    let Some(live) = live else { return Ok(()) };
    let current = ObservedCluster::of(&live).namespaces;
    let wanted = plan::managed_namespaces(current, sets);
    if wanted == current {
        return Ok(());
    }
    let patch = json!({
        "metadata": {"uid": live.uid(), "resourceVersion": live.resource_version()},
        "status": {"managedNamespaces": wanted},
    });
    let written = api
        .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
        .await;
    answered(written)
        .context(|| format!("report the namespaces that the sets of ManagedCluster {name} ask for"))
}

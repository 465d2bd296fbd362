//! Objects of the hub that lost the labels by which they are found.

use std::fmt::Debug;

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde::de::DeserializeOwned;
use serde_json::json;
use writ_api::cluster::{CLUSTER_NAME_LABEL, Placement, PlacementDecision};
use writ_hub::registration::operator_actions;

use super::{create, run_hub, set_yaml};
use crate::{Fleet, wait, yaml};

/// Takes the labels off everything that is found by one, and waits until all have theirs again.
async fn strip<K>(api: Api<K>, found_by: &str) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let kind = K::kind(&());
    let found = ListParams::default().labels(found_by);
    let before = wait::until(&format!("there is a {kind} with {found_by}"), || async {
        let items = api.list(&found).await?.items;
        Ok((!items.is_empty()).then_some(items))
    })
    .await?;
    for object in &before {
        let none: serde_json::Map<_, _> = object
            .labels()
            .keys()
            .map(|key| (key.clone(), json!(null)))
            .collect();
        let patch = Patch::Merge(json!({"metadata": {"labels": none}}));
        api.patch(&object.name_any(), &PatchParams::default(), &patch)
            .await?;
    }
    wait::until_true(&format!("every {kind} is found by {found_by} again"), || async {
        let again = api.list(&found).await?;
        let is_again = |object: &K| again.iter().any(|other| other.name_any() == object.name_any());
        Ok(before.iter().all(is_again))
    })
    .await?;
    for object in &before {
        let after = api.get(&object.name_any()).await?;
        ensure!(
            after.uid() == object.uid(),
            "{kind} {} was made anew",
            object.name_any()
        );
    }
    Ok(())
}

/// Whoever takes the labels off takes nothing else: rights and decisions stay what they are, and are found again.
pub async fn labels_come_back(fleet: Fleet) -> Result<()> {
    let hub = run_hub(&fleet, |_| {}).await?;
    let admin = fleet.hub.admin().await?;
    create(&admin, "cluster1", json!({})).await?;
    operator_actions::accept(&admin, "cluster1", None).await?;
    yaml::apply(&admin, &set_yaml("lost", "region")).await?;
    fleet.hub.namespace("team-a").await?;
    let placement: Placement = serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": {}}))?;
    Api::namespaced(admin.clone(), "team-a")
        .create(&PostParams::default(), &placement)
        .await?;

    let of_cluster = format!("{CLUSTER_NAME_LABEL}=cluster1");
    strip(Api::<ClusterRole>::all(admin.clone()), &of_cluster).await?;
    strip(Api::<ClusterRoleBinding>::all(admin.clone()), &of_cluster).await?;
    strip(
        Api::<RoleBinding>::namespaced(admin.clone(), "cluster1"),
        &of_cluster,
    )
    .await?;
    strip(
        Api::<ClusterRole>::all(admin.clone()),
        "cluster.open-cluster-management.io/clusterset=lost",
    )
    .await?;
    strip(
        Api::<PlacementDecision>::namespaced(admin, "team-a"),
        "cluster.open-cluster-management.io/placement=p",
    )
    .await?;
    hub.stop().await
}

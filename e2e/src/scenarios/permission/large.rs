//! A permission that no single work can carry.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, ListParams},
};
use serde_json::{Value, json};
use writ_api::work::ManifestWork;

use super::support::{
    allowed, cluster_role, condition, delete, hub_controllers, permission, start_with, user,
};
use crate::{Fleet, wait};

/// 600 bindings, 600 KiB: too many and too much for one work, with admission that counts.
pub async fn split(fleet: Fleet) -> Result<()> {
    let mut options = Fleet::hub_options();
    options.controllers = hub_controllers();
    let _parts = start_with(&fleet, options).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let binding = |n: usize| {
        let mut subjects: Vec<Value> = (0..12)
            .map(|i| user(&format!("somebody-of-team-{n}-{i}")))
            .collect();
        subjects.push(user(&format!("user-{n}")));
        json!({"namespace": "a", "name": format!("binding-{n}"), "roleRef": cluster_role("view"), "subjects": subjects})
    };
    let spec = |count: usize| json!({"roleBindings": (0..count).map(binding).collect::<Vec<_>>()});
    let size = spec(600).to_string().len();
    ensure!(size > 600 * 1024, "{size} bytes");
    permission(&fleet, "p", spec(600)).await?;
    for who in ["user-0", "user-300", "user-599"] {
        allowed(&fleet, who, "get", "a", true).await?;
    }
    let ready = condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let reported = ready
        .status
        .unwrap_or_default()
        .resource_status
        .unwrap_or_default();
    ensure!(reported.role_bindings.len() == 600);
    let works: Api<ManifestWork> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    let of_p = || async {
        let list = works.list(&ListParams::default()).await?;
        let ours = list
            .items
            .into_iter()
            .filter(|work| work.name_any().starts_with("p-"));
        anyhow::Ok(ours.collect::<Vec<_>>())
    };
    let parts = of_p().await?;
    println!("{size} bytes in {} works", parts.len());
    ensure!(parts.len() > 1);
    ensure!(parts.iter().all(|work| work.spec.workload.manifests.len() <= 500));

    // Most of it goes, then all.
    permission(&fleet, "p", spec(1)).await?;
    allowed(&fleet, "user-599", "get", "a", false).await?;
    allowed(&fleet, "user-0", "get", "a", true).await?;
    delete(&fleet, "p").await?;
    allowed(&fleet, "user-0", "get", "a", false).await?;
    wait::until_true("no work is left", || async { Ok(of_p().await?.is_empty()) }).await
}

/// The first of several works is deleted by hand: it comes back under its name and with what it had.
pub async fn first_deleted(fleet: Fleet) -> Result<()> {
    let mut options = Fleet::hub_options();
    options.controllers = hub_controllers();
    options.admission.manifest_limit = 1000;
    let _parts = start_with(&fleet, options).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let binding = |n: usize| json!({"namespace": "a", "name": format!("binding-{n}"), "roleRef": cluster_role("view"), "subject": user(&format!("user-{n}"))});
    let bindings: Vec<Value> = (0..7).map(binding).collect();
    permission(&fleet, "p", json!({ "roleBindings": bindings })).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let works: Api<ManifestWork> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    let contents = || async {
        let list = works.list(&ListParams::default()).await?;
        let works = list
            .items
            .into_iter()
            .map(|work| (work.name_any(), work.spec.workload));
        anyhow::Ok(works.collect::<BTreeMap<_, _>>())
    };
    let before = contents().await?;
    ensure!(before.len() > 2, "{} works", before.len());
    let (first, _) = before.iter().next().context("no work")?;
    ensure!(first.matches('-').count() == 1, "{first}");
    let uid = works.get(first).await?.uid();
    works.delete(first, &DeleteParams::default()).await?;
    wait::until_true("it is another one", || async {
        let now = works.get_opt(first).await?;
        Ok(now.is_some_and(|now| now.uid() != uid))
    })
    .await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    ensure!(contents().await? == before, "something has moved");
    for n in 0..7 {
        allowed(&fleet, &format!("user-{n}"), "get", "a", true).await?;
    }
    Ok(())
}

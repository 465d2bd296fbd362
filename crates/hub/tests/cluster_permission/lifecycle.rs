//! The controller against a real API server, without a garbage collector and with an agent that is this test.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams},
    runtime::{
        WatchStreamExt as _,
        watcher::{self, watcher},
    },
};
use serde_json::json;
use writ_api::{rbac::ClusterPermission, work::ManifestWork};
use writ_hub::Options;

use crate::support::{Hub, binding, cluster, condition, holds, permission, put, until, user};

pub async fn follows_everything() -> Result<()> {
    let hub = Hub::start().await?;
    let client = hub.client.clone();
    let running = hub
        .run(Options {
            controllers: vec!["cluster_permission".into()],
            ..Options::default()
        })
        .await?;

    // No cluster yet: a condition that heals.
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": "c1"}}))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let account = json!({"kind": "ManagedServiceAccount", "name": "robot", "apiGroup": "authentication.open-cluster-management.io"});
    permission(
        &client,
        "c1",
        "p",
        json!({"roleBindings": [binding("a", "people", &user("u")), binding("a", "robots", &account)]}),
    )
    .await?;
    condition(
        &client,
        "c1",
        "p",
        "Validation",
        "False",
        "namespace value is not a managed cluster",
    )
    .await?;
    cluster(&client, "c1").await?;
    holds(&client, "c1", &["RoleBinding a/people u"]).await?;
    condition(
        &client,
        "c1",
        "p",
        "RBACManifestWorkCreated",
        "True",
        "ManifestWork p-",
    )
    .await?;
    condition(
        &client,
        "c1",
        "p",
        "Ready",
        "False",
        "ManagedServiceAccount c1/robot does not exist",
    )
    .await?;

    // The account and the add-on come later, change and go.
    let msa = json!({"apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount", "metadata": {"name": "robot", "namespace": "c1"}, "spec": {"rotation": {}}});
    put(&client, msa.clone()).await?;
    condition(
        &client,
        "c1",
        "p",
        "SubjectPresent",
        "False",
        "managed-serviceaccount does not exist",
    )
    .await?;
    let add_on = |namespace: &str| json!({"apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterAddOn", "metadata": {"name": "managed-serviceaccount", "namespace": "c1"}, "spec": {}, "status": {"namespace": namespace}});
    put(&client, add_on("agents")).await?;
    holds(
        &client,
        "c1",
        &["RoleBinding a/people u", "RoleBinding a/robots agents/robot"],
    )
    .await?;
    condition(&client, "c1", "p", "SubjectPresent", "True", "").await?;
    put(&client, add_on("elsewhere")).await?;
    holds(
        &client,
        "c1",
        &["RoleBinding a/people u", "RoleBinding a/robots elsewhere/robot"],
    )
    .await?;
    let accounts: Api<DynamicObject> = Api::namespaced_with(
        client.clone(),
        "c1",
        &ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "authentication.open-cluster-management.io",
            "v1beta1",
            "ManagedServiceAccount",
        )),
    );
    accounts.delete("robot", &DeleteParams::default()).await?;
    holds(&client, "c1", &["RoleBinding a/people u"]).await?;
    put(&client, msa).await?;
    holds(
        &client,
        "c1",
        &["RoleBinding a/people u", "RoleBinding a/robots elsewhere/robot"],
    )
    .await?;

    // A work that is edited, stripped or deleted is restored at once: sooner than by anything but a watch, on a busy machine
    // too.
    let works: Api<ManifestWork> = Api::namespaced(client.clone(), "c1");
    let name = works.list(&ListParams::default()).await?.items[0].name_any();
    for edit in [
        json!({"spec": {"workload": {"manifests": []}}}),
        json!({"spec": {"executor": {"subject": {"type": "ServiceAccount", "serviceAccount": {"namespace": "a", "name": "b"}}}}}),
        json!({"metadata": {"ownerReferences": []}}),
    ] {
        works
            .patch(&name, &PatchParams::default(), &Patch::Merge(&edit))
            .await?;
        let started = Instant::now();
        until("the work is restored", || async {
            let work = works.get(&name).await?;
            let right = work.spec.workload.manifests.len() == 2
                && work.spec.executor.is_none()
                && work.owner_references().len() == 1;
            if right {
                Ok(())
            } else {
                Err(anyhow::anyhow!("{edit}"))
            }
        })
        .await?;
        ensure!(
            started.elapsed() < Duration::from_secs(20),
            "restoring took {:?}",
            started.elapsed()
        );
    }
    let uid = works.get(&name).await?.uid();
    works.delete(&name, &DeleteParams::default()).await?;
    until("the work is made again", || async {
        let work = works.get(&name).await?;
        if work.uid() == uid {
            Err(anyhow::anyhow!("the old one is there"))
        } else {
            Ok(())
        }
    })
    .await?;

    // What the agent says arrives; a hub role is followed.
    let role = |verb: &str| json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": [verb]}]});
    permission(&client, "c1", "refs", json!({"roleRefs": [{"kind": "ClusterRole", "name": "reader"}, {"kind": "ClusterRole", "name": "cluster-admin"}]})).await?;
    condition(
        &client,
        "c1",
        "refs",
        "Ready",
        "False",
        "the hub has no ClusterRole reader",
    )
    .await?;
    condition(
        &client,
        "c1",
        "refs",
        "Ready",
        "False",
        "ClusterRole cluster-admin is built into Kubernetes",
    )
    .await?;
    let delivered = |verb: &'static str| {
        let works = works.clone();
        async move {
            until(&format!("the role with {verb} is delivered"), || async {
                let list = works.list(&ListParams::default()).await?;
                let found = list
                    .items
                    .iter()
                    .flat_map(|w| &w.spec.workload.manifests)
                    .any(|m| {
                        m.0["kind"] == "ClusterRole"
                            && m.0["metadata"]["name"] == "reader"
                            && m.0["rules"][0]["verbs"][0] == verb
                    });
                if found {
                    Ok(())
                } else {
                    Err(anyhow::anyhow!("not yet"))
                }
            })
            .await
        }
    };
    put(&client, role("get")).await?;
    delivered("get").await?;
    put(&client, role("list")).await?;
    delivered("list").await?;

    // Removing the last binding revokes; deleting the permission removes its works at once, without a collector.
    permission(&client, "c1", "p", json!({"roleBindings": []})).await?;
    condition(&client, "c1", "p", "Validation", "False", "no bindings defined").await?;
    holds(&client, "c1", &["ClusterRole /reader "]).await?;
    let permissions: Api<ClusterPermission> = Api::namespaced(client.clone(), "c1");
    permissions.delete("refs", &DeleteParams::default()).await?;
    holds(&client, "c1", &[]).await?;
    running.stop().await
}

/// Waits until so many permissions say that their work is made. By a watch: to list all of them again and again takes longer
/// than to make them.
async fn all_reported(permissions: &Api<ClusterPermission>, count: usize) -> Result<()> {
    let changes = watcher(permissions.clone(), watcher::Config::default());
    let mut changes = std::pin::pin!(changes.default_backoff().applied_objects());
    let mut done = BTreeSet::new();
    while done.len() < count {
        let next = tokio::time::timeout(Duration::from_mins(1), changes.try_next()).await;
        let next = next.with_context(|| format!("nothing happens: {} of {count} say so", done.len()))??;
        let permission = next.context("the watch ended")?;
        let conditions = permission.status.iter().flat_map(|status| &status.conditions);
        let mut made = conditions.filter(|c| c.type_ == "RBACManifestWorkCreated");
        if made.any(|c| c.status == "True") {
            done.insert((permission.namespace(), permission.name_any()));
        }
    }
    Ok(())
}

/// Two processes under a lease, the first one killed in the middle, its lease still held; then a restart that writes nothing.
pub async fn scale() -> Result<()> {
    let (clusters, each) = (500, 10);
    let hub = Hub::start().await?;
    let client = hub.client.clone();
    futures::stream::iter(0..clusters)
        .map(|i| {
            let client = client.clone();
            async move {
                cluster(&client, &format!("c{i}")).await?;
                for j in 0..each {
                    permission(&client, &format!("c{i}"), &format!("p{j}"), json!({"clusterRole": {"rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}, "clusterRoleBinding": {"subject": user("u")}, "roleBindings": [binding("a", "b", &user("u"))]})).await?;
                }
                anyhow::Ok(())
            }
        })
        .buffer_unordered(8)
        .try_collect::<Vec<()>>()
        .await?;
    let options = || Options {
        controllers: vec!["cluster_permission".into()],
        ..Options::default()
    };
    let namespace: Namespace = serde_json::from_value(json!({"metadata": {"name": writ_hub::NAMESPACE}}))?;
    Api::all(client.clone())
        .create(&PostParams::default(), &namespace)
        .await?;
    let elected = |name: &str| Options {
        leader_election: Some(name.into()),
        ..options()
    };
    let first = hub.run(elected("first")).await?;
    let second = hub.run(elected("second")).await?;
    let works: Api<ManifestWork> = Api::all(client.clone());
    until("some works are made", || async {
        if works.list(&ListParams::default().limit(21)).await?.items.len() > 20 {
            Ok(())
        } else {
            Err(anyhow::anyhow!("not yet"))
        }
    })
    .await?;
    first.kill().await;
    let permissions: Api<ClusterPermission> = Api::all(client.clone());
    all_reported(&permissions, clusters * each).await?;
    let made = works.list_metadata(&ListParams::default()).await?.items.len();
    ensure!(made == clusters * each, "{made} works");
    second.stop().await?;

    let versions = || async {
        let mut all = BTreeSet::new();
        for work in works.list(&ListParams::default()).await? {
            all.insert((work.namespace(), work.name_any(), work.resource_version()));
        }
        for permission in permissions.list(&ListParams::default()).await? {
            all.insert((
                permission.namespace(),
                permission.name_any(),
                permission.resource_version(),
            ));
        }
        anyhow::Ok(all)
    };
    let before = versions().await?;
    let started = Instant::now();
    let third = hub.run(options()).await?;
    let memory = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = memory
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .unwrap_or_default()
        .to_owned();
    println!(
        "ready after {:?} with {} permissions, {memory}",
        started.elapsed(),
        clusters * each
    );
    // A change that passes through the queue behind everything else shows that all have been looked at.
    permission(
        &client,
        "c0",
        "last",
        json!({"roleBindings": [binding("a", "last", &user("u"))]}),
    )
    .await?;
    condition(&client, "c0", "last", "RBACManifestWorkCreated", "True", "").await?;
    let after = versions().await?;
    let changed: Vec<_> = before.difference(&after).collect();
    ensure!(changed.is_empty(), "a restart wrote {changed:?}");
    third.stop().await
}

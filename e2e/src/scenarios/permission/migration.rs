//! Upstream's controller is replaced by ours, and back: nobody loses access in between.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{ClusterRoleBinding, RoleBinding},
};
use kube::{
    Api, Client, Resource as _, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use tokio::task::JoinHandle;
use writ_api::{rbac::ClusterPermission, work::ManifestWork};

use super::support::{
    allowed, cluster_role, condition, hub_controllers, may, permission, pods, spoke, start_with, user,
};
use crate::{Fleet, wait};

/// What upstream's controller writes for the spec below: typed Go objects, no annotations, times that are null.
fn upstream(permission: &ClusterPermission) -> Result<ManifestWork> {
    let name = permission.name_any();
    let uid: String = permission.uid().unwrap_or_default().chars().take(5).collect();
    let meta = |namespace: Option<&str>| {
        let mut meta = json!({"name": name, "creationTimestamp": null});
        if let (Some(namespace), Some(map)) = (namespace, meta.as_object_mut()) {
            map.insert("namespace".into(), json!(namespace));
        }
        meta
    };
    let object = |kind: &str, namespace: Option<&str>, mut rest: Value| {
        if let Some(map) = rest.as_object_mut() {
            map.insert("apiVersion".into(), json!("rbac.authorization.k8s.io/v1"));
            map.insert("kind".into(), json!(kind));
            map.insert("metadata".into(), meta(namespace));
        }
        rest
    };
    let role = |kind: &str| json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
    let manifests = [
        object("ClusterRole", None, json!({"rules": pods("list")})),
        object(
            "ClusterRoleBinding",
            None,
            json!({"subjects": [user("everywhere")], "roleRef": role("ClusterRole")}),
        ),
        object("Role", Some("a"), json!({"rules": pods("watch")})),
        object(
            "RoleBinding",
            Some("a"),
            json!({"subjects": [user("here")], "roleRef": role("Role")}),
        ),
        object(
            "RoleBinding",
            Some("b"),
            json!({"subjects": [user("viewer")], "roleRef": cluster_role("view")}),
        ),
        object(
            "RoleBinding",
            Some("c"),
            json!({"subjects": [user("selected")], "roleRef": cluster_role("view")}),
        ),
    ];
    let owner = permission.controller_owner_ref(&()).context("no uid")?;
    let mut owner = serde_json::to_value(owner)?;
    if let Some(map) = owner.as_object_mut() {
        map.insert("blockOwnerDeletion".into(), json!(true));
    }
    Ok(serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1", "kind": "ManifestWork",
        "metadata": {"name": format!("{name}-{uid}"), "namespace": "cluster1", "ownerReferences": [owner]},
        "spec": {"workload": {"manifests": manifests}},
    }))?)
}

/// What was granted, and to whom. The last one comes by a selector.
const GRANTED: [(&str, &str, &str); 4] = [
    ("everywhere", "list", ""),
    ("here", "watch", "a"),
    ("viewer", "get", "b"),
    ("selected", "get", "c"),
];

/// Asks the authorizer all the time, until it is told to stop; fails if it ever says no.
fn watched(client: Client, stop: Arc<AtomicBool>) -> JoinHandle<Result<usize>> {
    tokio::spawn(async move {
        let mut asked = 0;
        while !stop.load(Ordering::Relaxed) {
            for (who, verb, namespace) in &GRANTED {
                ensure!(may(&client, who, verb, namespace).await?, "{who} lost access");
                asked += 1;
            }
        }
        Ok(asked)
    })
}

/// The uids of the bindings: an object that was deleted and made again has another one.
async fn identities(fleet: &Fleet) -> Result<Vec<Option<String>>> {
    let client = spoke(fleet).await?;
    let all: Api<ClusterRoleBinding> = Api::all(client.clone());
    let mut uids = vec![all.get("p").await?.uid()];
    for namespace in ["a", "b", "c"] {
        let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), namespace);
        uids.push(bindings.get("p").await?.uid());
    }
    Ok(uids)
}

pub async fn no_gap(fleet: Fleet) -> Result<()> {
    let hub = |controllers: Vec<String>| writ_hub::Options {
        controllers,
        ..writ_hub::Options::default()
    };
    // No controller of ours for permissions: this test is upstream's.
    let others = vec!["managed_service_account".into(), "registration".into()];
    let parts = start_with(&fleet, hub(others)).await?;
    for namespace in ["a", "b"] {
        fleet.cluster(1)?.namespace(namespace).await?;
    }
    for client in [fleet.hub.admin().await?, spoke(&fleet).await?] {
        let namespaces: Api<Namespace> = Api::all(client);
        let selected = json!({"metadata": {"name": "c", "labels": {"team": "a"}}});
        namespaces
            .create(&PostParams::default(), &serde_json::from_value(selected)?)
            .await?;
    }
    permission(
        &fleet,
        "p",
        json!({
            "clusterRole": {"rules": pods("list")},
            "clusterRoleBinding": {"subject": user("everywhere")},
            "roles": [{"namespace": "a", "rules": pods("watch")}],
            "roleBindings": [
                {"namespace": "a", "roleRef": {"kind": "Role"}, "subject": user("here")},
                {"namespace": "b", "roleRef": cluster_role("view"), "subject": user("viewer")},
                {"namespaceSelector": {"matchLabels": {"team": "a"}}, "roleRef": cluster_role("view"), "subject": user("selected")},
            ],
        }),
    )
    .await?;
    let admin = fleet.hub.admin().await?;
    let permissions: Api<ClusterPermission> = Api::namespaced(admin.clone(), "cluster1");
    let works: Api<ManifestWork> = Api::namespaced(admin, "cluster1");
    let theirs = upstream(&permissions.get("p").await?)?;
    works.create(&PostParams::default(), &theirs).await?;
    for (who, verb, namespace) in GRANTED {
        allowed(&fleet, who, verb, namespace, true).await?;
    }
    let before = identities(&fleet).await?;

    // Ours comes.
    let stop = Arc::new(AtomicBool::new(false));
    let asking = watched(spoke(&fleet).await?, stop.clone());
    parts.hub.stop().await?;
    let ours = fleet.run_hub(hub(hub_controllers())).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let adopted = works.list(&ListParams::default()).await?;
    let named = |name: &str| adopted.items.iter().any(|work| work.name_any() == name);
    ensure!(named(&theirs.name_any()), "the work keeps its name");
    ensure!(identities(&fleet).await? == before, "nothing was made again");
    stop.store(true, Ordering::Relaxed);
    let mut asked = asking.await??;

    // Upstream's comes back: it finds a work of that name whose spec is not its own, and replaces the spec. It knows nothing of
    // what the agent selects: that goes with the same write that brings what upstream has selected itself.
    let before = identities(&fleet).await?;
    stop.store(false, Ordering::Relaxed);
    let asking = watched(spoke(&fleet).await?, stop.clone());
    ours.stop().await?;
    // The agent may report on the work at the same moment: the spec is replaced whatever else was written.
    let spec = json!([{"op": "replace", "path": "/spec", "value": theirs.spec}]);
    let spec = Patch::Json::<()>(serde_json::from_value(spec)?);
    let replaced = works
        .patch(&theirs.name_any(), &PatchParams::default(), &spec)
        .await?;
    wait::until_true("the agent has applied upstream's work", || async {
        let status = works.get(&theirs.name_any()).await?.status.unwrap_or_default();
        let applied = writ_controller::condition::find(&status.conditions, "Applied").cloned();
        Ok(applied
            .is_some_and(|c| c.status == "True" && c.observed_generation == replaced.metadata.generation))
    })
    .await?;
    wait::until_true("the grants have let go", || async {
        let bindings: Api<RoleBinding> = Api::namespaced(spoke(&fleet).await?, "c");
        let owners = bindings.get("p").await?.metadata.owner_references;
        Ok(owners
            .iter()
            .flatten()
            .all(|owner| owner.kind != "NamespaceGrant"))
    })
    .await?;
    ensure!(identities(&fleet).await? == before, "nothing was made again");
    for (who, verb, namespace) in GRANTED {
        allowed(&fleet, who, verb, namespace, true).await?;
    }
    stop.store(true, Ordering::Relaxed);
    asked += asking.await??;
    println!("asked {asked} times while controllers changed: always allowed");
    ensure!(asked > 0);
    Ok(())
}

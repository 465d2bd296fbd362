//! Grants and revocations, as the managed cluster's authorizer sees them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use futures::{StreamExt as _, pin_mut};
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::{
    Api, ResourceExt as _,
    api::{ListParams, Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::json;
use writ_api::work::ManifestWork;

use super::support::{
    agent_options, allowed, cluster_role, condition, delete, hub_controllers, join, permission, pods, spoke,
    start, user,
};
use crate::{Fleet, at_once, wait};

pub async fn grant_and_revoke(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    for namespace in ["a", "b"] {
        fleet.cluster(1)?.namespace(namespace).await?;
    }
    permission(
        &fleet,
        "p",
        json!({
            "clusterRole": {"rules": pods("list")},
            "clusterRoleBinding": {"subject": user("everywhere")},
            "roles": [{"namespace": "a", "rules": pods("watch")}],
            "roleBindings": [
                {"namespace": "a", "roleRef": {"kind": "Role"}, "subject": user("watcher")},
                {"namespace": "a", "name": "own", "roleRef": {"kind": "ClusterRole"}, "subject": user("here")},
                {"namespace": "b", "name": "viewer", "roleRef": cluster_role("view"), "subjects": [user("viewer"),
                    {"kind": "Group", "name": "team", "apiGroup": "rbac.authorization.k8s.io"}]},
            ],
            "validate": true,
        }),
    )
    .await?;
    allowed(&fleet, "everywhere", "list", "", true).await?;
    allowed(&fleet, "watcher", "watch", "a", true).await?;
    allowed(&fleet, "watcher", "watch", "b", false).await?;
    allowed(&fleet, "here", "list", "a", true).await?;
    allowed(&fleet, "viewer", "get", "b", true).await?;
    let ready = condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let status = ready.status.unwrap_or_default();
    ensure!(
        status.subjects.as_deref() == Some("User everywhere, User watcher, User here, +2"),
        "{status:?}"
    );
    let objects = status.resource_status.unwrap_or_default();
    ensure!(
        objects.role_bindings.len() == 3 && objects.cluster_roles.len() == 1,
        "{objects:?}"
    );
    ensure!(
        objects
            .role_bindings
            .iter()
            .all(|o| o.condition.iter().all(|c| c.reason == "AppliedManifestComplete"))
    );
    condition(
        &fleet,
        "p",
        "ValidateClusterRolesExist",
        "True",
        "AllClusterRolesFound",
    )
    .await?;

    // One binding goes; the others stay. Then a spec of which one entry cannot be built: it revokes, the rest stays.
    let spec = |entry: serde_json::Value| json!({"roleBindings": [entry, {"namespace": "b", "name": "viewer", "roleRef": cluster_role("view"), "subject": user("viewer")}]});
    let watcher = json!({"namespace": "a", "roleRef": cluster_role("view"), "subject": user("watcher")});
    permission(&fleet, "p", spec(watcher)).await?;
    allowed(&fleet, "everywhere", "list", "", false).await?;
    allowed(&fleet, "watcher", "get", "a", true).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let broken = json!({"namespace": "a", "name": "x", "roleRef": {"kind": "Role", "name": "no-group"}, "subject": user("watcher")});
    permission(&fleet, "p", spec(broken)).await?;
    allowed(&fleet, "watcher", "get", "a", false).await?;
    allowed(&fleet, "viewer", "get", "b", true).await?;
    condition(
        &fleet,
        "p",
        "Ready",
        "False",
        "spec.roleBindings[0].roleRef.apiGroup",
    )
    .await?;

    // A namespace that is not there yet: the condition names it, and it heals.
    permission(&fleet, "p", json!({"roleBindings": [{"namespace": "later", "roleRef": cluster_role("view"), "subject": user("viewer")}]})).await?;
    condition(&fleet, "p", "Ready", "False", "RoleBinding later/p").await?;
    fleet.cluster(1)?.namespace("later").await?;
    allowed(&fleet, "viewer", "get", "later", true).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;

    // The last binding goes, then the permission.
    permission(&fleet, "p", json!({"roleBindings": []})).await?;
    allowed(&fleet, "viewer", "get", "later", false).await?;
    condition(&fleet, "p", "Validation", "False", "no bindings defined").await?;
    permission(
        &fleet,
        "p",
        json!({"clusterRoleBinding": {"roleRef": cluster_role("view"), "subject": user("viewer")}}),
    )
    .await?;
    allowed(&fleet, "viewer", "get", "", true).await?;
    delete(&fleet, "p").await?;
    allowed(&fleet, "viewer", "get", "", false).await?;
    let works: Api<ManifestWork> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    wait::until_true("no work is left", || async {
        Ok(works.list(&ListParams::default()).await?.items.is_empty())
    })
    .await
}

/// A permission goes and comes again with other content while nobody looks: what the former one granted goes.
pub async fn made_again(fleet: Fleet) -> Result<()> {
    let parts = start(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let grants = |name: &str| json!({"roleBindings": [{"namespace": "a", "name": name, "roleRef": cluster_role("view"), "subject": user(name)}]});
    permission(&fleet, "p", grants("alice")).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "alice", "get", "a", true).await?;
    parts.agent.stop().await?;
    parts.hub.stop().await?;
    delete(&fleet, "p").await?;
    permission(&fleet, "p", grants("bob")).await?;

    // Without its agent the work of the former one is still there.
    let hub = writ_hub::Options {
        controllers: hub_controllers(),
        ..writ_hub::Options::default()
    };
    let _hub = fleet.run_hub(hub).await?;
    condition(&fleet, "p", "RBACManifestWorkCreated", "True", "").await?;
    let _agent = join(&fleet, 1, agent_options(&["grants", "registration", "work"])).await?;
    allowed(&fleet, "bob", "get", "a", true).await?;
    allowed(&fleet, "alice", "get", "a", false).await
}

pub async fn change_and_drift(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let spec = |role: &str| json!({"roles": [{"namespace": "a", "rules": pods("get")}], "roleBindings": [{"namespace": "a", "name": "b", "roleRef": cluster_role(role), "subject": user("u")}]});
    permission(&fleet, "p", spec("view")).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;

    // The role of a binding cannot be changed: the agent deletes it and makes it again, back to back.
    let bindings: Api<RoleBinding> = Api::namespaced(spoke(&fleet).await?, "a");
    let version = bindings
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version
        .unwrap_or_default();
    let watched = bindings.clone();
    let gap = tokio::spawn(async move { between(&watched, &version).await });
    let works: Api<ManifestWork> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    let work = works.list(&ListParams::default()).await?;
    let work = work.items.first().context("no work")?.name_any();
    let theirs =
        json!({"metadata": {"annotations": {"example.com/note": "1"}, "labels": {"example.com/team": "a"}}});
    works
        .patch(&work, &PatchParams::default(), &Patch::Merge(theirs))
        .await?;
    permission(&fleet, "p", spec("edit")).await?;
    allowed(&fleet, "u", "create", "a", true).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let changed = works.get(&work).await?;
    ensure!(
        changed.annotations().contains_key("example.com/note")
            && changed.labels().contains_key("example.com/team")
            && !changed.finalizers().is_empty(),
        "what others wrote into the work stays: {:?}",
        changed.metadata
    );
    let gap = gap.await??;
    at_once("between the old and the new binding", gap)?;

    // Drift of a delivered Role.
    let roles: Api<Role> = Api::namespaced(spoke(&fleet).await?, "a");
    roles
        .patch("p", &PatchParams::default(), &Patch::Merge(json!({"rules": []})))
        .await?;
    let started = Instant::now();
    wait::until_true("the Role is put right", || async {
        Ok(roles.get("p").await?.rules.is_some_and(|rules| rules.len() == 1))
    })
    .await?;
    at_once("the Role was put right", started.elapsed())?;

    // Who takes the owner reference off does not make it his own.
    for rules in [json!([]), pods("get")] {
        let strip = json!({"metadata": {"ownerReferences": null}, "rules": rules});
        roles
            .patch("p", &PatchParams::default(), &Patch::Merge(strip))
            .await?;
        wait::until_true("the Role and its owner are put right", || async {
            let role = roles.get("p").await?;
            let owned = role
                .metadata
                .owner_references
                .is_some_and(|owners| owners.len() == 1);
            Ok(owned && role.rules.is_some_and(|rules| rules.len() == 1))
        })
        .await?;
    }
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    Ok(())
}

/// How long there is no binding, as somebody sees it who watches.
async fn between(bindings: &Api<RoleBinding>, version: &str) -> Result<Duration> {
    let events = bindings.watch(&WatchParams::default(), version).await?;
    pin_mut!(events);
    let mut deleted = Instant::now();
    loop {
        match events.next().await {
            Some(Ok(WatchEvent::Deleted(_))) => deleted = Instant::now(),
            Some(Ok(WatchEvent::Added(made))) if made.role_ref.name == "edit" => return Ok(deleted.elapsed()),
            Some(Ok(_)) => {}
            other => anyhow::bail!("the watch ended: {other:?}"),
        }
    }
}

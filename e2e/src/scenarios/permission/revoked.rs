//! What leaves a permission leaves the managed cluster, whatever else names it and whoever holds on to it.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::{
    Api, ResourceExt as _,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::support::{
    agent_options, allowed, cluster_role, condition, delete, join, permission, pods, spoke, start, user,
};
use crate::{Fleet, wait};

/// With `validate: true` it is looked for the roles that bindings name, also for those that the permission made until now.
pub async fn validated_role(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let hub_roles: Api<ClusterRole> = Api::all(fleet.hub.admin().await?);
    let reader: ClusterRole = serde_json::from_value(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "reader"},
        "rules": pods("watch"),
    }))?;
    hub_roles.create(&PostParams::default(), &reader).await?;
    let spec = |with_roles: bool| {
        let mut spec = json!({
            "validate": true,
            "clusterRoleBindings": [
                {"name": "own", "roleRef": cluster_role("p"), "subject": user("everywhere")},
                {"name": "reader", "roleRef": cluster_role("reader"), "subject": user("reader")},
            ],
            "roleBindings": [{"namespace": "a", "roleRef": {"kind": "Role"}, "subject": user("here")}],
            "roleRefs": [{"kind": "ClusterRole", "name": "reader"}],
        });
        if let (true, Some(map)) = (with_roles, spec.as_object_mut()) {
            map.insert("clusterRole".into(), json!({"rules": pods("list")}));
            map.insert("roles".into(), json!([{"namespace": "a", "rules": pods("get")}]));
        }
        spec
    };
    permission(&fleet, "p", spec(true)).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let granted = [
        ("everywhere", "list", ""),
        ("here", "get", "a"),
        ("reader", "watch", ""),
    ];
    for (who, verb, namespace) in granted {
        allowed(&fleet, who, verb, namespace, true).await?;
    }

    // Out of the spec, and gone from the hub.
    permission(&fleet, "p", spec(false)).await?;
    hub_roles.delete("reader", &DeleteParams::default()).await?;
    for (who, verb, namespace) in granted {
        allowed(&fleet, who, verb, namespace, false).await?;
    }
    let client = spoke(&fleet).await?;
    let (all, roles): (Api<ClusterRole>, Api<Role>) =
        (Api::all(client.clone()), Api::namespaced(client, "a"));
    condition(&fleet, "p", "ValidateRolesExist", "False", "not found: a/p").await?;
    condition(
        &fleet,
        "p",
        "ValidateClusterRolesExist",
        "False",
        "not found: p, reader",
    )
    .await?;
    for name in ["p", "reader"] {
        ensure!(
            all.get_opt(name).await?.is_none(),
            "the ClusterRole {name} is left"
        );
    }
    ensure!(roles.get_opt("p").await?.is_none(), "the Role is left");
    Ok(())
}

/// Takes the owner references off the binding.
/// Takes the owner reference off, and what the server knows of who wrote it.
async fn strip(bindings: &Api<RoleBinding>) -> Result<()> {
    let strip = Patch::Merge(json!({"metadata": {"ownerReferences": null, "managedFields": [{}]}}));
    bindings.patch("p", &PatchParams::default(), &strip).await?;
    Ok(())
}

/// Whoever takes the owner reference off a binding does not keep what it grants, however often he does it.
pub async fn stripped(fleet: Fleet) -> Result<()> {
    let parts = start(&fleet).await?;
    fleet.cluster(1)?.namespace("a").await?;
    let bindings: Api<RoleBinding> = Api::namespaced(spoke(&fleet).await?, "a");
    let kept =
        json!({"namespace": "a", "name": "kept", "roleRef": cluster_role("view"), "subject": user("other")});
    let entry = json!({"namespace": "a", "roleRef": cluster_role("view"), "subject": user("alice")});
    let granted = async |entries: &[&Value]| -> Result<()> {
        permission(&fleet, "p", json!({ "roleBindings": entries })).await?;
        condition(&fleet, "p", "Ready", "True", "Granted").await?;
        allowed(&fleet, "alice", "get", "a", entries.len() == 2).await
    };

    // While no agent runs: the permission goes, and the agent finds a binding without its mark.
    granted(&[&kept, &entry]).await?;
    parts.agent.stop().await?;
    strip(&bindings).await?;
    delete(&fleet, "p").await?;
    let _agent = join(
        &fleet,
        1,
        agent_options(&["grants", "registration", "tokens", "work"]),
    )
    .await?;
    allowed(&fleet, "alice", "get", "a", false).await?;

    // While it runs, so often that the agent takes its time before it puts it right again: the entry goes, then the
    // permission.
    for whole in [false, true] {
        granted(&[&kept, &entry]).await?;
        worn_out(&bindings).await?;
        if whole {
            delete(&fleet, "p").await?;
        } else {
            granted(&[&kept]).await?;
        }
        allowed(&fleet, "alice", "get", "a", false).await?;
        wait::until_true("the binding is gone", || async {
            Ok(bindings.get_opt("p").await?.is_none())
        })
        .await?;
    }
    Ok(())
}

/// Strips the binding until nobody puts it right at once.
async fn worn_out(bindings: &Api<RoleBinding>) -> Result<()> {
    for _ in 0..30 {
        strip(bindings).await?;
        let began = Instant::now();
        while bindings.get("p").await?.owner_references().is_empty() {
            if began.elapsed() > Duration::from_millis(700) {
                return Ok(());
            }
        }
    }
    Ok(())
}

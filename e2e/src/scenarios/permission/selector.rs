//! Namespace selectors, expanded where the namespaces are.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::{
    api::{
        core::v1::Namespace,
        rbac::v1::{Role, RoleBinding},
    },
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_hub::options::NamespaceSelector;

use super::support::{
    allowed, allowed_on, condition, delete, hub_controllers, permission, pods, spoke, start, start_with, user,
};
use crate::{Fleet, wait};

pub async fn by_agent(fleet: Fleet) -> Result<()> {
    // The agent installs the definition of its own kind.
    let definitions: Api<CustomResourceDefinition> = Api::all(spoke(&fleet).await?);
    let definition = "namespacegrants.writ.dev";
    definitions.delete(definition, &DeleteParams::default()).await?;
    wait::until_true("the definition is gone", || async {
        Ok(definitions.get_opt(definition).await?.is_none())
    })
    .await?;
    let parts = start(&fleet).await?;
    let cluster = fleet.cluster(1)?;
    for namespace in ["one", "two"] {
        cluster.namespace(namespace).await?;
    }
    let namespaces: Api<Namespace> = Api::all(spoke(&fleet).await?);
    let label = |name: &'static str, value: Value| {
        let namespaces = namespaces.clone();
        async move {
            let patch = Patch::Merge(json!({"metadata": {"labels": {"foo.com/managed-state": value}}}));
            namespaces.patch(name, &PatchParams::default(), &patch).await
        }
    };
    let selector = json!({"matchExpressions": [{"key": "foo.com/managed-state", "operator": "In", "values": ["managed"]}]});
    permission(
        &fleet,
        "p",
        json!({
            "roles": [{"namespaceSelector": selector, "rules": pods("get")}],
            "roleBindings": [{"namespaceSelector": selector, "roleRef": {"kind": "Role"}, "subject": user("alice")}],
        }),
    )
    .await?;
    let selected = |count: i64| {
        let fleet = &fleet;
        async move {
            wait::until_true(&format!("{count} namespaces are reported"), || async {
                let ready = condition(fleet, "p", "Ready", "True", "Granted").await?;
                let selections = ready.status.unwrap_or_default().namespace_selections;
                Ok(selections.len() == 2
                    && selections
                        .iter()
                        .all(|s| s.by == "agent" && s.selected == Some(count) && s.ready == Some(count)))
            })
            .await
        }
    };
    selected(0).await?;
    allowed(&fleet, "alice", "get", "one", false).await?;
    label("one", json!("managed")).await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    allowed(&fleet, "alice", "get", "two", false).await?;
    selected(1).await?;

    // Without a hub controller, too.
    parts.hub.stop().await?;
    label("two", json!("managed")).await?;
    allowed(&fleet, "alice", "get", "two", true).await?;
    label("one", Value::Null).await?;
    allowed(&fleet, "alice", "get", "one", false).await?;
    let _hub = fleet
        .run_hub(writ_hub::Options {
            controllers: hub_controllers(),
            ..writ_hub::Options::default()
        })
        .await?;
    selected(1).await?;

    // A namespace that goes and comes again.
    namespaces.delete("two", &DeleteParams::default()).await?;
    wait::until_true("the namespace is gone", || async {
        Ok(namespaces.get_opt("two").await?.is_none())
    })
    .await?;
    selected(0).await?;
    cluster.namespace("two").await?;
    label("two", json!("managed")).await?;
    allowed(&fleet, "alice", "get", "two", true).await?;
    selected(1).await?;

    // What the agent made is repaired, also when all that says whose it is was taken away.
    let bindings: Api<RoleBinding> = Api::namespaced(spoke(&fleet).await?, "two");
    let strip = json!({"metadata": {"ownerReferences": null, "labels": null}, "subjects": [user("mallory")]});
    bindings
        .patch("p", &PatchParams::default(), &Patch::Merge(strip))
        .await?;
    allowed(&fleet, "mallory", "get", "two", false).await?;
    allowed(&fleet, "alice", "get", "two", true).await?;
    wait::until_true("the owner is back", || async {
        Ok(bindings.get("p").await?.metadata.owner_references.is_some())
    })
    .await?;

    // Another selector: no gap where both select.
    let other = json!({"matchLabels": {"foo.com/managed-state": "managed"}});
    permission(
        &fleet,
        "p",
        json!({
            "roles": [{"namespaceSelector": other, "rules": pods("get")}],
            "roleBindings": [{"namespaceSelector": other, "roleRef": {"kind": "Role"}, "subject": user("alice")}],
        }),
    )
    .await?;
    selected(1).await?;
    allowed(&fleet, "alice", "get", "two", true).await?;
    delete(&fleet, "p").await?;
    allowed(&fleet, "alice", "get", "two", false).await?;
    ensure!(namespaces.get_opt("two").await?.is_some());
    Ok(())
}

/// The hub is gone, its API server included: the agent goes on.
pub async fn without_a_hub(fleet: Fleet) -> Result<()> {
    let parts = start(&fleet).await?;
    let selector = json!({"matchLabels": {"team": "a"}});
    permission(
        &fleet,
        "p",
        json!({
            "roles": [{"namespaceSelector": selector, "rules": pods("get")}],
            "roleBindings": [{"namespaceSelector": selector, "roleRef": {"kind": "Role"}, "subject": user("alice")}],
        }),
    )
    .await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    parts.hub.stop().await?;
    let Fleet { hub, clusters } = fleet;
    drop(hub);
    let cluster = clusters.first().context("no cluster")?;
    cluster.namespace("late").await?;
    let namespaces: Api<Namespace> = Api::all(cluster.admin().await?);
    let label = async |value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"team": value}}}));
        namespaces.patch("late", &PatchParams::default(), &patch).await
    };
    label(json!("a")).await?;
    allowed_on(cluster, "alice", "get", "late", true).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(cluster.admin().await?, "late");
    let before = bindings.get("p").await?.metadata.uid;
    bindings.delete("p", &DeleteParams::default()).await?;
    // The authorizer may not even have heard of the deletion.
    wait::until_true("the binding is made again", || async {
        let now = bindings.get_opt("p").await?;
        Ok(now.is_some_and(|now| now.metadata.uid != before))
    })
    .await?;
    allowed_on(cluster, "alice", "get", "late", true).await?;
    label(Value::Null).await?;
    allowed_on(cluster, "alice", "get", "late", false).await
}

/// `--namespace-selector=hub`, with an agent that could select: the labels of the hub's namespaces decide, as upstream, and
/// those of the managed cluster do not count.
pub async fn by_hub(fleet: Fleet) -> Result<()> {
    let _parts = start_with(
        &fleet,
        writ_hub::Options {
            controllers: hub_controllers(),
            namespace_selector: NamespaceSelector::Hub,
            ..writ_hub::Options::default()
        },
    )
    .await?;
    for cluster in [&fleet.hub, fleet.cluster(1)?] {
        for namespace in ["one", "two"] {
            cluster.namespace(namespace).await?;
        }
    }
    let on_hub: Api<Namespace> = Api::all(fleet.hub.admin().await?);
    let on_spoke: Api<Namespace> = Api::all(spoke(&fleet).await?);
    let label = async |api: &Api<Namespace>, name: &str, value: Value| {
        let patch = Patch::Merge(json!({"metadata": {"labels": {"team": value}}}));
        api.patch(name, &PatchParams::default(), &patch).await
    };
    label(&on_hub, "one", json!("a")).await?;
    label(&on_spoke, "two", json!("a")).await?;
    let selector = json!({"matchLabels": {"team": "a"}});
    permission(
        &fleet,
        "p",
        json!({
            "roles": [{"namespaceSelector": selector, "rules": pods("get")}],
            "roleBindings": [{"namespaceSelector": selector, "roleRef": {"kind": "Role"}, "subject": user("alice")}],
        }),
    )
    .await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    // The hub may have seen the permission before the label.
    wait::until_true("the hub has selected one namespace", || async {
        let ready = condition(&fleet, "p", "Ready", "True", "Granted").await?;
        let selections = ready.status.unwrap_or_default().namespace_selections;
        Ok(selections.len() == 2 && selections.iter().all(|s| s.by == "hub" && s.selected == Some(1)))
    })
    .await?;
    allowed(&fleet, "alice", "get", "two", false).await?;
    // A label on the hub comes and goes.
    label(&on_hub, "two", json!("a")).await?;
    allowed(&fleet, "alice", "get", "two", true).await?;
    label(&on_hub, "one", Value::Null).await?;
    allowed(&fleet, "alice", "get", "one", false).await?;
    allowed(&fleet, "alice", "get", "two", true).await?;
    delete(&fleet, "p").await?;
    allowed(&fleet, "alice", "get", "two", false).await
}

/// `validate` looks at Roles in the namespaces that the agent selects.
pub async fn validated(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let cluster = fleet.cluster(1)?;
    cluster.namespace("one").await?;
    let namespaces: Api<Namespace> = Api::all(spoke(&fleet).await?);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"team": "a"}}}));
    namespaces.patch("one", &PatchParams::default(), &patch).await?;
    let reader = json!({"kind": "Role", "name": "reader", "apiGroup": "rbac.authorization.k8s.io"});
    permission(
        &fleet,
        "p",
        json!({"validate": true, "roleBindings": [
            {"namespaceSelector": {"matchLabels": {"team": "a"}}, "roleRef": reader, "subject": user("alice")}]}),
    )
    .await?;
    condition(
        &fleet,
        "p",
        "ValidateRolesExist",
        "False",
        "not found: one/reader",
    )
    .await?;
    let roles: Api<Role> = Api::namespaced(spoke(&fleet).await?, "one");
    let role: Role = serde_json::from_value(json!({"metadata": {"name": "reader"}, "rules": pods("get")}))?;
    roles.create(&PostParams::default(), &role).await?;
    condition(&fleet, "p", "ValidateRolesExist", "True", "AllRolesFound").await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "alice", "get", "one", true).await
}

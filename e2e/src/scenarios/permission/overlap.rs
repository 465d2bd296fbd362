//! Where works and grants meet: the same object wanted by both, and selectors that change hands.

use std::time::Duration;

use anyhow::{Result, ensure};
use futures::StreamExt as _;
use k8s_openapi::api::{
    core::v1::Namespace,
    rbac::v1::{Role, RoleBinding},
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams, WatchEvent, WatchParams},
};
use serde_json::{Value, json};
use tokio::time::timeout;
use writ_api::rbac::ClusterPermission;

use super::support::{
    Always, agent_options, allowed, allowed_on, annotated, cluster_role, condition, delete, hub_controllers,
    join, permission, pods, spoke, start, start_all, user,
};
use crate::{Fleet, wait};

const WITH: [&str; 4] = ["grants", "registration", "tokens", "work"];
const WITHOUT: [&str; 3] = ["registration", "tokens", "work"];

pub async fn labelled(client: &Client, name: &str) -> Result<()> {
    let namespace =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": {"team": "a"}}});
    let params = PatchParams::apply("e2e").force();
    let api: Api<Namespace> = Api::all(client.clone());
    api.patch(name, &params, &Patch::Apply(namespace)).await?;
    Ok(())
}

pub fn selector() -> Value {
    json!({"matchLabels": {"team": "a"}})
}

/// A namespace is named, and a selector selects it too.
pub async fn overlap(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let client = spoke(&fleet).await?;
    for name in ["one", "two"] {
        labelled(&client, name).await?;
    }
    let spec = |verb: &str| {
        json!({
            "roles": [{"namespace": "one", "rules": pods("get")}, {"namespaceSelector": selector(), "rules": pods(verb)}],
            "roleBindings": [{"namespaceSelector": selector(), "roleRef": {"kind": "Role"}, "subject": user("alice")}],
        })
    };
    let roles: Api<Role> = Api::namespaced(client, "one");
    // The same content: they share it.
    permission(&fleet, "p", spec("get")).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    wait::until_true("the Role has two owners", || async {
        Ok(roles.get("p").await?.owner_references().len() == 2)
    })
    .await?;
    // Another content, also where foreign objects may be adopted: what names the namespace counts, the condition says
    // so, and nobody writes any more.
    for adopt in ["false", "true"] {
        annotated(&fleet, "p", &json!({"writ.dev/adopt": adopt}), spec("list")).await?;
        condition(
            &fleet,
            "p",
            "Ready",
            "False",
            "spec.roles[1]: one: ManifestWork p-",
        )
        .await?;
        condition(
            &fleet,
            "p",
            "Ready",
            "False",
            "delivers the Role p here with another content",
        )
        .await?;
        allowed(&fleet, "alice", "list", "two", true).await?;
        allowed(&fleet, "alice", "get", "one", true).await?;
        allowed(&fleet, "alice", "list", "one", false).await?;
        wait::until_true(
            "the Role is the work's alone, and nobody writes it any more",
            || async {
                let before = roles.get("p").await?;
                tokio::time::sleep(Duration::from_millis(300)).await;
                let after = roles.get("p").await?;
                Ok(after.owner_references().len() == 1
                    && after.resource_version() == before.resource_version())
            },
        )
        .await?;
    }
    // The entry with the name goes: the selector's content takes its place.
    permission(
        &fleet,
        "p",
        json!({
            "roles": [{"namespaceSelector": selector(), "rules": pods("list")}],
            "roleBindings": [{"namespaceSelector": selector(), "roleRef": {"kind": "Role"}, "subject": user("alice")}],
        }),
    )
    .await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "alice", "list", "one", true).await?;
    allowed(&fleet, "alice", "get", "one", false).await?;
    delete(&fleet, "p").await?;
    allowed(&fleet, "alice", "list", "one", false).await
}

/// A binding that a selector made is named, with another role: it is made again once, and nobody fights about it.
pub async fn another_role(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let client = spoke(&fleet).await?;
    labelled(&client, "one").await?;
    let binding = |place: Value, role: &str| {
        let mut binding = json!({"name": "shared", "roleRef": cluster_role(role), "subject": user("alice")});
        binding
            .as_object_mut()
            .into_iter()
            .for_each(|binding| binding.extend(place.as_object().cloned().unwrap_or_default()));
        binding
    };
    let selected = binding(json!({"namespaceSelector": selector()}), "view");
    let named = binding(json!({"namespace": "one"}), "edit");
    permission(&fleet, "p", json!({"roleBindings": [selected]})).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    allowed(&fleet, "alice", "create", "one", false).await?;

    let bindings: Api<RoleBinding> = Api::namespaced(client, "one");
    let made = bindings.get("shared").await?;
    let params = WatchParams::default().fields("metadata.name=shared");
    let version = made.resource_version().unwrap_or_default();
    let mut changes = bindings.watch(&params, &version).await?.boxed();
    permission(&fleet, "p", json!({"roleBindings": [selected, named]})).await?;
    allowed(&fleet, "alice", "create", "one", true).await?;
    condition(&fleet, "p", "Ready", "False", "with another content").await?;
    // As which it was made, until it is made as the last one and stays so.
    let mut made = async |last: &str| -> Result<Vec<String>> {
        let mut roles: Vec<String> = Vec::new();
        loop {
            let settled = roles.last().is_some_and(|role| role == last);
            let patience = Duration::from_millis(if settled { 500 } else { 20_000 });
            match timeout(patience, changes.next()).await {
                Ok(Some(change)) => {
                    if let WatchEvent::Added(binding) = change? {
                        roles.push(binding.role_ref.name);
                    }
                }
                _ => return Ok(roles),
            }
        }
    };
    let roles = made("edit").await?;
    ensure!(roles == ["edit"], "it was made again as {roles:?}");

    // The name goes: the selector's binding takes its place.
    permission(&fleet, "p", json!({"roleBindings": [selected]})).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "alice", "create", "one", false).await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    // Both want another role in the same moment: once the named one is there it stays.
    made("view").await?;
    let selected = binding(json!({"namespaceSelector": selector()}), "admin");
    permission(&fleet, "p", json!({"roleBindings": [selected, named]})).await?;
    condition(&fleet, "p", "Ready", "False", "with another content").await?;
    let roles = made("edit").await?;
    ensure!(
        roles == ["edit"] || roles == ["admin", "edit"],
        "it was made again as {roles:?}"
    );
    delete(&fleet, "p").await?;
    allowed(&fleet, "alice", "get", "one", false).await
}

/// The agent of one cluster learns to select, and forgets it; that of another cannot. Nobody loses access.
pub async fn change_hands(fleet: Fleet) -> Result<()> {
    let hub = writ_hub::Options {
        controllers: hub_controllers(),
        ..writ_hub::Options::default()
    };
    let parts = start_all(&fleet, hub, agent_options(&WITHOUT)).await?;
    let _other = join(&fleet, 2, agent_options(&WITHOUT)).await?;
    let admin = fleet.hub.admin().await?;
    labelled(&admin, "one").await?;
    for number in [1, 2] {
        labelled(&fleet.cluster(number)?.admin().await?, "one").await?;
    }
    let spec = json!({
        "roles": [{"namespaceSelector": selector(), "rules": pods("get")}],
        "roleBindings": [{"namespaceSelector": selector(), "roleRef": {"kind": "Role"}, "subject": user("alice")}],
    });
    permission(&fleet, "p", spec.clone()).await?;
    let others: Api<ClusterPermission> = Api::namespaced(admin, "cluster2");
    let object = json!({"apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission",
        "metadata": {"name": "p"}, "spec": spec});
    others
        .patch("p", &PatchParams::apply("e2e").force(), &Patch::Apply(object))
        .await?;
    let selected_by = |who: &'static str| {
        let fleet = &fleet;
        async move {
            wait::until_true(&format!("the {who} selects"), || async {
                let ready = condition(fleet, "p", "Ready", "True", "Granted").await?;
                let selections = ready.status.unwrap_or_default().namespace_selections;
                Ok(selections.len() == 2 && selections.iter().all(|s| s.by == who))
            })
            .await
        }
    };
    selected_by("hub").await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    allowed_on(fleet.cluster(2)?, "alice", "get", "one", true).await?;

    let client = spoke(&fleet).await?;
    let identities = async || -> Result<_> {
        let roles: Api<Role> = Api::namespaced(client.clone(), "one");
        let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "one");
        Ok((roles.get("p").await?.uid(), bindings.get("p").await?.uid()))
    };
    let before = identities().await?;
    let always = Always::may(&client, "alice", "get", "one");
    parts.agent.stop().await?;
    let agent = join(&fleet, 1, agent_options(&WITH)).await?;
    selected_by("agent").await?;
    wait::until_true("the objects are the grants' alone", || async {
        let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "one");
        let owners = bindings
            .get("p")
            .await?
            .metadata
            .owner_references
            .unwrap_or_default();
        Ok(owners.iter().all(|owner| owner.kind == "NamespaceGrant"))
    })
    .await?;
    ensure!(identities().await? == before, "an object was made again");

    agent.stop().await?;
    let _agent = join(&fleet, 1, agent_options(&WITHOUT)).await?;
    selected_by("hub").await?;
    ensure!(identities().await? == before, "an object was made again");
    always.end().await?;
    let selections = others
        .get("p")
        .await?
        .status
        .unwrap_or_default()
        .namespace_selections;
    ensure!(selections.iter().all(|s| s.by == "hub"), "{selections:?}");
    delete(&fleet, "p").await?;
    allowed(&fleet, "alice", "get", "one", false).await
}

//! Namespace selectors, expanded where the namespaces are.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};

use super::support::{allowed, condition, delete, permission, pods, spoke, start, user};
use crate::{Fleet, wait};

pub async fn by_agent(fleet: Fleet) -> Result<()> {
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
            controllers: vec!["cluster_permission".into()],
            ..writ_hub::Options::default()
        })
        .await?;
    selected(1).await?;

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

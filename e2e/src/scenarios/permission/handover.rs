//! Within one change, grant first and revoke last.

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    overlap::{labelled, selector},
    support::{Always, allowed, cluster_role, condition, delete, permission, pods, spoke, start, user},
};
use crate::{Fleet, wait};

/// An entry names a namespace, then selects it, then names it again; its binding gets a name that is somebody else's. Nobody
/// loses what every one of these grants.
pub async fn no_gap(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let client = spoke(&fleet).await?;
    for name in ["one", "two"] {
        labelled(&client, name).await?;
    }
    let spec = |place: &str, to: Value, name: &str| {
        json!({
            "roles": [{place: to, "rules": pods("get")}],
            "roleBindings": [
                {place: to, "name": name, "roleRef": {"kind": "Role"}, "subject": user("alice")},
                {place: to, "name": "wide", "roleRef": cluster_role("view"), "subject": user("bob")},
            ],
        })
    };
    let named = |name: &str| spec("namespace", json!("one"), name);
    permission(&fleet, "p", named("x")).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    for who in ["alice", "bob"] {
        allowed(&fleet, who, "get", "one", true).await?;
    }
    let always = ["alice", "bob"].map(|who| Always::may(&client, who, "get", "one"));
    for _ in 0..3 {
        permission(&fleet, "p", spec("namespaceSelector", selector(), "x")).await?;
        allowed(&fleet, "alice", "get", "two", true).await?;
        condition(&fleet, "p", "Ready", "True", "Granted").await?;
        permission(&fleet, "p", named("x")).await?;
        allowed(&fleet, "alice", "get", "two", false).await?;
        condition(&fleet, "p", "Ready", "True", "Granted").await?;
    }

    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "one");
    let hand: RoleBinding = serde_json::from_value(
        json!({"metadata": {"name": "taken"}, "roleRef": cluster_role("view"), "subjects": [user("old")]}),
    )?;
    bindings.create(&PostParams::default(), &hand).await?;
    permission(&fleet, "p", named("taken")).await?;
    condition(&fleet, "p", "Ready", "False", "RoleBinding one/taken: ").await?;
    ensure!(bindings.get_opt("x").await?.is_some(), "the old one is gone");
    bindings.delete("taken", &DeleteParams::default()).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    wait::until_true("the old one is gone", || async {
        Ok(bindings.get_opt("x").await?.is_none())
    })
    .await?;
    for always in always {
        always.end().await?;
    }
    // A selector that does not select the namespace takes it away.
    let others = json!({"matchLabels": {"team": "b"}});
    permission(&fleet, "p", spec("namespaceSelector", others, "taken")).await?;
    for who in ["alice", "bob"] {
        allowed(&fleet, who, "get", "one", false).await?;
    }
    delete(&fleet, "p").await
}

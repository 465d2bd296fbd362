//! Selectors that are edited, and revocations that somebody holds up.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::{
    core::v1::Namespace,
    events::v1::Event,
    rbac::v1::{ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Resource, ResourceExt,
    api::{ListParams, Patch, PatchParams},
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use writ_api::{
    work::{ManifestWork, PRUNED_CONDITION},
    writ::NamespaceGrant,
};

use super::support::{Always, allowed, cluster_role, condition, delete, may, permission, spoke, start, user};
use crate::{Fleet, wait};

async fn namespace(fleet: &Fleet, name: &str, labels: Value) -> Result<()> {
    let api: Api<Namespace> = Api::all(spoke(fleet).await?);
    let object =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}});
    let params = PatchParams::apply("e2e").force();
    api.patch(name, &params, &Patch::Apply(object)).await?;
    Ok(())
}

fn spec(selector: &Value, verbs: &[&str], people: &[&str]) -> Value {
    let subjects: Vec<Value> = people.iter().map(|name| user(name)).collect();
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}]);
    json!({
        "roles": [{"namespaceSelector": selector, "rules": rules}],
        "roleBindings": [{"namespaceSelector": selector, "roleRef": {"kind": "Role"}, "subjects": subjects}],
    })
}

/// Where both the old and the new selector select, nobody loses anything: also not while rules and subjects change.
pub async fn no_gap(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    namespace(&fleet, "both", json!({"team": "a", "env": "prod"})).await?;
    namespace(&fleet, "first", json!({"team": "a"})).await?;
    namespace(&fleet, "second", json!({"env": "prod"})).await?;
    let team = json!({"matchLabels": {"team": "a"}});
    let env = json!({"matchExpressions": [{"key": "env", "operator": "In", "values": ["prod"]}]});
    permission(&fleet, "p", spec(&team, &["get"], &["alice"])).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    let client = spoke(&fleet).await?;
    allowed(&fleet, "alice", "get", "both", true).await?;
    allowed(&fleet, "alice", "get", "first", true).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "both");
    let roles: Api<Role> = Api::namespaced(client.clone(), "both");
    let grants: Api<NamespaceGrant> = Api::all(client.clone());
    let identities = async || -> Result<_> {
        let grants = grants.list(&ListParams::default()).await?;
        let mut all: Vec<Option<String>> = grants.items.iter().map(ResourceExt::uid).collect();
        all.sort();
        all.extend([bindings.get("p").await?.uid(), roles.get("p").await?.uid()]);
        Ok(all)
    };
    let before = identities().await?;
    let always = Always::may(&client, "alice", "get", "both");
    for (now, selector, gone) in [("second", &env, "first"), ("first", &team, "second")] {
        permission(&fleet, "p", spec(selector, &["get"], &["alice"])).await?;
        allowed(&fleet, "alice", "get", now, true).await?;
        allowed(&fleet, "alice", "get", gone, false).await?;
        condition(&fleet, "p", "Ready", "True", "Granted").await?;
    }
    // The rest, and the selector together with the rest.
    permission(&fleet, "p", spec(&team, &["get", "list"], &["alice", "bob"])).await?;
    allowed(&fleet, "bob", "list", "both", true).await?;
    permission(&fleet, "p", spec(&env, &["get"], &["carol", "alice"])).await?;
    allowed(&fleet, "carol", "get", "both", true).await?;
    allowed(&fleet, "bob", "get", "both", false).await?;
    allowed(&fleet, "carol", "list", "both", false).await?;
    allowed(&fleet, "carol", "get", "second", true).await?;
    allowed(&fleet, "alice", "get", "first", false).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    always.end().await?;
    ensure!(identities().await? == before, "something was made again");
    delete(&fleet, "p").await?;
    allowed(&fleet, "alice", "get", "both", false).await
}

/// The same for what a work delivers: an entry goes, then the permission.
pub async fn held_up_by_name(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    namespace(&fleet, "one", json!({})).await?;
    let client = spoke(&fleet).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "one");
    let wide: Api<ClusterRoleBinding> = Api::all(client.clone());
    let everywhere = json!({"roleRef": cluster_role("view"), "subject": user("bob")});
    let here = json!({"namespace": "one", "roleRef": cluster_role("view"), "subject": user("alice")});
    permission(
        &fleet,
        "p",
        json!({"clusterRoleBinding": everywhere, "roleBindings": [here]}),
    )
    .await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    for who in ["alice", "bob"] {
        allowed(&fleet, who, "get", "one", true).await?;
    }
    finalizer(&bindings, json!(["example.com/keep"])).await?;
    finalizer(&wide, json!(["example.com/keep"])).await?;
    permission(&fleet, "p", json!({"clusterRoleBinding": everywhere})).await?;
    allowed(&fleet, "alice", "get", "one", false).await?;
    ensure!(
        may(&client, "bob", "get", "one").await?,
        "what stays is not touched"
    );
    let words = "rolebindings one/p: not gone yet: a finalizer or a grace period may hold it";
    condition(&fleet, "p", "Ready", "False", words).await?;
    condition(&fleet, "p", "Ready", "False", "RevocationPending").await?;
    finalizer(&bindings, Value::Null).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;

    delete(&fleet, "p").await?;
    allowed(&fleet, "bob", "get", "one", false).await?;
    let on_hub: Api<ManifestWork> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    wait::until_true("the work says what is left of it", || async {
        let found = on_hub.list(&ListParams::default()).await?;
        let mut conditions = found
            .iter()
            .filter_map(|work| work.status.as_ref())
            .flat_map(|status| &status.conditions);
        Ok(conditions.any(|c| c.type_ == PRUNED_CONDITION && c.message.contains("clusterrolebindings p: ")))
    })
    .await?;
    finalizer(&wide, Value::Null).await?;
    wait::until_true("both are gone", || async {
        Ok(bindings.get_opt("p").await?.is_none() && wide.get_opt("p").await?.is_none())
    })
    .await
}

async fn finalizer<K>(api: &Api<K>, finalizers: Value) -> Result<()>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    api.patch("p", &PatchParams::default(), &patch).await?;
    Ok(())
}

/// Whoever puts a finalizer on a binding keeps the object, not what it grants, and that it is there is told.
pub async fn held_up(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let keep = json!(["example.com/keep"]);
    let selector = json!({"matchLabels": {"team": "a"}});
    namespace(&fleet, "one", json!({"team": "a"})).await?;
    let client = spoke(&fleet).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "one");
    let roles: Api<Role> = Api::namespaced(client.clone(), "one");
    permission(&fleet, "p", spec(&selector, &["get"], &["alice"])).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    finalizer(&bindings, keep.clone()).await?;
    namespace(&fleet, "one", json!({"team": "b"})).await?;
    allowed(&fleet, "alice", "get", "one", false).await?;
    let words =
        "spec.roleBindings[0]: one: it is not selected any more, but the RoleBinding p is being deleted";
    condition(&fleet, "p", "Ready", "False", words).await?;
    condition(&fleet, "p", "Ready", "False", "example.com/keep").await?;
    // Wanted again while it goes: it grants again, and is made again when it is gone.
    namespace(&fleet, "one", json!({"team": "a"})).await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    namespace(&fleet, "one", json!({"team": "b"})).await?;
    allowed(&fleet, "alice", "get", "one", false).await?;
    finalizer(&bindings, Value::Null).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    ensure!(bindings.get_opt("p").await?.is_none());

    // The permission goes: its work's name stays behind in an event on the hub.
    namespace(&fleet, "one", json!({"team": "a"})).await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    finalizer(&bindings, keep.clone()).await?;
    finalizer(&roles, keep).await?;
    delete(&fleet, "p").await?;
    allowed(&fleet, "alice", "get", "one", false).await?;
    let events: Api<Event> = Api::namespaced(fleet.hub.admin().await?, "cluster1");
    for object in ["RoleBinding", "Role"] {
        let words = format!("{object} one/p is not revoked yet");
        wait::until_true(&format!("an event says: {words}"), || async {
            let events = events.list(&ListParams::default()).await?;
            Ok(events.iter().any(|event| {
                let about = event.regarding.as_ref().and_then(|about| about.name.as_deref());
                event.reason.as_deref() == Some("RevocationPending")
                    && about.is_some_and(|work| work.starts_with("p-"))
                    && event.note.as_deref().is_some_and(|note| note.contains(&words))
            }))
        })
        .await?;
    }
    ensure!(!may(&client, "alice", "get", "one").await?);
    finalizer(&bindings, Value::Null).await?;
    finalizer(&roles, Value::Null).await?;
    wait::until_true("both are gone", || async {
        Ok(bindings.get_opt("p").await?.is_none() && roles.get_opt("p").await?.is_none())
    })
    .await
    .context("what was held up")
}

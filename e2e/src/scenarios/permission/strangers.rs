//! What others may write on the managed cluster, and must not gain by it.

use anyhow::{Result, ensure};
use k8s_openapi::api::rbac::v1::{ClusterRole, Role, RoleBinding};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    overlap::{labelled, selector},
    support::{allowed, cluster_role, condition, delete, may, permission, pods, spoke, start, user},
};
use crate::Fleet;

/// A role of the permission's name is somebody else's: it is left alone, and nobody gets what it says.
pub async fn roles(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let client = spoke(&fleet).await?;
    for name in ["one", "two"] {
        labelled(&client, name).await?;
    }
    let wide: Api<ClusterRole> = Api::all(client.clone());
    let here: Api<Role> = Api::namespaced(client.clone(), "one");
    let theirs = json!({"metadata": {"name": "p"}, "rules": pods("*")});
    wide.create(&PostParams::default(), &serde_json::from_value(theirs.clone())?)
        .await?;
    here.create(&PostParams::default(), &serde_json::from_value(theirs)?)
        .await?;
    let spec = json!({
        "clusterRole": {"rules": pods("get")},
        "clusterRoleBinding": {"subject": user("wanda")},
        "roles": [{"namespaceSelector": selector(), "rules": pods("get")}],
        "roleBindings": [
            {"namespaceSelector": selector(), "roleRef": {"kind": "Role"}, "subject": user("sam")},
            {"namespaceSelector": selector(), "name": "wide", "roleRef": {"kind": "ClusterRole"}, "subject": user("wim")},
        ],
    });
    permission(&fleet, "p", spec).await?;
    // Where there is no stranger's, all is as it should be, so everything has been looked at.
    allowed(&fleet, "sam", "get", "two", true).await?;
    condition(&fleet, "p", "Ready", "False", "ClusterRole p").await?;
    for (who, namespace) in [("wanda", ""), ("wim", "one"), ("wim", "two"), ("sam", "one")] {
        ensure!(
            !may(&client, who, "delete", namespace).await?,
            "{who} got a stranger's rights"
        );
        ensure!(
            !may(&client, who, "get", namespace).await?,
            "{who} got a stranger's rights"
        );
    }
    wide.delete("p", &DeleteParams::default()).await?;
    here.delete("p", &DeleteParams::default()).await?;
    for (who, namespace) in [("wanda", ""), ("wim", "two"), ("sam", "one")] {
        allowed(&fleet, who, "get", namespace, true).await?;
    }
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    ensure!(!may(&client, "wanda", "delete", "").await?);
    Ok(())
}

/// A role and what binds it come in different forms, one by the name of a namespace and one by a selector: a stranger's role
/// is not bound either.
pub async fn roles_in_other_forms(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let client = spoke(&fleet).await?;
    for name in ["one", "two"] {
        labelled(&client, name).await?;
    }
    let here: Api<Role> = Api::namespaced(client.clone(), "one");
    for name in ["p", "q"] {
        let theirs = json!({"metadata": {"name": name}, "rules": pods("*")});
        here.create(&PostParams::default(), &serde_json::from_value(theirs)?)
            .await?;
    }
    let selected = |what: Value| with(what, "namespaceSelector", selector());
    let named = |what: Value, namespace: &str| with(what, "namespace", json!(namespace));
    let role = json!({"rules": pods("get")});
    let binding = |who: &str| json!({"roleRef": {"kind": "Role"}, "subject": user(who)});
    let places = ["one", "two"];
    permission(
        &fleet,
        "p",
        json!({
            "roles": places.map(|place| named(role.clone(), place)),
            "roleBindings": [selected(binding("sam"))],
        }),
    )
    .await?;
    permission(
        &fleet,
        "q",
        json!({
            "roles": [selected(role.clone())],
            "roleBindings": places.map(|place| named(binding("nina"), place)),
        }),
    )
    .await?;
    for (name, who, said) in [("p", "sam", "left alone"), ("q", "nina", "held back")] {
        allowed(&fleet, who, "get", "two", true).await?;
        condition(&fleet, name, "Ready", "False", said).await?;
        ensure!(
            !may(&client, who, "get", "one").await?,
            "{who} got a stranger's rights"
        );
        here.delete(name, &DeleteParams::default()).await?;
        allowed(&fleet, who, "get", "one", true).await?;
        condition(&fleet, name, "Ready", "True", "Granted").await?;
        ensure!(!may(&client, who, "delete", "one").await?);
    }
    Ok(())
}

fn with(mut object: Value, key: &str, value: Value) -> Value {
    if let Some(object) = object.as_object_mut() {
        object.insert(key.into(), value);
    }
    object
}

/// An owner that cannot exist is written into a binding: it neither keeps it nor holds up what else is wanted there.
pub async fn forged_owner(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let client = spoke(&fleet).await?;
    labelled(&client, "one").await?;
    let spec = |name: &str, who: &str, place: Value| {
        let mut binding = json!({"name": name, "roleRef": cluster_role("view"), "subject": user(who)});
        if let (Some(binding), Value::Object(place)) = (binding.as_object_mut(), place) {
            binding.extend(place);
        }
        json!({ "roleBindings": [binding] })
    };
    permission(
        &fleet,
        "p",
        spec("selected", "alice", json!({"namespaceSelector": selector()})),
    )
    .await?;
    permission(&fleet, "q", spec("named", "bob", json!({"namespace": "one"}))).await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    allowed(&fleet, "bob", "get", "one", true).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client, "one");
    for name in ["selected", "named"] {
        for (group, kind) in [
            ("work.open-cluster-management.io/v9", "AppliedManifestWork"),
            ("writ.dev/v9", "NamespaceGrant"),
        ] {
            let owner = json!({"apiVersion": group, "kind": kind, "name": "a<b", "uid": "11111111-1111-1111-1111-111111111111"});
            let patch = json!([{"op": "add", "path": "/metadata/ownerReferences/-", "value": owner}]);
            bindings
                .patch(
                    name,
                    &PatchParams::default(),
                    &Patch::Json::<()>(serde_json::from_value(patch)?),
                )
                .await?;
        }
    }
    permission(
        &fleet,
        "r",
        spec("third", "carol", json!({"namespaceSelector": selector()})),
    )
    .await?;
    allowed(&fleet, "carol", "get", "one", true).await?;
    for (name, who) in [("p", "alice"), ("q", "bob")] {
        delete(&fleet, name).await?;
        allowed(&fleet, who, "get", "one", false).await?;
    }
    Ok(())
}

/// What a selector granted and cannot be taken away is told until it is: nobody calls that Ready.
pub async fn held_entry(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let client = spoke(&fleet).await?;
    for name in ["one", "two"] {
        labelled(&client, name).await?;
    }
    let stays =
        json!({"namespace": "two", "name": "stays", "roleRef": cluster_role("view"), "subject": user("bob")});
    let goes = json!({"namespaceSelector": selector(), "name": "goes", "roleRef": cluster_role("view"), "subject": user("alice")});
    permission(&fleet, "p", json!({"roleBindings": [stays, goes]})).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    allowed(&fleet, "alice", "get", "one", true).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client, "one");
    let finalizers = async |names: Value| {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": names}}));
        bindings.patch("goes", &PatchParams::default(), &patch).await
    };
    finalizers(json!(["example.com/keep"])).await?;

    // The whole entry leaves the spec, and with it the grant that would tell what is left of it.
    permission(&fleet, "p", json!({"roleBindings": [stays]})).await?;
    for namespace in ["one", "two"] {
        allowed(&fleet, "alice", "get", namespace, false).await?;
    }
    condition(&fleet, "p", "Ready", "False", "RevocationPending").await?;
    condition(&fleet, "p", "Ready", "False", "still there: namespacegrants").await?;
    finalizers(Value::Null).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    ensure!(bindings.get_opt("goes").await?.is_none());
    Ok(())
}

/// A binding that is held back from now on does not go on granting, and comes back by itself when the stranger's role goes.
pub async fn held_back(fleet: Fleet) -> Result<()> {
    let _parts = start(&fleet).await?;
    let client = spoke(&fleet).await?;
    labelled(&client, "one").await?;
    let here: Api<Role> = Api::namespaced(client.clone(), "one");
    let theirs = json!({"metadata": {"name": "p"}, "rules": pods("*")});
    here.create(&PostParams::default(), &serde_json::from_value(theirs)?)
        .await?;
    let binding = |who: &str| json!({"namespace": "one", "roleRef": {"kind": "Role"}, "subject": user(who)});
    permission(&fleet, "p", json!({"roleBindings": [binding("nina")]})).await?;
    allowed(&fleet, "nina", "delete", "one", true).await?;

    // Now the permission says what the role is, and that it is the permission's own.
    let role = json!({"namespaceSelector": selector(), "rules": pods("get")});
    permission(
        &fleet,
        "p",
        json!({"roles": [role], "roleBindings": [binding("nina")]}),
    )
    .await?;
    condition(&fleet, "p", "Ready", "False", "held back").await?;
    allowed(&fleet, "nina", "delete", "one", false).await?;
    here.delete("p", &DeleteParams::default()).await?;
    allowed(&fleet, "nina", "get", "one", true).await?;
    condition(&fleet, "p", "Ready", "True", "Granted").await?;
    ensure!(!may(&client, "nina", "delete", "one").await?);
    Ok(())
}

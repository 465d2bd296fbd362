//! Attacks on the gate by somebody who may write RBAC objects, but neither bind nor escalate.

use anyhow::{Result, ensure};
use k8s_openapi::api::{
    core::v1::Secret,
    rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding},
};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_agent::options::{ExecutorGranularity, WorkOptions};

use super::{
    executor::spec,
    support::{agent, change, condition, create, delete, manifest_condition, refused, spoke, works},
};
use crate::{Fleet, wait, yaml};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Account `default/a` may write every RBAC object and grant, and holds nothing but `get` on ConfigMaps. There is a
/// binding to cluster-admin, a role that grants all, and a NamespaceGrant of it.
const VICTIMS: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: rbac-writer}
rules:
- apiGroups: [rbac.authorization.k8s.io]
  resources: [roles, rolebindings, clusterroles, clusterrolebindings]
  verbs: [create, update, patch, get, delete]
- {apiGroups: [writ.dev], resources: [namespacegrants], verbs: [create, update, patch, get, delete]}
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: rbac-writer}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: rbac-writer}
subjects:
- {kind: ServiceAccount, name: a, namespace: default}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: harmless}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mighty}
rules:
- {apiGroups: ["*"], resources: ["*"], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: admins}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: mighty}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: root}
---
apiVersion: writ.dev/v1alpha1
kind: NamespaceGrant
metadata: {name: secrets}
spec:
  name: secrets
  namespaceSelector: {matchLabels: {nobody: has-this}}
  rules:
  - {apiGroups: [""], resources: [secrets], verbs: ["*"]}
"#;

/// Account `default/a` may also read what others only whisper.
const READER: &str = r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules:
- {apiGroups: ["", apiextensions.k8s.io], resources: ["*"], verbs: [create, update, patch, get, delete]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reader}
subjects:
- {kind: ServiceAccount, name: a, namespace: default}
"#;

/// What cannot be changed, only made anew: the type of a Secret, the role of a binding.
const THEIRS: &str = r"
apiVersion: v1
kind: Secret
metadata: {name: theirs, namespace: default}
type: Opaque
stringData: {key: theirs}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: theirs, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: root}
";

fn rbac(kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = json!({"apiVersion": format!("{GROUP}/v1"), "kind": kind, "metadata": {"name": name}});
    if !kind.starts_with("Cluster")
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".into(), "default".into());
    }
    if let (Some(object), Some(rest)) = (object.as_object_mut(), rest.as_object()) {
        object.extend(rest.clone());
    }
    object
}

fn binding(kind: &str, name: &str, role_kind: &str, role: &str) -> Value {
    rbac(
        kind,
        name,
        &json!({"roleRef": {"apiGroup": GROUP, "kind": role_kind, "name": role},
            "subjects": [{"kind": "ServiceAccount", "namespace": "default", "name": "a"}]}),
    )
}

/// Objects are merged: what the manifest leaves out stays as it is, and counts.
pub async fn merged(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    yaml::apply(&client, VICTIMS).await?;
    let ignoring = |object: Value, resource: &str| {
        let mut spec = spec("a", &json!([object]));
        if let Some(spec) = spec.as_object_mut() {
            spec.insert(
                "manifestConfigs".into(),
                json!([{"resourceIdentifier": {"group": GROUP, "resource": resource, "name": "*"},
                    "updateStrategy": {"type": "ServerSideApply", "serverSideApply": {"force": true,
                        "ignoreFields": [{"condition": "OnSpokePresent", "jsonPointers": ["/roleRef", "/rules"]}]}}}]),
            );
        }
        spec
    };
    let labels = json!({"metadata": {"name": "mighty", "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}}});
    let reach = json!({"apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "metadata": {"name": "secrets"},
        "spec": {"name": "secrets", "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}});
    let attacks = [
        (
            "role-ref",
            ignoring(
                binding("ClusterRoleBinding", "admins", "ClusterRole", "harmless"),
                "clusterrolebindings",
            ),
        ),
        (
            "rules",
            ignoring(rbac("ClusterRole", "mighty", &labels), "clusterroles"),
        ),
        (
            "labels",
            spec("a", &json!([rbac("ClusterRole", "mighty", &labels)])),
        ),
        (
            "aggregated",
            spec("a", &json!([rbac("ClusterRole", "view", &json!({"rules": []}))])),
        ),
        ("grant", spec("a", &json!([reach]))),
    ];
    for (name, spec) in attacks {
        create(&works, name, spec).await?;
        refused(&works, name, 0, &["permission escalation"]).await?;
    }
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let admins = bindings.get("admins").await?.subjects.unwrap_or_default();
    ensure!(admins.iter().all(|subject| subject.name == "root"), "{admins:?}");
    let roles: Api<ClusterRole> = Api::all(client.clone());
    ensure!(roles.get("mighty").await?.metadata.labels.is_none());
    // Once the role is harmless, the labels would be.
    for name in ["labels", "rules"] {
        delete(&works, name).await?;
    }

    // A role may be narrowed to what is held, and to nothing: what results is what counts.
    for rules in [
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]),
        json!([]),
    ] {
        let narrow = spec(
            "a",
            &json!([rbac("ClusterRole", "mighty", &json!({"rules": rules}))]),
        );
        let name = format!("narrow-{}", rules.as_array().map_or(0, Vec::len));
        create(&works, &name, narrow).await?;
        condition(&works, &name, "Applied", "True").await?;
        let live = roles.get("mighty").await?.rules.unwrap_or_default();
        ensure!(json!(live) == rules, "{live:?}");
        delete(&works, &name).await?;
        yaml::apply(&client, VICTIMS).await?;
    }
    Ok(())
}

/// A binding is not written before the role that it binds is there.
pub async fn dangling(fleet: Fleet) -> Result<()> {
    let options = writ_agent::Options {
        work: WorkOptions {
            executor_granularity: ExecutorGranularity::Manifest,
            ..WorkOptions::default()
        },
        ..writ_agent::Options::default()
    };
    let _agent = agent(&fleet, options).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    yaml::apply(&client, VICTIMS).await?;
    let bindings: Api<RoleBinding> = Api::namespaced(client.clone(), "default");
    let rules =
        |verbs: &[&str]| json!({"rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]});
    let pair = |name: &str, verbs: &[&str]| {
        json!([
            binding("RoleBinding", name, "Role", name),
            rbac("Role", name, &rules(verbs))
        ])
    };
    // The role is refused.
    create(&works, "refused", spec("a", &pair("refused", &["get", "list"]))).await?;
    condition(&works, "refused", "Applied", "False").await?;
    // The role is allowed, as it grants nothing; the server does not take it.
    create(&works, "invalid", spec("a", &pair("invalid", &[]))).await?;
    condition(&works, "invalid", "Applied", "False").await?;
    wait::until_true("the binding waits for its role", || async {
        let work = works.get("invalid").await?;
        Ok(manifest_condition(&work, 0, "Applied")?.1 == "AppliedManifestHeldBack")
    })
    .await?;
    // The role is only read.
    let mut read = spec("a", &pair("read", &["get"]));
    if let Some(read) = read.as_object_mut() {
        let id = json!({"group": GROUP, "resource": "roles", "namespace": "*", "name": "*"});
        let config = json!([{"resourceIdentifier": id, "updateStrategy": {"type": "ReadOnly"}}]);
        read.insert("manifestConfigs".into(), config);
    }
    create(&works, "read", read).await?;
    condition(&works, "read", "Applied", "False").await?;
    for name in ["refused", "invalid", "read"] {
        ensure!(bindings.get_opt(name).await?.is_none(), "{name} dangles");
    }
    // A role that fits makes the binding come at once; nobody touched the executor.
    let fitting: Role = serde_json::from_value(rbac("Role", "read", &rules(&["get"])))?;
    Api::<Role>::namespaced(client, "default")
        .create(&PostParams::default(), &fitting)
        .await?;
    condition(&works, "read", "Applied", "True").await?;
    // And a role that is mended lets its binding through.
    let patch = json!({"spec": {"workload": {"manifests": pair("invalid", &["get"])}}});
    change(&works, "invalid", patch).await?;
    condition(&works, "invalid", "Applied", "True").await?;
    bindings.get("invalid").await?;
    Ok(())
}

/// An executor that may not delete has nothing deleted, not even to make it anew.
pub async fn replaced(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    let grant = |verbs: &str| {
        format!(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: keeper}}
rules:
- {{apiGroups: [""], resources: [secrets], verbs: [{verbs}]}}
- {{apiGroups: [rbac.authorization.k8s.io], resources: [rolebindings], verbs: [{verbs}]}}
- {{apiGroups: [rbac.authorization.k8s.io], resources: [clusterroles], verbs: [bind]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: keeper}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: keeper}}
subjects:
- {{kind: ServiceAccount, name: a, namespace: default}}
"#
        )
    };
    yaml::apply(&client, &grant("create, update, patch, get")).await?;
    yaml::apply(&client, THEIRS).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs", "namespace": "default"},
        "type": "example.com/mine", "stringData": {"key": "mine"}});
    let (secrets, bindings): (Api<Secret>, Api<RoleBinding>) = (
        Api::namespaced(client.clone(), "default"),
        Api::namespaced(client.clone(), "default"),
    );
    let before = (
        secrets.get("theirs").await?.metadata.uid,
        bindings.get("theirs").await?.metadata.uid,
    );
    let manifests = json!([secret, binding("RoleBinding", "theirs", "ClusterRole", "edit")]);
    let mut orphan = spec("a", &manifests);
    if let Some(orphan) = orphan.as_object_mut() {
        orphan.insert("deleteOption".into(), json!({"propagationPolicy": "Orphan"}));
    }
    create(&works, "w", orphan).await?;
    let work = condition(&works, "w", "Applied", "False").await?;
    for ordinal in [0, 1] {
        let found = manifest_condition(&work, ordinal, "Applied")?;
        ensure!(found.1 == "AppliedManifestFailed", "{found:?}");
    }
    let after = (
        secrets.get("theirs").await?.metadata.uid,
        bindings.get("theirs").await?.metadata.uid,
    );
    ensure!(before == after, "something was deleted");
    // With the right to delete, and where the work owns it, it is made anew.
    yaml::apply(&client, &grant("create, update, patch, get, delete")).await?;
    change(&works, "w", json!({"spec": {"deleteOption": null}})).await?;
    condition(&works, "w", "Applied", "True").await?;
    ensure!(secrets.get("theirs").await?.metadata.uid != before.0);
    Ok(())
}

/// A name that is more than a name leads nowhere: neither to a list, nor to an object that was not judged.
pub async fn redirected(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    yaml::apply(&client, VICTIMS).await?;
    yaml::apply(&client, THEIRS).await?;
    yaml::apply(&client, READER).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(client.clone());
    let before = bindings.get("admins").await?.metadata.resource_version;
    let with = |manifests: Value, group: &str, resource: &str, strategy: &str| {
        let mut spec = spec("a", &manifests);
        let configs = json!([{
            "resourceIdentifier": {"group": group, "resource": resource, "namespace": "*", "name": "*"},
            "updateStrategy": {"type": strategy},
            "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "all", "path": ".items[*].data"}]}]}]);
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("manifestConfigs".into(), configs);
        }
        spec
    };
    let secret = |name: &str| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": "default", "name": name}});
    let evil = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "x.y"},
        "spec": {"group": "", "scope": "Cluster", "names": {"kind": "Evil", "plural": "namespaces/default"},
            "versions": [{"name": "v1", "served": true}]}});
    let through = json!({"apiVersion": "v1", "kind": "Evil", "metadata": {"name": "secrets"}});
    let captured = binding("ClusterRoleBinding", "admins?x", "ClusterRole", "harmless");
    for (name, spec) in [
        ("list", with(json!([secret("?")]), "", "secrets", "ReadOnly")),
        (
            "watch",
            with(json!([secret("?watch=1&x=1")]), "", "secrets", "ReadOnly"),
        ),
        (
            "plural",
            with(json!([through, evil]), "", "namespaces/default", "ReadOnly"),
        ),
        (
            "capture",
            with(json!([captured]), GROUP, "clusterrolebindings", "CreateOnly"),
        ),
    ] {
        create(&works, name, spec).await?;
        let texts = ["cannot be part of a URL", "doesn't have a resource type"];
        let work = refused(&works, name, 0, &texts).await?;
        let status = serde_json::to_string(&work.status)?;
        ensure!(!status.contains("dGhlaXJz"), "{name}: {status}");
        delete(&works, name).await?;
    }
    ensure!(bindings.get("admins").await?.metadata.resource_version == before);
    Ok(())
}

async fn role_is(client: &Client, name: &str, there: bool) -> Result<()> {
    let roles: Api<Role> = Api::namespaced(client.clone(), "default");
    wait::until_true(&format!("Role {name} is there: {there}"), || async {
        Ok(roles.get_opt(name).await?.is_some() == there)
    })
    .await
}

/// A role that the executor holds comes back when somebody deletes it, and does not once the executor holds it no more;
/// a NamespaceGrant needs the same in all namespaces.
pub async fn made_again(fleet: Fleet) -> Result<()> {
    let _agent = agent(&fleet, writ_agent::Options::default()).await?;
    let (works, client) = (works(&fleet).await?, spoke(&fleet).await?);
    yaml::apply(&client, VICTIMS).await?;
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let role = rbac("Role", "held", &json!({"rules": rules}));
    create(&works, "held", spec("a", &json!([role]))).await?;
    condition(&works, "held", "Applied", "True").await?;
    let grant = |rules: &Value| {
        json!({"apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "metadata": {"name": "readers"},
            "spec": {"name": "readers", "rules": rules,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-public"}}}})
    };
    create(&works, "grant", spec("a", &json!([grant(&rules)]))).await?;
    condition(&works, "grant", "Applied", "True").await?;
    let more = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]);
    change(
        &works,
        "grant",
        json!({"spec": {"workload": {"manifests": [grant(&more)]}}}),
    )
    .await?;
    condition(&works, "grant", "Applied", "False").await?;

    let live: Api<Role> = Api::namespaced(client.clone(), "default");
    live.delete("held", &DeleteParams::default()).await?;
    role_is(&client, "held", true).await?;
    condition(&works, "held", "Applied", "True").await?;
    // The executor loses what the role grants: the same role, deleted again, stays away.
    let cluster_roles: Api<ClusterRole> = Api::all(client.clone());
    let less = json!({"rules": [{"apiGroups": [GROUP], "resources": ["roles"],
        "verbs": ["create", "update", "patch", "get", "delete"]}]});
    cluster_roles
        .patch("rbac-writer", &PatchParams::default(), &Patch::Merge(&less))
        .await?;
    condition(&works, "held", "Applied", "False").await?;
    live.delete("held", &DeleteParams::default()).await?;
    wait::until_true("the work says that it is gone", || async {
        let work = works.get("held").await?;
        Ok(manifest_condition(&work, 0, "Available")?.0 == "False")
    })
    .await?;
    role_is(&client, "held", false).await
}

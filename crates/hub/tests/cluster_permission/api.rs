//! The API server takes every ClusterPermission that upstream's definition takes, and keeps every field.

use anyhow::{Result, ensure};
use kube::{
    Api, ResourceExt,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::{Value, json};
use writ_api::{
    rbac::ClusterPermission,
    writ::{NamespaceGrant, namespace_grant::NamespaceGrantSpec},
};
use writ_runtime::yaml;
use writ_testenv::{ControlPlane, Options};

use crate::support;

/// The design document's first example, as it stands there.
const SEED: &str = include_str!("seed.yaml");
/// The design document's second example, with a binding in the place of its dots.
const SEED_REFS: &str = include_str!("seed_refs.yaml");

pub async fn accepts() -> Result<()> {
    let plane = ControlPlane::start(Options {
        controllers: false,
        ..Options::default()
    })
    .await?;
    let client = plane.client()?;
    support::install(&client, [writ_api::rbac::crds(), writ_api::writ::crds()].concat()).await?;
    let resource = ApiResource::erase::<ClusterPermission>(&());
    let raw = Api::<DynamicObject>::namespaced_with(client.clone(), "default", &resource);
    let typed = Api::<ClusterPermission>::namespaced(client.clone(), "default");

    for (number, text) in [SEED, SEED_REFS].into_iter().enumerate() {
        let mut written: DynamicObject = yaml::from_str(text)?;
        written.metadata.namespace = Some("default".into());
        let stored = raw.create(&PostParams::default(), &written).await?;
        ensure!(
            stored.data["spec"] == written.data["spec"],
            "example {number} lost a field: {}",
            stored.data
        );
        let read = typed.get(&written.name_any()).await?;
        ensure!(
            serde_json::to_value(&read.spec)? == written.data["spec"],
            "our type lost a field of example {number}"
        );
    }

    let accepted = [
        ("no-spec", Value::Null),
        ("empty-spec", json!({})),
        ("everything", everything()),
        (
            "empty-names",
            json!({"roleBindings": [{"namespace": "a", "roleRef": {"kind": "Role", "apiGroup": "", "name": ""}, "subjects": []}]}),
        ),
        (
            "select-all",
            json!({"roles": [{"namespaceSelector": {}, "rules": [{"verbs": ["get"]}]}]}),
        ),
    ];
    for (name, spec) in accepted {
        let mut object = json!({"apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission", "metadata": {"name": name}});
        if !spec.is_null() {
            object["spec"] = spec.clone();
        }
        let stored = raw
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await?;
        let wanted = if spec.is_null() { json!({}) } else { spec };
        ensure!(
            stored.data["spec"] == wanted,
            "{name} was changed: {}",
            stored.data
        );
        typed.get(name).await?;
    }

    let user = json!({"kind": "User", "name": "a", "apiGroup": "rbac.authorization.k8s.io"});
    let refused = [
        (
            json!({"clusterRoleBinding": {}}),
            "Either subject or subjects has to exist in clusterRoleBinding",
        ),
        (
            json!({"clusterRoleBindings": [{"name": "x"}]}),
            "Either subject or subjects has to exist in every clusterRoleBinding",
        ),
        (
            json!({"roleBindings": [{"namespace": "a", "roleRef": {"kind": "Role"}}]}),
            "Either subject or subjects has to exist in every roleBinding",
        ),
        (
            json!({"roleBindings": [{"namespace": "a", "namespaceSelector": {}, "subject": user, "roleRef": {"kind": "Role"}}]}),
            "Exactly one of namespace and namespaceSelector has to exist in every roleBinding",
        ),
        (
            json!({"roles": [{"rules": []}]}),
            "Exactly one of namespace and namespaceSelector has to exist in every role",
        ),
        (
            json!({"roleRefs": [{"kind": "Role", "name": "x"}]}),
            "Every roleRef has to be a ClusterRole, or a Role with a namespace",
        ),
        (
            json!({"roleBindings": [{"namespace": "a", "subject": user}]}),
            "roleRef: Required value",
        ),
        (json!({"clusterRole": {}}), "rules: Required value"),
    ];
    for (spec, words) in refused {
        let object = json!({"apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission", "metadata": {"name": "bad"}, "spec": spec});
        let answer = raw
            .create(&PostParams::default(), &serde_json::from_value(object)?)
            .await;
        let Err(error) = answer else {
            anyhow::bail!("{spec} was taken");
        };
        ensure!(error.to_string().contains(words), "{spec}: {error}");
    }

    let grants = Api::<NamespaceGrant>::all(client);
    let refused = NamespaceGrant::new(
        "neither",
        NamespaceGrantSpec {
            name: "x".into(),
            ..NamespaceGrantSpec::default()
        },
    );
    let error = grants.create(&PostParams::default(), &refused).await.unwrap_err();
    ensure!(error.to_string().contains("exactly one of rules"), "{error}");
    Ok(())
}

/// Every field of the spec at once.
fn everything() -> Value {
    let rule = json!({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"], "verbs": ["get"]});
    let subject = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "alice"});
    let account = json!({"kind": "ServiceAccount", "name": "sa", "namespace": "ns"});
    let selector = json!({"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "c", "operator": "In", "values": ["d"]}]});
    json!({
        "validate": true,
        "clusterRole": {"rules": [rule, {"nonResourceURLs": ["/healthz"], "verbs": ["get"]}]},
        "clusterRoleBinding": {"name": "x", "subject": subject, "subjects": [account], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}},
        "clusterRoleBindings": [{"name": "y", "subject": subject, "subjects": [account]}],
        "roles": [{"namespace": "a", "rules": [rule]}, {"namespaceSelector": selector, "rules": [rule]}],
        "roleBindings": [
            {"name": "z", "namespace": "a", "subject": subject, "subjects": [account], "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}},
            {"namespaceSelector": selector, "subjects": [account], "roleRef": {"kind": "Role"}}
        ],
        "roleRefs": [
            {"kind": "Role", "name": "pod-reader", "namespace": "default", "apiGroup": "rbac.authorization.k8s.io"},
            {"kind": "ClusterRole", "name": "secret-reader"}
        ]
    })
}

//! Who may write what equals cluster-admin: nobody by default.

use std::fmt::Debug;

use anyhow::{Result, ensure};
use k8s_openapi::api::{core::v1::ConfigMap, rbac::v1::PolicyRule};
use kube::{
    Api, Resource,
    api::{ListParams, PostParams},
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use writ_api::{rbac::ClusterPermission, writ::NamespaceGrant};
use writ_authz::covers;

use crate::{Fleet, wait, yaml};

const ADMIN: &str = r"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: e2e-admin}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
subjects:
- {apiGroup: rbac.authorization.k8s.io, kind: User, name: alice}
";

/// The roles are all that `deploy/` installs; every namespace has the same admin.
pub async fn nobody(fleet: Fleet) -> Result<()> {
    shipped()?;
    fleet.hub.namespace("cluster1").await?;
    let permission = json!({"apiVersion": "rbac.open-cluster-management.io/v1alpha1", "kind": "ClusterPermission",
        "metadata": {"name": "mine", "namespace": "cluster1"}, "spec": {}});
    let grant = json!({"apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "metadata": {"name": "mine"},
        "spec": {"namespaceSelector": {}, "name": "mine", "rules": []}});
    for cluster in [&fleet.hub, fleet.cluster(1)?] {
        yaml::apply(&cluster.admin().await?, ADMIN).await?;
        let alice = cluster.user("alice", &["system:authenticated"]).await?;
        let maps: Api<ConfigMap> = Api::namespaced(alice.clone(), "default");
        wait::until_true("alice is an admin", || async {
            Ok(maps.list(&ListParams::default()).await.is_ok())
        })
        .await?;
        if cluster.name() == fleet.hub.name() {
            refused::<ClusterPermission>(Api::namespaced(alice, "cluster1"), &permission).await?;
        } else {
            refused::<NamespaceGrant>(Api::all(alice), &grant).await?;
        }
    }
    Ok(())
}

async fn refused<K>(api: Api<K>, object: &Value) -> Result<()>
where
    K: Resource + Clone + Debug + Serialize + DeserializeOwned,
{
    let object: K = serde_json::from_value(object.clone())?;
    let answer = api.create(&PostParams::default(), &object).await;
    ensure!(
        matches!(&answer, Err(kube::Error::Api(status)) if status.code == 403),
        "{answer:?}"
    );
    Ok(())
}

/// No role of `deploy/` becomes part of another, and none but the agent's can write a grant.
fn shipped() -> Result<()> {
    let mut count = 0;
    for folder in ["agent", "hub", "sync"] {
        for (file, text) in yaml::folder(folder) {
            for object in writ_runtime::yaml::documents::<Value>(&text)? {
                let Some(rules) = object.get("rules") else {
                    continue;
                };
                let name = object
                    .pointer("/metadata/name")
                    .and_then(Value::as_str)
                    .unwrap_or_default();
                let labels = object.pointer("/metadata/labels").and_then(Value::as_object);
                let aggregates = labels.is_some_and(|l| l.keys().any(|key| key.contains("aggregate-to")));
                ensure!(!aggregates, "{file}: {name} becomes part of another role");
                let rules: Vec<PolicyRule> = serde_json::from_value(rules.clone())?;
                let writes = ["create", "update", "patch"].iter().any(|verb| {
                    let write =
                        json!({"apiGroups": ["writ.dev"], "resources": ["namespacegrants"], "verbs": [verb]});
                    serde_json::from_value(write).is_ok_and(|write| covers(&rules, &[write]).is_empty())
                });
                ensure!(
                    !writes || folder == "agent",
                    "{file}: {name} may write NamespaceGrants"
                );
                count += 1;
            }
        }
    }
    ensure!(count > 10, "{count} roles were found");
    Ok(())
}

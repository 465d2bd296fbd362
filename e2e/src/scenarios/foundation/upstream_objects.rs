//! Objects that upstream's definitions accept, and what is stored of them.

use anyhow::{Context, Result, ensure};
use kube::{
    Api, Client, Resource,
    api::{ApiResource, DynamicObject, PostParams},
};
use serde_json::{Value, json};
use writ_api::{
    addon::ClusterManagementAddOn,
    configsync::{RepoSync, RootSync},
    kpt::ResourceGroup,
    rbac::ClusterPermission,
    work::{AppliedManifestWork, ManifestWork, ManifestWorkReplicaSet},
};

use crate::Fleet;

/// A `null`, as charts write them, is dropped unless upstream stores it; a spec that upstream lets somebody leave out
/// may be left out; what upstream refuses later, in a condition, is no reason to refuse it here.
pub async fn accepted(fleet: Fleet) -> Result<()> {
    let client = fleet.hub.admin().await?;
    fleet.hub.namespace("cluster1").await?;
    let permission = json!({"spec": {"clusterRole": null, "roles": [{
        "namespace": "default", "namespaceSelector": null,
        "rules": [{"apiGroups": [""], "resources": ["pods"], "resourceNames": null, "verbs": ["get"]}],
    }]}});
    let without_null = json!({"roles": [{
        "namespace": "default", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}],
    }]});
    stored::<ClusterPermission>(&client, "nulls", permission, without_null).await?;

    let nulls = json!({"spec": {"override": null, "git": null}});
    let kept = json!({"override": null, "sourceType": "git"});
    let filled = json!({"sourceType": "git"});
    stored::<RootSync>(&client, "nulls", nulls.clone(), kept.clone()).await?;
    stored::<RepoSync>(&client, "nulls", nulls, kept).await?;
    let source = json!({"sourceType": "helm", "helm": {
        "repo": "oci://charts", "chart": "web", "auth": "none", "secretRef": null, "caCertSecretRef": null,
        "valuesFileRefs": [{"dataKey": "values.yaml"}],
    }});
    stored::<RootSync>(&client, "chart", json!({"spec": source}), source.clone()).await?;
    stored::<RepoSync>(&client, "chart", json!({"spec": source}), source).await?;
    let long = "a-name-of-more-than-thirty-eight-characters";
    stored::<RootSync>(&client, long, json!({}), filled.clone()).await?;
    stored::<RepoSync>(&client, "bare", json!({}), filled).await?;
    let roles = json!({"sourceType": "git", "override": {"roleRefs": [{"kind": "Role", "name": ""}]}});
    stored::<RootSync>(&client, "roles", json!({"spec": roles}), roles).await?;

    stored::<ManifestWork>(&client, "bare", json!({}), json!({})).await?;
    stored::<ManifestWorkReplicaSet>(&client, "bare", json!({}), Value::Null).await?;
    stored::<AppliedManifestWork>(&client, "bare", json!({}), Value::Null).await?;
    stored::<ResourceGroup>(&client, "bare", json!({}), json!({})).await?;

    let installed =
        |placement: Value| json!({"installStrategy": {"type": "Placements", "placements": [placement]}});
    let asked = installed(json!({"namespace": "default", "name": "all"}));
    let filled =
        installed(json!({"namespace": "default", "name": "all", "rolloutStrategy": {"type": "All"}}));
    stored::<ClusterManagementAddOn>(&client, "rollout", json!({"spec": asked}), filled).await
}

/// Creates an object and compares its spec.
async fn stored<K>(client: &Client, name: &str, data: Value, wanted: Value) -> Result<()>
where
    K: Resource<DynamicType = ()>,
{
    let resource = ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = match resource.kind.as_str() {
        "AppliedManifestWork" | "ClusterManagementAddOn" => Api::all_with(client.clone(), &resource),
        _ => Api::namespaced_with(client.clone(), "cluster1", &resource),
    };
    let object = DynamicObject::new(name, &resource).data(data);
    let what = format!("{} {name}", resource.kind);
    let created = api
        .create(&PostParams::default(), &object)
        .await
        .with_context(|| what.clone())?;
    let spec = created.data.get("spec").unwrap_or(&Value::Null);
    ensure!(*spec == wanted, "{what}: the spec became {spec}, not {wanted}");
    Ok(())
}

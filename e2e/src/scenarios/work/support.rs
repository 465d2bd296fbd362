//! What the scenarios of works share.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};
use writ_api::work::{ManifestWork, ManifestWorkStatus};
use writ_controller::condition;

use crate::{Fleet, fleet::Running, wait, yaml};

/// Gives the agent of `cluster1` what registration gives it on the hub, and starts it.
pub async fn agent(fleet: &Fleet, mut options: writ_agent::Options) -> Result<Running> {
    accept(fleet, "cluster1").await?;
    // The other controllers need more on the hub than works do.
    if options.controllers.is_empty() {
        options.controllers = vec!["work".into()];
    }
    fleet.run_agent(1, options).await
}

/// What registration does on the hub when it accepts a cluster, as far as works go.
pub async fn accept(fleet: &Fleet, cluster: &str) -> Result<()> {
    fleet.hub.namespace(cluster).await?;
    let text = format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: "e2e:agent:work", namespace: {cluster}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "open-cluster-management:managedcluster:work"}}
subjects:
- {{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:open-cluster-management:{cluster}"}}
"#
    );
    yaml::apply(&fleet.hub.admin().await?, &text).await
}

/// The works of `cluster1`, as the hub's admin sees them.
pub async fn works(fleet: &Fleet) -> Result<Api<ManifestWork>> {
    Ok(Api::namespaced(fleet.hub.admin().await?, "cluster1"))
}

/// A client of `cluster1` with all rights.
pub async fn spoke(fleet: &Fleet) -> Result<Client> {
    fleet.cluster(1)?.admin().await
}

/// Creates a work with this spec.
pub async fn create(works: &Api<ManifestWork>, name: &str, spec: Value) -> Result<ManifestWork> {
    let work: ManifestWork = serde_json::from_value(json!({
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWork",
        "metadata": {"name": name},
        "spec": spec,
    }))?;
    Ok(works.create(&PostParams::default(), &work).await?)
}

/// Changes a work by a merge patch.
pub async fn change(works: &Api<ManifestWork>, name: &str, patch: Value) -> Result<ManifestWork> {
    Ok(works
        .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
        .await?)
}

/// Waits until the status of the current revision has this condition with this status.
pub async fn condition(
    works: &Api<ManifestWork>,
    name: &str,
    type_: &str,
    status: &str,
) -> Result<ManifestWork> {
    wait::until(&format!("{type_}={status} of work {name}"), || async {
        let work = works.get(name).await?;
        let found = status_of(&work).conditions.iter().any(|c| {
            c.type_ == type_ && c.status == status && c.observed_generation == work.metadata.generation
        });
        if !found {
            anyhow::bail!("the status is {:?}", work.status);
        }
        Ok(Some(work))
    })
    .await
}

/// The status of a work.
pub fn status_of(work: &ManifestWork) -> ManifestWorkStatus {
    work.status.clone().unwrap_or_default()
}

/// The condition of one manifest: status, reason and message.
pub fn manifest_condition(
    work: &ManifestWork,
    ordinal: usize,
    type_: &str,
) -> Result<(String, String, String)> {
    let status = status_of(work);
    let manifest = status
        .resource_status
        .manifests
        .get(ordinal)
        .with_context(|| format!("no manifest {ordinal}"))?;
    let found = condition::find(&manifest.conditions, type_).with_context(|| format!("no {type_}"))?;
    Ok((found.status.clone(), found.reason.clone(), found.message.clone()))
}

/// Waits until a manifest of the current revision is refused in one of these words. Before the API server has heard of all
/// that was just granted, a work may be refused in others.
pub async fn refused(
    works: &Api<ManifestWork>,
    name: &str,
    ordinal: usize,
    texts: &[&str],
) -> Result<ManifestWork> {
    wait::until(&format!("work {name} is refused with {texts:?}"), || async {
        let work = condition(works, name, "Applied", "False").await?;
        let (status, _, message) = manifest_condition(&work, ordinal, "Applied")?;
        if status != "False" || !texts.iter().any(|text| message.contains(text)) {
            anyhow::bail!("manifest {ordinal} is {status}: {message}");
        }
        Ok(Some(work))
    })
    .await
}

/// A ConfigMap as a manifest.
pub fn config_map(namespace: &str, name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": namespace, "name": name}, "data": {"key": value}})
}

/// The ConfigMaps of a namespace.
pub fn config_maps(client: &Client, namespace: &str) -> Api<ConfigMap> {
    Api::namespaced(client.clone(), namespace)
}

/// Waits until a ConfigMap holds this value.
pub async fn holds(api: &Api<ConfigMap>, name: &str, value: &str) -> Result<ConfigMap> {
    wait::until(&format!("ConfigMap {name} with {value}"), || async {
        let found = api.get_opt(name).await?;
        Ok(found.filter(|map| {
            map.data
                .as_ref()
                .and_then(|data| data.get("key"))
                .map(String::as_str)
                == Some(value)
        }))
    })
    .await
}

/// Waits until a ConfigMap is gone.
pub async fn gone(api: &Api<ConfigMap>, name: &str) -> Result<()> {
    wait::until_true(&format!("ConfigMap {name} is gone"), || async {
        Ok(api.get_opt(name).await?.is_none())
    })
    .await
}

/// Deletes a work and waits until it is gone.
pub async fn delete(works: &Api<ManifestWork>, name: &str) -> Result<()> {
    works.delete(name, &DeleteParams::default()).await?;
    wait::until_true(&format!("work {name} is gone"), || async {
        match works.get_opt(name).await? {
            None => Ok(true),
            Some(work) => anyhow::bail!("it still has {:?} and {:?}", work.finalizers(), work.status),
        }
    })
    .await
}

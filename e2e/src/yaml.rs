//! Applies YAML as `kubectl apply --server-side` would.

use anyhow::{Context, Result};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    discovery::Discovery,
};

/// Applies every document, in the order of the text.
pub async fn apply(client: &Client, text: &str) -> Result<()> {
    let objects: Vec<DynamicObject> = writ_runtime::yaml::documents(text)?;
    let discovery = Discovery::new(client.clone())
        .run()
        .await
        .context("discover what the server serves")?;
    for object in objects {
        let types = object
            .types
            .clone()
            .context("a document without apiVersion and kind")?;
        let name = object.name_any();
        let gvk = kube::core::GroupVersionKind::try_from(&types)?;
        let (resource, capabilities) = discovery
            .resolve_gvk(&gvk)
            .with_context(|| format!("the server has no {} {}", types.api_version, types.kind))?;
        let api: Api<DynamicObject> = match capabilities.scope {
            kube::discovery::Scope::Cluster => Api::all_with(client.clone(), &resource),
            kube::discovery::Scope::Namespaced => {
                let namespace = object.namespace().unwrap_or_else(|| "default".into());
                Api::namespaced_with(client.clone(), &namespace, &resource)
            }
        };
        api.patch(&name, &PatchParams::apply("e2e").force(), &Patch::Apply(&object))
            .await
            .with_context(|| format!("apply {} {name}", types.kind))?;
    }
    Ok(())
}

//! The manifests of `deploy/`, inside the binary, and how they are applied.

use anyhow::{Context, Result};
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    core::GroupVersionKind,
    discovery::{Discovery, Scope},
};
use rust_embed::RustEmbed;

/// Who applies manifests.
const MANAGER: &str = "writ";

#[derive(RustEmbed)]
#[folder = "../../deploy/"]
#[include = "*.yaml"]
struct Deploy;

/// The files of `deploy/<folder>`, by name, in order.
pub fn folder(folder: &str) -> Vec<(String, String)> {
    let prefix = format!("{folder}/");
    let mut names: Vec<_> = Deploy::iter().filter(|name| name.starts_with(&prefix)).collect();
    names.sort();
    names
        .into_iter()
        .filter_map(|name| {
            let text = String::from_utf8(Deploy::get(&name)?.data.into_owned()).ok()?;
            Some((name.into_owned(), text))
        })
        .collect()
}

/// Applies the files of `deploy/<folder>`, in order.
pub async fn apply_folder(client: &Client, name: &str) -> Result<()> {
    for (file, text) in folder(name) {
        apply(client, &text)
            .await
            .with_context(|| format!("apply deploy/{file}"))?;
    }
    Ok(())
}

/// Applies every document as `kubectl apply --server-side` would, in the order of the text.
pub async fn apply(client: &Client, text: &str) -> Result<()> {
    let objects: Vec<DynamicObject> = writ_runtime::yaml::documents(text)?;
    let discovery = Discovery::new(client.clone())
        .run_aggregated()
        .await
        .context("discover what the server serves")?;
    for object in objects {
        let types = object
            .types
            .clone()
            .context("a document without apiVersion and kind")?;
        let name = object.name_any();
        let (resource, capabilities) = discovery
            .resolve_gvk(&GroupVersionKind::try_from(&types)?)
            .with_context(|| format!("the server has no {} {}", types.api_version, types.kind))?;
        let api: Api<DynamicObject> = match capabilities.scope {
            Scope::Cluster => Api::all_with(client.clone(), &resource),
            Scope::Namespaced => {
                let namespace = object.namespace().unwrap_or_else(|| "default".into());
                Api::namespaced_with(client.clone(), &namespace, &resource)
            }
        };
        api.patch(
            &name,
            &PatchParams::apply(MANAGER).force(),
            &Patch::Apply(&object),
        )
        .await
        .with_context(|| format!("apply {} {name}", types.kind))?;
    }
    Ok(())
}

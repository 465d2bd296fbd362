//! The manifests of `deploy/`, inside the binary, and how they are applied.

use anyhow::{Context, Result};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
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
    let discovery = discover(client).await?;
    for (file, text) in folder(name) {
        apply_with(client, &discovery, &text)
            .await
            .with_context(|| format!("apply deploy/{file}"))?;
    }
    Ok(())
}

/// Applies every document as `kubectl apply --server-side` would, in the order of the text.
pub async fn apply(client: &Client, text: &str) -> Result<()> {
    let discovery = discover(client).await?;
    apply_with(client, &discovery, text).await
}

/// Deletes every document's object, the last one first; one that is not there is no error.
pub async fn delete(client: &Client, text: &str) -> Result<()> {
    let discovery = discover(client).await?;
    let mut objects: Vec<DynamicObject> = writ_runtime::yaml::documents(text)?;
    objects.reverse();
    for object in objects {
        let (api, kind) = api_of(client, &discovery, &object)?;
        let name = object.name_any();
        match api.delete(&name, &DeleteParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => {}
            answer => {
                answer.with_context(|| format!("delete {kind} {name}"))?;
            }
        }
    }
    Ok(())
}

async fn discover(client: &Client) -> Result<Discovery> {
    Discovery::new(client.clone())
        .run_aggregated()
        .await
        .context("discover what the server serves")
}

async fn apply_with(client: &Client, discovery: &Discovery, text: &str) -> Result<()> {
    let objects: Vec<DynamicObject> = writ_runtime::yaml::documents(text)?;
    for object in objects {
        let (api, kind) = api_of(client, discovery, &object)?;
        let name = object.name_any();
        api.patch(
            &name,
            &PatchParams::apply(MANAGER).force(),
            &Patch::Apply(&object),
        )
        .await
        .with_context(|| format!("apply {kind} {name}"))?;
    }
    Ok(())
}

/// Where an object lives, and its kind.
fn api_of(
    client: &Client,
    discovery: &Discovery,
    object: &DynamicObject,
) -> Result<(Api<DynamicObject>, String)> {
    let types = object
        .types
        .as_ref()
        .context("a document without apiVersion and kind")?;
    let (resource, capabilities) = discovery
        .resolve_gvk(&GroupVersionKind::try_from(types)?)
        .with_context(|| format!("the server has no {} {}", types.api_version, types.kind))?;
    let api = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.namespace().unwrap_or_else(|| "default".into());
            Api::namespaced_with(client.clone(), &namespace, &resource)
        }
    };
    Ok((api, types.kind.clone()))
}

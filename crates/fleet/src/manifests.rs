//! The manifests of `deploy/`, inside the binary, and how they are applied.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context, Result};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    core::{ApiResource, GroupVersionKind},
    discovery::{Discovery, Scope},
};
use rust_embed::RustEmbed;
use writ_runtime::yaml::documents;

use crate::wait;

/// The field manager.
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
///
/// They contain only kinds of Kubernetes itself, so that no discovery is needed.
pub async fn apply_folder(client: &Client, name: &str) -> Result<()> {
    for (file, objects) in parsed(name)?.iter() {
        for object in objects {
            let resource = ApiResource::from_gvk(&gvk(object)?);
            let api = match object.namespace() {
                Some(namespace) => Api::namespaced_with(client.clone(), &namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            patch(&api, object, &resource.kind)
                .await
                .with_context(|| format!("apply deploy/{file}"))?;
        }
    }
    Ok(())
}

/// The objects of a folder by file, in order.
type Parsed = Arc<[(String, Vec<DynamicObject>)]>;

/// The objects of `deploy/<folder>`, parsed once and applied to every cluster of a fleet.
fn parsed(name: &str) -> Result<Parsed> {
    static FOLDERS: Mutex<BTreeMap<String, Parsed>> = Mutex::new(BTreeMap::new());
    let mut folders = FOLDERS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = folders.get(name) {
        return Ok(found.clone());
    }
    let read = |(file, text): (String, String)| {
        let objects = documents(&text).with_context(|| format!("read deploy/{file}"))?;
        anyhow::Ok((file, objects))
    };
    let new: Parsed = folder(name).into_iter().map(read).collect::<Result<_>>()?;
    folders.insert(name.to_owned(), new.clone());
    Ok(new)
}

/// Applies every document as `kubectl apply --server-side` would, in the order of the text.
pub async fn apply(client: &Client, text: &str) -> Result<()> {
    let discovery = discover(client).await?;
    let objects: Vec<DynamicObject> = documents(text)?;
    for object in &objects {
        let (api, kind) = api_of(client, &discovery, object)?;
        patch(&api, object, &kind).await?;
    }
    Ok(())
}

async fn patch(api: &Api<DynamicObject>, object: &DynamicObject, kind: &str) -> Result<()> {
    let name = object.name_any();
    let params = PatchParams::apply(MANAGER).force();
    api.patch(&name, &params, &Patch::Apply(object))
        .await
        .with_context(|| format!("apply {kind} {name}"))?;
    Ok(())
}

/// Deletes the object of every document, the last one first. A missing object is no error.
pub async fn delete(client: &Client, text: &str) -> Result<()> {
    let discovery = discover(client).await?;
    let objects: Vec<DynamicObject> = documents(text)?;
    for object in objects.iter().rev() {
        let (api, kind) = api_of(client, &discovery, object)?;
        remove(&api, &kind, &object.name_any()).await?;
    }
    Ok(())
}

/// The same, waiting for each object to be gone before the next is deleted: its finalizer may need the next one.
pub async fn delete_and_wait(client: &Client, text: &str) -> Result<()> {
    let discovery = discover(client).await?;
    let objects: Vec<DynamicObject> = documents(text)?;
    for object in objects.iter().rev() {
        let (api, kind) = api_of(client, &discovery, object)?;
        let name = object.name_any();
        remove(&api, &kind, &name).await?;
        wait::until_true(&format!("the end of {kind} {name}"), || async {
            Ok(api.get_metadata_opt(&name).await?.is_none())
        })
        .await?;
    }
    Ok(())
}

async fn remove(api: &Api<DynamicObject>, kind: &str, name: &str) -> Result<()> {
    match api.delete(name, &DeleteParams::default()).await {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        answer => answer.map(drop).with_context(|| format!("delete {kind} {name}")),
    }
}

async fn discover(client: &Client) -> Result<Discovery> {
    Discovery::new(client.clone())
        .run_aggregated()
        .await
        .context("discover what the server serves")
}

/// The API for an object, and its kind.
fn api_of(
    client: &Client,
    discovery: &Discovery,
    object: &DynamicObject,
) -> Result<(Api<DynamicObject>, String)> {
    let kind = gvk(object)?;
    let (resource, capabilities) = discovery
        .resolve_gvk(&kind)
        .with_context(|| format!("the server has no {} {}", kind.api_version(), kind.kind))?;
    let api = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => {
            let namespace = object.namespace().unwrap_or_else(|| "default".into());
            Api::namespaced_with(client.clone(), &namespace, &resource)
        }
    };
    Ok((api, kind.kind))
}

fn gvk(object: &DynamicObject) -> Result<GroupVersionKind> {
    let types = object
        .types
        .as_ref()
        .context("a document without apiVersion and kind")?;
    Ok(GroupVersionKind::try_from(types)?)
}

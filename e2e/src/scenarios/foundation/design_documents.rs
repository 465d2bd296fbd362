//! The examples of the design documents, on an API server.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, DynamicObject, PostParams},
    core::GroupVersionKind,
    discovery::{Discovery, Scope},
    runtime::wait::{await_condition, conditions},
};
use serde_json::Value;

use crate::{Fleet, wait};

/// Each is created, read back and compared: a field that the schema does not know would be gone.
pub async fn accepted(fleet: Fleet) -> Result<()> {
    for namespace in [
        "cluster1",
        "cluster-1",
        "config-management-system",
        "my-ns",
        "my-tenant-namespace",
    ] {
        fleet.hub.namespace(namespace).await?;
    }
    let client = fleet.hub.admin().await?;
    // A kind is served before the API server tells of it.
    let discovery = wait::until("every kind is told of", || async {
        let discovery = Discovery::new(client.clone()).run().await?;
        let told = writ_api::crds().iter().all(|crd| {
            let served = crd.spec.versions.iter().filter(|version| version.served);
            let mut kinds = served
                .map(|version| GroupVersionKind::gvk(&crd.spec.group, &version.name, &crd.spec.names.kind));
            kinds.all(|kind| discovery.resolve_gvk(&kind).is_some())
        });
        Ok(told.then_some(discovery))
    })
    .await?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/design");
    let mut files: Vec<_> = fs::read_dir(folder)?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.sort();
    let mut examples = 0;
    for file in files
        .iter()
        .filter(|file| file.extension().is_some_and(|e| e == "yaml"))
    {
        let text = fs::read_to_string(file)?;
        for object in writ_runtime::yaml::documents::<DynamicObject>(&text)? {
            create(&client, &discovery, &object)
                .await
                .with_context(|| file.display().to_string())?;
            examples += 1;
        }
    }
    ensure!(examples >= 22, "only {examples} examples were found");
    Ok(())
}

async fn create(client: &Client, discovery: &Discovery, object: &DynamicObject) -> Result<()> {
    let types = object.types.as_ref().context("no kind")?;
    let (resource, capabilities) = discovery
        .resolve_gvk(&GroupVersionKind::try_from(types)?)
        .with_context(|| types.kind.clone())?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(
            client.clone(),
            &object.namespace().context("no namespace")?,
            &resource,
        ),
    };
    let name = object.name_any();
    api.create(&PostParams::default(), object)
        .await
        .with_context(|| format!("create {} {name}", types.kind))?;
    let stored = api.get(&name).await?;
    for part in ["spec", "rules", "data"] {
        if let Some(wanted) = object.data.get(part) {
            let have = stored.data.get(part).unwrap_or(&Value::Null);
            ensure!(
                keeps(have, wanted),
                "{} {name}: {part} became {have}, not {wanted}",
                types.kind
            );
        }
    }
    // Several examples share a name: one goes before the next comes.
    api.delete(&name, &DeleteParams::default()).await?;
    await_condition(
        api,
        &name,
        conditions::is_deleted(&stored.uid().unwrap_or_default()),
    )
    .await?;
    Ok(())
}

/// Whether everything that was wanted is there; defaults may have been added.
fn keeps(have: &Value, wanted: &Value) -> bool {
    match (have, wanted) {
        (Value::Object(have), Value::Object(wanted)) => wanted
            .iter()
            .all(|(key, value)| have.get(key).is_some_and(|have| keeps(have, value))),
        (Value::Array(have), Value::Array(wanted)) => {
            have.len() == wanted.len() && have.iter().zip(wanted).all(|(have, wanted)| keeps(have, wanted))
        }
        (have, wanted) => have == wanted,
    }
}

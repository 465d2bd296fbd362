//! What the tests share: a hub with its definitions.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::PostParams,
    runtime::{conditions, wait::await_condition},
};

/// Installs every definition and waits until the server serves them.
pub async fn install(client: &Client, definitions: Vec<CustomResourceDefinition>) -> Result<()> {
    let api = Api::<CustomResourceDefinition>::all(client.clone());
    for definition in &definitions {
        let made = api.create(&PostParams::default(), definition).await;
        made.with_context(|| format!("install {}", definition.name_any()))?;
    }
    for definition in &definitions {
        let name = definition.name_any();
        let established = await_condition(api.clone(), &name, conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(20), established).await??;
        let live = api.get(&name).await?;
        let structural = live.status.iter().flat_map(|s| s.conditions.iter().flatten());
        ensure!(
            !structural
                .clone()
                .any(|c| c.type_ == "NonStructuralSchema" && c.status == "True"),
            "{name} is not structural"
        );
    }
    Ok(())
}

//! The definition of NamespaceGrant in the managed cluster.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, CustomResourceExt as _, ResourceExt as _,
    api::{Patch, PatchParams},
    runtime::wait::{await_condition, conditions},
};
use writ_api::writ::NamespaceGrant;
use writ_controller::{Error, error::Context as _};
use writ_process::crds;

use crate::MANAGER;

/// How long the API server may take to serve a new definition.
const ESTABLISH: Duration = Duration::from_secs(30);

/// Installs the definition, or brings it up to date.
pub async fn install(spoke: &Client) -> Result<(), Error> {
    let wanted = NamespaceGrant::crd();
    let name = wanted.name_any();
    let api: Api<CustomResourceDefinition> = Api::all(spoke.clone());
    let current = api
        .get_opt(&name)
        .await
        .context(|| format!("read CustomResourceDefinition {name}"))?;
    if current.is_none_or(|current| !crds::compare(&current, &wanted).is_empty()) {
        let params = PatchParams::apply(MANAGER).force();
        api.patch(&name, &params, &Patch::Apply(&wanted))
            .await
            .context(|| format!("install CustomResourceDefinition {name}"))?;
    }
    let failed = || format!("wait for CustomResourceDefinition {name}");
    let established = await_condition(api, &name, conditions::is_crd_established());
    match tokio::time::timeout(ESTABLISH, established).await {
        Ok(established) => established.map(drop).map_err(|error| Error::io(failed(), error)),
        Err(late) => Err(Error::io(failed(), late)),
    }
}

//! ManifestWorks: a valid spec, and a user who may act as the executor that it names.
//!
//! Both are checked whenever the spec changes, whatever part of it: otherwise whoever may change works could swap
//! the payload under an executor that is not theirs.

use std::sync::Arc;

use futures::FutureExt;
use kube::core::DynamicObject;
use serde_json::Value;
use writ_api::work::{MANIFEST_WORK_NAME_LIMIT, ManifestWorkSpec};
use writ_controller::Error;

use super::{
    Decision, Desk, Handler, Request, SPEC_CHANGES,
    executor::{self, Scope},
    manifests, webhook,
};

/// The row in the table of handlers.
pub const HANDLER: Handler = Handler {
    path: "/validate-work-open-cluster-management-io-v1-manifestwork",
    webhook: || {
        webhook(
            "manifestworkvalidators.admission.work.open-cluster-management.io",
            HANDLER.path,
            (writ_api::work::GROUP, "v1", "manifestworks"),
            &[SPEC_CHANGES],
        )
    },
    review: |desk, request| review(desk, request).boxed(),
};

async fn review(desk: Arc<Desk>, request: Request) -> Result<Decision, Error> {
    if unchanged(request.object.as_ref(), request.old_object.as_ref()) {
        return Ok(Decision::Allow);
    }
    let spec: ManifestWorkSpec = match parse(spec_of(request.object.as_ref())) {
        Ok(spec) => spec,
        Err(decision) => return Ok(decision),
    };
    let name = request
        .object
        .as_ref()
        .and_then(|object| object.metadata.name.as_deref());
    if let Some(long) = name.filter(|name| name.len() > MANIFEST_WORK_NAME_LIMIT) {
        return Ok(Decision::bad_request(format!(
            "metadata.name has {} characters, and no agent can record a work with more than \
             {MANIFEST_WORK_NAME_LIMIT}: give it a shorter one",
            long.len()
        )));
    }
    if let Err(problem) = manifests::check(&spec, desk.options.manifest_limit) {
        return Ok(Decision::bad_request(problem));
    }
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let old: Option<ManifestWorkSpec> =
        spec_of(request.old_object.as_ref()).and_then(|old| parse(Some(old)).ok());
    executor::check_change(
        &desk,
        &request.user_info,
        spec.executor.as_ref(),
        old.as_ref().map(|old| old.executor.as_ref()),
        Scope::Cluster(namespace),
    )
    .await
}

/// The spec of an object.
pub fn spec_of(object: Option<&DynamicObject>) -> Option<&Value> {
    object?.data.get("spec")
}

/// Whether a change leaves the spec as it was.
pub fn unchanged(new: Option<&DynamicObject>, old: Option<&DynamicObject>) -> bool {
    old.is_some() && spec_of(new) == spec_of(old)
}

/// Reads a spec, or says why it cannot be read.
pub fn parse<T: serde::de::DeserializeOwned>(spec: Option<&Value>) -> Result<T, Decision> {
    let spec = spec
        .cloned()
        .unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    serde_json::from_value(spec)
        .map_err(|error| Decision::bad_request(format!("the spec cannot be understood: {error}")))
}

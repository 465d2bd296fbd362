//! Claims that grow: only those of a class that allows it.

use serde_json::Value;

use super::request::text;
use super::{Operation, Rejection, Request, Source, classes};
use crate::quantity::Quantity;

/// Refuses to let a claim grow that cannot.
pub(super) fn validate(
    source: &dyn Source,
    request: &Request,
    object: Option<&Value>,
) -> Result<(), Rejection> {
    let claim = request.group.is_empty() && request.resource == "persistentvolumeclaims";
    if !claim || !request.subresource.is_empty() || request.operation != Operation::Update {
        return Ok(());
    }
    let (Some(old), Some(new)) = (&request.old_object, object) else {
        return Ok(());
    };
    let size = |claim: &Value| {
        Quantity::parse(text(claim, "/spec/resources/requests/storage")).unwrap_or(Quantity::ZERO)
    };
    if size(new) <= size(old) {
        return Ok(());
    }
    if text(old, "/status/phase") != "Bound" {
        return Err(request.forbidden("Only bound persistent volume claims can be expanded"));
    }
    let class = classes::of_claim(new);
    let found = source.get("storage.k8s.io", "storageclasses", "", class);
    let grows = found.is_some_and(|found| found.get("allowVolumeExpansion") == Some(&Value::Bool(true)));
    if grows && class == classes::of_claim(old) {
        return Ok(());
    }
    Err(request.forbidden(
        "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc must support resize",
    ))
}

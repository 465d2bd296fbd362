//! ManifestWorks: the spec is valid, and the requester may act as the executor that it names.
//!
//! Both are checked whenever any part of the spec changes: otherwise a user who may change works could replace the
//! payload under an executor that the user may not act as.

use futures::FutureExt as _;
use writ_api::work::{GROUP, MANIFEST_WORK_NAME_LIMIT, ManifestWorkSpec};
use writ_controller::Error;
use writ_process::admission::{
    Decision, Operation, Request, Rule, SPEC_CHANGES, Webhook, parse_spec, spec_of, spec_unchanged,
};

use super::{
    executor::{self, Scope},
    manifest_work_spec,
};
use crate::admission::context::AdmissionContext;

const NAME: &str = "manifestworkvalidators.admission.work.open-cluster-management.io";

/// Decides about works.
pub const WEBHOOK: Webhook<AdmissionContext> = Webhook {
    name: NAME,
    configuration: NAME,
    path: "/validate-work-open-cluster-management-io-v1-manifestwork",
    mutating: false,
    rule: Rule {
        group: GROUP,
        version: "v1",
        resources: &["manifestworks"],
        operations: &[Operation::Create, Operation::Update],
        scope: "*",
    },
    only_if: Some(SPEC_CHANGES),
    handler: |context, request| decide(context, request).boxed(),
};

async fn decide(context: AdmissionContext, request: Request) -> Result<Decision, Error> {
    if spec_unchanged(&request) {
        return Ok(Decision::ALLOW);
    }
    let spec: ManifestWorkSpec = match parse_spec(spec_of(request.object.as_ref())) {
        Ok(spec) => spec,
        Err(decision) => return Ok(decision),
    };
    let name = request
        .object
        .as_ref()
        .and_then(|object| object.metadata.name.as_deref());
    if let Some(long) = name.filter(|name| name.len() > MANIFEST_WORK_NAME_LIMIT) {
        return Ok(Decision::invalid(format!(
            "metadata.name has {} characters, and no agent can record a work with more than \
             {MANIFEST_WORK_NAME_LIMIT}: give it a shorter one",
            long.len()
        )));
    }
    if let Err(problem) = manifest_work_spec::check(&spec, context.options.admission.manifest_limit) {
        return Ok(Decision::invalid(problem));
    }
    let namespace = request.namespace.as_deref().unwrap_or_default();
    let old: Option<ManifestWorkSpec> =
        spec_of(request.old_object.as_ref()).and_then(|old| parse_spec(Some(old)).ok());
    executor::check_change(
        &context,
        &request.user_info,
        spec.executor.as_ref(),
        old.as_ref().map(|old| old.executor.as_ref()),
        Scope::Cluster(namespace),
    )
    .await
}

//! ManifestWorkReplicaSets: the same checks as for a ManifestWork, on all clusters at once.

use std::sync::Arc;

use futures::FutureExt;
use writ_api::work::ManifestWorkReplicaSetSpec;
use writ_controller::Error;

use super::{
    Decision, Desk, Handler, Request, SPEC_CHANGES,
    executor::{self, Scope},
    manifest_work::{parse, spec_of, unchanged},
    manifests, webhook,
};
use crate::replica_set::rollout;

/// The row in the table of handlers.
pub const HANDLER: Handler = Handler {
    path: "/validate-work-open-cluster-management-io-v1alpha1-manifestworkreplicaset",
    webhook: || {
        webhook(
            "manifestworkreplicasetvalidators.admission.work.open-cluster-management.io",
            HANDLER.path,
            (writ_api::work::GROUP, "v1alpha1", "manifestworkreplicasets"),
            &[SPEC_CHANGES],
        )
    },
    review: |desk, request| review(desk, request).boxed(),
};

async fn review(desk: Arc<Desk>, request: Request) -> Result<Decision, Error> {
    if unchanged(request.object.as_ref(), request.old_object.as_ref()) {
        return Ok(Decision::Allow);
    }
    let spec: ManifestWorkReplicaSetSpec = match parse(spec_of(request.object.as_ref())) {
        Ok(spec) => spec,
        Err(decision) => return Ok(decision),
    };
    let template = &spec.manifest_work_template;
    if let Err(problem) = manifests::check(template, desk.options.manifest_limit) {
        return Ok(Decision::bad_request(problem));
    }
    for (index, reference) in spec.placement_refs.iter().enumerate() {
        if let Some(mistake) = rollout::mistake(&reference.rollout_strategy) {
            return Ok(Decision::bad_request(format!(
                "spec.placementRefs[{index}].{mistake}"
            )));
        }
    }
    let old: Option<ManifestWorkReplicaSetSpec> =
        spec_of(request.old_object.as_ref()).and_then(|old| parse(Some(old)).ok());
    executor::check_change(
        &desk,
        &request.user_info,
        template.executor.as_ref(),
        old.as_ref()
            .map(|old| old.manifest_work_template.executor.as_ref()),
        Scope::Everywhere,
    )
    .await
}

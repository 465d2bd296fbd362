//! ManifestWorkReplicaSets: the checks of a ManifestWork, for all clusters at once.

use futures::FutureExt as _;
use writ_api::work::{GROUP, ManifestWorkReplicaSetSpec};
use writ_controller::Error;
use writ_process::admission::{
    Decision, Operation, Request, Rule, SPEC_CHANGES, Webhook, parse_spec, spec_of, spec_unchanged,
};

use super::{
    executor::{self, Scope},
    manifest_work_spec,
};
use crate::{admission::context::AdmissionContext, replica_set::rollout};

const NAME: &str = "manifestworkreplicasetvalidators.admission.work.open-cluster-management.io";

/// Decides about replica sets.
pub const WEBHOOK: Webhook<AdmissionContext> = Webhook {
    name: NAME,
    configuration: NAME,
    path: "/validate-work-open-cluster-management-io-v1alpha1-manifestworkreplicaset",
    mutating: false,
    rule: Rule {
        group: GROUP,
        version: "v1alpha1",
        resources: &["manifestworkreplicasets"],
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
    let spec: ManifestWorkReplicaSetSpec = match parse_spec(spec_of(request.object.as_ref())) {
        Ok(spec) => spec,
        Err(decision) => return Ok(decision),
    };
    let template = &spec.manifest_work_template;
    if let Err(problem) = manifest_work_spec::check(template, context.options.admission.manifest_limit) {
        return Ok(Decision::invalid(problem));
    }
    for (index, reference) in spec.placement_refs.iter().enumerate() {
        if let Some(mistake) = rollout::invalid_deadline(&reference.rollout_strategy) {
            return Ok(Decision::invalid(format!(
                "spec.placementRefs[{index}].{mistake}"
            )));
        }
    }
    let old: Option<ManifestWorkReplicaSetSpec> =
        spec_of(request.old_object.as_ref()).and_then(|old| parse_spec(Some(old)).ok());
    executor::check_change(
        &context,
        &request.user_info,
        template.executor.as_ref(),
        old.as_ref()
            .map(|old| old.manifest_work_template.executor.as_ref()),
        Scope::Everywhere,
    )
    .await
}

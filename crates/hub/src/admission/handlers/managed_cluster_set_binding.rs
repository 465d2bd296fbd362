//! ManagedClusterSetBindings: who may offer a set to the placements of a namespace.

use std::future::ready;

use futures::FutureExt as _;
use kube::ResourceExt;
use writ_api::cluster::ManagedClusterSetBinding;
use writ_controller::Error;
use writ_process::admission::{Decision, OldAndNew, Operation, Request, Requirement, Rule, Webhook};

use crate::admission::{
    context::{AdmissionContext, CLUSTERS_CONFIGURATION},
    requirement,
};

/// Decides about bindings.
pub const WEBHOOK: Webhook<AdmissionContext> = Webhook {
    name: "managedclustersetbindingvalidators.admission.cluster.open-cluster-management.io",
    configuration: CLUSTERS_CONFIGURATION,
    path: "/validate-cluster-open-cluster-management-io-v1beta2-managedclustersetbinding",
    mutating: false,
    rule: Rule {
        group: writ_api::cluster::GROUP,
        version: "*",
        resources: &["managedclustersetbindings"],
        operations: &[Operation::Create, Operation::Update],
        scope: "*",
    },
    only_if: None,
    handler: |_, request| ready(decide(&request)).boxed(),
};

fn decide(request: &Request) -> Result<Decision, Error> {
    let objects: OldAndNew<ManagedClusterSetBinding> = OldAndNew::of(request)?;
    let Some(new) = &objects.new else {
        return Ok(Decision::ALLOW);
    };
    let set = &new.spec.cluster_set;
    if new.name_any() != *set {
        return Ok(Decision::invalid(format!(
            "The ManagedClusterSetBinding must have the same name as the target ManagedClusterSet: {:?} is not {set:?}",
            new.name_any()
        )));
    }
    if objects.old.is_some() {
        return Ok(Decision::ALLOW);
    }
    let user = request.user_info.username.as_deref().unwrap_or_default();
    Ok(Decision::require(vec![Requirement::one(
        requirement::bind(set),
        format!("user {user:?} is not allowed to bind cluster set {set:?}"),
    )]))
}

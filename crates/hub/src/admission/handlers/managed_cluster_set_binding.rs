//! Admission of ManagedClusterSetBindings: who may offer a set to the placements of a namespace.

use kube::ResourceExt;
use writ_api::cluster::ManagedClusterSetBinding;

use super::access::{Access, Decision, Need, Requester};

/// Decides about a binding that is created (`old` is absent) or changed.
pub fn decide(
    user: &Requester,
    old: Option<&ManagedClusterSetBinding>,
    new: &ManagedClusterSetBinding,
) -> Decision {
    let set = &new.spec.cluster_set;
    if new.name_any() != *set {
        return Decision::invalid(format!(
            "The ManagedClusterSetBinding must have the same name as the target ManagedClusterSet: {:?} is not {set:?}",
            new.name_any()
        ));
    }
    if old.is_some() {
        return Decision::ALLOW;
    }
    Decision::needs(vec![Need::one(
        Access::bind(set),
        format!("user {:?} is not allowed to bind cluster set {set:?}", user.name),
    )])
}

//! Which certificate requests come from a cluster's agent, and which one is approved.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use writ_api::cluster::{ManagedCluster, managed_cluster::CONDITION_JOINED};
use writ_controller::condition;

use crate::{
    agent_identity::cluster_identity,
    csr::{self, ClientRequest, is_pending},
    registration::model::{
        ACCEPT_CSR_ANNOTATION, AGENT_USER_ANNOTATION, Choice, ISSUED_ANNOTATION, TAKEN_OVER_ANNOTATION,
    },
};

/// The organization that every agent may ask for besides its own.
pub const COMMON_GROUP: &str = "system:open-cluster-management:managed-clusters";

/// Reads the request of an agent for its own certificate. Everything about it must be exactly right for the cluster that its
/// label names.
pub fn read_agent_request(request: &CertificateSigningRequest) -> Result<ClientRequest, String> {
    let asked = csr::read(request)?;
    if asked.has_extensions {
        return Err("it asks for extensions".into());
    }
    let own_group = csr::cluster_group(&asked.cluster);
    let foreign = asked
        .groups
        .iter()
        .find(|g| **g != own_group && *g != COMMON_GROUP);
    if let Some(foreign) = foreign {
        return Err(format!("it asks for the organization {foreign:?}"));
    }
    if asked.groups.iter().filter(|g| **g == own_group).count() != 1 {
        return Err(format!("it does not ask for the organization {own_group:?}"));
    }
    if !csr::is_agent_user(&asked.user, &asked.cluster) {
        return Err(format!(
            "its common name {:?} is no agent of cluster {:?}",
            asked.user, asked.cluster
        ));
    }
    Ok(asked)
}

/// The pending requests of a cluster that are well-formed.
pub fn pending_requests<'a>(
    cluster: &str,
    requests: impl IntoIterator<Item = &'a CertificateSigningRequest>,
) -> Vec<ClientRequest> {
    requests
        .into_iter()
        .filter(|request| is_pending(request))
        .filter_map(|request| {
            read_agent_request(request)
                .inspect_err(
                    |why| tracing::info!(%cluster, request = %request.name_any(), %why, "not approved"),
                )
                .ok()
        })
        .collect()
}

/// The user of the agent that was let in for this very cluster, if that is on record. Only a name that an agent of this
/// cluster can have counts.
pub fn agent_user(cluster: &ManagedCluster) -> Option<&str> {
    let user = cluster.annotations().get(AGENT_USER_ANNOTATION)?;
    csr::is_agent_user(user, &cluster.name_any()).then_some(user)
}

/// Returns true if the hub itself let an agent in for this very cluster, so that it may renew its certificate. A report of
/// the agent is not enough: see [`TAKEN_OVER_ANNOTATION`].
pub fn may_renew(cluster: &ManagedCluster) -> bool {
    let annotations = cluster.annotations();
    annotations.contains_key(ISSUED_ANNOTATION)
        || annotations
            .get(TAKEN_OVER_ANNOTATION)
            .is_some_and(|value| value == "true")
}

/// The request that an operator approved by hand for the first agent of this very cluster, where none is on record.
pub fn approved_by_hand<'a>(
    cluster: &ManagedCluster,
    requests: impl IntoIterator<Item = &'a CertificateSigningRequest>,
) -> Option<ClientRequest> {
    // An explicit choice comes first.
    if may_renew(cluster) || cluster.annotations().contains_key(ACCEPT_CSR_ANNOTATION) {
        return None;
    }
    let since = cluster.metadata.creation_timestamp.as_ref();
    let approved = |request: &&CertificateSigningRequest| {
        let mut conditions = request.status.iter().flat_map(|s| s.conditions.iter().flatten());
        request.metadata.creation_timestamp.as_ref() >= since && conditions.any(|c| c.type_ == "Approved")
    };
    let mut asked = requests
        .into_iter()
        .filter(approved)
        .filter_map(|r| read_agent_request(r).ok());
    asked.find(|asked| !asked.is_renewal() && cluster_identity(&asked.requester).is_none())
}

/// Returns true if an agent has come in, or reports so: no other is let in automatically.
pub fn has_agent(cluster: &ManagedCluster) -> bool {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
    cluster.annotations().contains_key(ISSUED_ANNOTATION)
        || conditions.is_some_and(|conditions| condition::is_true(conditions, CONDITION_JOINED))
}

/// Chooses among the pending requests of a cluster. Requests that agents of clusters sent are no candidates: an agent never
/// asks for another.
pub fn choose(cluster: &ManagedCluster, pending: &[ClientRequest]) -> Choice {
    if !cluster.spec.hub_accepts_client || cluster.metadata.deletion_timestamp.is_some() {
        return Choice::Nothing;
    }
    let candidates: Vec<&ClientRequest> = pending
        .iter()
        .filter(|asked| !asked.is_renewal() && cluster_identity(&asked.requester).is_none())
        .collect();
    let annotation = |key: &str| cluster.annotations().get(key);
    let named = |id: Option<&String>| candidates.iter().find(|asked| Some(&asked.id) == id);
    if let Some(asked) = named(annotation(ISSUED_ANNOTATION)) {
        return Choice::Approve(asked.id.clone());
    }
    // The operator named a request. It may not have been seen here yet, or be gone: no other may take its place.
    if let Some(chosen) = annotation(ACCEPT_CSR_ANNOTATION) {
        return named(Some(chosen)).map_or(Choice::Nothing, |asked| Choice::Record(asked.id.clone()));
    }
    // A cluster with an agent gets no other one automatically, however the first came in.
    if has_agent(cluster) {
        return Choice::Nothing;
    }
    match candidates.as_slice() {
        [] => Choice::Nothing,
        [only] => Choice::Record(only.id.clone()),
        several => Choice::Ambiguous(several.iter().map(|asked| asked.id.clone()).collect()),
    }
}

//! Pure: which certificate requests are a cluster's, and which one is approved.

use std::fmt::Write;

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use sha2::{Digest, Sha256};
use writ_api::cluster::{CLUSTER_NAME_LABEL, ManagedCluster, managed_cluster::CONDITION_JOINED};
use writ_controller::condition;
use x509_parser::{certification_request::X509CertificationRequest, prelude::FromDer};

use super::{ACCEPT_CSR_ANNOTATION, AGENT_USER_ANNOTATION, ISSUED_ANNOTATION, TAKEN_OVER_ANNOTATION};
use crate::{
    admission::access::{Requester, cluster_identity},
    pem,
};

/// The signer of client certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The organization that every agent may ask for besides its own.
pub const COMMON_GROUP: &str = "system:open-cluster-management:managed-clusters";
const USAGES: [&str; 3] = ["client auth", "digital signature", "key encipherment"];

/// A certificate request that is well-formed for one cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The name of the request and its uid, as [`ACCEPT_CSR_ANNOTATION`] spells it.
    pub id: String,
    /// The cluster.
    pub cluster: String,
    /// The user that the certificate would be for.
    pub user: String,
    /// Who asks.
    pub requester: Requester,
    /// SHA-256 of the public key, for a person to compare.
    pub fingerprint: String,
}

impl Asked {
    /// Whether the agent renews its own certificate.
    pub fn is_renewal(&self) -> bool {
        self.requester.name == self.user
    }
}

/// Reads a request. Everything about it must be exactly right for the cluster that its label names.
pub fn recognise(request: &CertificateSigningRequest) -> Result<Asked, String> {
    let cluster = request
        .labels()
        .get(CLUSTER_NAME_LABEL)
        .ok_or_else(|| format!("it has no label {CLUSTER_NAME_LABEL}"))?;
    let spec = &request.spec;
    if spec.signer_name != SIGNER {
        return Err(format!("its signer is {:?}, not {SIGNER:?}", spec.signer_name));
    }
    let usages: Vec<&str> = spec.usages.iter().flatten().map(String::as_str).collect();
    if !usages.contains(&"client auth") || usages.iter().any(|usage| !USAGES.contains(usage)) {
        return Err(format!("its usages are {usages:?}"));
    }
    let der = pem::certificate_request(&spec.request.0)?;
    let (rest, parsed) = X509CertificationRequest::from_der(&der)
        .map_err(|e| format!("it holds no certificate request: {e}"))?;
    if !rest.is_empty() {
        return Err("it holds more than a certificate request".into());
    }
    if parsed
        .requested_extensions()
        .is_some_and(|mut e| e.next().is_some())
    {
        return Err("it asks for extensions".into());
    }
    let subject = &parsed.certification_request_info.subject;
    let one = |value: &x509_parser::x509::AttributeTypeAndValue| value.as_str().map(str::to_owned).ok();
    let names: Vec<_> = subject.iter_common_name().map(one).collect();
    let [Some(user)] = names.as_slice() else {
        return Err("it has not exactly one common name".into());
    };
    let own_group = format!("system:open-cluster-management:{cluster}");
    let groups: Option<Vec<String>> = subject.iter_organization().map(one).collect();
    let groups = groups.ok_or("an organization is no text")?;
    let foreign = groups.iter().find(|g| **g != own_group && *g != COMMON_GROUP);
    if let Some(foreign) = foreign {
        return Err(format!("it asks for the organization {foreign:?}"));
    }
    if groups.iter().filter(|g| **g == own_group).count() != 1 {
        return Err(format!("it does not ask for the organization {own_group:?}"));
    }
    if subject.iter_attributes().count() != groups.len() + 1 {
        return Err("its subject has more than a common name and organizations".into());
    }
    let agent = user
        .strip_prefix(&own_group)
        .and_then(|rest| rest.strip_prefix(':'));
    if agent.is_none_or(|agent| agent.is_empty() || agent.contains(':')) {
        return Err(format!(
            "its common name {user:?} is no agent of cluster {cluster:?}"
        ));
    }
    let key = Sha256::digest(parsed.certification_request_info.subject_pki.raw);
    Ok(Asked {
        id: format!("{}@{}", request.name_any(), request.uid().unwrap_or_default()),
        cluster: cluster.clone(),
        user: user.clone(),
        requester: Requester {
            name: spec.username.clone().unwrap_or_default(),
            groups: spec.groups.clone().unwrap_or_default(),
        },
        fingerprint: key.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }),
    })
}

/// Whether nobody has decided about the request yet.
pub fn is_pending(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().is_none_or(|status| {
        status.certificate.is_none() && status.conditions.as_ref().is_none_or(Vec::is_empty)
    })
}

/// Those of a cluster's requests that nobody decided about and that are well-formed.
pub fn pending<'a>(
    cluster: &str,
    requests: impl IntoIterator<Item = &'a CertificateSigningRequest>,
) -> Vec<Asked> {
    let undecided = requests.into_iter().filter(|request| is_pending(request));
    undecided
        .filter_map(|request| {
            recognise(request)
                .inspect_err(
                    |why| tracing::info!(%cluster, request = %request.name_any(), %why, "not approved"),
                )
                .ok()
        })
        .collect()
}

/// What to do about the pending requests of a cluster that did not come from its own agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Nothing: there is none, or it needs a person.
    Nothing,
    /// Write [`ISSUED_ANNOTATION`], so that no other is ever chosen by itself.
    Record(String),
    /// Approve this one.
    Approve(String),
    /// Several match; a person has to pick one.
    Ambiguous(Vec<String>),
}

/// The user of the agent that was let in for this very cluster, if that is on record. Only a name that an agent of this
/// cluster can have counts.
pub fn agent_user(cluster: &ManagedCluster) -> Option<&str> {
    let user = cluster.annotations().get(AGENT_USER_ANNOTATION)?;
    let of_cluster = format!("system:open-cluster-management:{}:", cluster.name_any());
    let agent = user.strip_prefix(&of_cluster)?;
    (!agent.is_empty() && !agent.contains(':')).then_some(user)
}

/// Whether an agent has come in for this very cluster as far as the hub knows itself, so that it may renew its
/// certificate. What an agent reports is not enough: see [`TAKEN_OVER_ANNOTATION`].
pub fn may_renew(cluster: &ManagedCluster) -> bool {
    let annotations = cluster.annotations();
    annotations.contains_key(ISSUED_ANNOTATION)
        || annotations
            .get(TAKEN_OVER_ANNOTATION)
            .is_some_and(|value| value == "true")
}

/// The request that somebody approved by hand for the first agent of this very cluster, where none is on record.
pub fn approved_by_hand<'a>(
    cluster: &ManagedCluster,
    requests: impl IntoIterator<Item = &'a CertificateSigningRequest>,
) -> Option<Asked> {
    // Whom a person chose comes first.
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
        .filter_map(|r| recognise(r).ok());
    asked.find(|asked| !asked.is_renewal() && cluster_identity(&asked.requester).is_none())
}

/// Whether an agent has come in, or says so: no other one is let in by itself.
pub fn has_agent(cluster: &ManagedCluster) -> bool {
    let conditions = cluster.status.as_ref().map(|status| status.conditions.as_slice());
    cluster.annotations().contains_key(ISSUED_ANNOTATION)
        || conditions.is_some_and(|conditions| condition::is_true(conditions, CONDITION_JOINED))
}

/// Chooses among the pending requests of a cluster. The agents of clusters never ask for others.
pub fn choose(cluster: &ManagedCluster, pending: &[Asked]) -> Choice {
    if !cluster.spec.hub_accepts_client || cluster.metadata.deletion_timestamp.is_some() {
        return Choice::Nothing;
    }
    let candidates: Vec<&Asked> = pending
        .iter()
        .filter(|asked| !asked.is_renewal() && cluster_identity(&asked.requester).is_none())
        .collect();
    let annotation = |key: &str| cluster.annotations().get(key);
    let named = |id: Option<&String>| candidates.iter().find(|asked| Some(&asked.id) == id);
    if let Some(asked) = named(annotation(ISSUED_ANNOTATION)) {
        return Choice::Approve(asked.id.clone());
    }
    // Whoever accepted named one. It may not have been seen here yet, or be gone: another one is not what was meant.
    if let Some(chosen) = annotation(ACCEPT_CSR_ANNOTATION) {
        return named(Some(chosen)).map_or(Choice::Nothing, |asked| Choice::Record(asked.id.clone()));
    }
    // Whoever has an agent gets no other one by itself, however that one came in.
    if has_agent(cluster) {
        return Choice::Nothing;
    }
    match candidates.as_slice() {
        [] => Choice::Nothing,
        [only] => Choice::Record(only.id.clone()),
        several => Choice::Ambiguous(several.iter().map(|asked| asked.id.clone()).collect()),
    }
}

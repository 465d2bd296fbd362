//! Which requests for the certificate of the add-on's agent are granted.

use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::ResourceExt;
use writ_api::cluster::CLUSTER_NAME_LABEL;
use x509_parser::{
    certification_request::X509CertificationRequest,
    prelude::{FromDer, X509Name},
};

use super::{addon::SIGNER, rights};
use crate::pem;

/// Why a request for the add-on's credential is not granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denied(pub &'static str);

/// The cluster for which this request asks for the add-on's credential, if it may have it: exactly the user, the
/// group, the signer and the usages that the registration names, asked for by exactly that cluster's agent.
pub fn may_approve(csr: &CertificateSigningRequest) -> Result<String, Denied> {
    let cluster = csr
        .labels()
        .get(CLUSTER_NAME_LABEL)
        .ok_or(Denied("it names no cluster"))?;
    let spec = &csr.spec;
    if spec.signer_name != SIGNER {
        return Err(Denied("it asks another signer"));
    }
    let group = rights::cluster_group(cluster);
    let by_its_agent = spec
        .username
        .as_deref()
        .and_then(|user| user.strip_prefix(&group)?.strip_prefix(':'))
        .is_some_and(|agent| !agent.is_empty() && !agent.contains(':'));
    if !by_its_agent || !spec.groups.iter().flatten().any(|g| *g == group) {
        return Err(Denied("it was not made by the agent of its cluster"));
    }
    let allowed = ["digital signature", "key encipherment", "client auth"];
    let usages = spec.usages.as_deref().unwrap_or_default();
    if !usages.iter().any(|usage| usage == "client auth")
        || usages.iter().any(|usage| !allowed.contains(&usage.as_str()))
    {
        return Err(Denied("it asks for other usages than a client's"));
    }
    let (common_name, organizations, attributes) =
        subject(&spec.request.0).ok_or(Denied("it is not a certificate request"))?;
    if common_name != rights::addon_user(cluster) {
        return Err(Denied("it asks for another user"));
    }
    if organizations != [rights::addon_group(cluster)] {
        return Err(Denied("it asks for other groups"));
    }
    if attributes != organizations.len() + 1 {
        return Err(Denied("its subject has more than a user and groups"));
    }
    Ok(cluster.clone())
}

/// The one common name and the organizations of a request in PEM, and how many attributes its subject has in all.
fn subject(pem: &[u8]) -> Option<(String, Vec<String>, usize)> {
    let der = pem::certificate_request(pem).ok()?;
    let (rest, request) = X509CertificationRequest::from_der(&der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let name: &X509Name<'_> = &request.certification_request_info.subject;
    let mut common = name.iter_common_name();
    let user = common.next()?.as_str().ok()?.to_owned();
    if common.next().is_some() {
        return None;
    }
    let organizations = name
        .iter_organization()
        .map(|attribute| attribute.as_str().ok().map(str::to_owned))
        .collect::<Option<Vec<_>>>()?;
    Some((user, organizations, name.iter_attributes().count()))
}

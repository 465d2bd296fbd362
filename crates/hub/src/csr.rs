//! Certificate requests that agents send to the hub: reading one, and approving it.
//!
//! Which requests are approved is decided where the certificate belongs to: the agent's own in `registration`, the one of
//! its add-on in `managed_service_account`. Both start from a [`ClientRequest`], so what a request may contain at all is
//! checked once.

use std::fmt::Write as _;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::{
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestCondition},
    apimachinery::pkg::apis::meta::v1::Time,
};
use kube::{
    Api, Client, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use writ_api::cluster::CLUSTER_NAME_LABEL;
use writ_controller::{Error, error::Context as _};
use x509_parser::{
    certification_request::X509CertificationRequest, prelude::FromDer as _, x509::AttributeTypeAndValue,
};

use crate::agent_identity::Requester;

/// The signer of client certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// The reason that upstream's hub gives when it approves by itself.
pub const AUTO_APPROVED: &str = "AutoApprovedByHubCSRApprovingController";

const USAGES: [&str; 3] = ["client auth", "digital signature", "key encipherment"];
const BEGIN: &str = "-----BEGIN CERTIFICATE REQUEST-----";
const END: &str = "-----END CERTIFICATE REQUEST-----";

/// A well-formed request for a client certificate, sent from a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientRequest {
    /// The name of the request and its uid: `name@uid`.
    pub id: String,
    /// The cluster that its label names.
    pub cluster: String,
    /// The user that the certificate would be for.
    pub user: String,
    /// The groups that the certificate would be for.
    pub groups: Vec<String>,
    /// It asks for X.509 extensions, such as other names.
    pub has_extensions: bool,
    /// The user that sent the request.
    pub requester: Requester,
    /// SHA-256 of the public key, for a person to compare.
    pub fingerprint: String,
}

impl ClientRequest {
    /// Returns true if the user renews its own certificate.
    pub fn is_renewal(&self) -> bool {
        self.requester.name == self.user
    }
}

/// The group of a cluster's agent, and of no other cluster's.
pub fn cluster_group(cluster: &str) -> String {
    format!("system:open-cluster-management:{cluster}")
}

/// Returns true if an agent of this cluster can have this user name.
pub fn is_agent_user(user: &str, cluster: &str) -> bool {
    user.strip_prefix(&cluster_group(cluster))
        .and_then(|rest| rest.strip_prefix(':'))
        .is_some_and(|agent| !agent.is_empty() && !agent.contains(':'))
}

/// Reads a request, or says what is wrong with it.
pub fn read(request: &CertificateSigningRequest) -> Result<ClientRequest, String> {
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
    let der = der_of(&spec.request.0)?;
    let (rest, parsed) = X509CertificationRequest::from_der(&der)
        .map_err(|e| format!("it holds no certificate request: {e}"))?;
    if !rest.is_empty() {
        return Err("it holds more than a certificate request".into());
    }
    let subject = &parsed.certification_request_info.subject;
    let text = |value: &AttributeTypeAndValue| value.as_str().map(str::to_owned).ok();
    let names: Vec<_> = subject.iter_common_name().map(text).collect();
    let [Some(user)] = names.as_slice() else {
        return Err("it has not exactly one common name".into());
    };
    let groups: Option<Vec<String>> = subject.iter_organization().map(text).collect();
    let groups = groups.ok_or("one of its organizations is not text")?;
    // Another attribute, such as a uid, may mean something to a reader of the certificate.
    if subject.iter_attributes().count() != groups.len() + 1 {
        return Err("its subject has more than a common name and organizations".into());
    }
    let key = Sha256::digest(parsed.certification_request_info.subject_pki.raw);
    Ok(ClientRequest {
        id: format!("{}@{}", request.name_any(), request.uid().unwrap_or_default()),
        cluster: cluster.clone(),
        user: user.clone(),
        groups,
        has_extensions: parsed
            .requested_extensions()
            .is_some_and(|mut extensions| extensions.next().is_some()),
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

/// Returns true while the request is neither approved nor denied.
pub fn is_pending(request: &CertificateSigningRequest) -> bool {
    request.status.as_ref().is_none_or(|status| {
        status.certificate.is_none() && status.conditions.as_ref().is_none_or(Vec::is_empty)
    })
}

/// Approves a pending request, as long as it is as it was read.
pub async fn approve(
    client: &Client,
    request: &CertificateSigningRequest,
    reason: &str,
    message: String,
    now: Timestamp,
) -> Result<(), Error> {
    let api: Api<CertificateSigningRequest> = Api::all(client.clone());
    let name = request.name_any();
    let now = Time(now);
    let approved = CertificateSigningRequestCondition {
        type_: "Approved".into(),
        status: "True".into(),
        reason: Some(reason.into()),
        message: Some(message),
        last_update_time: Some(now.clone()),
        last_transition_time: Some(now),
    };
    let patch = json!({
        "metadata": {"uid": request.uid(), "resourceVersion": request.resource_version()},
        "status": {"conditions": [approved]},
    });
    api.patch_approval(&name, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map(drop)
        .context(|| format!("approve CertificateSigningRequest {name}"))
}

/// The DER of the one request in a PEM text. The signer must read the same request: a text that two readers could
/// understand differently is refused.
fn der_of(pem: &[u8]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(pem).map_err(|_| "it holds no PEM")?;
    let body = text
        .trim()
        .strip_prefix(BEGIN)
        .and_then(|rest| rest.strip_suffix(END))
        .ok_or("it is not one CERTIFICATE REQUEST in PEM")?;
    // A second block or headers would not be base64.
    let body: String = body.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    STANDARD
        .decode(&body)
        .map_err(|_| "it holds more than one CERTIFICATE REQUEST in PEM".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pem_with_two_readings_is_refused() {
        let good = format!("{BEGIN}\nTUlJ\n{END}\n");
        assert_eq!(der_of(good.as_bytes()).unwrap(), b"MII");
        for bad in [
            // Go skips a block whose end has another name, and reads the next one.
            format!("{BEGIN}\nTUlJ\n-----END X-----\n{good}"),
            format!("{good}{good}"),
            format!("{good}more"),
            format!("before\n{good}"),
            format!("{BEGIN}\nKey: value\n\nTUlJ\n{END}\n"),
            format!("{BEGIN}\nTUlJ\n-----END CERTIFICATE REQUEST-----x\n"),
            format!("{BEGIN}\nTU lJ\n{END}\n"),
            "-----BEGIN CERTIFICATE-----\nTUlJ\n-----END CERTIFICATE-----\n".to_owned(),
            String::new(),
        ] {
            assert!(der_of(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}

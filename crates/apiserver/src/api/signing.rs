//! Requests for certificates: who may approve and sign them, and what nobody may ask for.

use std::cmp::Ordering;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use writ_authz::{Attributes, ResourceAttributes};

use super::{Call, meta};
use crate::auth::MASTERS;
use crate::pki::{SigningRequest, blocks};
use crate::schema::Cause;
use crate::serve::CLIENT_SIGNER;
use crate::status::{Failure, Result};

pub(super) const CSR: &str = "certificatesigningrequests.certificates.k8s.io";

/// Whether a request is approved is said through `approval` alone.
const VERDICTS: [&str; 2] = ["Approved", "Denied"];

fn certificate(request: &Value) -> &str {
    let certificate = request.pointer("/status/certificate");
    certificate.and_then(Value::as_str).unwrap_or_default()
}

fn conditions(request: &Value) -> &[Value] {
    let conditions = request.pointer("/status/conditions");
    conditions.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn is_of(condition: &Value, wanted: &str) -> bool {
    condition.get("type").and_then(Value::as_str) == Some(wanted)
}

/// A write to the status that names the verdicts leaves them as they are.
pub(super) fn keep_verdicts(old: &Value, new: &mut Value) {
    for verdict in VERDICTS {
        let before: Vec<&Value> = conditions(old).iter().filter(|one| is_of(one, verdict)).collect();
        let Some(after) = new
            .pointer_mut("/status/conditions")
            .and_then(Value::as_array_mut)
        else {
            return;
        };
        let slots: Vec<&mut Value> = after.iter_mut().filter(|one| is_of(one, verdict)).collect();
        if slots.len() == before.len() {
            for (slot, before) in slots.into_iter().zip(before) {
                slot.clone_from(before);
            }
        }
    }
}

/// What a write to the status may not say: a verdict, and another certificate than the one that is there.
pub(super) fn status_causes(call: &Call, old: &Value, new: &Value) -> Vec<Cause> {
    if &*call.resource.table != CSR || call.target.subresource != "status" {
        return Vec::new();
    }
    let mut causes = Vec::new();
    let field = "status.certificate";
    let (before, after) = (certificate(old), certificate(new));
    if before != after {
        if !before.is_empty() {
            let why = "updates may not modify existing certificate content";
            causes.push(Cause::forbidden(field, why));
        }
        if let Some(why) = certificate_problem(after) {
            causes.push(Cause::invalid(field, &"<certificate data>".into(), &why));
        }
    }
    for verdict in VERDICTS {
        let count = |value: &Value| conditions(value).iter().filter(|one| is_of(one, verdict)).count();
        // That none is taken away is checked for every door.
        if count(new).cmp(&count(old)) == Ordering::Greater {
            let why = format!("updates may not add a condition of type {verdict:?}");
            causes.push(Cause::forbidden("status.conditions", &why));
        }
    }
    causes
}

/// What is signed is certificates and nothing else.
fn certificate_problem(text: &str) -> Option<String> {
    if text.is_empty() {
        return None;
    }
    let pem = STANDARD.decode(text).unwrap_or_default();
    let mut count = 0;
    for block in blocks(&pem) {
        if block.label != b"CERTIFICATE" {
            let label = String::from_utf8_lossy(&block.label).into_owned();
            return Some(format!(
                "only CERTIFICATE PEM blocks are allowed, found {label:?}"
            ));
        }
        if block.has_headers {
            return Some("no PEM block headers are permitted".into());
        }
        let mut rest = block.content.as_slice();
        if rest.is_empty() {
            return Some("found CERTIFICATE PEM block containing 0 certificates".into());
        }
        while !rest.is_empty() {
            let Ok((more, _)) = x509_parser::parse_x509_certificate(rest) else {
                return Some("x509: malformed certificate".into());
            };
            rest = more;
        }
        count += 1;
    }
    (count == 0).then(|| "must contain at least one CERTIFICATE PEM block".into())
}

/// Nobody becomes an administrator by asking for a certificate, even if somebody approves it.
pub(super) fn check_subject(call: &Call, new: &Value) -> Result<()> {
    let text = |pointer: &str| new.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if &*call.resource.table != CSR || text("/spec/signerName") != CLIENT_SIGNER {
        return Ok(());
    }
    let pem = STANDARD.decode(text("/spec/request")).unwrap_or_default();
    let why = match SigningRequest::read(&pem) {
        Err(problem) => format!("failed to parse CSR: {problem}"),
        Ok(request) if request.organizations.iter().any(|group| group == MASTERS) => {
            format!("use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed")
        }
        Ok(_) => return Ok(()),
    };
    let (group, plural) = (&call.resource.group, &call.resource.plural);
    Err(Failure::forbidden(group, plural, meta::text(new, "name"), &why))
}

/// Rights that depend on what is changed.
pub(super) fn check_rights(call: &Call, old: &Value, new: &Value) -> Result<()> {
    if &*call.resource.table != CSR {
        return Ok(());
    }
    let signers_part = |value| (certificate(value), conditions(value));
    let verb = match call.target.subresource.as_str() {
        "approval" => "approve",
        "status" if signers_part(old) != signers_part(new) => "sign",
        _ => return Ok(()),
    };
    let signer = old
        .pointer("/spec/signerName")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let may = |name: &str| {
        let attributes = ResourceAttributes::new(verb, "certificates.k8s.io", "signers").named(name);
        call.state
            .authorizer
            .allows(&call.user, &Attributes::Resource(attributes))
    };
    if may(signer) || may(&domain) {
        return Ok(());
    }
    Err(Failure::forbidden(
        &call.resource.group,
        &call.resource.plural,
        &call.target.name,
        &format!("user not permitted to {verb} requests with signerName {signer:?}"),
    ))
}

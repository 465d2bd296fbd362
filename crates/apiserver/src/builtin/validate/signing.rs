//! Requests for certificates.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{list, text};
use crate::pki::SigningRequest;
use crate::schema::{Cause, child, index, names};

const LONGEST_SUBDOMAIN: usize = 253;
/// A subdomain, a namespace and a name.
const LONGEST_SIGNER: usize = 571;

const USAGES: [&str; 23] = [
    "any",
    "cert sign",
    "client auth",
    "code signing",
    "content commitment",
    "crl sign",
    "data encipherment",
    "decipher only",
    "digital signature",
    "email protection",
    "encipher only",
    "ipsec end system",
    "ipsec tunnel",
    "ipsec user",
    "key agreement",
    "key encipherment",
    "microsoft sgc",
    "netscape sgc",
    "ocsp signing",
    "s/mime",
    "server auth",
    "signing",
    "timestamping",
];

pub(super) fn request(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let mut causes = conditions(new, old);
    if old.is_some() {
        return causes;
    }
    let request = text(new, "/spec/request");
    let pem = STANDARD.decode(request).unwrap_or_default();
    let problem = match SigningRequest::read(&pem) {
        Err(problem) => Some(problem),
        Ok(asked) if !asked.is_signed() => Some("x509: verification failure: it is not signed with its key"),
        Ok(_) => None,
    };
    if let Some(problem) = problem {
        causes.push(Cause::invalid("spec.request", &request.into(), problem));
    }
    let usages = list(new, "/spec/usages");
    if usages.is_empty() {
        causes.push(Cause::required("spec.usages", ""));
    }
    for (i, usage) in usages.iter().enumerate() {
        if !USAGES.contains(&usage.as_str().unwrap_or_default()) {
            causes.push(Cause::not_supported(index("spec.usages", i), usage, &USAGES));
        }
        if usages.iter().take(i).any(|earlier| earlier == usage) {
            causes.push(Cause::duplicate(index("spec.usages", i), usage));
        }
    }
    causes.extend(signer_name(text(new, "/spec/signerName")));
    if let Some(seconds) = new
        .pointer("/spec/expirationSeconds")
        .and_then(Value::as_i64)
        .filter(|s| *s < 600)
    {
        let detail = "may not specify a duration less than 600 seconds (10 minutes)";
        causes.push(Cause::invalid("spec.expirationSeconds", &seconds.into(), detail));
    }
    causes
}

fn signer_name(name: &str) -> Vec<Cause> {
    let field = "spec.signerName";
    if name.is_empty() {
        return vec![Cause::required(field, "")];
    }
    if name == "kubernetes.io/legacy-unknown" {
        let detail = "the legacy signerName is not allowed via this API version";
        return vec![Cause::invalid(field, &name.into(), detail)];
    }
    let Some((domain, path)) = name.split_once('/').filter(|(_, path)| !path.contains('/')) else {
        let detail = "must be a fully qualified domain and path of the form 'example.com/signer-name'";
        return vec![Cause::invalid(field, &name.into(), detail)];
    };
    let mut causes = Vec::new();
    if domain.len() > LONGEST_SUBDOMAIN {
        causes.push(Cause::too_long(field, 253));
    }
    let mut part = |part: &str, check: fn(&str) -> Vec<String>| {
        // What is wrong with the first that is not good is said.
        let bad = part.split('.').find(|label| !check(label).is_empty());
        causes.extend(bad.into_iter().flat_map(|label| {
            let say = move |problem: &String| {
                let detail = format!("validating label {label:?}: {problem}");
                Cause::invalid(field, &part.into(), &detail)
            };
            check(label).iter().map(say).collect::<Vec<_>>()
        }));
    };
    part(domain, names::dns_label);
    part(path, names::dns_subdomain);
    if !domain.contains('.') {
        let detail = "should be a domain with at least two segments separated by dots";
        causes.push(Cause::invalid(field, &domain.into(), detail));
    }
    if name.len() > LONGEST_SIGNER {
        causes.push(Cause::too_long(field, 571));
    }
    causes
}

fn conditions(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    let path = "status.conditions";
    let mut causes = Vec::new();
    let conditions = list(new, "/status/conditions");
    let has = |ty: &str| conditions.iter().any(|c| text(c, "/type") == ty);
    for (i, condition) in conditions.iter().enumerate() {
        let path = index(path, i);
        let (ty, status) = (text(condition, "/type"), text(condition, "/status"));
        if ty.is_empty() {
            causes.push(Cause::required(child(&path, "type"), ""));
        }
        let only_true = matches!(ty, "Approved" | "Denied" | "Failed");
        let allowed: &[&str] = if only_true {
            &["True"]
        } else {
            &["False", "True", "Unknown"]
        };
        if status.is_empty() {
            causes.push(Cause::required(child(&path, "status"), ""));
        } else if !allowed.contains(&status) {
            causes.push(Cause::not_supported(
                child(&path, "status"),
                &status.into(),
                allowed,
            ));
        }
        if conditions.iter().take(i).any(|c| text(c, "/type") == ty) {
            causes.push(Cause::duplicate(child(&path, "type"), &ty.into()));
        }
    }
    if has("Approved") && has("Denied") {
        let detail = "Approved and Denied conditions are mutually exclusive";
        causes.push(Cause::invalid(path, &"Denied".into(), detail));
    }
    for condition in old.map(|o| list(o, "/status/conditions")).unwrap_or_default() {
        let ty = text(condition, "/type");
        if matches!(ty, "Approved" | "Denied" | "Failed") && !has(ty) {
            let detail = format!("updates may not remove a condition of type {ty:?}");
            causes.push(Cause::forbidden(path, &detail));
        }
    }
    causes
}

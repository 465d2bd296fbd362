//! Requests for certificates, in the form PKCS#10.

use std::net::IpAddr;

use rcgen::{SanType, SubjectPublicKeyInfo};
use x509_parser::certification_request::X509CertificationRequest;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::FromDer as _;

use super::{content, elements};

/// What a request says.
pub(crate) struct SigningRequest {
    /// What is signed, by which algorithm, and the signature.
    signed: Vec<u8>,
    algorithm: Vec<u8>,
    signature: Vec<u8>,
    /// The key, with what it is for.
    key: Vec<u8>,
    /// The name, as it was written.
    pub subject: Vec<u8>,
    /// The groups in it.
    pub organizations: Vec<String>,
    /// Other names.
    pub alternatives: Vec<SanType>,
}

const MALFORMED: &str = "asn1: structure error: the request cannot be read";

impl SigningRequest {
    /// The first block of a text must be one; what comes after it does not count.
    pub fn read(pem: &[u8]) -> Result<Self, &'static str> {
        let block = super::blocks(pem)
            .next()
            .filter(|block| block.label == b"CERTIFICATE REQUEST")
            .ok_or("PEM block type must be CERTIFICATE REQUEST")?;
        let (rest, parsed) = X509CertificationRequest::from_der(&block.content).map_err(|_| MALFORMED)?;
        if !rest.is_empty() {
            return Err("asn1: syntax error: trailing data");
        }
        let info = &parsed.certification_request_info;
        let parts = content(&block.content).and_then(elements).ok_or(MALFORMED)?;
        let [signed, algorithm, _] = parts.as_slice() else {
            return Err(MALFORMED);
        };
        // The version, the name, the key, and the rest.
        let fields = content(signed).and_then(elements).ok_or(MALFORMED)?;
        let key = fields.get(2).ok_or(MALFORMED)?;
        super::common_name(&info.subject).ok_or(MALFORMED)?;
        Ok(Self {
            signed: signed.to_vec(),
            algorithm: algorithm.to_vec(),
            signature: parsed.signature_value.data.to_vec(),
            key: key.to_vec(),
            subject: info.subject.as_raw().to_vec(),
            organizations: super::organizations(&info.subject).ok_or(MALFORMED)?,
            alternatives: alternatives(&parsed).ok_or(MALFORMED)?,
        })
    }

    /// Whether it is signed with the key that it is about. Who does not hold the key gets no certificate for it.
    pub fn is_signed(&self) -> bool {
        let Some([for_what, bits]) = content(&self.key)
            .and_then(elements)
            .and_then(|parts| <[&[u8]; 2]>::try_from(parts).ok())
        else {
            return false;
        };
        // A number before the bits says how many of the last byte are left over.
        let Some((0, key)) = content(bits).and_then(|bits| bits.split_first().map(|(n, key)| (*n, key)))
        else {
            return false;
        };
        let (Some(of_key), Some(of_signature)) = (content(for_what), content(&self.algorithm)) else {
            return false;
        };
        let known = rustls::crypto::aws_lc_rs::default_provider().signature_verification_algorithms;
        known
            .all
            .iter()
            .filter(|one| *one.public_key_alg_id() == *of_key && *one.signature_alg_id() == *of_signature)
            .any(|one| one.verify_signature(key, &self.signed, &self.signature).is_ok())
    }

    /// The key that the certificate is to be about.
    pub fn key(&self) -> Result<SubjectPublicKeyInfo, rcgen::Error> {
        SubjectPublicKeyInfo::from_der(&self.key)
    }
}

/// The names that a certificate takes over. Those of other kinds are left out; None if one cannot be read.
fn alternatives(request: &X509CertificationRequest<'_>) -> Option<Vec<SanType>> {
    let mut all = Vec::new();
    for extension in request.requested_extensions().into_iter().flatten() {
        let ParsedExtension::SubjectAlternativeName(names) = extension else {
            continue;
        };
        for name in &names.general_names {
            all.push(match name {
                GeneralName::DNSName(name) => SanType::DnsName((*name).try_into().ok()?),
                GeneralName::RFC822Name(name) => SanType::Rfc822Name((*name).try_into().ok()?),
                GeneralName::URI(name) => SanType::URI((*name).try_into().ok()?),
                GeneralName::IPAddress(bytes) => SanType::IpAddress(address(bytes)?),
                _ => continue,
            });
        }
    }
    Some(all)
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from))
        .ok()
}

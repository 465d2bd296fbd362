//! The cluster's certificate authority: it signs the serving certificate and the certificates of clients.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateSigningRequestParams, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use sha2::Digest;

use super::subject;
use crate::auth::{MASTERS, User};
use crate::store::Store;

const TEN_YEARS: SignedDuration = SignedDuration::from_hours(24 * 3650);
const YEAR: SignedDuration = SignedDuration::from_hours(24 * 365);

/// The signer whose certificates are good for this server.
pub(crate) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The organizations that a signing request, as its object carries it, wants in the certificate. None if it cannot be read.
pub(crate) fn organizations(request: &str) -> Option<Vec<String>> {
    use base64::Engine as _;
    use x509_parser::prelude::FromDer as _;
    let pem = base64::engine::general_purpose::STANDARD.decode(request).ok()?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let (_, parsed) =
        x509_parser::certification_request::X509CertificationRequest::from_der(&pem.contents).ok()?;
    Some(groups(&parsed.certification_request_info.subject))
}

/// The subject of a signing request as it was written.
fn subject_of(request_pem: &str) -> Option<Vec<u8>> {
    use x509_parser::prelude::FromDer as _;
    let (_, pem) = x509_parser::pem::parse_x509_pem(request_pem.as_bytes()).ok()?;
    let (_, parsed) =
        x509_parser::certification_request::X509CertificationRequest::from_der(&pem.contents).ok()?;
    Some(parsed.certification_request_info.subject.as_raw().to_vec())
}

/// The groups of a subject.
fn groups(subject: &x509_parser::x509::X509Name<'_>) -> Vec<String> {
    let all = subject.iter_organization();
    all.filter_map(|group| group.as_str().ok())
        .map(str::to_owned)
        .collect()
}

/// One authority for serving and for clients.
pub(crate) struct Authority {
    pub pem: String,
    der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

/// A certificate for a client.
pub(crate) struct ClientWish<'a> {
    pub name: &'a str,
    pub groups: &'a [String],
}

/// A client certificate that this authority signed.
pub(crate) struct ClientCertificate {
    /// None if it names nobody.
    pub user: Option<User>,
    /// In seconds since 1970.
    life: RangeInclusive<i64>,
}

impl ClientCertificate {
    /// Whether the certificate is valid at a time.
    pub fn valid_at(&self, now: Timestamp) -> bool {
        self.life.contains(&now.as_second())
    }
}

/// Why a request for a certificate cannot be signed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CsrProblem {
    #[error("the request cannot be read: {0}")]
    Unreadable(rcgen::Error),
    #[error("{0}")]
    NotAllowed(String),
    #[error("the subject of the request cannot be read")]
    Subject,
    #[error("the certificate cannot be made: {0}")]
    Signing(rcgen::Error),
}

fn key_usage(usages: &[&str]) -> Vec<KeyUsagePurpose> {
    usages
        .iter()
        .filter_map(|usage| match *usage {
            "digital signature" | "signing" => Some(KeyUsagePurpose::DigitalSignature),
            "key encipherment" => Some(KeyUsagePurpose::KeyEncipherment),
            _ => None,
        })
        .collect()
}

/// Sets the life of a certificate; it starts a few minutes early, for clocks that are behind.
fn live(params: &mut CertificateParams, now: Timestamp, life: SignedDuration) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    let seconds = |at: Timestamp| Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
    let start = now.saturating_sub(SignedDuration::from_mins(5)).unwrap_or(now);
    params.not_before = epoch + seconds(start);
    params.not_after = epoch + seconds(now.saturating_add(life).unwrap_or(now));
}

impl Authority {
    /// The authority that the store keeps, or a new one.
    pub fn open(store: &Store, now: Timestamp) -> Result<Self, String> {
        let kept = (store.secret("ca.key"), store.secret("ca.crt"));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).map_err(|error| error.to_string());
        let say = |error: rcgen::Error| error.to_string();
        if let (Some(key), Some(pem)) = kept {
            let (key, pem) = (KeyPair::from_pem(&text(key)?).map_err(say)?, text(pem)?);
            let der = pem_der(&pem)?;
            let issuer = Issuer::from_ca_cert_der(&der, key).map_err(say)?;
            return Ok(Self { pem, der, issuer });
        }
        let key = KeyPair::generate().map_err(say)?;
        let mut params = CertificateParams::new(Vec::new()).map_err(say)?;
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "kubernetes");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
            KeyUsagePurpose::KeyCertSign,
        ];
        live(&mut params, now, TEN_YEARS);
        let certificate = params.self_signed(&key).map_err(say)?;
        let pem = certificate.pem();
        store
            .keep_secret("ca.key", key.serialize_pem().as_bytes())
            .map_err(|error| error.to_string())?;
        store
            .keep_secret("ca.crt", pem.as_bytes())
            .map_err(|error| error.to_string())?;
        Ok(Self {
            pem,
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
        })
    }

    /// A serving certificate for the local machine and the names a cluster has inside.
    pub fn serving(
        &self,
        now: Timestamp,
    ) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), rcgen::Error> {
        let key = KeyPair::generate()?;
        let names = [
            "localhost",
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "kubernetes.default.svc.cluster.local",
            "127.0.0.1",
            "::1",
        ];
        let mut params = CertificateParams::new(names.map(str::to_owned).to_vec())?;
        params.distinguished_name = DistinguishedName::new();
        params
            .distinguished_name
            .push(DnType::CommonName, "kube-apiserver");
        params.key_usages = key_usage(&["digital signature", "key encipherment"]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        live(&mut params, now, TEN_YEARS);
        let certificate = params.signed_by(&key, &self.issuer)?;
        let key =
            PrivateKeyDer::try_from(key.serialize_der()).map_err(|_| rcgen::Error::CouldNotParseKeyPair)?;
        Ok((vec![certificate.der().clone(), self.der.clone()], key))
    }

    /// A certificate and key for a client, both PEM.
    pub fn client_certificate(
        &self,
        wish: &ClientWish<'_>,
        now: Timestamp,
    ) -> Result<(String, String), rcgen::Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::new())?;
        params.key_usages = key_usage(&["digital signature", "key encipherment"]);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        live(&mut params, now, TEN_YEARS);
        let certificate = params.signed_by(&key, &self.issuer)?;
        let name = subject::name_of(wish.name, wish.groups);
        let certificate = subject::with_subject(certificate.der(), &name, self.issuer.key())
            .ok_or(rcgen::Error::CouldNotParseCertificate)??;
        Ok((subject::pem(&certificate), key.serialize_pem()))
    }

    /// Signs an approved request of the signer `kubernetes.io/kube-apiserver-client`.
    pub fn sign(
        &self,
        request_pem: &str,
        usages: &[&str],
        seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, CsrProblem> {
        let mut request =
            CertificateSigningRequestParams::from_pem(request_pem).map_err(CsrProblem::Unreadable)?;
        let allowed = ["digital signature", "key encipherment", "client auth"];
        if let Some(usage) = usages.iter().find(|usage| !allowed.contains(usage)) {
            let why = format!("invalid usage for client certificate: {usage}");
            return Err(CsrProblem::NotAllowed(why));
        }
        if !usages.contains(&"client auth") {
            let why = "missing required usage for client certificate: client auth";
            return Err(CsrProblem::NotAllowed(why.into()));
        }
        let params = &mut request.params;
        // The request says who; the signer says what for, and how long.
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = key_usage(usages);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(SerialNumber::from_slice(&rand::random::<[u8; 15]>()));
        let life = seconds.map_or(YEAR, SignedDuration::from_secs).min(YEAR);
        live(params, now, life);
        let certificate = request.signed_by(&self.issuer).map_err(CsrProblem::Signing)?;
        let certificate = subject_of(request_pem)
            .and_then(|name| subject::with_subject(certificate.der(), &name, self.issuer.key()))
            .ok_or(CsrProblem::Subject)?
            .map_err(CsrProblem::Signing)?;
        // Refused when it was asked for; the key of the cluster does not rely on that.
        let masters = match x509_parser::parse_x509_certificate(&certificate) {
            Ok((_, made)) => groups(made.subject()).iter().any(|group| group == MASTERS),
            Err(_) => true,
        };
        if masters {
            return Err(CsrProblem::NotAllowed(format!(
                "the group {MASTERS} is not allowed"
            )));
        }
        Ok(subject::pem(&certificate))
    }

    /// The user of a client certificate, if this authority signed it and it is valid now.
    pub fn client(
        &self,
        chain: &[CertificateDer<'static>],
        now: Timestamp,
    ) -> Result<ClientCertificate, String> {
        let (first, rest) = chain.split_first().ok_or("no certificate")?;
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone()).map_err(|error| error.to_string())?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|error| error.to_string())?;
        let seconds = u64::try_from(now.as_second()).unwrap_or_default();
        verifier
            .verify_client_cert(
                first,
                rest,
                UnixTime::since_unix_epoch(Duration::from_secs(seconds)),
            )
            .map_err(|error| error.to_string())?;
        let (_, parsed) = x509_parser::parse_x509_certificate(first).map_err(|error| error.to_string())?;
        let subject = parsed.subject();
        // Of several names the last counts.
        let name = subject.iter_common_name().last();
        let name = name
            .and_then(|name| name.as_str().ok())
            .filter(|name| !name.is_empty());
        let user = name.map(|name| {
            let mut user = User::new(name, groups(subject));
            let digest = format!("{:x}", sha2::Sha256::digest(first));
            user.extra.insert(
                "authentication.kubernetes.io/credential-id".into(),
                vec![format!("X509SHA256={digest}")],
            );
            user
        });
        let (_, own) = x509_parser::parse_x509_certificate(&self.der).map_err(|error| error.to_string())?;
        let (leaf, own) = (parsed.validity(), own.validity());
        let start = leaf.not_before.max(own.not_before).timestamp();
        let end = leaf.not_after.min(own.not_after).timestamp();
        Ok(ClientCertificate {
            user,
            life: start..=end,
        })
    }
}

fn pem_der(pem: &str) -> Result<CertificateDer<'static>, String> {
    use rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `/CN=old/CN=alice/O=a/O=b`, which the library cannot write.
    const TWO_GROUPS: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
MIHxMIGYAgEAMDYxDDAKBgNVBAMMA29sZDEOMAwGA1UEAwwFYWxpY2UxCjAIBgNV\n\
BAoMAWExCjAIBgNVBAoMAWIwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARPeaeN\n\
gy6h/4Vm0ALFD4TY3hMxp68WtdAwdkA7a9TfsYOaxiXPA/fOevLVIg7wUNHPZFnq\n\
y7wRRzpXK8zg+tSkoAAwCgYIKoZIzj0EAwIDSAAwRQIgPW8HHFZLqkfjCbTvprI6\n\
GT1W5nS3TOVxZzmEhKBf4lkCIQDnlnYSAs9dCGRTS+0tFsemAWF8n8cwE1yDAfxK\n\
l/Rr2Q==\n\
-----END CERTIFICATE REQUEST-----\n\
";
    /// `/O=a/O=b`
    const NO_NAME: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
MIHRMHoCAQAwGDEKMAgGA1UECgwBYTEKMAgGA1UECgwBYjBZMBMGByqGSM49AgEG\n\
CCqGSM49AwEHA0IABE95p42DLqH/hWbQAsUPhNjeEzGnrxa10DB2QDtr1N+xg5rG\n\
Jc8D98568tUiDvBQ0c9kWerLvBFHOlcrzOD61KSgADAKBggqhkjOPQQDAgNHADBE\n\
AiAtjyAbeBGqZUX/ip7V0A25y46Y+UuC8QTO3BwOoX3rRAIgbDicGf7l40qwsYA5\n\
mJTZSkHNb2KGBbNn1gAewb13aWE=\n\
-----END CERTIFICATE REQUEST-----\n\
";
    /// `/CN=x/O=system:masters/O=b`
    const MASTERS_FIRST: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
MIHrMIGTAgEAMDExCjAIBgNVBAMMAXgxFzAVBgNVBAoMDnN5c3RlbTptYXN0ZXJz\n\
MQowCAYDVQQKDAFiMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAET3mnjYMuof+F\n\
ZtACxQ+E2N4TMaevFrXQMHZAO2vU37GDmsYlzwP3znry1SIO8FDRz2RZ6su8EUc6\n\
VyvM4PrUpKAAMAoGCCqGSM49BAMCA0cAMEQCIEwYajMjLLiKHiNSg7w2sM88a0Ck\n\
MvMtRvWf0vzGSFkqAiBj0bWhqfhW2dWxfvL4HIcGgRXAh2gBV1uU1tC9GwGhZA==\n\
-----END CERTIFICATE REQUEST-----\n\
";

    fn signed(authority: &Authority, request: &str) -> Result<Option<User>, CsrProblem> {
        let now = Timestamp::now();
        let pem = authority.sign(request, &["client auth"], None, now)?;
        let der = pem_der(&pem).unwrap();
        Ok(authority.client(&[der], now).unwrap().user)
    }

    #[test]
    fn a_certificate_says_what_the_request_said() {
        let authority = Authority::open(&Store::open(None).unwrap(), Timestamp::now()).unwrap();
        let user = signed(&authority, TWO_GROUPS).unwrap().unwrap();
        assert_eq!(user.name, "alice");
        assert_eq!(user.groups, ["a", "b", "system:authenticated"]);
        assert!(signed(&authority, NO_NAME).unwrap().is_none());
        // Not even when another group comes after it.
        assert!(matches!(
            signed(&authority, MASTERS_FIRST),
            Err(CsrProblem::NotAllowed(_))
        ));
    }
}

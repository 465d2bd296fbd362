//! The cluster's certificate authority: it signs the serving certificate and the certificates of clients.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer,
    KeyPair, KeyUsagePurpose, SerialNumber,
};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use sha2::Digest;

use super::subject;
use crate::auth::{MASTERS, User};
use crate::pki::{SigningRequest, common_name, organizations, written};
use crate::store::Store;

const TEN_YEARS: SignedDuration = SignedDuration::from_hours(24 * 3650);
const YEAR: SignedDuration = SignedDuration::from_hours(24 * 365);

/// The signer whose certificates are good for this server.
pub(crate) const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

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
    Unreadable(&'static str),
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
        Ok((written("CERTIFICATE", &certificate), key.serialize_pem()))
    }

    /// Signs an approved request of the signer `kubernetes.io/kube-apiserver-client`.
    pub fn sign(
        &self,
        request_pem: &[u8],
        usages: &[&str],
        seconds: Option<i64>,
        now: Timestamp,
    ) -> Result<String, CsrProblem> {
        let allowed = ["digital signature", "key encipherment", "client auth"];
        if let Some(usage) = usages.iter().find(|usage| !allowed.contains(usage)) {
            let why = format!("invalid usage for client certificate: {usage}");
            return Err(CsrProblem::NotAllowed(why));
        }
        if !usages.contains(&"client auth") {
            let why = "missing required usage for client certificate: client auth";
            return Err(CsrProblem::NotAllowed(why.into()));
        }
        let request = SigningRequest::read(request_pem).map_err(CsrProblem::Unreadable)?;
        if !request.is_signed() {
            return Err(CsrProblem::Unreadable("it is not signed with its key"));
        }
        // The request says who; the signer says what for, and how long.
        let mut params = CertificateParams::default();
        params.subject_alt_names.clone_from(&request.alternatives);
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = key_usage(usages);
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        params.serial_number = Some(SerialNumber::from_slice(&rand::random::<[u8; 15]>()));
        let life = seconds.map_or(YEAR, SignedDuration::from_secs).min(YEAR);
        live(&mut params, now, life);
        let certificate = request
            .key()
            .and_then(|key| params.signed_by(&key, &self.issuer))
            .map_err(CsrProblem::Signing)?;
        let certificate = subject::with_subject(certificate.der(), &request.subject, self.issuer.key())
            .ok_or(CsrProblem::Subject)?
            .map_err(CsrProblem::Signing)?;
        // Refused when it was asked for; the key of the cluster does not rely on that.
        let masters = match x509_parser::parse_x509_certificate(&certificate) {
            Ok((_, made)) => {
                let groups = organizations(made.subject());
                groups.is_none_or(|groups| groups.iter().any(|group| group == MASTERS))
            }
            Err(_) => true,
        };
        if masters {
            return Err(CsrProblem::NotAllowed(format!(
                "the group {MASTERS} is not allowed"
            )));
        }
        Ok(written("CERTIFICATE", &certificate))
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
        let unreadable = "the subject cannot be read";
        let name = common_name(subject).ok_or(unreadable)?;
        let groups = organizations(subject).ok_or(unreadable)?;
        let user = (!name.is_empty()).then(|| {
            let mut user = User::new(name, groups);
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

    /// `/CN=alice`, of a key on P-384, signed with SHA-256, as OpenSSL does it.
    const P384_SHA256: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
MIIBCDCBjwIBADAQMQ4wDAYDVQQDDAVhbGljZTB2MBAGByqGSM49AgEGBSuBBAAi\n\
A2IABGbPpQ5XKL/bSvXoCWUetFwMDrXDG0xV6y2K+1CKXLRjKUpYkHhmzRg9G6fO\n\
zXnm+jP9dVUYcnOosFhJOOdDQ7d2xkKVB/X1Bq/vTKC6dwQ42Jgz0B9lFnNtrtX3\n\
oAk0SaAAMAoGCCqGSM49BAMCA2gAMGUCMCLOF1/BWmUMUEodtWrDSPQ6kTphcAQT\n\
aROrfwF2A57BsMyQd6O+Yt1MKQPg+b1POgIxAK0S0+rNKRQ95DzK0eusw4/idNjG\n\
2Bmq7WTcv0zAiMfTKs2h+k9NHpfmJU3bR3zpSQ==\n\
-----END CERTIFICATE REQUEST-----\n\
";
    /// The same on P-521.
    const P521: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
MIIBUzCBtQIBADAQMQ4wDAYDVQQDDAVhbGljZTCBmzAQBgcqhkjOPQIBBgUrgQQA\n\
IwOBhgAEAcVgrNM4KT5yMWlba8ctRRBEWkrr759gHHezdGFIS1Bj4CR+G7xsmbp2\n\
oKtkIllccb6+9gijdKM3shRCwdtDZG8CAeBihTRcUO4/pkeY8GxnowO7Z6GfCBLQ\n\
Ew7VEtHPQHfFGr4gZ6ZBLD8kCenjyvqCuwd1TKCZvl2lB4H3KCz9V+lNoAAwCgYI\n\
KoZIzj0EAwQDgYwAMIGIAkIBSiA4M96kCuQneS5pjnz41nAhDcFEp9r8OWlPQ4hJ\n\
rpZHHIhi7CzqTNyMLToM/NEu9YhtqQ5QgEn8ijGZRgsEY90CQgEJWC7hXwjQtXDX\n\
LLRsKkovVckTcnMtiDQxYEPA6YcFaNB/52u05ST13S1z1UoTHgi6GIvUGYDY4hRc\n\
+6eWz0z/DA==\n\
-----END CERTIFICATE REQUEST-----\n\
";
    /// With an extension that nobody knows.
    const WITH_EXTENSION: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
MIHoMIGPAgEAMBAxDjAMBgNVBAMMBWFsaWNlMFkwEwYHKoZIzj0CAQYIKoZIzj0D\n\
AQcDQgAEUfj/sAXV4fwjFRAngWvBCOczp0fg2VWqj+VbfA5+TwElUqj0Jgmtzj5Q\n\
IE0F7wiWD+Eh+bZqeORrf0TohMxFYKAdMBsGCSqGSIb3DQEJDjEOMAwwCgYDKgME\n\
BAMMAXgwCgYIKoZIzj0EAwIDSAAwRQIgH8IsjFWYZ0ECuBjsvN8hdV1bwCicyfkR\n\
MULkAOZe+i4CIQDHo/Jyyq7QgBS+kbEuF11mhvyhh4CtqMsnpe4Q1oTThw==\n\
-----END CERTIFICATE REQUEST-----\n\
";
    /// `/CN=alice/O=system:masters` in UTF-16.
    const MASTERS_UTF16: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
MIH3MIGeAgEAMDwxEzARBgNVBAMeCgBhAGwAaQBjAGUxJTAjBgNVBAoeHABzAHkA\n\
cwB0AGUAbQA6AG0AYQBzAHQAZQByAHMwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC\n\
AARR+P+wBdXh/CMVECeBa8EI5zOnR+DZVaqP5Vt8Dn5PASVSqPQmCa3OPlAgTQXv\n\
CJYP4SH5tmp45Gt/ROiEzEVgoAAwCgYIKoZIzj0EAwIDSAAwRQIgXU6im/HdSbVm\n\
gvFydIqia6gAVh4lKZci6LLUW8emVr8CIQCtJnZZr/LIj8UTUjXfgybs77fQKE+p\n\
D3gir08QGsvZJw==\n\
-----END CERTIFICATE REQUEST-----\n\
";
    /// With other names, some of kinds that no certificate takes over.
    const WITH_NAMES: &str = "-----BEGIN CERTIFICATE REQUEST-----\n\
MIIBCDCBrwIBADAQMQ4wDAYDVQQDDAVhbGljZTBZMBMGByqGSM49AgEGCCqGSM49\n\
AwEHA0IABFH4/7AF1eH8IxUQJ4FrwQjnM6dH4NlVqo/lW3wOfk8BJVKo9CYJrc4+\n\
UCBNBe8Ilg/hIfm2anjka39E6ITMRWCgPTA7BgkqhkiG9w0BCQ4xLjAsMCoGA1Ud\n\
EQQjMCGgCgYDKgMEoAMMAXiCA2EuYqQOMAwxCjAIBgNVBAMMAXgwCgYIKoZIzj0E\n\
AwIDSAAwRQIhAK5RcOnNo61BiUuv7imoeq32RUhQTlpMCidKLXo74yOQAiBjqClH\n\
o8IMmjMuc1/rsB28TOGv0MZvldpgPCuBRIg3ZQ==\n\
-----END CERTIFICATE REQUEST-----\n\
";

    fn signed(authority: &Authority, request: &str) -> Result<Option<User>, CsrProblem> {
        let now = Timestamp::now();
        let pem = authority.sign(request.as_bytes(), &["client auth"], None, now)?;
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

    #[test]
    fn a_certificate_is_about_the_key_of_the_request() {
        let authority = Authority::open(&Store::open(None).unwrap(), Timestamp::now()).unwrap();
        for (request, names) in [(P384_SHA256, 0), (P521, 0), (WITH_EXTENSION, 0), (WITH_NAMES, 1)] {
            let now = Timestamp::now();
            let pem = authority
                .sign(request.as_bytes(), &["client auth"], None, now)
                .unwrap();
            let der = pem_der(&pem).unwrap();
            let (_, made) = x509_parser::parse_x509_certificate(&der).unwrap();
            let (_, asked) = x509_parser::pem::parse_x509_pem(request.as_bytes()).unwrap();
            assert!(
                asked
                    .contents
                    .windows(made.public_key().raw.len())
                    .any(|part| part == made.public_key().raw),
                "{request}"
            );
            let found = made.subject_alternative_name().unwrap();
            assert_eq!(found.map_or(0, |found| found.value.general_names.len()), names);
            assert_eq!(authority.client(&[der], now).unwrap().user.unwrap().name, "alice");
        }
        assert!(matches!(
            signed(&authority, MASTERS_UTF16),
            Err(CsrProblem::NotAllowed(_))
        ));
        // Another name than the one that was signed.
        let other = P384_SHA256.replace("DAVhbGlj", "DAVhbGlk");
        assert_ne!(other, P384_SHA256);
        assert!(signed(&authority, &other).is_err());
    }

    #[test]
    fn who_proves_to_be_nobody_is_not_authenticated() {
        let now = Timestamp::now();
        let authority = Authority::open(&Store::open(None).unwrap(), now).unwrap();
        for (name, groups, all) in [
            ("alice", &["a"][..], &["a", "system:authenticated"][..]),
            ("system:anonymous", &["a"], &["a"]),
            ("alice", &["system:unauthenticated"], &["system:unauthenticated"]),
        ] {
            let groups: Vec<String> = groups.iter().map(|group| (*group).to_owned()).collect();
            let wish = ClientWish {
                name,
                groups: &groups,
            };
            let (pem, _) = authority.client_certificate(&wish, now).unwrap();
            let user = authority.client(&[pem_der(&pem).unwrap()], now).unwrap().user;
            assert_eq!(user.unwrap().groups, all);
        }
    }
}

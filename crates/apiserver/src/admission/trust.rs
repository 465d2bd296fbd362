//! Whom a webhook's `caBundle` trusts.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject as _};
use rustls::{CertificateError, DigitallySignedStruct, Error, SignatureScheme};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// As the usual verifier, but a certificate that is in the bundle itself is trusted although it says that it is an
/// authority: that is what `openssl req -x509` makes, and what the real server accepts.
#[derive(Debug)]
pub(super) struct Trust {
    usual: Arc<WebPkiServerVerifier>,
    bundle: Vec<CertificateDer<'static>>,
}

impl Trust {
    pub(super) fn read(pem: &[u8], provider: Arc<CryptoProvider>) -> Result<Self, String> {
        let mut roots = rustls::RootCertStore::empty();
        let mut bundle = Vec::new();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|e| format!("caBundle: {e:?}"))?;
            roots
                .add(certificate.clone())
                .map_err(|e| format!("caBundle: {e}"))?;
            bundle.push(certificate);
        }
        if bundle.is_empty() {
            return Err(
                "tls: failed to verify certificate: x509: certificate signed by unknown authority".into(),
            );
        }
        let usual = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
            .build()
            .map_err(|e| format!("caBundle: {e}"))?;
        Ok(Self { usual, bundle })
    }
}

/// Whether the certificate is good now. There is nobody above it who could have signed it.
fn is_valid(certificate: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
    let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| CertificateError::BadEncoding)?;
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let validity = parsed.validity();
    if now < validity.not_before.timestamp() {
        return Err(CertificateError::NotValidYet.into());
    }
    if now > validity.not_after.timestamp() {
        return Err(CertificateError::Expired.into());
    }
    let purposes = parsed.extended_key_usage().ok().flatten();
    if purposes.is_some_and(|purposes| !purposes.value.server_auth && !purposes.value.any) {
        return Err(CertificateError::InvalidPurpose.into());
    }
    Ok(())
}

impl ServerCertVerifier for Trust {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if self.bundle.iter().any(|trusted| trusted == end_entity) {
            is_valid(end_entity, now)?;
            let parsed = rustls::server::ParsedCertificate::try_from(end_entity)?;
            rustls::client::verify_server_name(&parsed, server_name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.usual
            .verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.usual.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.usual.supported_verify_schemes()
    }
}

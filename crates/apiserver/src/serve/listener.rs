//! The HTTPS listener: HTTP/1.1 and HTTP/2, client certificates asked for and judged later, by the server's clock.

use std::sync::Arc;
use std::time::Duration;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, SignatureScheme};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::connection;
use crate::auth::{Peer, Shown};
use crate::state::State;

/// How long a client may take to shake hands.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Starts to serve.
pub(crate) async fn listen(state: &Arc<State>, port: u16) -> Result<(), String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let (chain, key) = state
        .authority
        .serving(state.clock.now())
        .map_err(|error| error.to_string())?;
    let mut config = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?
        .with_client_cert_verifier(Arc::new(AnyClient(provider)))
        .with_single_cert(chain, key)
        .map_err(|error| error.to_string())?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind(("127.0.0.1", port))
        .await
        .map_err(|error| error.to_string())?;
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    state.address.get_or_init(|| address);
    tokio::spawn(accept(state.clone(), listener, acceptor));
    Ok(())
}

async fn accept(state: Arc<State>, listener: TcpListener, acceptor: TlsAcceptor) {
    loop {
        let stream = tokio::select! {
            () = state.stop.cancelled() => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Out of file descriptors, most likely: others must close first.
                    tracing::warn!(%error, "a connection cannot be accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        drop(stream.set_nodelay(true));
        let (state, acceptor) = (state.clone(), acceptor.clone());
        tokio::spawn(async move {
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
                return;
            };
            let certificates = stream.get_ref().1.peer_certificates().unwrap_or_default();
            let shown = certificates.iter().map(|one| one.clone().into_owned()).collect();
            let peer = Peer::Certificates(Arc::new(Shown::new(shown)));
            let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            connection::serve(stream, http2, &state.stop, |mut request| {
                request.extensions_mut().insert(peer.clone());
                let state = state.clone();
                async move { crate::http::handle(&state, request.map(crate::http::Body::new)).await }
            })
            .await;
        });
    }
}

/// Lets every client through the handshake, if it holds the key of what it shows. Whether the certificate means anything is asked
/// per request: a bad one is a 401, not a broken connection.
#[derive(Debug)]
struct AnyClient(Arc<CryptoProvider>);

impl ClientCertVerifier for AnyClient {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.0.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

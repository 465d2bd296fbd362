//! The answer to a certificate request.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestStatus};
use kube::Api;
use writ_controller::{Error, backoff::Backoff, error::Context as _, watching};

/// Waits for the certificate, in PEM; nothing if the request was denied, failed or removed.
pub async fn answer(api: &Api<CertificateSigningRequest>, name: &str) -> Result<Option<String>, Error> {
    let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_secs(10));
    loop {
        let request = api
            .get_opt(name)
            .await
            .context(|| format!("read CertificateSigningRequest {name}"))?;
        let Some(status) = request.map(|r| r.status.unwrap_or_default()) else {
            return Ok(None);
        };
        if is_refused(&status) {
            return Ok(None);
        }
        if let Some(certificate) = status.certificate {
            return String::from_utf8(certificate.0)
                .map(Some)
                .map_err(|e| Error::Invalid(format!("the certificate is no PEM: {e}")));
        }
        // A bootstrap identity may watch its request; an agent's own reads it by name and no more.
        watching::until(api, name, is_answered, &mut pauses).await;
    }
}

/// The error of a request that got no certificate.
pub fn none_given(name: &str) -> Error {
    Error::Invalid(format!("the hub gave no certificate for the request {name:?}"))
}

/// Whether somebody, or the signer, said no.
fn is_refused(status: &CertificateSigningRequestStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|c| c.type_ == "Denied" || c.type_ == "Failed")
}

/// Whether there is nothing more to wait for: a certificate, a refusal, or no request any more.
fn is_answered(request: Option<&CertificateSigningRequest>) -> bool {
    let status = request.map(|request| request.status.as_ref());
    status.is_none_or(|status| status.is_some_and(|s| s.certificate.is_some() || is_refused(s)))
}

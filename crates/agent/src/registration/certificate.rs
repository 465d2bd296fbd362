//! The answer to a certificate request.

use std::time::Duration;

use k8s_openapi::api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestStatus};
use kube::Api;
use writ_controller::{Error, backoff::Backoff, error::Context as _, watch};

/// The answer to a certificate request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is none yet.
    Pending,
    /// The certificate, in PEM.
    Issued(String),
    /// The request was denied, failed or deleted.
    Refused,
}

/// Reads the answer.
pub async fn read(api: &Api<CertificateSigningRequest>, name: &str) -> Result<Answer, Error> {
    let request = api
        .get_opt(name)
        .await
        .context(|| format!("read CertificateSigningRequest {name}"))?;
    let Some(status) = request.map(|request| request.status.unwrap_or_default()) else {
        return Ok(Answer::Refused);
    };
    if is_refused(&status) {
        return Ok(Answer::Refused);
    }
    status.certificate.map_or(Ok(Answer::Pending), |certificate| {
        String::from_utf8(certificate.0)
            .map(Answer::Issued)
            .map_err(|e| Error::Invalid(format!("the certificate is no PEM: {e}")))
    })
}

/// The pauses between two reads of a request that cannot be watched.
pub fn pauses() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_secs(10))
}

/// Waits for the certificate, in PEM; `None` if the request was refused.
pub async fn wait(api: &Api<CertificateSigningRequest>, name: &str) -> Result<Option<String>, Error> {
    let mut pauses = pauses();
    loop {
        match read(api, name).await? {
            Answer::Issued(certificate) => return Ok(Some(certificate)),
            Answer::Refused => return Ok(None),
            // A bootstrap identity may watch its request; an agent's own may only read it by name.
            Answer::Pending => watch::until(api, name, is_answered, &mut pauses).await,
        }
    }
}

/// The error of a request that got no certificate.
pub fn refused(name: &str) -> Error {
    Error::Invalid(format!("the hub gave no certificate for the request {name:?}"))
}

fn is_refused(status: &CertificateSigningRequestStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    conditions.any(|c| c.type_ == "Denied" || c.type_ == "Failed")
}

/// Returns true if there is nothing to wait for: a certificate, a refusal, or no request any more.
fn is_answered(request: Option<&CertificateSigningRequest>) -> bool {
    let status = request.map(|request| request.status.as_ref());
    status.is_none_or(|status| status.is_some_and(|s| s.certificate.is_some() || is_refused(s)))
}

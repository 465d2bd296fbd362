//! The claims of a ServiceAccount token, as it says itself. They are not trusted: the managed cluster's TokenReview decides.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::Deserialize;

/// The claims of a ServiceAccount token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claims {
    /// `system:serviceaccount:<namespace>:<name>`.
    pub subject: String,
    /// When it was issued, by the API server's clock.
    pub issued: Timestamp,
    /// When it expires, by the API server's clock.
    pub expires: Timestamp,
    /// Its audiences.
    pub audiences: Vec<String>,
    /// The uid of the ServiceAccount.
    pub uid: Option<String>,
}

#[derive(Deserialize)]
struct Raw {
    sub: String,
    exp: i64,
    iat: i64,
    #[serde(default)]
    aud: Audience,
    #[serde(rename = "kubernetes.io", default)]
    kubernetes: Kubernetes,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audience {
    One(String),
    Many(Vec<String>),
}

impl Default for Audience {
    fn default() -> Self {
        Self::Many(Vec::new())
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Kubernetes {
    serviceaccount: Account,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Account {
    uid: Option<String>,
}

/// Reads the claims; `None` if the text is no ServiceAccount token.
pub fn read(token: &[u8]) -> Option<Claims> {
    let token = std::str::from_utf8(token).ok()?;
    let mut parts = token.split('.');
    let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let payload = URL_SAFE_NO_PAD.decode(payload).ok()?;
    let raw: Raw = serde_json::from_slice(&payload).ok()?;
    Some(Claims {
        subject: raw.sub,
        issued: Timestamp::from_second(raw.iat).ok()?,
        expires: Timestamp::from_second(raw.exp).ok()?,
        audiences: match raw.aud {
            Audience::One(one) => vec![one],
            Audience::Many(many) => many,
        },
        uid: raw.kubernetes.serviceaccount.uid,
    })
}

/// The subject of a ServiceAccount's tokens.
pub fn subject(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

/// The namespace in the subject of a ServiceAccount's token.
pub fn namespace_of(subject: &str) -> Option<&str> {
    subject
        .strip_prefix("system:serviceaccount:")?
        .split_once(':')
        .map(|(namespace, _)| namespace)
}

//! Who are you: certificate, bearer token, or nobody.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};

use http::{HeaderMap, HeaderValue, header};
use rustls::pki_types::CertificateDer;

use super::issuer::{INVALID, ISSUER, Known, no_audience};
use super::{User, protocol};
use crate::serve::ClientCertificate;
use crate::state::State;
use crate::status::{Failure, Result};

/// What is known about the other end of the connection. In the extensions of the request.
#[derive(Clone)]
pub(crate) enum Peer {
    /// The certificates that it showed.
    Certificates(Arc<Shown>),
    /// The caller is in this process and says who it is.
    Trusted(Box<User>),
}

/// The certificates of a connection. Checking a signature takes longer than most requests, so it is done once; whether they
/// are still valid is asked each time.
pub(crate) struct Shown {
    chain: Vec<CertificateDer<'static>>,
    client: OnceLock<ClientCertificate>,
}

impl Shown {
    pub fn new(chain: Vec<CertificateDer<'static>>) -> Self {
        Self {
            chain,
            client: OnceLock::new(),
        }
    }

    /// The user, if the certificates name one; an error if they are not good now.
    fn user(&self, state: &State) -> std::result::Result<Option<User>, String> {
        let now = state.clock.now();
        match self.client.get() {
            Some(client) if client.valid_at(now) => Ok(client.user.clone()),
            Some(_) => Err("the certificate is not valid now".into()),
            None => {
                let client = state.authority.client(&self.chain, now)?;
                Ok(self.client.get_or_init(|| client).user.clone())
            }
        }
    }
}

/// Tokens that are given from outside, for demos and tests.
#[derive(Default)]
pub(crate) struct StaticTokens(RwLock<BTreeMap<String, User>>);

impl StaticTokens {
    pub fn add(&self, token: String, user: User) {
        self.0
            .write()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(token, user);
    }

    fn find(&self, token: &str) -> Option<User> {
        self.0
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .get(token)
            .cloned()
    }
}

/// The token of a request.
fn bearer(headers: &HeaderMap) -> Option<String> {
    bearer_of(&text(headers.get(header::AUTHORIZATION)?)).map(str::to_owned)
}

/// The token of an authorization; empty if there is a space too many before it. What comes after it is not looked at.
fn bearer_of(authorization: &str) -> Option<&str> {
    let mut parts = authorization.trim().splitn(3, ' ');
    let bearer = parts.next()?.eq_ignore_ascii_case("bearer");
    parts.next().filter(|_| bearer)
}

const IGNORED: &str =
    "the provided Authorization header contains extra space before the bearer token, and is ignored";

/// The user of a request, before impersonation, and what they should know. A token that was the name of a protocol is none of
/// those after that.
pub(crate) fn authenticate(
    state: &State,
    headers: &mut HeaderMap,
    peer: Option<&Peer>,
    warnings: &mut Vec<&'static str>,
) -> Result<User> {
    let bearer = bearer(headers);
    if bearer.as_ref().is_some_and(String::is_empty) {
        warnings.push(IGNORED);
    }
    let bearer = bearer.filter(|token| !token.is_empty());
    let protocol = protocol::token(headers);
    let shown = bearer.is_some() || protocol != Ok(None);
    match peer {
        Some(Peer::Trusted(user)) if !shown => return Ok((**user).clone()),
        Some(Peer::Certificates(shown_certificates)) if !shown_certificates.chain.is_empty() => {
            match shown_certificates.user(state) {
                Ok(Some(user)) => return Ok(user),
                // A certificate without a name says nothing.
                Ok(None) => {}
                // A bad certificate with a good token is still a good token.
                Err(_) if shown => {}
                Err(_) => return Err(Failure::unauthorized()),
            }
        }
        _ => {}
    }
    if !shown {
        return Ok(User::anonymous());
    }
    let mut review = |token: &str| {
        let known = review_token(state, token, &[ISSUER.to_owned()])?;
        warnings.extend(known.warning);
        Ok::<_, Cow<'_, str>>(known.user)
    };
    if let Some(Ok(user)) = bearer.as_deref().map(&mut review) {
        return Ok(user);
    }
    match protocol.map(|token| token.as_deref().map(review)) {
        Ok(Some(Ok(user))) => {
            protocol::strip(headers);
            Ok(user)
        }
        _ => Err(Failure::unauthorized()),
    }
}

/// Who a request would be that is authorized by this text, and for which audiences.
pub(crate) fn review_authorization(
    state: &State,
    token: &str,
    audiences: Vec<String>,
) -> std::result::Result<Known, Cow<'static, str>> {
    let authorization = format!("Bearer {token}");
    match bearer_of(&authorization).filter(|token| !token.is_empty()) {
        Some(token) => review_token(state, token, &audiences),
        // Nobody is somebody, too, and good for everything.
        None => Ok(Known::new(User::anonymous(), audiences)),
    }
}

/// The user of a token, and the audiences among those asked for that it is good for.
fn review_token(
    state: &State,
    token: &str,
    audiences: &[String],
) -> std::result::Result<Known, Cow<'static, str>> {
    if let Some(user) = state.tokens.find(token) {
        // A static token says nothing of audiences: it is for the API server.
        return if audiences.iter().any(|audience| audience == ISSUER) {
            Ok(Known::new(user, vec![ISSUER.to_owned()]))
        } else {
            Err(no_audience(&[ISSUER.to_owned()], audiences))
        };
    }
    if !super::Issuer::claims(token) {
        return Err(INVALID.into());
    }
    state.issuer.check(token, audiences, state)
}

/// A header as text. One with odd bytes counts like any other: whoever asks to be somebody else must not stay who they
/// are because the name cannot be read.
pub(super) fn text(value: &HeaderValue) -> String {
    String::from_utf8_lossy(value.as_bytes()).into_owned()
}

//! Browsers cannot send a token in a header with a WebSocket, so it may be the name of a protocol.

use base64::Engine;
use http::{HeaderMap, HeaderValue, header};

use super::issuer::LENIENT;

const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

fn named(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let values = headers.get_all(header::SEC_WEBSOCKET_PROTOCOL).iter();
    let values = values.filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',').map(str::trim))
}

/// The token among the protocols of a request for a WebSocket; an error if it cannot be one.
pub(super) fn token(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    if !crate::api::is_socket_asked_for(headers) {
        return Ok(None);
    }
    let mut tokens = named(headers).filter_map(|name| name.strip_prefix(PREFIX));
    let Some(encoded) = tokens.next() else {
        return Ok(None);
    };
    if tokens.next().is_some() {
        return Err("multiple base64.bearer.authorization tokens specified");
    }
    let bytes = LENIENT
        .decode(encoded)
        .map_err(|_| "invalid base64.bearer.authorization token encoding")?;
    let token = String::from_utf8(bytes).map_err(|_| "invalid base64.bearer.authorization token")?;
    // One must be left to answer with.
    if !token.is_empty() && named(headers).all(|name| name.starts_with(PREFIX)) {
        return Err("missing additional subprotocol");
    }
    Ok(Some(token).filter(|token| !token.is_empty()))
}

/// Forgets the token when it has served.
pub(super) fn strip(headers: &mut HeaderMap) {
    let kept: Vec<&str> = named(headers).filter(|name| !name.starts_with(PREFIX)).collect();
    if let Ok(kept) = HeaderValue::try_from(kept.join(",")) {
        headers.insert(header::SEC_WEBSOCKET_PROTOCOL, kept);
    }
}

//! gzip of large answers, for clients that accept it.

use std::io::Write as _;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http::{HeaderMap, HeaderValue, Response, header};
use http_body_util::BodyExt as _;

use super::Body;

/// Answers that are not larger are left as they are.
const LARGE: u64 = 128 * 1024;
/// The one document that is compressed by another part of the real server.
const OPENAPI: (&str, u64) = ("/openapi/v2", 1400);

/// Whether a client accepts gzip: it must name it, without a weight.
pub(super) fn accepted(headers: &HeaderMap) -> bool {
    let wanted = headers.get(header::ACCEPT_ENCODING);
    let wanted = wanted.and_then(|value| value.to_str().ok()).unwrap_or_default();
    wanted.split(',').any(|token| token.trim() == "gzip")
}

/// Documents that are not compressed.
const OPENAPI_3: &str = "/openapi/v3/";

/// Compresses an answer that is whole and large. Watches have no length.
pub(super) async fn compress(path: &str, response: Response<Body>) -> Response<Body> {
    let least = if path == OPENAPI.0 { OPENAPI.1 } else { LARGE };
    let size = axum::body::HttpBody::size_hint(response.body()).exact();
    if size.is_none_or(|size| size <= least) || path.starts_with(OPENAPI_3) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(whole) = body.collect().await else {
        return Response::from_parts(parts, Body::empty());
    };
    let whole = whole.to_bytes();
    let again = whole.clone();
    let Ok(Some(small)) = tokio::task::spawn_blocking(move || gzip(&again)).await else {
        return Response::from_parts(parts, Body::from(whole));
    };
    parts.headers.remove(header::CONTENT_LENGTH);
    parts
        .headers
        .insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    if !parts.headers.contains_key(header::VARY) {
        let vary = HeaderValue::from_static("Accept-Encoding");
        parts.headers.insert(header::VARY, vary);
    }
    Response::from_parts(parts, Body::from(small))
}

/// At the level of the real server: the fastest.
fn gzip(whole: &[u8]) -> Option<Bytes> {
    let mut encoder = GzEncoder::new(Vec::with_capacity(whole.len() / 4), Compression::fast());
    encoder.write_all(whole).ok()?;
    Some(encoder.finish().ok()?.into())
}

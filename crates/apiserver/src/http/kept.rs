//! Documents that a client may keep, and ask later whether they are still so.

use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use sha2::Digest;

use super::Body;

/// What a document of these bytes is known by.
pub(crate) fn tag(bytes: &[u8]) -> String {
    format!("\"{:X}\"", sha2::Sha512::digest(bytes))
}

/// Whether a client that has tags has this one.
pub(crate) fn has(headers: &HeaderMap, tag: &str) -> bool {
    let mut given = headers
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim);
    given.any(|given| given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag)
}

/// A document that is known by a tag; for who has it, none.
pub(crate) fn document(body: Option<Body>, form: &str, tag: &str) -> Response<Body> {
    let kept = body.is_none();
    let mut response = Response::new(body.unwrap_or_else(Body::empty));
    if kept {
        *response.status_mut() = StatusCode::NOT_MODIFIED;
    } else if let Ok(form) = HeaderValue::from_str(form) {
        response.headers_mut().insert(header::CONTENT_TYPE, form);
    }
    let headers = response.headers_mut();
    headers.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_tag() {
        for (given, found) in [
            ("\"A\"", true),
            ("\"B\", \"A\"", true),
            ("W/\"A\"", true),
            ("*", true),
            ("\"B\"", false),
            ("A", false),
            ("", false),
            ("\"AA\"", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static(given));
            assert_eq!(has(&headers, "\"A\""), found, "{given}");
        }
    }
}

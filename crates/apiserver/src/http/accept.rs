//! Which form of the answer the client wants.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header};
use serde_json::Value;

use super::Body;
use crate::status::{Failure, Result};

/// The media type of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Media {
    Json,
    Pretty,
    Yaml,
}

/// The shape of an answer that holds objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Shape {
    Whole,
    /// A table for people; the version of `meta.k8s.io`.
    Table(String),
    /// Metadata alone of one object; the version of `meta.k8s.io`.
    Metadata(String),
    /// Metadata alone of a list; the version of `meta.k8s.io`.
    MetadataList(String),
}

/// What the `Accept` header asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accept {
    pub media: Media,
    pub shape: Shape,
}

/// Chooses the first clause that can be served. A clause that asks for more than can be given is skipped.
///
/// `any`: whether `application/*` is understood, which the routes of built-in kinds do not.
pub(crate) fn negotiate(headers: &HeaderMap, pretty: bool, any: bool) -> Result<Accept> {
    let plain = if pretty { Media::Pretty } else { Media::Json };
    let text = headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .collect::<Vec<_>>()
        .join(",");
    if text.trim().is_empty() {
        return Ok(Accept {
            media: plain,
            shape: Shape::Whole,
        });
    }
    let mut clauses: Vec<(f32, &str)> = text
        .split(',')
        .map(|clause| {
            let quality = clause
                .split(';')
                .find_map(|part| part.trim().strip_prefix("q=")?.parse().ok())
                .unwrap_or(1.0);
            (quality, clause)
        })
        .collect();
    clauses.sort_by(|a, b| b.0.total_cmp(&a.0));
    for (_, clause) in clauses {
        let mut parts = clause.split(';').map(str::trim);
        let media = match parts.next().unwrap_or_default() {
            "application/json" | "*/*" => plain,
            "application/*" if any => plain,
            "application/yaml" => Media::Yaml,
            _ => continue,
        };
        let (mut kind, mut group, mut version, mut other) = ("", "", "", false);
        for part in parts {
            match part.split_once('=') {
                Some(("as", value)) => kind = value,
                Some(("g", value)) => group = value,
                Some(("v", value)) => version = value,
                // There is one kind of stream, and none of YAML.
                Some(("stream", value)) => {
                    other |= !value.is_empty() && (value != "watch" || media == Media::Yaml);
                }
                Some(("sv", value)) => other |= !matches!(value, "" | "v1"),
                _ => {}
            }
        }
        if other {
            continue;
        }
        let version_known = group == "meta.k8s.io" && matches!(version, "v1" | "v1beta1");
        let shape = match kind {
            "" if group.is_empty() && version.is_empty() => Shape::Whole,
            "Table" if version_known => Shape::Table(version.to_owned()),
            "PartialObjectMetadata" if version_known => Shape::Metadata(version.to_owned()),
            "PartialObjectMetadataList" if version_known => Shape::MetadataList(version.to_owned()),
            _ => continue,
        };
        return Ok(Accept { media, shape });
    }
    Err(Failure::not_acceptable(&REPRESENTATIONS))
}

/// The forms in which objects come.
pub(crate) const REPRESENTATIONS: [&str; 3] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
];

/// The forms that a client names, without their parameters.
pub(crate) fn accepted(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|clause| clause.split(';').next().unwrap_or_default().trim())
}

/// Refuses those who can read none of the forms that documents about the server come in, whatever their shape.
pub(crate) fn acceptable(headers: &HeaderMap, json_only: bool) -> Result<()> {
    let forms = if json_only {
        REPRESENTATIONS.get(..1).unwrap_or_default()
    } else {
        &REPRESENTATIONS
    };
    let mut clauses = accepted(headers).peekable();
    if clauses.peek().is_none() || clauses.any(|form| form == "*/*" || forms.contains(&form)) {
        return Ok(());
    }
    Err(Failure::not_acceptable(forms))
}

impl Media {
    pub fn content_type(self) -> &'static str {
        match self {
            Self::Json | Self::Pretty => "application/json",
            Self::Yaml => "application/yaml",
        }
    }

    /// An answer from bytes of JSON.
    pub fn respond(self, code: StatusCode, json: Bytes) -> Result<Response<Body>> {
        let bytes = match self {
            Self::Json => json,
            Self::Pretty => {
                let value: Value = serde_json::from_slice(&json).map_err(Failure::internal)?;
                serde_json::to_vec_pretty(&value)
                    .map_err(Failure::internal)?
                    .into()
            }
            Self::Yaml => {
                let value: Value = serde_json::from_slice(&json).map_err(Failure::internal)?;
                serde_saphyr::to_string(&value).map_err(Failure::internal)?.into()
            }
        };
        let mut response = Response::new(Body::from(bytes));
        *response.status_mut() = code;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static(self.content_type()),
        );
        headers.insert(
            header::CACHE_CONTROL,
            HeaderValue::from_static("no-cache, private"),
        );
        Ok(response)
    }
}

/// A plain JSON answer.
pub(crate) fn json(code: StatusCode, value: &Value) -> Response<Body> {
    let mut response = Response::new(Body::from(value.to_string()));
    *response.status_mut() = code;
    response
        .headers_mut()
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// A plain text answer.
pub(crate) fn text(code: StatusCode, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from(body.into()));
    *response.status_mut() = code;
    response.headers_mut().insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("text/plain; charset=utf-8"),
    );
    response
}

//! Answers of the webhook that an object brings along, in its annotation `answer`: odd ones, mostly.

use std::collections::BTreeMap;
use std::io::Write as _;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Response;
use http_body_util::Full;
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What to answer. By default the request is allowed.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Told {
    code: Option<u16>,
    headers: BTreeMap<String, String>,
    /// The whole body; `$UID` stands for the uid of the request.
    raw: Option<String>,
    /// The same in base64, for what is no text.
    bytes: Option<String>,
    /// Fields of the response, and of the review around it.
    response: Map<String, Value>,
    review: Map<String, Value>,
    /// Fields that are left out of both.
    without: Vec<String>,
    /// So many bytes stand for `$BIG`.
    big: usize,
    /// So many warnings of 103 characters.
    warnings: usize,
    gzip: bool,
    /// All is well after so many calls.
    calls: Option<usize>,
}

/// `earlier` says how often the same was asked before.
pub fn answer(review: &Value, path: &str, earlier: usize) -> Result<Response<Full<Bytes>>> {
    let asked = &review["request"];
    let told = asked["object"]["metadata"]["annotations"]["answer"].as_str();
    let mut told: Told = serde_json::from_str(told.unwrap_or("{}"))?;
    if path.ends_with("/redirected") || told.calls.is_some_and(|calls| earlier >= calls) {
        told = Told::default();
    }
    let mut response = json!({"uid": "$UID", "allowed": true});
    let mut around = json!({"apiVersion": review["apiVersion"], "kind": "AdmissionReview"});
    if told.warnings > 0 {
        let warnings = (0..told.warnings).map(|i| format!("{i:03}{}", "w".repeat(100)));
        response["warnings"] = warnings.collect();
    }
    for (map, fields) in [(&mut response, told.response), (&mut around, told.review)] {
        let map = map.as_object_mut().unwrap();
        map.extend(fields);
        map.retain(|name, _| !told.without.contains(name));
    }
    if around.get("response").is_none() {
        around["response"] = response;
    }
    let body = told.raw.unwrap_or_else(|| around.to_string());
    let uid = asked["uid"].as_str().unwrap_or_default();
    let body = body.replace("$UID", uid).replace("$BIG", &"x".repeat(told.big));
    let mut body = body.into_bytes();
    if let Some(bytes) = told.bytes {
        body = STANDARD.decode(bytes)?;
        if let Some(at) = body.windows(4).position(|found| found == b"$UID") {
            body.splice(at..at + 4, uid.bytes());
        }
    }
    if told.gzip {
        let mut packing = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        packing.write_all(&body)?;
        body = packing.finish()?;
    }
    let mut out = Response::builder().status(told.code.unwrap_or(200));
    for (name, value) in &told.headers {
        out = out.header(name, value.replace("$PATH", path));
    }
    Ok(out.body(Full::from(body))?)
}

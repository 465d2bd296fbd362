//! What a webhook answers. It is read as the real server reads it, into types: what does not fit is no answer.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::request::{Rejection, text};
use crate::http::{decode_json, decode_protobuf, decode_yaml, is_protobuf};
use crate::schema::Schema;

const GROUP: &str = "admission.k8s.io";
const KIND: &str = "AdmissionReview";

/// The versions of reviews.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V1,
    /// It takes answers for which `V1` is too strict.
    V1beta1,
}

impl Version {
    /// The first that the webhook names and the server knows.
    pub(super) fn of(hook: &Value) -> Option<Self> {
        let named = hook.get("admissionReviewVersions").and_then(Value::as_array);
        named.into_iter().flatten().find_map(|name| match name.as_str() {
            Some("v1") => Some(Self::V1),
            Some("v1beta1") => Some(Self::V1beta1),
            _ => None,
        })
    }

    fn api_version(self) -> String {
        let version = match self {
            Self::V1 => "v1",
            Self::V1beta1 => "v1beta1",
        };
        format!("{GROUP}/{version}")
    }

    /// The review that is sent.
    pub(super) fn review(self, request: &Value) -> Value {
        json!({"apiVersion": self.api_version(), "kind": KIND, "request": request})
    }
}

/// An answer that can be used.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Answer {
    pub allowed: bool,
    /// A status of the webhook's own, or null.
    pub status: Value,
    pub warnings: Vec<String>,
    pub patch: Vec<u8>,
    pub patch_type: String,
}

/// Which types the fields have.
static TYPES: LazyLock<Schema> = LazyLock::new(|| {
    let string = json!({"type": "string"});
    let texts = json!({"type": "array", "items": string});
    let kind = json!({"type": "object", "properties": {"group": string, "version": string, "kind": string, "resource": string}});
    let int32 = json!({"type": "integer", "format": "int32"});
    let cause =
        json!({"type": "object", "properties": {"reason": string, "message": string, "field": string}});
    let status = json!({"type": "object", "properties": {
        "apiVersion": string,
        "kind": string,
        "metadata": {"type": "object", "properties": {
            "selfLink": string, "resourceVersion": string, "continue": string, "remainingItemCount": {"type": "integer", "format": "int64"},
        }},
        "status": string,
        "message": string,
        "reason": string,
        "details": {"type": "object", "properties": {
            "name": string, "group": string, "kind": string, "uid": string, "retryAfterSeconds": int32,
            "causes": {"type": "array", "items": cause},
        }},
        "code": int32,
    }});
    let user = json!({"type": "object", "properties": {
        "username": string, "uid": string, "groups": texts, "extra": {"type": "object", "additionalProperties": texts},
    }});
    let review = json!({"type": "object", "properties": {
        "apiVersion": string,
        "kind": string,
        "request": {"type": "object", "properties": {
            "uid": string, "kind": kind, "resource": kind, "subResource": string, "requestKind": kind, "requestResource": kind,
            "requestSubResource": string, "name": string, "namespace": string, "operation": string, "userInfo": user,
            "dryRun": {"type": "boolean"},
        }},
        "response": {"type": "object", "properties": {
            "uid": string, "allowed": {"type": "boolean"}, "status": status, "patchType": string, "warnings": texts,
            "auditAnnotations": {"type": "object", "additionalProperties": string},
        }},
    }});
    Schema::compile(&review).unwrap_or_else(|_| Schema::anything())
});

/// What was answered, before anything is said about whether it is right. The error is that the call failed.
pub(super) fn read(bytes: &[u8], version: Version) -> Result<Value, String> {
    if bytes.is_empty() {
        return Err("0-length response".into());
    }
    let review = decoded_review(bytes, version)?;
    if !review.is_object() {
        return Err(format!("couldn't get version/kind: {review} is no object"));
    }
    if let Some(error) = TYPES.decode_error_of(&review, KIND) {
        return Err(error);
    }
    let or = |name: &str, otherwise: String| match text(&review, name) {
        "" => otherwise,
        said => said.to_owned(),
    };
    let (said, kind) = (or("/apiVersion", version.api_version()), or("/kind", KIND.into()));
    if said != version.api_version() || kind != KIND {
        return Err(format!(
            "unable to decode {said}, Kind={kind} into {}, Kind={KIND}",
            version.api_version()
        ));
    }
    if let Some(patch) = review.pointer("/response/patch") {
        decoded(patch)?;
    }
    Ok(review)
}

/// Tells by how the answer begins what it is, whatever it was said to be: what is neither protobuf nor JSON may be YAML.
fn decoded_review(bytes: &[u8], version: Version) -> Result<Value, String> {
    if is_protobuf(bytes) {
        return decode_protobuf(bytes, (&version.api_version(), KIND));
    }
    let json = bytes.trim_ascii_start().first() == Some(&b'{');
    let read = if json { decode_json } else { decode_yaml };
    let plain = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    Ok(read(plain)?.value)
}

/// Whether the answer is one to this question.
pub(super) fn verify(review: &Value, version: Version, uid: &str, mutating: bool) -> Result<Answer, String> {
    let response = review.get("response").filter(|r| r.is_object());
    let response = response.ok_or("webhook response was absent")?;
    let patch = decoded(response.get("patch").unwrap_or(&Value::Null))?;
    let patch_type = response.get("patchType").and_then(Value::as_str);
    let mut answer = Answer {
        allowed: response.get("allowed") == Some(&Value::Bool(true)),
        status: response.get("status").cloned().unwrap_or_default(),
        warnings: texts(response.get("warnings")),
        ..Answer::default()
    };
    if version == Version::V1beta1 {
        if mutating {
            answer.patch = patch;
            answer.patch_type = "JSONPatch".into();
        }
        return Ok(answer);
    }
    let (said, kind) = (text(review, "/apiVersion"), text(review, "/kind"));
    if (said, kind) != (&version.api_version(), KIND) {
        let said = if said.is_empty() { "/" } else { said };
        return Err(format!(
            "expected webhook response of {}, Kind={KIND}, got {said}, Kind={kind}",
            version.api_version()
        ));
    }
    let answered = text(response, "/uid");
    if answered != uid {
        return Err(format!("expected response.uid={uid:?}, got {answered:?}"));
    }
    match (patch.is_empty(), patch_type) {
        (true, None) => {}
        (false, _) if !mutating => return Err("validating webhook may not return response.patch".into()),
        (_, Some(_)) if !mutating => {
            return Err("validating webhook may not return response.patchType".into());
        }
        (false, None) => return Err("webhook returned response.patch but not response.patchType".into()),
        (true, Some(_)) => return Err("webhook returned response.patchType but not response.patch".into()),
        (false, Some("")) => return Err("webhook returned invalid response.patchType of \"\"".into()),
        (false, Some(patch_type)) => {
            answer.patch = patch;
            patch_type.clone_into(&mut answer.patch_type);
        }
    }
    Ok(answer)
}

fn texts(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    list.map(|item| item.as_str().unwrap_or_default().to_owned())
        .collect()
}

/// Bytes as Go reads them: base64, which may have lines, or an array of numbers.
fn decoded(value: &Value) -> Result<Vec<u8>, String> {
    match value {
        Value::Null => Ok(Vec::new()),
        Value::String(text) => STANDARD
            .decode(text.replace(['\r', '\n'], ""))
            .map_err(|e| e.to_string()),
        Value::Array(list) => list
            .iter()
            .map(|item| match item {
                Value::Null => Some(0),
                item => item.as_u64().and_then(|n| u8::try_from(n).ok()),
            })
            .collect::<Option<_>>()
            .ok_or_else(|| "json: cannot unmarshal array into Go value of type []uint8".into()),
        _ => Err("json: cannot unmarshal into Go value of type []uint8".into()),
    }
}

/// The webhook's own status, with its name in front.
pub(super) fn denied(name: &str, status: &Value) -> Rejection {
    let by = format!(
        "admission webhook {} denied the request",
        crate::schema::quote(name)
    );
    let message = match (text(status, "/message"), text(status, "/reason")) {
        ("", "") => format!("{by} without explanation"),
        ("", reason) => format!("{by}: {reason}"),
        (message, _) => format!("{by}: {message}"),
    };
    let code = status.get("code").and_then(Value::as_u64).unwrap_or_default();
    Rejection {
        code: u16::try_from(code)
            .ok()
            .filter(|code| (400..1000).contains(code))
            .unwrap_or(400),
        reason: text(status, "/reason").to_owned(),
        message,
        details: status.get("details").filter(|d| d.is_object()).cloned(),
    }
}

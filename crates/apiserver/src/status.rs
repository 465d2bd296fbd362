//! Answers other than success: the `Status` object of Kubernetes, in the words of the real server.

use std::borrow::Cow;
use std::collections::HashSet;

use bytes::Bytes;
use http::{Response, StatusCode, header};
use serde_json::{Value, json};

use crate::http::Body;
use crate::schema::Cause;

/// A refused request. Boxed inside, so that `Result`s stay small.
#[derive(Debug, Clone)]
pub struct Failure(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    code: u16,
    reason: Cow<'static, str>,
    message: String,
    details: Option<Value>,
    metadata: Option<Value>,
    plain: bool,
}

/// The result of handling a request.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// `resource` or `resource.group`, as error messages name it.
pub fn qualified(group: &str, resource: &str) -> String {
    if group.is_empty() {
        resource.to_owned()
    } else {
        format!("{resource}.{group}")
    }
}

fn details(group: &str, kind: &str, name: &str) -> Value {
    let mut map = serde_json::Map::new();
    for (key, value) in [("group", group), ("kind", kind), ("name", name)] {
        if !value.is_empty() {
            map.insert(key.into(), value.into());
        }
    }
    Value::Object(map)
}

impl From<Failure> for crate::admission::Rejection {
    fn from(failure: Failure) -> Self {
        Self {
            code: failure.0.code,
            reason: failure.0.reason.into_owned(),
            message: failure.0.message,
            details: failure.0.details,
        }
    }
}

impl Failure {
    /// Any status, for answers made elsewhere (such as an admission webhook's).
    pub fn new(code: u16, reason: impl Into<Cow<'static, str>>, message: impl Into<String>) -> Self {
        Self(Box::new(Inner {
            code,
            reason: reason.into(),
            message: message.into(),
            details: None,
            metadata: None,
            plain: false,
        }))
    }

    fn with(mut self, details: Value) -> Self {
        self.0.details = Some(details);
        self
    }

    /// Replaces `details`.
    #[must_use]
    pub fn with_details(self, details: Value) -> Self {
        self.with(details)
    }

    /// Says something before the message.
    #[must_use]
    pub fn prefixed(mut self, text: &str) -> Self {
        self.0.message.insert_str(0, text);
        self
    }

    /// Sets the metadata of the list that could not be given.
    #[must_use]
    pub fn with_metadata(mut self, metadata: Value) -> Self {
        self.0.metadata = Some(metadata);
        self
    }

    /// 404 for an object.
    pub fn not_found(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            404,
            "NotFound",
            format!("{} \"{name}\" not found", qualified(group, resource)),
        )
        .with(details(group, resource, name))
    }

    /// 404 for a resource that a built-in group does not have.
    pub fn no_such_resource() -> Self {
        Self::new(
            404,
            "NotFound",
            "the server could not find the requested resource",
        )
        .with(json!({}))
    }

    /// 404 for a path that is nothing, as plain text.
    pub fn no_such_path() -> Self {
        let mut it = Self::new(404, "NotFound", "404 page not found\n");
        it.0.plain = true;
        it
    }

    /// 500 for a path that says too little, as plain text.
    pub fn nowhere(path: &str) -> Self {
        let why = format!(
            "Internal Server Error: {path:?}: unable to determine kind and namespace from url, {path}\n"
        );
        let mut it = Self::new(500, "InternalError", why);
        it.0.plain = true;
        it
    }

    /// 504, as an object that does not say what it is.
    pub fn late() -> Self {
        let why = "Timeout: request did not complete within the allotted timeout";
        let status = json!({
            "metadata": {}, "status": "Failure", "message": why, "reason": "Timeout", "details": {}, "code": 504,
        });
        let mut it = Self::new(504, "Timeout", status.to_string());
        it.0.plain = true;
        it
    }

    /// 409, the name is taken.
    pub fn already_exists(group: &str, resource: &str, name: &str) -> Self {
        Self::new(
            409,
            "AlreadyExists",
            format!("{} \"{name}\" already exists", qualified(group, resource)),
        )
        .with(details(group, resource, name))
    }

    /// 409, somebody else was faster.
    pub fn conflict(group: &str, resource: &str, name: &str, why: &str) -> Self {
        Self::new(
            409,
            "Conflict",
            format!(
                "Operation cannot be fulfilled on {} \"{name}\": {why}",
                qualified(group, resource)
            ),
        )
        .with(details(group, resource, name))
    }

    /// 409 with the usual advice.
    pub fn stale(group: &str, resource: &str, name: &str) -> Self {
        Self::conflict(
            group,
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 of server-side apply, naming managers and fields.
    pub fn apply_conflict(message: String, conflicts: &[(String, String)]) -> Self {
        let causes: Value = conflicts
            .iter()
            .map(|(field, message)| json!({ "reason": "FieldManagerConflict", "message": message, "field": field }))
            .collect();
        Self::new(409, "Conflict", message).with(json!({ "causes": causes }))
    }

    /// 403.
    pub fn forbidden(group: &str, resource: &str, name: &str, why: &str) -> Self {
        let message = if resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{} is forbidden: {why}", qualified(group, resource))
        } else {
            format!("{} \"{name}\" is forbidden: {why}", qualified(group, resource))
        };
        Self::new(403, "Forbidden", message).with(details(group, resource, name))
    }

    /// 401.
    pub fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 405 for a method that the path does not know.
    pub fn no_such_method() -> Self {
        Self::new(
            405,
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
        )
        .with(json!({}))
    }

    /// 405, for what cannot be done with a kind.
    pub fn not_supported(group: &str, resource: &str, action: &str) -> Self {
        let kind = qualified(group, resource);
        Self::new(
            405,
            "MethodNotAllowed",
            format!("{action} is not supported on resources of kind \"{kind}\""),
        )
        .with(json!({ "group": group, "kind": resource }))
    }

    /// 410, history is gone.
    pub fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// 415.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        Self::new(
            415,
            "UnsupportedMediaType",
            format!(
                "the body of the request was in an unknown format - accepted media types include: {}",
                accepted.join(", ")
            ),
        )
    }

    /// 406.
    pub fn not_acceptable(accepted: &[&str]) -> Self {
        let message = format!(
            "406: Not Acceptable\n\nAvailable representations: {}",
            accepted.join(", ")
        );
        Self::new(406, "NotAcceptable", message).with(json!({}))
    }

    /// 406, for a shape that this answer cannot have.
    pub fn other_shape(message: String) -> Self {
        Self::new(406, "NotAcceptable", message).with(json!({}))
    }

    /// 413.
    pub fn too_large(limit: usize) -> Self {
        Self::new(
            413,
            "RequestEntityTooLarge",
            format!("Request entity too large: limit is {limit}"),
        )
    }

    /// 422. `kind` is the kind's name, not the resource's.
    pub fn invalid(group: &str, kind: &str, name: &str, causes: &[Cause]) -> Self {
        let mut all: Vec<String> = Vec::with_capacity(causes.len());
        let mut seen = HashSet::new();
        for cause in causes {
            let line = if cause.field.is_empty() {
                cause.message.clone()
            } else {
                format!("{}: {}", cause.field, cause.message)
            };
            if seen.insert(line.clone()) {
                all.push(line);
            }
        }
        let message = match all.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut info = details(group, kind, name);
        if let Some(map) = info.as_object_mut()
            && !causes.is_empty()
        {
            map.insert("causes".into(), causes_json(causes));
        }
        let what = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        Self::new(422, "Invalid", format!("{what} \"{name}\" is invalid: {message}")).with(info)
    }

    /// 500.
    pub fn internal(why: impl std::fmt::Display) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {why}"))
            .with(json!({ "causes": [{ "message": why.to_string() }] }))
    }

    /// 504 or 429 with a number of seconds after which to try again.
    pub fn retry(code: u16, reason: &'static str, message: impl Into<String>, seconds: u32) -> Self {
        Self::new(code, reason, message).with(json!({ "retryAfterSeconds": seconds }))
    }

    /// Whether it is a line of text, not an object.
    pub(crate) fn is_plain(&self) -> bool {
        self.0.plain
    }

    /// HTTP status code.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// The message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Machine-readable reason.
    pub fn reason(&self) -> &str {
        &self.0.reason
    }

    /// The `Status` object.
    pub fn to_json(&self) -> Value {
        let mut it = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.0.message,
            "reason": self.0.reason,
            "code": self.0.code,
        });
        if let Some(map) = it.as_object_mut()
            && self.0.reason.is_empty()
        {
            map.remove("reason");
        }
        if let (Some(details), Some(map)) = (&self.0.details, it.as_object_mut()) {
            map.insert("details".into(), details.clone());
        }
        if let (Some(metadata), Some(map)) = (&self.0.metadata, it.as_object_mut()) {
            map.insert("metadata".into(), metadata.clone());
        }
        it
    }

    /// The whole HTTP answer.
    pub(crate) fn response(&self) -> Response<Body> {
        let code = StatusCode::from_u16(self.0.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let (kind, bytes) = if self.0.plain {
            ("text/plain; charset=utf-8", Bytes::from(self.0.message.clone()))
        } else {
            ("application/json", Bytes::from(self.to_json().to_string()))
        };
        let mut response = Response::new(Body::from(bytes));
        *response.status_mut() = code;
        response
            .headers_mut()
            .insert(header::CONTENT_TYPE, header::HeaderValue::from_static(kind));
        response.headers_mut().insert(
            header::CACHE_CONTROL,
            header::HeaderValue::from_static("no-cache, private"),
        );
        if let Some(seconds) = self
            .0
            .details
            .as_ref()
            .and_then(|d| d.get("retryAfterSeconds"))
            .and_then(Value::as_u64)
        {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        response
    }
}

fn causes_json(causes: &[Cause]) -> Value {
    causes
        .iter()
        .map(|cause| {
            let mut it = json!({ "reason": cause.reason.as_str(), "message": cause.message });
            if let Some(map) = it.as_object_mut()
                && !cause.field.is_empty()
            {
                map.insert("field".into(), cause.field.clone().into());
            }
            it
        })
        .collect()
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Failure {}

/// The `Status` object of a success without an object to return.
pub fn success(details: &Value) -> Value {
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

//! Where a webhook is: a URL or a service.

use serde_json::Value;

use super::text;
use crate::go_url::GoUrl;
use crate::schema::{Cause, child, names};

const FORM: &str = "; desired format: https://host[/path]";

/// Checks a `clientConfig`.
pub(super) fn client_config(config: Option<&Value>, path: &str, causes: &mut Vec<Cause>) {
    let given = |name: &str| config.and_then(|c| c.get(name)).filter(|v| !v.is_null());
    match (given("url").and_then(Value::as_str), given("service")) {
        (Some(_), Some(_)) | (None, None) => {
            causes.push(Cause::required(path, "exactly one of url or service is required"));
        }
        (Some(url), None) => self::url(url, &child(path, "url"), causes),
        (None, Some(service)) => self::service(service, &child(path, "service"), causes),
    }
}

fn url(text: &str, path: &str, causes: &mut Vec<Cause>) {
    let url = match GoUrl::parse(text) {
        Ok(url) => url,
        Err(why) => {
            let detail = format!("url must be a valid URL: {why}{FORM}");
            causes.push(Cause::required(path, &detail));
            return;
        }
    };
    let mut refuse = |value: &str, detail: &str| {
        causes.push(Cause::invalid(path, &value.into(), detail));
    };
    if url.scheme != "https" {
        refuse(
            &url.scheme,
            &format!("'https' is the only allowed URL scheme{FORM}"),
        );
    }
    if url.host().is_empty() {
        refuse("", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = &url.user {
        refuse(user, "user information is not permitted in the URL");
    }
    let fragment = url.fragment();
    if !fragment.is_empty() {
        refuse(&fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        refuse(&url.query, "query parameters are not permitted in the URL");
    }
}

fn service(service: &Value, path: &str, causes: &mut Vec<Cause>) {
    for name in ["name", "namespace"] {
        if text(service, &format!("/{name}")).is_empty() {
            causes.push(Cause::required(child(path, name), ""));
        }
    }
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    if !(1..=65535).contains(&port) {
        let detail = "port is not valid: must be between 1 and 65535, inclusive";
        causes.push(Cause::invalid(child(path, "port"), &port.into(), detail));
    }
    let given = text(service, "/path");
    let mut refuse = |detail: &str| causes.push(Cause::invalid(child(path, "path"), &given.into(), detail));
    match given {
        "" | "/" => return,
        "//" => {
            refuse("segment[0] may not be empty");
            return;
        }
        _ if !given.starts_with('/') => refuse("must start with a '/'"),
        _ => {}
    }
    // The first character is not looked at again, whatever it is.
    let mut rest = given.chars();
    rest.next();
    let rest = rest.as_str();
    for (i, segment) in rest.strip_suffix('/').unwrap_or(rest).split('/').enumerate() {
        if segment.is_empty() {
            refuse(&format!("segment[{i}] may not be empty"));
            continue;
        }
        for problem in names::dns_subdomain(segment) {
            refuse(&format!("segment[{i}]: {problem}"));
        }
    }
}

//! Where a webhook is: a URL or a service.

use serde_json::Value;

use super::text;
use crate::schema::{Cause, child, names, quote};

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
    let url = match Url::parse(text) {
        Ok(url) => url,
        Err(why) => {
            let detail = format!("url must be a valid URL: parse {}: {why}{FORM}", quote(text));
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
    if url.host.is_empty() {
        refuse("", &format!("host must be specified{FORM}"));
    }
    if let Some(user) = url.user {
        refuse(user, "user information is not permitted in the URL");
    }
    if !url.fragment.is_empty() {
        refuse(url.fragment, "fragments are not permitted in the URL");
    }
    if !url.query.is_empty() {
        refuse(url.query, "query parameters are not permitted in the URL");
    }
}

/// The parts of a URL that are looked at. What is one and what is not is decided as Go does.
#[derive(Debug, Default)]
struct Url<'a> {
    scheme: String,
    user: Option<&'a str>,
    host: &'a str,
    query: &'a str,
    fragment: &'a str,
}

impl<'a> Url<'a> {
    fn parse(text: &'a str) -> Result<Self, String> {
        let (text, fragment) = text.split_once('#').unwrap_or((text, ""));
        if text.chars().any(|c| c.is_ascii_control()) {
            return Err("net/url: invalid control character in URL".into());
        }
        escapes(fragment, |_| true)?;
        let (scheme, rest) = scheme(text)?;
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let mut url = Self {
            scheme: scheme.to_ascii_lowercase(),
            query,
            fragment,
            ..Self::default()
        };
        let mut path = rest;
        if let Some(rest) = rest.strip_prefix("//") {
            let end = rest.find('/').unwrap_or(rest.len());
            let (authority, after) = rest.split_at(end);
            path = after;
            url.host = authority;
            if let Some((user, host)) = authority.rsplit_once('@') {
                userinfo(user)?;
                (url.user, url.host) = (Some(user), host);
            }
            host(url.host)?;
        } else if !rest.starts_with('/') {
            if !scheme.is_empty() {
                // Everything after the scheme is one opaque text.
                return Ok(url);
            }
            if rest.split('/').next().is_some_and(|first| first.contains(':')) {
                return Err("first path segment in URL cannot contain colon".into());
            }
        }
        escapes(path, |_| true)?;
        Ok(url)
    }
}

/// The scheme, if there is one, and what follows.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || "+-.".contains(c)));
    match end.and_then(|end| text.split_at_checked(end)) {
        Some(("", rest)) if rest.starts_with(':') => Err("missing protocol scheme".into()),
        Some((scheme, rest)) if scheme.starts_with(|c: char| c.is_ascii_alphabetic()) => {
            Ok(rest.strip_prefix(':').map_or(("", text), |rest| (scheme, rest)))
        }
        _ => Ok(("", text)),
    }
}

fn userinfo(user: &str) -> Result<(), String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(good) {
        return Err("net/url: invalid userinfo".into());
    }
    escapes(user, |_| true)
}

fn host(host: &str) -> Result<(), String> {
    let port = |text: &str| match text.strip_prefix(':') {
        None if text.is_empty() => Ok(()),
        Some(digits) if digits.chars().all(|c| c.is_ascii_digit()) => Ok(()),
        _ => Err(format!("invalid port {} after host", quote(text))),
    };
    if host.starts_with('[') {
        let Some((address, after)) = host.rsplit_once(']') else {
            return Err("missing ']' in host".into());
        };
        port(after)?;
        // What is behind the mark of a zone may be escaped.
        let (address, zone) = address.split_once("%25").unwrap_or((address, ""));
        escapes(zone, |_| true)?;
        return characters(address);
    }
    if let Some(colon) = host.find(':') {
        port(host.get(colon..).unwrap_or_default())?;
    }
    characters(host)
}

fn characters(host: &str) -> Result<(), String> {
    // In a host only what is not ASCII is escaped.
    escapes(host, |byte| byte >= 0x80)?;
    let good = |c: char| !c.is_ascii() || c.is_ascii_alphanumeric() || "!$&'()*+,;=:[]<>\"-_.~%".contains(c);
    match host.chars().find(|c| !good(*c)) {
        Some(bad) => Err(format!(
            "invalid character {} in host name",
            quote(&bad.to_string())
        )),
        None => Ok(()),
    }
}

/// Whether all that is escaped is, and may be.
fn escapes(text: &str, allowed: impl Fn(u8) -> bool) -> Result<(), String> {
    for (at, _) in text.match_indices('%') {
        let digits = text.get(at + 1..at + 3).unwrap_or_default();
        let byte = u8::from_str_radix(digits, 16)
            .ok()
            .filter(|_| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
        if !byte.is_some_and(&allowed) {
            let shown: String = text
                .chars()
                .skip(text.get(..at).unwrap_or_default().chars().count())
                .take(3)
                .collect();
            return Err(format!("invalid URL escape {}", quote(&shown)));
        }
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_what_they_are_there() {
        for (text, wanted) in [
            ("https://x/a b", Ok(("https", "x"))),
            ("HTTPS://[::1%25x]:1/", Ok(("https", "[::1%25x]:1"))),
            ("https:x", Ok(("https", ""))),
            ("//h/p", Ok(("", "h"))),
            ("a:b", Ok(("a", ""))),
            ("://x", Err("missing protocol scheme")),
            ("1a:b", Err("first path segment in URL cannot contain colon")),
            ("https://x:a/", Err("invalid port \":a\" after host")),
            ("https://x%41/", Err("invalid URL escape \"%41\"")),
            ("https://x/%", Err("invalid URL escape \"%\"")),
            ("https://[a", Err("missing ']' in host")),
            ("https://x y/", Err("invalid character \" \" in host name")),
            ("https://u x@h/", Err("net/url: invalid userinfo")),
        ] {
            let found = Url::parse(text).map(|url| (url.scheme, url.host));
            let wanted = wanted.map(|(scheme, host)| (scheme.to_owned(), host));
            assert_eq!(found, wanted.map_err(str::to_owned), "{text}");
        }
    }
}

//! What a request is about: the path, the verb and the query, taken apart as the real server does.

use http::Method;
use writ_authz::ResourceAttributes;

use super::is_read;
use crate::status::{Failure, Result};

/// The resource that a path names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the path"
)]
pub(crate) struct Target {
    pub group: String,
    pub version: String,
    pub namespace: String,
    pub resource: String,
    pub name: String,
    pub subresource: String,
    /// What comes after the subresource. No right is asked for it, and only custom resources are found nevertheless.
    pub beyond: Vec<String>,
    /// The old `/watch/` prefix was used.
    pub watch: bool,
    /// The older `/proxy/` prefix was used, behind which there is nothing any more.
    pub proxy: bool,
    /// Spelled so that nothing is found there, although rights are asked for it.
    pub astray: bool,
    /// Reached through a namespace. `/namespaces/NAME` names one, too, but is not inside of it.
    pub inside: bool,
}

/// What a path is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Route {
    Resource(Target),
    Other(String),
}

/// Takes a path apart. An error if nothing comes after a prefix: no right could be asked for.
pub(crate) fn route(path: &str) -> Result<Route> {
    // Decoded as a whole: a slash is a slash, however it is spelled.
    let decoded = decode(path);
    let parts: Vec<&str> = decoded.trim_matches('/').split('/').collect();
    let mut target = Target {
        astray: decoded.starts_with("//"),
        ..Target::default()
    };
    let rest = match parts.as_slice() {
        ["api", version, rest @ ..] if !rest.is_empty() => {
            (*version).clone_into(&mut target.version);
            rest
        }
        ["apis", group, version, rest @ ..] if !rest.is_empty() => {
            (*group).clone_into(&mut target.group);
            target.astray |= group.is_empty();
            (*version).clone_into(&mut target.version);
            rest
        }
        _ => return Ok(Route::Other(decoded)),
    };
    let rest = match rest {
        ["watch" | "proxy"] => return Err(Failure::nowhere(path)),
        [prefix @ ("watch" | "proxy"), more @ ..] => {
            target.watch = *prefix == "watch";
            target.proxy = !target.watch;
            more
        }
        other => other,
    };
    let rest = match rest {
        ["namespaces", namespace, more @ ..] => {
            (*namespace).clone_into(&mut target.namespace);
            match more {
                // The namespace itself, or one of its own subresources.
                [] | ["status" | "finalize", ..] => rest,
                more => {
                    target.inside = true;
                    more
                }
            }
        }
        other => other,
    };
    if let [resource, more @ ..] = rest {
        (*resource).clone_into(&mut target.resource);
        if let [name, more @ ..] = more {
            (*name).clone_into(&mut target.name);
            if let [subresource, more @ ..] = more {
                (*subresource).clone_into(&mut target.subresource);
                target.beyond = more.iter().map(|part| (*part).to_owned()).collect();
            }
        }
    }
    Ok(Route::Resource(target))
}

/// Undoes percent-encoding. What is no encoding stays as it is, bytes that are no UTF-8 become the replacement character.
pub(crate) fn decode(text: &str) -> String {
    decode_telling(text).0
}

/// Undoes percent-encoding, but not if any of it is none.
pub(crate) fn decode_whole(text: &str) -> String {
    match decode_telling(text) {
        (decoded, true) => decoded,
        (_, false) => text.to_owned(),
    }
}

/// Also tells whether all of it was encoded rightly.
fn decode_telling(text: &str) -> (String, bool) {
    if !text.contains('%') {
        return (text.to_owned(), true);
    }
    let mut out = Vec::with_capacity(text.len());
    let mut right = true;
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        let mut ahead = bytes.clone();
        let pair = (byte == b'%').then(|| (ahead.next().and_then(hex), ahead.next().and_then(hex)));
        if let Some((Some(high), Some(low))) = pair {
            out.push(high << 4 | low);
            bytes = ahead;
        } else {
            right &= byte != b'%';
            out.push(byte);
        }
    }
    (String::from_utf8_lossy(&out).into_owned(), right)
}

fn hex(byte: u8) -> Option<u8> {
    char::from(byte)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

/// The query of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    pub fn parse(text: Option<&str>) -> Self {
        Self(
            text.unwrap_or_default()
                .split('&')
                .filter(|pair| !pair.is_empty())
                .map(|pair| {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    (decode(&key.replace('+', " ")), decode(&value.replace('+', " ")))
                })
                .collect(),
        )
    }

    /// The first value, if there is one that is not empty.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.first(name).filter(|value| !value.is_empty())
    }

    /// Whether the parameter is there at all.
    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(key, _)| key == name)
    }

    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0
            .iter()
            .filter(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
            .collect()
    }

    /// The first value, even if it is empty.
    pub fn first(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// A boolean as the real server reads it: anything but nothing, `0` and `false` is true.
    pub fn flag(&self, name: &str) -> bool {
        self.optional_flag(name).unwrap_or(false)
    }

    pub fn optional_flag(&self, name: &str) -> Option<bool> {
        // Whatever else is said, and be it nothing, means yes.
        self.first(name)
            .map(|value| !(value.eq_ignore_ascii_case("false") || value == "0"))
    }

    /// A number; nothing at all is none.
    pub fn number(&self, name: &str) -> Result<Option<i64>> {
        let Some(text) = self.first(name) else {
            return Ok(None);
        };
        text.parse()
            .map(Some)
            .map_err(|_| Failure::bad_request(format!("strconv.ParseInt: parsing {text:?}: invalid syntax")))
    }
}

impl Target {
    /// What authorization is asked.
    pub fn attributes<'a>(&'a self, verb: &'a str) -> ResourceAttributes<'a> {
        ResourceAttributes {
            verb,
            group: &self.group,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
        }
    }

    /// The verb that authorization knows.
    pub fn verb(&self, method: &Method, query: &Query) -> &'static str {
        let whole = self.name.is_empty();
        match *method {
            // By whichever method: the prefix says what is wanted.
            _ if self.watch => "watch",
            _ if self.proxy => "proxy",
            Method::POST => "create",
            Method::PUT => "update",
            Method::PATCH => "patch",
            Method::DELETE if whole => "deletecollection",
            Method::DELETE => "delete",
            // What nobody knows nobody may be allowed by name.
            _ if !is_read(method) => "",
            _ if whole && query.flag("watch") => "watch",
            _ if whole => "list",
            _ => "get",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (path, group, namespace, resource, name, subresource) in [
            ("/api/v1/pods", "", "", "pods", "", ""),
            ("/api/v1/namespaces", "", "", "namespaces", "", ""),
            ("/api/v1/namespaces/a", "", "a", "namespaces", "a", ""),
            (
                "/api/v1/namespaces/a/status",
                "",
                "a",
                "namespaces",
                "a",
                "status",
            ),
            ("/api/v1/namespaces/a/pods/b/log", "", "a", "pods", "b", "log"),
            ("/api/v1/nodes/a/proxy/b/c", "", "", "nodes", "a", "proxy"),
            (
                "/apis/apps/v1/namespaces/a/deployments/b%2Fc",
                "apps",
                "a",
                "deployments",
                "b",
                "c",
            ),
        ] {
            let Ok(Route::Resource(target)) = route(path) else {
                panic!("{path}")
            };
            assert_eq!(
                (group, namespace, resource, name, subresource),
                (
                    target.group.as_str(),
                    target.namespace.as_str(),
                    target.resource.as_str(),
                    target.name.as_str(),
                    target.subresource.as_str()
                ),
                "{path}"
            );
        }
        let other = |path: &str| matches!(route(path), Ok(Route::Other(same)) if same == path);
        assert!(other("/apis/apps/v1"));
        assert!(other("/version"));
        assert!(route("/api/v1/watch").is_err());
    }

    #[test]
    fn what_is_inside_of_a_namespace() {
        for (path, inside) in [
            ("/api/v1/namespaces", false),
            ("/api/v1/namespaces/a", false),
            ("/api/v1/namespaces/a/finalize", false),
            ("/api/v1/namespaces/a/pods", true),
            ("/api/v1/namespaces/a/namespaces", true),
            ("/api/v1/namespaces/a/namespaces/a", true),
            ("/api/v1/watch/namespaces/a/namespaces/b", true),
        ] {
            assert!(
                matches!(route(path), Ok(Route::Resource(target)) if target.inside == inside),
                "{path}"
            );
        }
    }

    #[test]
    fn flags() {
        let query = Query::parse(Some("a&b=0&c=false&d=x&e=a+b%3D"));
        assert_eq!(
            ["a", "b", "c", "d"].map(|name| query.flag(name)),
            [true, false, false, true]
        );
        assert_eq!(query.get("e"), Some("a b="));
    }
}

//! Where a webhook lives.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::Authority;
use serde_json::Value;

use super::Source;
use super::request::text;
use crate::http::decode;

/// Whom to dial, and how to know that it is the right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Door {
    /// What is dialled, or why there is nothing to dial.
    pub address: Result<String, String>,
    /// What the certificate must say.
    pub host: String,
    /// Who may have signed it.
    pub authority: Vec<u8>,
    /// Whether it is spoken to over TLS: only a redirect leads to where it is not.
    pub secure: bool,
}

/// A door, and what is asked for behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub door: Door,
    /// The host as the request names it, with its port.
    pub named: String,
    /// The path as it is sent, and a query.
    pub path: String,
}

impl Target {
    /// Reads `clientConfig`: a URL, or a service whose endpoints the store knows.
    pub(super) fn read(config: &Value, source: &dyn Source) -> Result<Self, String> {
        let bundle = text(config, "/caBundle");
        let authority = STANDARD
            .decode(bundle)
            .map_err(|e| format!("could not get REST client: caBundle: {e}"))?;
        let url = text(config, "/url");
        if !url.is_empty() {
            let mut target =
                Self::of_url(url, authority).map_err(|e| format!("could not get REST client: {e}"))?;
            // A path of its own has no query.
            let path = target.path.split(['?', '#']).next().unwrap_or_default();
            target.path = cleaned(&decode(path));
            return Ok(target);
        }
        let Some(service) = config.get("service").filter(|s| s.is_object()) else {
            return Err(
                "could not get REST client: webhook configuration must have either service or URL".into(),
            );
        };
        let (namespace, name) = (text(service, "/namespace"), text(service, "/name"));
        let port = service.get("port").and_then(Value::as_u64).unwrap_or(443);
        let host = format!("{name}.{namespace}.svc");
        Ok(Self {
            named: format!("{host}:{port}"),
            path: cleaned(text(service, "/path")),
            door: Door {
                address: endpoint(source, namespace, name, port),
                host,
                authority,
                secure: true,
            },
        })
    }

    /// Where a URL leads; the path is taken as it is.
    fn of_url(url: &str, authority: Vec<u8>) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return Err(format!("unsupported protocol scheme {scheme:?}")),
        };
        let (named, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let parsed: Authority = named.parse().map_err(|e| format!("{named}: {e}"))?;
        let port = parsed.port_u16().unwrap_or(if secure { 443 } else { 80 });
        Ok(Self {
            door: Door {
                address: Ok(format!("{}:{port}", parsed.host())),
                host: parsed.host().trim_matches(['[', ']']).to_owned(),
                authority,
                secure,
            },
            named: named.to_owned(),
            path: if path.starts_with('/') {
                path.to_owned()
            } else {
                format!("/{path}")
            },
        })
    }

    /// Where a redirect leads, which may be said in relation to here.
    pub(super) fn redirected(&self, location: &str) -> Result<Self, String> {
        let location = location.split('#').next().unwrap_or_default();
        let mut target = if has_scheme(location) {
            Self::of_url(location, self.door.authority.clone())?
        } else if location.starts_with("//") {
            let url = format!("{}:{location}", self.scheme());
            Self::of_url(&url, self.door.authority.clone())?
        } else {
            let here = self.path.split('?').next().unwrap_or_default();
            let path = match location.chars().next() {
                None => self.path.clone(),
                Some('/') => location.to_owned(),
                Some('?') => format!("{here}{location}"),
                Some(_) => {
                    let (folder, _) = here.rsplit_once('/').unwrap_or_default();
                    format!("{folder}/{location}")
                }
            };
            Self { path, ..self.clone() }
        };
        target.path = without_dots(&target.path);
        Ok(target)
    }

    fn scheme(&self) -> &'static str {
        if self.door.secure { "https" } else { "http" }
    }

    /// The URL as messages show it.
    pub(super) fn url(&self) -> String {
        format!("{}://{}{}", self.scheme(), self.named, self.path)
    }
}

/// Whether a location says how to get there, not only where.
fn has_scheme(location: &str) -> bool {
    let end = location.find([':', '/', '?']);
    end.and_then(|end| location.get(end..))
        .is_some_and(|rest| rest.starts_with(':'))
}

/// A path, and a query, in which no part means the one before it. Unlike [`cleaned`], it keeps what is empty or escaped.
fn without_dots(path: &str) -> String {
    let (path, query) = path.split_at(path.find('?').unwrap_or(path.len()));
    let mut parts: Vec<&str> = Vec::new();
    for part in path.trim_start_matches('/').split('/') {
        match part {
            "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if path.ends_with("/.") || path.ends_with("/..") {
        parts.push("");
    }
    format!("/{}{query}", parts.join("/"))
}

/// A path without empty parts and dots, escaped as the real server does it: it knows a path by its decoded form only.
fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    let kept = |byte: u8| byte.is_ascii_alphanumeric() || b"$&+,/:;=@-_.~".contains(&byte);
    let mut out = vec![b'/'];
    for byte in parts.join("/").bytes() {
        if kept(byte) {
            out.push(byte);
        } else {
            out.extend(format!("%{byte:02X}").bytes());
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// An address behind a service: there is no service network, so endpoints are dialled directly.
fn endpoint(source: &dyn Source, namespace: &str, name: &str, port: u64) -> Result<String, String> {
    let quoted = crate::schema::quote(name);
    let service = source
        .get("", "services", namespace, name)
        .ok_or_else(|| format!("service {quoted} not found"))?;
    let ports = service
        .pointer("/spec/ports")
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default();
    let wanted = ports
        .iter()
        .find(|p| p.get("port").and_then(Value::as_u64) == Some(port));
    let target = wanted
        .and_then(|p| p.get("targetPort"))
        .and_then(Value::as_u64)
        .unwrap_or(port);
    if text(&service, "/spec/type") == "ExternalName" {
        return Ok(format!("{}:{port}", text(&service, "/spec/externalName")));
    }
    if text(&service, "/spec/clusterIP") == "None" {
        return Err("cannot route to service with ClusterIP \"None\"".into());
    }
    if wanted.is_none() {
        return Err(format!("no service port {port} found for service {quoted}"));
    }
    let port_of = |ports: Option<&Value>| {
        let ports = ports.and_then(Value::as_array).cloned().unwrap_or_default();
        let named = ports.iter().filter_map(|p| p.get("port").and_then(Value::as_u64));
        let all: Vec<u64> = named.collect();
        if all.contains(&target) {
            target
        } else {
            all.first().copied().unwrap_or(target)
        }
    };
    if let Some(endpoints) = source.get("", "endpoints", namespace, name) {
        for subset in endpoints
            .get("subsets")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let ip = text(subset, "/addresses/0/ip");
            if !ip.is_empty() {
                return Ok(format!("{ip}:{}", port_of(subset.get("ports"))));
            }
        }
    }
    for slice in source.list("discovery.k8s.io", "endpointslices") {
        let ours = text(&slice, "/metadata/namespace") == namespace
            && slice
                .pointer("/metadata/labels")
                .and_then(|l| l.get("kubernetes.io/service-name"))
                .and_then(Value::as_str)
                == Some(name);
        let address = text(&slice, "/endpoints/0/addresses/0");
        if ours && !address.is_empty() {
            return Ok(format!("{address}:{}", port_of(slice.get("ports"))));
        }
    }
    Err(format!("no endpoints available for service {quoted}"))
}

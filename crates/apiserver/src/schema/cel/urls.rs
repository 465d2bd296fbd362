//! URLs, in the parts that Go finds in them. The engine's own have a host where a path has none, and no port that is the usual one.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::Arc;

use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map, Opaque};
use kube_cel::cel::{Context, ExecutionError, FunctionContext, ResolveResult, Value as Cel};

use super::conversions::{engines_own, only_argument};

/// The engine's own says what is a URL, so ours has another name.
pub(super) const URL: &str = "@url";

#[derive(Debug, PartialEq, Eq)]
struct Located(String);

impl Opaque for Located {
    fn runtime_type_name(&self) -> &'static str {
        "kubernetes.URL"
    }
}

/// Finds one part.
type Part = fn(&Parts<'_>) -> String;

pub(super) fn register(context: &mut Context<'_>) {
    context.add_function(URL, |called: &FunctionContext<'_, '_>| -> ResolveResult {
        let text = only_argument(called)?;
        engines_own("url", text.clone(), called)?;
        match text {
            Cel::String(text) => Ok(Cel::Opaque(Arc::new(Located(text.to_string())))),
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    let texts: [(&str, Part); 5] = [
        ("getScheme", |parts| parts.scheme.to_ascii_lowercase()),
        ("getHost", |parts| parts.host.to_owned()),
        ("getHostname", |parts| parts.hostname().to_owned()),
        ("getPort", |parts| parts.port().to_owned()),
        ("getEscapedPath", |parts| escaped(parts.path)),
    ];
    for (name, part) in texts {
        context.add_function(name, move |This(url): This<Cel>| -> ResolveResult {
            let url = located(&url)?;
            Ok(Cel::String(Arc::new(part(&Parts::of(&url.0)))))
        });
    }
    context.add_function("getQuery", |This(url): This<Cel>| -> ResolveResult {
        Ok(query(Parts::of(&located(&url)?.0).query))
    });
}

fn located(value: &Cel) -> Result<&Located, ExecutionError> {
    match value {
        Cel::Opaque(opaque) => opaque.downcast_ref().ok_or(ExecutionError::NoSuchOverload),
        _ => Err(ExecutionError::NoSuchOverload),
    }
}

struct Parts<'a> {
    scheme: &'a str,
    host: &'a str,
    path: &'a str,
    query: &'a str,
}

impl<'a> Parts<'a> {
    fn of(text: &'a str) -> Self {
        let text = text.split_once('#').map_or(text, |(text, _)| text);
        let sound = |scheme: &str| {
            scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c))
        };
        let (scheme, rest) = match text.split_once(':') {
            Some((scheme, rest)) if sound(scheme) => (scheme, rest),
            _ => ("", text),
        };
        let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
        let authority = rest
            .strip_prefix("//")
            .filter(|authority| !scheme.is_empty() || !authority.starts_with('/'));
        let (host, path) = match authority {
            Some(authority) => authority.split_at(authority.find('/').unwrap_or(authority.len())),
            // Without a slash it is no path at all.
            None if !rest.starts_with('/') => ("", ""),
            None => ("", rest),
        };
        Self {
            scheme,
            host: host.rsplit_once('@').map_or(host, |(_, host)| host),
            path,
            query,
        }
    }

    fn hostname(&self) -> &'a str {
        let name = match self.host.rsplit_once(':') {
            Some((name, port)) if !port.contains(']') => name,
            _ => self.host,
        };
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        bare.unwrap_or(name)
    }

    fn port(&self) -> &'a str {
        match self.host.rsplit_once(':') {
            Some((_, port)) if !port.contains(']') => port,
            _ => "",
        }
    }
}

/// A path as it was written, if that is sound, or else anew.
fn escaped(path: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.~$&+,/:;=@".contains(c);
    if path.chars().all(|c| plain(c) || "!'()*[]%".contains(c)) {
        return path.to_owned();
    }
    let bytes = unescaped(path, false).unwrap_or_default();
    let mut out = String::new();
    for byte in bytes {
        let character = char::from(byte);
        if plain(character) {
            out.push(character);
        } else {
            // Writing to a text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

fn unescaped(text: &str, plus: bool) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let mut digit = || char::from(bytes.next()?).to_digit(16);
                u8::try_from(digit()? * 16 + digit()?).ok()?
            }
            b'+' if plus => b' ',
            other => other,
        });
    }
    Some(out)
}

/// All values of each name; what cannot be read is left out.
fn query(text: &str) -> Cel {
    let mut all: HashMap<Key, Vec<Cel>> = HashMap::new();
    let decode = |text: &str| Some(String::from_utf8_lossy(&unescaped(text, true)?).into_owned());
    for pair in text
        .split('&')
        .filter(|pair| !pair.is_empty() && !pair.contains(';'))
    {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        if let (Some(name), Some(value)) = (decode(name), decode(value)) {
            let values = all.entry(Key::String(Arc::new(name))).or_default();
            values.push(Cel::String(Arc::new(value)));
        }
    }
    let lists = all
        .into_iter()
        .map(|(name, values)| (name, Cel::List(Arc::new(values))));
    Cel::Map(Map {
        map: Arc::new(lists.collect()),
    })
}

//! URLs as Go reads and writes them.

use std::fmt::{self, Write as _};
use std::net::Ipv6Addr;

use crate::schema::quote;

/// The parts of a URL. Host and fragment are decoded, all else is as it would be written.
#[derive(Clone, Debug, Default)]
pub(crate) struct GoUrl {
    pub scheme: String,
    /// All that follows a scheme, where that is no path.
    opaque: String,
    pub user: Option<String>,
    host: Vec<u8>,
    /// There is a scheme and a path, but no place for a host between them.
    without_host: bool,
    pub path: String,
    /// There is a question mark, even if nothing follows it.
    asks: bool,
    pub query: String,
    fragment: String,
}

/// The parts that have rules of their own of what is escaped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    User,
    Host,
    Zone,
    Path,
    Query,
    Fragment,
}

impl GoUrl {
    /// Reads what may be relative; an error in Go's words if it is no URL.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (before, fragment) = text.split_once('#').unwrap_or((text, ""));
        let mut url = read(before, false).map_err(|why| failed(before, &why))?;
        url.fragment = written(fragment, Part::Fragment).map_err(|why| failed(text, &why))?;
        Ok(url)
    }

    /// Whether a text is what is asked for in a request: absolute, and without a fragment, which is taken for a part of what is before it.
    pub(crate) fn check_request(text: &str) -> Result<(), String> {
        read(text, true).map(|_| ()).map_err(|why| failed(text, &why))
    }

    pub(crate) fn host(&self) -> String {
        String::from_utf8_lossy(&self.host).into_owned()
    }

    pub(crate) fn fragment(&self) -> String {
        let bytes = unescaped(&self.fragment, Part::Fragment).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// The host without its port and without brackets, and the port.
    pub(crate) fn name_and_port(&self) -> (String, String) {
        let host = self.host();
        let (name, port) = match host.rsplit_once(':') {
            Some((name, port)) if digits(port) => (name, port),
            _ => (host.as_str(), ""),
        };
        let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        (bare.unwrap_or(name).to_owned(), port.to_owned())
    }

    /// The names and values of the query, in their order; what cannot be read is left out.
    pub(crate) fn pairs(&self) -> Vec<(String, String)> {
        /// With more there are none.
        const MOST: usize = 10_000;
        let decoded = |text: &str| {
            let bytes = unescaped(text, Part::Query).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        if self.query.split('&').count() > MOST {
            return Vec::new();
        }
        let parts = self
            .query
            .split('&')
            .filter(|pair| !pair.is_empty() && !pair.contains(';'));
        let pairs = parts.filter_map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            decoded(name).zip(decoded(value))
        });
        pairs.collect()
    }
}

impl fmt::Display for GoUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.scheme.is_empty() {
            write!(f, "{}:", self.scheme)?;
        }
        if self.opaque.is_empty() {
            let somewhere = !self.host.is_empty() || self.user.is_some();
            let nowhere = !self.scheme.is_empty() && !self.path.is_empty() && !self.without_host;
            if somewhere || nowhere {
                f.write_str("//")?;
            }
            if let Some(user) = &self.user {
                write!(f, "{user}@")?;
            }
            f.write_str(&escaped(&self.host, Part::Host))?;
            f.write_str(&self.path)?;
        } else {
            f.write_str(&self.opaque)?;
        }
        if self.asks {
            write!(f, "?{}", self.query)?;
        }
        if !self.fragment.is_empty() {
            write!(f, "#{}", self.fragment)?;
        }
        Ok(())
    }
}

fn failed(text: &str, why: &str) -> String {
    format!("parse {}: {why}", quote(text))
}

fn read(text: &str, request: bool) -> Result<GoUrl, String> {
    if text.bytes().any(|byte| byte.is_ascii_control()) {
        return Err("net/url: invalid control character in URL".into());
    }
    if text.is_empty() && request {
        return Err("empty url".into());
    }
    let mut url = GoUrl::default();
    if text == "*" {
        text.clone_into(&mut url.path);
        return Ok(url);
    }
    let (scheme, rest) = scheme(text)?;
    url.scheme = scheme.to_ascii_lowercase();
    let (rest, query) = rest
        .split_once('?')
        .map_or((rest, None), |(rest, query)| (rest, Some(query)));
    url.asks = query.is_some();
    query.unwrap_or_default().clone_into(&mut url.query);
    if !rest.starts_with('/') {
        if !scheme.is_empty() {
            rest.clone_into(&mut url.opaque);
            return Ok(url);
        }
        if request {
            return Err("invalid URI for request".into());
        }
        if rest.split('/').next().is_some_and(|first| first.contains(':')) {
            return Err("first path segment in URL cannot contain colon".into());
        }
    }
    let named = !scheme.is_empty() || (!request && !rest.starts_with("///"));
    let path = if let Some(rest) = rest.strip_prefix("//").filter(|_| named) {
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        url.host = host(&url.scheme, place)?;
        url.user = user.map(userinfo).transpose()?;
        path
    } else {
        url.without_host = !scheme.is_empty();
        rest
    };
    url.path = written(path, Part::Path)?;
    Ok(url)
}

/// The scheme, if there is one, and what follows.
fn scheme(text: &str) -> Result<(&str, &str), String> {
    match text.split_once(':') {
        Some(("", _)) => Err("missing protocol scheme".into()),
        Some((scheme, rest))
            if scheme.starts_with(|c: char| c.is_ascii_alphabetic())
                && scheme
                    .chars()
                    .all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c)) =>
        {
            Ok((scheme, rest))
        }
        _ => Ok(("", text)),
    }
}

fn userinfo(user: &str) -> Result<String, String> {
    let good = |c: char| c.is_ascii_alphanumeric() || "-._:~!$&'()*+,;=%@".contains(c);
    if !user.chars().all(good) {
        return Err("net/url: invalid userinfo".into());
    }
    let again = |text| unescaped(text, Part::User).map(|bytes| escaped(&bytes, Part::User));
    match user.split_once(':') {
        Some((name, password)) => Ok(format!("{}:{}", again(name)?, again(password)?)),
        None => again(user),
    }
}

fn host(scheme: &str, host: &str) -> Result<Vec<u8>, String> {
    match (host.rfind('['), host.find(':'), host.rfind(':')) {
        (Some(0), ..) => return address(host),
        (Some(_), ..) => return Err("invalid IP-literal".into()),
        (None, Some(first), Some(last)) => {
            // Some schemes name several hosts, with their ports.
            let several = !matches!(scheme, "http" | "https");
            port(host.get(if several { last } else { first }..).unwrap_or_default())?;
        }
        _ => {}
    }
    unescaped(host, Part::Host)
}

/// An address in brackets, with a port.
fn address(host: &str) -> Result<Vec<u8>, String> {
    let inside = host.strip_prefix('[').and_then(|host| host.rsplit_once(']'));
    let (address, after) = inside.ok_or("missing ']' in host")?;
    port(after)?;
    let (ip, zone) = address.split_at(address.find("%25").unwrap_or(address.len()));
    let decoded = [unescaped(ip, Part::Host)?, unescaped(zone, Part::Zone)?].concat();
    let plain = String::from_utf8_lossy(&decoded);
    let (ip, zone) = plain
        .split_once('%')
        .map_or((&*plain, None), |(ip, zone)| (ip, Some(zone)));
    if zone == Some("") || ip.parse::<Ipv6Addr>().is_err() {
        if zone.is_none() && ip.parse::<std::net::Ipv4Addr>().is_ok() {
            return Err("invalid IP-literal".into());
        }
        let why = format!("invalid host: ParseAddr({}): unable to parse IP", quote(&plain));
        return Err(why);
    }
    Ok([b"[", decoded.as_slice(), b"]", after.as_bytes()].concat())
}

fn port(text: &str) -> Result<(), String> {
    match text.strip_prefix(':') {
        None if text.is_empty() => Ok(()),
        Some(port) if digits(port) => Ok(()),
        _ => Err(format!("invalid port {} after host", quote(text))),
    }
}

fn digits(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

impl Part {
    /// Whether a byte stands for itself.
    fn plain(self, byte: u8) -> bool {
        let more: &[u8] = match self {
            Self::User => b"$&+,;=",
            Self::Host | Self::Zone => b"!$&'()*+,;=:[]<>\"",
            Self::Path => b"$&+,/:;=@",
            Self::Query => b"",
            Self::Fragment => b"$&+,/:;=?@!()*",
        };
        byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) || more.contains(&byte)
    }

    /// Whether a byte may be escaped. In a host that is what is not ASCII, and a percent sign for the sake of zones.
    fn escapes(self, byte: u8) -> bool {
        match self {
            Self::Host => byte >= 0x80 || byte == b'%',
            Self::Zone => byte == b'%' || byte == b' ' || self.plain(byte),
            _ => true,
        }
    }
}

fn unescaped(text: &str, part: Part) -> Result<Vec<u8>, String> {
    let strict = matches!(part, Part::Host | Part::Zone);
    let mut out = Vec::new();
    let mut rest = text.as_bytes();
    while let [byte, after @ ..] = rest {
        rest = after;
        out.push(match (*byte, after) {
            (b'%', [high, low, after @ ..]) => {
                let byte = hex(*high).zip(hex(*low)).map(|(high, low)| high * 16 + low);
                let byte = byte
                    .filter(|byte| part.escapes(*byte))
                    .ok_or_else(|| bad_escape(&[*high, *low]))?;
                rest = after;
                byte
            }
            (b'%', short) => return Err(bad_escape(short)),
            (b'+', _) if part == Part::Query => b' ',
            (byte, _) if strict && byte.is_ascii() && !part.plain(byte) => {
                let shown = quote(&char::from(byte).to_string());
                return Err(format!("invalid character {shown} in host name"));
            }
            (byte, _) => byte,
        });
    }
    Ok(out)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit)
        .to_digit(16)
        .and_then(|digit| u8::try_from(digit).ok())
}

fn bad_escape(digits: &[u8]) -> String {
    let shown = format!("%{}", String::from_utf8_lossy(digits));
    format!("invalid URL escape {}", quote(&shown))
}

fn escaped(bytes: &[u8], part: Part) -> String {
    let mut out = String::new();
    for byte in bytes {
        if part.plain(*byte) {
            out.push(char::from(*byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

/// A path or a fragment as it was written, if that is sound, or else anew.
fn written(text: &str, part: Part) -> Result<String, String> {
    let bytes = unescaped(text, part)?;
    let sound = |byte: u8| part.plain(byte) || b"!'()*[]%".contains(&byte);
    Ok(if text.bytes().all(sound) {
        text.to_owned()
    } else {
        escaped(&bytes, part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_what_they_are_there() {
        for (text, wanted) in [
            ("https://x/a b", Ok(("https", "x", "https://x/a%20b"))),
            (
                "HTTPS://[::1%25x]:1",
                Ok(("https", "[::1%x]:1", "https://[::1%25x]:1")),
            ),
            ("https:x", Ok(("https", "", "https:x"))),
            ("//u@v:p@h/p?#a b", Ok(("", "h", "//u%40v:p@h/p?#a%20b"))),
            ("a:b", Ok(("a", "", "a:b"))),
            ("file:///p", Ok(("file", "", "file:///p"))),
            ("file:/p", Ok(("file", "", "file:/p"))),
            ("://x", Err("missing protocol scheme")),
            ("1a:b", Err("first path segment in URL cannot contain colon")),
            ("https://x:a/", Err("invalid port \":a\" after host")),
            ("https://x%41/", Err("invalid URL escape \"%41\"")),
            ("https://x/%", Err("invalid URL escape \"%\"")),
            ("https://[a", Err("missing ']' in host")),
            ("https://x y/", Err("invalid character \" \" in host name")),
            ("https://u x@h/", Err("net/url: invalid userinfo")),
        ] {
            let found = GoUrl::parse(text).map(|url| (url.scheme.clone(), url.host(), url.to_string()));
            let wanted = wanted.map(|(scheme, host, all)| (scheme.into(), host.into(), all.into()));
            assert_eq!(found, wanted.map_err(|why| failed(text, why)), "{text}");
        }
    }

    #[test]
    fn a_host_has_a_name_and_a_port() {
        for (text, wanted) in [
            ("x://h:80", ("h", "80")),
            ("x://a:1:2", ("a:1", "2")),
            ("x://[::1]", ("::1", "")),
            ("x://[::1]:", ("::1", "")),
        ] {
            let (name, port) = GoUrl::parse(text).unwrap().name_and_port();
            assert_eq!((name.as_str(), port.as_str()), wanted, "{text}");
        }
    }
}

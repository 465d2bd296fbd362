//! Addresses, blocks of them and names of ports, as people write them.

use std::net::IpAddr;

use serde_json::Value;

use super::{list, text};
use crate::schema::{Cause, child, index, names};

/// An address, also with the zeros at the beginning of its numbers that it must not have.
fn loosely(text: &str) -> Option<IpAddr> {
    let number = |part: &str| {
        let bare = part.trim_start_matches('0');
        let kept = if bare.is_empty() && !part.is_empty() {
            "0"
        } else {
            bare
        };
        kept.to_owned()
    };
    let v4 = |text: &str| text.split('.').map(number).collect::<Vec<_>>().join(".");
    let bare = match text.rsplit_once(':') {
        Some((head, tail)) if tail.contains('.') => format!("{head}:{}", v4(tail)),
        Some(_) => text.to_owned(),
        None => v4(text),
    };
    bare.parse().ok()
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// What is wrong with an address.
pub(super) fn address(value: &str, path: &str) -> Option<Cause> {
    let detail = match (loosely(value), value.parse::<IpAddr>()) {
        (None, _) => "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        (Some(_), Err(_)) => "must not have leading 0s",
        (Some(address), Ok(_)) if is_mapped(address) => "must not be an IPv4-mapped IPv6 address",
        (Some(_), Ok(_)) => return None,
    };
    Some(Cause::invalid(path, &value.into(), detail))
}

/// A block of addresses.
pub(super) struct Block {
    bits: u128,
    length: u32,
    of_v4: bool,
}

impl Block {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (address, length) = text.split_once('/')?;
        let is_number = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
        let length: u32 = length.parse().ok().filter(|_| is_number)?;
        let (bits, most, of_v4) = match loosely(address)? {
            IpAddr::V4(v4) => (u128::from(u32::from(v4)), 32, true),
            IpAddr::V6(v6) => (u128::from(v6), 128, false),
        };
        (length <= most).then_some(Self { bits, length, of_v4 })
    }

    fn first(&self, length: u32) -> u128 {
        let most = if self.of_v4 { 32 } else { 128 };
        self.bits.checked_shr(most - length.min(most)).unwrap_or_default()
    }

    /// Whether another block is a smaller part of this one.
    pub(super) fn holds(&self, part: &Self) -> bool {
        self.of_v4 == part.of_v4
            && self.length < part.length
            && self.first(self.length) == part.first(self.length)
    }

    fn has_more_bits(&self) -> bool {
        let most = if self.of_v4 { 32 } else { 128 };
        let kept = self.first(self.length);
        kept.checked_shl(most - self.length).unwrap_or_default() != self.bits
    }
}

/// What is wrong with a block of addresses.
pub(super) fn block(value: &str, path: &str) -> Option<Cause> {
    let (address, length) = value.split_once('/').unwrap_or_default();
    let padded = length.len() > 1 && length.starts_with('0');
    let detail = match Block::parse(value) {
        None => "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        Some(_) if padded || address.parse::<IpAddr>().is_err() => {
            "must not have leading 0s in IP or prefix length"
        }
        Some(_) if address.parse().is_ok_and(is_mapped) => "must not have an IPv4-mapped IPv6 address",
        Some(block) if block.has_more_bits() => "must not have bits set beyond the prefix length",
        Some(_) => return None,
    };
    Some(Cause::invalid(path, &value.into(), detail))
}

/// The points where a load balancer is reached. Addresses that were taken before are taken again.
pub(super) fn balancer(new: &Value, old: Option<&Value>) -> Vec<Cause> {
    const POINTER: &str = "/status/loadBalancer/ingress";
    let known: Vec<&str> = old
        .map(|old| list(old, POINTER))
        .unwrap_or_default()
        .iter()
        .map(|point| text(point, "/ip"))
        .collect();
    let mut causes = Vec::new();
    for (i, point) in list(new, POINTER).iter().enumerate() {
        let path = index("status.loadBalancer.ingress", i);
        let (ip, host) = (text(point, "/ip"), text(point, "/hostname"));
        if !ip.is_empty() && !known.contains(&ip) {
            causes.extend(address(ip, &child(&path, "ip")));
        }
        let mode = point.get("ipMode").filter(|mode| !mode.is_null());
        let modes = ["Proxy", "VIP"];
        if mode.is_some() && ip.is_empty() {
            let detail = "may not be specified when `ip` is not set";
            causes.push(Cause::forbidden(child(&path, "ipMode"), detail));
        } else if let Some(mode) = mode.filter(|mode| !modes.iter().any(|one| mode == one)) {
            causes.push(Cause::not_supported(child(&path, "ipMode"), mode, &modes));
        }
        if !host.is_empty() {
            causes.extend(self::host(host, &child(&path, "hostname")));
        }
    }
    causes
}

/// A name of a host, which is no address.
pub(super) fn host(name: &str, path: &str) -> Vec<Cause> {
    let problems = names::dns_subdomain(name);
    let mut causes: Vec<Cause> = problems
        .iter()
        .map(|problem| Cause::invalid(path, &name.into(), problem))
        .collect();
    if loosely(name).is_some() {
        let detail = "must be a DNS name, not an IP address";
        causes.push(Cause::invalid(path, &name.into(), detail));
    }
    causes
}

/// The number of a port.
pub(super) fn port(number: i64, path: &str) -> Option<Cause> {
    let detail = "must be between 1 and 65535, inclusive";
    (!(1..=65535).contains(&number)).then(|| Cause::invalid(path, &number.into(), detail))
}

/// The name of a port.
pub(super) fn port_name(name: &str, path: &str) -> Vec<Cause> {
    let mut problems = Vec::new();
    if name.len() > 15 {
        problems.push("must be no more than 15 characters");
    }
    let known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || !name.bytes().all(known) {
        problems.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)");
    }
    if !name.bytes().any(|byte| byte.is_ascii_lowercase()) {
        problems.push("must contain at least one letter (a-z)");
    }
    if name.contains("--") {
        problems.push("must not contain consecutive hyphens");
    }
    if name.starts_with('-') || name.ends_with('-') {
        problems.push("must not begin or end with a hyphen");
    }
    problems
        .into_iter()
        .map(|problem| Cause::invalid(path, &name.into(), problem))
        .collect()
}

/// Why nobody can be reached at an address.
pub(super) fn endpoint(value: &str, path: &str) -> Option<Cause> {
    let Some(address) = loosely(value) else {
        let detail = "must be a valid IP address";
        return Some(Cause::invalid(path, &value.into(), detail));
    };
    let bare = match address {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    };
    let (links, groups) = match bare {
        IpAddr::V4(v4) => (v4.is_link_local(), v4.octets().starts_with(&[224, 0, 0])),
        IpAddr::V6(v6) => (v6.is_unicast_link_local(), v6.segments()[0] & 0xff0f == 0xff02),
    };
    let detail = match bare {
        _ if bare.is_unspecified() => &format!("may not be unspecified ({value})"),
        _ if bare.is_loopback() => "may not be in the loopback range (127.0.0.0/8, ::1/128)",
        _ if links => "may not be in the link-local range (169.254.0.0/16, fe80::/10)",
        _ if groups => "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)",
        _ => return None,
    };
    Some(Cause::invalid(path, &value.into(), detail))
}

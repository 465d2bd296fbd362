//! String formats that custom resource schemas may ask for.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::LazyLock;

use regex::Regex;

use crate::go_url::GoUrl;

fn normal(format: &str) -> String {
    format.replace('-', "")
}

/// Whether the format says anything about strings.
pub(super) fn known(format: &str) -> bool {
    matches!(
        normal(format).as_str(),
        "bsonobjectid"
            | "uri"
            | "email"
            | "hostname"
            | "ipv4"
            | "ipv6"
            | "cidr"
            | "mac"
            | "uuid"
            | "uuid3"
            | "uuid4"
            | "uuid5"
            | "isbn"
            | "isbn10"
            | "isbn13"
            | "creditcard"
            | "ssn"
            | "hexcolor"
            | "rgbcolor"
            | "byte"
            | "password"
            | "date"
            | "duration"
            | "datetime"
            | "k8sshortname"
            | "k8slongname"
    )
}

/// Whether a string has the format; formats that are not known allow everything.
pub(super) fn valid(format: &str, text: &str) -> bool {
    match normal(format).as_str() {
        "datetime" => date_time(text),
        "date" => date(text),
        "duration" => duration(text),
        "uuid" => uuid(text, None),
        "uuid3" => uuid(text, Some(b'3')),
        "uuid4" => uuid(text, Some(b'4')),
        "uuid5" => uuid(text, Some(b'5')),
        "ipv4" => text.parse::<Ipv4Addr>().is_ok(),
        "ipv6" => text.parse::<Ipv6Addr>().is_ok(),
        "cidr" => cidr(text),
        "mac" => mac(text),
        "byte" => byte(text),
        "email" => text.split_once('@').is_some_and(|(user, host)| {
            !user.is_empty() && !host.is_empty() && !host.contains('@') && !text.contains(char::is_whitespace)
        }),
        "uri" => GoUrl::check_request(text).is_ok(),
        "hostname" => hostname(text),
        "hexcolor" => {
            let digits = text.strip_prefix('#').unwrap_or(text);
            matches!(digits.len(), 3 | 6) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        }
        "bsonobjectid" => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
        "ssn" => text.bytes().filter(u8::is_ascii_digit).count() == 9,
        "k8sshortname" => super::names::dns_label(text).is_empty(),
        "k8slongname" => super::names::dns_subdomain(text).is_empty(),
        _ => true,
    }
}

fn date(text: &str) -> bool {
    let digits = text.bytes().enumerate().all(|(i, b)| {
        if i == 4 || i == 7 {
            b == b'-'
        } else {
            b.is_ascii_digit()
        }
    });
    text.len() == 10 && digits && text.parse::<jiff::civil::Date>().is_ok()
}

/// The time behind a date. Any character may begin a fraction.
static TIME: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new("^([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](.[0-9]+)?(z|[+-][0-9]{2}:[0-9]{2})$").ok()
});

fn date_time(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let mut parts = lower.split('t');
    let (Some(day), Some(time)) = (parts.next(), parts.next()) else {
        return false;
    };
    date(day) && TIME.as_ref().is_some_and(|pattern| pattern.is_match(time))
}

/// Go's duration syntax, or a number with a unit in words.
pub(super) fn duration(text: &str) -> bool {
    crate::go_duration::nanoseconds(text).is_ok() || words_duration(text)
}

fn words_duration(text: &str) -> bool {
    let number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if number.len() == text.len() {
        return false;
    }
    matches!(
        number.trim_start(),
        "ns" | "nano"
            | "nanos"
            | "nanosecond"
            | "nanoseconds"
            | "us"
            | "µs"
            | "micro"
            | "micros"
            | "microsecond"
            | "microseconds"
            | "ms"
            | "milli"
            | "millis"
            | "millisecond"
            | "milliseconds"
            | "s"
            | "sec"
            | "secs"
            | "second"
            | "seconds"
            | "m"
            | "min"
            | "mins"
            | "minute"
            | "minutes"
            | "h"
            | "hr"
            | "hour"
            | "hours"
            | "d"
            | "day"
            | "days"
            | "w"
            | "wk"
            | "week"
            | "weeks"
    )
}

fn uuid(text: &str, version: Option<u8>) -> bool {
    let hex: Vec<u8> = text.bytes().filter(|b| *b != b'-').collect();
    let groups: Vec<usize> = text.split('-').map(str::len).collect();
    let shape = groups == [8, 4, 4, 4, 12] || groups == [32];
    let variant = match version {
        Some(b'4' | b'5') => hex.get(16).is_some_and(|b| b"89abAB".contains(b)),
        _ => true,
    };
    shape
        && hex.len() == 32
        && hex.iter().all(u8::is_ascii_hexdigit)
        && version.is_none_or(|v| hex.get(12) == Some(&v))
        && variant
}

fn cidr(text: &str) -> bool {
    let Some((address, bits)) = text.split_once('/') else {
        return false;
    };
    let max = match address.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) => 32,
        Ok(IpAddr::V6(_)) => 128,
        Err(_) => return false,
    };
    !bits.is_empty()
        && bits.bytes().all(|b| b.is_ascii_digit())
        && bits.parse::<u32>().is_ok_and(|b| b <= max)
}

fn mac(text: &str) -> bool {
    let bytes = |separator: char| {
        let parts: Vec<&str> = text.split(separator).collect();
        matches!(parts.len(), 6 | 8 | 20)
            && parts
                .iter()
                .all(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
    };
    bytes(':') || bytes('-')
}

fn byte(text: &str) -> bool {
    let body = text.trim_end_matches('=');
    !text.is_empty()
        && text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"+/".contains(&b))
}

fn hostname(text: &str) -> bool {
    let text = text.strip_suffix('.').unwrap_or(text);
    !text.is_empty()
        && text.len() <= 255
        && text.split('.').all(|label| {
            !label.is_empty()
                && label.len() <= 63
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-' || b == b'_')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

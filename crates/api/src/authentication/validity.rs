//! How long a token may live: a Go duration, within the bounds of a TokenRequest.

use std::time::Duration;

/// The validity of an account that names none: 360 days.
pub const DEFAULT: &str = "8640h0m0s";

/// The shortest lifetime that an API server grants.
pub const MIN: Duration = Duration::from_mins(10);

/// The longest lifetime that a TokenRequest may ask for.
pub const MAX: Duration = Duration::from_secs(1 << 32);

/// Why a validity is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The text is no Go duration.
    Syntax,
    /// The duration is shorter than [`MIN`].
    TooShort,
    /// The duration is longer than [`MAX`].
    TooLong,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Syntax => "is not a duration: use hours, minutes and seconds, such as 720h or 8640h0m0s",
            Self::TooShort => "is too short: an API server grants no token for less than 10m0s",
            Self::TooLong => "is too long: an API server grants no token for more than 1193046h28m16s",
        })
    }
}

impl std::error::Error for Refused {}

/// Reads a validity, cut to whole seconds.
pub fn parse(text: &str) -> Result<Duration, Refused> {
    let nanos = parse_go_duration(text).ok_or(Refused::Syntax)?;
    if nanos < 0 {
        return Err(Refused::TooShort);
    }
    let seconds = u64::try_from(nanos / 1_000_000_000).map_err(|_| Refused::TooLong)?;
    match Duration::from_secs(seconds) {
        short if short < MIN => Err(Refused::TooShort),
        long if long > MAX => Err(Refused::TooLong),
        within => Ok(within),
    }
}

/// The nanoseconds of a Go duration (`1h30m`, `-1.5s`); `None` if it is none.
fn parse_go_duration(text: &str) -> Option<i128> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .filter(|end| *end > 0)?;
        let (number, tail) = rest.split_at(end);
        let end = tail
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(end);
        total = total.checked_add(scaled(number, nanos_of(unit)?)?)?;
        rest = tail;
    }
    Some(sign * total)
}

fn nanos_of(unit: &str) -> Option<i128> {
    Some(match unit {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// `number` (digits, at most one point) times `unit`.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // Longer texts cannot be a lifetime, and would overflow.
    let whole: i128 = match whole.len() {
        0 => 0,
        1..=18 => whole.parse().ok()?,
        _ => return None,
    };
    let mut value = whole.checked_mul(unit)?;
    let mut place = unit;
    for digit in fraction.chars() {
        place /= 10;
        value += i128::from(digit.to_digit(10)?) * place;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_go_writes_and_names_the_bound() {
        let cases = [
            ("8640h0m0s", Ok(8640 * 3600)),
            ("720h", Ok(720 * 3600)),
            ("30m0s", Ok(1800)),
            ("10m", Ok(600)),
            ("10m0.9s", Ok(600)),
            ("+0.5h", Ok(1800)),
            ("1193046h28m16s", Ok(1 << 32)),
            ("9m59.999s", Err(Refused::TooShort)),
            ("0s", Err(Refused::TooShort)),
            ("0", Err(Refused::TooShort)),
            ("-1h", Err(Refused::TooShort)),
            ("1193046h28m17s", Err(Refused::TooLong)),
            ("30d", Err(Refused::Syntax)),
            ("", Err(Refused::Syntax)),
            ("h", Err(Refused::Syntax)),
            ("10", Err(Refused::Syntax)),
            (".h", Err(Refused::Syntax)),
            ("1..5h", Err(Refused::Syntax)),
            ("1e9h", Err(Refused::Syntax)),
            ("99999999999999999999999999h", Err(Refused::Syntax)),
            ("one hour", Err(Refused::Syntax)),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse(text), wanted.map(Duration::from_secs), "{text:?}");
        }
    }
}

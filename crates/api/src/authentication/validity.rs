//! How long a token may live: a Go duration, within the bounds of a TokenRequest.

use std::time::Duration;

use crate::go_duration;

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
    let nanos = go_duration::nanoseconds(text).ok_or(Refused::Syntax)?;
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

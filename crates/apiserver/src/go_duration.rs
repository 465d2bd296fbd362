//! Durations as Go writes them.

/// The units, longest names first where one begins another.
const UNITS: [(&str, u64); 8] = [
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000),
    ("μs", 1_000),
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// The nanoseconds of a duration such as `1h30m` or `-1.5s`; an error in Go's words if it is none.
pub(crate) fn nanoseconds(text: &str) -> Result<i64, String> {
    let invalid = || format!("time: invalid duration {text:?}");
    let (negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = match after.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", after),
        };
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit());
        let (name, next) = after.split_at(end.unwrap_or(after.len()));
        if name.is_empty() {
            return Err(format!("time: missing unit in duration {text:?}"));
        }
        let unit = UNITS.iter().find(|(unit, _)| *unit == name);
        let (_, unit) = unit.ok_or_else(|| format!("time: unknown unit {name:?} in duration {text:?}"))?;
        let part = scaled(whole, fraction, *unit).and_then(|part| total.checked_add(part));
        total = part.filter(|total| *total <= 1 << 63).ok_or_else(invalid)?;
        rest = next;
    }
    // The smallest number has no positive counterpart.
    let signed = if negative {
        0i64.checked_sub_unsigned(total)
    } else {
        i64::try_from(total).ok()
    };
    signed.ok_or_else(invalid)
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `whole.fraction` times `unit`; what is less than a nanosecond is dropped.
fn scaled(whole: &str, fraction: &str, unit: u64) -> Option<u64> {
    let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    let mut value = whole.checked_mul(unit)?;
    // A unit has at most thirteen digits, so that more of them say nothing.
    let fraction = fraction.get(..fraction.len().min(15)).unwrap_or_default();
    if !fraction.is_empty() {
        let place = 10u128.pow(u32::try_from(fraction.len()).ok()?);
        let part = fraction.parse::<u128>().ok()? * u128::from(unit) / place;
        value = value.checked_add(u64::try_from(part).ok()?)?;
    }
    Some(value)
}

#[cfg(test)]
mod tests {
    use super::nanoseconds;

    #[test]
    fn reads_what_go_reads() {
        for (text, wanted) in [
            ("0", Ok(0)),
            ("-0", Ok(0)),
            ("1h30m", Ok(5_400_000_000_000)),
            ("-1.5s", Ok(-1_500_000_000)),
            ("+.5ms", Ok(500_000)),
            ("1.s", Ok(1_000_000_000)),
            ("2µs", Ok(2_000)),
            ("0.3333333333333333333h", Ok(1_199_999_999_999)),
            ("9223372036854775807ns", Ok(i64::MAX)),
            ("-9223372036854775808ns", Ok(i64::MIN)),
            ("", Err("invalid duration \"\"")),
            ("-", Err("invalid duration \"-\"")),
            (".s", Err("invalid duration \".s\"")),
            ("5", Err("missing unit in duration \"5\"")),
            ("1.5.5s", Err("missing unit in duration \"1.5.5s\"")),
            ("1d", Err("unknown unit \"d\" in duration \"1d\"")),
            (
                "9223372036854775808ns",
                Err("invalid duration \"9223372036854775808ns\""),
            ),
            (
                "9999999999999999999999h",
                Err("invalid duration \"9999999999999999999999h\""),
            ),
        ] {
            let wanted = wanted.map_err(|why: &str| format!("time: {why}"));
            assert_eq!(nanoseconds(text), wanted, "{text:?}");
        }
    }
}

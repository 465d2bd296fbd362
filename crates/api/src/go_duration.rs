//! Durations as Go writes them, which is how they stand in the fields of upstream's kinds.

/// The nanoseconds of a Go duration (`1h30m`, `-1.5s`); `None` if it is none.
pub fn nanoseconds(text: &str) -> Option<i128> {
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
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("0", Some(0)),
            ("1h30m", Some(5_400_000_000_000)),
            ("-1.5s", Some(-1_500_000_000)),
            (".5ms", Some(500_000)),
            ("2us", Some(2_000)),
            ("", None),
            ("5", None),
            ("1d", None),
            ("h", None),
            ("None", None),
        ] {
            assert_eq!(nanoseconds(text), nanos, "{text:?}");
        }
    }
}

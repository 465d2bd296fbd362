//! Floats as texts, as Go reads them: `1_0`, `0x1p4`.

/// The number that a text is.
pub(super) fn parse(text: &str) -> Option<f64> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hexadecimal = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    if !separated(digits, hexadecimal.is_some()) {
        return None;
    }
    let plain = |digits: &str| digits.replace('_', "");
    let number: f64 = match hexadecimal {
        Some(digits) => of_hexadecimal(&plain(digits))?,
        // Only what has no sign is no number.
        None if digits.len() < text.len() && digits.eq_ignore_ascii_case("nan") => return None,
        None if digits.starts_with(['+', '-']) => return None,
        None => plain(digits).parse().ok()?,
    };
    // A number that is too large is none; infinity is written out.
    if number.is_infinite() && digits.contains(|c: char| c.is_ascii_digit()) {
        return None;
    }
    Some(if negative { -number } else { number })
}

/// Whether underscores stand between digits only, or after `0x`.
fn separated(digits: &str, hexadecimal: bool) -> bool {
    let digit = |c: char| c.is_ascii_digit() || (hexadecimal && c.is_ascii_hexdigit());
    let mut before = ' ';
    for (at, c) in digits.chars().enumerate() {
        let prefix = hexadecimal && at == 1;
        let allowed = match c {
            '_' => before == '0',
            _ => before != '_' || digit(c),
        };
        if !allowed {
            return false;
        }
        before = match c {
            '_' => '_',
            c if prefix || digit(c) => '0',
            _ => ' ',
        };
    }
    before != '_'
}

/// `1.8p1`, which is one and a half, twice.
fn of_hexadecimal(text: &str) -> Option<f64> {
    let (digits, power) = text.split_once(['p', 'P'])?;
    let mut power: i64 = power.parse().ok()?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut mantissa = 0u128;
    for (at, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = digit.to_digit(16)?;
        let fractional = at >= whole.len();
        if mantissa >> 120 == 0 {
            mantissa = mantissa << 4 | u128::from(digit);
            power = power.saturating_sub(if fractional { 4 } else { 0 });
        } else {
            // Too small to tell but whether it is nothing.
            mantissa |= u128::from(digit > 0);
            power = power.saturating_add(if fractional { 0 } else { 4 });
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "it is rounded to the nearest")]
    let number = mantissa as f64;
    // In two steps, as neither power alone need be a float.
    let power = i32::try_from(power.clamp(-2400, 2400)).ok()?;
    Some(number * 2f64.powi(power / 2) * 2f64.powi(power - power / 2))
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn texts_are_read_as_in_go() {
        for (text, wanted) in [
            ("1_0", Some(10.0)),
            ("0x1p4", Some(16.0)),
            ("-0X1.8P1", Some(-3.0)),
            ("0x_1p0", Some(1.0)),
            ("0x.8p0", Some(0.5)),
            ("0x1.fffffffffffff8p0", Some(2.0)),
            ("0x1p-1074", Some(5e-324)),
            ("+.5", Some(0.5)),
            ("5.", Some(5.0)),
            ("-inf", Some(f64::NEG_INFINITY)),
            ("0x1", None),
            ("0xp0", None),
            ("_1", None),
            ("1_", None),
            ("1__0", None),
            ("1_.5", None),
            ("-nan", None),
            ("--1", None),
            ("1e400", None),
            ("0x1p5000", None),
            ("", None),
        ] {
            assert_eq!(parse(text), wanted, "{text}");
        }
        assert!(parse("NaN").is_some_and(f64::is_nan));
    }
}

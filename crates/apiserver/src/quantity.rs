//! Quantities such as `500m`, `1Gi` and `1e3`: read, added, compared, written in the one form that the real server writes.

use std::cmp::Ordering;
use std::fmt;

/// What the real server says about a text that is none.
pub const PATTERN_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

const NANO: i128 = 1_000_000_000;
const MILLI: i128 = 1_000_000;
/// Larger ones are this large.
const LARGEST: i128 = (i64::MAX as i128) * NANO;
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The family of suffixes it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// An amount, exact to a billionth.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nanos: i128,
    format: Format,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self::count(0);

    /// So many of something.
    pub const fn count(number: i64) -> Self {
        Self {
            nanos: number as i128 * NANO,
            format: Format::Decimal,
        }
    }

    /// Reads a quantity.
    pub fn parse(text: &str) -> Option<Self> {
        let (negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return None;
        }
        let (base, power, format) = scale(suffix)?;
        // Digits beyond those that count for the largest number or the smallest part only say that there is more.
        let mut digits = format!("{whole}{fraction}").trim_start_matches('0').to_owned();
        let mut exponent = power - i64::try_from(fraction.len()).ok()?;
        let mut more = false;
        if base == 2 {
            exponent = -i64::try_from(fraction.len()).ok()?;
        }
        while digits.len() > if base == 2 { 19 } else { 30 } {
            more |= digits.pop() != Some('0');
            exponent += 1;
        }
        let mantissa: i128 = if digits.is_empty() {
            0
        } else {
            digits.parse().ok()?
        };
        let factor = if base == 2 { 1i128 << power } else { 1 };
        let nanos = scaled(mantissa, factor, exponent + 9, more);
        let nanos = nanos.min(LARGEST);
        let tiny = format == Format::Binary && nanos > 0 && nanos < NANO;
        Some(Self {
            nanos: if negative { -nanos } else { nanos },
            format: if tiny { Format::Decimal } else { format },
        })
    }

    /// Whole ones, rounded up.
    pub fn value(self) -> i128 {
        up(self.nanos, NANO)
    }

    /// Thousandths, rounded up.
    pub fn milli(self) -> i128 {
        up(self.nanos, MILLI)
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.nanos == 0
    }

    /// Whether it is less than nothing.
    pub fn is_negative(self) -> bool {
        self.nanos < 0
    }

    /// The next whole number.
    pub fn rounded_up(self) -> Self {
        Self {
            nanos: self.value() * NANO,
            ..self
        }
    }

    /// Both together, written as the first unless that is nothing.
    pub fn plus(self, other: Self) -> Self {
        Self {
            nanos: self.nanos + other.nanos,
            format: if self.is_zero() { other.format } else { self.format },
        }
    }

    /// What is left of it without the other.
    pub fn minus(self, other: Self) -> Self {
        self.plus(Self {
            nanos: -other.nanos,
            ..other
        })
    }
}

/// `mantissa * factor * 10^exponent`, rounded up, and no larger than the largest.
fn scaled(mantissa: i128, factor: i128, exponent: i64, more: bool) -> i128 {
    let Some(product) = mantissa.checked_mul(factor) else {
        return LARGEST;
    };
    let ten = |n: i64| u32::try_from(n).ok().and_then(|n| 10i128.checked_pow(n));
    if exponent >= 0 {
        if product == 0 {
            return 0;
        }
        return ten(exponent)
            .and_then(|p| product.checked_mul(p))
            .unwrap_or(LARGEST);
    }
    let rounded = match ten(-exponent) {
        Some(power) => up(product, power),
        None => i128::from(product > 0),
    };
    if more && rounded == 0 { 1 } else { rounded }
}

fn up(number: i128, part: i128) -> i128 {
    // Away from zero, as the real one.
    let rest = number % part;
    number / part + rest.signum()
}

/// The base and the power of a suffix.
fn scale(suffix: &str) -> Option<(u8, i64, Format)> {
    let place = |list: &[&str]| {
        list.iter()
            .position(|s| *s == suffix)
            .and_then(|i| i64::try_from(i).ok())
    };
    if let Some(i) = place(&DECIMAL) {
        return Some((10, i * 3 - 9, Format::Decimal));
    }
    if let Some(i) = place(&BINARY) {
        return Some((2, (i + 1) * 10, Format::Binary));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let exponent: i64 = exponent.parse().ok()?;
    Some((10, exponent, Format::Exponent))
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nanos == other.nanos
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nanos.cmp(&other.nanos)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nanos == 0 {
            return f.write_str("0");
        }
        let whole = self.nanos / NANO;
        if self.format == Format::Binary && self.nanos % NANO == 0 && whole.abs() >= 1024 {
            let (mut number, mut suffix) = (whole, "");
            for next in BINARY {
                if number % 1024 != 0 {
                    break;
                }
                (number, suffix) = (number / 1024, next);
            }
            return write!(f, "{number}{suffix}");
        }
        let (mut number, mut power) = (self.nanos, -9);
        while number % 1000 == 0 {
            (number, power) = (number / 1000, power + 3);
        }
        match self.format {
            Format::Exponent if power == 0 => write!(f, "{number}"),
            Format::Exponent => write!(f, "{number}e{power}"),
            _ => {
                let suffix = usize::try_from((power + 9) / 3).ok().and_then(|i| DECIMAL.get(i));
                write!(f, "{number}{}", suffix.copied().unwrap_or_default())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Quantity;

    #[test]
    fn one_form() {
        for (given, written) in [
            ("0.5", "500m"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Gi", "512Mi"),
            ("100Mi", "100Mi"),
            ("1000Ki", "1000Ki"),
            ("1e3", "1e3"),
            ("10e2", "1e3"),
            ("12000", "12k"),
            ("10", "10"),
            ("-0.5", "-500m"),
            ("0", "0"),
            ("0.0000000001", "1n"),
            ("99999999999999999999", "9223372036854775807"),
            ("1Ki", "1Ki"),
            ("0.5Ki", "512"),
            ("+1", "1"),
            (".5", "500m"),
            ("5.", "5"),
        ] {
            assert_eq!(
                Quantity::parse(given).map(|q| q.to_string()).as_deref(),
                Some(written),
                "{given}"
            );
        }
    }

    #[test]
    fn not_one() {
        for given in [
            "", "x", "1x", "1.2.3", "1 ", "Mi", "1mi", "e3", "1e", "--1", ".", "1e3k",
        ] {
            assert!(Quantity::parse(given).is_none(), "{given}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_text(text in "[+-]?[0-9.]{0,40}[eEinumkKMGTP]{0,3}[-+]?[0-9]{0,20}") {
            if let Some(q) = Quantity::parse(&text) {
                let written = q.to_string();
                let again = Quantity::parse(&written);
                proptest::prop_assert_eq!(again, Some(q));
                proptest::prop_assert_eq!(again.map(|q| q.to_string()), Some(written));
            }
        }
    }
}

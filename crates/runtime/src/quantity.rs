//! Kubernetes quantities (`500m`, `16Gi`, `1e3`): read, add, write.

use std::fmt;

/// A number of thousandths, and whether it is written with binary suffixes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quantity {
    milli: i128,
    binary: bool,
}

impl Quantity {
    /// Reads a quantity; `None` if it is none. What is finer than a thousandth is rounded up.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text
            .find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | '+' | '-')))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at_checked(end)?;
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let mantissa: i128 = format!("{whole}{fraction}").parse().ok()?;
        let decimals = i32::try_from(fraction.len()).ok()?;
        let (factor, exponent) = scale(suffix)?;
        // The value in thousandths is mantissa * factor * 10^(exponent + 3 - decimals).
        let value = mantissa.checked_mul(factor)?;
        let power = exponent.checked_add(3)?.checked_sub(decimals)?;
        let magnitude = 10_i128.checked_pow(power.unsigned_abs())?;
        let milli = if power >= 0 {
            value.checked_mul(magnitude)?
        } else {
            value.checked_add(magnitude - 1)? / magnitude
        };
        Some(Self {
            milli: if negative { -milli } else { milli },
            binary: factor > 1,
        })
    }

    /// In thousandths.
    pub fn milli(self) -> i128 {
        self.milli
    }

    /// The sum; written with binary suffixes if one of both is.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            milli: self.milli.saturating_add(other.milli),
            binary: self.binary || other.binary,
        }
    }
}

fn scale(suffix: &str) -> Option<(i128, i32)> {
    Some(match suffix {
        "" => (1, 0),
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1 << 10, 0),
        "Mi" => (1 << 20, 0),
        "Gi" => (1 << 30, 0),
        "Ti" => (1 << 40, 0),
        "Pi" => (1 << 50, 0),
        "Ei" => (1 << 60, 0),
        _ => {
            let exponent = suffix.strip_prefix(['e', 'E'])?;
            (1, exponent.parse().ok().filter(|e| (-18..=18).contains(e))?)
        }
    })
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.milli % 1000 != 0 {
            return write!(f, "{}m", self.milli);
        }
        let mut value = self.milli / 1000;
        let mut suffix = "";
        if self.binary {
            for next in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
                if value == 0 || value % 1024 != 0 {
                    break;
                }
                value /= 1024;
                suffix = next;
            }
        }
        write!(f, "{value}{suffix}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, milli, written) in [
            ("4", 4_000, "4"),
            ("500m", 500, "500m"),
            ("1.5", 1_500, "1500m"),
            ("16Gi", 17_179_869_184_000, "16Gi"),
            ("1.5Gi", 1_610_612_736_000, "1536Mi"),
            ("32986204Ki", 33_777_872_896_000, "32986204Ki"),
            ("2k", 2_000_000, "2000"),
            ("1e3", 1_000_000, "1000"),
            ("100n", 1, "1m"),
            ("-1", -1_000, "-1"),
            ("0", 0, "0"),
        ] {
            let quantity = Quantity::parse(text).unwrap();
            assert_eq!(
                (quantity.milli(), quantity.to_string().as_str()),
                (milli, written),
                "{text}"
            );
        }
        for bad in ["", "x", "1Xi", "1.2.3", "e3", "1e99"] {
            assert_eq!(Quantity::parse(bad), None, "{bad}");
        }
        let sum = Quantity::parse("1Gi")
            .unwrap()
            .plus(Quantity::parse("512Mi").unwrap());
        assert_eq!(sum.to_string(), "1536Mi");
    }
}

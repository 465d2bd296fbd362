//! Quantities such as `500m`, `1Gi` and `1e3`: read, added, compared, written in the one form that the real server writes.
//!
//! The real server counts small ones in 64 bits and all others in decimals of any length. Which of both it is shows: only the
//! first have an integer in CEL, and the largest amount there is only bounds binary ones that are not small.

mod decimal;
mod spelling;

use std::cmp::Ordering;
use std::fmt;

use decimal::Decimal;
use spelling::Spelling;

/// What the real server says about a text that is none.
pub const PATTERN_ERROR: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";
pub(crate) const SUFFIX_ERROR: &str = "unable to parse quantity's suffix";
pub(crate) const NUMBER_ERROR: &str = "unable to parse numeric part of quantity";

/// The smallest part that counts, as a power of ten.
const NANO: i32 = -9;
const MILLI: i32 = -3;
const DECIMAL: [&str; 10] = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];

/// The family of suffixes it was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Binary,
    Decimal,
    Exponent,
}

/// A small amount: so many of a power of ten.
#[derive(Clone, Copy, Debug)]
struct Small {
    number: i64,
    power: i32,
}

/// An amount, exact to a billionth.
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    amount: Decimal,
    /// The same amount, where the real server counts it in 64 bits.
    small: Option<Small>,
    format: Format,
}

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self::count(0);

    /// So many of something.
    pub const fn count(number: i64) -> Self {
        Self {
            amount: Decimal::whole(number),
            small: Some(Small { number, power: 0 }),
            format: Format::Decimal,
        }
    }

    /// Reads a quantity.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).ok()
    }

    /// Reads a quantity, or tells why it is none.
    pub(crate) fn read(text: &str) -> Result<Self, &'static str> {
        let spelling = Spelling::of(text)?;
        let format = spelling.format;
        if let Some(small) = spelling.small() {
            return Ok(Self {
                amount: Decimal::new(i128::from(small.number), small.power),
                small: Some(small),
                format,
            });
        }
        let amount = spelling.amount()?;
        let tiny = format == Format::Binary && amount > Decimal::whole(0) && amount < Decimal::whole(1);
        Ok(Self {
            amount,
            small: None,
            format: if tiny { Format::Decimal } else { format },
        })
    }

    /// Whole ones, rounded up.
    pub fn value(self) -> i128 {
        let most = i128::from(i64::MAX);
        self.amount.rounded(0).times_ten_to(0).clamp(-most, most)
    }

    /// Thousandths, rounded up.
    pub fn milli(self) -> i128 {
        let most = i128::from(i64::MAX) * 1000;
        self.amount.rounded(MILLI).times_ten_to(3).clamp(-most, most)
    }

    /// Whether it is nothing.
    pub fn is_zero(self) -> bool {
        self.amount == Decimal::whole(0)
    }

    /// Whether it is less than nothing.
    pub fn is_negative(self) -> bool {
        self.amount < Decimal::whole(0)
    }

    /// The next whole number.
    pub fn rounded_up(self) -> Self {
        self.rounded(0)
    }

    fn rounded(self, power: i32) -> Self {
        let amount = self.amount.rounded(power);
        let small = self.small.and_then(|small| {
            let coarse = small.power >= power;
            let number = || i64::try_from(amount.times_ten_to(-power)).ok();
            if coarse {
                Some(small)
            } else {
                number().map(|number| Small { number, power })
            }
        });
        Self {
            amount,
            small,
            format: self.format,
        }
    }

    /// Both together, written as the first unless that is nothing.
    pub fn plus(self, other: Self) -> Self {
        Self {
            amount: self.amount.plus(other.amount),
            small: self.small.zip(other.small).and_then(|(a, b)| a.plus(b)),
            format: if self.is_zero() { other.format } else { self.format },
        }
    }

    /// What is left of it without the other.
    pub fn minus(self, other: Self) -> Self {
        let negated = |small: Small| {
            small.number.checked_neg().map(|number| Small {
                number,
                power: small.power,
            })
        };
        self.plus(Self {
            amount: other.amount.negated(),
            small: other.small.and_then(negated),
            format: other.format,
        })
    }

    /// Its integer, where the real server has one: not of all that are whole.
    pub(crate) fn integer(self) -> Option<i64> {
        let small = self.small.filter(|small| small.power >= 0)?;
        small.at(0)
    }

    /// About as much.
    #[expect(clippy::cast_precision_loss, reason = "that is what is asked for")]
    pub(crate) fn float(self) -> f64 {
        let (number, power) = match self.small {
            Some(small) => (small.number as f64, small.power),
            None => self.amount.in_parts(NANO),
        };
        let ten: f64 = format!("1e{power}").parse().unwrap_or(f64::INFINITY);
        if power == 0 { number } else { number * ten }
    }
}

impl Small {
    /// How many of another power of ten, no larger than its own.
    fn at(self, power: i32) -> Option<i64> {
        let more = u32::try_from(self.power.checked_sub(power)?).ok()?;
        if self.number == 0 {
            return Some(0);
        }
        self.number.checked_mul(10i64.checked_pow(more)?)
    }

    fn plus(self, other: Self) -> Option<Self> {
        if other.number == 0 {
            return Some(self);
        }
        if self.number == 0 {
            return Some(other);
        }
        let power = self.power.min(other.power);
        let number = self.at(power)?.checked_add(other.at(power)?)?;
        Some(Self { number, power })
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.amount == other.amount
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
        self.amount.cmp(&other.amount)
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_zero() {
            return f.write_str("0");
        }
        if self.format == Format::Binary
            && let Some(mut number) = self.amount.integer()
            && number.unsigned_abs() >= 1024
        {
            let mut suffix = "";
            for next in BINARY {
                if number % 1024 != 0 {
                    break;
                }
                (number, suffix) = (number / 1024, next);
            }
            return write!(f, "{number}{suffix}");
        }
        // In steps of three zeros.
        let (mantissa, power) = self.amount.parts();
        let zeros = power.rem_euclid(3);
        let power = power - zeros;
        write!(
            f,
            "{mantissa}{}",
            ["", "0", "00"].get(zeros.unsigned_abs() as usize).unwrap_or(&"")
        )?;
        match self.format {
            Format::Exponent if power == 0 => Ok(()),
            Format::Exponent => write!(f, "e{power}"),
            _ => {
                let suffix = usize::try_from((power - NANO) / 3)
                    .ok()
                    .and_then(|i| DECIMAL.get(i));
                f.write_str(suffix.copied().unwrap_or_default())
            }
        }
    }
}

/// How the real server writes what was given as this text; nothing if it is none. In a list of resources there are no smaller
/// parts than thousandths.
pub(crate) fn written(text: &str, in_list: bool) -> Option<String> {
    let quantity = Quantity::parse(text)?;
    let fine = quantity.small.is_some_and(|small| small.power < MILLI);
    if spelling::is_kept(text) && !(in_list && fine) {
        return Some(text.to_owned());
    }
    let quantity = if in_list {
        quantity.rounded(MILLI)
    } else {
        quantity
    };
    Some(quantity.to_string())
}

/// A quantity in JSON: there it may have spaces around it.
pub(crate) fn trimmed(text: &str) -> &str {
    text.trim_matches(|c: char| c.is_whitespace() && !c.is_control())
}

#[cfg(test)]
mod tests;

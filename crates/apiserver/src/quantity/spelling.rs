//! The parts of a written quantity, in the generous way in which the real server finds them.

use super::decimal::Decimal;
use super::{BINARY, DECIMAL, Format, NANO, NUMBER_ERROR, PATTERN_ERROR, SUFFIX_ERROR, Small};

/// How many digits the real server counts in 64 bits without a closer look, and how many together with a binary suffix.
const ROOM: usize = 18;
const BINARY_ROOM: usize = 14;
/// How many digits a decimal can hold.
const ALL_DIGITS: usize = 36;
/// How many it can hold that are multiplied by a binary suffix.
const BINARY_DIGITS: usize = 19;

/// A quantity by its parts.
pub(super) struct Spelling<'t> {
    negative: bool,
    /// The digits before the point, without zeros in front, but at least one.
    whole: &'t str,
    fraction: &'t str,
    /// Whether there is a digit at all.
    any_digit: bool,
    /// Of ten, or of two if the format is binary.
    power: i32,
    pub(super) format: Format,
}

impl<'t> Spelling<'t> {
    pub(super) fn of(text: &'t str) -> Result<Self, &'static str> {
        if text.is_empty() {
            return Err(PATTERN_ERROR);
        }
        let negative = text.starts_with('-');
        let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (all, rest) = rest.split_at(digits(rest));
        let whole = all.trim_start_matches('0');
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(rest) => rest.split_at(digits(rest)),
            None => ("", rest),
        };
        let letters = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let number = letters.strip_prefix(['-', '+']).unwrap_or(letters);
        if !number.bytes().all(|c| c.is_ascii_digit()) {
            return Err(PATTERN_ERROR);
        }
        let (power, format) = interpret(suffix).ok_or(SUFFIX_ERROR)?;
        Ok(Self {
            negative,
            whole: if whole.is_empty() { "0" } else { whole },
            fraction,
            any_digit: !all.is_empty() || !fraction.is_empty(),
            power,
            format,
        })
    }

    /// The amount, if the real server counts it in 64 bits.
    pub(super) fn small(&self) -> Option<Small> {
        let digits = self.whole.len().checked_add(self.fraction.len())?;
        let binary = self.format == Format::Binary;
        // A factor of 2^10 has about three digits.
        let room = if binary {
            BINARY_ROOM.checked_sub(usize::try_from(self.power * 3 / 10).ok()?)?
        } else {
            ROOM
        };
        let power = if binary { 0 } else { self.power };
        let power = power.checked_sub(i32::try_from(self.fraction.len()).ok()?)?;
        if digits > room || power < NANO || (binary && !self.fraction.is_empty()) {
            return None;
        }
        let number: i64 = format!("{}{}", self.whole, self.fraction).parse().ok()?;
        let number = number.checked_mul(self.factor())?;
        Some(Small {
            number: if self.negative { -number } else { number },
            power,
        })
    }

    /// What a binary suffix multiplies by.
    fn factor(&self) -> i64 {
        match self.format {
            Format::Binary => 1 << self.power,
            _ => 1,
        }
    }

    /// The amount as a decimal. Digits beyond those that it holds only say that there is more.
    pub(super) fn amount(&self) -> Result<Decimal, &'static str> {
        if !self.any_digit {
            return Err(NUMBER_ERROR);
        }
        let binary = self.format == Format::Binary;
        let digits = format!("{}{}", self.whole, self.fraction);
        let digits = digits.trim_start_matches('0');
        let (read, beyond) =
            digits.split_at(digits.len().min(if binary { BINARY_DIGITS } else { ALL_DIGITS }));
        let mantissa: i128 = if read.is_empty() {
            0
        } else {
            read.parse().map_err(|_| NUMBER_ERROR)?
        };
        let length = |text: &str| i32::try_from(text.len()).map_err(|_| NUMBER_ERROR);
        let power = if binary { 0 } else { self.power };
        let power = power
            .saturating_sub(length(self.fraction)?)
            .saturating_add(length(beyond)?);
        // What is beyond makes the number a little larger, which rounding up may find.
        let more = beyond.bytes().any(|digit| digit != b'0') && power < NANO;
        let mantissa = mantissa.saturating_mul(self.factor().into()) + i128::from(more);
        let amount = Decimal::new(mantissa, power).rounded(NANO);
        let most = Decimal::whole(i64::MAX);
        let amount = if binary && amount > most { most } else { amount };
        Ok(if self.negative { amount.negated() } else { amount })
    }
}

/// The power that a suffix stands for: of two if it is binary, else of ten.
fn interpret(suffix: &str) -> Option<(i32, Format)> {
    let place = |list: &[&str]| {
        let place = list.iter().position(|s| *s == suffix);
        place.and_then(|i| i32::try_from(i).ok())
    };
    if let Some(i) = place(&DECIMAL) {
        return Some((i * 3 + NANO, Format::Decimal));
    }
    if let Some(i) = place(&BINARY) {
        return Some(((i + 1) * 10, Format::Binary));
    }
    let exponent: i64 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
    // Longer ones lose their upper bits there. None but the smallest and largest remain.
    let exponent = exponent.clamp(i32::MIN.into(), i32::MAX.into());
    Some((i32::try_from(exponent).ok()?, Format::Exponent))
}

/// Whether the real server keeps a text as it is, for it looks like the one form. It does not look closely.
pub(super) fn is_kept(text: &str) -> bool {
    let Ok(spelling) = Spelling::of(text) else {
        return false;
    };
    let Some(small) = spelling.small() else {
        return false;
    };
    let shifted = [spelling.whole, spelling.fraction].concat();
    match spelling.format {
        Format::Binary => (small.number / spelling.factor()) & 7 != 0,
        _ => small.power % 3 == 0 && !shifted.ends_with("000") && !shifted.starts_with('0'),
    }
}

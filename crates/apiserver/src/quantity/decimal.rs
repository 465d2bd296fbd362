//! Decimals of 38 digits.

use std::cmp::Ordering;

/// `mantissa * 10^power`, in the one way whose mantissa does not end in a zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decimal {
    mantissa: i128,
    power: i32,
}

impl Decimal {
    pub(super) const fn whole(number: i64) -> Self {
        Self::new(number as i128, 0)
    }

    pub(super) const fn new(mut mantissa: i128, mut power: i32) -> Self {
        if mantissa == 0 {
            power = 0;
        }
        while mantissa != 0 && mantissa % 10 == 0 && power < i32::MAX {
            mantissa /= 10;
            power += 1;
        }
        Self { mantissa, power }
    }

    pub(super) const fn parts(self) -> (i128, i32) {
        (self.mantissa, self.power)
    }

    pub(super) const fn negated(self) -> Self {
        Self {
            mantissa: -self.mantissa,
            power: self.power,
        }
    }

    /// The next multiple of a power of ten, away from nothing.
    pub(super) fn rounded(self, power: i32) -> Self {
        if self.power >= power {
            return self;
        }
        let part = u32::try_from(i64::from(power) - i64::from(self.power)).ok();
        let up = match part.and_then(|digits| 10i128.checked_pow(digits)) {
            Some(part) => self.mantissa / part + (self.mantissa % part).signum(),
            None => self.mantissa.signum(),
        };
        Self::new(up, power)
    }

    /// The mantissa of the same number at another power, as far as there is one.
    fn at(self, power: i32) -> Option<i128> {
        let zeros = u32::try_from(i64::from(self.power) - i64::from(power)).ok()?;
        self.mantissa.checked_mul(10i128.checked_pow(zeros)?)
    }

    /// `self * 10^power` of what has no smaller parts, or the largest number.
    pub(super) fn times_ten_to(self, power: i32) -> i128 {
        let most = if self.mantissa < 0 { i128::MIN } else { i128::MAX };
        self.at(-power).unwrap_or(most)
    }

    /// Itself if it is whole.
    pub(super) fn integer(self) -> Option<i128> {
        self.at(0)
    }

    /// How many of such parts it has, as far as that can be counted, and what they are then.
    #[expect(clippy::cast_precision_loss, reason = "that is what is asked for")]
    pub(super) fn in_parts(self, power: i32) -> (f64, i32) {
        match self.at(power) {
            Some(parts) => (parts as f64, power),
            None => (self.mantissa as f64, self.power),
        }
    }

    /// The sum; next to what is too large for both, the smaller one is nothing.
    pub(super) fn plus(self, other: Self) -> Self {
        let power = if self.mantissa == 0 {
            other.power
        } else if other.mantissa == 0 {
            self.power
        } else {
            self.power.min(other.power)
        };
        let at = |part: Self| {
            if part.mantissa == 0 {
                Some(0)
            } else {
                part.at(power)
            }
        };
        let sum = at(self).zip(at(other)).and_then(|(a, b)| a.checked_add(b));
        match sum {
            Some(sum) => Self::new(sum, power),
            None if self.power > other.power => self,
            None => other,
        }
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        let signs = self.mantissa.signum().cmp(&other.mantissa.signum());
        if signs != Ordering::Equal || self.mantissa == 0 {
            return signs;
        }
        let power = self.power.min(other.power);
        match (self.at(power), other.at(power)) {
            (Some(a), Some(b)) => a.cmp(&b),
            // What has too many zeros to be written out is the larger one, or the smaller one below nothing.
            (None, _) => self.mantissa.cmp(&0),
            (_, None) => 0.cmp(&other.mantissa),
        }
    }
}

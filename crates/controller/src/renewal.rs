//! When a credential is renewed before it expires.

use std::hash::{DefaultHasher, Hash, Hasher as _};

use jiff::{SignedDuration, Timestamp};

/// The time to renew a credential: after 70 to 80 % of its life.
///
/// The point within that range follows from the seed alone, such as the uid of the account. A restart therefore does not
/// move it, and credentials that were issued together are not renewed together.
pub fn renew_at(issued: Timestamp, expires: Timestamp, seed: impl Hash) -> Timestamp {
    let life = expires.duration_since(issued).max(SignedDuration::ZERO);
    let mut hasher = DefaultHasher::new();
    seed.hash(&mut hasher);
    let share = i128::from(700_000 + hasher.finish() % 100_001);
    let after = SignedDuration::from_nanos_i128(life.as_nanos() * share / 1_000_000);
    issued.saturating_add(after).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn renewal_of_many_credentials_is_spread_over_70_to_80_percent() {
        let times: BTreeSet<i64> = (0..500)
            .map(|seed| renew_at(at(1000), at(2000), seed).as_second())
            .collect();
        assert!(times.first() >= Some(&1700) && times.last() <= Some(&1800), "{times:?}");
        assert!(times.len() > 80, "only {} different seconds", times.len());
    }

    #[test]
    fn renewal_of_one_credential_is_at_one_time() {
        assert_eq!(
            renew_at(at(0), at(3600), ("a", 1)),
            renew_at(at(0), at(3600), ("a", 1))
        );
    }

    #[test]
    fn renewal_of_an_expired_credential_is_due_at_once() {
        assert_eq!(renew_at(at(10), at(5), "a"), at(10));
        assert_eq!(
            renew_at(at(0), Timestamp::MAX, "a"),
            renew_at(at(0), Timestamp::MAX, "a")
        );
    }
}

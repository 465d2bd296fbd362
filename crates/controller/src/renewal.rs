//! When a credential is renewed: at 70 to 80 % of its life.
//!
//! The point is derived from a seed, not drawn: a restart does not move it, replicas that share a credential agree on it, and
//! a fleet whose credentials were issued together does not renew them together.

use std::hash::{DefaultHasher, Hash, Hasher};

use jiff::{SignedDuration, Timestamp};

/// The earliest point of a renewal, in millionths of the life.
const EARLIEST: u64 = 700_000;
/// The width of the window in which renewals are spread, in millionths of the life.
const WINDOW: u64 = 100_000;

/// When a credential with this life is renewed. `seed` names the credential: what differs between two credentials that were
/// issued in the same second, such as the name of their account.
pub fn renew_at(issued: Timestamp, expires: Timestamp, seed: &impl Hash) -> Timestamp {
    let mut hasher = DefaultHasher::new();
    (issued.as_second(), seed).hash(&mut hasher);
    let share = EARLIEST + hasher.finish() % (WINDOW + 1);
    let life = expires.duration_since(issued).max(SignedDuration::ZERO);
    let millis = life.as_millis() * i128::from(share) / 1_000_000;
    let wait = SignedDuration::from_millis(i64::try_from(millis).unwrap_or(i64::MAX));
    issued.saturating_add(wait).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn renewal_is_spread_over_70_to_80_percent_of_the_life() {
        let times: Vec<i64> = (0..1000)
            .map(|n| renew_at(at(1000), at(101_000), &("robot", n)).as_second() - 1000)
            .collect();
        assert!(times.iter().all(|time| (70_000..=80_000).contains(time)));
        assert!(times.iter().any(|time| *time < 71_000) && times.iter().any(|time| *time > 79_000));
    }

    #[test]
    fn renewal_of_one_credential_does_not_move() {
        let first = renew_at(at(0), at(3600), &"robot");
        assert_eq!(first, renew_at(at(0), at(3600), &"robot"));
        assert_ne!(first, renew_at(at(0), at(3600), &"other"));
    }

    #[test]
    fn renewal_of_a_credential_without_a_life_is_due_at_its_issue() {
        assert_eq!(renew_at(at(50), at(50), &()), at(50));
        assert_eq!(renew_at(at(50), at(10), &()), at(50));
        assert!(renew_at(at(0), Timestamp::MAX, &()) < Timestamp::MAX);
    }
}

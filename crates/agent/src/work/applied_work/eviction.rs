//! Pure: when an AppliedManifestWork without a work on the hub is deleted.

use std::time::Duration;

use jiff::Timestamp;

/// A grace period of so many seconds or more means: never evict.
const NEVER: u64 = 100 * 365 * 24 * 60 * 60;

/// The work of an AppliedManifestWork, on the hub.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkOnHub {
    /// The works of the hub have not been listed yet.
    NotListed,
    /// It exists.
    Exists,
    /// It is gone, or belongs to another hub.
    Gone,
}

/// What is done about an AppliedManifestWork.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Nothing.
    Keep,
    /// The eviction that had begun is called off.
    CallOff,
    /// The grace period begins.
    Begin,
    /// The rest of the grace period is awaited.
    Await(Duration),
    /// The grace period is over.
    Evict,
}

/// What is done now about an AppliedManifestWork whose eviction began at `began`, if it did.
pub fn plan_eviction(
    work: WorkOnHub,
    began: Option<Timestamp>,
    grace_period: Duration,
    now: Timestamp,
) -> Eviction {
    if work == WorkOnHub::Exists || grace_period.as_secs() >= NEVER {
        return began.map_or(Eviction::Keep, |_| Eviction::CallOff);
    }
    match (work, began) {
        (WorkOnHub::NotListed, _) => Eviction::Keep,
        (_, None) => Eviction::Begin,
        (_, Some(began)) => {
            let waited = Duration::try_from(now.duration_since(began)).unwrap_or_default();
            if waited < grace_period {
                Eviction::Await(grace_period.saturating_sub(waited))
            } else {
                Eviction::Evict
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_gone_from_the_hub_is_evicted_after_the_grace_period() {
        use WorkOnHub::{Exists, Gone, NotListed};
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let hour = Duration::from_hours(1);
        let never = Duration::from_secs(NEVER);
        for (what, work, began, grace_period, wanted) in [
            ("not known yet", NotListed, None, hour, Eviction::Keep),
            (
                "not known yet, and begun",
                NotListed,
                Some(0),
                hour,
                Eviction::Keep,
            ),
            ("on the hub", Exists, None, hour, Eviction::Keep),
            ("back on the hub", Exists, Some(0), hour, Eviction::CallOff),
            ("gone", Gone, None, hour, Eviction::Begin),
            (
                "gone for long",
                Gone,
                Some(400),
                hour,
                Eviction::Await(Duration::from_mins(50)),
            ),
            (
                "a clock that went back",
                Gone,
                Some(5000),
                hour,
                Eviction::Await(hour),
            ),
            (
                "gone for too long",
                Gone,
                Some(0),
                Duration::from_secs(1000),
                Eviction::Evict,
            ),
            ("eviction is off", Gone, None, never, Eviction::Keep),
            (
                "eviction had begun and is off now",
                Gone,
                Some(0),
                never,
                Eviction::CallOff,
            ),
            (
                "the same before the hub is listed",
                NotListed,
                Some(0),
                never,
                Eviction::CallOff,
            ),
        ] {
            let eviction = plan_eviction(work, began.map(at), grace_period, at(1000));
            assert_eq!(eviction, wanted, "{what}");
        }
    }
}

//! Conditions: set only what differs, with times that change only when the status does.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

/// The longest message the API accepts; what is longer is cut with an ellipsis.
pub const MAX_MESSAGE: usize = 32 * 1024;

/// A condition as a plan wants it, without times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The condition's type, such as `Applied`.
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: Status,
    /// One word in PascalCase.
    pub reason: String,
    /// What a person reads.
    pub message: String,
}

/// The three values of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The condition holds.
    True,
    /// It does not hold.
    False,
    /// It is not known whether it holds.
    Unknown,
}

impl Status {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl From<bool> for Status {
    fn from(holds: bool) -> Self {
        if holds { Self::True } else { Self::False }
    }
}

impl Wanted {
    /// A condition with the given parts.
    pub fn new(type_: &str, status: impl Into<Status>, reason: &str, message: impl Into<String>) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: message.into(),
        }
    }
}

/// The condition of that type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Whether the condition of that type is there and `True`.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|c| c.status == Status::True.as_str())
}

/// Sets one condition; returns whether anything changed. `lastTransitionTime` moves only with the status.
pub fn set(
    conditions: &mut Vec<Condition>,
    wanted: &Wanted,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let message = clip(&wanted.message, MAX_MESSAGE);
    let Some(current) = conditions.iter_mut().find(|c| c.type_ == wanted.type_) else {
        conditions.push(Condition {
            type_: wanted.type_.clone(),
            status: wanted.status.as_str().into(),
            reason: wanted.reason.clone(),
            message,
            observed_generation: generation,
            last_transition_time: Time(now),
        });
        return true;
    };
    let flipped = current.status != wanted.status.as_str();
    let changed = flipped
        || current.reason != wanted.reason
        || current.message != message
        || current.observed_generation != generation;
    if flipped {
        current.status = wanted.status.as_str().into();
        current.last_transition_time = Time(now);
    }
    current.reason.clone_from(&wanted.reason);
    current.message = message;
    current.observed_generation = generation;
    changed
}

/// Removes the condition of that type; returns whether it was there.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) -> bool {
    let before = conditions.len();
    conditions.retain(|c| c.type_ != type_);
    conditions.len() != before
}

/// The condition that names fields which are accepted and have no effect.
pub const FIELDS_IGNORED: &str = "FieldsIgnored";

/// What [`FIELDS_IGNORED`] says about these fields.
pub fn ignored_message(fields: &[&str]) -> String {
    let verb = if fields.len() == 1 { "has" } else { "have" };
    format!("{} {verb} no effect here", fields.join(", "))
}

/// Sets [`FIELDS_IGNORED`] where there are such fields, and removes it where there are none.
pub fn set_ignored(
    conditions: &mut Vec<Condition>,
    fields: &[&str],
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    if fields.is_empty() {
        return remove(conditions, FIELDS_IGNORED);
    }
    let wanted = Wanted::new(FIELDS_IGNORED, true, "NotSupported", ignored_message(fields));
    set(conditions, &wanted, generation, now)
}

/// Cuts a text to at most `max` bytes, at a character boundary, and says that it was cut.
pub fn clip(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    let mut end = max.saturating_sub('…'.len_utf8());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    let mut cut = text.get(..end).unwrap_or_default().to_owned();
    cut.push('…');
    cut
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn time_moves_only_with_the_status() {
        let mut conditions = Vec::new();
        assert!(set(
            &mut conditions,
            &Wanted::new("Ready", true, "Done", "a"),
            Some(1),
            at(1)
        ));
        assert!(!set(
            &mut conditions,
            &Wanted::new("Ready", true, "Done", "a"),
            Some(1),
            at(2)
        ));
        assert!(set(
            &mut conditions,
            &Wanted::new("Ready", true, "Done", "b"),
            Some(2),
            at(3)
        ));
        assert_eq!(conditions[0].last_transition_time.0, at(1));
        assert!(set(
            &mut conditions,
            &Wanted::new("Ready", false, "Broken", "b"),
            Some(2),
            at(4)
        ));
        assert_eq!(conditions[0].last_transition_time.0, at(4));
        assert!(remove(&mut conditions, "Ready"));
        assert!(!remove(&mut conditions, "Ready"));
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        assert_eq!(clip("äääää", 8), "ää…");
        assert_eq!(clip("short", 8), "short");
    }
}

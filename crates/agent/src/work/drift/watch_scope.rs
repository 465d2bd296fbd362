//! How much of a kind has to be watched.

use std::sync::Arc;

use super::Name;

/// The part of a kind that is watched; wider is larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One object.
    Object(Name),
    /// One namespace.
    Namespace(Arc<str>),
    /// Everything.
    All,
}

impl Scope {
    /// Whether an object is in this part.
    pub fn contains(&self, name: &Name) -> bool {
        match self {
            Self::Object(only) => only == name,
            Self::Namespace(namespace) => namespace == &name.0,
            Self::All => true,
        }
    }

    /// Whether this part holds all of the other.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Namespace(a), Self::Namespace(b) | Self::Object((b, _))) => a == b,
            (Self::Object(a), Self::Object(b)) => a == b,
            (Self::Object(_), _) | (Self::Namespace(_), Self::All) => false,
        }
    }

    /// The smallest part that holds these objects.
    pub(super) fn around<'a>(mut names: impl Iterator<Item = &'a Name>) -> Option<Self> {
        let first = names.next()?;
        let mut scope = Self::Object(first.clone());
        for name in names {
            if name.0.is_empty() || name.0 != first.0 {
                return Some(Self::All);
            }
            scope = Self::Namespace(first.0.clone());
        }
        Some(scope)
    }
}

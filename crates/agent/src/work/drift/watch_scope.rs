//! How much of a kind has to be watched.

use std::sync::Arc;

use writ_controller::Name;

/// The part of a kind that is watched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchScope {
    /// One object.
    Object(Name),
    /// One namespace.
    Namespace(Arc<str>),
    /// Everything.
    All,
}

impl WatchScope {
    /// Whether an object is in this part.
    pub fn contains(&self, name: &Name) -> bool {
        match self {
            Self::Object(only) => only == name,
            Self::Namespace(namespace) => namespace == &name.namespace,
            Self::All => true,
        }
    }

    /// Whether this part includes all of the other.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Namespace(a), Self::Namespace(b) | Self::Object(Name { namespace: b, .. })) => a == b,
            (Self::Object(a), Self::Object(b)) => a == b,
            (Self::Object(_), _) | (Self::Namespace(_), Self::All) => false,
        }
    }

    /// The smallest part that includes these objects; `None` if there are none.
    pub fn around<'a>(mut names: impl Iterator<Item = &'a Name>) -> Option<Self> {
        let first = names.next()?;
        let mut scope = Self::Object(first.clone());
        for name in names {
            if name.namespace.is_empty() || name.namespace != first.namespace {
                return Some(Self::All);
            }
            scope = Self::Namespace(first.namespace.clone());
        }
        Some(scope)
    }
}

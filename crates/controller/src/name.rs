//! The names of objects: within a kind, and of any kind.

use std::{fmt, sync::Arc};

use kube::{Resource, ResourceExt as _, core::DynamicObject};

/// The name of an object within its kind. Cheap to clone; sorted by namespace, then by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name {
    /// Its namespace; empty for an object without one.
    pub namespace: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
}

impl Name {
    /// The name of an object in a namespace.
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
        }
    }

    /// The name of an object without a namespace.
    pub fn global(name: impl Into<Arc<str>>) -> Self {
        Self::new("", name)
    }

    /// The name of this object.
    pub fn of<K: Resource>(object: &K) -> Self {
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        Self::new(namespace, object.name_any())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            f.write_str(&self.name)
        } else {
            write!(f, "{}/{}", self.namespace, self.name)
        }
    }
}

/// The id of an object of any kind. The version is no part of it: one object is served in several.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId {
    /// The group of its API; empty for the core group.
    pub group: Arc<str>,
    /// Its kind.
    pub kind: Arc<str>,
    /// Its name within that kind.
    pub name: Name,
}

impl ObjectId {
    /// The id of an object of a known kind.
    pub fn of<K: Resource<DynamicType = ()>>(object: &K) -> Self {
        Self {
            group: K::group(&()).as_ref().into(),
            kind: K::kind(&()).as_ref().into(),
            name: Name::of(object),
        }
    }

    /// The id of an object that says its kind itself; `None` if it does not.
    pub fn of_dynamic(object: &DynamicObject) -> Option<Self> {
        let types = object.types.as_ref()?;
        let group = types.api_version.split_once('/').map_or("", |(group, _)| group);
        Some(Self {
            group: group.into(),
            kind: types.kind.as_str().into(),
            name: Name::of(object),
        })
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

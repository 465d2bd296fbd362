//! The four kinds of object, and how they are named.

use std::fmt;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// The kinds of `rbac.authorization.k8s.io`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Kind {
    /// Rules in a namespace.
    Role,
    /// Rules for the cluster, or for reuse in namespaces.
    ClusterRole,
    /// Grants a Role or a ClusterRole in its namespace.
    RoleBinding,
    /// Grants a ClusterRole everywhere.
    ClusterRoleBinding,
}

impl Kind {
    /// Whether objects of this kind live in a namespace.
    pub fn is_namespaced(self) -> bool {
        matches!(self, Self::Role | Self::RoleBinding)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// One object, borrowed, of any of the four kinds.
#[derive(Clone, Copy, Debug)]
pub enum Object<'a> {
    /// A Role.
    Role(&'a Role),
    /// A ClusterRole.
    ClusterRole(&'a ClusterRole),
    /// A RoleBinding.
    RoleBinding(&'a RoleBinding),
    /// A ClusterRoleBinding.
    ClusterRoleBinding(&'a ClusterRoleBinding),
}

impl<'a> Object<'a> {
    fn metadata(&self) -> (Kind, &'a ObjectMeta) {
        match self {
            Self::Role(object) => (Kind::Role, &object.metadata),
            Self::ClusterRole(object) => (Kind::ClusterRole, &object.metadata),
            Self::RoleBinding(object) => (Kind::RoleBinding, &object.metadata),
            Self::ClusterRoleBinding(object) => (Kind::ClusterRoleBinding, &object.metadata),
        }
    }
}

/// The address of an object; the namespace is ignored where the kind has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Key<'a> {
    /// The kind.
    pub kind: Kind,
    /// The namespace, or empty.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

impl<'a> Key<'a> {
    /// An address.
    pub fn new(kind: Kind, namespace: &'a str, name: &'a str) -> Self {
        Self {
            kind,
            namespace,
            name,
        }
    }
}

impl<'a> From<Object<'a>> for Key<'a> {
    fn from(object: Object<'a>) -> Self {
        let (kind, metadata) = object.metadata();
        Self {
            kind,
            namespace: metadata.namespace.as_deref().unwrap_or_default(),
            name: metadata.name.as_deref().unwrap_or_default(),
        }
    }
}

macro_rules! from_kind {
    ($($kind:ident),*) => {$(
        impl<'a> From<&'a $kind> for Object<'a> {
            fn from(object: &'a $kind) -> Self {
                Self::$kind(object)
            }
        }
        impl<'a> From<&'a $kind> for Key<'a> {
            fn from(object: &'a $kind) -> Self {
                Object::from(object).into()
            }
        }
    )*};
}
from_kind!(Role, ClusterRole, RoleBinding, ClusterRoleBinding);

/// An object that cannot be indexed. It grants nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidObject {
    /// `metadata.name` is empty.
    #[error("a {0} has no metadata.name")]
    NoName(Kind),
    /// `metadata.namespace` of a namespaced kind is empty.
    #[error("{0} {1:?} has no metadata.namespace")]
    NoNamespace(Kind, String),
}

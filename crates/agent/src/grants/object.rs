//! A Role or RoleBinding that grants make.

use std::collections::BTreeMap;

use k8s_openapi::{
    api::rbac::v1::{Role, RoleBinding},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use writ_api::writ::GRANTED_LABEL;

use crate::owner::is_grant;

/// The kinds that grants make.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// A Role.
    Role,
    /// A RoleBinding.
    RoleBinding,
}

impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Role => "Role",
            Self::RoleBinding => "RoleBinding",
        })
    }
}

/// A Role or RoleBinding.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A Role.
    Role(Box<Role>),
    /// A RoleBinding.
    RoleBinding(Box<RoleBinding>),
}

impl Object {
    /// Its metadata.
    pub fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Role(role) => &role.metadata,
            Self::RoleBinding(binding) => &binding.metadata,
        }
    }

    /// Its resource.
    pub fn resource(&self) -> &'static str {
        match self {
            Self::Role(_) => "roles",
            Self::RoleBinding(_) => "rolebindings",
        }
    }

    /// Its metadata, to change.
    pub fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Role(role) => &mut role.metadata,
            Self::RoleBinding(binding) => &mut binding.metadata,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Role(_) => Kind::Role,
            Self::RoleBinding(_) => Kind::RoleBinding,
        }
    }

    /// This very object without anything that it grants; `None` if it grants nothing.
    pub fn emptied(&self) -> Option<Self> {
        let mut emptied = self.clone();
        let before = match &mut emptied {
            Self::Role(role) => role.rules.replace(Vec::new()).map(|rules| rules.len()),
            Self::RoleBinding(binding) => binding.subjects.replace(Vec::new()).map(|all| all.len()),
        };
        let meta = emptied.meta_mut();
        let owners = meta.owner_references.take().unwrap_or_default();
        *meta = ObjectMeta {
            name: meta.name.take(),
            namespace: meta.namespace.take(),
            uid: meta.uid.take(),
            // Without it, applying to an object that is gone would create one.
            resource_version: meta.resource_version.take(),
            labels: granted_label(meta).map(|value| BTreeMap::from([(GRANTED_LABEL.into(), value.into())])),
            owner_references: Some(owners.into_iter().filter(is_grant).collect()),
            ..ObjectMeta::default()
        };
        before.filter(|count| *count > 0).map(|_| emptied)
    }

    /// Returns true if both grant the same.
    pub fn same_content(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Role(a), Self::Role(b)) => {
                a.rules.as_deref().unwrap_or_default() == b.rules.as_deref().unwrap_or_default()
            }
            (Self::RoleBinding(a), Self::RoleBinding(b)) => {
                a.role_ref == b.role_ref
                    && a.subjects.as_deref().unwrap_or_default() == b.subjects.as_deref().unwrap_or_default()
            }
            _ => false,
        }
    }
}

/// The value of the label that marks what grants make.
pub fn granted_label(meta: &ObjectMeta) -> Option<&str> {
    let labels = meta.labels.as_ref()?;
    labels.get(GRANTED_LABEL).map(String::as_str)
}

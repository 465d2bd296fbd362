//! The types of grants: what is observed, what is planned, and what became of it.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use k8s_openapi::api::rbac::v1::{PolicyRule, RoleBinding, RoleRef, Subject};
use kube::core::Selector;
use writ_api::writ::NamespaceGrant;

use super::object::{Kind, Object};

/// The API group of roles.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// The field manager of what grants make. The server records the owner of every field: an object that a work delivers as well
/// stays when either lets go of it, and removing owner and label from an object does not change its writer.
pub const WRITER: &str = "writ-agent-grants";

/// What is reconciled.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// What a namespace holds.
    Namespace(Arc<str>),
    /// What a grant reports.
    Grant(Arc<str>),
}

/// The objects of one namespace, as they are observed.
pub type Objects = BTreeMap<(Kind, String), Live>;

/// What a Role or RoleBinding holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Of a Role.
    Rules(Vec<PolicyRule>),
    /// Of a RoleBinding.
    Binding(RoleRef, Vec<Subject>),
}

/// A grant with its selector ready to use.
#[derive(Clone, Debug)]
pub struct Active {
    /// The grant.
    pub grant: NamespaceGrant,
    /// Its selector; `None` if it cannot be evaluated, which selects nothing.
    pub selector: Option<Selector>,
    /// What it makes; `None` if it makes nothing.
    pub content: Option<Content>,
}

/// An object in the namespace, by the one that it belongs to.
#[derive(Clone, Debug)]
pub enum Live {
    /// No grant made it.
    Foreign,
    /// A grant made it.
    Granted(Object),
    /// Its owner is a work. Grants share it as long as they want the same, and never change it.
    Delivered {
        /// The object.
        object: Object,
        /// Whether it is a grant's as well. Then the work's own record has to confirm that it delivers it: a user with the
        /// right to write the object can also write an owner reference.
        ours: bool,
    },
}

/// One step in a namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Create it.
    Create(Object),
    /// Change what differs.
    Change(Object),
    /// Delete a binding and create it again at once: its role is immutable.
    Replace {
        /// As it is wanted.
        to: Box<RoleBinding>,
        /// As it was seen; nothing if it is foreign and adopted.
        was: Option<Box<RoleBinding>>,
    },
    /// Leave what was shared to the work.
    Release(Object),
    /// Make it grant nothing: a finalizer keeps it, and until it is gone it would grant what it did.
    Empty(Object),
    /// Delete it, as it was seen.
    Delete(Object),
}

impl Step {
    /// The object that it is about.
    pub fn object(&self) -> Object {
        match self {
            Self::Create(object)
            | Self::Change(object)
            | Self::Release(object)
            | Self::Empty(object)
            | Self::Delete(object) => object.clone(),
            Self::Replace { to, .. } => Object::RoleBinding(to.clone()),
        }
    }
}

/// The plan of one namespace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespacePlan {
    /// The steps: what grants first, what revokes last. Each with the grants that it serves.
    pub steps: Vec<(Step, Vec<String>)>,
    /// For each grant in force here: nothing, or why it cannot have its object. For others: why what they made still
    /// exists.
    pub outcomes: BTreeMap<String, Option<String>>,
    /// What still exists of grants that are gone, and why.
    pub orphans: Vec<(Object, String)>,
    /// The grants with `validate` that bind a Role which does not exist here.
    pub roleless: BTreeSet<String>,
}

/// What is known of one namespace that a grant selects.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The generation of the grant that was planned.
    pub generation: Option<i64>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Whether the Role that it binds is missing, if that was asked for.
    pub roleless: bool,
}

//! Kubernetes RBAC as a pure function: may S do V on R, who may, why, does A cover B.
//!
//! Feed an [`Index`] with Roles, ClusterRoles and bindings, one object at a time, and ask:
//!
//! * [`Index::allows`]: may this user do that? The answer of the API server, in well under two microseconds.
//! * [`Index::who_can`]: who may, and through which binding, role and rule?
//! * [`Index::rules_for`] and [`Index::grants_for`]: what may this user do in that namespace?
//! * [`Index::explain`]: why is it allowed, or which rules come nearest and what do they lack?
//! * [`covers`] and [`Index::may_write`]: would writing this role or binding grant more than the writer holds?
//!
//! There is no I/O and no clock in here. "What if" is a clone with more objects applied; a clone shares the compiled
//! objects with its original.
//!
//! ```
//! use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
//! use writ_authz::{Identity, Index, ResourceAttributes};
//!
//! let role: Role = serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "reader", "namespace": "shop"},
//!     "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}],
//! }))?;
//! let binding: RoleBinding = serde_json::from_value(serde_json::json!({
//!     "metadata": {"name": "reader", "namespace": "shop"},
//!     "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
//!     "roleRef": {"kind": "Role", "apiGroup": "rbac.authorization.k8s.io", "name": "reader"},
//! }))?;
//! let mut index = Index::default();
//! index.apply(&role)?;
//! index.apply(&binding)?;
//!
//! let alice = Identity::user("alice");
//! let get = ResourceAttributes::new("get", "", "pods").in_namespace("shop").named("db-0");
//! assert!(index.allows(&alice.user, &alice.groups, &get.into()).allowed());
//! let delete = ResourceAttributes { verb: "delete", ..get };
//! assert!(!index.allows(&alice.user, &alice.groups, &delete.into()).allowed());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod attributes;
mod budget;
mod covers;
mod decide;
mod escalation;
mod explain;
mod index;
mod names;
mod object;
mod query;
mod report;
mod rule;
mod selector;
#[cfg(test)]
mod tests;

// The model and the generator of the tests are shared with `tests/real.rs`, where this crate has its own name.
#[cfg(test)]
extern crate self as writ_authz;

pub use attributes::{
    Attributes, Identity, ResourceAttributes, SUPERUSERS, service_account_user, split_service_account,
};
pub use budget::Budget;
pub use covers::{Shortfall, compact, covers, describe};
pub use decide::{Decision, Grant};
pub use escalation::{Escalation, Write};
pub use index::{Aggregation, Index};
pub use object::{InvalidObject, Key, Kind, Object};
pub use report::{Chain, Dangling, Explanation, Holder, Missing, NearMiss, ObjectName, Subject, SubjectKind};

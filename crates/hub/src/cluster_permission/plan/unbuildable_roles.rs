//! Pure: the roles that a permission makes itself, and what binds them.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::RoleRef;
use kube::ResourceExt as _;
use serde_json::Value;
use writ_api::rbac::ClusterPermission;

use super::{
    build::{Id, Item, Purpose},
    named::{hub_role_id, is_built_in},
    neighbours::{binds, made_by},
    plan::Observation,
    validate::{self, Problem, filled},
};

/// Whether the permission itself makes this role where the binding may be. What every cluster has for itself is never made,
/// and a role of the same name in another namespace is another role.
pub fn defines(seen: &Observation<'_>, role: &RoleRef, binding: &Id) -> bool {
    let (spec, own) = (&seen.permission.spec, seen.permission.name_any());
    let is = |kind: &str, namespace: Option<&str>, name: &str| {
        // Where a selector selects, on either side, they may meet.
        let meets = kind == "ClusterRole"
            || binding.namespace.is_empty()
            || namespace.is_none_or(|namespace| namespace == binding.namespace);
        let built_in = is_built_in(kind, namespace.unwrap_or_default(), name);
        kind == role.kind && name == role.name && meets && !built_in
    };
    let mut roles = spec.roles.iter();
    let mut references = spec.role_refs.iter();
    (spec.cluster_role.is_some() && is("ClusterRole", None, &own))
        || roles.any(|role| is("Role", filled(role.namespace.as_deref()), &own))
        || references.any(|reference| {
            let there = seen.hub_roles.get(&hub_role_id(reference));
            is(
                &reference.kind,
                filled(reference.namespace.as_deref()),
                &reference.name,
            ) && there.is_none_or(|role| !role.built_in)
        })
}

/// A role that the permission wants to make and cannot.
#[derive(Clone, Debug)]
pub struct Lost {
    /// Which; a Role without a namespace may be in any.
    pub role: Id,
    /// The entry that wants it.
    pub field: String,
}

impl Lost {
    /// The role that an item was to make, if it was to make one.
    pub fn of(item: &Item) -> Option<Self> {
        let role = match (item.purpose, item.id.kind.as_str()) {
            (Purpose::Deliver, "Role" | "ClusterRole") => item.id.clone(),
            (Purpose::Grant, _) => {
                let (kind, name) = made_by(&item.manifest).filter(|(kind, _)| *kind == "Role")?;
                Id {
                    kind: kind.into(),
                    namespace: String::new(),
                    name,
                }
            }
            _ => return None,
        };
        let field = item.field.clone();
        Some(Self { role, field })
    }
}

/// Takes out the bindings that name no role, and so mean one that is lost: under its name the cluster may have another.
pub fn withhold(permission: &ClusterPermission, items: &mut Vec<Item>, lost: &[Lost]) -> Vec<Problem> {
    if lost.is_empty() {
        return Vec::new();
    }
    let unnamed = unnamed(permission);
    let made: BTreeSet<Id> = items.iter().map(|item| item.id.clone()).collect();
    let mut problems = Vec::new();
    items.retain(|item| {
        let role = bound(item).filter(|role| unnamed.contains(&item.field) && !made.contains(role));
        let mut lost = lost.iter().filter(|lost| binds(item, &lost.role));
        let Some((_, lost)) = role.zip(lost.next()) else {
            return true;
        };
        let what = match made_by(&item.manifest) {
            Some((kind, name)) => format!("{kind} {name}"),
            None => item.id.to_string(),
        };
        let message = format!(
            "{what} binds {}, which {} cannot make; it is not delivered, for a role of that name would be somebody else's: mend {}, or name another role in roleRef",
            lost.role, lost.field, lost.field
        );
        problems.push(Problem::new(&item.field, message));
        false
    });
    problems
}

/// The entries that bind a role without naming it.
fn unnamed(permission: &ClusterPermission) -> BTreeSet<String> {
    let wide = validate::cluster_role_bindings(permission).filter(|(_, binding)| binding.role_ref.is_none());
    let bindings = permission.spec.role_bindings.iter().enumerate();
    let bindings = bindings.filter(|(_, binding)| filled(binding.role_ref.name.as_deref()).is_none());
    let bindings = bindings.map(|(i, _)| format!("spec.roleBindings[{i}]"));
    wide.map(|(field, _)| field).chain(bindings).collect()
}

/// The role that an item binds, where it is; behind a selector that is nowhere in particular.
fn bound(item: &Item) -> Option<Id> {
    let content = item.manifest.get("spec").unwrap_or(&item.manifest);
    let text = |part: &str| content.pointer(part).and_then(Value::as_str);
    let kind = text("/roleRef/kind")?;
    let namespace = Some(item.id.namespace.as_str()).filter(|_| kind == "Role");
    Some(Id {
        kind: kind.into(),
        namespace: namespace.unwrap_or_default().into(),
        name: text("/roleRef/name")?.into(),
    })
}

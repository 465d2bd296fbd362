//! Roles that the permission wants to make and cannot. A binding whose entry names no role means a role of this permission; if
//! that cannot be made, the binding is withheld, for a role of that name on the cluster would belong to someone else.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::RoleRef;

use crate::cluster_permission::{
    model::{Body, Content, GRANT_KIND, Item, ObjectId, Observation, Problem, UnbuildableRole, object_id},
    spec::{Entry, Says, references::is_built_in},
};

/// Whether the permission itself makes this role where the binding is. A built-in role is never made, and a role of the
/// same name in another namespace is another role.
pub fn is_own(seen: &Observation, entries: &[Entry<'_>], role: &RoleRef, binding: &ObjectId) -> bool {
    entries.iter().any(|entry| {
        // Selected namespaces, on either side, may include the other one.
        let meets = entry.kind == "ClusterRole"
            || [entry.namespace, &binding.name.namespace].contains(&"")
            || *entry.namespace == *binding.name.namespace;
        let makes = match &entry.says {
            Says::Rules(_) => true,
            Says::HubRole => seen.hub_roles.get(&entry.id()).is_none_or(|role| !role.built_in),
            Says::Binding { .. } => false,
        };
        makes
            && (entry.kind, entry.name) == (&role.kind, &role.name)
            && meets
            && !is_built_in(entry.kind, entry.namespace, entry.name)
    })
}

/// The role that an entry with problems does not make.
pub fn of_entry(entry: &Entry<'_>) -> Option<UnbuildableRole> {
    let in_any_namespace = entry.selector.is_some() || entry.namespace.is_empty();
    let namespace = match entry.says {
        Says::Rules(_) if in_any_namespace => "",
        // A namespace with such a name has no bindings either.
        Says::Rules(_) | Says::Binding { .. } => return None,
        Says::HubRole if entry.kind == "Role" => entry.namespace,
        Says::HubRole => "",
    };
    (!entry.problems.is_empty()).then(|| UnbuildableRole {
        role: entry.id_in(namespace),
        field: entry.field.clone(),
    })
}

/// The role that an item was to make, if it was to make one.
pub fn of_item(item: &Item) -> Option<UnbuildableRole> {
    let role = match &item.manifest.body {
        Body::Object(Content::Rules(_)) => item.id.clone(),
        Body::Grant(grant) if matches!(grant.content, Content::Rules(_)) => {
            object_id("Role", "", &grant.name)
        }
        Body::Object(Content::Binding(..)) | Body::Grant(_) | Body::Stub => return None,
    };
    let field = item.field.clone();
    Some(UnbuildableRole { role, field })
}

/// Whether a binding binds this role, somewhere. A namespace grant is a binding without a namespace.
pub fn binds(binding: &ObjectId, bound: &RoleRef, role: &ObjectId) -> bool {
    let there = role.name.namespace.is_empty()
        || &*binding.kind == GRANT_KIND
        || role.name.namespace == binding.name.namespace;
    there && (&*bound.kind, &*bound.name) == (&*role.kind, &*role.name.name)
}

/// The unbuildable role that a binding which means a role of this permission relies on, given the objects that are made.
pub fn relied_on<'a>(
    unbuildable: &'a [UnbuildableRole],
    binding: &ObjectId,
    bound: &RoleRef,
    is_made: impl Fn(&ObjectId) -> bool,
) -> Option<&'a UnbuildableRole> {
    let namespace = if bound.kind == "Role" {
        &*binding.name.namespace
    } else {
        ""
    };
    if is_made(&object_id(&bound.kind, namespace, &bound.name)) {
        return None;
    }
    unbuildable.iter().find(|lost| binds(binding, bound, &lost.role))
}

/// Takes out the bindings that rely on a role that cannot be made.
pub fn withhold(items: &mut Vec<Item>, unbuildable: &[UnbuildableRole]) -> Vec<Problem> {
    if unbuildable.is_empty() {
        return Vec::new();
    }
    let made: BTreeSet<ObjectId> = items.iter().map(|item| item.id.clone()).collect();
    let mut problems = Vec::new();
    items.retain(|item| {
        let Some(Content::Binding(bound, _)) = item.content().filter(|_| item.binds_own_role) else {
            return true;
        };
        let Some(UnbuildableRole { role, field }) =
            relied_on(unbuildable, &item.id, bound, |id| made.contains(id))
        else {
            return true;
        };
        let what = match item.grant() {
            Some(grant) => format!("{} {}", grant.kind(), grant.name),
            None => item.id.to_string(),
        };
        let message = format!(
            "{what} is not delivered: {field} cannot make its role {role}; fix {field}, or name an existing role in roleRef (a role of that name on the cluster would belong to someone else)"
        );
        problems.push(Problem::new(&item.field, message));
        false
    });
    problems
}

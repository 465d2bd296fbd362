//! What a manifest means to RBAC: which role or binding it makes, which role it binds, and what it says about conflicts.

use std::collections::HashSet;

use k8s_openapi::api::rbac::v1::RoleRef;
use serde::Deserialize as _;
use writ_api::writ::{BOUND_ROLE_ANNOTATION, BOUND_ROLE_OWN, ON_CONFLICT_ANNOTATION, ON_CONFLICT_REFUSE};
use writ_authz::Kind;

use crate::work::model::{PlannedManifest, RbacId, TargetObject};

/// The group of roles and bindings.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// The group of NamespaceGrants.
pub const GRANT_GROUP: &str = "writ.dev";

/// The id of the role or binding that a manifest makes, if it makes one.
pub fn rbac_id(target: &TargetObject) -> Option<RbacId> {
    let resource = &target.kind.resource;
    if resource.group != RBAC_GROUP {
        return None;
    }
    let kind = match resource.plural.as_str() {
        "roles" => Kind::Role,
        "clusterroles" => Kind::ClusterRole,
        "rolebindings" => Kind::RoleBinding,
        "clusterrolebindings" => Kind::ClusterRoleBinding,
        _ => return None,
    };
    Some((kind, target.namespace.clone(), target.name.clone()))
}

/// Whether the manifest makes roles or bindings in many namespaces.
pub fn is_namespace_grant(target: &TargetObject) -> bool {
    let resource = &target.kind.resource;
    resource.group == GRANT_GROUP && resource.plural == "namespacegrants"
}

/// Whether the manifest makes a role.
pub fn is_role(target: &TargetObject) -> bool {
    rbac_id(target).is_some_and(|id| matches!(id.0, Kind::Role | Kind::ClusterRole))
}

/// The role that a manifest binds, if it binds one and can be parsed.
pub fn bound_role(target: &TargetObject) -> Option<RbacId> {
    let (namespace, role) = match rbac_id(target) {
        Some((Kind::RoleBinding | Kind::ClusterRoleBinding, namespace, _)) => {
            (namespace, target.object.get("roleRef"))
        }
        None if is_namespace_grant(target) => (String::new(), target.object.pointer("/spec/roleRef")),
        _ => return None,
    };
    let role = RoleRef::deserialize(role?).ok()?;
    Some(referenced_role(&namespace, &role))
}

/// The role that a binding in this namespace refers to.
pub fn referenced_role(namespace: &str, role: &RoleRef) -> RbacId {
    if role.kind == "Role" {
        (Kind::Role, namespace.into(), role.name.clone())
    } else {
        (Kind::ClusterRole, String::new(), role.name.clone())
    }
}

/// Whether the manifest says that an object which no work wrote must not be overwritten.
pub fn refuses_foreign(target: &TargetObject) -> bool {
    has_annotation(target, ON_CONFLICT_ANNOTATION, ON_CONFLICT_REFUSE)
}

/// Whether the manifest says that the role which it binds is one of its own permission.
pub fn binds_own_role(target: &TargetObject) -> bool {
    has_annotation(target, BOUND_ROLE_ANNOTATION, BOUND_ROLE_OWN)
}

fn has_annotation(target: &TargetObject, annotation: &str, value: &str) -> bool {
    let annotations = target.object.pointer("/metadata/annotations");
    annotations
        .and_then(|annotations| annotations.get(annotation))
        .is_some_and(|actual| actual == value)
}

/// The roles that the manifests of a work make.
pub fn roles_made(manifests: &[PlannedManifest]) -> HashSet<RbacId> {
    let targets = manifests
        .iter()
        .filter_map(|manifest| manifest.target.as_ref().ok());
    targets
        .filter(|target| is_role(target))
        .filter_map(rbac_id)
        .collect()
}

/// The roles of other works that decide whether a manifest of this work is held back: changes of them matter to it.
pub fn awaited_roles(manifests: &[PlannedManifest]) -> HashSet<RbacId> {
    let made = roles_made(manifests);
    let targets = manifests
        .iter()
        .filter_map(|manifest| manifest.target.as_ref().ok());
    targets
        .filter(|target| binds_own_role(target))
        .filter_map(bound_role)
        .filter(|role| {
            let is_of_a_grant = matches!(role, (Kind::Role, namespace, _) if namespace.is_empty());
            !made.contains(role) && !is_of_a_grant
        })
        .collect()
}

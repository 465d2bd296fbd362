//! Writing RBAC may not grant more than the writer holds: Kubernetes' own check, made for the executor.
//!
//! What the executor holds is decided by the live objects alone. The roles of the same work count only for what a
//! binding in it would grant, never for what the executor holds: otherwise a work could grant itself anything.

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef};
use serde::de::DeserializeOwned;
use serde_json::Value;
use writ_api::writ::NamespaceGrant;
use writ_authz::{Key, Kind};

use super::{
    plan::Lookup,
    question::Question,
    rbac::{Place, role_place},
};
use crate::work::plan::{Item, Target};

const GROUP: &str = "rbac.authorization.k8s.io";

/// The place of an RBAC object, if the manifest is one.
pub fn place(target: &Target) -> Option<Place> {
    let resource = &target.kind.resource;
    if resource.group != GROUP {
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
pub fn is_namespace_grant(target: &Target) -> bool {
    let resource = &target.kind.resource;
    resource.group == "writ.dev" && resource.plural == "namespacegrants"
}

/// Whether the executor may grant what this manifest grants.
pub fn check(target: &Target, items: &[Item], lookup: &mut Lookup<'_>) -> Result<(), String> {
    if is_namespace_grant(target) {
        return namespace_grant(target, items, lookup);
    }
    let Some((kind, namespace, name)) = place(target) else {
        return Ok(());
    };
    match kind {
        Kind::Role => {
            let role: Role = parse(&target.object)?;
            writes_rules(
                lookup,
                "roles",
                &namespace,
                &name,
                &role.rules.unwrap_or_default(),
            )
        }
        Kind::ClusterRole => {
            let role: ClusterRole = parse(&target.object)?;
            let mut rules = role.rules.unwrap_or_default();
            let aggregated = role
                .aggregation_rule
                .and_then(|rule| rule.cluster_role_selectors)
                .is_some_and(|selectors| !selectors.is_empty());
            if aggregated {
                // It can become anything, so only those who hold everything may write it.
                rules.extend(everything());
            }
            writes_rules(lookup, "clusterroles", "", &name, &rules)
        }
        Kind::RoleBinding => {
            let binding: RoleBinding = parse(&target.object)?;
            binds(lookup, items, &namespace, &binding.role_ref)
        }
        Kind::ClusterRoleBinding => {
            let binding: ClusterRoleBinding = parse(&target.object)?;
            binds(lookup, items, "", &binding.role_ref)
        }
    }
}

/// A NamespaceGrant reaches namespaces that do not exist yet: what it grants must be held in all of them.
fn namespace_grant(target: &Target, items: &[Item], lookup: &mut Lookup<'_>) -> Result<(), String> {
    let grant: NamespaceGrant = parse(&target.object)?;
    if let Some(rules) = &grant.spec.rules {
        writes_rules(lookup, "roles", "", "", rules)?;
    }
    match &grant.spec.role_ref {
        // Which rules a Role of that name has differs from namespace to namespace.
        Some(role) if role.kind == "Role" => may(lookup, "bind", "roles", "", &role.name)
            .then_some(())
            .ok_or_else(|| format!("{} may not bind roles in all namespaces", lookup.user())),
        Some(role) => binds(lookup, items, "", role),
        None => Ok(()),
    }
}

fn writes_rules(
    lookup: &mut Lookup<'_>,
    resource: &str,
    namespace: &str,
    name: &str,
    rules: &[PolicyRule],
) -> Result<(), String> {
    let held = holds(lookup, namespace, rules);
    if held.is_ok() || may(lookup, "escalate", resource, namespace, name) {
        return Ok(());
    }
    held
}

fn binds(lookup: &mut Lookup<'_>, items: &[Item], namespace: &str, role: &RoleRef) -> Result<(), String> {
    let place = role_place(namespace, role);
    let resource = if place.0 == Kind::Role {
        "roles"
    } else {
        "clusterroles"
    };
    let live = lookup
        .rbac()
        .index()
        .role_rules(Key::new(place.0, &place.1, &place.2));
    let coming = role_in_work(items, &place)?;
    let held = match (live, coming) {
        (None, None) => Err(format!("{} {:?} not found", role.kind, role.name)),
        // The binding grants what the role says before this work, and what it says after.
        (live, coming) => {
            let mut rules = live.unwrap_or_default();
            rules.extend(coming.unwrap_or_default());
            holds(lookup, namespace, &rules)
        }
    };
    if held.is_ok() || may(lookup, "bind", resource, namespace, &role.name) {
        return Ok(());
    }
    held
}

/// The rules of a role that comes with the same work.
fn role_in_work(items: &[Item], wanted: &Place) -> Result<Option<Vec<PolicyRule>>, String> {
    for item in items {
        let Ok(target) = &item.target else { continue };
        if place(target).as_ref() != Some(wanted) {
            continue;
        }
        if wanted.0 == Kind::Role {
            let role: Role = parse(&target.object)?;
            return Ok(Some(role.rules.unwrap_or_default()));
        }
        let role: ClusterRole = parse(&target.object)?;
        let mut rules = role.rules.unwrap_or_default();
        if role.aggregation_rule.is_some() {
            rules.extend(everything());
        }
        return Ok(Some(rules));
    }
    Ok(None)
}

fn holds(lookup: &Lookup<'_>, namespace: &str, rules: &[PolicyRule]) -> Result<(), String> {
    lookup
        .rbac()
        .index()
        .holds(lookup.user(), lookup.groups(), namespace, rules)
        .map_err(|escalation| escalation.to_string())
}

fn may(lookup: &mut Lookup<'_>, verb: &'static str, resource: &str, namespace: &str, name: &str) -> bool {
    lookup.allowed(&Question {
        verb,
        group: GROUP.into(),
        version: "v1".into(),
        resource: resource.into(),
        namespace: namespace.into(),
        name: name.into(),
    })
}

fn everything() -> [PolicyRule; 2] {
    let star = || vec!["*".to_owned()];
    [
        PolicyRule {
            verbs: star(),
            api_groups: Some(star()),
            resources: Some(star()),
            ..PolicyRule::default()
        },
        PolicyRule {
            verbs: star(),
            non_resource_urls: Some(star()),
            ..PolicyRule::default()
        },
    ]
}

fn parse<T: DeserializeOwned>(object: &Value) -> Result<T, String> {
    serde_json::from_value(object.clone())
        .map_err(|error| format!("the manifest cannot be understood: {error}"))
}

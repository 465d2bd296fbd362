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
use crate::work::plan::Target;

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

/// Whether the manifest makes a role.
pub fn is_role(target: &Target) -> bool {
    place(target).is_some_and(|place| matches!(place.0, Kind::Role | Kind::ClusterRole))
}

/// The role that a manifest lets others hold, if it does and can be understood.
pub fn bound_role(target: &Target) -> Option<Place> {
    let (namespace, role) = match place(target) {
        Some((Kind::RoleBinding | Kind::ClusterRoleBinding, namespace, _)) => {
            (namespace, target.object.get("roleRef"))
        }
        None if is_namespace_grant(target) => (String::new(), target.object.pointer("/spec/roleRef")),
        _ => return None,
    };
    let role: RoleRef = parse(role?).ok()?;
    Some(role_place(&namespace, &role))
}

/// Whether the executor may grant what is granted once this manifest is written. The roles of the same work that will
/// be written are in `coming`.
///
/// A manifest is merged into the object that is there. What counts is what results: the manifest must say all that
/// grants something, or what the live object says instead counts.
pub fn check(target: &Target, coming: &[&Target], lookup: &mut Lookup<'_>) -> Result<(), String> {
    let grant = is_namespace_grant(target);
    let Some((kind, namespace, name)) = place(target) else {
        return if grant {
            complete(target)?;
            namespace_grant(target, coming, lookup)
        } else {
            Ok(())
        };
    };
    complete(target)?;
    match kind {
        Kind::Role => {
            let role: Role = parse(&target.object)?;
            let rules = resulting(role.rules, lookup, kind, &namespace, &name);
            writes_rules(lookup, "roles", &namespace, &name, &rules)
        }
        Kind::ClusterRole => {
            let role: ClusterRole = parse(&target.object)?;
            let aggregated = selects(&role) || lookup.rbac().is_aggregated(&name);
            let mut rules = resulting(role.rules, lookup, kind, "", &name);
            if aggregated {
                // It can become anything, so only those who hold everything may write it.
                rules.extend(everything());
            }
            writes_rules(lookup, "clusterroles", "", &name, &rules)
        }
        Kind::RoleBinding => {
            let binding: RoleBinding = parse(&target.object)?;
            binds(lookup, coming, &namespace, &binding.role_ref)
        }
        Kind::ClusterRoleBinding => {
            let binding: ClusterRoleBinding = parse(&target.object)?;
            binds(lookup, coming, "", &binding.role_ref)
        }
    }
}

/// A field that is left out of what is written keeps what the live object grants, unseen.
fn complete(target: &Target) -> Result<(), String> {
    let options = target.config.strategy.server_side_apply.as_ref();
    if options.is_some_and(|options| !options.ignore_fields.is_empty()) {
        return Err(format!(
            "serverSideApply.ignoreFields would leave parts of a {} to whoever wrote them: remove ignoreFields",
            target.kind.resource.kind
        ));
    }
    Ok(())
}

/// The rules that a role has once it is written: those of the manifest, or, if it has none, those that are there.
fn resulting(
    rules: Option<Vec<PolicyRule>>,
    lookup: &Lookup<'_>,
    kind: Kind,
    namespace: &str,
    name: &str,
) -> Vec<PolicyRule> {
    let live = || lookup.rbac().index().role_rules(Key::new(kind, namespace, name));
    rules.unwrap_or_else(|| live().unwrap_or_default())
}

/// Whether other roles are folded into this one.
pub fn selects(role: &ClusterRole) -> bool {
    let aggregation = role.aggregation_rule.as_ref();
    let selectors = aggregation.and_then(|aggregation| aggregation.cluster_role_selectors.as_ref());
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

/// A NamespaceGrant reaches namespaces that do not exist yet: what it grants must be held in all of them.
fn namespace_grant(target: &Target, coming: &[&Target], lookup: &mut Lookup<'_>) -> Result<(), String> {
    let grant: NamespaceGrant = parse(&target.object)?;
    match (&grant.spec.rules, &grant.spec.role_ref) {
        (Some(rules), None) => writes_rules(lookup, "roles", "", "", rules),
        // Which rules a Role of that name has differs from namespace to namespace.
        (None, Some(role)) if role.kind == "Role" && !role.name.is_empty() => {
            may(lookup, "bind", "roles", "", &role.name)
                .then_some(())
                .ok_or_else(|| format!("{} may not bind roles in all namespaces", lookup.user()))
        }
        (None, Some(role)) => binds(lookup, coming, "", role),
        // With neither, what a live grant says would reach where this one points.
        (None, None) | (Some(_), Some(_)) => {
            Err("it needs exactly one of spec.rules and spec.roleRef".into())
        }
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

fn binds(lookup: &mut Lookup<'_>, coming: &[&Target], namespace: &str, role: &RoleRef) -> Result<(), String> {
    if role.name.is_empty() || !matches!(role.kind.as_str(), "Role" | "ClusterRole") {
        return Err("roleRef must name a Role or a ClusterRole: set kind and name".into());
    }
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
    let coming = role_in_work(coming, &place)?;
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
fn role_in_work(coming: &[&Target], wanted: &Place) -> Result<Option<Vec<PolicyRule>>, String> {
    let mut found = None;
    for target in coming
        .iter()
        .filter(|target| place(target).as_ref() == Some(wanted))
    {
        let rules: &mut Vec<PolicyRule> = found.get_or_insert_default();
        if wanted.0 == Kind::Role {
            let role: Role = parse(&target.object)?;
            rules.extend(role.rules.unwrap_or_default());
        } else {
            let role: ClusterRole = parse(&target.object)?;
            if selects(&role) {
                rules.extend(everything());
            }
            rules.extend(role.rules.unwrap_or_default());
        }
    }
    Ok(found)
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

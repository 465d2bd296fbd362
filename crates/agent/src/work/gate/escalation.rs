//! Pure: writing RBAC may not grant more than the executor holds. Kubernetes' own check, made for the executor.
//!
//! Live objects alone decide what the executor holds. The roles of the same work count only for what a binding in it would
//! grant: otherwise a work could grant itself anything.

use std::collections::HashMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef};
use serde::de::DeserializeOwned;
use serde_json::Value;
use writ_api::writ::NamespaceGrant;
use writ_authz::{Escalation, Key, Kind};

use super::{
    lookup::{GrantedRules, Lookup},
    model::AccessQuestion,
    rbac_index::is_aggregated,
};
use crate::work::{
    model::{PlannedManifest, RbacId, TargetObject},
    plan::rbac::{RBAC_GROUP, is_namespace_grant, is_role, rbac_id, referenced_role},
};

/// OpenShift's other API of the same roles and bindings: its server writes them with the rights of the client, and that is
/// the agent.
const OPENSHIFT_GROUP: &str = "authorization.openshift.io";

const TOO_MANY: &str = "it cannot be compared, as the rules of this work are more than are compared for one work: name \
                        fewer API groups, resources, verbs and names in a rule, or split the work";

/// The rules of a role, or why they cannot be parsed.
type Rules = Result<Vec<PolicyRule>, String>;

/// The roles that a work will write: their manifests, by ordinal, and their rules.
#[derive(Default)]
pub struct RolesOfWork(HashMap<RbacId, (Vec<usize>, Rules)>);

impl RolesOfWork {
    /// The roles among these manifests.
    pub fn new<'a>(manifests: impl Iterator<Item = &'a PlannedManifest>) -> Self {
        let mut work_roles = Self::default();
        for manifest in manifests {
            let Ok(target) = &manifest.target else { continue };
            let Some(id) = rbac_id(target).filter(|_| target.is_written() && is_role(target)) else {
                continue;
            };
            let rules = rules_of(target, id.0);
            let (ordinals, all) = work_roles.0.entry(id).or_insert((Vec::new(), Ok(Vec::new())));
            ordinals.push(manifest.ordinal);
            match (all.as_mut(), rules) {
                (Ok(all), Ok(rules)) => all.extend(rules),
                (Ok(_), Err(problem)) => *all = Err(problem),
                (Err(_), _) => {}
            }
        }
        work_roles
    }
}

/// The rules in the manifest of a role.
fn rules_of(target: &TargetObject, kind: Kind) -> Rules {
    if kind == Kind::Role {
        let role: Role = parse(&target.object)?;
        return Ok(role.rules.unwrap_or_default());
    }
    let role: ClusterRole = parse(&target.object)?;
    let mut rules = Vec::new();
    if is_aggregated(&role) {
        rules.extend(everything());
    }
    rules.extend(role.rules.unwrap_or_default());
    Ok(rules)
}

/// Whether the executor holds what is granted once this manifest is written. `roles` are those of the same work that will
/// be written.
///
/// A manifest is merged into the live object, and what results counts: where the manifest omits a field that grants
/// something, the live one is judged.
pub fn check(
    manifest: &PlannedManifest,
    target: &TargetObject,
    work_roles: &RolesOfWork,
    lookup: &mut Lookup<'_>,
) -> Result<(), String> {
    if let Some(problem) = why_unjudgeable(target) {
        return Err(problem);
    }
    let Some(id) = rbac_id(target) else {
        return if is_namespace_grant(target) {
            check_is_complete(target)?;
            check_namespace_grant(manifest, target, work_roles, lookup)
        } else {
            Ok(())
        };
    };
    check_is_complete(target)?;
    let (kind, namespace, name) = &id;
    match kind {
        Kind::Role => {
            let role: Role = parse(&target.object)?;
            let granted = granted_by_role(manifest, &id, role.rules.is_some());
            check_rules(lookup, "roles", name, &granted, role.rules.as_deref())
        }
        Kind::ClusterRole => {
            let role: ClusterRole = parse(&target.object)?;
            let granted = GrantedRules {
                // An aggregated role can come to hold any rule.
                everything: is_aggregated(&role) || lookup.rbac().is_aggregated(name),
                ..granted_by_role(manifest, &id, role.rules.is_some())
            };
            check_rules(lookup, "clusterroles", name, &granted, role.rules.as_deref())
        }
        Kind::RoleBinding => {
            let binding: RoleBinding = parse(&target.object)?;
            check_bound_role(lookup, work_roles, namespace, &binding.role_ref)
        }
        Kind::ClusterRoleBinding => {
            let binding: ClusterRoleBinding = parse(&target.object)?;
            check_bound_role(lookup, work_roles, "", &binding.role_ref)
        }
    }
}

/// Why this manifest cannot be judged though it may grant something. Of OpenShift's kinds only the restriction of bindings
/// is known to grant nothing.
fn why_unjudgeable(target: &TargetObject) -> Option<String> {
    let resource = &target.kind.resource;
    let grants = resource.group == OPENSHIFT_GROUP && resource.plural != "rolebindingrestrictions";
    grants.then(|| {
        format!(
            "a {} of {OPENSHIFT_GROUP} is not delivered for an executor: write it as {RBAC_GROUP}/v1",
            resource.kind
        )
    })
}

/// What a role grants once it is written: the rules of the manifest, or those of the live role if the manifest has none.
fn granted_by_role(manifest: &PlannedManifest, id: &RbacId, has_rules: bool) -> GrantedRules {
    GrantedRules {
        namespace: id.1.clone(),
        live: (!has_rules).then(|| id.clone()),
        manifests: vec![manifest.ordinal],
        everything: false,
    }
}

/// A field that is ignored keeps what the live object grants, and that is not judged.
fn check_is_complete(target: &TargetObject) -> Result<(), String> {
    let options = target.config.strategy.server_side_apply.as_ref();
    if options.is_some_and(|options| !options.ignore_fields.is_empty()) {
        return Err(format!(
            "serverSideApply.ignoreFields would keep parts of a {} that other writers set: remove ignoreFields",
            target.kind.resource.kind
        ));
    }
    Ok(())
}

/// A NamespaceGrant reaches namespaces that do not exist yet: what it grants must be held in all of them.
fn check_namespace_grant(
    manifest: &PlannedManifest,
    target: &TargetObject,
    work_roles: &RolesOfWork,
    lookup: &mut Lookup<'_>,
) -> Result<(), String> {
    let grant: NamespaceGrant = parse(&target.object)?;
    match (grant.spec.rules, &grant.spec.role_ref) {
        (Some(rules), None) => {
            let granted = GrantedRules {
                namespace: String::new(),
                live: None,
                manifests: vec![manifest.ordinal],
                everything: false,
            };
            check_rules(lookup, "roles", "", &granted, Some(&rules))
        }
        // A Role of that name has different rules in each namespace.
        (None, Some(role)) if role.kind == "Role" && !role.name.is_empty() => {
            is_rbac_verb_allowed(lookup, "bind", "roles", "", &role.name)
                .then_some(())
                .ok_or_else(|| format!("{} may not bind roles in all namespaces", lookup.user))
        }
        (None, Some(role)) => check_bound_role(lookup, work_roles, "", role),
        // With neither, the rules of a live grant would reach the namespaces that this one selects.
        (None, None) | (Some(_), Some(_)) => {
            Err("it needs exactly one of spec.rules and spec.roleRef".into())
        }
    }
}

fn check_rules(
    lookup: &mut Lookup<'_>,
    resource: &str,
    name: &str,
    granted: &GrantedRules,
    rules: Option<&[PolicyRule]>,
) -> Result<(), String> {
    let held = check_held(lookup, granted, rules.unwrap_or_default());
    if held.is_ok() || is_rbac_verb_allowed(lookup, "escalate", resource, &granted.namespace, name) {
        return Ok(());
    }
    held
}

fn check_bound_role(
    lookup: &mut Lookup<'_>,
    work_roles: &RolesOfWork,
    namespace: &str,
    role: &RoleRef,
) -> Result<(), String> {
    if role.name.is_empty() || !matches!(role.kind.as_str(), "Role" | "ClusterRole") {
        return Err("roleRef must name a Role or a ClusterRole: set kind and name".into());
    }
    let id = referenced_role(namespace, role);
    let resource = if id.0 == Kind::Role {
        "roles"
    } else {
        "clusterroles"
    };
    let exists = lookup.rbac().has_role(&id);
    let held = match work_roles.0.get(&id) {
        None if !exists => Err(format!("{} {:?} not found", role.kind, role.name)),
        Some((_, Err(problem))) => return Err(problem.clone()),
        // The binding grants the rules that the role has before this work, and those that it has after it.
        of_work => {
            let (manifests, rules) = match of_work {
                Some((manifests, Ok(rules))) => (manifests.clone(), rules.as_slice()),
                _ => Default::default(),
            };
            let granted = GrantedRules {
                namespace: namespace.into(),
                live: exists.then(|| id.clone()),
                manifests,
                everything: false,
            };
            check_held(lookup, &granted, rules)
        }
    };
    if held.is_ok() || is_rbac_verb_allowed(lookup, "bind", resource, namespace, &role.name) {
        return Ok(());
    }
    held
}

/// Whether the executor holds what is granted: these rules of the work, and those of the live role.
fn check_held(lookup: &mut Lookup<'_>, granted: &GrantedRules, rules: &[PolicyRule]) -> Result<(), String> {
    if let Some(held) = lookup.comparisons.held.get(granted) {
        return held.clone();
    }
    let index = lookup.rbac().index();
    let live = granted.live.as_ref();
    let mut all = live
        .and_then(|id| index.role_rules(Key::new(id.0, &id.1, &id.2)))
        .unwrap_or_default();
    all.extend_from_slice(rules);
    if granted.everything {
        all.extend(everything());
    }
    let (user, groups) = (lookup.user.as_str(), lookup.groups.as_slice());
    let budget = &mut lookup.comparisons.budget;
    let held = index
        .holds_within(user, groups, &granted.namespace, &all, budget)
        .map_err(|escalation| match escalation {
            Escalation::TooMany { .. } => TOO_MANY.to_owned(),
            other => other.to_string(),
        });
    lookup.comparisons.held.insert(granted.clone(), held.clone());
    held
}

fn is_rbac_verb_allowed(
    lookup: &mut Lookup<'_>,
    verb: &'static str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> bool {
    lookup.is_allowed(&AccessQuestion {
        verb,
        group: RBAC_GROUP.into(),
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
    T::deserialize(object).map_err(|error| format!("the manifest cannot be parsed: {error}"))
}

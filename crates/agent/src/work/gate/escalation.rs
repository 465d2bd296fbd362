//! Writing RBAC may not grant more than the writer holds: Kubernetes' own check, made for the executor.
//!
//! What the executor holds is decided by the live objects alone. The roles of the same work count only for what a
//! binding in it would grant, never for what the executor holds: otherwise a work could grant itself anything.

use std::collections::HashMap;

use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef};
use serde::de::DeserializeOwned;
use serde_json::Value;
use writ_api::writ::NamespaceGrant;
use writ_authz::{Budget, Escalation, Key, Kind};

use super::{
    plan::Lookup,
    question::Question,
    rbac::{Place, role_place},
};
use crate::work::plan::{Item, Target};

const GROUP: &str = "rbac.authorization.k8s.io";

/// OpenShift's other door to the same roles and bindings: its server writes them with the rights of whoever sends them,
/// and that is the agent.
const OPENSHIFT_GROUP: &str = "authorization.openshift.io";

const TOO_MANY: &str = "it cannot be told, as the rules of this work are more than are compared for one work: name \
                        fewer API groups, resources, verbs and names in a rule, or split the work";

/// What was found out about one work by one state of RBAC: what is asked about is compared once, and all comparisons
/// for the work come out of one budget.
#[derive(Default)]
pub struct Compared {
    budget: Budget,
    held: HashMap<Granted, Result<(), String>>,
}

impl Compared {
    /// Whether the executor holds something of what is granted.
    pub fn allows(&self) -> bool {
        self.held.values().any(Result::is_ok)
    }

    /// Nothing yet, with another budget than the usual one.
    #[cfg(test)]
    pub fn within(budget: Budget) -> Self {
        Self {
            budget,
            held: HashMap::new(),
        }
    }
}

/// What somebody would be granted, and where.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Granted {
    /// The namespace; empty for all.
    namespace: String,
    /// The rules of this role that is there.
    live: Option<Place>,
    /// The rules that these manifests of the work have, by ordinal.
    manifests: Vec<usize>,
    /// Anything at all, beyond that.
    everything: bool,
}

/// The rules of a role, or why they cannot be understood.
type Rules = Result<Vec<PolicyRule>, String>;

/// The roles that a work will write, by their place: the manifests, and their rules.
#[derive(Default)]
pub struct Coming(HashMap<Place, (Vec<usize>, Rules)>);

impl Coming {
    /// The roles among these manifests.
    pub fn new<'a>(items: impl Iterator<Item = &'a Item>) -> Self {
        let mut coming = Self::default();
        for item in items {
            let Ok(target) = &item.target else { continue };
            let Some(place) = place(target).filter(|_| target.written() && is_role(target)) else {
                continue;
            };
            let rules = rules_of(target, place.0);
            let (ordinals, all) = coming.0.entry(place).or_insert((Vec::new(), Ok(Vec::new())));
            ordinals.push(item.ordinal);
            match (all.as_mut(), rules) {
                (Ok(all), Ok(rules)) => all.extend(rules),
                (Ok(_), Err(problem)) => *all = Err(problem),
                (Err(_), _) => {}
            }
        }
        coming
    }
}

/// The rules that the manifest of a role asks for.
fn rules_of(target: &Target, kind: Kind) -> Rules {
    if kind == Kind::Role {
        let role: Role = parse(&target.object)?;
        return Ok(role.rules.unwrap_or_default());
    }
    let role: ClusterRole = parse(&target.object)?;
    let mut rules = Vec::new();
    if selects(&role) {
        rules.extend(everything());
    }
    rules.extend(role.rules.unwrap_or_default());
    Ok(rules)
}

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
pub fn check(item: &Item, target: &Target, coming: &Coming, lookup: &mut Lookup<'_>) -> Result<(), String> {
    if let Some(problem) = side_door(target) {
        return Err(problem);
    }
    let Some(place) = place(target) else {
        return if is_namespace_grant(target) {
            complete(target)?;
            namespace_grant(item, target, coming, lookup)
        } else {
            Ok(())
        };
    };
    complete(target)?;
    let (kind, namespace, name) = &place;
    match kind {
        Kind::Role => {
            let role: Role = parse(&target.object)?;
            let granted = Granted::by_role(item, &place, role.rules.is_some());
            writes_rules(lookup, "roles", name, &granted, role.rules.as_deref())
        }
        Kind::ClusterRole => {
            let role: ClusterRole = parse(&target.object)?;
            let granted = Granted {
                // It can become anything, so only those who hold everything may write it.
                everything: selects(&role) || lookup.rbac().is_aggregated(name),
                ..Granted::by_role(item, &place, role.rules.is_some())
            };
            writes_rules(lookup, "clusterroles", name, &granted, role.rules.as_deref())
        }
        Kind::RoleBinding => {
            let binding: RoleBinding = parse(&target.object)?;
            binds(lookup, coming, namespace, &binding.role_ref)
        }
        Kind::ClusterRoleBinding => {
            let binding: ClusterRoleBinding = parse(&target.object)?;
            binds(lookup, coming, "", &binding.role_ref)
        }
    }
}

/// Why this manifest cannot be judged, though it can grant something. Of OpenShift's kinds only the restriction of
/// bindings is known to grant nothing.
fn side_door(target: &Target) -> Option<String> {
    let resource = &target.kind.resource;
    let grants = resource.group == OPENSHIFT_GROUP && resource.plural != "rolebindingrestrictions";
    grants.then(|| {
        format!(
            "a {} of {OPENSHIFT_GROUP} is not delivered for an executor: write it as {GROUP}/v1",
            resource.kind
        )
    })
}

impl Granted {
    /// What a role grants once it is written: the rules of the manifest, or, if it has none, those that are there.
    fn by_role(item: &Item, place: &Place, has_rules: bool) -> Self {
        Self {
            namespace: place.1.clone(),
            live: (!has_rules).then(|| place.clone()),
            manifests: vec![item.ordinal],
            everything: false,
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

/// Whether other roles are folded into this one.
pub fn selects(role: &ClusterRole) -> bool {
    let aggregation = role.aggregation_rule.as_ref();
    let selectors = aggregation.and_then(|aggregation| aggregation.cluster_role_selectors.as_ref());
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

/// A NamespaceGrant reaches namespaces that do not exist yet: what it grants must be held in all of them.
fn namespace_grant(
    item: &Item,
    target: &Target,
    coming: &Coming,
    lookup: &mut Lookup<'_>,
) -> Result<(), String> {
    let grant: NamespaceGrant = parse(&target.object)?;
    match (grant.spec.rules, &grant.spec.role_ref) {
        (Some(rules), None) => {
            let granted = Granted {
                namespace: String::new(),
                live: None,
                manifests: vec![item.ordinal],
                everything: false,
            };
            writes_rules(lookup, "roles", "", &granted, Some(&rules))
        }
        // Which rules a Role of that name has differs from namespace to namespace.
        (None, Some(role)) if role.kind == "Role" && !role.name.is_empty() => {
            may(lookup, "bind", "roles", "", &role.name)
                .then_some(())
                .ok_or_else(|| format!("{} may not bind roles in all namespaces", lookup.user))
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
    name: &str,
    granted: &Granted,
    rules: Option<&[PolicyRule]>,
) -> Result<(), String> {
    let held = holds(lookup, granted, rules.unwrap_or_default());
    if held.is_ok() || may(lookup, "escalate", resource, &granted.namespace, name) {
        return Ok(());
    }
    held
}

fn binds(lookup: &mut Lookup<'_>, coming: &Coming, namespace: &str, role: &RoleRef) -> Result<(), String> {
    if role.name.is_empty() || !matches!(role.kind.as_str(), "Role" | "ClusterRole") {
        return Err("roleRef must name a Role or a ClusterRole: set kind and name".into());
    }
    let place = role_place(namespace, role);
    let resource = if place.0 == Kind::Role {
        "roles"
    } else {
        "clusterroles"
    };
    let is_there = lookup.rbac().has_role(&place);
    let held = match coming.0.get(&place) {
        None if !is_there => Err(format!("{} {:?} not found", role.kind, role.name)),
        Some((_, Err(problem))) => return Err(problem.clone()),
        // The binding grants what the role says before this work, and what it says after.
        coming => {
            let (manifests, rules) = match coming {
                Some((manifests, Ok(rules))) => (manifests.clone(), rules.as_slice()),
                _ => Default::default(),
            };
            let granted = Granted {
                namespace: namespace.into(),
                live: is_there.then(|| place.clone()),
                manifests,
                everything: false,
            };
            holds(lookup, &granted, rules)
        }
    };
    if held.is_ok() || may(lookup, "bind", resource, namespace, &role.name) {
        return Ok(());
    }
    held
}

/// Whether the executor holds what is granted: these rules of the work, and those of the role that is there.
fn holds(lookup: &mut Lookup<'_>, granted: &Granted, rules: &[PolicyRule]) -> Result<(), String> {
    if let Some(held) = lookup.compared.held.get(granted) {
        return held.clone();
    }
    let index = lookup.rbac().index();
    let live = granted.live.as_ref();
    let mut all = live
        .and_then(|place| index.role_rules(Key::new(place.0, &place.1, &place.2)))
        .unwrap_or_default();
    all.extend_from_slice(rules);
    if granted.everything {
        all.extend(everything());
    }
    let (user, groups) = (lookup.user.as_str(), lookup.groups.as_slice());
    let budget = &mut lookup.compared.budget;
    let held = index
        .holds_within(user, groups, &granted.namespace, &all, budget)
        .map_err(|escalation| match escalation {
            Escalation::TooMany { .. } => TOO_MANY.to_owned(),
            other => other.to_string(),
        });
    lookup.compared.held.insert(granted.clone(), held.clone());
    held
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
    T::deserialize(object).map_err(|error| format!("the manifest cannot be understood: {error}"))
}

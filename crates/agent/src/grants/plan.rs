//! Pure: what one namespace shall hold, and what a grant reports.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
    jiff::Timestamp,
};
use kube::{
    Resource, ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use writ_api::writ::{
    GRANTED_LABEL, NamespaceGrant,
    namespace_grant::{GrantedNamespace, NamespaceGrantSpec, NamespaceGrantStatus},
};
use writ_runtime::condition::{self, Wanted, clip};

/// The API group of roles.
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// How many namespaces a status lists.
pub const MAX_NAMESPACES: usize = 1000;
/// How many bytes of text the hub reads of a status.
const MAX_SUMMARY: usize = 900;

/// What a grant makes.
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

/// What a Role or RoleBinding holds.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// Of a Role.
    Rules(Vec<PolicyRule>),
    /// Of a RoleBinding.
    Binding(RoleRef, Vec<Subject>),
}

impl Content {
    /// What this spec makes, with the defaults that the API server would fill in.
    pub fn of(spec: &NamespaceGrantSpec) -> Option<Self> {
        if let Some(rules) = &spec.rules {
            return Some(Self::Rules(rules.clone()));
        }
        let mut role = spec.role_ref.clone()?;
        role.api_group = Some(RBAC_GROUP.into());
        let subjects = spec.subjects.iter().cloned().map(|mut subject| {
            subject.api_group = subject.api_group.filter(|group| !group.is_empty());
            if subject.kind != "ServiceAccount" && subject.api_group.is_none() {
                subject.api_group = Some(RBAC_GROUP.into());
            }
            subject.namespace = subject.namespace.filter(|namespace| !namespace.is_empty());
            subject
        });
        Some(Self::Binding(role, subjects.collect()))
    }

    /// Which kind holds it.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Rules(_) => Kind::Role,
            Self::Binding(..) => Kind::RoleBinding,
        }
    }
}

/// An object in the namespace, as the watch shows it.
#[derive(Clone, Debug)]
pub enum Live {
    /// No grant made it.
    Foreign,
    /// A grant made it.
    Role(Box<Role>),
    /// A grant made it.
    RoleBinding(Box<RoleBinding>),
}

/// A grant that is in force, with its selector ready to use.
#[derive(Clone, Debug)]
pub struct Active {
    /// The grant.
    pub grant: NamespaceGrant,
    /// Its selector; `None` if it cannot be evaluated, which selects nothing.
    pub selector: Option<Selector>,
    /// What it makes; `None` if it makes nothing.
    pub content: Option<Content>,
}

impl Active {
    /// A grant as it was read.
    pub fn new(grant: NamespaceGrant) -> Self {
        let selector = selector(&grant.spec);
        let content = Content::of(&grant.spec);
        Self {
            grant,
            selector,
            content,
        }
    }

    /// Whether it is in force in a namespace with these labels.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        self.grant.metadata.deletion_timestamp.is_none()
            && self.content.is_some()
            && self
                .selector
                .as_ref()
                .is_some_and(|selector| selector.matches(labels))
    }
}

/// A selector that can be evaluated. One with an unknown operator or without values selects nothing.
fn selector(spec: &NamespaceGrantSpec) -> Option<Selector> {
    let requirements = spec.namespace_selector.match_expressions.iter().flatten();
    let complete = requirements.clone().all(|r| {
        !matches!(r.operator.as_str(), "In" | "NotIn") || r.values.as_ref().is_some_and(|v| !v.is_empty())
    });
    Selector::try_from(spec.namespace_selector.clone())
        .ok()
        .filter(|_| complete)
}

/// Whether a grant made this object: the owner says so, or the label where somebody took the owner away.
pub fn is_granted(meta: &ObjectMeta) -> bool {
    is_owned(meta) || granted_label(meta) == Some("true")
}

fn is_owned(meta: &ObjectMeta) -> bool {
    let owners = meta.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(is_grant)
}

fn granted_label(meta: &ObjectMeta) -> Option<&str> {
    let labels = meta.labels.as_ref()?;
    labels.get(GRANTED_LABEL).map(String::as_str)
}

fn is_grant(owner: &OwnerReference) -> bool {
    owner.kind == "NamespaceGrant" && owner.api_version.starts_with("writ.dev/")
}

/// One step in a namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make it.
    Create(Object),
    /// Change what differs. `replace`: the role of a binding cannot be changed, so it is made again at once.
    Change {
        /// As it shall be.
        to: Object,
        /// Whether it has to be deleted first.
        replace: bool,
    },
    /// Remove it.
    Delete {
        /// Its kind.
        kind: Kind,
        /// Its name.
        name: String,
        /// Its uid, so that nothing else is removed.
        uid: Option<String>,
    },
}

/// A Role or RoleBinding as it shall be.
#[derive(Clone, Debug, PartialEq)]
pub enum Object {
    /// A Role.
    Role(Box<Role>),
    /// A RoleBinding.
    RoleBinding(Box<RoleBinding>),
}

/// What one namespace shall become.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespacePlan {
    /// The steps: what grants first, what revokes last. Each with the grants that it serves.
    pub steps: Vec<(Step, Vec<String>)>,
    /// For each grant in force here: nothing, or why it cannot have its object.
    pub outcomes: BTreeMap<String, Option<String>>,
    /// The grants that ask for it and bind a Role which is not here.
    pub roleless: BTreeSet<String>,
}

/// Plans one namespace. `labels` are `None` when it is gone or going.
pub fn namespace(
    name: &str,
    labels: Option<&BTreeMap<String, String>>,
    grants: &[&Active],
    live: &BTreeMap<(Kind, String), Live>,
) -> NamespacePlan {
    let mut plan = NamespacePlan::default();
    let mut wanted: BTreeMap<(Kind, String), Vec<&Active>> = BTreeMap::new();
    let Some(labels) = labels else { return plan };
    for active in grants.iter().filter(|active| active.selects(labels)) {
        if let Some(content) = &active.content {
            let key = (content.kind(), active.grant.spec.name.clone());
            wanted.entry(key).or_default().push(active);
            let role = match content {
                Content::Binding(role, _) if role.kind == "Role" => Some((Kind::Role, role.name.clone())),
                _ => None,
            };
            if active.grant.spec.validate == Some(true) && role.is_some_and(|role| !live.contains_key(&role))
            {
                plan.roleless.insert(active.grant.name_any());
            }
        }
    }
    let mut kept = BTreeSet::new();
    for (key, mut claimants) in wanted {
        claimants.sort_by_key(|a| (a.grant.creation_timestamp().map(|t| t.0), a.grant.name_any()));
        let Some(first) = claimants.first() else { continue };
        let (agreeing, others): (Vec<&Active>, Vec<&Active>) =
            claimants.iter().partition(|a| a.content == first.content);
        for other in others {
            let why = format!(
                "NamespaceGrant {} makes the {} {} with another content",
                first.grant.name_any(),
                key.0,
                key.1
            );
            plan.outcomes.insert(other.grant.name_any(), Some(why));
        }
        let names: Vec<String> = agreeing.iter().map(|a| a.grant.name_any()).collect();
        let adopt = agreeing.iter().any(|a| a.grant.spec.adopt == Some(true));
        let current = live.get(&key);
        if matches!(current, Some(Live::Foreign)) && !adopt {
            let why = format!(
                "the {} {} exists and no NamespaceGrant made it, so it is left alone: remove it, or set the annotation writ.dev/adopt=true on the ClusterPermission",
                key.0, key.1
            );
            plan.outcomes
                .extend(names.into_iter().map(|n| (n, Some(why.clone()))));
            kept.insert(key);
            continue;
        }
        let Some(object) = object(name, &key.1, &agreeing) else {
            continue;
        };
        plan.steps
            .extend(step(object, current).map(|step| (step, names.clone())));
        plan.outcomes.extend(names.into_iter().map(|n| (n, None)));
        kept.insert(key);
    }
    for (key, object) in live.iter().filter(|(key, _)| !kept.contains(*key)) {
        let meta = match object {
            Live::Foreign => continue,
            Live::Role(role) => &role.metadata,
            Live::RoleBinding(binding) => &binding.metadata,
        };
        // A label alone may have been copied by somebody.
        if meta.deletion_timestamp.is_none() && is_owned(meta) {
            let step = Step::Delete {
                kind: key.0,
                name: key.1.clone(),
                uid: meta.uid.clone(),
            };
            plan.steps.push((step, Vec::new()));
        }
    }
    plan
}

fn object(namespace: &str, name: &str, grants: &[&Active]) -> Option<Object> {
    let owners = grants.iter().filter_map(|active| active.grant.owner_ref(&()));
    let metadata = ObjectMeta {
        name: Some(name.into()),
        namespace: Some(namespace.into()),
        labels: Some(BTreeMap::from([(GRANTED_LABEL.into(), "true".into())])),
        owner_references: Some(owners.collect()),
        ..ObjectMeta::default()
    };
    Some(match grants.first()?.content.clone()? {
        Content::Rules(rules) => Object::Role(Box::new(Role {
            metadata,
            rules: Some(rules),
        })),
        Content::Binding(role_ref, subjects) => Object::RoleBinding(Box::new(RoleBinding {
            metadata,
            role_ref,
            subjects: Some(subjects),
        })),
    })
}

/// What it takes to get from the object that is there to the one that is wanted.
fn step(object: Object, live: Option<&Live>) -> Option<Step> {
    match (live, &object) {
        (None, _) => Some(Step::Create(object)),
        // The role of somebody else's binding is not known here; making it again is always right.
        (Some(Live::Foreign), Object::RoleBinding(_)) => Some(Step::Change {
            to: object,
            replace: true,
        }),
        (Some(Live::Foreign), Object::Role(_)) => Some(Step::Change {
            to: object,
            replace: false,
        }),
        (Some(Live::Role(have)), Object::Role(want)) => {
            let same = same_meta(&have.metadata, &want.metadata)
                && have.rules.as_deref().unwrap_or_default() == want.rules.as_deref().unwrap_or_default();
            (!same).then_some(Step::Change {
                to: object,
                replace: false,
            })
        }
        (Some(Live::RoleBinding(have)), Object::RoleBinding(want)) => {
            let replace = have.role_ref != want.role_ref;
            let same = same_meta(&have.metadata, &want.metadata)
                && have.subjects.as_deref().unwrap_or_default()
                    == want.subjects.as_deref().unwrap_or_default();
            (replace || !same).then_some(Step::Change { to: object, replace })
        }
        // Kinds are part of the key, so they never differ.
        _ => None,
    }
}

fn same_meta(have: &ObjectMeta, want: &ObjectMeta) -> bool {
    let owners = |meta: &ObjectMeta| -> BTreeSet<Option<String>> {
        let owners = meta.owner_references.iter().flatten().filter(|o| is_grant(o));
        owners.map(|o| Some(o.uid.clone())).collect()
    };
    granted_label(have) == granted_label(want) && owners(have) == owners(want)
}

/// What is known of one namespace that a grant selects.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The generation of the grant that was acted on.
    pub generation: Option<i64>,
    /// Why it failed, if it did.
    pub failure: Option<String>,
    /// Whether the Role that it binds is not there, if that was asked for.
    pub roleless: bool,
}

/// The status of a grant, or `None` while a namespace that it selects has not been worked on.
pub fn status(
    active: &Active,
    selected: &BTreeSet<String>,
    outcomes: &BTreeMap<String, Outcome>,
    now: Timestamp,
) -> Option<NamespaceGrantStatus> {
    let generation = active.grant.metadata.generation;
    let mut namespaces = Vec::with_capacity(selected.len());
    for name in selected {
        let outcome = outcomes.get(name).filter(|o| o.generation >= generation)?;
        namespaces.push(GrantedNamespace {
            name: name.clone(),
            ready: outcome.failure.is_none(),
            message: outcome.failure.as_deref().map(|why| clip(why, 300)),
        });
    }
    namespaces.sort_by_key(|n| n.ready);
    let roles_missing = active.grant.spec.validate.filter(|asked| *asked).map(|_| {
        let without = selected
            .iter()
            .filter(|name| outcomes.get(*name).is_some_and(|o| o.roleless));
        let role = active.grant.spec.role_ref.as_ref().map(|r| r.name.as_str());
        let names: Vec<String> = without
            .map(|name| format!("{name}/{}", role.unwrap_or_default()))
            .collect();
        clip(&names.join(", "), MAX_SUMMARY)
    });
    let count = |n: usize| i64::try_from(n).ok();
    let total = namespaces.len();
    let failed = namespaces.iter().filter(|n| !n.ready).count();
    let summary = summary(&namespaces, failed);
    let (holds, reason, message) = if active.selector.is_none() || active.content.is_none() {
        (
            false,
            "Invalid",
            "the selector or the role cannot be understood".to_owned(),
        )
    } else if failed > 0 {
        (false, "NamespacesFailing", summary.clone().unwrap_or_default())
    } else {
        (true, "Granted", format!("in {total} namespaces"))
    };
    let mut conditions = active
        .grant
        .status
        .as_ref()
        .map(|s| s.conditions.clone())
        .unwrap_or_default();
    condition::set(
        &mut conditions,
        &Wanted::new("Ready", holds, reason, message),
        generation,
        now,
    );
    let omitted = total.saturating_sub(MAX_NAMESPACES);
    namespaces.truncate(MAX_NAMESPACES);
    Some(NamespaceGrantStatus {
        observed_generation: generation,
        selected: count(total),
        ready: count(total - failed),
        failed: count(failed),
        summary,
        roles_missing,
        namespaces,
        omitted: count(omitted).filter(|n| *n > 0),
        conditions,
    })
}

/// The first failing namespaces in words.
fn summary(namespaces: &[GrantedNamespace], failed: usize) -> Option<String> {
    let first = namespaces.iter().find(|n| !n.ready)?;
    let mut text = String::new();
    for (i, namespace) in namespaces.iter().take(failed).enumerate() {
        let message = namespace.message.as_deref().unwrap_or_default();
        let part = format!("{}{}: {message}", if i > 0 { "; " } else { "" }, namespace.name);
        if text.len() + part.len() > MAX_SUMMARY - 40 {
            text = format!("{text}; {} of {} namespaces fail", failed, namespaces.len());
            break;
        }
        text.push_str(&part);
    }
    if text.is_empty() {
        text.clone_from(&first.name);
    }
    Some(clip(&text, MAX_SUMMARY))
}

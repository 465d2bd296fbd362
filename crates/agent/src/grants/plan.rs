//! Pure: what one namespace shall hold.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{
    Resource, ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use writ_api::writ::{
    BOUND_ROLE_ANNOTATION, BOUND_ROLE_OWN, GRANTED_LABEL, NamespaceGrant, namespace_grant::NamespaceGrantSpec,
};

use super::{
    object::Object,
    ownership::{Live, delivers, work_names},
};
use crate::work::is_grant;

/// The API group of roles.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// The field manager of what grants make. The server keeps count of what is whose: what a work delivers as well stays when
/// either lets go, and whoever takes owner and label off an object does not become the one who wrote it.
pub const WRITER: &str = "writ-agent-grants";

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
            return Some(Self::Rules(
                rules.iter().cloned().map(without_empty_lists).collect(),
            ));
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

/// As the API server gives a rule back: a list of nothing is no list.
fn without_empty_lists(rule: PolicyRule) -> PolicyRule {
    let filled = |list: Option<Vec<String>>| list.filter(|list| !list.is_empty());
    PolicyRule {
        api_groups: filled(rule.api_groups),
        non_resource_urls: filled(rule.non_resource_urls),
        resource_names: filled(rule.resource_names),
        resources: filled(rule.resources),
        verbs: rule.verbs,
    }
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
        let content = Content::of(&grant.spec).filter(|_| !is_built_in(&grant.spec.name));
        Self {
            grant,
            selector,
            content,
        }
    }

    /// Why it makes nothing anywhere, if so.
    pub fn invalid(&self) -> Option<&'static str> {
        if is_built_in(&self.grant.spec.name) {
            Some("a name that starts with system: is one that Kubernetes brings: choose another name")
        } else if self.selector.is_none() || self.content.is_none() {
            Some("the selector or the role cannot be understood")
        } else {
            None
        }
    }

    /// The work of its permission: grants are named after it.
    fn work(&self) -> &str {
        let name = self.grant.metadata.name.as_deref().unwrap_or_default();
        name.rsplit_once('-').map_or(name, |(work, _)| work)
    }

    /// The Role that it binds, if it binds one.
    fn bound_role(&self) -> Option<&str> {
        match self.content.as_ref()? {
            Content::Binding(role, _) if role.kind == "Role" => Some(&role.name),
            _ => None,
        }
    }

    /// Whether it binds a Role of its own permission, and that is somebody else's here.
    fn binds_a_stranger(&self, live: &BTreeMap<(Kind, String), Live>) -> bool {
        let own = self.grant.annotations().get(BOUND_ROLE_ANNOTATION);
        let role = self
            .bound_role()
            .filter(|_| own.is_some_and(|own| own == BOUND_ROLE_OWN));
        role.is_some_and(|role| matches!(live.get(&(Kind::Role, role.to_owned())), Some(Live::Foreign)))
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

/// Names of roles and bindings that every cluster has for itself.
fn is_built_in(name: &str) -> bool {
    name.starts_with("system:")
}

fn is_owned(meta: &ObjectMeta) -> bool {
    meta.owner_references.iter().flatten().any(is_grant)
}

/// What the label says that marks what grants make.
pub(super) fn granted_label(meta: &ObjectMeta) -> Option<&str> {
    let labels = meta.labels.as_ref()?;
    labels.get(GRANTED_LABEL).map(String::as_str)
}

/// One step in a namespace.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Make it.
    Create(Object),
    /// Change what differs.
    Change(Object),
    /// Delete a binding and make it again at once: its role cannot be changed.
    Replace {
        /// As it shall be.
        to: Box<RoleBinding>,
        /// As it was seen; nothing if it is somebody's, whose content is not known here.
        was: Option<Box<RoleBinding>>,
    },
    /// Leave what was shared to the work.
    Release(Object),
    /// Make it grant nothing: somebody's finalizer keeps it from going, and until it goes it would grant what it did.
    Empty(Object),
    /// Remove it, as it was seen.
    Delete(Object),
}

impl Step {
    /// What it is about.
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

/// What one namespace shall become.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NamespacePlan {
    /// The steps: what grants first, what revokes last. Each with the grants that it serves.
    pub steps: Vec<(Step, Vec<String>)>,
    /// For each grant in force here: nothing, or why it cannot have its object. For others: why what they made is still
    /// here.
    pub outcomes: BTreeMap<String, Option<String>>,
    /// What is still here of grants that are gone, and why.
    pub left: Vec<(Object, String)>,
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
            let role = active.bound_role().map(|role| (Kind::Role, role.to_owned()));
            if active.grant.spec.validate == Some(true) && role.is_some_and(|role| !live.contains_key(&role))
            {
                plan.roleless.insert(active.grant.name_any());
            }
        }
    }
    let mut kept = BTreeSet::new();
    // The Roles that a permission defines and cannot have here: what binds them would grant what somebody else wrote.
    let mut lost: BTreeSet<(&str, String)> = BTreeSet::new();
    // Roles come before what binds them.
    for (key, claimants) in wanted {
        let (held, mut claimants): (Vec<&Active>, Vec<&Active>) = claimants.into_iter().partition(|a| {
            a.binds_a_stranger(live)
                || a.bound_role()
                    .is_some_and(|role| lost.contains(&(a.work(), role.to_owned())))
        });
        for active in held {
            let why = format!(
                "held back: the Role {} that it binds is not the one that the permission defines",
                active.bound_role().unwrap_or_default()
            );
            plan.outcomes.insert(active.grant.name_any(), Some(why));
        }
        claimants.sort_by_key(|a| (a.grant.creation_timestamp().map(|t| t.0), a.grant.name_any()));
        let Some(first) = claimants.first() else { continue };
        let (agreeing, others): (Vec<&Active>, Vec<&Active>) =
            claimants.iter().partition(|a| a.content == first.content);
        for other in others {
            let why = format!(
                "NamespaceGrant {} makes the {} {} here with another content, and was first: give one of the entries another name, or leave this namespace out of the selector",
                first.grant.name_any(),
                key.0,
                key.1
            );
            plan.outcomes.insert(other.grant.name_any(), Some(why));
            lost.insert((other.work(), key.1.clone()));
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
            lost.extend(agreeing.iter().map(|a| (a.work(), key.1.clone())));
            kept.insert(key);
            continue;
        }
        let Some(object) = object(name, &key.1, &agreeing) else {
            continue;
        };
        kept.insert(key.clone());
        if let Some(Live::Delivered { object: have, .. }) = current
            && !have.same_content(&object)
        {
            let why = overlap(have, &key);
            plan.outcomes
                .extend(names.into_iter().map(|n| (n, Some(why.clone()))));
            // What the permission itself delivers by name is its own.
            let others = agreeing.iter().filter(|a| !delivers(a.work(), have));
            lost.extend(others.map(|a| (a.work(), key.1.clone())));
            plan.steps.extend(release(have));
            continue;
        }
        plan.steps
            .extend(step(object, current).map(|step| (step, names.clone())));
        plan.outcomes.extend(names.into_iter().map(|n| (n, None)));
    }
    for (_, object) in live.iter().filter(|(key, _)| !kept.contains(*key)) {
        match object {
            Live::Foreign => {}
            Live::Delivered { object, .. } => plan.steps.extend(release(object)),
            Live::Granted(object) => plan.revoke(object, grants),
        }
    }
    plan
}

impl NamespacePlan {
    /// Takes away what nobody wants any more. Where it stays, whoever made it says so.
    fn revoke(&mut self, object: &Object, grants: &[&Active]) {
        let meta = object.meta();
        let makers = grants.iter().filter(|active| {
            let uid = active.grant.metadata.uid.as_deref().unwrap_or_default();
            let mut owners = meta.owner_references.iter().flatten();
            active.grant.metadata.deletion_timestamp.is_none() && owners.any(|owner| owner.uid == uid)
        });
        let makers: Vec<String> = makers.map(|active| active.grant.name_any()).collect();
        if meta.deletion_timestamp.is_none() {
            self.steps.push((Step::Delete(object.clone()), makers));
            return;
        }
        let why = format!(
            "the {} {} is being deleted, and grants nothing any more, but stays until its finalizers are gone: {}",
            object.kind(),
            meta.name.as_deref().unwrap_or_default(),
            meta.finalizers.as_deref().unwrap_or_default().join(", ")
        );
        if makers.is_empty() {
            self.left.push((object.clone(), why.clone()));
        }
        self.outcomes
            .extend(makers.iter().map(|maker| (maker.clone(), Some(why.clone()))));
        if let Some(emptied) = object.emptied() {
            self.steps.push((Step::Empty(emptied), makers));
        }
    }
}

/// The step that leaves an object to its work, if it was shared.
fn release(object: &Object) -> Option<(Step, Vec<String>)> {
    let meta = object.meta();
    let shared = is_owned(meta) || granted_label(meta).is_some();
    shared.then(|| (Step::Release(object.clone()), Vec::new()))
}

/// A work and a grant want the same object with another content: what names the namespace counts.
fn overlap(object: &Object, key: &(Kind, String)) -> String {
    format!(
        "ManifestWork {} delivers the {} {} here with another content, and that counts: give one of the entries another name, or leave this namespace out of the selector",
        work_names(object).collect::<Vec<_>>().join(", "),
        key.0,
        key.1
    )
}

fn object(namespace: &str, name: &str, grants: &[&Active]) -> Option<Object> {
    // A grant that goes in the foreground waits for what it made.
    let owners = grants.iter().filter_map(|active| {
        Some(OwnerReference {
            block_owner_deletion: Some(true),
            ..active.grant.owner_ref(&())?
        })
    });
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
    Some(match (live, object) {
        (None, object) => Step::Create(object),
        // The role of somebody else's binding is not known here; making it again is always right.
        (Some(Live::Foreign), Object::RoleBinding(to)) => Step::Replace { to, was: None },
        (Some(Live::Foreign), object) => Step::Change(object),
        (Some(Live::Granted(have) | Live::Delivered { object: have, .. }), object) => match (have, object) {
            (have, object) if same_meta(have.meta(), object.meta()) && have.same_content(&object) => {
                return None;
            }
            (Object::RoleBinding(was), Object::RoleBinding(to)) if was.role_ref != to.role_ref => {
                let was = Some(was.clone());
                Step::Replace { to, was }
            }
            (_, object) => Step::Change(object),
        },
    })
}

fn same_meta(have: &ObjectMeta, want: &ObjectMeta) -> bool {
    let owners = |meta: &ObjectMeta| -> BTreeSet<Option<String>> {
        let owners = meta.owner_references.iter().flatten().filter(|o| is_grant(o));
        owners.map(|o| Some(o.uid.clone())).collect()
    };
    granted_label(have) == granted_label(want) && owners(have) == owners(want)
}

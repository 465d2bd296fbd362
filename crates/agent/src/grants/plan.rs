//! Pure: what one namespace shall hold.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference},
};
use kube::{
    Resource, ResourceExt as _,
    core::{Selector, SelectorExt as _},
};
use writ_api::{
    work::AppliedManifestWork,
    writ::{GRANTED_LABEL, NamespaceGrant, namespace_grant::NamespaceGrantSpec},
};

pub use super::object::Object;
use crate::work::apply::{is_applied_work, is_grant};

/// The API group of roles.
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
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
    /// Somebody else made it.
    Foreign,
    /// A grant made it.
    Granted(Object),
    /// Its owner is a work. Grants share it as long as they want the same, and never change it.
    Delivered {
        /// The object.
        object: Object,
        /// Whether it is a grant's as well. Then the work's own record has to confirm that it delivers it: whoever may
        /// write the object may also write an owner reference.
        ours: bool,
    },
}

impl Live {
    /// What the watch shows now, after what it showed before. A grant's object stays one, whatever somebody takes off
    /// it: who wrote its fields is known to the server, and what it was is known here.
    pub fn seen(object: Object, written: bool, before: Option<&Self>) -> Self {
        let meta = object.meta();
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let known = match before {
            Some(
                Self::Granted(was)
                | Self::Delivered {
                    object: was,
                    ours: true,
                },
            ) => was.meta().uid == meta.uid,
            _ => false,
        };
        let ours = written || known || owners.iter().any(is_grant);
        if owners.iter().any(is_applied_work) {
            Self::Delivered { object, ours }
        } else if ours {
            Self::Granted(object)
        } else {
            Self::Foreign
        }
    }
}

/// Whether a work's record says that it delivers this object.
pub fn confirms(record: &AppliedManifestWork, object: &Object) -> bool {
    let (meta, resource) = (object.meta(), object.resource());
    let recorded = record.status.iter().flat_map(|status| &status.applied_resources);
    recorded.into_iter().any(|known| {
        known.group == RBAC_GROUP
            && known.resource == resource
            && Some(&known.namespace) == meta.namespace.as_ref()
            && Some(&known.name) == meta.name.as_ref()
            && Some(&known.uid) == meta.uid.as_ref()
    })
}

/// The works that an object says it belongs to.
pub fn works(object: &Object) -> impl Iterator<Item = &OwnerReference> {
    let owners = object.meta().owner_references.iter().flatten();
    owners.filter(|owner| is_applied_work(owner))
}

/// The work that carried the grant which made an object: grants are named after it.
pub fn former_work(object: &Object) -> Option<String> {
    let mut owners = object.meta().owner_references.iter().flatten();
    let grant = owners.find(|owner| is_grant(owner))?;
    grant.name.rsplit_once('-').map(|(work, _)| work.to_owned())
}

/// Whether the server says that this controller wrote fields of the object.
pub fn written(fields: Option<&[ManagedFieldsEntry]>) -> bool {
    let mut entries = fields.into_iter().flatten();
    entries
        .any(|entry| entry.manager.as_deref() == Some(WRITER) && entry.operation.as_deref() == Some("Apply"))
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
    /// Change what differs. `replace`: the role of a binding cannot be changed, so it is made again at once.
    Change {
        /// As it shall be.
        to: Object,
        /// Whether it has to be deleted first.
        replace: bool,
    },
    /// Leave what was shared to the work.
    Release(Object),
    /// Make it grant nothing: somebody's finalizer keeps it from going, and until it goes it would grant what it did.
    Empty(Object),
    /// Remove it, as it was seen.
    Delete(Object),
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
        kept.insert(key.clone());
        if let Some(Live::Delivered { object: have, .. }) = current
            && !have.same_content(&object)
        {
            let why = overlap(have, &key);
            plan.outcomes
                .extend(names.into_iter().map(|n| (n, Some(why.clone()))));
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
    let works = works(object).map(|owner| {
        // The name of the work follows the hash of its hub.
        owner.name.split_once('-').map_or(&*owner.name, |(_, work)| work)
    });
    format!(
        "ManifestWork {} delivers the {} {} here with another content, and that counts: give one of the entries another name, or leave this namespace out of the selector",
        works.collect::<Vec<_>>().join(", "),
        key.0,
        key.1
    )
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
    match live {
        None => Some(Step::Create(object)),
        Some(Live::Foreign) => Some(Step::Change {
            // The role of somebody else's binding is not known here; making it again is always right.
            replace: matches!(object, Object::RoleBinding(_)),
            to: object,
        }),
        Some(Live::Granted(have) | Live::Delivered { object: have, .. }) => {
            let same = same_meta(have.meta(), object.meta()) && have.same_content(&object);
            (!same).then(|| Step::Change {
                replace: !have.same_role(&object),
                to: object,
            })
        }
    }
}

fn same_meta(have: &ObjectMeta, want: &ObjectMeta) -> bool {
    let owners = |meta: &ObjectMeta| -> BTreeSet<Option<String>> {
        let owners = meta.owner_references.iter().flatten().filter(|o| is_grant(o));
        owners.map(|o| Some(o.uid.clone())).collect()
    };
    granted_label(have) == granted_label(want) && owners(have) == owners(want)
}

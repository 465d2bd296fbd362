//! Pure: what one namespace shall hold.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::rbac::v1::{Role, RoleBinding},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference},
};
use kube::{Resource, ResourceExt as _};
use writ_api::writ::GRANTED_LABEL;

use super::{
    model::{Active, Content, Live, NamespacePlan, Objects, Step},
    object::{Kind, Object, granted_label},
    ownership::{delivers, work_names},
};
use crate::owner::is_grant;

fn is_owned(meta: &ObjectMeta) -> bool {
    meta.owner_references.iter().flatten().any(is_grant)
}

/// Plans one namespace. `labels` are `None` if it is gone or terminating.
pub fn namespace(
    name: &str,
    labels: Option<&BTreeMap<String, String>>,
    grants: &[&Active],
    live: &Objects,
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
    // The Roles that a permission defines and cannot have here: a binding to them would grant the foreign Role's rules.
    let mut lost: BTreeSet<(&str, String)> = BTreeSet::new();
    // Roles come before what binds them.
    for (key, claimants) in wanted {
        let (held, mut claimants): (Vec<&Active>, Vec<&Active>) = claimants.into_iter().partition(|a| {
            a.binds_foreign_role(live)
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
            // A Role that the permission itself delivers by name is its own.
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
    /// Revokes an object that no grant wants. If it stays, the grants that made it report that.
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
            self.orphans.push((object.clone(), why.clone()));
        }
        self.outcomes
            .extend(makers.iter().map(|maker| (maker.clone(), Some(why.clone()))));
        if let Some(emptied) = object.emptied() {
            self.steps.push((Step::Empty(emptied), makers));
        }
    }
}

/// The step that leaves a shared object to its work.
fn release(object: &Object) -> Option<(Step, Vec<String>)> {
    let meta = object.meta();
    let shared = is_owned(meta) || granted_label(meta).is_some();
    shared.then(|| (Step::Release(object.clone()), Vec::new()))
}

/// A work and a grant want the same object with different content: the work names the namespace, and has precedence.
fn overlap(object: &Object, key: &(Kind, String)) -> String {
    format!(
        "ManifestWork {} delivers the {} {} here with another content, and that counts: give one of the entries another name, or leave this namespace out of the selector",
        work_names(object).collect::<Vec<_>>().join(", "),
        key.0,
        key.1
    )
}

fn object(namespace: &str, name: &str, grants: &[&Active]) -> Option<Object> {
    // A grant that is deleted in the foreground waits for what it made.
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

/// The step from the existing object to the wanted one.
fn step(object: Object, live: Option<&Live>) -> Option<Step> {
    Some(match (live, object) {
        (None, object) => Step::Create(object),
        // The content of a foreign binding is not kept; recreating it is always right.
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

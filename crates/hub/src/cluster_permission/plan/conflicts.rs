//! Permissions of one cluster that name the same object. The oldest of them has it. A younger permission that wants exactly
//! the same shares the object; otherwise it reports the conflict and delivers the rest.
//!
//! What permissions mean is compared, not what became of it: an account that comes or goes changes what an object grants, and
//! must not change which permission has the object.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, RoleRef, Subject},
    jiff::Timestamp,
};
use kube::ResourceExt as _;
use writ_api::rbac::ClusterPermission;

use super::{
    manifest::{self, without_empty_lists},
    namespaces::Namespaces,
    subjects::as_written,
    unbuildable_roles::{self, binds, relied_on},
};
use crate::cluster_permission::{
    model::{Content, Item, ObjectId, Observation, Problem, SelectedBy, UnbuildableRole, object_id},
    naming::MAX_NAME,
    spec::{Entry, Says, entries, references::is_built_in},
};

/// Takes out the items that an older permission has with another content.
pub fn withhold(seen: &Observation, own: &[Entry<'_>], items: &mut Vec<Item>) -> Vec<Problem> {
    let mut older: Vec<&ClusterPermission> = seen
        .neighbours
        .iter()
        .map(|other| &**other)
        .filter(|other| age(other) < age(&seen.permission))
        .collect();
    if older.is_empty() {
        return Vec::new();
    }
    older.sort_by_key(|other| age(other));
    let others: Vec<(&ClusterPermission, Meaning)> = older
        .into_iter()
        .map(|other| (other, Meaning::of(seen, other, &entries(other), seen.selected_by)))
        .collect();
    let meaning = |by| Meaning::of(seen, &seen.permission, own, by).objects;
    let mut mine = meaning(seen.selected_by);
    // What lingers while selectors change from one mode to the other is meant as well.
    mine.extend(meaning(seen.selected_by.other()));
    let carried: BTreeSet<ObjectId> = seen.manifests().map(manifest::id).collect();
    let conflict_over = |id: &ObjectId| {
        others.iter().find_map(|(other, theirs)| {
            let name = other.name_any();
            match theirs.objects.get(id) {
                Some(meant) if mine.get(id) == Some(meant) => Some(None),
                Some(_) => Some(Some(conflict(id, &name))),
                // What depends on namespaces that could not be read is neither taken nor given.
                None if theirs.may_select(id) && !carried.contains(id) => Some(Some(unknown(id, &name))),
                None => None,
            }
        })
    };

    let mut problems = Vec::new();
    let mut withheld = BTreeSet::new();
    items.retain(|item| {
        // Where namespace grants meet is known to the agent only, which reports it.
        if !item.is_object() {
            return true;
        }
        let Some(message) = conflict_over(&item.id).flatten() else {
            return true;
        };
        problems.push(Problem::new(&item.field, message));
        withheld.insert(item.id.clone());
        false
    });
    // A role of that name exists, but it says what the other permission wants it to say.
    items.retain(|item| {
        let Some(Content::Binding(bound, _)) = item.content() else {
            return true;
        };
        let Some(role) = withheld.iter().find(|role| binds(&item.id, bound, role)) else {
            return true;
        };
        let message = format!("{} binds {role}, which is not this permission's", item.id);
        problems.push(Problem::new(&item.field, message));
        false
    });
    problems
}

fn conflict(id: &ObjectId, other: &str) -> String {
    let way_out = if id.kind.ends_with("Binding") {
        "give one of them another name"
    } else {
        "keep one of them"
    };
    format!(
        "conflict: the older ClusterPermission {other} makes {id} with another content, and only that is delivered: {way_out}"
    )
}

fn unknown(id: &ObjectId, other: &str) -> String {
    format!(
        "the older ClusterPermission {other} may make {id} by its selector, and the hub has not been able to read Namespaces yet"
    )
}

/// The order in which permissions claim objects.
fn age(permission: &ClusterPermission) -> (Option<Timestamp>, String) {
    let created = permission.creation_timestamp().map(|time| time.0);
    (created, permission.name_any())
}

/// What a permission says of the objects it makes, with references left as references. Objects that the agent makes by
/// namespace grants are not among them.
struct Meaning {
    objects: BTreeMap<ObjectId, Meant>,
    /// What it makes in namespaces of the hub that have not been read, without a namespace.
    selecting: BTreeSet<ObjectId>,
}

/// What a permission says of one object.
#[derive(Clone, PartialEq)]
enum Meant {
    Rules(Vec<PolicyRule>),
    /// What follows the hub's role is never the same as rules that are written down, even if these are equal now.
    HubRole,
    /// Accounts among the subjects are known by their names.
    Binding(RoleRef, Vec<Subject>),
}

impl Meaning {
    fn of(seen: &Observation, permission: &ClusterPermission, entries: &[Entry<'_>], by: SelectedBy) -> Self {
        let mut meaning = Self {
            objects: BTreeMap::new(),
            selecting: BTreeSet::new(),
        };
        if permission.name_any().len() > MAX_NAME {
            return meaning;
        }
        let mut unbuildable: Vec<UnbuildableRole> =
            entries.iter().filter_map(unbuildable_roles::of_entry).collect();
        let mut claimed = BTreeMap::new();
        for entry in entries.iter().filter(|entry| entry.problems.is_empty()) {
            let meant = Meant::of(&entry.says);
            let namespaces = Namespaces::of(entry, seen, by);
            if let (Namespaces::NotRead, Some(_)) = (&namespaces, &meant) {
                meaning.selecting.insert(entry.id_in(""));
            }
            for namespace in namespaces.known() {
                let id = entry.id_in(namespace);
                if is_built_in(entry.kind, namespace, entry.name) {
                    let follows_hub = matches!(entry.says, Says::HubRole);
                    let field = entry.field.clone();
                    unbuildable.extend((!follows_hub).then_some(UnbuildableRole { role: id, field }));
                    continue;
                }
                // The first entry that makes an object has it, also where that grants nothing.
                claimed.entry(id).or_insert_with(|| (entry, meant.clone()));
            }
        }
        let made: BTreeSet<ObjectId> = claimed
            .iter()
            .filter_map(|(id, (_, meant))| meant.as_ref().map(|_| id.clone()))
            .collect();
        let objects = claimed.into_iter().filter_map(|(id, (entry, meant))| {
            let meant = meant?;
            let lost = match &meant {
                Meant::Binding(role, _) if entry.binds_own_role() => {
                    relied_on(&unbuildable, &id, role, |id| made.contains(id)).is_some()
                }
                _ => false,
            };
            (!lost).then_some((id, meant))
        });
        meaning.objects = objects.collect();
        meaning
    }

    fn may_select(&self, id: &ObjectId) -> bool {
        self.selecting.contains(&object_id(&id.kind, "", &id.name.name))
    }
}

impl Meant {
    /// What an entry says; `None` if it grants nothing.
    fn of(says: &Says<'_>) -> Option<Self> {
        match says {
            Says::Rules(rules) => Some(Self::Rules(without_empty_lists(rules))),
            Says::HubRole => Some(Self::HubRole),
            Says::Binding { role, subjects, .. } => {
                let valid = subjects.iter().filter(|named| named.problems.is_empty());
                let subjects: Vec<Subject> = valid.map(|named| as_written(named.subject)).collect();
                (!subjects.is_empty()).then(|| Self::Binding(role.clone(), subjects))
            }
        }
    }
}

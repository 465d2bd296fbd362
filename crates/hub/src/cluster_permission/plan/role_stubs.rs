//! `validate: true`: a stub for each role that a binding names and that this permission does not make. The agent reports
//! whether the role exists, and does nothing else with it. Roles behind a selector that the agent evaluates have no stub: the
//! namespace grant itself asks for the answer.
//!
//! A role that this permission made until now gets its stub only once the agent has removed it: in a work that names it
//! throughout, the agent would keep the role, and with it what it allows.
//!
//! A role whose name cannot be part of a URL has no stub either: the whole work would be refused.

use std::collections::{BTreeMap, BTreeSet};

use writ_runtime::segment;

use super::{manifest, namespaces::Namespaces};
use crate::cluster_permission::{
    model::{Body, Built, Item, ObjectId, Observation, SelectedBy, TypedManifest, object_id},
    reports,
    spec::{Entry, Says},
};

/// Adds the stubs.
pub fn add(
    seen: &Observation,
    entries: &[Entry<'_>],
    by: SelectedBy,
    claimed: &BTreeMap<ObjectId, String>,
    out: &mut Built,
) {
    let mut wanted: BTreeSet<(ObjectId, &str)> = BTreeSet::new();
    // An entry that is not delivered needs no role; the name of its role could have the whole work refused.
    for entry in entries.iter().filter(|entry| entry.problems.is_empty()) {
        let Says::Binding { role, own_role, .. } = &entry.says else {
            continue;
        };
        let namespaces = match role.kind.as_str() {
            // A ClusterRoleBinding without a roleRef binds the ClusterRole of this permission.
            "ClusterRole" if entry.kind == "ClusterRoleBinding" && *own_role => Vec::new(),
            "ClusterRole" => vec![""],
            _ => Namespaces::of(entry, seen, by).known(),
        };
        for namespace in namespaces {
            wanted.insert((object_id(&role.kind, namespace, &role.name), &entry.field));
        }
    }
    let made = made_before(seen);
    let mut added = BTreeSet::new();
    for (id, field) in wanted {
        let kind = if id.name.namespace.is_empty() {
            "ClusterRole"
        } else {
            "Role"
        };
        if id.name.name.is_empty() || claimed.contains_key(&id) {
            continue;
        }
        // A binding may name such a role, but it cannot be looked up.
        if let Err(words) = segment::check(&format!("{field}.roleRef.name"), &id.name.name) {
            out.unsearchable.insert((kind, words));
            continue;
        }
        if made.contains(&id) {
            out.unchecked.insert(kind);
            continue;
        }
        if !added.insert(id.clone()) {
            continue;
        }
        out.items.push(Item {
            id,
            field: field.to_owned(),
            binds_own_role: false,
            manifest: TypedManifest {
                annotations: BTreeMap::new(),
                body: Body::Stub,
            },
        });
    }
}

/// The roles that the works still make, or that the agent still reports from when they did.
fn made_before(seen: &Observation) -> BTreeSet<ObjectId> {
    let mut made = BTreeSet::new();
    for work in seen.works.values() {
        let manifests = work.spec.workload.manifests.iter().map(|manifest| &manifest.0);
        let (roles, others): (Vec<_>, Vec<_>) = manifests.partition(|manifest| manifest::has_rules(manifest));
        let others: BTreeSet<ObjectId> = others.into_iter().map(manifest::id).collect();
        let reported = reports::of(work)
            .map(reports::id)
            .filter(|id| !others.contains(id));
        made.extend(roles.into_iter().map(manifest::id).chain(reported));
    }
    made
}

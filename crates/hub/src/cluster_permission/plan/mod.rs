//! Pure: from what was observed to the works that are wanted.
//!
//! `entries of the spec → build → conflicts → lingering → packing ⟲ unbuildable_roles → works`
//!
//! The invariants, in order of precedence, are in `docs/design/permission-plan.md`.

mod build;
mod conflicts;
mod lingering;
pub mod manifest;
mod namespaces;
mod not_synced;
mod packing;
mod role_stubs;
mod shrink;
mod subjects;
mod unbuildable_roles;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _, api::ObjectMeta};
use writ_api::work::{Manifest, ManifestWork, ManifestWorkSpec, Workload};

use self::packing::Carried;
use super::{
    model::{Built, Invalid, Observation, Part, Plan},
    naming,
    spec::{self, Entry},
};

/// Plans the works.
pub fn plan(seen: &Observation) -> Plan {
    let entries = spec::entries(&seen.permission);
    let mut built = build::build(seen, &entries, seen.selected_by);
    if let Some(problem) = spec::name_problem(&seen.permission) {
        built.problems.push(problem);
        built.items.clear();
    }
    let conflicts = conflicts::withhold(seen, &entries, &mut built.items);
    built.problems.extend(conflicts);
    let mut lingering = lingering::lingering(seen, &entries, &built);
    // What lingers is no entry's wish: that it meets another permission's object is not reported.
    conflicts::withhold(seen, &entries, &mut lingering);
    built.items.extend(lingering);
    let parts = assign_to_works(seen, &mut built);

    let cluster = seen.cluster.as_ref();
    let is_leaving = cluster.is_none_or(|cluster| cluster.metadata.deletion_timestamp.is_some());
    // A cluster that does not exist, or leaves, gets no new work; the works it has still follow the spec.
    let wanted = parts
        .iter()
        .filter(|(number, _)| !is_leaving || seen.works.contains_key(number));
    let works = wanted.map(|(number, part)| (*number, work(seen, *number, part)));
    let unwanted = seen.works.keys().filter(|number| !parts.contains_key(number));
    Plan {
        works: works.collect(),
        delete: unwanted.copied().collect(),
        invalid: invalid(seen, &entries),
        parts,
        built,
    }
}

fn invalid(seen: &Observation, entries: &[Entry<'_>]) -> Option<Invalid> {
    if entries.is_empty() {
        return Some(Invalid::Empty);
    }
    seen.cluster.is_none().then_some(Invalid::NoCluster)
}

/// Puts the objects into works. With a role that fits into none go the bindings that rely on it, which may leave room for
/// others: hence the loop.
fn assign_to_works(seen: &Observation, built: &mut Built) -> BTreeMap<usize, Part> {
    let carried: Vec<Carried<'_>> = seen
        .works
        .iter()
        .map(|(part, work)| Carried::of(*part, work))
        .collect();
    loop {
        let (parts, unfit) = packing::assign(&built.items, &carried, seen.limits);
        let (mut gone, mut unbuildable, mut others) = (BTreeSet::new(), Vec::new(), Vec::new());
        for (item, problem) in unfit {
            if let Some(role) = unbuildable_roles::of_item(item) {
                gone.insert(item.id.clone());
                unbuildable.push(role);
                built.problems.push(problem);
            } else {
                others.push(problem);
            }
        }
        built.items.retain(|item| !gone.contains(&item.id));
        let withheld = unbuildable_roles::withhold(&mut built.items, &unbuildable);
        if withheld.is_empty() {
            built.problems.extend(others);
            return parts;
        }
        built.problems.extend(withheld);
    }
}

fn work(seen: &Observation, number: usize, part: &Part) -> ManifestWork {
    let permission = &seen.permission;
    let owner = permission.controller_owner_ref(&()).map(|owner| OwnerReference {
        block_owner_deletion: Some(true),
        ..owner
    });
    let carried = seen.works.get(&number);
    let others = carried.map(|work| work.owner_references()).unwrap_or_default();
    // An object has one controller: another one that took the place of the permission is removed.
    let others = others
        .iter()
        .filter(|o| Some(&o.uid) != permission.metadata.uid.as_ref() && o.controller != Some(true));
    let metadata = ObjectMeta {
        name: Some(naming::work(permission, number)),
        namespace: permission.namespace(),
        owner_references: Some(others.cloned().chain(owner).collect()),
        ..ObjectMeta::default()
    };
    // Labels and annotations that others have set stay; the spec decides what is granted, and is ours as a whole.
    let spec = ManifestWorkSpec {
        workload: Workload {
            manifests: part.manifests.iter().cloned().map(Manifest).collect(),
        },
        manifest_configs: part.configs.clone(),
        executor: seen.executor.clone(),
        ..ManifestWorkSpec::default()
    };
    ManifestWork {
        metadata,
        spec,
        status: None,
    }
}

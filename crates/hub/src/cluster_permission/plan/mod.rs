//! Pure: from what was observed to the works that are wanted.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::rbac::v1::PolicyRule, apimachinery::pkg::apis::meta::v1::OwnerReference, jiff::Timestamp,
};
use kube::{Resource as _, ResourceExt as _, api::ObjectMeta};
use writ_api::{
    cluster::ManagedCluster,
    rbac::ClusterPermission,
    work::{Executor, Manifest, ManifestWork, ManifestWorkSpec, Workload},
};
use writ_controller::condition;

use super::{
    build::{self, Built, Id},
    handover, names, neighbours,
    own::{self, Lost},
    report,
    split::{self, Carried, Limits, Part},
    subjects::Account,
    validate::{self, Problem},
};

pub use super::unread::Unread;

/// Everything that the answer depends on.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The permission.
    pub permission: &'a ClusterPermission,
    /// Its works, by number.
    pub works: &'a BTreeMap<usize, &'a ManifestWork>,
    /// The cluster that its namespace stands for.
    pub cluster: Option<&'a ManagedCluster>,
    /// The ManagedServiceAccounts in its namespace that it names and that exist, by name.
    pub accounts: &'a BTreeMap<String, Account>,
    /// The add-on that tells where their ServiceAccounts are.
    pub add_on: AddOn<'a>,
    /// The roles of the hub that it names and that exist.
    pub hub_roles: &'a BTreeMap<Id, HubRole>,
    /// Whether the agent selects namespaces; otherwise the hub does.
    pub by_agent: bool,
    /// The hub's namespaces and their labels, where they may matter; `None` if they were not read.
    pub hub_namespaces: Option<&'a [(String, BTreeMap<String, String>)]>,
    /// What could not be read.
    pub unread: Unread,
    /// Other permissions of the cluster that name an object of the same kind and name.
    pub neighbours: &'a [ClusterPermission],
    /// The executor of every work.
    pub executor: Option<&'a Executor>,
    /// How much a work may carry.
    pub limits: Limits,
    /// The time.
    pub now: Timestamp,
}

/// What the add-on `managed-serviceaccount` says.
#[derive(Clone, Copy, Debug)]
pub enum AddOn<'a> {
    /// It is not there.
    Missing,
    /// It is there, but names no namespace.
    NoNamespace,
    /// The namespace of the ServiceAccounts.
    Namespace(&'a str),
}

/// A role of the hub.
#[derive(Clone, Debug)]
pub struct HubRole {
    /// What it allows.
    pub rules: Vec<PolicyRule>,
    /// Whether Kubernetes itself brings it.
    pub built_in: bool,
}

/// What shall be.
#[derive(Debug)]
pub struct Plan {
    /// The works, by number.
    pub works: BTreeMap<usize, ManifestWork>,
    /// The numbers of the works to delete, after the others are written.
    pub delete: Vec<usize>,
    /// Which objects are at home in which work.
    pub parts: BTreeMap<usize, Part>,
    /// What the spec came to.
    pub built: Built,
    /// Why nothing can be delivered, if so.
    pub invalid: Option<Invalid>,
}

/// Why a permission as a whole delivers nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Its spec names no role and no binding.
    Empty,
    /// Its namespace is not that of a managed cluster.
    NoCluster,
}

/// Plans the works.
pub fn plan(seen: &Observation<'_>) -> Plan {
    let mut built = build::build(seen);
    if seen.permission.name_any().len() > validate::MAX_NAME {
        built.problems.extend(
            validate::all(seen.permission)
                .into_iter()
                .filter(|p| p.field == "metadata.name"),
        );
        built.items.clear();
    }
    let problems = neighbours::withhold(seen, &mut built.items);
    built.problems.extend(problems);
    let mut lingering = handover::lingering(seen, &built);
    neighbours::withhold(seen, &mut lingering);
    built.items.extend(lingering);
    let carried: Vec<Carried<'_>> = seen
        .works
        .iter()
        .map(|(part, work)| carried(*part, work))
        .collect();
    let parts = assign(seen, &mut built, &carried);

    let going = seen
        .cluster
        .is_none_or(|c| c.metadata.deletion_timestamp.is_some());
    let works: BTreeMap<usize, ManifestWork> = parts
        .iter()
        // A cluster that is not there, or leaves, gets nothing new; what it has still follows the spec.
        .filter(|(number, _)| !going || seen.works.contains_key(number))
        .map(|(number, part)| (*number, work(seen, *number, part)))
        .collect();
    let delete = seen
        .works
        .keys()
        .filter(|number| !parts.contains_key(number))
        .copied()
        .collect();
    let spec = &seen.permission.spec;
    let empty = spec.cluster_role.is_none()
        && spec.cluster_role_binding.is_none()
        && spec.cluster_role_bindings.is_empty()
        && spec.roles.is_empty()
        && spec.role_bindings.is_empty()
        && spec.role_refs.is_empty();
    let invalid = if empty {
        Some(Invalid::Empty)
    } else if seen.cluster.is_none() {
        Some(Invalid::NoCluster)
    } else {
        None
    };
    Plan {
        works,
        delete,
        parts,
        built,
        invalid,
    }
}

/// Puts the objects into works. With a role that fits into none goes what means it without naming it, and once more it is
/// looked who has room.
fn assign(seen: &Observation<'_>, built: &mut Built, carried: &[Carried<'_>]) -> BTreeMap<usize, Part> {
    loop {
        let (parts, unfit) = split::assign(&built.items, carried, seen.limits);
        let (mut gone, mut lost, mut others) = (BTreeSet::new(), Vec::new(), Vec::new());
        for (item, problem) in unfit {
            let Some(role) = Lost::of(item) else {
                others.push(problem);
                continue;
            };
            gone.insert(item.id.clone());
            lost.push(role);
            built.problems.push(problem);
        }
        built.items.retain(|item| !gone.contains(&item.id));
        let withheld = own::withhold(seen.permission, &mut built.items, &lost);
        if withheld.is_empty() {
            built.problems.extend(others);
            return parts;
        }
        built.problems.extend(withheld);
    }
}

/// The problems in words, at most `max` of them.
pub fn words(problems: &[Problem], max: usize) -> String {
    let mut words: Vec<String> = problems.iter().take(max).map(ToString::to_string).collect();
    if problems.len() > max {
        words.push(format!("and {} more", problems.len() - max));
    }
    words.join("; ")
}

fn carried(part: usize, work: &ManifestWork) -> Carried<'_> {
    let manifests: BTreeMap<Id, _> = work
        .spec
        .workload
        .manifests
        .iter()
        .map(|m| (Id::of(&m.0), &m.0))
        .collect();
    // What a work that goes has applied goes with it.
    let stays = work.metadata.deletion_timestamp.is_none();
    let status = work.status.iter().filter(|_| stays);
    let reports = status.flat_map(|s| &s.resource_status.manifests);
    let applied = reports
        .filter(|report| {
            condition::find(&report.conditions, "Applied")
                .is_some_and(|c| c.status == "True" && c.observed_generation >= work.metadata.generation)
        })
        .map(report::id)
        .collect();
    Carried {
        part,
        manifests,
        applied,
    }
}

fn work(seen: &Observation<'_>, number: usize, part: &Part) -> ManifestWork {
    let permission = seen.permission;
    let mut metadata = ObjectMeta {
        name: Some(names::work(permission, number)),
        namespace: permission.namespace(),
        ..ObjectMeta::default()
    };
    let owner = permission.controller_owner_ref(&()).map(|owner| OwnerReference {
        block_owner_deletion: Some(true),
        ..owner
    });
    let others = seen
        .works
        .get(&number)
        .map(|w| w.owner_references())
        .unwrap_or_default();
    // An object has one controller: whoever took our place as that has to leave it.
    let others = others
        .iter()
        .filter(|o| Some(&o.uid) != permission.metadata.uid.as_ref() && o.controller != Some(true));
    metadata.owner_references = Some(others.cloned().chain(owner).collect());
    // What others have set (a label, a deletion option) is theirs, except what decides who is granted what.
    let mut spec = ManifestWorkSpec {
        workload: Workload {
            manifests: part.manifests.iter().cloned().map(Manifest).collect(),
        },
        manifest_configs: part.configs.clone(),
        ..ManifestWorkSpec::default()
    };
    spec.executor = seen.executor.cloned();
    ManifestWork {
        metadata,
        spec,
        status: None,
    }
}

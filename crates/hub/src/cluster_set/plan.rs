//! Pure: what the status of sets, clusters and bindings should be, and which roles and sets there should be.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::rbac::v1::{ClusterRole, PolicyRule},
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector},
};
use kube::{Resource, ResourceExt, api::ObjectMeta};
use writ_api::cluster::{
    CLUSTER_SET_LABEL, DEFAULT_SET, GLOBAL_SET, GROUP, ManagedClusterSet, ManagedClusterSetBinding,
    managed_cluster::ReportedNamespace,
    managed_cluster_set::{
        CONDITION_CONFLICT, CONDITION_EMPTY, ClusterLabel, ClusterSelector, ManagedClusterSetSpec,
        ManagedClusterSetStatus, SelectorType,
    },
    managed_cluster_set_binding::{CONDITION_BOUND, ManagedClusterSetBindingStatus},
};
use writ_controller::condition::{self, Wanted};

use crate::names::is_subdomain;

use super::{
    index::MembershipIndex,
    membership::{CONFIRMED_ANNOTATION, Labels, Selection},
};

/// Condition of a cluster whose labels name no set, or a set that it has not joined.
pub const CONDITION_LABELS: &str = "ManagedClusterSetLabelsValid";
/// The annotation that keeps the hub from rolling back `default` and `global`.
pub const AUTO_UPDATE_ANNOTATION: &str = "cluster.open-cluster-management.io/autoupdate";
/// The label of the roles of a set, with the role's name as value.
pub const ROLE_LABEL: &str = "cluster.open-cluster-management.io/role";
/// How many names a message lists.
const NAMED: usize = 10;

/// The status that a set should have.
pub fn set_status(
    set: &ManagedClusterSet,
    fleet: &MembershipIndex,
    now: Timestamp,
) -> ManagedClusterSetStatus {
    let name = set.name_any();
    let members = fleet.members(&name).map_or(0, BTreeSet::len);
    let mut status = set.status.clone().unwrap_or_default();
    let generation = set.metadata.generation;
    let mut want = |wanted: Wanted| {
        condition::set(&mut status.conditions, &wanted, generation, now);
    };
    want(if members == 0 {
        Wanted::new(
            CONDITION_EMPTY,
            true,
            "NoClusterMatched",
            "No ManagedCluster selected",
        )
    } else {
        Wanted::new(
            CONDITION_EMPTY,
            false,
            "ClustersSelected",
            format!("{members} ManagedClusters selected"),
        )
    });
    want(conflict(&name, set, fleet));
    status.cluster_label = set.spec.key().map(|key| ClusterLabel {
        key: key.into(),
        value: name,
    });
    status.cluster_count = i64::try_from(members).ok();
    status
}

fn conflict(name: &str, set: &ManagedClusterSet, fleet: &MembershipIndex) -> Wanted {
    if let Selection::Broken(message) = Selection::of(set) {
        return Wanted::new(
            CONDITION_CONFLICT,
            true,
            "InvalidSelector",
            format!("spec.clusterSelector.labelSelector: {message}; the set is empty until it is mended"),
        );
    }
    let unconfirmed = fleet
        .unconfirmed(name)
        .map(|names| names.iter().collect::<Vec<_>>())
        .unwrap_or_default();
    if unconfirmed.is_empty() {
        return Wanted::new(CONDITION_CONFLICT, false, "NoConflict", "");
    }
    Wanted::new(
        CONDITION_CONFLICT,
        true,
        "UnconfirmedMembers",
        format!(
            "{} clusters carry the label but did not join under the eyes of admission and are left out: {}; somebody who \
             may update all managedclusters confirms them with the annotation {CONFIRMED_ANNOTATION}=true",
            unconfirmed.len(),
            list(&unconfirmed)
        ),
    )
}

fn list(names: &[&String]) -> String {
    let mut text = names
        .iter()
        .take(NAMED)
        .map(|n| n.as_str())
        .collect::<Vec<_>>()
        .join(", ");
    if names.len() > NAMED {
        text.push_str(", ...");
    }
    text
}

/// The keys of labels that were reported to name no set. A key whose last set is gone is known to nobody else.
pub fn reported_keys<'a>(labels: &'a Labels, reported: Option<&Condition>) -> impl Iterator<Item = &'a str> {
    let message = reported.map(|condition| condition.message.clone());
    labels
        .iter()
        .filter(move |(key, value)| {
            let problem = format!("label {key}={value}: ");
            message.as_ref().is_some_and(|message| message.contains(&problem))
        })
        .map(|(key, _)| key.as_str())
}

/// What is wrong with the set labels of a cluster: the condition that it should have, if any. `known` are keys that
/// count besides those that sets have.
pub fn cluster_condition(
    labels: &Labels,
    known: &BTreeSet<String>,
    cluster: &str,
    fleet: &MembershipIndex,
) -> Option<Wanted> {
    let mut problems = Vec::new();
    // A key whose last set is gone is the key of no set any more, but the label is still there.
    let mut keys: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    keys.extend(fleet.keys());
    for key in keys {
        let Some(value) = labels.get(key).filter(|v| !v.is_empty()) else {
            continue;
        };
        if !is_subdomain(value) {
            problems.push(format!(
                "label {key}={value}: no set can have that name, it must be lower case letters, digits, '-' and '.'"
            ));
        } else if !matches!(fleet.set(value).map(|s| &s.selection), Some(Selection::Label { key: k, .. }) if k == key)
        {
            problems.push(format!("label {key}={value}: there is no such set with that key"));
        } else if fleet.unconfirmed(value).is_some_and(|u| u.contains(cluster)) {
            problems.push(format!(
                "label {key}={value}: the cluster did not join that set under the eyes of admission and is left out of it"
            ));
        }
    }
    (!problems.is_empty()).then(|| Wanted::new(CONDITION_LABELS, false, "NotInSet", problems.join("; ")))
}

/// The namespaces that the sets of a cluster ask for, by set and name; what its agent said of each stays.
pub fn managed_namespaces<'a>(
    current: &[ReportedNamespace],
    sets: impl Iterator<Item = &'a ManagedClusterSet>,
) -> Vec<ReportedNamespace> {
    let wanted: BTreeSet<(String, &str)> = sets
        .filter(|set| set.metadata.deletion_timestamp.is_none())
        .flat_map(|set| {
            let namespaces = set.spec.managed_namespaces.iter();
            namespaces.map(|namespace| (set.name_any(), namespace.name.as_str()))
        })
        .collect();
    wanted
        .into_iter()
        .map(|(cluster_set, name)| {
            let known = current
                .iter()
                .find(|c| c.cluster_set == cluster_set && c.name == name);
            known.cloned().unwrap_or_else(|| ReportedNamespace {
                name: name.to_owned(),
                cluster_set,
                conditions: Vec::new(),
            })
        })
        .collect()
}

/// The status that a binding should have.
pub fn binding_status(
    binding: &ManagedClusterSetBinding,
    set_exists: bool,
    now: Timestamp,
) -> ManagedClusterSetBindingStatus {
    let mut status = binding.status.clone().unwrap_or_default();
    let reason = if set_exists {
        "ClusterSetBound"
    } else {
        "ClusterSetNotFound"
    };
    let wanted = Wanted::new(CONDITION_BOUND, set_exists, reason, "");
    condition::set(&mut status.conditions, &wanted, binding.metadata.generation, now);
    status
}

/// The sets that are always there: `default` by the default label, `global` with every cluster.
pub fn standing_sets() -> [ManagedClusterSet; 2] {
    let set = |name: &str, cluster_selector| {
        ManagedClusterSet::new(
            name,
            ManagedClusterSetSpec {
                cluster_selector,
                ..ManagedClusterSetSpec::default()
            },
        )
    };
    [
        set(DEFAULT_SET, ClusterSelector::default()),
        set(
            GLOBAL_SET,
            ClusterSelector {
                selector_type: SelectorType::LabelSelector,
                label_selector: Some(LabelSelector::default()),
            },
        ),
    ]
}

/// Whether the hub may roll the set back to what it should be.
pub fn may_roll_back(set: &ManagedClusterSet) -> bool {
    set.annotations()
        .get(AUTO_UPDATE_ANNOTATION)
        .is_none_or(|v| v != "false")
}

/// The roles that people can bind: `admin` moves clusters, `bind` offers the set to a namespace, `view` reads it.
pub fn roles(set: &ManagedClusterSet) -> Vec<ClusterRole> {
    let name = set.name_any();
    // The name is the value of their label. A set with a longer name has no members anyway.
    if name.len() > 63 {
        return Vec::new();
    }
    let rule = |resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![GROUP.into()]),
        resources: Some(vec![resource.into()]),
        resource_names: Some(vec![name.clone()]),
        verbs: verbs.iter().map(|v| (*v).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let bind = rule("managedclustersets/bind", &["create"]);
    let join = rule("managedclustersets/join", &["create"]);
    [
        (
            "admin",
            vec![
                rule("managedclustersets", &["get", "patch", "update"]),
                join,
                bind.clone(),
            ],
        ),
        ("bind", vec![rule("managedclustersets", &["get"]), bind]),
        ("view", vec![rule("managedclustersets", &["get"])]),
    ]
    .into_iter()
    .map(|(role, rules)| ClusterRole {
        metadata: ObjectMeta {
            name: Some(role_name(&name, role)),
            labels: Some(BTreeMap::from([
                (CLUSTER_SET_LABEL.to_owned(), name.clone()),
                (ROLE_LABEL.to_owned(), role.to_owned()),
            ])),
            owner_references: set.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        rules: Some(rules),
        aggregation_rule: None,
    })
    .collect()
}

/// The name of a role of a set.
pub fn role_name(set: &str, role: &str) -> String {
    format!("open-cluster-management:managedclusterset:{role}:{set}")
}

/// The condition with stable times, given what the object has now.
pub fn timed(current: &[Condition], wanted: &Wanted, generation: Option<i64>, now: Timestamp) -> Condition {
    let mut conditions: Vec<_> = condition::find(current, &wanted.type_)
        .cloned()
        .into_iter()
        .collect();
    condition::set(&mut conditions, wanted, generation, now);
    conditions.swap_remove(0)
}

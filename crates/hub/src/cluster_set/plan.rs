//! Pure: the status of sets, clusters and bindings, the roles of a set, and the sets that always exist.

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
    membership::{CONFIRMED_ANNOTATION, Selection},
    model::{CONDITION_LABELS, LabelReport, ObservedCluster},
};

/// With the value `false`, the hub does not restore the selector of `default` or `global`.
pub const AUTO_UPDATE_ANNOTATION: &str = "cluster.open-cluster-management.io/autoupdate";
/// The label of the roles of a set, with the role's name as value.
pub const ROLE_LABEL: &str = "cluster.open-cluster-management.io/role";
/// How many names a message lists.
const NAMED: usize = 10;

/// The status of a set.
pub fn set_status(
    set: &ManagedClusterSet,
    index: &MembershipIndex,
    now: Timestamp,
) -> ManagedClusterSetStatus {
    let name = set.name_any();
    let members = index.members(&name).map_or(0, BTreeSet::len);
    let mut status = set.status.clone().unwrap_or_default();
    let generation = set.metadata.generation;
    let empty = if members == 0 {
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
    };
    for wanted in [empty, conflict(&name, set, index)] {
        condition::set(&mut status.conditions, &wanted, generation, now);
    }
    status.cluster_label = set.spec.key().map(|key| ClusterLabel {
        key: key.into(),
        value: name,
    });
    status.cluster_count = i64::try_from(members).ok();
    status
}

fn conflict(name: &str, set: &ManagedClusterSet, index: &MembershipIndex) -> Wanted {
    if let Selection::Broken(message) = Selection::of(set) {
        return Wanted::new(
            CONDITION_CONFLICT,
            true,
            "InvalidSelector",
            format!("spec.clusterSelector.labelSelector: {message}; the set is empty until it is corrected"),
        );
    }
    let unconfirmed = index
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
            "{} clusters carry the label without being members, as it was not set through the admission webhook: {}; a \
             user who may update all managedclusters confirms them with the annotation {CONFIRMED_ANNOTATION}=true",
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

/// What is wrong with the set labels of a cluster. `gone_keys` are the keys of sets that were deleted: once its last set
/// is gone, a key is known from these, from the sets that the cluster joined, and from what was reported before.
pub fn label_report(
    cluster: &ObservedCluster<'_>,
    gone_keys: &BTreeSet<String>,
    index: &MembershipIndex,
) -> LabelReport {
    let labels = cluster.labels;
    // A reported label that was changed since says nothing about its key.
    let reported = cluster
        .reported
        .iter()
        .filter(|(key, value)| labels.get(*key) == Some(*value));
    let mut keys: BTreeSet<&str> = index.keys();
    keys.extend(cluster.joined_keys.iter().map(String::as_str));
    keys.extend(gone_keys.iter().map(String::as_str));
    keys.extend(reported.map(|(key, _)| key.as_str()));
    let mut report = LabelReport::default();
    let mut problems = Vec::new();
    for key in keys {
        let Some(value) = labels.get(key).filter(|value| !value.is_empty()) else {
            continue;
        };
        if let Some(problem) = label_problem(key, value, &cluster.name, index) {
            problems.push(format!("label {key}={value}: {problem}"));
            report.labels.insert(key.to_owned(), value.clone());
        }
    }
    report.condition =
        (!problems.is_empty()).then(|| Wanted::new(CONDITION_LABELS, false, "NotInSet", problems.join("; ")));
    report
}

fn label_problem(key: &str, value: &str, cluster: &str, index: &MembershipIndex) -> Option<String> {
    if !is_subdomain(value) {
        return Some("no set can have that name, it must be lower case letters, digits, '-' and '.'".into());
    }
    let selection = index.set(value).map(|set| &set.selection);
    if !matches!(selection, Some(Selection::Label { key: of, .. }) if of == key) {
        return Some("there is no such set with that key".into());
    }
    let unconfirmed = index.unconfirmed(value)?.contains(cluster);
    unconfirmed.then(|| {
        format!(
            "it was not set through the admission webhook, so the cluster is not a member; a user who may update all \
             managedclusters confirms the set with the annotation {CONFIRMED_ANNOTATION}=true"
        )
    })
}

/// The namespaces that the sets of a cluster ask for, by set and name. What the agent reported of each stays.
pub fn managed_namespaces(
    current: &[ReportedNamespace],
    sets: &[&ManagedClusterSet],
) -> Vec<ReportedNamespace> {
    let wanted: BTreeSet<(String, &str)> = sets
        .iter()
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

/// The status of a binding.
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

/// The sets that always exist: `default` by the default label, `global` with every cluster.
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

/// Whether the hub may restore the selector of this standing set.
pub fn may_roll_back(set: &ManagedClusterSet) -> bool {
    set.metadata.deletion_timestamp.is_none()
        && set
            .annotations()
            .get(AUTO_UPDATE_ANNOTATION)
            .is_none_or(|v| v != "false")
}

/// The roles of a set, for administrators to bind: `admin` moves clusters, `bind` offers the set to a namespace, `view` reads it.
pub fn roles(set: &ManagedClusterSet) -> Vec<ClusterRole> {
    let name = set.name_any();
    // The name is the value of a label of the roles. A set with a longer name has no members anyway.
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

/// The condition with its times, which change only with the condition.
pub fn timed(current: &[Condition], wanted: &Wanted, generation: Option<i64>, now: Timestamp) -> Condition {
    let mut conditions: Vec<_> = condition::find(current, &wanted.type_)
        .cloned()
        .into_iter()
        .collect();
    condition::set(&mut conditions, wanted, generation, now);
    conditions.swap_remove(0)
}

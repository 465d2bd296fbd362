//! The types of cluster sets: what is reconciled, what is observed of a cluster, what is reported.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::ResourceExt;
use writ_api::cluster::{ManagedCluster, managed_cluster::ReportedNamespace};
use writ_controller::{
    Name,
    condition::{self, Wanted},
};

use super::membership::{JOINED_ANNOTATION, Labels, REPORTED_LABELS_ANNOTATION, parse_pairs};

/// Condition of a cluster whose labels name no set, or a set that it is not a member of.
pub const CONDITION_LABELS: &str = "ManagedClusterSetLabelsValid";

/// A key of the queue.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Item {
    /// The sets `default` and `global`.
    StandingSets,
    /// A set.
    Set(String),
    /// A cluster.
    Cluster(String),
    /// A binding of a set to a namespace.
    Binding(Name),
}

/// What is observed of a cluster.
#[derive(Debug)]
pub struct ObservedCluster<'a> {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: &'a Labels,
    /// The keys under which it joined a set, whether or not that set still exists.
    pub joined_keys: BTreeSet<String>,
    /// The labels that were reported.
    pub reported: BTreeMap<String, String>,
    /// Its generation.
    pub generation: Option<i64>,
    /// The condition [`CONDITION_LABELS`].
    pub condition: Option<&'a Condition>,
    /// The namespaces that its status lists.
    pub namespaces: &'a [ReportedNamespace],
}

impl<'a> ObservedCluster<'a> {
    /// Reads a cluster.
    pub fn of(cluster: &'a ManagedCluster) -> Self {
        let pairs = |annotation: &str| {
            let text = cluster.annotations().get(annotation);
            text.map(|text| parse_pairs(text)).unwrap_or_default()
        };
        let status = cluster.status.as_ref();
        Self {
            name: cluster.name_any(),
            labels: cluster.labels(),
            joined_keys: pairs(JOINED_ANNOTATION).into_keys().collect(),
            reported: pairs(REPORTED_LABELS_ANNOTATION),
            generation: cluster.metadata.generation,
            condition: status.and_then(|status| condition::find(&status.conditions, CONDITION_LABELS)),
            namespaces: status
                .map(|status| status.managed_namespaces.as_slice())
                .unwrap_or_default(),
        }
    }
}

/// What is wrong with the set labels of a cluster.
#[derive(Debug, Default, PartialEq)]
pub struct LabelReport {
    /// The labels with a problem, to be remembered on the cluster.
    pub labels: BTreeMap<String, String>,
    /// The condition [`CONDITION_LABELS`]; `None` without a problem.
    pub condition: Option<Wanted>,
}

//! A cluster and its scores, reduced to what placements depend on.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use writ_api::cluster::{AddOnPlacementScore, ManagedCluster, managed_cluster::TaintEffect};
use writ_runtime::{
    cel::{Table, Variable},
    quantity::Quantity,
};

use crate::cluster_set::membership::Labels;

/// A cluster, reduced to what placements depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct ClusterView {
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: Labels,
    /// Its claims.
    pub claims: BTreeMap<String, String>,
    /// Its taints.
    pub taints: Vec<TaintView>,
    /// Allocatable processors, in thousandths.
    pub cpu: Option<i128>,
    /// Allocatable memory, in thousandths of bytes.
    pub memory: Option<i128>,
    /// The whole object, for expressions.
    pub object: Arc<ManagedCluster>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// The object as expressions see it, computed on first use.
    pub variable: LazyVariable,
}

/// A cluster as expressions see it. It follows from the object, so it never makes two clusters differ.
#[derive(Clone, Debug, Default)]
pub struct LazyVariable(OnceLock<Variable>);

impl PartialEq for LazyVariable {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl LazyVariable {
    /// The value, computed by `make` on first use.
    pub fn get_or_init(&self, make: impl FnOnce() -> Variable) -> &Variable {
        self.0.get_or_init(make)
    }
}

/// A taint.
#[derive(Clone, Debug, PartialEq)]
pub struct TaintView {
    /// The key.
    pub key: String,
    /// The value, empty if there is none.
    pub value: String,
    /// The effect.
    pub effect: TaintEffect,
    /// When it was added.
    pub since: Option<Timestamp>,
}

impl ClusterView {
    /// Reduces a cluster.
    pub fn of(cluster: Arc<ManagedCluster>) -> Self {
        let status = cluster.status.clone().unwrap_or_default();
        let quantity = |name: &str| {
            let written = status.allocatable.get(name)?.to_string();
            Quantity::parse(&written).map(Quantity::milli)
        };
        Self {
            name: cluster.name_any(),
            labels: cluster.labels().clone(),
            claims: status
                .cluster_claims
                .iter()
                .map(|claim| (claim.name.clone(), claim.value.clone()))
                .collect(),
            taints: cluster
                .spec
                .taints
                .iter()
                .map(|taint| TaintView {
                    key: taint.key.clone(),
                    value: taint.value.clone().unwrap_or_default(),
                    effect: taint.effect,
                    since: taint.time_added.as_ref().and_then(|t| t.parse().ok()),
                })
                .collect(),
            cpu: quantity("cpu"),
            memory: quantity("memory"),
            deleting: cluster.metadata.deletion_timestamp.is_some(),
            object: cluster,
            variable: LazyVariable::default(),
        }
    }
}

/// The scores of add-ons for a cluster, as expressions see them.
#[derive(Clone, Debug, Default)]
pub struct AddOnScores {
    /// The scores of each object, by its name.
    pub table: Table,
    /// How long it is until the first of them expires.
    pub until: Option<Duration>,
}

impl AddOnScores {
    /// Reduces the objects in the namespace of a cluster; expired ones are left out.
    pub fn of<'a>(objects: impl Iterator<Item = &'a AddOnPlacementScore>, now: Timestamp) -> Self {
        let mut until: Option<Duration> = None;
        let valid = objects.filter(|object| match remaining(object, now) {
            None => true,
            Some(Duration::ZERO) => false,
            Some(left) => {
                until = Some(until.map_or(left, |until| until.min(left)));
                true
            }
        });
        let table = valid
            .map(|object| {
                let scores = object.status.as_ref().map(|s| s.scores.as_slice());
                let scores = serde_json::to_value(scores.unwrap_or_default()).unwrap_or_default();
                (object.name_any(), Variable::from(&scores))
            })
            .collect();
        Self { table, until }
    }
}

/// How long it is until the scores expire; `None` if they never do.
pub fn remaining(object: &AddOnPlacementScore, now: Timestamp) -> Option<Duration> {
    let until = object.status.as_ref()?.valid_until.as_ref()?;
    let until: Timestamp = until.parse().ok()?;
    Some(Duration::try_from(until.duration_since(now)).unwrap_or_default())
}

/// A score of this name, unless it has expired.
pub fn score_in(object: &AddOnPlacementScore, name: &str, now: Timestamp) -> Option<i64> {
    if remaining(object, now).is_some_and(|left| left.is_zero()) {
        return None;
    }
    let status = object.status.as_ref()?;
    let score = status.scores.iter().find(|score| score.name == name)?;
    Some(i64::from(score.value))
}

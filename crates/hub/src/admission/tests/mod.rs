//! Tables: requests and the rights that they require.

mod agents;
mod clusters;
mod exclusive_keys;
mod membership_race;
mod sets;
mod works;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};
use writ_api::cluster::{ManagedCluster, ManagedClusterSet};

use writ_process::admission::Decision;

use super::handlers::{
    managed_cluster::decision as managed_cluster,
    managed_cluster_set::{decision as managed_cluster_set, exclusive_keys::ExclusiveKeys},
};
use crate::{
    agent_identity::{Requester, cluster_identity},
    options::{Guards, KeyGrants},
};

fn user(name: &str) -> Requester {
    Requester {
        name: name.into(),
        groups: vec!["system:authenticated".into()],
    }
}

fn cluster(name: &str, labels: &[(&str, &str)]) -> ManagedCluster {
    let labels: BTreeMap<_, _> = labels.iter().copied().collect();
    serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": name, "labels": labels},
        "spec": {"hubAcceptsClient": false},
    }))
    .unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn set(name: &str, spec: Value) -> ManagedClusterSet {
    serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta2",
        "kind": "ManagedClusterSet",
        "metadata": {"name": name, "uid": format!("uid-{name}")},
        "spec": spec,
    }))
    .unwrap()
}

fn sets() -> Vec<ManagedClusterSet> {
    vec![
        set("apac", json!({"exclusiveKey": "region"})),
        set("us", json!({"exclusiveKey": "region"})),
        set("backup", json!({"exclusiveKey": "clusterAttribute"})),
        set(
            "prod",
            json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"env": "prod"}}}}),
        ),
        set(
            "global",
            json!({"clusterSelector": {"selectorType": "LabelSelector", "labelSelector": {}}}),
        ),
    ]
}

/// The required rights, or the refusal.
fn asked(decision: Decision) -> Result<Vec<String>, String> {
    match decision {
        Decision::Deny { message, .. } => Err(message),
        Decision::Allow { requirements, .. } => Ok(requirements
            .into_iter()
            .map(|requirement| {
                let options: Vec<_> = requirement
                    .any_of
                    .into_iter()
                    .map(|a| {
                        format!(
                            "{} {} {}",
                            a.verb,
                            a.resource,
                            a.name.unwrap_or_else(|| "*".into())
                        )
                    })
                    .collect();
                options.join(" or ")
            })
            .collect()),
    }
}

fn moved(
    old: Option<&[(&str, &str)]>,
    new: Option<&[(&str, &str)]>,
    guards: &Guards,
) -> Result<Vec<String>, String> {
    let (old, new) = (old.map(|l| cluster("mc1", l)), new.map(|l| cluster("mc1", l)));
    let user = user("dev1");
    let change = managed_cluster::Change {
        user: &user,
        old: old.as_ref(),
        new: new.as_ref(),
    };
    let observed = managed_cluster::Observed {
        sets: sets(),
        ..managed_cluster::Observed::default()
    };
    asked(managed_cluster::decide(&change, &observed, guards))
}

const KEY: &str = "cluster.open-cluster-management.io/clusterset";
type Labels<'a> = Option<&'a [(&'a str, &'a str)]>;

fn create(
    spec: Value,
    name: &str,
    gained: usize,
    keys: Option<Result<ExclusiveKeys, String>>,
    guards: &Guards,
) -> Result<Vec<String>, String> {
    let mut new = set(name, spec);
    managed_cluster_set::mutate(None, &mut new, false, guards).unwrap();
    let user = user("sre1");
    let change = managed_cluster_set::Change {
        user: &user,
        old: None,
        new: Some(&new),
    };
    let observed = managed_cluster_set::Observed {
        keys,
        gained,
        lost: 0,
    };
    asked(managed_cluster_set::decide(&change, &observed, guards))
}

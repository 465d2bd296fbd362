//! Pure: what the agent reports about its cluster.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::{
        api::resource::Quantity as Written, apis::meta::v1::Condition, util::intstr::IntOrString,
    },
};
use kube::ResourceExt;
use serde_json::{Value, json};
use writ_api::cluster::{
    ClusterClaim, ManagedCluster,
    cluster_claim::{CLAIM_AGENT, CLAIM_AGENT_NAMESPACE, SPOKE_ONLY_LABEL},
    managed_cluster::{CONDITION_AVAILABLE, CONDITION_JOINED, ManagedClusterVersion, ReportedClaim},
};
use writ_runtime::{
    condition::{self, Wanted},
    quantity::Quantity,
};

/// Condition: the labels that the agent was told to set are set, or why not.
pub const CONDITION_LABELS: &str = "ClusterLabelsApplied";
/// How many claims are reported besides the reserved ones.
const MAX_CLAIMS: usize = 20;
/// The claims that are always reported, first.
const RESERVED: [&str; 6] = [
    CLAIM_AGENT,
    CLAIM_AGENT_NAMESPACE,
    "id.k8s.io",
    "kubeversion.open-cluster-management.io",
    "platform.open-cluster-management.io",
    "product.open-cluster-management.io",
];

/// What the agent knows about its cluster.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Whether the API server of the cluster answers.
    pub healthy: bool,
    /// Its version.
    pub version: Option<String>,
    /// The sums over its nodes: capacity and allocatable.
    pub resources: Resources,
    /// Its claims.
    pub claims: Vec<ReportedClaim>,
    /// What became of the labels that the agent was told to set; `None` if it was told none.
    pub labels: Option<Result<(), String>>,
}

/// Sums over the nodes of a cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    /// What all nodes have.
    pub capacity: BTreeMap<String, IntOrString>,
    /// What the nodes that take new pods have left for pods.
    pub allocatable: BTreeMap<String, IntOrString>,
}

/// Adds the nodes up.
pub fn resources<'a>(nodes: impl Iterator<Item = &'a Node>) -> Resources {
    let (mut capacity, mut allocatable) = (BTreeMap::new(), BTreeMap::new());
    for node in nodes {
        let Some(status) = &node.status else { continue };
        add(&mut capacity, status.capacity.as_ref());
        let cordoned = node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false);
        if !cordoned {
            add(&mut allocatable, status.allocatable.as_ref());
        }
    }
    let write = |sums: BTreeMap<String, Quantity>| {
        sums.into_iter()
            .map(|(name, sum)| (name, IntOrString::String(sum.to_string())))
            .collect()
    };
    Resources {
        capacity: write(capacity),
        allocatable: write(allocatable),
    }
}

fn add(sums: &mut BTreeMap<String, Quantity>, of_node: Option<&BTreeMap<String, Written>>) {
    for (name, written) in of_node.into_iter().flatten() {
        // One quantity that nobody can read does not hide the others.
        if let Some(quantity) = Quantity::parse(&written.0) {
            let sum = sums.entry(name.clone()).or_default();
            *sum = sum.plus(quantity);
        }
    }
}

/// The claims to report: the reserved ones, then as many others as fit, by name.
pub fn claims<'a>(
    found: impl Iterator<Item = &'a ClusterClaim>,
    controllers: &[String],
    namespace: &str,
) -> Vec<ReportedClaim> {
    let mut all: BTreeMap<String, String> = found
        .filter(|claim| !claim.labels().contains_key(SPOKE_ONLY_LABEL))
        .filter_map(|claim| Some((claim.name_any(), claim.spec.value.clone()?)))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    all.insert(CLAIM_AGENT.into(), controllers.join(","));
    all.insert(CLAIM_AGENT_NAMESPACE.into(), namespace.to_owned());
    let mut claims: Vec<ReportedClaim> = RESERVED
        .iter()
        .filter_map(|name| {
            let value = all.remove(*name).filter(|v| !v.is_empty())?;
            Some(ReportedClaim {
                name: (*name).to_owned(),
                value,
            })
        })
        .collect();
    claims.extend(
        all.into_iter()
            .take(MAX_CLAIMS)
            .map(|(name, value)| ReportedClaim { name, value }),
    );
    claims
}

/// The change of the status that makes it tell the facts; `None` if it does already.
pub fn status_patch(cluster: &ManagedCluster, facts: &Facts, now: Timestamp) -> Option<Value> {
    let current = cluster.status.clone().unwrap_or_default();
    let mut wanted = current.clone();
    let generation = cluster.metadata.generation;
    let set = |conditions: &mut Vec<Condition>, want: Wanted| {
        condition::set(conditions, &want, generation, now);
    };
    if !condition::is_true(&current.conditions, CONDITION_JOINED) {
        let joined = Wanted::new(
            CONDITION_JOINED,
            true,
            "ManagedClusterJoined",
            "Managed cluster joined",
        );
        set(&mut wanted.conditions, joined);
    }
    set(
        &mut wanted.conditions,
        if facts.healthy {
            Wanted::new(
                CONDITION_AVAILABLE,
                true,
                "ManagedClusterAvailable",
                "Managed cluster is available",
            )
        } else {
            Wanted::new(
                CONDITION_AVAILABLE,
                false,
                "ManagedClusterKubeAPIServerUnavailable",
                "The kube-apiserver is not ok",
            )
        },
    );
    match &facts.labels {
        None => {
            condition::remove(&mut wanted.conditions, CONDITION_LABELS);
        }
        Some(Ok(())) => set(
            &mut wanted.conditions,
            Wanted::new(CONDITION_LABELS, true, "Applied", ""),
        ),
        Some(Err(message)) => set(
            &mut wanted.conditions,
            Wanted::new(CONDITION_LABELS, false, "Refused", message.clone()),
        ),
    }
    // What others put there stays, as upstream.
    wanted.capacity.extend(facts.resources.capacity.clone());
    wanted.allocatable.extend(facts.resources.allocatable.clone());
    if let Some(version) = &facts.version {
        wanted.version = Some(ManagedClusterVersion {
            kubernetes: Some(version.clone()),
        });
    }
    wanted.cluster_claims.clone_from(&facts.claims);
    if wanted == current {
        return None;
    }
    Some(json!({
        "metadata": {"uid": cluster.metadata.uid, "resourceVersion": cluster.metadata.resource_version},
        "status": {
            "conditions": wanted.conditions,
            "capacity": wanted.capacity,
            "allocatable": wanted.allocatable,
            "version": wanted.version,
            "clusterClaims": wanted.cluster_claims,
        },
    }))
}

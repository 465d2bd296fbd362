//! Pure: what the agent reports about its cluster.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::{
    api::core::v1::Node,
    apimachinery::pkg::{api::resource::Quantity as Written, apis::meta::v1::Condition},
};
use kube::ResourceExt;
use serde_json::{Value, json};
use writ_api::{
    NumberOrText,
    cluster::{
        ClusterClaim, ManagedCluster,
        cluster_claim::{CLAIM_AGENT, CLAIM_AGENT_NAMESPACE, SPOKE_ONLY_LABEL},
        managed_cluster::{
            CONDITION_AVAILABLE, CONDITION_JOINED, ManagedClusterVersion, ReportedClaim, ReportedNamespace,
        },
    },
};
use writ_controller::{
    Error,
    condition::{self, Wanted},
};
use writ_runtime::quantity::Quantity;

use super::{
    identity::Lifetime,
    model::{Facts, NamespaceChanges, Resources},
};

/// Condition: the configured labels are set, or why not.
pub const CONDITION_LABELS: &str = "ClusterLabelsApplied";
/// Condition: the certificate of the agent was renewed, or why not.
pub const CONDITION_ROTATED: &str = "ClusterCertificateRotated";
/// Condition of a namespace that a set asks for: it exists, or why not.
pub const CONDITION_NAMESPACE: &str = "NamespaceAvailable";
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

/// Compares the namespaces that sets ask for with those that carry the mark, and whether it says `true`.
pub fn namespace_changes<'a>(
    asked: &[ReportedNamespace],
    marked: impl Iterator<Item = (&'a str, bool)>,
) -> NamespaceChanges {
    let asked: BTreeSet<String> = asked.iter().map(|namespace| namespace.name.clone()).collect();
    let marked: BTreeSet<String> = marked
        .filter(|(_, is_asked)| *is_asked)
        .map(|(name, _)| name.to_owned())
        .collect();
    NamespaceChanges {
        apply: asked.difference(&marked).cloned().collect(),
        release: marked.difference(&asked).cloned().collect(),
    }
}

/// The sums over these nodes.
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
            .map(|(name, sum)| (name, sum.to_string().into()))
            .collect()
    };
    Resources {
        capacity: write(capacity),
        allocatable: write(allocatable),
    }
}

fn add(sums: &mut BTreeMap<String, Quantity>, of_node: Option<&BTreeMap<String, Written>>) {
    for (name, written) in of_node.into_iter().flatten() {
        // A malformed quantity does not hide the others.
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

/// The condition about a renewal: the life of the new certificate, as far as it can be read, or why there is none.
pub fn renewal(renewed: Result<Option<Lifetime>, &Error>) -> Wanted {
    match renewed {
        Ok(life) => Wanted::new(
            CONDITION_ROTATED,
            true,
            "ClientCertificateUpdated",
            life.map_or_else(
                || "client certificate rotated".to_owned(),
                |life| {
                    // In Go's format, as upstream.
                    let [from, until] =
                        [life.from, life.until].map(|time| time.strftime("%Y-%m-%d %H:%M:%S +0000 UTC"));
                    format!("client certificate rotated starting from {from} to {until}")
                },
            ),
        ),
        Err(error) => Wanted::new(
            CONDITION_ROTATED,
            false,
            "ClientCertificateUpdateFailed",
            format!("Failed to rotated client certificate {error}"),
        ),
    }
}

/// The patch that makes the status report the facts; `None` if it does.
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
        match &facts.unhealthy {
            None => Wanted::new(
                CONDITION_AVAILABLE,
                true,
                "ManagedClusterAvailable",
                "Managed cluster is available",
            ),
            Some(why) => Wanted::new(
                CONDITION_AVAILABLE,
                false,
                "ManagedClusterKubeAPIServerUnavailable",
                format!("The kube-apiserver is not ok, {why}"),
            ),
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
    // Capacity that others report stays, as upstream. Only the agent reports what is allocatable.
    wanted.capacity.extend(facts.resources.capacity.clone());
    wanted.allocatable.clone_from(&facts.resources.allocatable);
    if let Some(version) = &facts.version {
        wanted.version = Some(ManagedClusterVersion {
            kubernetes: Some(version.clone()),
        });
    }
    wanted.cluster_claims.clone_from(&facts.claims);
    for namespace in &mut wanted.managed_namespaces {
        let want = match facts.namespaces.get(&namespace.name) {
            None => continue,
            Some(Ok(())) => Wanted::new(
                CONDITION_NAMESPACE,
                true,
                "NamespaceApplied",
                "Namespace successfully applied and managed",
            ),
            Some(Err(message)) => Wanted::new(
                CONDITION_NAMESPACE,
                false,
                "NamespaceApplyFailed",
                format!("Failed to apply namespace: {message}"),
            ),
        };
        set(&mut namespace.conditions, want);
    }
    if wanted == current {
        return None;
    }
    // A merge patch removes a field only by null.
    let allocatable: BTreeMap<&String, Option<&NumberOrText>> = current
        .allocatable
        .keys()
        .chain(wanted.allocatable.keys())
        .map(|name| (name, wanted.allocatable.get(name)))
        .collect();
    let mut status = json!({
        "conditions": wanted.conditions,
        "capacity": wanted.capacity,
        "allocatable": allocatable,
        "version": wanted.version,
        "clusterClaims": wanted.cluster_claims,
    });
    // The hub owns this list: it is sent only if a condition in it changed.
    if let Some(status) = status.as_object_mut()
        && wanted.managed_namespaces != current.managed_namespaces
    {
        status.insert("managedNamespaces".into(), json!(wanted.managed_namespaces));
    }
    Some(json!({
        "metadata": {"uid": cluster.metadata.uid, "resourceVersion": cluster.metadata.resource_version},
        "status": status,
    }))
}

//! Accounts in namespaces that are bound to cluster sets: one child per cluster, and what the parent reports of them.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::{ResourceExt, api::ObjectMeta};
use writ_api::authentication::{
    ANNOTATION_ADOPT, ANNOTATION_PARENT, ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS, CONDITION_PRESENT,
    ClusterCounts, FailingCluster, LABEL_PARENT_UID, ManagedServiceAccount, ManagedServiceAccountSpec,
    ManagedServiceAccountStatus,
};
use writ_controller::condition::{self, Wanted};

use crate::managed_service_account::model::{Family, Namesakes, Place};

/// How many failing clusters a status names.
const NAMED: usize = 100;

/// The annotation that has no effect on a parent, as its condition names it.
const ADOPT_IGNORED: &str = "metadata.annotations[authentication.writ.dev/adopt]";

/// The uid of the account in a cluster-set namespace that this one is a child of.
fn parent_uid(account: &ManagedServiceAccount) -> Option<&str> {
    account.labels().get(LABEL_PARENT_UID).map(String::as_str)
}

/// Returns true if the account is a child of `parent`. A child that lost its label is known by its annotation, unless it is
/// older than the parent: then it belongs to a former account of that name.
pub fn is_child(parent: &ManagedServiceAccount, account: &ManagedServiceAccount) -> bool {
    if let Some(uid) = parent_uid(account) {
        return Some(uid) == parent.metadata.uid.as_deref();
    }
    account.annotations().get(ANNOTATION_PARENT) == Some(&full_name(parent))
        && account.metadata.creation_timestamp >= parent.metadata.creation_timestamp
}

/// Returns true if the account is a child, whether or not its parent still exists.
pub fn has_parent(account: &ManagedServiceAccount) -> bool {
    parent_uid(account).is_some() || account.annotations().contains_key(ANNOTATION_PARENT)
}

fn full_name(parent: &ManagedServiceAccount) -> String {
    format!("{}/{}", parent.namespace().unwrap_or_default(), parent.name_any())
}

/// The account that a cluster gets for one in a cluster-set namespace. It never adopts: the author of the parent cannot know
/// which object has the name on each of the clusters.
pub fn child(parent: &ManagedServiceAccount, cluster: &str) -> ManagedServiceAccount {
    let mut annotations: BTreeMap<String, String> = [ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), parent.annotations().get(key)?.clone())))
        .collect();
    annotations.insert(ANNOTATION_PARENT.into(), full_name(parent));
    ManagedServiceAccount {
        metadata: ObjectMeta {
            name: Some(parent.name_any()),
            namespace: Some(cluster.into()),
            labels: Some([(LABEL_PARENT_UID.to_owned(), parent.uid().unwrap_or_default())].into()),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: ManagedServiceAccountSpec {
            ttl_seconds_after_creation: None,
            ..parent.spec.clone()
        },
        status: None,
    }
}

/// Plans the children. `found` holds every other account of that name.
pub fn family(parent: &ManagedServiceAccount, place: &Place, found: &Namesakes) -> Family {
    let mut family = Family::default();
    let none = BTreeSet::new();
    let clusters = match place {
        Place::Sets(clusters) if parent.metadata.deletion_timestamp.is_none() => clusters,
        _ => &none,
    };
    for cluster in clusters {
        match found.get(cluster) {
            Some(other) if !is_child(parent, other) => {
                let named = other.annotations().get(ANNOTATION_PARENT);
                let owner = named.map_or_else(|| "another account".into(), |of| format!("the account {of}"));
                family.taken.insert(cluster.clone(), owner);
            }
            _ => family.wanted.push(child(parent, cluster)),
        }
    }
    family.surplus = found
        .iter()
        .filter(|(namespace, account)| is_child(parent, account) && !clusters.contains(*namespace))
        .map(|(_, account)| account.clone())
        .collect();
    family
}

/// The status of an account that is not in the namespace of a cluster.
pub fn family_status(
    parent: &ManagedServiceAccount,
    place: &Place,
    family: &Family,
    found: &Namesakes,
    now: Timestamp,
) -> ManagedServiceAccountStatus {
    let mut status = parent.status.clone().unwrap_or_default();
    let generation = parent.metadata.generation;
    let mut set = |wanted: &Wanted| condition::set(&mut status.conditions, wanted, generation, now);
    let Place::Sets(clusters) = place else {
        set(&Wanted::new(
            CONDITION_PRESENT,
            false,
            "NamespaceNotBound",
            "the namespace is neither that of an accepted cluster nor bound to a ManagedClusterSet that exists; create a \
             ManagedClusterSetBinding here, or the account in the namespace of a cluster",
        ));
        condition::remove(&mut status.conditions, "Conflict");
        status.clusters = None;
        return status;
    };
    let mut counts = ClusterCounts {
        total: clusters.len().try_into().unwrap_or(i32::MAX),
        ..ClusterCounts::default()
    };
    let mut silent: Vec<&str> = Vec::new();
    for cluster in clusters {
        if let Some(owner) = family.taken.get(cluster) {
            counts.failing.push(FailingCluster {
                name: cluster.clone(),
                reason: "Conflict".into(),
                message: format!("the name is taken there by {owner}"),
            });
            continue;
        }
        if let Some(why) = family.unwritten.get(cluster) {
            counts.failing.push(FailingCluster {
                name: cluster.clone(),
                reason: "WriteFailed".into(),
                message: condition::clip(why, 256),
            });
            continue;
        }
        let conditions = found
            .get(cluster)
            .and_then(|child| child.status.as_ref())
            .map_or(&[] as &[Condition], |status| &status.conditions);
        if condition::is_true(conditions, "TokenReported") {
            counts.ready += 1;
        } else if let Some(failed) = condition::find(conditions, "TokenReported") {
            counts.failing.push(FailingCluster {
                name: cluster.clone(),
                reason: failed.reason.clone(),
                message: condition::clip(&failed.message, 256),
            });
        } else {
            silent.push(cluster);
        }
    }
    let mut ignored = Vec::new();
    if !parent.spec.rotation.enabled {
        ignored.push("spec.rotation.enabled");
    }
    if parent.annotations().contains_key(ANNOTATION_ADOPT) {
        ignored.push(ADOPT_IGNORED);
    }
    condition::set_ignored(&mut status.conditions, &ignored, generation, now);
    let mut set = |wanted: &Wanted| condition::set(&mut status.conditions, wanted, generation, now);
    let (ready, total, failing) = (counts.ready, counts.total, counts.failing.len());
    counts.failing.truncate(NAMED);
    if ready == total {
        let message = format!("on all {total} clusters");
        set(&Wanted::new(
            CONDITION_PRESENT,
            true,
            "ServiceAccountPresent",
            message,
        ));
    } else {
        let mut message = format!("on {ready} of {total} clusters; {failing} fail");
        if !silent.is_empty() {
            message.push_str("; no report yet from ");
            message.push_str(&name_first(&silent));
        }
        let reason = if failing == 0 {
            "Progressing"
        } else {
            "SomeFailing"
        };
        set(&Wanted::new(CONDITION_PRESENT, false, reason, message));
    }
    if family.taken.is_empty() {
        condition::remove(&mut status.conditions, "Conflict");
    } else {
        let names: Vec<&str> = family.taken.keys().take(10).map(String::as_str).collect();
        set(&Wanted::new(
            "Conflict",
            true,
            "NameTaken",
            format!(
                "on {} clusters the name is taken by another account: {}",
                family.taken.len(),
                names.join(", ")
            ),
        ));
    }
    status.clusters = Some(counts);
    status
}

/// The first of these clusters by name, and how many more there are.
fn name_first(clusters: &[&str]) -> String {
    match clusters.split_at_checked(10) {
        Some((first, rest @ [_, ..])) => format!("{} and {} more", first.join(", "), rest.len()),
        _ => clusters.join(", "),
    }
}

/// The status of an account whose namespace has become a cluster's, without the report on children; the rest is the
/// cluster's agent's. `None` if there is no such report.
pub fn childless_status(account: &ManagedServiceAccount) -> Option<ManagedServiceAccountStatus> {
    let mut status = account.status.clone()?;
    status.clusters.take()?;
    for type_ in [CONDITION_PRESENT, "Conflict"] {
        condition::remove(&mut status.conditions, type_);
    }
    Some(status)
}

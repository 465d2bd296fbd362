//! Decides, without asking anybody: which accounts a cluster-set namespace needs on which clusters, what an
//! account of the older group owns, when an account ends, when its Secret needs a look, and what is reported.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::core::v1::Secret,
    apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference},
};
use kube::{Resource, ResourceExt, api::ObjectMeta};
use writ_api::{
    authentication::{
        ANNOTATION_ADOPT, ANNOTATION_PARENT, ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS,
        ANNOTATION_TOKEN_REQUEST, CONDITION_PRESENT, ClusterCounts, FailingCluster, LABEL_PARENT_UID,
        ManagedServiceAccount, ManagedServiceAccountSpec, ManagedServiceAccountStatus, Rotation, digest,
    },
    proxy,
};
use writ_controller::{
    Error,
    condition::{self, Wanted},
};

/// How many failing clusters a status names.
const NAMED: usize = 100;

/// What an account in a cluster-set namespace asks for in vain, as the condition names it.
const ADOPT_IGNORED: &str = "metadata.annotations[authentication.writ.dev/adopt]";

/// How long the status of an account may lag behind its Secret before the hub asks for a repair.
pub const REPORT_LAG: SignedDuration = SignedDuration::from_secs(2);

/// When an account ends by its own time to live.
pub fn ends_at(account: &ManagedServiceAccount) -> Option<Timestamp> {
    let ttl = account.spec.ttl_seconds_after_creation?;
    let created = account.metadata.creation_timestamp.as_ref()?.0;
    created.saturating_add(SignedDuration::from_secs(ttl.into())).ok()
}

/// The uid of the account in a cluster-set namespace that this one is a child of.
fn parent_uid(account: &ManagedServiceAccount) -> Option<&str> {
    account.labels().get(LABEL_PARENT_UID).map(String::as_str)
}

/// Whether this account is a child of that one. One that lost its label is known by its annotation, unless it is older: then
/// it is the child of another one that had the name.
pub fn is_child(parent: &ManagedServiceAccount, account: &ManagedServiceAccount) -> bool {
    if let Some(uid) = parent_uid(account) {
        return Some(uid) == parent.metadata.uid.as_deref();
    }
    account.annotations().get(ANNOTATION_PARENT) == Some(&full_name(parent))
        && account.metadata.creation_timestamp >= parent.metadata.creation_timestamp
}

/// Whether this account is a child that somebody made, whether or not that is still there.
pub fn has_parent(account: &ManagedServiceAccount) -> bool {
    parent_uid(account).is_some() || account.annotations().contains_key(ANNOTATION_PARENT)
}

fn full_name(parent: &ManagedServiceAccount) -> String {
    format!("{}/{}", parent.namespace().unwrap_or_default(), parent.name_any())
}

/// The account that a cluster gets for one in a cluster-set namespace. It takes nothing over there: whoever may write in
/// that namespace knows nothing of what has the name on each of the clusters.
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

/// Where an account stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In the namespace of a cluster: its agent does the rest.
    Cluster,
    /// In a namespace with valid bindings: these are the clusters of the bound sets.
    Sets(BTreeSet<String>),
    /// In any other namespace.
    Nowhere,
}

/// What an account in a cluster-set namespace needs.
#[derive(Debug, Default)]
pub struct Family {
    /// Children to create or bring into shape.
    pub wanted: Vec<ManagedServiceAccount>,
    /// Children whose cluster has left, or whose parent is no parent any more.
    pub surplus: Vec<ManagedServiceAccount>,
    /// Clusters where somebody else has the name.
    pub taken: BTreeMap<String, String>,
    /// Clusters whose child could not be written, and why.
    pub unwritten: BTreeMap<String, String>,
}

/// Plans the children. `found` holds every account of that name, by namespace.
pub fn family(
    parent: &ManagedServiceAccount,
    place: &Place,
    found: &BTreeMap<String, ManagedServiceAccount>,
) -> Family {
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
                let owner = named.map_or_else(|| "somebody else".into(), |of| format!("the account {of}"));
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
    found: &BTreeMap<String, ManagedServiceAccount>,
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
            message.push_str(&named(&silent));
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
                "on {} clusters an account of that name belongs to somebody else: {}",
                family.taken.len(),
                names.join(", ")
            ),
        ));
    }
    status.clusters = Some(counts);
    status
}

/// The first of these clusters by name, and how many more there are.
fn named(clusters: &[&str]) -> String {
    match clusters.split_at_checked(10) {
        Some((first, rest @ [_, ..])) => format!("{} and {} more", first.join(", "), rest.len()),
        _ => clusters.join(", "),
    }
}

/// The status of an account whose namespace has become a cluster's: what was said of children is no longer true, and the
/// rest is for the cluster's agent to say. `None` if nothing of that is said.
pub fn childless_status(account: &ManagedServiceAccount) -> Option<ManagedServiceAccountStatus> {
    let mut status = account.status.clone()?;
    status.clusters.take()?;
    for type_ in [CONDITION_PRESENT, "Conflict"] {
        condition::remove(&mut status.conditions, type_);
    }
    Some(status)
}

/// The account that one of the older group owns.
pub fn owned(from: &proxy::ManagedServiceAccount) -> ManagedServiceAccount {
    let mut annotations: BTreeMap<String, String> = [ANNOTATION_ADOPT, ANNOTATION_SECRET_KEYS]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), from.annotations().get(key)?.clone())))
        .collect();
    let rotation = if from.spec.rotation.enabled {
        "enabled"
    } else {
        "disabled"
    };
    annotations.insert(ANNOTATION_ROTATION.into(), rotation.into());
    ManagedServiceAccount {
        metadata: ObjectMeta {
            name: Some(from.name_any()),
            namespace: from.namespace(),
            annotations: Some(annotations),
            owner_references: from.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: ManagedServiceAccountSpec {
            audiences: from.spec.audiences.clone(),
            rotation: Rotation {
                enabled: true,
                validity: from.spec.rotation.validity.clone(),
            },
            ttl_seconds_after_creation: None,
        },
        status: None,
    }
}

/// Whether this object of the older group owns the account.
pub fn owns(from: &proxy::ManagedServiceAccount, account: &ManagedServiceAccount) -> bool {
    account.owner_references().iter().any(|owner: &OwnerReference| {
        owner.controller == Some(true) && Some(&owner.uid) == from.uid().as_ref()
    })
}

/// The status of an object of the older group: its account's, that the name is taken, or why the account was refused.
pub fn owner_status(
    from: &proxy::ManagedServiceAccount,
    account: Option<&ManagedServiceAccount>,
    refused: Option<&Error>,
    now: Timestamp,
) -> ManagedServiceAccountStatus {
    let mut status = status_of_account(from, account, now);
    if let Some(error) = refused {
        let message = condition::clip(&error.to_string(), 1024);
        for type_ in [CONDITION_PRESENT, "TokenReported"] {
            let wanted = Wanted::new(type_, false, error.reason(), message.clone());
            condition::set(&mut status.conditions, &wanted, from.metadata.generation, now);
        }
    }
    status
}

fn status_of_account(
    from: &proxy::ManagedServiceAccount,
    account: Option<&ManagedServiceAccount>,
    now: Timestamp,
) -> ManagedServiceAccountStatus {
    match account {
        Some(account) if owns(from, account) => {
            let mut status = account.status.clone().unwrap_or_default();
            status.secret_digest = None;
            for condition in &mut status.conditions {
                // Their generation is the account's; it is ours where it is up to date.
                condition.observed_generation = (condition.observed_generation
                    == account.metadata.generation)
                    .then_some(from.metadata.generation)
                    .flatten();
            }
            status
        }
        Some(_) => {
            let mut status = from.status.clone().unwrap_or_default();
            let message = "a ManagedServiceAccount of that name in authentication.open-cluster-management.io belongs \
                           to somebody else; delete it, or choose another name";
            let generation = from.metadata.generation;
            for wanted in [
                Wanted::new("Conflict", true, "NameTaken", message),
                Wanted::new(CONDITION_PRESENT, false, "Conflict", message),
            ] {
                condition::set(&mut status.conditions, &wanted, generation, now);
            }
            status
        }
        None => from.status.clone().unwrap_or_default(),
    }
}

/// A Secret that is watched, without what is secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenSecret {
    /// Its digest.
    pub digest: String,
    /// Its version.
    pub version: String,
    /// Its uid.
    pub uid: String,
    /// Whether it was made for an account and has lost its owner, so that it would outlive the account.
    pub left: bool,
}

impl SeenSecret {
    /// What is kept of a Secret.
    pub fn of(secret: &Secret) -> Self {
        Self {
            digest: digest::of(secret),
            version: secret.resource_version().unwrap_or_default(),
            uid: secret.uid().unwrap_or_default(),
            left: secret.owner_references().is_empty()
                && secret.annotations().contains_key(ANNOTATION_TOKEN_REQUEST),
        }
    }
}

/// Why the agent must look at the Secret; `None` if it is as reported. `went` is the version at which it was deleted.
pub fn suspicion(
    account: &ManagedServiceAccount,
    seen: Option<&SeenSecret>,
    went: Option<&str>,
) -> Option<String> {
    let reported = account.status.as_ref()?.secret_digest.as_ref()?;
    match seen {
        Some(seen) if seen.digest == *reported => None,
        Some(seen) => Some(format!("changed-{}", seen.version)),
        None => Some(went.map_or_else(|| "missing".into(), |went| format!("missing-{went}"))),
    }
}

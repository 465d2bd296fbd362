//! Pure: what the hub should do for one cluster, given what is there.

use std::time::Duration;

use kube::ResourceExt;
use writ_api::cluster::{
    ManagedCluster,
    managed_cluster::{
        CONDITION_AVAILABLE, CONDITION_HUB_ACCEPTED, CONDITION_JOINED, TAINT_UNAVAILABLE, TAINT_UNREACHABLE,
        Taint, TaintEffect,
    },
};
use writ_controller::condition::{self, Status, Wanted};

use super::{FORCE_ANNOTATION, ISSUED_ANNOTATION, TAKEN_OVER_ANNOTATION, rights::Level};
use crate::admission::managed_cluster::reserved;

/// Keeps a cluster that is deleted until everything of it is gone.
pub const FINALIZER: &str = "cluster.open-cluster-management.io/api-resource-cleanup";
/// Condition: the cluster is being deleted and something is left.
pub const CONDITION_DELETING: &str = "Deleting";
/// Condition: the clocks of the hub and of the agent agree.
pub const CONDITION_CLOCK: &str = "ManagedClusterConditionClockSynced";
/// A lease may be silent, and clocks may differ, for this many times its duration.
const GRACE: u32 = 5;

/// What is there besides the ManagedCluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observed {
    /// For how long the lease has not been renewed; `None` if there is none.
    pub silent_for: Option<Duration>,
    /// How far the agent's clock was from the hub's when the lease was renewed last; `None` if that was not seen.
    pub clock_off: Option<Duration>,
    /// How many ManifestWorks are left in its namespace.
    pub works: usize,
    /// How many ManagedClusterAddOns are left in its namespace.
    pub addons: usize,
}

/// What to do.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The namespace and the lease are wanted.
    pub home: bool,
    /// How much the agent may do.
    pub level: Level,
    /// The finalizer of this controller is wanted.
    pub finalizer: bool,
    /// What to record about an agent that had joined before, if nothing is on record.
    pub taken_over: Option<bool>,
    /// The taints, if they should change.
    pub taints: Option<Vec<Taint>>,
    /// The conditions to set; others stay.
    pub conditions: Vec<Wanted>,
    /// What to delete next.
    pub delete: Delete,
    /// When to look again although nothing happened.
    pub again_in: Option<Duration>,
}

/// What goes next while a cluster is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// Nothing.
    Nothing,
    /// The add-ons.
    AddOns,
    /// The works, once the add-ons are gone.
    Works,
    /// The works, with their finalizers taken off: nobody will do it.
    WorksByForce,
}

/// Plans for one cluster.
pub fn plan(cluster: &ManagedCluster, observed: &Observed) -> Plan {
    if cluster.metadata.deletion_timestamp.is_some() {
        return leaving(cluster, observed);
    }
    let conditions = cluster
        .status
        .as_ref()
        .map(|s| s.conditions.as_slice())
        .unwrap_or_default();
    let reserved = reserved(&cluster.name_any());
    let accepted = cluster.spec.hub_accepts_client && reserved.is_none();
    let mut wanted = Vec::new();
    if let Some(why) = reserved.filter(|_| cluster.spec.hub_accepts_client) {
        wanted.push(Wanted::new(
            CONDITION_HUB_ACCEPTED,
            false,
            "Error",
            format!("its name cannot be the name of a cluster: {why}"),
        ));
    } else if accepted {
        wanted.push(Wanted::new(
            CONDITION_HUB_ACCEPTED,
            true,
            "HubClusterAdminAccepted",
            "Accepted by hub cluster admin",
        ));
    } else if condition::find(conditions, CONDITION_HUB_ACCEPTED).is_some() {
        wanted.push(Wanted::new(
            CONDITION_HUB_ACCEPTED,
            false,
            "HubClusterAdminDenied",
            "Denied by hub cluster admin",
        ));
    }
    let mut available =
        condition::find(conditions, CONDITION_AVAILABLE).map(|c| c.status.as_str().to_owned());
    let mut again_in = None;
    if let Some(silent_for) = observed.silent_for.filter(|_| accepted) {
        let grace = grace(cluster);
        if silent_for < grace {
            again_in = Some(grace.saturating_sub(silent_for));
        } else if available.is_some() {
            wanted.push(Wanted::new(
                CONDITION_AVAILABLE,
                Status::Unknown,
                "ManagedClusterLeaseUpdateStopped",
                "Registration agent stopped updating its lease.",
            ));
            available = Some("Unknown".into());
        }
    }
    if let Some(off) = observed.clock_off.filter(|_| accepted) {
        wanted.push(if off < grace(cluster) {
            Wanted::new(
                CONDITION_CLOCK,
                true,
                "ManagedClusterClockSynced",
                "The clock of the managed cluster is synced with the hub.",
            )
        } else {
            Wanted::new(
                CONDITION_CLOCK,
                false,
                "ManagedClusterClockOutOfSync",
                "The clock of hub and agent is out of sync. This may cause the Unknown status and affect agent \
                 functionalities.",
            )
        });
    }
    Plan {
        home: accepted,
        level: if accepted { Level::Member } else { Level::Nothing },
        finalizer: accepted || has_finalizer(cluster),
        taken_over: (accepted && is_new(cluster)).then(|| condition::is_true(conditions, CONDITION_JOINED)),
        taints: taints(&cluster.spec.taints, available.as_deref()),
        conditions: wanted,
        delete: Delete::Nothing,
        again_in,
    }
}

fn leaving(cluster: &ManagedCluster, observed: &Observed) -> Plan {
    let force = cluster
        .annotations()
        .get(FORCE_ANNOTATION)
        .is_some_and(|v| v == "true");
    let left = observed.works + observed.addons;
    let delete = match (observed.addons, observed.works, force) {
        (0, 0, _) => Delete::Nothing,
        (_, _, true) => Delete::WorksByForce,
        (0, _, false) => Delete::Works,
        (_, _, false) => Delete::AddOns,
    };
    let conditions = if left > 0 {
        vec![Wanted::new(
            CONDITION_DELETING,
            false,
            "ResourceRemaining",
            format!(
                "{} ManagedClusterAddOns and {} ManifestWorks remain; if the agent is gone for good, annotate the cluster \
                 with {FORCE_ANNOTATION}=true",
                observed.addons, observed.works
            ),
        )]
    } else {
        Vec::new()
    };
    Plan {
        home: false,
        level: if left > 0 && cluster.spec.hub_accepts_client && !force {
            Level::Leaving
        } else {
            Level::Nothing
        },
        finalizer: left > 0,
        taken_over: None,
        taints: None,
        conditions,
        delete,
        again_in: None,
    }
}

/// The taints that tell what `available` says, if they are not there yet. Other taints stay.
fn taints(current: &[Taint], available: Option<&str>) -> Option<Vec<Taint>> {
    let wanted = match available {
        Some("True") => None,
        Some("False") => Some(TAINT_UNAVAILABLE),
        _ => Some(TAINT_UNREACHABLE),
    };
    let is_system = |taint: &Taint| taint.key == TAINT_UNAVAILABLE || taint.key == TAINT_UNREACHABLE;
    let system: Vec<_> = current.iter().filter(|t| is_system(t)).collect();
    let right = match (wanted, system.as_slice()) {
        (None, []) => true,
        (Some(key), [only]) => only.key == key && only.effect == TaintEffect::NoSelect,
        _ => false,
    };
    if right {
        return None;
    }
    let mut taints: Vec<_> = current
        .iter()
        .filter(|t| !is_system(t) || Some(t.key.as_str()) == wanted)
        .cloned()
        .collect();
    match (wanted, taints.iter_mut().find(|t| is_system(t))) {
        (Some(_), Some(taint)) if taint.effect != TaintEffect::NoSelect => {
            taint.effect = TaintEffect::NoSelect;
            taint.time_added = None;
        }
        (Some(key), None) => taints.push(Taint {
            key: key.into(),
            value: None,
            effect: TaintEffect::NoSelect,
            time_added: None,
        }),
        _ => {}
    }
    Some(taints)
}

/// How often the agent renews the lease; zero and less mean the default.
fn lease_duration(cluster: &ManagedCluster) -> Duration {
    let seconds = cluster
        .spec
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok())
        .filter(|s| *s > 0);
    Duration::from_secs(seconds.unwrap_or(60))
}

/// For how long the lease may be silent, and how far the clocks may be apart.
pub fn grace(cluster: &ManagedCluster) -> Duration {
    lease_duration(cluster) * GRACE
}

/// Whether nothing is on record about the agent of the cluster.
fn is_new(cluster: &ManagedCluster) -> bool {
    let annotations = cluster.annotations();
    !annotations.contains_key(ISSUED_ANNOTATION) && !annotations.contains_key(TAKEN_OVER_ANNOTATION)
}

/// Whether this controller keeps the cluster.
pub fn has_finalizer(cluster: &ManagedCluster) -> bool {
    cluster.finalizers().iter().any(|f| f == FINALIZER)
}

//! What the hub does for one cluster, from joining to leaving.

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

use crate::{
    names::reserved,
    registration::model::{
        CONDITION_CLOCK, CONDITION_DELETING, Delete, FINALIZER, FORCE_ANNOTATION, ISSUED_ANNOTATION, Level,
        Observation, Plan, TAKEN_OVER_ANNOTATION,
    },
};

/// A lease may be silent, and clocks may differ, for this many times its duration.
const GRACE: u32 = 5;

/// Plans for one cluster.
pub fn plan(cluster: &ManagedCluster, observed: &Observation) -> Plan {
    if cluster.metadata.deletion_timestamp.is_some() {
        return plan_detach(cluster, observed);
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

fn plan_detach(cluster: &ManagedCluster, observed: &Observation) -> Plan {
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

/// The taints for the status of the condition `Available`, if they differ from the current ones. Other taints stay.
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

/// Returns true if nothing is on record about the agent of the cluster.
fn is_new(cluster: &ManagedCluster) -> bool {
    let annotations = cluster.annotations();
    !annotations.contains_key(ISSUED_ANNOTATION) && !annotations.contains_key(TAKEN_OVER_ANNOTATION)
}

/// Returns true if this controller's finalizer is on the cluster.
pub fn has_finalizer(cluster: &ManagedCluster) -> bool {
    cluster.finalizers().iter().any(|f| f == FINALIZER)
}

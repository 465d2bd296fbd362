//! Where the vote is stored: a Lease in an API server, or a table in a test.

use std::{future::Future, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{Api, api::PostParams};

/// The content of a Lease.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The identity of the holder; `None` after a release.
    pub holder: Option<String>,
    /// How long it is valid without a renewal.
    pub duration: Duration,
    /// How often it has changed hands.
    pub transitions: i32,
    /// The object as read, whose resourceVersion guards the next write.
    pub(super) lease: Lease,
}

impl Record {
    /// The record that makes `identity` the holder.
    pub(super) fn held_by(identity: &str, duration: Duration, current: Option<&Self>) -> Self {
        let same = current.is_some_and(|c| c.holder.as_deref() == Some(identity));
        let before = current.map_or(0, |c| c.transitions);
        Self {
            holder: Some(identity.into()),
            duration,
            transitions: if same || current.is_none() {
                before
            } else {
                before.saturating_add(1)
            },
            lease: current.map(|c| c.lease.clone()).unwrap_or_default(),
        }
    }

    /// The record that gives the Lease back.
    pub(super) fn released(self) -> Self {
        Self {
            holder: None,
            duration: Duration::from_secs(1),
            ..self
        }
    }
}

/// Why a read or write did not happen.
#[derive(Debug)]
pub struct Refused(pub String);

/// Reads and writes one Lease, comparing and swapping.
pub trait Store: Send {
    /// The Lease, if there is one.
    fn read(&self) -> impl Future<Output = Result<Option<Record>, Refused>> + Send;
    /// Writes the record if the Lease is still as it was read; returns it as stored.
    fn write(&self, record: Record) -> impl Future<Output = Result<Record, Refused>> + Send;
}

/// A Lease in an API server.
#[derive(Clone)]
pub struct Named {
    pub(super) api: Api<Lease>,
    pub(super) name: String,
}

impl Store for Named {
    async fn read(&self) -> Result<Option<Record>, Refused> {
        let lease = self
            .api
            .get_opt(&self.name)
            .await
            .map_err(|e| Refused(e.to_string()))?;
        Ok(lease.map(from_lease))
    }

    async fn write(&self, record: Record) -> Result<Record, Refused> {
        let now = MicroTime(Timestamp::now());
        let mut lease = record.lease;
        let fresh = lease.metadata.resource_version.is_none();
        lease.metadata.name = Some(self.name.clone());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if record.holder != spec.holder_identity {
            spec.acquire_time = Some(now.clone());
        }
        spec.holder_identity = record.holder;
        spec.lease_duration_seconds = Some(i32::try_from(record.duration.as_secs()).unwrap_or(i32::MAX));
        spec.lease_transitions = Some(record.transitions);
        spec.renew_time = Some(now);
        let params = PostParams::default();
        let written = if fresh {
            self.api.create(&params, &lease).await
        } else {
            self.api.replace(&self.name, &params, &lease).await
        };
        written.map(from_lease).map_err(|e| Refused(e.to_string()))
    }
}

fn from_lease(lease: Lease) -> Record {
    let spec = lease.spec.clone().unwrap_or_default();
    let seconds = u64::try_from(spec.lease_duration_seconds.unwrap_or_default()).unwrap_or_default();
    Record {
        // Other implementations release with an empty holder.
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        duration: Duration::from_secs(seconds),
        transitions: spec.lease_transitions.unwrap_or_default(),
        lease,
    }
}

//! Writes the part of the status of a sync that one field manager owns, and only if it differs.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client,
    api::{DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use writ_api::configsync::{Condition, ErrorSummary};
use writ_controller::{Error, error::Context as _, write};

use crate::model::Sync;

/// The reason of the condition `ReconcilerFinalizing` at the end of the teardown.
pub const FINALIZED: &str = "Finalized";

/// A condition without its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    type_: String,
    status: String,
    reason: String,
    message: String,
    /// The commit that it concerns.
    pub commit: Option<String>,
    /// The number of errors.
    pub errors: Option<ErrorSummary>,
    /// The fields that list the errors.
    pub error_refs: Option<Vec<String>>,
}

impl Wanted {
    /// A condition with these parts.
    pub fn new(type_: &str, status: &str, reason: &str, message: &str) -> Self {
        Self {
            type_: type_.into(),
            status: status.into(),
            reason: reason.into(),
            message: writ_controller::condition::clip(message, writ_controller::condition::MAX_MESSAGE),
            commit: None,
            errors: None,
            error_refs: None,
        }
    }

    /// The same as an existing condition.
    pub fn like(condition: &Condition) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        Self {
            type_: condition.type_.clone(),
            status: condition.status.clone(),
            reason: text(&condition.reason),
            message: text(&condition.message),
            commit: condition.commit.clone(),
            errors: condition.error_summary.clone(),
            error_refs: condition.error_source_refs.clone(),
        }
    }

    /// The condition as it is written to an empty status.
    #[cfg(test)]
    pub fn condition(&self) -> Condition {
        self.at(None, 0, &Time(now()))
    }

    /// Adds times. They move only when the condition changes.
    fn at(&self, current: Option<&Condition>, generation: i64, now: &Time) -> Condition {
        let text = |text: &String| (!text.is_empty()).then(|| text.clone());
        let mut condition = Condition {
            type_: self.type_.clone(),
            status: self.status.clone(),
            observed_generation: Some(generation),
            last_update_time: current.and_then(|c| c.last_update_time.clone()),
            last_transition_time: current.and_then(|c| c.last_transition_time.clone()),
            reason: text(&self.reason),
            message: text(&self.message),
            commit: self.commit.clone(),
            errors: None,
            error_source_refs: self.error_refs.clone(),
            error_summary: self.errors.clone(),
        };
        if current != Some(&condition) || condition.last_update_time.is_none() {
            condition.last_update_time = Some(now.clone());
        }
        if current.is_none_or(|c| c.status != condition.status) {
            condition.last_transition_time = Some(now.clone());
        }
        condition
    }
}

/// Applies fields and conditions to the status, if they differ from the status of `sync`.
pub async fn write(
    client: &Client,
    sync: &Sync,
    manager: &str,
    fields: Value,
    conditions: &[Wanted],
) -> Result<(), Error> {
    let Some(status) = difference(sync, fields, conditions, &Time(now())) else {
        return Ok(());
    };
    let id = &sync.id;
    let resource = id.kind.resource();
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), &id.namespace, &resource);
    let body = json!({
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": { "name": &*id.name, "namespace": &*id.namespace, "uid": sync.metadata.uid },
        "status": status,
    });
    let params = PatchParams::apply(manager).force();
    match api.patch_status(&id.name, &params, &Patch::Apply(&body)).await {
        Ok(_) => Ok(()),
        // The sync is gone, and its status with it.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => Err(error).context(|| format!("report the status of {id}")),
    }
}

/// The status to apply; `None` if nothing differs.
fn difference(sync: &Sync, fields: Value, conditions: &[Wanted], now: &Time) -> Option<Value> {
    let current = sync.status.conditions.as_deref().unwrap_or_default();
    let find = |type_: &str| current.iter().find(|c| c.type_ == type_);
    let wanted: Vec<Condition> = conditions
        .iter()
        .map(|wanted| wanted.at(find(&wanted.type_), sync.generation(), now))
        .collect();
    let same_conditions = wanted.iter().all(|c| find(&c.type_) == Some(c));
    let have = serde_json::to_value(&sync.status).unwrap_or_default();
    let mut status = fields;
    let same_fields = status.as_object().is_some_and(|fields| {
        fields.iter().all(|(key, want)| {
            let have = have.get(key).unwrap_or(&Value::Null);
            write::replacement(have, want).is_none()
        })
    });
    if same_conditions && same_fields {
        return None;
    }
    if let Some(fields) = status.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        fields.insert("conditions".into(), serde_json::to_value(wanted).ok()?);
    }
    Some(status)
}

/// The current time in whole seconds, as the API stores it.
pub fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{SyncId, SyncKind};

    fn sync() -> Sync {
        Sync {
            id: SyncId::new(SyncKind::Root, "config-management-system", "a"),
            metadata: kube::api::ObjectMeta {
                generation: Some(2),
                ..Default::default()
            },
            spec: Ok(writ_api::configsync::RootSyncSpec::default()),
            status: writ_api::configsync::SyncStatus::default(),
        }
    }

    #[test]
    fn unchanged_status_is_not_written_and_times_move_only_with_a_change() {
        let mut sync = sync();
        let at = |second| Time(Timestamp::from_second(second).unwrap());
        let stalled = [Wanted::new("Stalled", "True", "Validation", "a")];
        let first = difference(&sync, json!({"reconciler": "r"}), &stalled, &at(1)).unwrap();
        sync.status = serde_json::from_value(first).unwrap();
        assert_eq!(
            difference(&sync, json!({"reconciler": "r"}), &stalled, &at(2)),
            None
        );

        let changed = [Wanted::new("Stalled", "True", "Validation", "b")];
        let second = difference(&sync, json!({"reconciler": "r"}), &changed, &at(3)).unwrap();
        sync.status = serde_json::from_value(second).unwrap();
        let condition = &sync.status.conditions.as_ref().unwrap()[0];
        assert_eq!(condition.last_update_time, Some(at(3)));
        assert_eq!(condition.last_transition_time, Some(at(1)));
        assert_eq!(condition.observed_generation, Some(2));

        // A field that is no longer wanted differs.
        sync.status.last_synced_commit = Some("c".into());
        assert!(difference(&sync, json!({"lastSyncedCommit": null}), &changed, &at(4)).is_some());
    }
}

//! Events that people see with `kubectl describe`. Publishing one never fails a reconcile.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{
    Client, Resource,
    runtime::events::{Event, EventType, Recorder, Reporter},
};

use crate::{Error, condition::clip};

/// The longest note that the API accepts.
const MAX_NOTE: usize = 1024;

/// Publishes events in the name of one controller. Equal events are counted, not repeated.
#[derive(Clone)]
pub struct Events {
    recorder: Recorder,
}

impl Events {
    /// `controller` is who reports, such as `writ-hub/cluster_permission`.
    pub fn new(client: Client, controller: &str) -> Self {
        Self {
            recorder: Recorder::new(
                client,
                Reporter {
                    controller: controller.into(),
                    instance: None,
                },
            ),
        }
    }

    /// Says that something went as intended.
    pub async fn normal<K>(&self, about: &K, reason: &str, note: impl Into<String>)
    where
        K: Resource<DynamicType = ()>,
    {
        self.publish(&about.object_ref(&()), EventType::Normal, reason, note.into())
            .await;
    }

    /// Says that something needs a person's attention.
    pub async fn warning<K>(&self, about: &K, reason: &str, note: impl Into<String>)
    where
        K: Resource<DynamicType = ()>,
    {
        self.publish(&about.object_ref(&()), EventType::Warning, reason, note.into())
            .await;
    }

    /// The same for an object that is known by reference only.
    pub async fn publish(&self, about: &ObjectReference, type_: EventType, reason: &str, note: String) {
        self.publish_with(about, None, type_, reason, note).await;
    }

    /// The same, with the other object that it happened to. Events about different ones are not counted as one.
    pub async fn publish_with(
        &self,
        about: &ObjectReference,
        related: Option<ObjectReference>,
        type_: EventType,
        reason: &str,
        note: String,
    ) {
        let event = Event {
            type_,
            reason: reason.into(),
            note: Some(clip(&note, MAX_NOTE)),
            action: reason.into(),
            secondary: related,
        };
        if let Err(error) = self.recorder.publish(&event, about).await {
            tracing::debug!(%error, reason, "an event could not be published");
        }
    }

    /// Says why something could not be done for an object; it is tried again. A conflict is no news for people, and an event
    /// needs a server that answers.
    pub async fn failed(&self, about: &ObjectReference, error: &Error) {
        if !matches!(error.reason(), "Conflict" | "Unreachable") {
            self.publish(about, EventType::Warning, error.reason(), error.to_string())
                .await;
        }
    }
}

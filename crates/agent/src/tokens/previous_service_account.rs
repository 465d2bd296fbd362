//! The ServiceAccount that an account had before the agent moved to another namespace. It is deleted once the account has its
//! token here. Until then it is recorded on the present ServiceAccount, so that a restart forgets nothing.

use std::time::Duration;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::authentication::ANNOTATION_FORMER;
use writ_controller::{Error, error::Context as _, write};

use super::{
    model::PreviousServiceAccount, plan::service_account::is_ours, reconcile::Reconciler, state::State,
};

impl Reconciler {
    /// Records one that is to be deleted.
    pub(super) async fn record_previous(
        &self,
        name: &str,
        state: &mut State,
        previous: PreviousServiceAccount,
    ) -> Result<(), Error> {
        if state.previous.contains(&previous) {
            return Ok(());
        }
        let all = state.previous.iter().chain([&previous]);
        let all: Vec<_> = all.map(ToString::to_string).collect();
        self.annotate_previous(name, Some(all.join(","))).await?;
        state.previous.push(previous);
        Ok(())
    }

    /// Deletes those that are recorded. Returns when to reconcile again, if that failed or the report changes.
    pub(super) async fn delete_previous(&self, name: &str, state: &mut State) -> Option<Duration> {
        if state.previous.is_empty() {
            return None;
        }
        let deleted = async {
            for previous in &state.previous {
                self.delete_one_previous(name, previous).await?;
            }
            self.annotate_previous(name, None).await
        };
        match deleted.await {
            Ok(()) => {
                state.previous.clear();
                state.previous_recorded = false;
                state.previous_pauses.reset();
                // A condition that says otherwise is removed by the next reconcile.
                state.previous_error.take().map(|_| Duration::ZERO)
            }
            Err(error) => {
                let reported = state.previous_error.replace(error.to_string());
                if reported == state.previous_error {
                    Some(state.previous_pauses.next_delay())
                } else {
                    tracing::warn!(account = name, %error, "the ServiceAccount in the previous namespace still exists");
                    Some(Duration::ZERO)
                }
            }
        }
    }

    async fn delete_one_previous(&self, name: &str, previous: &PreviousServiceAccount) -> Result<(), Error> {
        let namespace = &previous.namespace;
        let api: Api<ServiceAccount> = Api::namespaced(self.spoke.clone(), namespace);
        let found = match api.get_opt(name).await {
            // Where the agent may not look, the expiry of the last token has the same effect.
            Err(kube::Error::Api(status)) if status.code == 403 && previous.expires <= self.spoke_now() => {
                None
            }
            answer => answer.context(|| format!("read the ServiceAccount {namespace}/{name}"))?,
        };
        let is_it = |found: &ServiceAccount| {
            found.uid().as_deref() == Some(&previous.uid) && is_ours(found, &self.settings)
        };
        match found.filter(is_it) {
            Some(_) => write::delete(&api, name, Some(&previous.uid)).await,
            None => Ok(()),
        }
    }

    async fn annotate_previous(&self, name: &str, previous: Option<String>) -> Result<(), Error> {
        let patch = json!({ "metadata": { "annotations": { ANNOTATION_FORMER: previous } } });
        let patched = self
            .spoke_accounts()
            .patch(name, &PatchParams::default(), &Patch::Merge(&patch))
            .await;
        patched
            .map(drop)
            .context(|| format!("record the previous namespace on the ServiceAccount {name}"))
    }
}

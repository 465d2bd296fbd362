//! The ServiceAccount of an account: created, restored, and deleted when the account ends.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use writ_api::authentication::{ANNOTATION_FORMER, ManagedServiceAccount};
use writ_controller::{Error, Name, error::Context as _, write};

use super::{
    model::{Existing, Stop, Wish},
    plan::{secret, service_account},
    reconcile::{Reconciler, has_reported_token, later},
    state::State,
};

impl Reconciler {
    /// Makes the ServiceAccount exist as wanted; returns its uid.
    pub(super) async fn ensure_service_account(
        &self,
        account: &ManagedServiceAccount,
        wish: &Wish,
        state: &mut State,
    ) -> Result<String, Stop> {
        let name = &wish.name;
        let api = self.spoke_accounts();
        state.present = false;
        let mut wanted = service_account::wanted(account, &self.settings);
        let mut found = match self.caches.service_accounts.get(&self.service_account_name(name)) {
            Some(found) => found,
            // The add-on that took the name is about to create its own.
            None if state.yields_until.is_some_and(|until| self.clock.now() < until) => {
                self.withdraw(account, state).await?;
                return Err(service_account::taken_by_an_add_on(name, &self.settings).into());
            }
            None => self.create_service_account(&wanted, state).await?,
        };
        if service_account::belongs_to_an_add_on(&found) {
            self.yield_name(account, &found, state).await?;
        }
        state.recall_previous(&found);
        let known = |found: &ServiceAccount, state: &State| {
            state.service_account.is_some() && state.service_account == found.uid()
        };
        let judge = |found: &ServiceAccount, state: &mut State| {
            service_account::existing(account, wish, found, known(found, state), &self.settings)
                .inspect_err(|_| state.service_account = None)
        };
        let mut verdict = judge(&found, state)?;
        if verdict == Existing::Replace {
            tracing::info!(
                account = name,
                "replacing the ServiceAccount of a former account of that name"
            );
            // The record of what is still to be deleted elsewhere is kept.
            if let Some(former) = found.annotations().get(ANNOTATION_FORMER) {
                wanted
                    .annotations_mut()
                    .insert(ANNOTATION_FORMER.into(), former.clone());
            }
            write::delete(&api, name, found.uid().as_deref()).await?;
            found = self.create_service_account(&wanted, state).await?;
            verdict = judge(&found, state)?;
        }
        match verdict {
            Existing::Use => {}
            Existing::Restore(patch) => {
                tracing::info!(account = name, "restoring the ServiceAccount");
                api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                    .await
                    .context(|| format!("restore the ServiceAccount {}/{name}", self.settings.namespace))?;
            }
            Existing::Replace => {
                let what = format!("the ServiceAccount {name} of a former account still exists");
                return Err(Error::Busy(what).into());
            }
        }
        let uid = found.uid().unwrap_or_default();
        if service_account::is_ours(&found, &self.settings) || known(&found, state) {
            state.service_account = Some(uid.clone());
        }
        state.present = true;
        Ok(uid)
    }

    /// An add-on has the name now, with rights that no token of the account may have. It took over the ServiceAccount that this
    /// agent made, so that is deleted, and the add-on creates one of its own. The Secret is deleted too, also when the hub could
    /// not be reached at first.
    async fn yield_name(
        &self,
        account: &ManagedServiceAccount,
        found: &ServiceAccount,
        state: &mut State,
    ) -> Result<(), Stop> {
        let name = account.name_any();
        let known = state.service_account.is_some() && state.service_account == found.uid();
        if known || service_account::was_ours(found, &self.settings) {
            tracing::warn!(
                account = name,
                "an add-on has the ServiceAccount now, deleting it with its tokens"
            );
            state.recall_previous(found);
            self.delete_previous(&name, state).await;
            write::delete(&self.spoke_accounts(), &name, found.uid().as_deref()).await?;
            state.yields_until = Some(later(self.clock.now(), state.yields.next_delay()));
        }
        state.service_account = None;
        state.pending = None;
        self.withdraw(account, state).await
    }

    /// Deletes the account's token from the hub, if it had one.
    async fn withdraw(&self, account: &ManagedServiceAccount, state: &mut State) -> Result<(), Stop> {
        if has_reported_token(account) || state.held.is_some() {
            self.delete_secret(account).await?;
            state.held = None;
        }
        Ok(())
    }

    /// Deletes the account's Secret on the hub.
    async fn delete_secret(&self, account: &ManagedServiceAccount) -> Result<(), Error> {
        let (secrets, name) = (self.secrets(), account.name_any());
        let secret = secrets
            .get_opt(&name)
            .await
            .context(|| format!("read the Secret {name} on the hub"))?;
        match secret.filter(|secret| secret::is_ours(secret, account)) {
            Some(secret) => write::delete(&secrets, &name, secret.uid().as_deref()).await,
            None => Ok(()),
        }
    }

    /// Creates the ServiceAccount; returns the existing one if the cache lags behind.
    async fn create_service_account(
        &self,
        wanted: &ServiceAccount,
        state: &mut State,
    ) -> Result<Arc<ServiceAccount>, Stop> {
        let api = self.spoke_accounts();
        let (namespace, name) = (&self.settings.namespace, wanted.name_any());
        let found = match api.create(&PostParams::default(), wanted).await {
            Ok(created) => Some(created),
            Err(kube::Error::Api(status)) if status.code == 409 => api
                .get_opt(&name)
                .await
                .context(|| format!("read the ServiceAccount {namespace}/{name}"))?,
            Err(error) => {
                state.service_account = None;
                return Err(error)
                    .context(|| format!("create the ServiceAccount {namespace}/{name}"))
                    .map_err(Stop::from);
            }
        };
        found.map(Arc::new).ok_or_else(|| {
            state.service_account = None;
            Error::Busy(format!("the ServiceAccount {name} was deleted meanwhile")).into()
        })
    }

    /// The account is gone or being deleted: deletes its ServiceAccount and its Secret.
    pub(super) async fn end(
        &self,
        name: &str,
        state: &mut State,
        account: Option<&ManagedServiceAccount>,
    ) -> Result<(), Stop> {
        let found = self.caches.service_accounts.get(&self.service_account_name(name));
        if let Some(found) = found {
            let known = state.service_account.is_some() && state.service_account == found.uid();
            let ours = if service_account::belongs_to_an_add_on(&found) {
                service_account::was_ours(&found, &self.settings)
            } else {
                service_account::is_ours(&found, &self.settings)
            };
            if (ours || known) && !self.settings.reserved.iter().any(|r| r == name) {
                tracing::info!(account = name, "the account is gone, deleting its ServiceAccount");
                state.recall_previous(&found);
                self.delete_previous(name, state).await;
                write::delete(&self.spoke_accounts(), name, found.uid().as_deref()).await?;
            }
        }
        // The hub garbage collects the Secret of an account that is gone, but not while a finalizer holds the account.
        if let Some(account) = account.filter(|_| state.held.is_some() || state.account.is_none()) {
            self.delete_secret(account).await?;
        }
        *state = State {
            account: account.and_then(ManagedServiceAccount::uid),
            ..State::default()
        };
        Ok(())
    }

    fn service_account_name(&self, name: &str) -> Name {
        Name::new(self.settings.namespace.as_str(), name)
    }
}

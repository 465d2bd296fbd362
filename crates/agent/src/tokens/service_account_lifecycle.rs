//! The ServiceAccount of an account: made, restored, and deleted when the account ends.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ServiceAccount;
use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use writ_api::authentication::{ANNOTATION_FORMER, ManagedServiceAccount};
use writ_controller::{Error, error::Context as _, write};

use super::{
    plan::Wish,
    reconcile::{Worker, later},
    secret,
    service_account::{self, Existing},
    state::{State, Stop},
};

impl Worker {
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
        let mut found = match self.service_accounts.get(&self.service_account_ref(name)) {
            Some(found) => found,
            // The add-on that took the name is about to make its own.
            None if state.yields_until.is_some_and(|until| self.clock.now() < until) => {
                self.withdraw(account, state).await?;
                return Err(service_account::taken_by_an_add_on(name, &self.settings).into());
            }
            None => self.make_service_account(&wanted, state).await?,
        };
        if service_account::belongs_to_an_add_on(&found) {
            self.yield_name(account, &found, state).await?;
        }
        state.recall(&found);
        let known = |found: &ServiceAccount, state: &State| state.uid.is_some() && state.uid == found.uid();
        let judge = |found: &ServiceAccount, state: &mut State| {
            service_account::existing(account, wish, found, known(found, state), &self.settings)
                .inspect_err(|_| state.uid = None)
        };
        let mut verdict = judge(&found, state)?;
        if verdict == Existing::Replace {
            tracing::info!(
                account = name,
                "replacing the ServiceAccount of an account from before"
            );
            // What is still to be deleted elsewhere is not forgotten with it.
            if let Some(former) = found.annotations().get(ANNOTATION_FORMER) {
                wanted
                    .annotations_mut()
                    .insert(ANNOTATION_FORMER.into(), former.clone());
            }
            write::delete(&api, name, found.uid().as_deref()).await?;
            found = self.make_service_account(&wanted, state).await?;
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
                let what = format!("the ServiceAccount {name} of an account from before is still there");
                return Err(Error::Invalid(what).into());
            }
        }
        let uid = found.uid().unwrap_or_default();
        if service_account::is_ours(&found, &self.settings) || known(&found, state) {
            state.uid = Some(uid.clone());
        }
        state.present = true;
        Ok(uid)
    }

    /// An add-on has the name now, with rights that no token of the account may have. It took over what we made: that goes,
    /// and the add-on makes one of its own. The Secret goes too, also when the hub was away at first.
    async fn yield_name(
        &self,
        account: &ManagedServiceAccount,
        found: &ServiceAccount,
        state: &mut State,
    ) -> Result<(), Stop> {
        let name = account.name_any();
        let known = state.uid.is_some() && state.uid == found.uid();
        if known || service_account::was_ours(found, &self.settings) {
            tracing::warn!(
                account = name,
                "an add-on has the ServiceAccount now, deleting it with its tokens"
            );
            state.recall(found);
            self.leave(&name, state).await;
            write::delete(&self.spoke_accounts(), &name, found.uid().as_deref()).await?;
            state.yields_until = Some(later(self.clock.now(), state.yields.next_delay()));
        }
        state.uid = None;
        state.pending = None;
        self.withdraw(account, state).await
    }

    /// Takes the token off the hub that the account had.
    async fn withdraw(&self, account: &ManagedServiceAccount, state: &mut State) -> Result<(), Stop> {
        let reported = account
            .status
            .as_ref()
            .is_some_and(|status| status.token_secret_ref.is_some());
        if reported || state.held.is_some() {
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

    /// Makes the ServiceAccount; the one that is there if the watch has not shown it yet.
    async fn make_service_account(
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
                state.uid = None;
                return Err(error)
                    .context(|| format!("create the ServiceAccount {namespace}/{name}"))
                    .map_err(Stop::from);
            }
        };
        found.map(Arc::new).ok_or_else(|| {
            state.uid = None;
            Error::Invalid(format!("the ServiceAccount {name} was deleted meanwhile")).into()
        })
    }

    /// The account is gone, or goes: its ServiceAccount goes, and its Secret.
    pub(super) async fn end(
        &self,
        name: &str,
        state: &mut State,
        account: Option<&ManagedServiceAccount>,
    ) -> Result<(), Stop> {
        let found = self.service_accounts.get(&self.service_account_ref(name));
        if let Some(found) = found {
            let known = state.uid.is_some() && state.uid == found.uid();
            let ours = if service_account::belongs_to_an_add_on(&found) {
                service_account::was_ours(&found, &self.settings)
            } else {
                service_account::is_ours(&found, &self.settings)
            };
            if (ours || known) && !self.settings.reserved.iter().any(|r| r == name) {
                tracing::info!(account = name, "the account is gone, deleting its ServiceAccount");
                state.recall(&found);
                self.leave(name, state).await;
                write::delete(&self.spoke_accounts(), name, found.uid().as_deref()).await?;
            }
        }
        // Without the account the hub collects the Secret; while it is still going, that is on us.
        if let Some(account) = account.filter(|_| state.held.is_some() || state.account.is_none()) {
            self.delete_secret(account).await?;
        }
        *state = State {
            account: account.and_then(ManagedServiceAccount::uid),
            ..State::default()
        };
        Ok(())
    }
}

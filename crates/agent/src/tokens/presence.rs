//! The ServiceAccount of an account: made, restored, and deleted when the account ends.

use std::sync::Arc;

use kube::{
    ResourceExt,
    api::{Patch, PatchParams, PostParams},
};
use writ_api::authentication::ManagedServiceAccount;
use writ_runtime::{Error, apply, error::Context as _};

use super::{
    account::Worker,
    plan::{self, Existing, Wish},
    secret,
    state::{State, Stop},
};

impl Worker {
    pub(super) async fn ensure_service_account(
        &self,
        wish: &Wish,
        state: &mut State,
    ) -> Result<String, Stop> {
        let name = &wish.name;
        let api = self.spoke_accounts();
        state.present = false;
        let mut found = self.service_accounts.get(&self.service_account_ref(name));
        if found.is_none() {
            let wanted = plan::service_account(name, &self.settings);
            match api.create(&PostParams::default(), &wanted).await {
                Ok(created) => found = Some(Arc::new(created)),
                // It is there, and the watch has not shown it yet.
                Err(kube::Error::Api(status)) if status.code == 409 => {
                    let what = || format!("read the ServiceAccount {}/{name}", self.settings.namespace);
                    found = api.get_opt(name).await.context(what)?.map(Arc::new);
                }
                Err(error) => {
                    state.uid = None;
                    Err(error).context(|| {
                        format!("create the ServiceAccount {}/{name}", self.settings.namespace)
                    })?;
                }
            }
        }
        let Some(found) = found else {
            state.uid = None;
            return Err(Error::Invalid(format!("the ServiceAccount {name} was deleted meanwhile")).into());
        };
        let uid = found.uid().unwrap_or_default();
        state.recall(&found);
        let known = state.uid.as_deref() == Some(uid.as_str());
        let verdict =
            plan::existing(wish, &found, known, &self.settings).inspect_err(|_| state.uid = None)?;
        if let Existing::Restore(patch) = verdict {
            tracing::info!(account = name, "restoring the ServiceAccount");
            api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .context(|| format!("restore the ServiceAccount {}/{name}", self.settings.namespace))?;
        }
        if plan::is_ours(&found, &self.settings) || known {
            state.uid = Some(uid.clone());
        }
        state.present = true;
        Ok(uid)
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
            if (plan::is_ours(&found, &self.settings) || known)
                && !plan::belongs_to_an_add_on(&found)
                && !self.settings.reserved.iter().any(|r| r == name)
            {
                tracing::info!(account = name, "the account is gone, deleting its ServiceAccount");
                state.recall(&found);
                self.leave(name, state).await;
                apply::delete(&self.spoke_accounts(), name, found.uid().as_deref()).await?;
            }
        }
        // Without the account the hub collects the Secret; while it is still going, that is on us.
        if let Some(account) = account.filter(|_| state.held.is_some() || state.account.is_none()) {
            let secrets = self.secrets();
            let secret = secrets
                .get_opt(name)
                .await
                .context(|| format!("read the Secret {name} on the hub"))?;
            if let Some(secret) = secret.filter(|secret| secret::is_ours(secret, account)) {
                apply::delete(&secrets, name, secret.uid().as_deref()).await?;
            }
        }
        *state = State {
            account: account.and_then(ManagedServiceAccount::uid),
            ..State::default()
        };
        Ok(())
    }
}

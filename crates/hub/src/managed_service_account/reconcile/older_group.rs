//! One account of the older group: the account that it owns, and the status that it shows of it.

use kube::Api;
use writ_api::{authentication::ManagedServiceAccount, proxy};
use writ_controller::{
    Error, Name, Next,
    write::{self, Ensure},
};

use super::Reconciler;
use crate::{
    MANAGER,
    managed_service_account::{
        model::EXACT_ACCOUNT,
        plan::older_group::{owned, owner_status, owns},
    },
};

impl Reconciler {
    pub(super) async fn owner(&self, name: &Name) -> Result<Next, Error> {
        let owner = self.caches.owners.get(name);
        let Some(owner) = owner.filter(|owner| owner.metadata.deletion_timestamp.is_none()) else {
            // The garbage collector deletes what it owned.
            return Ok(Next::Wait);
        };
        let account = self.caches.accounts.get(name);
        let mut refused = None;
        if account.as_ref().is_none_or(|account| owns(&owner, account)) {
            let api: Api<ManagedServiceAccount> = write::namespaced(&self.client, &name.namespace);
            let ensure = Ensure::new(&api, MANAGER).exact(&EXACT_ACCOUNT);
            match ensure.run(account.as_deref(), &owned(&owner)).await {
                // It was stored before its definition knew the bounds, or may not be created here: the status says why.
                Err(error) if matches!(error.code(), Some(400 | 403 | 422)) => refused = Some(error),
                done => drop(done?),
            }
        }
        let status = owner_status(&owner, account.as_deref(), refused.as_ref(), self.now());
        let api: Api<proxy::ManagedServiceAccount> = write::namespaced(&self.client, &name.namespace);
        match write::ensure_status(&api, &*owner, &status, MANAGER).await {
            Err(error) if error.is_code(404) => {}
            done => drop(done?),
        }
        // Rights and policies may change without an event; the object itself does not.
        refused
            .filter(|error| error.is_code(403))
            .map_or(Ok(Next::Wait), Err)
    }
}

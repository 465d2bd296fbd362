//! One account: its end, its children, and the repair of its Secret.

use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::authentication::ManagedServiceAccount;
use writ_controller::{
    Error, Name, Next,
    error::Context as _,
    write::{self, Ensure},
};

use super::{Reconciler, next_at};
use crate::{
    MANAGER,
    managed_service_account::{
        model::{EXACT_ACCOUNT, Family, Namesakes, Place},
        plan::{accounts, children},
    },
};

impl Reconciler {
    pub(super) async fn account(&self, name: &Name) -> Result<Next, Error> {
        let now = self.now();
        let secret = self.caches.secrets.get(name);
        let Some(account) = self.caches.accounts.get(name) else {
            return self.forget_secret(name, secret.as_deref()).await;
        };
        let found: Namesakes = self
            .caches
            .accounts_named(&name.name)
            .into_iter()
            .filter(|(other, _)| other.namespace != name.namespace)
            .map(|(other, account)| (other.namespace.to_string(), account))
            .collect();
        let api = self.accounts_of(&name.namespace);
        let deleting = account.metadata.deletion_timestamp.is_some();
        let ends = accounts::ends_at(&account);
        let orphan = children::has_parent(&account)
            && !found.values().any(|other| children::is_child(other, &account));
        if !deleting && (orphan || ends.is_some_and(|ends| ends <= now)) {
            write::delete(&api, &name.name, account.uid().as_deref()).await?;
            return Ok(Next::Wait);
        }
        let place = self.caches.place(&name.namespace);
        let mut family = children::family(&account, &place, &found);
        let failed = self.write_children(&mut family, &found).await?;
        if place == Place::Cluster {
            if let Some(status) = children::childless_status(&account) {
                write::ensure_status(&api, &*account, &status, MANAGER).await?;
            }
            let repair = self.repair(name, &account, secret.as_deref(), now).await?;
            return Ok(next_at(ends.into_iter().chain(repair).min()));
        }
        if !deleting {
            let status = children::family_status(&account, &place, &family, &found, now);
            match write::ensure_status(&api, &*account, &status, MANAGER).await {
                Err(error) if error.is_code(404) => {}
                done => drop(done?),
            }
        }
        failed.map_or(Ok(next_at(ends)), Err)
    }

    /// Deletes surplus children, and writes those that are wanted. One cluster that fails does not stop the others; the last
    /// failure is returned.
    async fn write_children(&self, family: &mut Family, found: &Namesakes) -> Result<Option<Error>, Error> {
        for child in &family.surplus {
            let api = self.accounts_of(&child.namespace().unwrap_or_default());
            write::delete(&api, &child.name_any(), child.uid().as_deref()).await?;
        }
        let mut failed = None;
        for child in &family.wanted {
            let namespace = child.namespace().unwrap_or_default();
            let api = self.accounts_of(&namespace);
            let current = found.get(&namespace).map(|account| &**account);
            let ensure = Ensure::new(&api, MANAGER).exact(&EXACT_ACCOUNT);
            if let Err(error) = ensure.run(current, child).await
                && !error.is_code(409)
            {
                family.unwritten.insert(namespace, error.to_string());
                failed = Some(error);
            }
        }
        Ok(failed)
    }

    pub(super) fn accounts_of(&self, namespace: &str) -> Api<ManagedServiceAccount> {
        write::namespaced(&self.client, namespace)
    }

    pub(super) async fn annotate(
        &self,
        account: &ManagedServiceAccount,
        key: &str,
        value: Option<&str>,
    ) -> Result<(), Error> {
        let namespace = account.namespace().unwrap_or_default();
        let name = account.name_any();
        let patch = json!({ "metadata": { "uid": account.uid(), "annotations": { key: value } } });
        let params = PatchParams {
            field_manager: Some(MANAGER.into()),
            ..PatchParams::default()
        };
        self.accounts_of(&namespace)
            .patch(&name, &params, &Patch::Merge(&patch))
            .await
            .context(|| format!("annotate ManagedServiceAccount {namespace}/{name}"))?;
        Ok(())
    }
}

//! The Secrets of accounts: which names an agent may write, and when it is asked to repair one.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::PoisonError,
};

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::Secret, rbac::v1::Role};
use kube::{Api, ResourceExt, api::ListParams};
use writ_api::authentication::{
    ANNOTATION_ADOPT, ANNOTATION_REFUSED, ANNOTATION_REPAIR, LABEL_MANAGED, ManagedServiceAccount,
};
use writ_controller::{Error, Name, Next, error::Context as _, write};

use super::Reconciler;
use crate::managed_service_account::{
    model::SeenSecret,
    plan::{accounts, rights},
};

impl Reconciler {
    /// The names of Secrets that the agent of a cluster may write, with the uids of their accounts, and the names that are
    /// left out because a foreign Secret has them.
    ///
    /// A name that was cleared once stays so, as the Role says: a Secret that lost its label is still the account's. The
    /// account's status counts for nothing, because the agent writes it.
    pub(super) async fn secret_names(
        &self,
        cluster: &str,
        role: Option<&Role>,
    ) -> Result<(BTreeMap<String, String>, BTreeSet<String>), Error> {
        let is_cleared = |account: &ManagedServiceAccount| {
            let adopt = account.annotations().get(ANNOTATION_ADOPT);
            self.caches
                .secrets
                .contains(&Name::new(cluster, account.name_any()))
                || rights::is_cleared(role, &account.uid().unwrap_or_default())
                || adopt.is_some_and(|adopt| adopt == "true")
        };
        let accounts = self.caches.accounts.in_namespace(cluster);
        let accounts: Vec<_> = accounts
            .into_iter()
            .map(|(_, account)| (is_cleared(&account), account))
            .collect();
        let mut foreign = BTreeSet::new();
        if accounts.iter().any(|(clear, _)| !clear) {
            let api: Api<Secret> = write::namespaced(&self.client, cluster);
            let others = api
                .list_metadata(&ListParams::default().labels(&format!("{LABEL_MANAGED}!=true")))
                .await
                .context(|| format!("list the Secrets of namespace {cluster}"))?;
            foreign.extend(others.items.iter().map(ResourceExt::name_any));
        }
        let (mut names, mut refused) = (BTreeMap::new(), BTreeSet::new());
        for (clear, account) in &accounts {
            let name = account.name_any();
            let is_foreign = !clear && foreign.contains(&name);
            let why = is_foreign.then(|| {
                format!(
                    "the Secret {name} exists and was not made for this account; delete it, or set the annotation \
                     {ANNOTATION_ADOPT}: \"true\" to overwrite it"
                )
            });
            if account.annotations().get(ANNOTATION_REFUSED) != why.as_ref() {
                self.annotate(account, ANNOTATION_REFUSED, why.as_deref()).await?;
            }
            if is_foreign {
                refused.insert(name);
            } else {
                names.insert(name, account.uid().unwrap_or_default());
            }
        }
        Ok((names, refused))
    }

    /// The account is gone. Its Secret is garbage collected; a Secret that lost its owner reference is deleted here.
    pub(super) async fn forget_secret(
        &self,
        name: &Name,
        secret: Option<&SeenSecret>,
    ) -> Result<Next, Error> {
        self.forget_suspicion(name);
        self.deleted_secrets.forget(name);
        // In any other namespace it is a copy.
        let here = self.caches.is_of_cluster(&name.namespace);
        let Some(secret) = secret.filter(|secret| here && secret.orphaned) else {
            return Ok(Next::Wait);
        };
        // The caches of accounts and of Secrets may lag behind each other.
        let account = self
            .accounts_of(&name.namespace)
            .get_metadata_opt(&name.name)
            .await
            .context(|| format!("read ManagedServiceAccount {name}"))?;
        if account.is_none() {
            tracing::info!(%name, "deleting a Secret that its account left behind");
            let secrets: Api<Secret> = write::namespaced(&self.client, &name.namespace);
            write::delete(&secrets, &name.name, Some(&secret.uid)).await?;
        }
        Ok(Next::Wait)
    }

    /// Asks the agent to repair the Secret if it is not as reported. Returns when to check again.
    pub(super) async fn repair(
        &self,
        name: &Name,
        account: &ManagedServiceAccount,
        secret: Option<&SeenSecret>,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, Error> {
        let deleted = self.deleted_secrets.version(name);
        let Some(why) = accounts::repair_reason(account, secret, deleted.as_deref()) else {
            self.forget_suspicion(name);
            return Ok(None);
        };
        let since = {
            let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
            let suspect = suspects.entry(name.clone()).or_insert_with(|| (why.clone(), now));
            if suspect.0 != why {
                *suspect = (why.clone(), now);
            }
            suspect.1
        };
        let ask_at = since
            .saturating_add(accounts::REPORT_LAG)
            .unwrap_or(Timestamp::MAX);
        if now < ask_at {
            return Ok(Some(ask_at));
        }
        let wanted = format!("{why}-{}", since.as_second());
        if account.annotations().get(ANNOTATION_REPAIR) != Some(&wanted) {
            self.annotate(account, ANNOTATION_REPAIR, Some(&wanted)).await?;
        }
        Ok(None)
    }

    fn forget_suspicion(&self, name: &Name) {
        let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
        suspects.remove(name);
    }
}

//! The Secrets of accounts: which names an agent may write, and when it is asked to look at one.

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
use writ_controller::{Error, error::Context as _, write};

use super::{
    clusters,
    controller::read,
    mirror::Id,
    model::SeenSecret,
    plan::{accounts, rights},
    reconcile::{Due, Worker, later},
};

impl Worker {
    /// The names of Secrets that the agent of a cluster may write, with the uids of their accounts, and those names that
    /// were left out because a Secret of somebody else has them. What was cleared once stays so, as the Role says:
    /// a Secret that lost its label is still the account's. The account's status counts for nothing, the agent writes it.
    pub(super) async fn secret_names(
        &self,
        cluster: &str,
        role: Option<&Role>,
    ) -> Result<(BTreeMap<String, String>, BTreeSet<String>), Error> {
        let accounts: Vec<(ManagedServiceAccount, bool)> = {
            let world = read(&self.world);
            let clear = |account: &ManagedServiceAccount| {
                world.secrets.get(cluster, &account.name_any()).is_some()
                    || rights::is_cleared(role, &account.uid().unwrap_or_default())
                    || account
                        .annotations()
                        .get(ANNOTATION_ADOPT)
                        .is_some_and(|adopt| adopt == "true")
            };
            let accounts = world.accounts.within(cluster);
            accounts
                .map(|(_, account)| (account.clone(), clear(account)))
                .collect()
        };
        // Only names matter, and only of Secrets that are no account's.
        let mut strangers = BTreeSet::new();
        if accounts.iter().any(|(_, clear)| !clear) {
            let api: Api<Secret> = write::namespaced(&self.client, cluster);
            let others = api
                .list_metadata(&ListParams::default().labels(&format!("{LABEL_MANAGED}!=true")))
                .await
                .context(|| format!("list the Secrets of namespace {cluster}"))?;
            strangers.extend(others.items.iter().map(ResourceExt::name_any));
        }
        let mut names = BTreeMap::new();
        let mut left_out = BTreeSet::new();
        for (account, clear) in &accounts {
            let name = account.name_any();
            let refused = !clear && strangers.contains(&name);
            let why = refused.then(|| {
                format!(
                    "the Secret {name} exists and was not made for this account; delete it, or set the annotation \
                     {ANNOTATION_ADOPT}: \"true\" to overwrite it"
                )
            });
            if account.annotations().get(ANNOTATION_REFUSED) != why.as_ref() {
                self.annotate(account, ANNOTATION_REFUSED, why.as_deref()).await?;
            }
            if refused {
                left_out.insert(name);
            } else {
                names.insert(name, account.uid().unwrap_or_default());
            }
        }
        Ok((names, left_out))
    }

    /// The account is gone. Its Secret goes with it by its owner; one that lost that goes here.
    pub(super) async fn forget_secret(&self, id: &Id, seen: Option<&SeenSecret>) -> Due {
        self.suspects
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(id);
        // Elsewhere it is a copy that somebody made.
        let here = clusters::is_clusters(&id.0, &read(&self.world).clusters);
        let Some(secret) = seen.filter(|secret| here && secret.orphaned) else {
            return Ok(None);
        };
        // The watches of accounts and Secrets are two: one may show its part before the other.
        let accounts: Api<ManagedServiceAccount> = write::namespaced(&self.client, &id.0);
        let account = accounts
            .get_metadata_opt(&id.1)
            .await
            .context(|| format!("read ManagedServiceAccount {}/{}", id.0, id.1))?;
        if account.is_none() {
            tracing::info!(
                namespace = id.0,
                name = id.1,
                "deleting a Secret that its account left behind"
            );
            let secrets: Api<Secret> = write::namespaced(&self.client, &id.0);
            write::delete(&secrets, &id.1, Some(&secret.uid)).await?;
        }
        Ok(None)
    }

    /// Asks the agent to look at the Secret if it is not as reported. Returns when to look again ourselves.
    pub(super) async fn repair(
        &self,
        id: &Id,
        account: &ManagedServiceAccount,
        seen: Option<&SeenSecret>,
        now: Timestamp,
    ) -> Due {
        let went = read(&self.world).went.get(id).cloned();
        let Some(why) = accounts::repair_reason(account, seen, went.as_deref()) else {
            let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
            suspects.remove(id);
            return Ok(None);
        };
        let since = {
            let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
            match suspects.get(id) {
                Some((before, since)) if *before == why => *since,
                _ => {
                    suspects.insert(id.clone(), (why.clone(), now));
                    now
                }
            }
        };
        let ask_at = later(since, accounts::REPORT_LAG);
        if now < ask_at {
            return Ok(Some(ask_at));
        }
        let wanted = format!("{why}-{}", since.as_second());
        if account.annotations().get(ANNOTATION_REPAIR) != Some(&wanted) {
            self.annotate(account, ANNOTATION_REPAIR, Some(&wanted)).await?;
        }
        Ok(None)
    }
}

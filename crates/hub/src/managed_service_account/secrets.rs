//! The Secrets of accounts: which names an agent may write, and when it is asked to look at one.

use std::{collections::BTreeSet, sync::PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, ResourceExt, api::ListParams};
use writ_api::authentication::{
    ANNOTATION_ADOPT, ANNOTATION_REFUSED, ANNOTATION_REPAIR, LABEL_MANAGED, ManagedServiceAccount,
};
use writ_runtime::{Error, apply, error::Context as _};

use super::{
    controller::read,
    mirror::Id,
    plan,
    work::{Due, Worker, later},
};

impl Worker {
    /// The names of Secrets that the agent of a cluster may write, and those that were left out because a Secret of
    /// somebody else has them.
    pub(super) async fn secret_names(
        &self,
        cluster: &str,
    ) -> Result<(BTreeSet<String>, BTreeSet<String>), Error> {
        let (accounts, unknown) = {
            let world = read(&self.world);
            let mut cleared = self.cleared.lock().unwrap_or_else(PoisonError::into_inner);
            let accounts: Vec<ManagedServiceAccount> = world
                .accounts
                .within(cluster)
                .map(|(_, account)| account.clone())
                .collect();
            let mut unknown = false;
            for account in &accounts {
                let uid = account.uid().unwrap_or_default();
                let known = world.secrets.get(cluster, &account.name_any()).is_some()
                    || account
                        .status
                        .as_ref()
                        .is_some_and(|status| status.token_secret_ref.is_some())
                    || account
                        .annotations()
                        .get(ANNOTATION_ADOPT)
                        .is_some_and(|adopt| adopt == "true");
                if known {
                    cleared.insert(uid);
                } else {
                    unknown |= !cleared.contains(&uid);
                }
            }
            (accounts, unknown)
        };
        // Only names matter, and only of Secrets that are no account's.
        let mut strangers = BTreeSet::new();
        if unknown {
            let api: Api<Secret> = apply::namespaced(&self.client, cluster);
            let others = api
                .list_metadata(&ListParams::default().labels(&format!("{LABEL_MANAGED}!=true")))
                .await
                .context(|| format!("list the Secrets of namespace {cluster}"))?;
            strangers.extend(others.items.iter().map(ResourceExt::name_any));
        }
        let mut names = BTreeSet::new();
        let mut left_out = BTreeSet::new();
        for account in &accounts {
            let (name, uid) = (account.name_any(), account.uid().unwrap_or_default());
            let refused = {
                let mut cleared = self.cleared.lock().unwrap_or_else(PoisonError::into_inner);
                let refused = !cleared.contains(&uid) && strangers.contains(&name);
                if !refused {
                    cleared.insert(uid);
                }
                refused
            };
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
                names.insert(name);
            }
        }
        Ok((names, left_out))
    }

    /// Asks the agent to look at the Secret if it is not as reported. Returns when to look again ourselves.
    pub(super) async fn repair(
        &self,
        id: &Id,
        account: &ManagedServiceAccount,
        seen: Option<&plan::SeenSecret>,
        now: Timestamp,
    ) -> Due {
        let since = {
            let mut suspects = self.suspects.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(why) = plan::suspicion(account, seen) else {
                suspects.remove(id);
                return Ok(None);
            };
            match suspects.get(id) {
                Some((before, since)) if *before == why => *since,
                _ => {
                    suspects.insert(id.clone(), (why, now));
                    now
                }
            }
        };
        let ask_at = later(since, plan::REPORT_LAG);
        if now < ask_at {
            return Ok(Some(ask_at));
        }
        let why = plan::suspicion(account, seen).unwrap_or_default();
        let wanted = format!("{why}-{}", since.as_second());
        if account.annotations().get(ANNOTATION_REPAIR) != Some(&wanted) {
            self.annotate(account, ANNOTATION_REPAIR, Some(&wanted)).await?;
        }
        Ok(None)
    }
}

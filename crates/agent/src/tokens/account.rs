//! One account: observe, decide, write.

use std::{sync::Arc, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{
    Client, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    core::DeserializeGuard,
    runtime::reflector::Store,
};
use writ_api::authentication::{ANNOTATION_REPAIR, KEY_TOKEN, ManagedServiceAccount, digest};
use writ_runtime::{Error, apply, clock::Clock, error::Context as _};

pub use super::state::{Next, State};
use super::{
    former::Former,
    plan::{self, Existing, Facts, Settings, Verdict, Wish},
    report::Report,
    secret::{self, Cluster},
    state::{Held, Stop},
};

/// An account as it is watched: one that cannot be read does not stop the others.
pub type Watched = DeserializeGuard<ManagedServiceAccount>;

/// Everything that looking at an account needs.
pub struct Worker {
    /// The hub.
    pub hub: Client,
    /// The managed cluster.
    pub spoke: Client,
    /// What the agent is.
    pub settings: Settings,
    /// What time it is.
    pub clock: Clock,
    /// The accounts on the hub.
    pub accounts: Store<Watched>,
    /// The ServiceAccounts in the agent's namespace.
    pub service_accounts: Store<ServiceAccount>,
    /// The CA of the managed cluster.
    pub ca: ArcSwapOption<Vec<u8>>,
    /// How far the managed cluster's clock is ahead of ours, as its tokens show.
    pub skew: ArcSwap<SignedDuration>,
}

impl Worker {
    /// A worker that knows what these stores hold.
    pub fn new(
        (hub, spoke): (Client, Client),
        settings: Settings,
        clock: Clock,
        accounts: Store<Watched>,
        service_accounts: Store<ServiceAccount>,
        ca: Option<Arc<Vec<u8>>>,
    ) -> Self {
        Self {
            hub,
            spoke,
            settings,
            clock,
            accounts,
            service_accounts,
            ca: ArcSwapOption::new(ca),
            skew: ArcSwap::from_pointee(SignedDuration::ZERO),
        }
    }

    /// Whether there is such an account.
    pub fn knows(&self, name: &str) -> bool {
        self.accounts.get(&self.account_ref(name)).is_some()
    }

    /// Looks at one account and does what is needed.
    pub async fn look(&self, name: &str, state: &mut State) -> Next {
        let outcome = self.step(name, state).await;
        let now = self.clock.now();
        let expires = state.held.as_ref().map(|held| held.claims.expires);
        match outcome {
            Ok(next) => {
                state.backoff.reset();
                state.failures = 0;
                next
            }
            Err(Stop::Refused(refusal)) => {
                if let Err(error) = self.report(name, &Report::Refused(refusal)).await {
                    tracing::warn!(account = name, %error, "cannot report");
                }
                Next { due: None, expires }
            }
            Err(Stop::Failed(error)) => {
                state.failures = state.failures.saturating_add(1);
                tracing::debug!(account = name, %error, failures = state.failures, "will try again");
                // A hub that has just seen a new account may need a moment to let its agent write the Secret.
                if !error.is_code(403) || state.failures > 3 {
                    let failed = Report::Failed {
                        present: state.uid.is_some(),
                        message: error.to_string(),
                    };
                    if let Err(error) = self.report(name, &failed).await {
                        tracing::debug!(account = name, %error, "cannot report");
                    }
                }
                Next {
                    due: Some(later(now, state.backoff.next_delay())),
                    expires,
                }
            }
        }
    }

    async fn step(&self, name: &str, state: &mut State) -> Result<Next, Stop> {
        let Some(watched) = self.accounts.get(&self.account_ref(name)) else {
            self.end(name, state, None).await?;
            return Ok(Next::default());
        };
        let account = match &watched.0 {
            Ok(account) => account,
            Err(error) => {
                tracing::warn!(account = name, error = %error.error, "the account cannot be read");
                return Ok(Next::default());
            }
        };
        if account.metadata.deletion_timestamp.is_some() {
            self.end(name, state, Some(account)).await?;
            return Ok(Next::default());
        }
        if state.account != account.uid() {
            *state = State {
                account: account.uid(),
                ..State::default()
            };
        }
        let wish = plan::wish(account, &self.settings)?;
        let uid = self.ensure_service_account(&wish, state).await?;
        let ca = self.ca.load_full().ok_or_else(|| {
            Error::Invalid(
                "the CA of the managed cluster is not known: there is no ConfigMap kube-root-ca.crt".into(),
            )
        })?;
        let facts = Facts {
            account,
            wish: &wish,
            uid: &uid,
            cluster: Cluster {
                name: &self.settings.cluster,
                ca: &ca,
                url: self.settings.url.as_deref(),
            },
            namespace: &self.settings.namespace,
            now: self.spoke_now(),
        };
        let repair = account.annotations().get(ANNOTATION_REPAIR).cloned();
        let asked = repair != state.repair;
        match &state.held {
            _ if state.pending.is_some() => {
                self.renew(&facts, state, &ca, None, "the new token is not written yet")
                    .await?;
            }
            // Nothing was ever reported: most likely there is no Secret, and if there is, creating it fails.
            None if account
                .status
                .as_ref()
                .is_none_or(|status| status.token_secret_ref.is_none())
                && !state.look =>
            {
                self.renew(&facts, state, &ca, None, "the account is new").await?;
            }
            Some(held) if held.wish.request() != wish.request() => {
                self.renew(&facts, state, &ca, None, "the account asks for another token")
                    .await?;
            }
            Some(held) if held.ca != ca => {
                self.renew(&facts, state, &ca, None, "the cluster has another CA")
                    .await?;
            }
            Some(held) if held.claims.uid.as_deref().is_some_and(|held| held != uid) => {
                self.renew(&facts, state, &ca, None, "the ServiceAccount is a new one")
                    .await?;
            }
            Some(held) if wish.rotate && plan::renew_at(&held.claims, account) <= facts.now => {
                self.renew(&facts, state, &ca, None, "the token is to be renewed")
                    .await?;
            }
            Some(held) if !asked && held.wish == wish && self.clock.now() < held.review_at => {
                let held = held.clone();
                self.report_held(name, &facts, &held, None, state.left.as_deref())
                    .await?;
            }
            _ => {
                if let Some(due) = self.inspect(&facts, state, &ca).await? {
                    return Ok(Next {
                        due: Some(due),
                        expires: None,
                    });
                }
                state.repair = repair;
            }
        }
        let next = self.next(account, &wish, state);
        Ok(match self.leave(name, state).await {
            Some(delay) => next.within(later(self.clock.now(), delay)),
            None => next,
        })
    }

    fn next(&self, account: &ManagedServiceAccount, wish: &Wish, state: &State) -> Next {
        let Some(held) = &state.held else {
            return Next::default();
        };
        let renew = if wish.rotate {
            plan::renew_at(&held.claims, account)
        } else {
            held.claims.expires
        };
        let skew = **self.skew.load();
        let mut due = renew
            .saturating_sub(skew)
            .unwrap_or(Timestamp::MAX)
            .min(held.review_at);
        if !wish.rotate && held.claims.expires <= self.spoke_now() {
            due = held.review_at;
        }
        Next {
            due: Some(due),
            expires: Some(held.claims.expires),
        }
    }

    /// Reads the Secret, and repairs or renews it if it needs that. Returns when to come back, if too early.
    async fn inspect(
        &self,
        facts: &Facts<'_>,
        state: &mut State,
        ca: &Arc<Vec<u8>>,
    ) -> Result<Option<Timestamp>, Stop> {
        let name = &facts.wish.name;
        let secrets = self.secrets();
        let found = secrets
            .get_opt(name)
            .await
            .context(|| format!("read the Secret {name} on the hub"))?;
        let verdict = plan::judge(found.as_ref(), facts);
        state.look = false;
        if verdict != Verdict::Malformed {
            state.malformed_since = None;
        }
        let (claims, repair) = match verdict {
            Verdict::Good(claims) => (claims, false),
            Verdict::Repair(claims) => (claims, true),
            Verdict::Renew(why) => {
                if let Some(former) = Former::of(found.as_ref(), facts) {
                    self.remember(name, state, former).await?;
                }
                self.renew(facts, state, ca, found.as_ref(), why).await?;
                return Ok(None);
            }
            Verdict::Malformed => {
                let now = self.clock.now();
                let since = *state.malformed_since.get_or_insert(now);
                let until = later(since, plan::MALFORMED_GRACE);
                if now < until {
                    state.look = true;
                    return Ok(Some(until));
                }
                self.renew(
                    facts,
                    state,
                    ca,
                    found.as_ref(),
                    "there is no token in the Secret",
                )
                .await?;
                state.malformed_since = None;
                return Ok(None);
            }
            Verdict::NotOurs => return Err(plan::secret_not_ours(name).into()),
        };
        let token = found
            .as_ref()
            .and_then(|secret| secret.data.as_ref()?.get(KEY_TOKEN))
            .map(|token| token.0.clone())
            .unwrap_or_default();
        if !self.review(&token, &facts.wish.audiences).await? {
            // A token that is never accepted must not be renewed in a hot loop.
            let now = self.clock.now();
            if let Some(until) = state.rejected_until.filter(|until| now < *until) {
                state.look = true;
                return Ok(Some(until));
            }
            state.rejected_until = Some(later(now, state.rejections.next_delay()));
            self.renew(
                facts,
                state,
                ca,
                found.as_ref(),
                "the managed cluster does not accept the token",
            )
            .await?;
            if let (Some(held), Some(until)) = (&mut state.held, state.rejected_until) {
                held.review_at = held.review_at.min(until);
            }
            return Ok(None);
        }
        state.rejections.reset();
        state.rejected_until = None;
        let wanted = secret::wanted(facts.account, facts.wish, &facts.cluster, &token, None);
        if repair {
            tracing::info!(account = name, "repairing the Secret");
            self.patch_secret(found.as_ref(), &wanted).await?;
        }
        // Told with the rest: a restart must not take back what was said.
        self.leave(name, state).await;
        let held = Held {
            claims,
            wish: facts.wish.clone(),
            ca: ca.clone(),
            digest: digest::of(&wanted),
            review_at: plan::review_at(facts.account, self.clock.now()),
            authenticates: self.authenticates(&token, facts.wish).await?,
        };
        state.held = Some(held.clone());
        self.report_held(name, facts, &held, None, state.left.as_deref())
            .await?;
        Ok(None)
    }

    /// Requests a token and writes it: first the Secret, then the status.
    async fn renew(
        &self,
        facts: &Facts<'_>,
        state: &mut State,
        ca: &Arc<Vec<u8>>,
        found: Option<&Secret>,
        why: &str,
    ) -> Result<(), Stop> {
        let (name, request) = (&facts.wish.name, facts.wish.request());
        let minted = match state.pending.take() {
            Some(minted) if minted.request == request && minted.uid == facts.uid => minted,
            _ => {
                tracing::debug!(account = name, why, "requesting a token");
                self.mint(facts.wish, facts.uid).await?
            }
        };
        let refreshed = self.clock.now();
        let wanted = secret::wanted(
            facts.account,
            facts.wish,
            &facts.cluster,
            &minted.token,
            Some((minted.claims.expires, refreshed)),
        );
        let known = state.held.is_some();
        if let Err(stop) = self.write_secret(facts, found, known, &wanted).await {
            state.pending = Some(minted);
            return Err(stop);
        }
        let held = Held {
            claims: minted.claims,
            wish: facts.wish.clone(),
            ca: ca.clone(),
            digest: digest::of(&wanted),
            review_at: plan::review_at(facts.account, self.clock.now()),
            authenticates: self.authenticates(&minted.token, facts.wish).await?,
        };
        state.held = Some(held.clone());
        self.report_held(name, facts, &held, Some(refreshed), state.left.as_deref())
            .await?;
        Ok(())
    }

    async fn ensure_service_account(&self, wish: &Wish, state: &mut State) -> Result<String, Stop> {
        let name = &wish.name;
        let api = self.spoke_accounts();
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
        // One that we made stays ours, whatever was taken off it.
        let known = state.uid.as_deref() == Some(uid.as_str());
        let verdict = match plan::existing(wish, &found, &self.settings) {
            Err(_) if known => plan::restore(wish, &found, &self.settings),
            verdict => {
                if verdict.is_err() {
                    state.uid = None;
                }
                verdict?
            }
        };
        if let Existing::Restore(patch) = verdict {
            tracing::info!(account = name, "restoring the ServiceAccount");
            api.patch(name, &PatchParams::default(), &Patch::Merge(&patch))
                .await
                .context(|| format!("restore the ServiceAccount {}/{name}", self.settings.namespace))?;
        }
        if plan::is_ours(&found, &self.settings) || known {
            state.uid = Some(uid.clone());
        }
        Ok(uid)
    }

    /// The account is gone, or goes: its ServiceAccount goes, and its Secret.
    async fn end(
        &self,
        name: &str,
        state: &mut State,
        account: Option<&ManagedServiceAccount>,
    ) -> Result<(), Stop> {
        let found = self.service_accounts.get(&self.service_account_ref(name));
        if let Some(found) = found {
            let known = state.uid.is_some() && state.uid == found.uid();
            if (plan::is_ours(&found, &self.settings) || known)
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

fn later(time: Timestamp, delay: Duration) -> Timestamp {
    time.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

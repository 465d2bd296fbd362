//! One account: observe, decide, write.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use arc_swap::{ArcSwap, ArcSwapOption};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::{Client, ResourceExt, core::DeserializeGuard, runtime::reflector::Store};
use writ_api::authentication::{KEY_TOKEN, ManagedServiceAccount, digest};
use writ_controller::{Error, clock::Clock, error::Context as _};

pub use super::state::{Next, State};
use super::{
    plan::{self, Facts, Settings, Verdict, Wish},
    previous_service_account::Former,
    secret::{self, Address, Cluster},
    state::{Held, Stop},
    status::Report,
};

/// How long the hub is given to let the agent write the Secret of a new account, before it is tried all the same.
const PATIENCE: Duration = Duration::from_secs(10);

/// How long a look may take. It is a few requests; one that is never answered must not keep the other accounts waiting.
const LOOK: Duration = Duration::from_secs(30);

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
    /// The Secrets that the agent may write on the hub, by name; none if the hub does not tell.
    pub writable: ArcSwapOption<BTreeSet<String>>,
    /// How others reach the managed cluster's API server, as the hub tells.
    pub address: ArcSwapOption<Address>,
    /// How far the managed cluster's clock is ahead of ours, as its tokens show.
    pub skew: ArcSwap<SignedDuration>,
    /// How long a look may take.
    pub patience: Duration,
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
            writable: ArcSwapOption::empty(),
            address: ArcSwapOption::empty(),
            skew: ArcSwap::from_pointee(SignedDuration::ZERO),
            patience: LOOK,
        }
    }

    /// Whether the agent may write the Secret of that name, as far as the hub tells.
    fn may_write(&self, name: &str) -> bool {
        self.writable
            .load()
            .as_ref()
            .is_none_or(|names| names.contains(name))
    }

    /// A new account waits until the hub lets its Secret be written; before that there is nothing to be done for it.
    fn wait_for_rights(&self, name: &str, state: &mut State) -> Result<(), Stop> {
        if state.held.is_some() || self.may_write(name) {
            state.patience = None;
            return Ok(());
        }
        let now = self.clock.now();
        let until = *state.patience.get_or_insert_with(|| later(now, PATIENCE));
        if now < until {
            return Err(Stop::Waits(until));
        }
        Ok(())
    }

    /// Whether there is such an account.
    pub fn knows(&self, name: &str) -> bool {
        self.accounts.get(&self.account_ref(name)).is_some()
    }

    /// Looks at one account and does what is needed.
    pub async fn look(&self, name: &str, state: &mut State) -> Next {
        let outcome = self.in_time(Box::pin(self.step(name, state))).await;
        let now = self.clock.now();
        let expires = state.held.as_ref().map(|held| held.claims.expires);
        match outcome {
            Ok(next) => {
                state.backoff.reset();
                state.failures = 0;
                next
            }
            Err(Stop::Waits(until)) => Next {
                due: Some(until),
                expires,
            },
            Err(Stop::Refused(refusal)) => {
                let told = self.report(name, &Report::Refused(refusal), state).await;
                let due = match told {
                    Ok(()) => {
                        state.backoff.reset();
                        state.failures = 0;
                        state.yields_until.filter(|until| now < *until)
                    }
                    Err(error) => {
                        tracing::warn!(account = name, %error, "cannot report");
                        state.failures = state.failures.saturating_add(1);
                        Some(later(now, state.backoff.next_delay()))
                    }
                };
                Next { due, expires }
            }
            Err(Stop::Failed(error)) => {
                state.failures = state.failures.saturating_add(1);
                tracing::debug!(account = name, %error, failures = state.failures, "will try again");
                // A hub that has just seen a new account may need a moment to let its agent write the Secret.
                if !error.is_code(403) || state.failures > 3 {
                    let failed = Report::Failed {
                        present: state.present,
                        message: error.to_string(),
                    };
                    if let Err(error) = self.report(name, &failed, state).await {
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

    /// Ends what takes longer than a look may.
    pub(super) async fn in_time<T, E: From<Error>>(
        &self,
        look: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let late = |_| Error::Invalid(format!("there was no answer within {:?}", self.patience));
        tokio::time::timeout(self.patience, look).await.map_err(late)?
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
        self.wait_for_rights(name, state)?;
        let uid = self.ensure_service_account(account, &wish, state).await?;
        let ca = self.ca.load_full().ok_or_else(|| {
            Error::Invalid(
                "the CA of the managed cluster is not known: there is no ConfigMap kube-root-ca.crt".into(),
            )
        })?;
        // Only those who asked for the optional keys care for the address.
        let own = self.settings.url.clone().map(|url| Address { url, ca: None });
        let address = own.or_else(|| self.address.load().as_deref().cloned());
        let address = address.filter(|_| wish.extra.any());
        let facts = Facts {
            account,
            wish: &wish,
            uid: &uid,
            cluster: Cluster {
                name: &self.settings.cluster,
                ca: &ca,
                address: address.as_ref(),
            },
            namespace: &self.settings.namespace,
            now: self.spoke_now(),
        };
        let event = plan::event(account);
        let asked = state.event != Some(event);
        let outdated = state.held.as_ref().and_then(|held| held.outdated(&facts));
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
            Some(_) if let Some(why) = outdated => {
                self.renew(&facts, state, &ca, None, why).await?;
            }
            Some(held) if !asked && held.is_as_wished(&facts) && self.clock.now() < held.review_at => {
                let held = held.clone();
                self.report_held(name, &facts, &held, None, state).await?;
            }
            _ => {
                if let Some(due) = self.inspect(&facts, state, &ca).await? {
                    return Ok(Next {
                        due: Some(due),
                        expires: None,
                    });
                }
            }
        }
        state.event = Some(event);
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
        // One that has expired and shall stay so needs no review.
        let expired = plan::stays_expired(&claims, facts);
        if !expired && !self.review(&token, &facts.wish.audiences).await? {
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
        // It is good, so it was not issued in the future: our clock is behind.
        if !expired && claims.issued > self.spoke_now() {
            self.learn_skew(claims.issued, self.clock.now());
        }
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
            authenticates: if expired {
                None
            } else {
                self.authenticates(&token, facts.wish).await?
            },
            address: facts.cluster.address.cloned(),
        };
        state.held = Some(held.clone());
        self.report_held(name, facts, &held, None, state).await?;
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
        let name = &facts.wish.name;
        let minted = match state.pending.take() {
            Some(minted) if minted.is_good(facts) => minted,
            _ => {
                tracing::debug!(account = name, why, "requesting a token");
                self.mint(facts, ca).await?
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
        // What is written is known to be there, whether or not it can be asked about: another try is no other token.
        let authenticates = self.authenticates(&minted.token, facts.wish).await;
        let now = self.clock.now();
        let held = Held {
            claims: minted.claims,
            wish: facts.wish.clone(),
            ca: ca.clone(),
            digest: digest::of(&wanted),
            review_at: match &authenticates {
                Ok(_) => plan::review_at(facts.account, now),
                Err(_) => now,
            },
            authenticates: *authenticates.as_ref().unwrap_or(&None),
            address: facts.cluster.address.cloned(),
        };
        state.held = Some(held.clone());
        authenticates?;
        self.report_held(name, facts, &held, Some(refreshed), state)
            .await?;
        Ok(())
    }
}

/// A time and a while.
pub(super) fn later(time: Timestamp, delay: Duration) -> Timestamp {
    time.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

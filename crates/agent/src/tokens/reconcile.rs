//! One account: observe, decide, write.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::Client;
use writ_api::authentication::{KEY_TOKEN, ManagedServiceAccount, digest};
use writ_controller::{Error, Name, Next, cache::index_key, clock::Clock, error::Context as _};

use super::{
    model::{Cluster, Facts, Report, Settings, Stop, Verdict, Wish},
    observe::Caches,
    plan::{previous, secret, token},
    state::{Held, State},
};

/// How long the hub is given to let the agent write the Secret of a new account, before that is tried all the same.
const RIGHTS_AWAITED: Duration = Duration::from_secs(10);

/// How long a reconcile may take. It is a few requests; one that is never answered must not block the other accounts.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Reconciles accounts.
pub struct Reconciler {
    /// The hub.
    pub(super) hub: Client,
    /// The managed cluster.
    pub(super) spoke: Client,
    pub(super) settings: Settings,
    pub(super) clock: Clock,
    /// The objects that the watches show.
    pub caches: Arc<Caches>,
    /// How far the managed cluster's clock is ahead of ours, as its tokens show.
    skew: Mutex<SignedDuration>,
    /// How long a reconcile may take.
    pub timeout: Duration,
}

impl Reconciler {
    /// A reconciler that sees what these caches show.
    pub fn new(
        (hub, spoke): (Client, Client),
        settings: Settings,
        clock: Clock,
        caches: Arc<Caches>,
    ) -> Self {
        Self {
            hub,
            spoke,
            settings,
            clock,
            caches,
            skew: Mutex::default(),
            timeout: TIMEOUT,
        }
    }

    /// Returns true if there is an account of that name.
    pub fn has_account(&self, name: &str) -> bool {
        self.caches.accounts.contains(&self.account_name(name))
    }

    /// Reconciles one account, whose state only this call holds. A failure is reported in the account's status, too.
    pub async fn reconcile(&self, name: &str, state: &mut State) -> Result<Next, Error> {
        let outcome = self.in_time(Box::pin(self.step(name, state))).await;
        let error = match outcome {
            Ok(next) => {
                state.failures = 0;
                return Ok(next);
            }
            Err(Stop::Wait(until)) => return Ok(Next::At(until)),
            Err(Stop::Refused(refusal)) => match self.report(name, &Report::Refused(refusal), state).await {
                Ok(()) => {
                    state.failures = 0;
                    let now = self.clock.now();
                    let yields = state.yields_until.filter(|until| now < *until);
                    return Ok(yields.map_or(Next::Wait, Next::At));
                }
                Err(error) => error,
            },
            Err(Stop::Failed(error)) => {
                // A hub that has just seen a new account may need a moment to let its agent write the Secret.
                if !error.is_code(403) || state.failures >= 3 {
                    let failed = Report::Failed {
                        present: state.present,
                        message: error.to_string(),
                    };
                    if let Err(error) = self.report(name, &failed, state).await {
                        tracing::debug!(account = name, %error, "cannot report");
                    }
                }
                error
            }
        };
        state.failures = state.failures.saturating_add(1);
        Err(error)
    }

    /// Ends what takes longer than a reconcile may.
    pub(super) async fn in_time<T, E: From<Error>>(
        &self,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let late = |_| Error::Busy(format!("there was no answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, work).await.map_err(late)?
    }

    async fn step(&self, name: &str, state: &mut State) -> Result<Next, Stop> {
        let Some(account) = self.caches.accounts.get(&self.account_name(name)) else {
            // An account that does not parse keeps what it has.
            if !self.has_account(name) {
                self.end(name, state, None).await?;
            }
            return Ok(Next::Wait);
        };
        let account = &*account;
        if account.metadata.deletion_timestamp.is_some() {
            self.end(name, state, Some(account)).await?;
            return Ok(Next::Wait);
        }
        if state.account != account.metadata.uid {
            *state = State {
                account: account.metadata.uid.clone(),
                ..State::default()
            };
        }
        let wish = token::wish(account, &self.settings)?;
        self.wait_for_rights(name, state)?;
        let uid = self.ensure_service_account(account, &wish, state).await?;
        let ca = self.caches.ca(&self.settings).ok_or_else(|| {
            Error::Invalid(
                "the CA of the managed cluster is not known: there is no ConfigMap kube-root-ca.crt".into(),
            )
        })?;
        // The address is part of the optional keys only.
        let address = self.caches.address(&self.settings);
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
        let input = token::input_fingerprint(account);
        let same_input = state.reviewed_input == Some(input);
        let outdated = state.held.as_ref().and_then(|held| held.outdated(&facts));
        match &state.held {
            _ if state.pending.is_some() => {
                self.renew(&facts, state, None, "the new token is not written yet")
                    .await?;
            }
            // Nothing was ever reported: most likely there is no Secret, and if there is, creating it fails.
            None if !has_reported_token(account) && !state.must_read => {
                self.renew(&facts, state, None, "the account is new").await?;
            }
            Some(_) if let Some(why) = outdated => self.renew(&facts, state, None, why).await?,
            Some(held) if same_input && held.is_as_wished(&facts) && self.clock.now() < held.review_at => {
                let held = held.clone();
                self.report_held(name, &facts, &held, None, state).await?;
            }
            _ => {
                if let Some(due) = self.inspect(&facts, state).await? {
                    return Ok(Next::At(due));
                }
            }
        }
        state.reviewed_input = Some(input);
        let due = self.next_due(account, &wish, state);
        let again = self.delete_previous(name, state).await;
        let again = again.map(|delay| later(self.clock.now(), delay));
        Ok(due.into_iter().chain(again).min().map_or(Next::Wait, Next::At))
    }

    /// A new account waits until the hub lets its Secret be written; before that nothing can be done for it.
    fn wait_for_rights(&self, name: &str, state: &mut State) -> Result<(), Stop> {
        if state.held.is_some() || self.caches.may_write(&self.settings, name) {
            state.rights_awaited_until = None;
            return Ok(());
        }
        let now = self.clock.now();
        let until = *state
            .rights_awaited_until
            .get_or_insert_with(|| later(now, RIGHTS_AWAITED));
        if now < until {
            return Err(Stop::Wait(until));
        }
        Ok(())
    }

    /// When the token is renewed, reviewed, or reported as expired.
    fn next_due(&self, account: &ManagedServiceAccount, wish: &Wish, state: &State) -> Option<Timestamp> {
        let held = state.held.as_ref()?;
        if !wish.rotate && held.claims.expires <= self.spoke_now() {
            return Some(held.review_at);
        }
        let renew = if wish.rotate {
            token::renew_at(&held.claims, account)
        } else {
            held.claims.expires
        };
        let renew = renew.saturating_sub(self.skew()).unwrap_or(Timestamp::MAX);
        Some(renew.min(held.review_at))
    }

    /// Reads the Secret, and repairs or renews it if it needs that. Returns when to come back, if too early.
    async fn inspect(&self, facts: &Facts<'_>, state: &mut State) -> Result<Option<Timestamp>, Stop> {
        let name = &facts.wish.name;
        let found = self
            .secrets()
            .get_opt(name)
            .await
            .context(|| format!("read the Secret {name} on the hub"))?;
        let found = found.as_ref();
        let verdict = token::judge(found, facts);
        state.must_read = false;
        if verdict != Verdict::Malformed {
            state.malformed_since = None;
        }
        let (claims, repair) = match verdict {
            Verdict::Good(claims) => (claims, false),
            Verdict::Repair(claims) => (claims, true),
            Verdict::Renew(why) => {
                if let Some(previous) = previous::of_secret(found, facts) {
                    self.record_previous(name, state, previous).await?;
                }
                self.renew(facts, state, found, why).await?;
                return Ok(None);
            }
            Verdict::Malformed => {
                let now = self.clock.now();
                let since = *state.malformed_since.get_or_insert(now);
                let until = later(since, token::MALFORMED_GRACE);
                if now < until {
                    state.must_read = true;
                    return Ok(Some(until));
                }
                self.renew(facts, state, found, "there is no token in the Secret")
                    .await?;
                state.malformed_since = None;
                return Ok(None);
            }
            Verdict::NotOurs => return Err(token::secret_not_ours(name).into()),
        };
        let data = found.and_then(|secret| secret.data.as_ref()?.get(KEY_TOKEN));
        let text = data.map(|token| token.0.clone()).unwrap_or_default();
        // A token that has expired and is not to be renewed needs no review.
        let expired = token::stays_expired(&claims, facts);
        if !expired && !self.review(&text, &facts.wish.audiences).await? {
            return self.replace_rejected(facts, state, found).await;
        }
        state.rejections.reset();
        state.rejected_until = None;
        // An accepted token was not issued in the future: our clock is behind.
        if !expired && claims.issued > self.spoke_now() {
            self.learn_skew(claims.issued, self.clock.now());
        }
        let wanted = secret::wanted(facts.account, facts.wish, &facts.cluster, &text, None);
        if repair {
            tracing::info!(account = name, "repairing the Secret");
            self.patch_secret(found, &wanted).await?;
        }
        // Before the report, which includes its outcome: a restart must not take back what was reported.
        self.delete_previous(name, state).await;
        let held = Held {
            claims,
            wish: facts.wish.clone(),
            ca: index_key(facts.cluster.ca),
            digest: digest::of(&wanted),
            review_at: token::review_at(facts.account, self.clock.now()),
            authenticates: if expired {
                None
            } else {
                self.authenticates(&text, facts.wish).await?
            },
            address: facts.cluster.address.cloned(),
        };
        state.held = Some(held.clone());
        self.report_held(name, facts, &held, None, state).await?;
        Ok(None)
    }

    /// Replaces a token that the managed cluster does not accept, with growing pauses: a cluster that accepts none must not
    /// be asked in a hot loop. Returns when to come back, if too early.
    async fn replace_rejected(
        &self,
        facts: &Facts<'_>,
        state: &mut State,
        found: Option<&Secret>,
    ) -> Result<Option<Timestamp>, Stop> {
        let now = self.clock.now();
        if let Some(until) = state.rejected_until.filter(|until| now < *until) {
            state.must_read = true;
            return Ok(Some(until));
        }
        let until = later(now, state.rejections.next_delay());
        state.rejected_until = Some(until);
        self.renew(
            facts,
            state,
            found,
            "the managed cluster does not accept the token",
        )
        .await?;
        if let Some(held) = &mut state.held {
            held.review_at = held.review_at.min(until);
        }
        Ok(None)
    }

    /// Requests a token and writes it: first the Secret, then the status.
    async fn renew(
        &self,
        facts: &Facts<'_>,
        state: &mut State,
        found: Option<&Secret>,
        why: &str,
    ) -> Result<(), Stop> {
        let name = &facts.wish.name;
        let minted = match state.pending.take() {
            Some(minted) if minted.is_good(facts) => minted,
            _ => {
                tracing::debug!(account = name, why, "requesting a token");
                self.request_token(facts).await?
            }
        };
        let refreshed = self.clock.now();
        let times = Some((minted.claims.expires, refreshed));
        let wanted = secret::wanted(facts.account, facts.wish, &facts.cluster, &minted.token, times);
        let known = state.held.is_some();
        if let Err(stop) = self.write_secret(facts, found, known, &wanted).await {
            state.pending = Some(minted);
            return Err(stop);
        }
        // The Secret is written whether or not the token can be reviewed: a retry must not request another one.
        let authenticates = self.authenticates(&minted.token, facts.wish).await;
        let now = self.clock.now();
        let held = Held {
            claims: minted.claims,
            wish: facts.wish.clone(),
            ca: index_key(facts.cluster.ca),
            digest: digest::of(&wanted),
            review_at: match &authenticates {
                Ok(_) => token::review_at(facts.account, now),
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

    /// Remembers how far the managed cluster's clock is from ours.
    pub(super) fn learn_skew(&self, theirs: Timestamp, ours: Timestamp) {
        self.set_skew(token::skew(theirs, ours));
    }

    /// Sets how far the managed cluster's clock is ahead of ours.
    pub fn set_skew(&self, skew: SignedDuration) {
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner) = skew;
    }

    fn skew(&self) -> SignedDuration {
        *self.skew.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn spoke_now(&self) -> Timestamp {
        self.clock
            .now()
            .saturating_add(self.skew())
            .unwrap_or(Timestamp::MAX)
    }

    pub(super) fn account_name(&self, name: &str) -> Name {
        Name::new(self.settings.cluster.as_str(), name)
    }
}

/// Returns true if the account's status names a Secret with a token.
pub(super) fn has_reported_token(account: &ManagedServiceAccount) -> bool {
    let status = account.status.as_ref();
    status.is_some_and(|status| status.token_secret_ref.is_some())
}

/// A time and a while.
pub(super) fn later(time: Timestamp, delay: Duration) -> Timestamp {
    time.saturating_add(delay).unwrap_or(Timestamp::MAX)
}

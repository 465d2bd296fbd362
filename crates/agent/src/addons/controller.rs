//! Keeps a good credential in the Secret of the add-on, as long as the hub wants one.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::config::Cluster;
use tokio::sync::Mutex;
use writ_api::addon::ManagedClusterAddOn;
use writ_controller::{
    Cache, Controller, Error, Name, Next, Queue,
    backoff::{Backoff, jitter},
    clock::Clock,
    renewal,
};

use super::{
    credential::{self, Asked, PendingRequest},
    model::{ADDON, Given, NAMESPACE, Registration},
    observe::{SecretWatch, watch_add_on},
    plan::registration,
};
use crate::{
    Context,
    registration::certificate::{self, Answer},
};

/// The least time between two credentials.
const BETWEEN: Duration = Duration::from_secs(5);

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let Some(hub) = context.options.hub_cluster.clone() else {
        tracing::warn!("the address of the hub is not configured: no credential of an add-on is kept");
        return Ok(());
    };
    // The agent is ready without it: a hub that does not let it watch the add-on has none for it.
    context.health.gate("register add-ons").open();
    let add_ons = watch_add_on(&context);
    let shutdown = context.shutdown.clone();
    let controller = Controller::new("addons", &context.health)
        .watch_unawaited(&add_ons, |_| [ADDON])
        .on_list(&add_ons, || [ADDON]);
    let reconciler = Arc::new(Reconciler {
        keeps_accounts: context.running_controllers().iter().any(|name| name == "tokens"),
        queue: controller.queue(),
        state: Mutex::default(),
        context,
        hub,
        add_ons,
    });
    controller
        .run(1, &shutdown, move |_| {
            let reconciler = reconciler.clone();
            async move { reconciler.reconcile().await }
        })
        .await;
    Ok(())
}

struct Reconciler {
    context: Context,
    /// The address of the hub, for the kubeconfig.
    hub: Cluster,
    /// This very agent keeps the accounts, so that the add-on is not installed.
    keeps_accounts: bool,
    queue: Queue<&'static str>,
    add_ons: Cache<ManagedClusterAddOn>,
    state: Mutex<State>,
}

/// What is remembered between reconciles.
struct State {
    /// Where the Secret may be.
    place: Place,
    watch: Option<SecretWatch>,
    /// What the hub wanted last; the rest is about it.
    registration: Option<Registration>,
    pending: Option<PendingRequest>,
    /// What the hub gave and could not be written yet.
    given: Option<Secret>,
    /// A Secret that is edited again and again must not make the hub sign in a loop.
    not_before: Timestamp,
    pauses: Backoff,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    /// An earlier agent may have written it to the default namespace.
    Unknown,
    Namespace(String),
    Nowhere,
}

impl Default for State {
    fn default() -> Self {
        Self {
            place: Place::Unknown,
            watch: None,
            registration: None,
            pending: None,
            given: None,
            not_before: Timestamp::MIN,
            pauses: Backoff::new(Duration::from_secs(1), Duration::from_mins(2)),
        }
    }
}

impl Reconciler {
    async fn reconcile(&self) -> Result<Next, Error> {
        if !self.add_ons.is_ready() {
            return Ok(Next::Wait);
        }
        let cluster = self.context.options.cluster_name.as_str();
        let add_on = self.add_ons.get(&Name::new(cluster, ADDON));
        let add_on = add_on.as_deref();
        // The hub may ask for a registration until it knows that this agent keeps the accounts.
        let wanted = registration(add_on).filter(|_| !self.keeps_accounts);
        let mut state = self.state.lock().await;
        if add_on.is_some_and(|add_on| add_on.metadata.deletion_timestamp.is_some()) {
            // While it is deleted it may still need the hub, to clean up.
            return match state.registration.clone() {
                Some(registration) => self.keep(&mut state, &registration).await,
                None => Ok(Next::Wait),
            };
        }
        let former = match &state.place {
            Place::Unknown => Some(add_on.map_or(NAMESPACE, ManagedClusterAddOn::wished_namespace)),
            Place::Namespace(namespace) => Some(namespace.as_str()),
            Place::Nowhere => None,
        };
        if let Some(former) = former
            && wanted.as_ref().is_none_or(|wanted| wanted.namespace != former)
        {
            credential::delete(&self.context, former).await?;
            state.place = Place::Nowhere;
        }
        let Some(wanted) = wanted else {
            *state = State {
                place: Place::Nowhere,
                ..State::default()
            };
            return Ok(Next::Wait);
        };
        self.keep(&mut state, &wanted).await
    }

    /// Keeps a good credential in the Secret.
    async fn keep(&self, state: &mut State, wanted: &Registration) -> Result<Next, Error> {
        if state.registration.as_ref() != Some(wanted) {
            *state = State {
                place: Place::Namespace(wanted.namespace.clone()),
                watch: state.watch.take(),
                registration: Some(wanted.clone()),
                ..State::default()
            };
        }
        let watch = match state.watch.take() {
            Some(watch) if watch.namespace == wanted.namespace => watch,
            _ => SecretWatch::start(&self.context, &wanted.namespace, &self.queue),
        };
        let watch = state.watch.insert(watch);
        if !watch.is_ready() {
            return Ok(Next::Wait);
        }
        let life = wanted.life(&self.hub, watch.secret().as_deref());
        let renew_at = life.map(|life| renewal::renew_at(life.from, life.until, &wanted.user));
        let now = Clock::System.now();
        let due = renew_at.unwrap_or(state.not_before).max(state.not_before);
        if now < due {
            return Ok(Next::At(due));
        }
        let replaced = self.replace(state, wanted).await;
        let pause = match &replaced {
            Ok(Some(pause)) => return Ok(Next::After(*pause)),
            Ok(None) => {
                state.pauses.reset();
                jitter(BETWEEN)
            }
            Err(_) => state.pauses.next_delay(),
        };
        state.not_before = now.saturating_add(pause).unwrap_or(Timestamp::MAX);
        replaced.map(|_| Next::At(state.not_before))
    }

    /// Writes a new credential: the one that was given before, or another. Returns the pause after which a pending request is
    /// read again.
    async fn replace(&self, state: &mut State, wanted: &Registration) -> Result<Option<Duration>, Error> {
        if state.given.is_none() {
            let given = match &mut state.pending {
                None => match credential::ask(&self.context, wanted).await? {
                    Asked::Given(given) => given,
                    Asked::Pending(pending) => {
                        let pending = state.pending.insert(pending);
                        return Ok(Some(pending.pauses.next_delay()));
                    }
                },
                Some(pending) => match credential::answer(&self.context, pending).await? {
                    Answer::Pending => return Ok(Some(pending.pauses.next_delay())),
                    Answer::Issued(certificate) => Given::Certificate {
                        certificate,
                        key: pending.key.clone(),
                    },
                    Answer::Refused => {
                        let refused = certificate::refused(&pending.name);
                        state.pending = None;
                        return Err(refused);
                    }
                },
            };
            state.pending = None;
            state.given = Some(wanted.secret(&self.hub, &given)?);
        }
        if let Some(secret) = &state.given {
            credential::write(&self.context, secret).await?;
        }
        state.given = None;
        Ok(None)
    }
}

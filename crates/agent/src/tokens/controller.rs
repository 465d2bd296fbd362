//! Brings an account to be reconciled when anything that it depends on changes, and when its time has come.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use k8s_openapi::api::rbac::v1::Role;
use writ_api::authentication::AGENT_ROLE;
use writ_controller::{Controller, Error, Name, Next, Queue, cache::Change};

use super::{
    model::Settings,
    observe::{Caches, own_service_account},
    plan::role,
    reconcile::Reconciler,
    state::State,
};
use crate::Context;

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let options = &context.options.tokens;
    let settings = Settings {
        cluster: context.options.cluster_name.clone(),
        namespace: context.options.agent_namespace.clone(),
        reserved: options.reserved.clone(),
        url: options.api_server_url.clone(),
        ca: options.cluster_ca.clone(),
        owner: None,
    };
    let caches = Arc::new(Caches::start(
        &context.hub,
        &context.spoke,
        &settings,
        &context.shutdown,
    ));
    let controller = watch(&context, &caches);
    let asked = own_service_account(&context.spoke, &settings.namespace, options.clock);
    let Some((owner, skew)) = context.shutdown.run_until_cancelled(asked).await else {
        return Ok(());
    };
    let mut settings = Settings { owner, ..settings };
    // No account gets a token of the agent's own ServiceAccount, whatever that is called.
    settings
        .reserved
        .extend(settings.owner.iter().map(|owner| owner.name.clone()));
    let clients = (context.hub.clone(), context.spoke.clone());
    let reconciler = Reconciler::new(clients, settings, options.clock, caches);
    reconciler.set_skew(skew);
    let accounts = Arc::new(Accounts {
        queue: controller.queue(),
        reconciler,
        states: Mutex::default(),
    });
    controller
        .run(options.concurrency, &context.shutdown, move |name| {
            let accounts = accounts.clone();
            async move { accounts.reconcile(name).await }
        })
        .await;
    Ok(())
}

/// What brings which accounts, by name, to be reconciled. "There is none" can be told from "not seen yet" only once accounts
/// and ServiceAccounts are listed.
fn watch(context: &Context, caches: &Arc<Caches>) -> Controller<Arc<str>> {
    let with = || caches.clone();
    let (on_hub, in_cluster, on_ca, on_role) = (with(), with(), with(), with());
    Controller::with_clock("tokens", &context.health, context.options.tokens.clock)
        .watch(&caches.accounts, |change| [change.name.name.clone()])
        .watch(&caches.service_accounts, |change| [change.name.name.clone()])
        .watch_unawaited(&caches.config_maps, move |_| all(&on_ca))
        .watch_unawaited(&caches.roles, move |change| role_changed(&on_role, change))
        // After an outage no account waits for the end of its pause.
        .on_list(&caches.accounts, move || all(&on_hub))
        .on_list(&caches.service_accounts, move || all(&in_cluster))
}

/// Every account, and every ServiceAccount: its account may be gone.
fn all(caches: &Caches) -> Vec<Arc<str>> {
    let names = caches.accounts.names().into_iter();
    names
        .chain(caches.service_accounts.names())
        .map(|name| name.name)
        .collect()
}

/// The accounts whose Secret has become the agent's to write, or all if the address of the API server changed.
fn role_changed(caches: &Caches, change: &Change<'_, Role>) -> Vec<Arc<str>> {
    if *change.name.name != *AGENT_ROLE {
        return Vec::new();
    }
    let old = change.old();
    let (old, new) = (old.as_deref(), change.new.as_deref());
    if old.and_then(role::address) != new.and_then(role::address) {
        return all(caches);
    }
    let before = old.and_then(role::writable_secrets);
    let writable = new.and_then(role::writable_secrets).unwrap_or_default();
    writable
        .into_iter()
        .filter(|name| before.as_ref().is_none_or(|before| !before.contains(name)))
        .map(|name| Name::new(change.name.namespace.clone(), name))
        .filter(|name| caches.accounts.contains(name))
        .map(|name| name.name)
        .collect()
}

struct Accounts {
    reconciler: Reconciler,
    states: Mutex<HashMap<Arc<str>, State>>,
    queue: Queue<Arc<str>>,
}

impl Accounts {
    /// Reconciles one account. After an outage the token that expires first is served first.
    async fn reconcile(&self, name: Arc<str>) -> Result<Next, Error> {
        let states = || self.states.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = states().remove(&name).unwrap_or_default();
        let next = self.reconciler.reconcile(&name, &mut state).await;
        self.queue.set_urgency(&name, state.expires());
        if self.reconciler.has_account(&name) {
            states().insert(name, state);
        }
        next
    }
}

//! Brings one thing in shape: observes, plans, and writes what differs.

mod account;
mod cluster;
mod older_group;
mod policy;
mod request;
mod secrets;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use jiff::Timestamp;
use kube::Client;
use writ_controller::{Error, Name, Next};

use super::{
    foreign_secrets::ForeignSecrets,
    model::Key,
    observe::{Caches, DeletedSecrets},
};
use crate::{
    Context,
    options::{AccountOptions, RegistrationDriver},
};

/// Reconciles accounts, clusters, requests and the policy.
pub struct Reconciler {
    client: Client,
    caches: Arc<Caches>,
    deleted_secrets: Arc<DeletedSecrets>,
    foreign_secrets: ForeignSecrets,
    options: AccountOptions,
    /// How agents prove who they are.
    driver: RegistrationDriver,
    /// Accounts whose Secret is not as reported, why, and since when.
    suspects: Mutex<HashMap<Name, (String, Timestamp)>>,
    /// Whether the policy and its binding of these versions are as wanted.
    judged: Mutex<Option<(policy::Versions, bool)>>,
}

impl Reconciler {
    /// A reconciler that sees what these caches show.
    pub fn new(
        context: &Context,
        caches: Arc<Caches>,
        deleted_secrets: Arc<DeletedSecrets>,
        foreign_secrets: ForeignSecrets,
    ) -> Self {
        Self {
            client: context.client.clone(),
            caches,
            deleted_secrets,
            foreign_secrets,
            options: context.options.managed_service_account.clone(),
            driver: context.options.registration_driver,
            suspects: Mutex::default(),
            judged: Mutex::default(),
        }
    }

    /// Reconciles one thing.
    pub async fn reconcile(&self, key: &Key) -> Result<Next, Error> {
        match key {
            Key::Policy => self.policy().await,
            Key::Cluster(name) => self.cluster(name).await,
            Key::Request(name) => self.request(name).await,
            Key::Owner(name) => self.owner(name).await,
            Key::Account(name) => self.account(name).await,
        }
    }

    fn now(&self) -> Timestamp {
        self.options.clock.now()
    }
}

/// To run again at this time, if there is one.
fn next_at(time: Option<Timestamp>) -> Next {
    time.map_or(Next::Wait, Next::At)
}

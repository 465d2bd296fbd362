//! One sync, the account that it acts as, and what it shares with others.

use std::sync::Arc;

use kube::Client;

use super::{
    apply::{Ownership, Writer},
    execute::Executor,
    shared::{Account, Shared},
};
use crate::model::{Sync, SyncId};

/// One sync, the account that it acts as, and what it shares with others.
pub struct Session {
    /// What it shares with others.
    pub shared: Arc<Shared>,
    /// The sync, as it was last seen.
    pub sync: Arc<Sync>,
    account: Account,
}

impl Session {
    /// The session of a sync.
    pub fn new(shared: Arc<Shared>, sync: Arc<Sync>, account: Account) -> Self {
        Self {
            shared,
            sync,
            account,
        }
    }

    /// The id of the sync.
    pub fn id(&self) -> &SyncId {
        &self.sync.id
    }

    /// The client of the account.
    pub fn client(&self) -> &Client {
        &self.account.client
    }

    /// Writes with the account of the sync.
    pub fn executor(&self) -> Executor<'_> {
        Executor {
            writer: Writer {
                client: self.client(),
                ownership: Ownership {
                    sync: &self.sync,
                    view: self.shared.manager_view(),
                },
            },
            mapper: &self.shared.mapper,
        }
    }
}

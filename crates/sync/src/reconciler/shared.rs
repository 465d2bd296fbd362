//! What the reconcilers of a process share.

use std::{
    path::PathBuf,
    sync::{Arc, OnceLock},
};

use kube::Client;
use writ_controller::{Error, RestMapper};

use super::{
    apply::ManagerView,
    source::{FetchLimits, MemoryPool},
};
use crate::{
    Options,
    clients::{Clients, Identity},
    model::{SYSTEM_NAMESPACE, SyncId},
    names,
};

/// What the reconcilers of a process share.
pub struct Shared {
    identities: Identities,
    /// The kinds that the API server serves.
    pub mapper: RestMapper,
    /// The folder of clones.
    pub cache: PathBuf,
    /// Whether RepoSyncs may read repositories on this machine.
    pub tenants_read_local: bool,
    /// How many repositories are read at once.
    pub fetch_limits: FetchLimits,
    /// The memory for files of repositories.
    pub memory: MemoryPool,
    manager_view: OnceLock<Arc<dyn ManagerView>>,
}

/// Whose identity the requests of a reconciler carry.
pub enum Identities {
    /// The account of each sync, by TokenRequest.
    PerSync(Clients),
    /// The account of this process.
    Own(Client),
}

/// A client with the identity of one sync.
pub struct Account {
    /// The client.
    pub client: Client,
    /// Renews the token of the client; absent for the account of the process.
    _identity: Option<Identity>,
}

impl Account {
    /// An account whose client needs no renewal of its own.
    pub fn of_process(client: Client) -> Self {
        Self {
            client,
            _identity: None,
        }
    }
}

impl Shared {
    /// For reconcilers with these identities.
    pub fn new(identities: Identities, options: &Options) -> Self {
        Self {
            // A process of its own contains no repositories of others.
            tenants_read_local: options.tenants_read_local || matches!(identities, Identities::Own(_)),
            identities,
            mapper: RestMapper::default(),
            cache: options.cache.clone(),
            fetch_limits: FetchLimits::default(),
            memory: MemoryPool::default(),
            manager_view: OnceLock::new(),
        }
    }

    /// Sets the view of the manager in this process. A process has one manager, so only the first call counts.
    pub fn set_manager_view(&self, view: Arc<dyn ManagerView>) {
        let _ = self.manager_view.set(view);
    }

    /// The view of the manager; `None` for a reconciler in a process of its own.
    pub fn manager_view(&self) -> Option<&dyn ManagerView> {
        self.manager_view.get().map(|view| &**view)
    }

    /// The account that a sync acts as.
    pub async fn account(&self, id: &SyncId) -> Result<Account, Error> {
        match &self.identities {
            Identities::Own(client) => Ok(Account::of_process(client.clone())),
            Identities::PerSync(clients) => {
                let identity = clients.identity(SYSTEM_NAMESPACE, &names::reconciler(id)).await?;
                Ok(Account {
                    client: identity.client.clone(),
                    _identity: Some(identity),
                })
            }
        }
    }
}

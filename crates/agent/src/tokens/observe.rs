//! What is observed: accounts and the agent's Role on the hub, ServiceAccounts and the CA in the managed cluster, and the
//! agent itself.

use std::{sync::Arc, time::Duration};

use jiff::SignedDuration;
use k8s_openapi::{
    api::{
        authentication::v1::SelfSubjectReview,
        core::v1::{ConfigMap, ServiceAccount},
        rbac::v1::Role,
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{Api, Client, api::PostParams};
use tokio_util::sync::CancellationToken;
use writ_api::authentication::{AGENT_ROLE, ManagedServiceAccount};
use writ_controller::{Cache, Name, Watch, backoff::Backoff, clock::Clock};

use super::{
    model::{Address, Settings},
    plan::{role, token},
};
use crate::token_claims;

/// Where Kubernetes publishes the CA of its API server, in every namespace.
pub const CA_CONFIG_MAP: &str = "kube-root-ca.crt";

/// The caches that this controller reads.
pub struct Caches {
    /// The accounts of this cluster, on the hub.
    pub accounts: Cache<ManagedServiceAccount>,
    /// The agent's Role on the hub, which may be hidden from the agent.
    pub roles: Cache<Role>,
    /// The ServiceAccounts of the agent's namespace.
    pub service_accounts: Cache<ServiceAccount>,
    /// The CA of the managed cluster.
    pub config_maps: Cache<ConfigMap>,
}

impl Caches {
    /// Starts the watches.
    pub fn start(hub: &Client, spoke: &Client, settings: &Settings, shutdown: &CancellationToken) -> Self {
        let (accounts, roles, service_accounts, config_maps) = watches(hub, spoke, settings);
        Self {
            accounts: accounts.start(shutdown),
            roles: roles.start(shutdown),
            service_accounts: service_accounts.start(shutdown),
            config_maps: config_maps.start(shutdown),
        }
    }

    /// Caches without watches, for simulations that record what a watch would show.
    pub fn unwatched(hub: &Client, spoke: &Client, settings: &Settings) -> Self {
        let (accounts, roles, service_accounts, config_maps) = watches(hub, spoke, settings);
        Self {
            accounts: accounts.without_watch(),
            roles: roles.without_watch(),
            service_accounts: service_accounts.without_watch(),
            config_maps: config_maps.without_watch(),
        }
    }

    /// The CA of the managed cluster, in PEM: that of its ConfigMap, or the configured one.
    pub fn ca(&self, settings: &Settings) -> Option<Vec<u8>> {
        let map = self
            .config_maps
            .get(&Name::new(settings.namespace.as_str(), CA_CONFIG_MAP));
        let published = map.as_ref().and_then(|map| map.data.as_ref()?.get("ca.crt"));
        published
            .or(settings.ca.as_ref())
            .map(|ca| ca.clone().into_bytes())
    }

    /// The address of the managed cluster's API server: the configured one, or what the hub tells.
    pub fn address(&self, settings: &Settings) -> Option<Address> {
        let own = settings.url.clone().map(|url| Address { url, ca: None });
        own.or_else(|| role::address(&*self.role(settings)?))
    }

    /// Returns true if the agent may write the Secret of that name, or if the hub does not tell.
    pub fn may_write(&self, settings: &Settings, name: &str) -> bool {
        let writable = self.role(settings).and_then(|role| role::writable_secrets(&role));
        writable.is_none_or(|names| names.contains(name))
    }

    fn role(&self, settings: &Settings) -> Option<Arc<Role>> {
        self.roles.get(&Name::new(settings.cluster.as_str(), AGENT_ROLE))
    }
}

type Watches = (
    Watch<ManagedServiceAccount>,
    Watch<Role>,
    Watch<ServiceAccount>,
    Watch<ConfigMap>,
);

fn watches(hub: &Client, spoke: &Client, settings: &Settings) -> Watches {
    let (cluster, namespace) = (&settings.cluster, &settings.namespace);
    let named = |name: &str| format!("metadata.name={name}");
    (
        Watch::new(Api::namespaced(hub.clone(), cluster)),
        Watch::new(Api::namespaced(hub.clone(), cluster)).fields(&named(AGENT_ROLE)),
        Watch::new(Api::namespaced(spoke.clone(), namespace)),
        Watch::new(Api::namespaced(spoke.clone(), namespace)).fields(&named(CA_CONFIG_MAP)),
    )
}

/// The ServiceAccount that the agent itself runs as, if it is one of its own namespace; and how far the clock of the cluster
/// that answers is ahead of ours: existing tokens are judged by it.
pub async fn own_service_account(
    spoke: &Client,
    namespace: &str,
    clock: Clock,
) -> (Option<OwnerReference>, SignedDuration) {
    let reviews: Api<SelfSubjectReview> = Api::all(spoke.clone());
    let mut backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));
    loop {
        match reviews
            .create(&PostParams::default(), &SelfSubjectReview::default())
            .await
        {
            Ok(review) => {
                let answered = review.metadata.creation_timestamp.as_ref();
                let skew = answered.map(|at| token::skew(at.0, clock.now()));
                return (owner_of(review, namespace), skew.unwrap_or_default());
            }
            // A server that does not know the question, or does not answer it.
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                return (None, SignedDuration::ZERO);
            }
            Err(error) => {
                tracing::debug!(%error, "cannot ask for the agent's own identity, will try again");
                tokio::time::sleep(backoff.next_delay()).await;
            }
        }
    }
}

fn owner_of(review: SelfSubjectReview, namespace: &str) -> Option<OwnerReference> {
    let user = review.status?.user_info?;
    let subject = user.username?;
    let (_, name) = subject.rsplit_once(':')?;
    (subject == token_claims::subject(namespace, name)).then_some(OwnerReference {
        api_version: "v1".into(),
        kind: "ServiceAccount".into(),
        name: name.to_owned(),
        uid: user.uid?,
        ..OwnerReference::default()
    })
}

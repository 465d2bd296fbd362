//! One HTTP stack for the process, one identity per sync.
//!
//! A reconciler never uses the manager's identity: its requests carry a token of its own ServiceAccount, asked for
//! by TokenRequest and renewed before it ends. The connections are shared, as the identity is in each request.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{HeaderValue, Request, header::AUTHORIZATION};
use kube::{Client, Config, client::Body, config::AuthInfo};
use tokio_util::sync::CancellationToken;
use writ_controller::{Error, backoff::Backoff, error::Context as _, health::Health};
use writ_process::{client, token};

/// How long a token is asked to live; the API server may answer with less or more.
const LIFETIME: Duration = Duration::from_hours(1);

/// Makes clients with the identity of a ServiceAccount.
#[derive(Clone)]
pub struct Clients {
    /// The manager's own client, which may ask for tokens.
    manager: Client,
    /// A client without any identity, which carries everybody's requests.
    anonymous: Client,
}

/// A client with the identity of a ServiceAccount, as long as this lives.
pub struct Identity {
    /// The client.
    pub client: Client,
    _renewal: tokio_util::sync::DropGuard,
}

impl Clients {
    /// For the API server of that configuration, whose own credentials go to no reconciler.
    pub fn of(config: Config) -> Result<Self, Error> {
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        let anonymous = client::connect(bare).context(|| "make a client without credentials".to_owned())?;
        let manager = client::connect(config).context(|| "make a client of the API server".to_owned())?;
        Ok(Self { manager, anonymous })
    }

    /// A client with the manager's identity, and one without any for the same API server.
    pub fn new(manager: Client, anonymous: Client) -> Self {
        Self { manager, anonymous }
    }

    /// The same; requests are counted, those of the manager apart from those of all reconcilers.
    #[must_use]
    pub fn counted(self, health: &Health) -> Self {
        Self {
            manager: health.counted("manager", self.manager),
            anonymous: health.counted("reconcilers", self.anonymous),
        }
    }

    /// The manager's own client.
    pub fn manager(&self) -> &Client {
        &self.manager
    }

    /// A client for that account; its token is renewed until the identity is dropped.
    pub async fn identity(&self, namespace: &str, account: &str) -> Result<Identity, Error> {
        let (token, lifetime) = self.token(namespace, account).await?;
        let header = Arc::new(ArcSwap::from_pointee(token));
        let carrier = self.anonymous.clone();
        let current = header.clone();
        let service = tower::service_fn(move |mut request: Request<Body>| {
            let carrier = carrier.clone();
            request
                .headers_mut()
                .insert(AUTHORIZATION, HeaderValue::clone(&current.load()));
            async move { carrier.send(request).await }
        });
        let client = Client::new(service, namespace);
        let stop = CancellationToken::new();
        tokio::spawn(renew(
            self.clone(),
            namespace.to_owned(),
            account.to_owned(),
            header,
            lifetime,
            stop.clone(),
        ));
        Ok(Identity {
            client,
            _renewal: stop.drop_guard(),
        })
    }

    async fn token(&self, namespace: &str, account: &str) -> Result<(HeaderValue, Duration), Error> {
        let seconds = i64::try_from(LIFETIME.as_secs()).ok();
        let token = token::request(&self.manager, namespace, account, seconds).await?;
        let left = Duration::try_from(token.ends.duration_since(jiff::Timestamp::now())).unwrap_or(LIFETIME);
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.text)).map_err(|_| {
            Error::Invalid(format!(
                "the token of ServiceAccount {namespace}/{account} cannot be sent"
            ))
        })?;
        header.set_sensitive(true);
        Ok((header, left))
    }
}

/// Renews the token when four fifths of its life are over.
async fn renew(
    clients: Clients,
    namespace: String,
    account: String,
    header: Arc<ArcSwap<HeaderValue>>,
    mut lifetime: Duration,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
    let mut wait = lifetime.mul_f64(0.8);
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        match clients.token(&namespace, &account).await {
            Ok((token, left)) => {
                header.store(Arc::new(token));
                lifetime = left;
                backoff.reset();
                wait = lifetime.mul_f64(0.8);
            }
            Err(error) => {
                tracing::warn!(%namespace, %account, %error, "the token was not renewed");
                wait = backoff.next_delay();
            }
        }
    }
}

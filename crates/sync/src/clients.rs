//! One HTTP stack for the process, one identity per sync.
//!
//! A reconciler never uses the manager's identity. Its requests carry a token of its own ServiceAccount, obtained by
//! TokenRequest and renewed before it expires. The identity is in each request, so the connections are shared.

use std::{sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use http::{HeaderValue, Request, header::AUTHORIZATION};
use jiff::Timestamp;
use kube::{Client, Config, client::Body, config::AuthInfo};
use tokio_util::sync::CancellationToken;
use writ_controller::{Error, backoff::Backoff, error::Context as _, health::Health, renewal::renew_at};
use writ_process::{client, token};

/// The requested lifetime of a token. The API server may grant less or more.
const LIFETIME: Duration = Duration::from_hours(1);

/// A token is not requested again sooner than this.
const SOONEST: Duration = Duration::from_secs(1);

/// Makes clients with the identity of a ServiceAccount.
#[derive(Clone)]
pub struct Clients {
    /// The manager's own client, which may request tokens.
    manager: Client,
    /// A client without credentials, whose connections carry the requests of every identity.
    anonymous: Client,
}

/// A client with the identity of a ServiceAccount. Its token is renewed until this value is dropped.
pub struct Identity {
    /// The client.
    pub client: Client,
    _renewal: tokio_util::sync::DropGuard,
}

impl Clients {
    /// Connects to the API server of a configuration. The credentials of the configuration are the manager's alone.
    pub fn of(config: Config) -> Result<Self, Error> {
        let mut bare = config.clone();
        bare.auth_info = AuthInfo::default();
        let anonymous = client::connect(bare).context(|| "make a client without credentials".to_owned())?;
        let manager = client::connect(config).context(|| "make a client of the API server".to_owned())?;
        Ok(Self { manager, anonymous })
    }

    /// Takes a client with the manager's identity, and one without credentials for the same API server.
    pub fn new(manager: Client, anonymous: Client) -> Self {
        Self { manager, anonymous }
    }

    /// Counts requests, those of the manager apart from those of all reconcilers.
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

    /// Obtains a token for a ServiceAccount, and returns a client that sends it.
    pub async fn identity(&self, namespace: &str, account: &str) -> Result<Identity, Error> {
        let (token, renewal) = self.token(namespace, account).await?;
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
            renewal,
            stop.clone(),
        ));
        Ok(Identity {
            client,
            _renewal: stop.drop_guard(),
        })
    }

    /// Requests a token; returns it with the time until its renewal.
    async fn token(&self, namespace: &str, account: &str) -> Result<(HeaderValue, Duration), Error> {
        let seconds = i64::try_from(LIFETIME.as_secs()).ok();
        let issued = Timestamp::now();
        let token = token::request(&self.manager, namespace, account, seconds).await?;
        // A clock that is far ahead of the server's must not make every token look expired.
        let expires = Some(token.ends).filter(|ends| *ends > issued);
        let expires = expires.unwrap_or_else(|| issued.saturating_add(LIFETIME).unwrap_or(issued));
        let renewal = renew_at(issued, expires, &(namespace, account)).duration_since(issued);
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.text)).map_err(|_| {
            Error::Invalid(format!(
                "the token of ServiceAccount {namespace}/{account} cannot be sent"
            ))
        })?;
        header.set_sensitive(true);
        let renewal = Duration::try_from(renewal).unwrap_or_default();
        Ok((header, renewal.max(SOONEST)))
    }
}

/// Replaces the token each time it is due for renewal. A failure is retried with growing pauses.
async fn renew(
    clients: Clients,
    namespace: String,
    account: String,
    header: Arc<ArcSwap<HeaderValue>>,
    mut wait: Duration,
    stop: CancellationToken,
) {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(wait) => {}
        }
        match clients.token(&namespace, &account).await {
            Ok((token, renewal)) => {
                header.store(Arc::new(token));
                backoff.reset();
                wait = renewal;
            }
            Err(error) => {
                tracing::warn!(%namespace, %account, %error, "the token was not renewed, will try again");
                wait = backoff.next_delay();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        collections::{BTreeMap, BTreeSet},
        sync::Mutex,
    };

    use http::Response;
    use tokio::time::Instant;

    use super::*;

    /// When each account asked for a token.
    type Requests = Arc<Mutex<BTreeMap<String, Vec<Instant>>>>;

    /// An API server that issues tokens for an hour.
    fn issuer() -> (Client, Requests) {
        let asked = Requests::default();
        let log = asked.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let account = request.uri().path().to_owned();
            log.lock()
                .unwrap()
                .entry(account)
                .or_default()
                .push(Instant::now());
            let expires = jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1);
            let answer = serde_json::json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "metadata": {},
                "spec": { "audiences": [] },
                "status": { "token": "t", "expirationTimestamp": expires },
            });
            async move {
                Response::builder()
                    .status(201)
                    .body(Body::from(answer.to_string().into_bytes()))
                    .map_err(std::io::Error::other)
            }
        });
        (Client::new(service, "default"), asked)
    }

    #[tokio::test(start_paused = true)]
    async fn tokens_issued_together_are_renewed_apart_at_70_to_80_percent() {
        let (client, asked) = issuer();
        let clients = Clients::new(client.clone(), client);
        let start = Instant::now();
        let mut identities = Vec::new();
        for number in 0..20 {
            let identity = clients.identity("system", &format!("account-{number}")).await;
            identities.push(identity.unwrap());
        }
        tokio::time::sleep(Duration::from_mins(50)).await;
        let asked = asked.lock().unwrap();
        assert_eq!(asked.len(), 20);
        let mut renewals = BTreeSet::new();
        for times in asked.values() {
            assert_eq!(times.len(), 2, "{times:?}");
            let after = (times[1] - start).as_secs();
            assert!((2515..=2885).contains(&after), "renewed after {after} s of 3600");
            renewals.insert(after);
        }
        assert!(renewals.len() > 10, "renewed together: {renewals:?}");
    }
}

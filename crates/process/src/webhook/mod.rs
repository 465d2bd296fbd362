//! An admission webhook server with certificates of its own.
//!
//! The CA lives in a Secret that all replicas share; each replica signs its own serving certificate with it. The
//! CA's certificate is written into the webhook configurations, which are restored when they are changed.
//! A CA is replaced long before it ends, and both are trusted for a while, so that no request is ever refused
//! for a certificate. Where cert-manager writes certificates to files, those are used instead.

mod certs;
mod configurations;
mod server;

use std::{net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use axum::{Router, extract::DefaultBodyLimit};
use futures::{StreamExt, stream::select};
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use kube::Client;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use certs::Timing;
use writ_controller::{Error, backoff::Backoff, health::Health};

/// The largest review that is read: the old object as an API server stores it, the new one as large as a request may
/// be, 3 MiB, and their frame. A larger review is refused; with a smaller limit, making an object large would keep
/// all others from changing it.
const BODY_LIMIT: usize = 8 * 1024 * 1024;
/// API servers have read a change of their webhook configurations by then.
const SETTLES_WITHIN: Duration = Duration::from_secs(1);

/// How API servers reach the webhooks.
#[derive(Clone, Debug)]
pub enum Target {
    /// At this address, for a process outside of the cluster; `None` means the address it listens on. Replicas
    /// need one address in common here, or each would write its own.
    Url(Option<String>),
    /// Through a Service, for a process inside.
    Service {
        /// The Service's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
}

/// Where the certificates come from.
#[derive(Clone, Debug)]
pub enum Source {
    /// Made here, with a CA in this Secret.
    Secret {
        /// The Secret's namespace.
        namespace: String,
        /// Its name.
        name: String,
    },
    /// Files, as cert-manager mounts them: `tls.crt`, `tls.key` and `ca.crt` in this folder.
    Folder(PathBuf),
}

/// A webhook server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 picks a free one.
    pub listen: SocketAddr,
    /// How API servers reach it.
    pub target: Target,
    /// Where its certificates come from.
    pub source: Source,
    /// How long certificates live.
    pub timing: Timing,
}

/// The webhook configurations, each webhook with `clientConfig.service.path` set; the rest of `clientConfig` is
/// filled in here.
#[derive(Clone, Debug, Default)]
pub struct Configurations {
    /// Those that may change objects.
    pub mutating: Vec<MutatingWebhookConfiguration>,
    /// Those that may refuse them.
    pub validating: Vec<ValidatingWebhookConfiguration>,
}

/// Serves `router` over HTTPS and keeps the configurations pointing at it, until shutdown.
///
/// On shutdown the configurations stay: a hub that is away refuses what it should have checked.
pub async fn run(
    client: Client,
    options: Options,
    configurations: Configurations,
    router: Router,
    health: &Health,
    shutdown: CancellationToken,
) -> Result<(), Error> {
    let gate = health.gate("webhook");
    let listener = server::bind(options.listen).await?;
    let address = listener
        .local_addr()
        .map_err(|e| Error::io("read the listening address", e))?;
    let base = match &options.target {
        Target::Url(Some(url)) => Some(url.trim_end_matches('/').to_owned()),
        Target::Url(None) => Some(format!("https://{address}")),
        Target::Service { .. } => None,
    };
    let names = certs::names(&options.target, base.as_deref())?;
    let wanted = configurations::Wanted::new(configurations, &options.target, base.as_deref());
    let keeper = certs::Keeper::new(client.clone(), options.source, names, options.timing);
    let mut material = keeper.obtain().await?;
    let slot = Arc::new(server::Slot::new(material.serving.clone()));
    let router = router.layer(DefaultBodyLimit::max(BODY_LIMIT));
    let serving = tokio::spawn(server::serve(listener, slot.clone(), router, shutdown.clone()));
    wanted.install(&client, &material.bundle).await?;
    gate.open();

    let mut changes = select(wanted.changes(&client), keeper.changes());
    let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
    let mut due = material.check_at;
    loop {
        tokio::select! {
            () = shutdown.cancelled() => break,
            change = changes.next() => if change.is_none() { break },
            () = tokio::time::sleep_until(due) => {}
        }
        // New trust is published before it is needed: first the bundle, then, as API servers learn of it a moment
        // later, the certificate. Unless the new bundle does not trust the old certificate: then that one is no good
        // any more, and the new one is served at once.
        let renewed = async {
            let fresh = keeper.renew(&material).await?;
            wanted.install(&client, &fresh.bundle).await?;
            if fresh.bundle != material.bundle && fresh.trusts(&material) {
                let _ = tokio::time::timeout(SETTLES_WITHIN, shutdown.cancelled()).await;
            }
            Ok::<_, Error>(fresh)
        };
        match renewed.await {
            Ok(fresh) => {
                material = fresh;
                slot.set(material.serving.clone());
                due = material.check_at;
                backoff.reset();
            }
            Err(error) => {
                tracing::warn!(%error, "the webhooks could not be brought up to date, will try again");
                due = Instant::now() + backoff.next_delay();
            }
        }
    }
    serving.await.map_err(|e| Error::io("serve webhooks", e))
}

//! Watches the add-on on the hub and its Secret here; asks for a credential whenever the Secret holds no good one.

use std::time::Duration;

use futures::{
    FutureExt, StreamExt,
    future::{self, BoxFuture},
};
use jiff::Timestamp;
use k8s_openapi::api::{certificates::v1::CertificateSigningRequest, core::v1::Secret};
use kube::{
    Api, ResourceExt,
    api::{Patch, PatchParams, PostParams},
    config::Cluster,
    runtime::watcher,
};
use writ_api::addon::ManagedClusterAddOn;
use writ_controller::{
    Error,
    backoff::{Backoff, jitter},
    clock::Clock,
    error::Context as _,
    renewal,
    watching::{Mirror, events},
    write,
};
use writ_process::token;

use super::plan::{ACCOUNT, ADDON, Given, NAMESPACE, Proof, Registration, SECRET, is_ours, registration};
use crate::{
    Context, MANAGER,
    registration::{certificate, identity},
};

/// How long a token lives.
const TOKEN_SECONDS: i64 = 3600;
/// The least time between two credentials.
const BETWEEN: Duration = Duration::from_secs(5);

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let shutdown = context.shutdown.clone();
    let Some(hub) = context.options.hub_cluster.clone() else {
        tracing::warn!("where the hub is was not told: no credential of an add-on is kept");
        return Ok(());
    };
    // Nobody waits for it: a hub that does not let the agent watch the add-on has none for it.
    context.health.gate("register add-ons").open();
    let keeps_accounts = context.running_controllers().iter().any(|name| name == "tokens");
    let one = watcher::Config::default().fields(&format!("metadata.name={ADDON}"));
    let api = write::namespaced(&context.hub, &context.options.cluster_name);
    let mut watched = events(api, one);
    let mut addons: Mirror<ManagedClusterAddOn> = Mirror::default();
    // What is asked for, once the hub was heard, and what keeps it.
    let mut asked: Option<Option<Registration>> = None;
    let mut keeping: BoxFuture<'static, ()> = future::pending().boxed();
    loop {
        tokio::select! {
            () = shutdown.cancelled() => return Ok(()),
            () = &mut keeping => keeping = future::pending().boxed(),
            event = watched.next() => {
                let Some(event) = event else { return Ok(()) };
                addons.apply(event, |addon| addon);
            }
        }
        let addon = addons.iter().next().map(|(_, addon)| addon);
        // While the add-on is deleted it may still need the hub, to clean up.
        let leaving = addon.is_some_and(|addon| addon.metadata.deletion_timestamp.is_some());
        // Where this very agent keeps the accounts nothing is installed; until the hub knows that, it may ask for it.
        let wanted = registration(addon).filter(|_| !keeps_accounts);
        if !addons.is_ready() || leaving || asked.as_ref() == Some(&wanted) {
            continue;
        }
        let before = asked.replace(wanted.clone()).flatten();
        let former = before.map_or_else(
            || {
                addon
                    .map_or(NAMESPACE, ManagedClusterAddOn::wished_namespace)
                    .to_owned()
            },
            |before| before.namespace,
        );
        let moved = wanted.as_ref().is_none_or(|wanted| wanted.namespace != former);
        let (context, hub) = (context.clone(), hub.clone());
        keeping = async move {
            if moved {
                remove(&context, &former).await;
            }
            if let Some(wanted) = wanted {
                keep(&context, &hub, &wanted).await;
            }
        }
        .boxed();
    }
}

/// Takes the Secret away that this controller wrote; tries until it is gone.
async fn remove(context: &Context, namespace: &str) {
    let api: Api<Secret> = write::namespaced(&context.spoke, namespace);
    let mut pauses = pauses();
    loop {
        let removed = async {
            let secret = api
                .get_opt(SECRET)
                .await
                .context(|| format!("read Secret {namespace}/{SECRET}"))?;
            match secret.filter(is_ours) {
                Some(secret) => write::delete(&api, SECRET, secret.uid().as_deref()).await,
                None => Ok(()),
            }
        };
        match removed.await {
            Ok(()) => return,
            // Who may not read there has written nothing there.
            Err(error) if error.is_code(403) => return,
            Err(error) => tracing::warn!(%error, "the former credential of the add-on is still there"),
        }
        tokio::time::sleep(pauses.next_delay()).await;
    }
}

/// Keeps a good credential in the Secret, for ever.
async fn keep(context: &Context, hub: &Cluster, wanted: &Registration) {
    let one = watcher::Config::default().fields(&format!("metadata.name={SECRET}"));
    let mut watched = events(write::namespaced(&context.spoke, &wanted.namespace), one);
    let mut secrets: Mirror<Secret> = Mirror::default();
    let mut pauses = pauses();
    let clock = Clock::System;
    // A Secret that somebody breaks again and again must not make the hub sign in a loop.
    let mut not_before = clock.now();
    let mut wake: Option<Timestamp> = None;
    // What the hub gave and could not be written yet.
    let mut given: Option<Secret> = None;
    loop {
        tokio::select! {
            event = watched.next() => {
                let Some(event) = event else { return };
                secrets.apply(event, |secret| secret);
            }
            () = clock.sleep_until(wake), if wake.is_some() => {}
        }
        if !secrets.is_ready() {
            continue;
        }
        let secret = secrets.iter().next().map(|(_, secret)| secret);
        let life = wanted.life(hub, secret);
        let renew_at = life.map(|life| renewal::renew_at(life.from, life.until, &wanted.user));
        let due = renew_at.unwrap_or(not_before).max(not_before);
        if clock.now() < due {
            wake = Some(due);
            continue;
        }
        let pause = match replace(context, hub, wanted, &mut given).await {
            Ok(()) => {
                pauses.reset();
                jitter(BETWEEN)
            }
            Err(error) => {
                tracing::warn!(%error, "the add-on {ADDON} has no new hub credential yet, trying again");
                pauses.next_delay()
            }
        };
        not_before = clock.now().checked_add(pause).unwrap_or(not_before);
        wake = Some(not_before);
    }
}

fn pauses() -> Backoff {
    Backoff::new(Duration::from_secs(1), Duration::from_mins(2))
}

/// Writes a new credential: the one that was given before, or one that is asked for.
async fn replace(
    context: &Context,
    hub: &Cluster,
    wanted: &Registration,
    given: &mut Option<Secret>,
) -> Result<(), Error> {
    let secret = match given.take() {
        Some(secret) => secret,
        None => ask(context, hub, wanted).await?,
    };
    write(context, given.insert(secret)).await?;
    *given = None;
    Ok(())
}

/// Asks the hub for a credential.
async fn ask(context: &Context, hub: &Cluster, wanted: &Registration) -> Result<Secret, Error> {
    let given = match &wanted.proof {
        Proof::Certificate { groups } => certified(context, wanted, groups).await?,
        Proof::Token { .. } => {
            let cluster = &context.options.cluster_name;
            let token = token::request(&context.hub, cluster, ACCOUNT, Some(TOKEN_SECONDS)).await?;
            tracing::info!(until = %token.ends, "a token of the add-on {ADDON}");
            Given::Token(token.text)
        }
    };
    wanted.secret(hub, &given)
}

/// Asks the hub for a certificate and waits for the answer.
async fn certified(context: &Context, wanted: &Registration, groups: &[String]) -> Result<Given, Error> {
    let api: Api<CertificateSigningRequest> = Api::all(context.hub.clone());
    let key = identity::new_key()?;
    let request = wanted.request(&context.options.cluster_name, groups, &key)?;
    let created = api
        .create(&PostParams::default(), &request)
        .await
        .context(|| format!("ask the hub for a certificate of the add-on {ADDON}"))?;
    let name = created.name_any();
    tracing::info!(request = %name, key = identity::fingerprint(&key)?, "waiting for the certificate of the add-on {ADDON}");
    let certificate = certificate::answer(&api, &name).await?;
    let certificate = certificate.ok_or_else(|| certificate::none_given(&name))?;
    Ok(Given::Certificate { certificate, key })
}

/// Writes the Secret by its name: that is all that the right to create it covers.
async fn write(context: &Context, secret: &Secret) -> Result<(), Error> {
    let namespace = secret.namespace().unwrap_or_default();
    let api: Api<Secret> = write::namespaced(&context.spoke, &namespace);
    api.patch(
        SECRET,
        &PatchParams::apply(MANAGER).force(),
        &Patch::Apply(secret),
    )
    .await
    .map(drop)
    .context(|| format!("write Secret {namespace}/{SECRET}"))
}

//! Runs the controllers of a process, by name, until shutdown.

use std::{collections::BTreeSet, pin::pin, time::Duration};

use futures::future::{BoxFuture, join_all};
use tokio_util::sync::CancellationToken;

use writ_controller::{Error, backoff::Backoff, health::Health};

/// A controller: the name of its folder, and the function that starts it.
pub type Controller<C> = (&'static str, fn(C) -> BoxFuture<'static, Result<(), Error>>);

/// Selects controllers by name; no names mean all. An unknown name is an error that lists the known ones.
pub fn select<C>(all: &[Controller<C>], names: &[String]) -> Result<Vec<Controller<C>>, Error> {
    let known: BTreeSet<&str> = all.iter().map(|(name, _)| *name).collect();
    if let Some(unknown) = names.iter().find(|name| !known.contains(name.as_str())) {
        let known = known.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Error::Invalid(format!(
            "there is no controller {unknown:?}; there are: {known}"
        )));
    }
    Ok(all
        .iter()
        .filter(|(name, _)| names.is_empty() || names.iter().any(|n| n == name))
        .copied()
        .collect())
}

/// Runs the controllers side by side until shutdown, which ends them at once: the next leader must not run beside them.
/// A controller that fails is restarted after growing pauses.
pub async fn run<C: Clone>(
    controllers: Vec<Controller<C>>,
    context: C,
    health: &Health,
    shutdown: CancellationToken,
) {
    run_with_grace(controllers, context, health, shutdown, Duration::ZERO).await;
}

/// The same for controllers that handle the shutdown themselves and get this long to end: a webhook server finishes
/// its requests.
pub async fn run_with_grace<C: Clone>(
    controllers: Vec<Controller<C>>,
    context: C,
    health: &Health,
    shutdown: CancellationToken,
    grace: Duration,
) {
    for (name, _) in &controllers {
        health.expect(name);
    }
    join_all(controllers.iter().map(|(name, start)| {
        let (context, shutdown, meter) = (context.clone(), shutdown.clone(), health.meter(name));
        async move {
            let mut backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(30));
            loop {
                let mut running = pin!(health.within(name, start(context.clone())));
                let ended = tokio::select! {
                    ended = &mut running => ended,
                    () = shutdown.cancelled() => {
                        if !grace.is_zero() && tokio::time::timeout(grace, running).await.is_err() {
                            tracing::warn!(controller = name, "did not end in time");
                        }
                        return;
                    }
                };
                match ended {
                    Ok(()) => return health.forget(name),
                    Err(error) => {
                        tracing::error!(controller = name, %error, "controller failed, restarting it");
                    }
                }
                meter.restarted();
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(backoff.next_delay()) => {}
                }
            }
        }
    }))
    .await;
    for (name, _) in &controllers {
        health.forget(name);
    }
}

/// A token that is cancelled on SIGTERM, on Ctrl-C, or when the terminal is closed.
pub fn shutdown_on_signal() -> Result<CancellationToken, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let token = CancellationToken::new();
    let mut terminate = signal(SignalKind::terminate()).map_err(|e| Error::io("listen for SIGTERM", e))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|e| Error::io("listen for Ctrl-C", e))?;
    let mut hangup = None;
    if !ignores_hangup() {
        hangup = Some(signal(SignalKind::hangup()).map_err(|e| Error::io("listen for SIGHUP", e))?);
    }
    let cancel = token.clone();
    tokio::spawn(async move {
        let closed = async {
            match &mut hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            _ = closed => {}
        }
        cancel.cancel();
    });
    Ok(token)
}

/// Whether the process was started with SIGHUP ignored, as `nohup` does.
pub fn ignores_hangup() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn unknown_controller_lists_the_known_ones() {
        let all: Vec<Controller<()>> = vec![
            ("work", |()| async { Ok(()) }.boxed()),
            ("grants", |()| async { Ok(()) }.boxed()),
        ];
        assert_eq!(select(&all, &[]).unwrap().len(), 2);
        assert_eq!(select(&all, &["grants".into()]).unwrap()[0].0, "grants");
        let message = select(&all, &["grnts".into()]).unwrap_err().to_string();
        assert_eq!(
            message,
            "there is no controller \"grnts\"; there are: grants, work"
        );
    }
}

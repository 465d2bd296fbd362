//! Waits for what a user would see, instead of for a fixed time.

use std::{future::Future, time::Duration};

use anyhow::{Result, bail};
use tokio::time::Instant;

/// Long enough for a busy machine; a scenario that needs this long has failed.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// Polls until the answer is `Ok(Some(..))`; fails with the last answer and what was waited for.
pub async fn until<T, F, Fut>(what: &str, ask: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    until_within(PATIENCE, what, ask).await
}

/// The same with another timeout.
pub async fn until_within<T, F, Fut>(patience: Duration, what: &str, mut ask: F) -> Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<Option<T>>>,
{
    let started = Instant::now();
    loop {
        let answer = ask().await;
        if let Ok(Some(found)) = answer {
            return Ok(found);
        }
        if started.elapsed() > patience {
            match answer {
                Err(error) => bail!("waited for: {what}; the last error: {error:#}"),
                Ok(_) => bail!("waited for: {what}"),
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The same for a condition that becomes true.
pub async fn until_true<F, Fut>(what: &str, mut ask: F) -> Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = Result<bool>>,
{
    until(what, || {
        let answer = ask();
        async move { Ok(answer.await?.then_some(())) }
    })
    .await
}

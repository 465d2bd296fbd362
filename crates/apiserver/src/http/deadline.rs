//! How long a request may take.

use std::time::{Duration, Instant};

use http::Method;

use super::{Query, Route};
use crate::go_duration;
use crate::status::{Failure, Result};

/// No request takes longer, whatever it asks for.
pub(super) const LIMIT: Duration = Duration::from_mins(1);
/// What goes on for as long as the client likes.
const LONG: [&str; 5] = ["attach", "exec", "proxy", "log", "portforward"];

/// The time that a request has; none if it is one that goes on.
pub(super) fn of(method: &Method, route: &Route, query: &Query) -> Result<Option<Duration>> {
    if let Route::Resource(target) = route {
        let verb = target.verb(method, query);
        let subresource = target.subresource.split('/').next().unwrap_or_default();
        if matches!(verb, "watch" | "proxy") || LONG.contains(&subresource) {
            return Ok(None);
        }
    }
    let Some(text) = query.get("timeout") else {
        return Ok(Some(LIMIT));
    };
    let nanoseconds = go_duration::nanoseconds(text).map_err(|why| {
        Failure::bad_request(format!("invalid timeout specified in the request URL - {why}"))
    })?;
    // Less than nothing is as good as nothing.
    let wanted = u64::try_from(nanoseconds).unwrap_or_default();
    Ok(Some(match wanted {
        0 => LIMIT,
        wanted => Duration::from_nanos(wanted).min(LIMIT),
    }))
}

tokio::task_local! {
    /// When the request that this task works on is over.
    static END: Instant;
}

/// The time that is left for the request that is being answered, which those who are asked about it are told; none if it goes on,
/// or nobody waits for it.
pub(crate) fn left() -> Option<Duration> {
    END.try_with(|end| end.saturating_duration_since(Instant::now()))
        .ok()
}

/// Gives up when the time is over. A request that has none left is not begun.
pub(super) async fn within<T>(
    limit: Option<Duration>,
    since: Instant,
    work: impl Future<Output = Result<T>>,
) -> Result<T> {
    let Some(limit) = limit else {
        return work.await;
    };
    let left = limit.saturating_sub(since.elapsed());
    if left.is_zero() {
        return Err(Failure::late());
    }
    let work = END.scope(Instant::now() + left, work);
    tokio::time::timeout(left, work)
        .await
        .unwrap_or_else(|_| Err(Failure::late()))
}

//! One connection, from its first byte to its last. Who opens one and then asks nothing may be gone, and each costs a file
//! descriptor: it is closed.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Frame, Incoming, SizeHint};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use crate::http::Body;

/// How long a connection may wait for a whole request, as there.
const IDLE: Duration = Duration::from_secs(90);
/// How long what is being answered may take once the connection is to end.
const GRACE: Duration = Duration::from_secs(2);
/// How many bytes of an answer are handed on at once.
const PIECE: usize = 64 << 10;
/// How many bytes of headers a request may have, as there, and how many headers in HTTP/1.1: somebody may be in many groups.
const HEADERS: (u32, usize) = (1 << 20, 1000);

/// Answers what comes over a connection until it is closed, nobody asks anything any more, or `stop` says so.
pub(super) async fn serve<I, F, A>(stream: I, http2: bool, stop: &CancellationToken, answer: F)
where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    F: Fn(http::Request<Incoming>) -> A,
    A: Future<Output = http::Response<Body>> + Send + 'static,
{
    let activity = Arc::new(Activity::default());
    let service = hyper::service::service_fn(|request| {
        let turn = activity.begin();
        let answering = answer(request);
        async move {
            let response = answering.await;
            Ok::<_, Infallible>(response.map(|body| Answer {
                body,
                rest: Bytes::new(),
                _turn: turn,
            }))
        }
    });
    // Both have agreed on one: nobody has to guess from the first bytes, which may never come.
    let builder = if http2 {
        let mut builder = Builder::new(TokioExecutor::new()).http2_only();
        builder.http2().max_header_list_size(HEADERS.0);
        builder
    } else {
        let mut builder = Builder::new(TokioExecutor::new()).http1_only();
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(IDLE)
            .max_headers(HEADERS.1);
        builder
    };
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
    tokio::pin!(connection);
    tokio::select! {
        _ = &mut connection => return,
        () = stop.cancelled() => {}
        () = activity.idle(IDLE) => {}
    }
    connection.as_mut().graceful_shutdown();
    while tokio::time::timeout(GRACE, &mut connection).await.is_err() {
        // What was asked just before the client heard that this is the end is answered, however long that takes.
        if stop.is_cancelled() || activity.is_over() {
            return;
        }
    }
}

/// What goes on on a connection.
#[derive(Default)]
struct Activity {
    begun: AtomicU64,
    ended: AtomicU64,
}

impl Activity {
    fn begin(self: &Arc<Self>) -> Turn {
        self.begun.fetch_add(1, Ordering::Relaxed);
        Turn(self.clone())
    }

    fn counts(&self) -> (u64, u64) {
        (
            self.begun.load(Ordering::Relaxed),
            self.ended.load(Ordering::Relaxed),
        )
    }

    fn is_over(&self) -> bool {
        let (begun, ended) = self.counts();
        begun == ended
    }

    /// Waits until nothing was asked and nothing answered for so long.
    async fn idle(&self, limit: Duration) {
        loop {
            let before = self.counts();
            tokio::time::sleep(limit).await;
            if before.0 == before.1 && before == self.counts() {
                return;
            }
        }
    }
}

/// A request, until the last of its answer is sent.
struct Turn(Arc<Activity>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.ended.fetch_add(1, Ordering::Relaxed);
    }
}

/// An answer that is being sent, in pieces: the next one is only taken when there is room for it, so that what a slow reader has
/// yet to get is seen to be on its way.
struct Answer {
    body: Body,
    rest: Bytes,
    _turn: Turn,
}

impl Answer {
    fn piece(&mut self) -> Frame<Bytes> {
        let length = self.rest.len().min(PIECE);
        Frame::data(self.rest.split_to(length))
    }
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        if !self.rest.is_empty() {
            return Poll::Ready(Some(Ok(self.piece())));
        }
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let Poll::Ready(Some(Ok(frame))) = polled else {
            return polled;
        };
        let frame = frame.into_data().map(|data| {
            self.rest = data;
            self.piece()
        });
        Poll::Ready(Some(Ok(frame.unwrap_or_else(|other| other))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let rest = u64::try_from(self.rest.len()).unwrap_or(u64::MAX);
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = body.upper() {
            hint.set_upper(upper.saturating_add(rest));
        }
        hint.set_lower(body.lower().saturating_add(rest));
        hint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// Says something over a connection; the answers have no end. Returns after how long it was closed.
    async fn open_for(http2: bool, said: &'static [u8]) -> Option<Duration> {
        let (mut ours, theirs) = tokio::io::duplex(1 << 16);
        let stop = CancellationToken::new();
        let since = tokio::time::Instant::now();
        let answer = |_| async {
            http::Response::new(Body::from_stream(futures::stream::pending::<
                Result<Bytes, Infallible>,
            >()))
        };
        let client = async {
            ours.write_all(said).await.unwrap();
            let mut heard = Vec::new();
            tokio::time::timeout(IDLE * 10, ours.read_to_end(&mut heard)).await
        };
        let ((), closed) = tokio::select! {
            both = async { tokio::join!(serve(theirs, http2, &stop, answer), client) } => both,
            () = tokio::time::sleep(IDLE * 10) => return None,
        };
        closed.unwrap().unwrap();
        Some(since.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn who_asks_nothing_is_hung_up_on() {
        let soon = IDLE..=IDLE + GRACE * 2;
        for (http2, said) in [
            (false, "" as &str),
            (false, "GET / HTTP/1.1\r\n"),
            (true, "PRI * HTT"),
        ] {
            let open = open_for(http2, said.as_bytes()).await.unwrap();
            assert!(soon.contains(&open), "{http2} {said:?}: {open:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_being_answered_stays() {
        assert_eq!(open_for(false, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await, None);
    }
}

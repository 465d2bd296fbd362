//! Clients of API servers without Nagle's algorithm and with a timeout on every request.
//!
//! The usual client leaves Nagle's algorithm on: on a new connection the first request waits for an acknowledgement that
//! the other side delays by 40 ms. A controller that was idle pays that for every new connection.

use std::{
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt, TryFutureExt, future::BoxFuture};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Builder, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _, retry::RetryPolicy},
};
use tower::{BoxError, Service, ServiceBuilder, layer::layer_fn, retry::RetryLayer};

/// How long an idle connection is kept. A burst opens hundreds, of some 50 KiB each.
const UNUSED: Duration = Duration::from_secs(20);
/// The most idle connections.
const IDLE: usize = 32;

/// The timeout of a request: an API server gives up after a minute as well.
const ANSWERED_WITHIN: Duration = Duration::from_mins(1);

/// A client for this configuration.
pub fn connect(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        // kube handles proxies and credentials of `exec` plugins.
        return Client::try_from(config);
    }
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails only if another thread has installed one in the meantime.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let mut connector = TimeoutConnector::new(config.rustls_https_connector_with_connector(tcp)?);
    connector.set_connect_timeout(config.connect_timeout);
    connector.set_read_timeout(config.read_timeout);
    connector.set_write_timeout(config.write_timeout);
    connector.set_reset_reader_on_write(config.reset_reader_on_write);
    let http: hyper_util::client::legacy::Client<_, Body> = Builder::new(TokioExecutor::new())
        // Without a timer idle connections are never closed.
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(UNUSED)
        .pool_max_idle_per_host(IDLE)
        .build(connector);
    let retry = config.default_retry.then(retries).flatten().map(RetryLayer::new);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retry)
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .layer(layer_fn(|inner| WithTimeout { inner }))
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

/// Few and short retries: the controllers retry themselves, and a request that is retried longer blocks others.
fn retries() -> Option<RetryPolicy> {
    RetryPolicy::new(Duration::from_millis(50), Duration::from_secs(1), 3, true).ok()
}

/// Adds the timeout to every request but watches.
#[derive(Clone)]
struct WithTimeout<S> {
    inner: S,
}

impl<S> Service<http::Request<Body>> for WithTimeout<S>
where
    S: Service<http::Request<Body>>,
    S::Error: Into<BoxError> + 'static,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let is_watch = is_watch(request.uri());
        let answer = self.inner.call(request).map_err(Into::into);
        if is_watch {
            return answer.boxed();
        }
        async move {
            let answer = tokio::time::timeout(ANSWERED_WITHIN, answer).await;
            answer.unwrap_or_else(|_| Err(format!("no answer within {} s", ANSWERED_WITHIN.as_secs()).into()))
        }
        .boxed()
    }
}

fn is_watch(uri: &http::Uri) -> bool {
    let query = uri.query().unwrap_or_default();
    query
        .split('&')
        .any(|pair| matches!(pair, "watch=1" | "watch=true"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn request_other_than_a_watch_times_out() {
        for (path, answered) in [
            ("/api/v1/pods", false),
            ("/api/v1/pods?limit=1&watching=1", false),
            ("/api/v1/pods?&watch=true&resourceVersion=0", true),
        ] {
            let slow = tower::service_fn(|_: http::Request<Body>| async {
                tokio::time::sleep(ANSWERED_WITHIN * 2).await;
                Ok::<_, BoxError>(())
            });
            let request = http::Request::get(path).body(Body::empty()).unwrap();
            let answer = WithTimeout { inner: slow }.call(request).await;
            assert_eq!(answer.is_ok(), answered, "{path}");
        }
        assert!(retries().is_some());
    }
}

//! Clients whose small writes leave at once.
//!
//! The usual client leaves Nagle's algorithm on: on a new connection the first request waits for an acknowledgement that
//! the other side holds back for 40 ms. A controller that was idle pays that with every connection it makes anew.

use std::time::Duration;

use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Builder, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Client, Config,
    client::{Body, ConfigExt as _, retry::RetryPolicy},
};
use tower::{BoxError, ServiceBuilder, retry::RetryLayer};

/// How long a connection is kept that nobody uses. A burst opens hundreds, of some 50 KiB each.
const UNUSED: Duration = Duration::from_secs(20);
/// How many of these are kept at most.
const IDLE: usize = 32;

/// A client for this configuration.
pub fn connect(config: Config) -> Result<Client, kube::Error> {
    if config.proxy_url.is_some() || config.auth_info.exec.is_some() {
        // Proxies, and credentials with an end of their own, are kube's to handle.
        return Client::try_from(config);
    }
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // It fails only if somebody else was faster, which is as good.
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
        // Without a timer nobody looks for connections that were not used for long.
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(UNUSED)
        .pool_max_idle_per_host(IDLE)
        .build(connector);
    let retry = config
        .default_retry
        .then(|| RetryLayer::new(RetryPolicy::server_retry()));
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(retry)
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace))
}

//! Where webhooks are served, and how API servers reach them: the flags of `writ hub` and `writ sync`.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    path::PathBuf,
};

use anyhow::{Context, Result};
use clap::Args;
use kube::Config;

/// The flags of commands that serve webhooks.
#[derive(Clone, Debug, Args)]
pub struct WebhookFlags {
    /// Where API servers reach the webhooks; default: inside a cluster its Service, outside this machine's address.
    #[arg(long = "webhook-url", value_name = "URL")]
    pub url: Option<String>,
    /// Where the webhooks listen.
    #[arg(
        long = "webhook-listen",
        value_name = "ADDRESS",
        default_value = "0.0.0.0:9443"
    )]
    pub listen: SocketAddr,
    /// Use tls.crt, tls.key and ca.crt of this folder, as cert-manager writes them; default: certificates of its own.
    #[arg(long = "webhook-certs", value_name = "DIR")]
    pub certs: Option<PathBuf>,
}

impl WebhookFlags {
    /// The address for the webhook configurations; `None` means the Service, inside a cluster.
    pub fn address(&self, server: &Config) -> Result<Option<String>> {
        let inside = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        if self.url.is_some() || inside {
            return Ok(self.url.clone());
        }
        let ip = match self.listen.ip() {
            ip if ip.is_unspecified() => address_towards(server).with_context(|| {
                format!(
                    "find the address of this machine that {} can reach; say it with --webhook-url",
                    server.cluster_url
                )
            })?,
            ip => ip,
        };
        let own = SocketAddr::new(ip, self.listen.port());
        Ok(Some(format!("https://{own}")))
    }
}

/// The address of this machine on the way to the API server. Connecting a datagram socket sends nothing.
fn address_towards(server: &Config) -> Result<IpAddr> {
    let host = server.cluster_url.host().context("the API server has no host")?;
    let port = server.cluster_url.port_u16().unwrap_or(443);
    let socket = UdpSocket::bind(("0.0.0.0", 0))?;
    socket.connect((host.trim_matches(['[', ']']), port))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(listen: &str, given: Option<&str>) -> Option<String> {
        let flags = WebhookFlags {
            url: given.map(str::to_owned),
            listen: listen.parse().unwrap(),
            certs: None,
        };
        let server = Config::new("https://127.0.0.1:6443".parse().unwrap());
        flags.address(&server).unwrap()
    }

    #[test]
    fn outside_of_a_cluster_the_webhooks_are_reached_at_this_machine() {
        assert_eq!(url("0.0.0.0:9443", None).unwrap(), "https://127.0.0.1:9443");
        assert_eq!(url("10.1.2.3:9443", None).unwrap(), "https://10.1.2.3:9443");
        assert_eq!(
            url("0.0.0.0:9443", Some("https://hub:1")).unwrap(),
            "https://hub:1"
        );
    }
}

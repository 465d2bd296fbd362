//! Where webhooks are served, and how API servers reach them: flags of `writ hub` and `writ sync`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket},
    path::PathBuf,
};

use anyhow::{Context, Result, anyhow};
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
    /// The address for the webhook configurations; `None` inside a cluster, where the Service is used, or while the port
    /// is not known yet.
    pub fn address(&self, server: &Config) -> Result<Option<String>> {
        let inside = std::env::var_os("KUBERNETES_SERVICE_HOST").is_some();
        if self.url.is_some() || inside || self.listen.port() == 0 {
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
    let mut failed = None;
    for server in (host.trim_matches(['[', ']']), port).to_socket_addrs()? {
        let any: IpAddr = match server {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let found = UdpSocket::bind((any, 0)).and_then(|socket| {
            socket.connect(server)?;
            Ok(socket.local_addr()?.ip())
        });
        match found {
            Ok(own) => return Ok(own),
            Err(error) => failed = Some(error),
        }
    }
    Err(failed.map_or_else(|| anyhow!("{host} has no address"), Into::into))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(listen: &str, given: Option<&str>) -> Option<String> {
        reached("https://127.0.0.1:6443", listen, given)
    }

    fn reached(server: &str, listen: &str, given: Option<&str>) -> Option<String> {
        let flags = WebhookFlags {
            url: given.map(str::to_owned),
            listen: listen.parse().unwrap(),
            certs: None,
        };
        let server = Config::new(server.parse().unwrap());
        flags.address(&server).unwrap()
    }

    #[test]
    fn webhook_address_for_an_ipv6_server_is_ipv6() {
        let found = reached("https://[::1]:6443", "[::]:9443", None);
        assert_eq!(found.unwrap(), "https://[::1]:9443");
    }

    #[test]
    fn webhook_address_outside_a_cluster_is_this_machine() {
        assert_eq!(url("0.0.0.0:9443", None).unwrap(), "https://127.0.0.1:9443");
        // Port 0 is not an address: an unreachable webhook refuses every request.
        assert_eq!(url("127.0.0.1:0", None), None);
        assert_eq!(url("10.1.2.3:9443", None).unwrap(), "https://10.1.2.3:9443");
        assert_eq!(
            url("0.0.0.0:9443", Some("https://hub:1")).unwrap(),
            "https://hub:1"
        );
    }
}

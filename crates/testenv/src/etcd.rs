//! The etcd of a control plane. It accepts only clients with a certificate of an authority of its own: a client of etcd
//! has every right in the cluster, and other users of this machine can reach its port too.

use std::{fs, path::Path};

use anyhow::{Context, Result};

use crate::{Assets, pki::Authority, process::Guarded};
use writ_process::private;

/// A running etcd, and how the API server reaches it.
pub struct Etcd {
    /// The process.
    pub process: Guarded,
    /// The arguments of the API server about it.
    pub apiserver_args: Vec<String>,
}

/// Starts etcd with its data and its keys below `folder`.
pub fn start(assets: &Assets, folder: &Path, port: u16, peer_port: u16) -> Result<Etcd> {
    // An authority of its own: with that of the cluster, every client certificate of the cluster would open it.
    let keys = folder.join("etcd-keys");
    private::folder(&keys)?;
    let authority = Authority::load_or_create(&keys)?;
    for (name, identity) in [
        ("server", authority.serving()?),
        ("client", authority.client("kube-apiserver", "etcd")?),
    ] {
        let certificate = keys.join(format!("{name}.crt"));
        fs::write(&certificate, identity.cert).with_context(|| format!("write {}", certificate.display()))?;
        private::file(&keys.join(format!("{name}.key")), identity.key)?;
    }
    let file = |name: &str| keys.join(name).display().to_string();
    let url = format!("https://127.0.0.1:{port}");
    let mut args = vec![
        format!("--data-dir={}", folder.join("etcd").display()),
        format!("--listen-client-urls={url}"),
        format!("--advertise-client-urls={url}"),
        format!("--listen-peer-urls=https://127.0.0.1:{peer_port}"),
        "--enable-grpc-gateway=false".into(),
        "--unsafe-no-fsync".into(),
        "--log-level=warn".into(),
    ];
    for peers in ["", "peer-"] {
        args.extend([
            format!("--{peers}client-cert-auth"),
            format!("--{peers}trusted-ca-file={}", file("ca.crt")),
            format!("--{peers}cert-file={}", file("server.crt")),
            format!("--{peers}key-file={}", file("server.key")),
        ]);
    }
    Ok(Etcd {
        process: Guarded::start(assets, folder, "etcd", &args)?,
        apiserver_args: vec![
            format!("--etcd-servers={url}"),
            format!("--etcd-cafile={}", file("ca.crt")),
            format!("--etcd-certfile={}", file("client.crt")),
            format!("--etcd-keyfile={}", file("client.key")),
        ],
    })
}

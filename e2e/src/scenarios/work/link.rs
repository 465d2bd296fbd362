//! A line to an API server that can be cut, on every kind of cluster alike.

use anyhow::{Context, Result};
use kube::config::Kubeconfig;
use tokio::{
    io::copy_bidirectional,
    net::{TcpListener, TcpStream},
    sync::watch,
};
use tokio_util::task::AbortOnDropHandle;

/// The line. It ends when it is dropped.
pub struct Link {
    port: u16,
    up: watch::Sender<bool>,
    _task: AbortOnDropHandle<()>,
}

impl Link {
    /// A line to the API server at this URL.
    pub async fn to(url: &str) -> Result<Self> {
        let target = url
            .strip_prefix("https://")
            .context("not an https URL")?
            .trim_end_matches('/')
            .to_owned();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let port = listener.local_addr()?.port();
        let (up, is_up) = watch::channel(true);
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let (mut is_up, target) = (is_up.clone(), target.clone());
                if !*is_up.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut far) = TcpStream::connect(target).await else {
                        return;
                    };
                    tokio::select! {
                        _ = copy_bidirectional(&mut near, &mut far) => {}
                        _ = is_up.wait_for(|up| !up) => {}
                    }
                });
            }
        });
        Ok(Self {
            port,
            up,
            _task: AbortOnDropHandle::new(task),
        })
    }

    /// The same credentials, over this line.
    pub fn over(&self, mut kubeconfig: Kubeconfig) -> Kubeconfig {
        for named in &mut kubeconfig.clusters {
            if let Some(cluster) = &mut named.cluster {
                cluster.server = Some(format!("https://127.0.0.1:{}", self.port));
            }
        }
        kubeconfig
    }

    /// Cuts the line: what is under way breaks off, what is new fails.
    pub fn cut(&self) {
        self.up.send_replace(false);
    }

    /// Mends the line.
    pub fn mend(&self) {
        self.up.send_replace(true);
    }
}

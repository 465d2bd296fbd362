//! How a cluster joins its hub: the flags that `writ join` and `writ agent` share.

use std::path::PathBuf;

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, ValueEnum};
use kube::config::Kubeconfig;
use writ_agent::registration::{Driver, Joining, store};
use writ_api::cluster::managed_cluster::ClientConfig;
use writ_controller::clock::Clock;

use crate::connect;

/// The flags of `writ join` and `writ agent --bootstrap-kubeconfig`.
#[derive(Clone, Debug, Args)]
pub struct JoinFlags {
    /// How the hub lets agents prove who they are.
    #[arg(long, value_enum, default_value_t = DriverFlag::Csr)]
    registration_driver: DriverFlag,
    /// Where others reach the API server of this cluster; written on the ManagedCluster.
    #[arg(long, visible_alias = "spoke-external-server-urls", value_name = "URL")]
    spoke_url: Option<String>,
    /// The CA of that API server, in PEM.
    #[arg(long, value_name = "FILE", requires = "spoke_url")]
    spoke_ca: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum DriverFlag {
    /// A client certificate, signed by the hub.
    Csr,
    /// A token of the cluster's own account; `writ accept NAME --hub-kubeconfig-out FILE` hands the first one over.
    Token,
}

impl JoinFlags {
    /// A request to join with this bootstrap identity, whose result is kept in `store`.
    pub fn joining(&self, cluster: String, bootstrap: Kubeconfig, store: store::Store) -> Result<Joining> {
        let ca_bundle = match &self.spoke_ca {
            None => None,
            Some(file) => {
                let pem = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
                Some(STANDARD.encode(pem))
            }
        };
        let client_configs = self.spoke_url.iter().map(|url| ClientConfig {
            url: url.clone(),
            ca_bundle: ca_bundle.clone(),
        });
        Ok(Joining {
            cluster,
            bootstrap: connect::self_contained(bootstrap)?,
            store,
            client_configs: client_configs.collect(),
            driver: match self.registration_driver {
                DriverFlag::Csr => Driver::Csr,
                DriverFlag::Token => Driver::Token,
            },
            clock: Clock::System,
        })
    }
}

//! A hub and managed clusters, and the parts of writ that run on them with exactly the rights of `deploy/`.

use std::{
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    config::{AuthInfo, Kubeconfig},
};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use writ_agent::registration::identity;
use writ_api::cluster::ManagedCluster;
use writ_apiserver::Recorder;
use writ_controller::{health::Health, write};
use writ_hub::options::AdmissionOptions;
use writ_process::{private, webhook};

use crate::{Cluster, Kind, manifests::apply_folder, wait};

/// The namespace of the hub's own objects.
pub const HUB_NAMESPACE: &str = "open-cluster-management-hub";
/// The namespace of the agent's own objects.
pub const AGENT_NAMESPACE: &str = "open-cluster-management-agent";

/// The namespace of the RootSyncs' own objects.
pub const SYNC_NAMESPACE: &str = "config-management-system";

/// The file in the folder of a fleet that names the kind of its clusters.
const KIND_FILE: &str = "kind";

/// How many clusters are started at once: more would only wait for the processors.
const AT_ONCE: usize = 8;

/// What to start.
#[derive(Clone)]
pub struct Options {
    /// Embedded or real.
    pub kind: Kind,
    /// How many managed clusters.
    pub clusters: usize,
    /// The port of the hub, the clusters use the next ones; `None` picks free ports.
    pub port_base: Option<u16>,
    /// Keep everything in this folder; `None` keeps nothing.
    pub data: Option<PathBuf>,
    /// Records which rights are used, on embedded clusters.
    pub recorder: Option<Arc<Recorder>>,
}

/// A hub and its managed clusters.
pub struct Fleet {
    /// The hub.
    pub hub: Cluster,
    /// The managed clusters, `cluster1` first.
    pub clusters: Vec<Cluster>,
}

/// A part of writ that runs, until it is stopped or dropped.
pub struct Running {
    name: String,
    shutdown: CancellationToken,
    task: JoinHandle<Result<(), writ_controller::Error>>,
}

impl Running {
    /// Waits until the part ends without having been stopped, and returns why.
    pub async fn ended(&mut self) -> anyhow::Error {
        match (&mut self.task).await {
            Ok(Ok(())) => anyhow::anyhow!("{} ended by itself", self.name),
            Ok(Err(error)) => anyhow::Error::from(error).context(format!("{} ended", self.name)),
            Err(error) => anyhow::Error::from(error).context(format!("{} ended", self.name)),
        }
    }

    /// Stops it and waits for its end.
    pub async fn stop(self) -> Result<()> {
        self.shutdown.cancel();
        Ok(self.task.await??)
    }
}

/// Starts a part of writ and waits until it is ready or has failed.
pub async fn start<F, Fut>(name: &str, run: F) -> Result<Running>
where
    F: FnOnce(Health, CancellationToken) -> Fut,
    Fut: Future<Output = Result<(), writ_controller::Error>> + Send + 'static,
{
    let (health, shutdown) = (Health::default(), CancellationToken::new());
    let mut task = tokio::spawn(run(health.clone(), shutdown.clone()));
    tokio::select! {
        () = health.ready() => Ok(Running { name: name.to_owned(), shutdown, task }),
        ended = &mut task => {
            ended??;
            anyhow::bail!("{name} ended before it was ready")
        }
    }
}

impl Fleet {
    /// Starts clusters of this kind in memory, for a scenario.
    pub async fn start(kind: Kind, clusters: usize) -> Result<Self> {
        Self::start_with(Options {
            kind,
            clusters,
            port_base: None,
            data: None,
            recorder: None,
        })
        .await
    }

    /// Starts the clusters in parallel and installs CRDs and roles.
    pub async fn start_with(options: Options) -> Result<Self> {
        let options = &options;
        if let Some(folder) = &options.data {
            if !folder.exists() {
                private::folder(folder)?;
            }
            claim_folder(folder, &folder.join(KIND_FILE), options.kind)?;
        }
        let start = |number: usize| {
            let name = if number == 0 {
                "hub".to_owned()
            } else {
                format!("cluster{number}")
            };
            let port = options
                .port_base
                .map_or(Ok(0), |base| u16::try_from(usize::from(base) + number));
            let data = options.data.as_ref().map(|folder| folder.join(&name));
            let recorder = options.recorder.clone();
            async move {
                let port = port.with_context(|| format!("there is no port for {name}"))?;
                Cluster::start(options.kind, &name, port, data, recorder).await
            }
        };
        let hub = async {
            let hub = start(0).await?;
            hub.namespace(HUB_NAMESPACE).await?;
            apply_folder(&hub.admin().await?, "hub").await?;
            anyhow::Ok(hub)
        };
        let managed = |number: usize| async move {
            let cluster = start(number).await?;
            cluster.namespace(AGENT_NAMESPACE).await?;
            apply_folder(&cluster.admin().await?, "agent").await?;
            anyhow::Ok(cluster)
        };
        let clusters = stream::iter((1..=options.clusters).map(managed))
            .buffered(AT_ONCE)
            .try_collect();
        let (hub, clusters) = tokio::try_join!(hub, clusters)?;
        Ok(Self { hub, clusters })
    }

    /// The fleet that another process runs: the contexts `writ-hub`, `writ-cluster1`, ... of a kubeconfig.
    pub async fn attach(kubeconfig: &Kubeconfig) -> Result<Self> {
        let hub = attach(kubeconfig, "hub").await?;
        let mut clusters = Vec::new();
        for number in 1.. {
            let name = format!("cluster{number}");
            if !has_context(kubeconfig, &name) {
                break;
            }
            clusters.push(attach(kubeconfig, &name).await?);
        }
        Ok(Self { hub, clusters })
    }

    /// The managed cluster of that number, from 1.
    pub fn cluster(&self, number: usize) -> Result<&Cluster> {
        self.clusters
            .get(number.wrapping_sub(1))
            .with_context(|| format!("there is no cluster {number}"))
    }

    /// Runs the hub under its shipped ServiceAccount.
    pub async fn run_hub(&self, options: writ_hub::Options) -> Result<Running> {
        let client = self.hub.service_account(HUB_NAMESPACE, "writ-hub").await?;
        start("the hub", |health, shutdown| {
            writ_hub::run(client, options, health, shutdown)
        })
        .await
    }

    /// The hub's options with webhooks served on this machine.
    pub fn hub_options() -> writ_hub::Options {
        let admission = AdmissionOptions::default();
        writ_hub::Options {
            admission: AdmissionOptions {
                webhooks: true,
                server: webhook::Options {
                    listen: SocketAddr::from(([127, 0, 0, 1], 0)),
                    target: webhook::Target::Url(None),
                    ..admission.server.clone()
                },
                ..admission
            },
            ..writ_hub::Options::default()
        }
    }

    /// Runs RootSyncs and RepoSyncs of a cluster, under the shipped ServiceAccount.
    pub async fn run_sync(&self, number: usize, options: writ_sync::Options) -> Result<Running> {
        Self::run_sync_on(self.cluster(number)?, options).await
    }

    /// The same on any cluster of the fleet, the hub included.
    pub async fn run_sync_on(cluster: &Cluster, options: writ_sync::Options) -> Result<Running> {
        Self::run_sync_through(cluster, options, |client| client).await
    }

    /// The same with a layer between its reconcilers and the API server.
    pub async fn run_sync_through(
        cluster: &Cluster,
        options: writ_sync::Options,
        between: impl FnOnce(Client) -> Client,
    ) -> Result<Running> {
        apply_folder(&cluster.admin().await?, "sync").await?;
        let clients = writ_sync::Clients::new(
            cluster.service_account(SYNC_NAMESPACE, "writ-sync").await?,
            between(cluster.anonymous().await?),
        );
        start("sync", |health, shutdown| {
            writ_sync::run(clients, options, health, shutdown)
        })
        .await
    }

    /// Creates and accepts the ManagedCluster as an administrator does, and waits for its namespace.
    pub async fn accept(&self, number: usize) -> Result<()> {
        let (cluster, admin) = (self.cluster(number)?, self.hub.admin().await?);
        let wanted: ManagedCluster = serde_json::from_value(serde_json::json!({
            "apiVersion": "cluster.open-cluster-management.io/v1",
            "kind": "ManagedCluster",
            "metadata": {"name": cluster.name()},
            "spec": {
                "hubAcceptsClient": true,
                "managedClusterClientConfigs": [{"url": cluster.url(), "caBundle": cluster.ca()}],
            },
        }))?;
        let api: Api<ManagedCluster> = Api::all(admin.clone());
        let current = api.get_opt(cluster.name()).await?;
        write::ensure(&api, current.as_ref(), &wanted, "writ").await?;
        let namespaces: Api<Namespace> = Api::all(admin);
        wait::until(&format!("the namespace of {}", cluster.name()), || async {
            Ok(namespaces.get_opt(cluster.name()).await?)
        })
        .await?;
        Ok(())
    }

    /// Runs the agent of a cluster, on the managed cluster under its shipped ServiceAccount, on the hub with the
    /// identity that registration gives it.
    pub async fn run_agent(&self, number: usize, options: writ_agent::Options) -> Result<Running> {
        self.run_agent_through(number, options, |client| client).await
    }

    /// The same with a layer between the agent and the managed cluster.
    pub async fn run_agent_through(
        &self,
        number: usize,
        mut options: writ_agent::Options,
        between: impl FnOnce(Client) -> Client,
    ) -> Result<Running> {
        let cluster = self.cluster(number)?;
        options.cluster_name = cluster.name().into();
        let anonymous = self.hub.kubeconfig_with(AuthInfo::default());
        options.hub_cluster = Some(identity::cluster(&anonymous)?.clone());
        let hub = self.agent_identity(cluster.name()).await?;
        let spoke = between(cluster.service_account(AGENT_NAMESPACE, "writ-agent").await?);
        start("the agent", |health, shutdown| {
            writ_agent::run(hub, spoke, options, health, shutdown)
        })
        .await
    }

    /// A client of the hub with the identity of a cluster's agent.
    pub async fn agent_identity(&self, cluster: &str) -> Result<Client> {
        let prefix = "system:open-cluster-management";
        let groups = [
            format!("{prefix}:{cluster}"),
            format!("{prefix}:managed-clusters"),
            "system:authenticated".into(),
        ];
        let groups: Vec<&str> = groups.iter().map(String::as_str).collect();
        self.hub.user(&format!("{prefix}:{cluster}:agent"), &groups).await
    }
}

/// Marks a folder with the kind of its fleet. Refuses a folder of the other kind, whose data could not be read: the fleet
/// would look empty.
fn claim_folder(folder: &Path, file: &Path, kind: Kind) -> Result<()> {
    let found = match fs::read_to_string(file) {
        Ok(found) => found,
        // Other files in the folder must not be overwritten.
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let mut others = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
            ensure!(
                others.next().is_none(),
                "{} holds no fleet, and other things: take a new or an empty folder",
                folder.display()
            );
            return fs::write(file, kind.word()).with_context(|| format!("write {}", file.display()));
        }
        Err(error) => return Err(error).with_context(|| format!("read {}", file.display())),
    };
    ensure!(
        found.trim() == kind.word(),
        "{} holds a fleet of {} control planes, and {} ones cannot read it: start it as it was, or take another folder",
        folder.display(),
        found.trim(),
        kind.word()
    );
    Ok(())
}

/// Whether a kubeconfig knows this cluster of a fleet.
pub fn has_context(kubeconfig: &Kubeconfig, cluster: &str) -> bool {
    let wanted = context_name(cluster);
    kubeconfig.contexts.iter().any(|context| context.name == wanted)
}

/// The name of a cluster's context in the kubeconfig of a fleet.
pub fn context_name(cluster: &str) -> String {
    format!("writ-{cluster}")
}

async fn attach(kubeconfig: &Kubeconfig, cluster: &str) -> Result<Cluster> {
    let wanted = context_name(cluster);
    let context = kubeconfig.contexts.iter().find(|named| named.name == wanted);
    let context = context.with_context(|| format!("the kubeconfig has no context {wanted}"))?;
    let inside = context.context.clone().unwrap_or_default();
    let only = Kubeconfig {
        clusters: named(&kubeconfig.clusters, |named| named.name == inside.cluster),
        auth_infos: named(&kubeconfig.auth_infos, |named| {
            Some(&named.name) == inside.user.as_ref()
        }),
        contexts: vec![context.clone()],
        current_context: Some(wanted),
        ..Kubeconfig::default()
    };
    Cluster::attach(cluster, only).await
}

fn named<T: Clone>(all: &[T], is: impl Fn(&T) -> bool) -> Vec<T> {
    all.iter().filter(|one| is(one)).cloned().collect()
}

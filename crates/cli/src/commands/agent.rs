//! `writ agent`

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use clap::Args;
use kube::{Client, config::Kubeconfig};
use tokio_util::sync::CancellationToken;
use writ_agent::{
    options::{Authorizers, ExecutorGranularity, NilExecutor, TokenOptions, WorkOptions},
    registration::{identity, joined_before, keep, store::Store},
};

use crate::{
    connect::{Connection, self_contained},
    daemon::{self, DaemonFlags},
    flags::{JoinFlags, cluster_name, duration, label},
};

/// How often to look for a missing bootstrap kubeconfig and for changed files.
const FILE_CHECK: Duration = Duration::from_secs(1);

/// How often to reread a kubeconfig that another program renews; it does so hours before the credential expires.
const KUBECONFIG_CHECK: Duration = Duration::from_secs(20);

/// Run the agent of a managed cluster: it delivers works, expands grants, keeps accounts and their tokens.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ agent --cluster-name cluster1 --hub-kubeconfig hub.kubeconfig --spoke-kubeconfig cluster1.kubeconfig\n  writ agent --cluster-name cluster1 --bootstrap-kubeconfig bootstrap.kubeconfig --cluster-label region=apac"
)]
#[expect(clippy::struct_field_names, reason = "the flags are named as OCM's")]
pub struct Agent {
    /// The name of this cluster on the hub.
    #[arg(long, visible_alias = "spoke-cluster-name", value_name = "NAME", value_parser = cluster_name)]
    cluster_name: String,
    /// The kubeconfig of the hub. With a bootstrap kubeconfig: where to keep it; else the Secret `hub-kubeconfig-secret`.
    #[arg(long, alias = "workload-source-config", value_name = "FILE")]
    hub_kubeconfig: Option<PathBuf>,
    /// Join the hub with this kubeconfig, as `writ join` does; the own identity is kept renewed. A file that is not there
    /// is waited for, unless the agent has an identity from before.
    #[arg(long, value_name = "FILE")]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// Set this label on the own ManagedCluster, where the agent was given the right; may be repeated.
    #[arg(long = "cluster-label", value_name = "KEY=VALUE", value_parser = label)]
    cluster_labels: Vec<(String, String)>,
    #[command(flatten)]
    how: JoinFlags,
    /// The kubeconfig of the managed cluster; default: this pod's own account.
    #[arg(long, value_name = "FILE")]
    spoke_kubeconfig: Option<PathBuf>,
    /// The identity of this agent among the agents of a cluster; default: known by its hub.
    #[arg(long, value_name = "ID")]
    agent_id: Option<String>,
    /// The agent's own namespace on the managed cluster.
    #[arg(
        long,
        alias = "namespace",
        value_name = "NAME",
        default_value = "open-cluster-management-agent"
    )]
    agent_namespace: String,
    /// How long what was applied stays after its work is gone from the hub.
    #[arg(long, value_name = "DURATION", default_value = "1h", value_parser = duration)]
    appliedmanifestwork_eviction_grace_period: Duration,
    /// How often what the agent may not list and watch is looked at; all else is watched; default: 5m.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    status_sync_interval: Option<Duration>,
    /// The controllers to run; default: all.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    controllers: Vec<String>,
    /// What happens to works without an executor: allow or deny.
    #[arg(long, default_value = "allow")]
    nil_executor: NilExecutor,
    /// What one refused manifest refuses: work or manifest.
    #[arg(long, default_value = "work")]
    executor_granularity: ExecutorGranularity,
    /// What decides about requests on the managed cluster: rbac, or other for more than RBAC.
    #[arg(long, default_value = "rbac")]
    authorizers: Authorizers,
    /// Where others reach this cluster's API server, for the optional keys of accounts' Secrets.
    #[arg(long, value_name = "URL")]
    api_server_url: Option<String>,
    /// A file with the CA of this cluster's API server, where the ConfigMap kube-root-ca.crt does not tell it.
    #[arg(long, value_name = "FILE")]
    cluster_ca: Option<PathBuf>,
    /// Further ServiceAccounts of the agent's namespace that are never managed as accounts.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    reserved_accounts: Vec<String>,
    #[command(flatten)]
    ocm: OcmFlags,
    #[command(flatten)]
    process: DaemonFlags,
}

/// Flags of OCM's `work agent`. Those without a meaning here are accepted and ignored; those whose effect would be missed
/// are refused with the way out.
#[derive(Debug, Default, Args)]
struct OcmFlags {
    #[arg(long, hide = true)]
    workload_source_driver: Option<String>,
    #[arg(long, hide = true)]
    cloudevents_client_id: Option<String>,
    #[arg(long, hide = true, value_delimiter = ',')]
    feature_gates: Vec<String>,
    #[arg(long, hide = true)]
    kubeconfig: Option<PathBuf>,
    #[arg(long, hide = true)]
    terminate_on_files: Vec<PathBuf>,
    #[arg(long, hide = true)]
    kube_api_qps: Option<String>,
    #[arg(long, hide = true)]
    kube_api_burst: Option<String>,
    #[arg(long, hide = true)]
    hub_kube_api_qps: Option<String>,
    #[arg(long, hide = true)]
    hub_kube_api_burst: Option<String>,
    #[arg(long, hide = true)]
    max_json_raw_length: Option<u64>,
    #[arg(long, hide = true)]
    max_feedback_watch: Option<String>,
    #[arg(long, hide = true)]
    workload_agent_workers: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, default_missing_value = "true")]
    disable_leader_election: Option<String>,
    #[arg(long, hide = true)]
    tls_min_version: Option<String>,
    #[arg(long, hide = true)]
    tls_cipher_suites: Option<String>,
    #[arg(long, hide = true)]
    listen: Option<String>,
    #[arg(long, hide = true)]
    config: Option<PathBuf>,
}

impl OcmFlags {
    /// Refuses flags whose effect would be missed.
    fn check(&self) -> Result<()> {
        if let Some(driver) = self.workload_source_driver.as_deref().filter(|d| *d != "kube") {
            bail!(
                "--workload-source-driver={driver}: works come from a hub's API server, and the only driver is kube"
            );
        }
        if let Some(length) = self.max_json_raw_length.filter(|length| *length != 1024) {
            bail!(
                "--max-json-raw-length={length}: raw JSON in feedback has at most 1024 characters, and no other limit"
            );
        }
        if let Some(address) = &self.listen {
            bail!(
                "--listen={address}: use --health-address, which serves /livez, /readyz and /metrics over HTTP"
            );
        }
        if let Some(file) = &self.config {
            bail!(
                "--config={}: there is no such file here, use flags",
                file.display()
            );
        }
        Ok(())
    }

    /// Ends the process when one of the files changes; its supervisor restarts it.
    fn end_with_files(&self, shutdown: &CancellationToken) {
        let (files, shutdown) = (self.terminate_on_files.clone(), shutdown.clone());
        if files.is_empty() {
            return;
        }
        tokio::spawn(async move {
            let before = digests(&files);
            while digests(&files) == before {
                tokio::select! {
                    () = shutdown.cancelled() => return,
                    () = tokio::time::sleep(FILE_CHECK) => {}
                }
            }
            tracing::info!("a file of --terminate-on-files has changed");
            shutdown.cancel();
        });
    }
}

/// Hashes of files, to notice changes.
fn digests(files: &[PathBuf]) -> Vec<Option<u64>> {
    let digest = |file: &PathBuf| {
        let mut hasher = DefaultHasher::new();
        std::fs::read(file).ok()?.hash(&mut hasher);
        Some(hasher.finish())
    };
    files.iter().map(digest).collect()
}

impl Agent {
    pub async fn run(self) -> Result<ExitCode> {
        self.ocm.check()?;
        let spoke = Connection {
            kubeconfig: self.spoke_kubeconfig.or_else(|| self.ocm.kubeconfig.clone()),
            context: None,
        };
        let spoke = spoke.client().await.context("connect to the managed cluster")?;
        let mut tokens = TokenOptions {
            api_server_url: self.api_server_url,
            ..TokenOptions::default()
        };
        tokens.reserved.extend(self.reserved_accounts);
        if let Some(file) = &self.cluster_ca {
            let pem = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
            tokens.cluster_ca = Some(pem);
        }
        let store = match &self.hub_kubeconfig {
            Some(file) => Store::File(file.clone()),
            None => Store::Secret {
                client: spoke.clone(),
                namespace: self.agent_namespace.clone(),
            },
        };
        let (health, shutdown) = daemon::start(&self.process).await?;
        self.ocm.end_with_files(&shutdown);
        let spoke = health.counted("spoke", spoke);
        let known = joined_before(&store, &self.cluster_name).await;
        let start = match (&self.bootstrap_kubeconfig, known, &self.hub_kubeconfig) {
            (Some(file), Ok(Some(kept)), _) if !file.exists() => HubIdentity::Join(Box::new(kept)),
            (Some(file), ..) => {
                if !wait_for_file(file, &shutdown).await {
                    return Ok(ExitCode::SUCCESS);
                }
                HubIdentity::Join(Box::new(connection(file).read()?))
            }
            (None, Ok(Some(kept)), _) => HubIdentity::Join(Box::new(kept)),
            // A given identity is renewed by its owner.
            (None, _, Some(file)) => HubIdentity::Given(file.clone()),
            (None, known, None) => bail!(
                "there is no identity for the hub in Secret {}/{}{}\nrun `writ join` first, or give --bootstrap-kubeconfig or --hub-kubeconfig",
                self.agent_namespace,
                writ_agent::registration::store::SECRET,
                known.err().map(|e| format!(": {e}")).unwrap_or_default()
            ),
        };
        let hub_config = match &start {
            HubIdentity::Join(config) => Kubeconfig::clone(config),
            HubIdentity::Given(file) => connection(file).read()?,
        };
        let hub_server = identity::server(&hub_config)
            .map(str::to_owned)
            .context("the current context of the hub's kubeconfig names no server")?;
        let hub_config = self_contained(Kubeconfig {
            auth_infos: Vec::new(),
            ..hub_config
        })?;
        let options = writ_agent::Options {
            tokens,
            cluster_name: self.cluster_name.clone(),
            cluster_labels: self.cluster_labels.into_iter().collect(),
            agent_namespace: self.agent_namespace,
            hub_cluster: Some(identity::cluster(&hub_config)?.clone()),
            controllers: self.controllers,
            work: WorkOptions {
                hub_server,
                agent_id: self.agent_id,
                eviction_grace_period: self.appliedmanifestwork_eviction_grace_period,
                status_sync_interval: self.status_sync_interval,
                nil_executor: self.nil_executor,
                executor_granularity: self.executor_granularity,
                authorizers: self.authorizers,
                ..WorkOptions::default()
            },
        };
        let agent = |hub: Client, until: CancellationToken| {
            let hub = health.counted("hub", hub);
            let spoke = spoke.clone();
            let run = writ_agent::run(hub.clone(), spoke.clone(), options.clone(), health.clone(), until);
            async move {
                let ((), ran) = futures::join!(writ_agent::compare_definitions(&hub, &spoke), run);
                ran
            }
        };
        match start {
            HubIdentity::Given(file) => run_with_given(&file, &shutdown, agent).await?,
            HubIdentity::Join(config) => {
                let joining = self.how.joining(self.cluster_name, *config, store)?;
                Box::pin(keep(&joining, shutdown, agent)).await?;
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Where the agent has its identity on the hub from.
enum HubIdentity {
    /// It joins, or has joined before, and keeps the identity renewed.
    Join(Box<Kubeconfig>),
    /// A kubeconfig that another program keeps renewed.
    Given(PathBuf),
}

/// Runs `agent` with a kubeconfig that another program keeps renewed (a klusterlet does for add-ons), and restarts it with
/// each new one.
async fn run_with_given<F, Fut>(file: &Path, shutdown: &CancellationToken, mut agent: F) -> Result<()>
where
    F: FnMut(Client, CancellationToken) -> Fut,
    Fut: Future<Output = Result<(), writ_controller::Error>>,
{
    let mut known = contents(file);
    let mut hub = connection(file).client().await.context("connect to the hub")?;
    loop {
        let round = shutdown.child_token();
        let running = agent(hub, round.clone());
        tokio::pin!(running);
        tokio::select! {
            ended = &mut running => return Ok(ended?),
            (contents, client) = wait_for_change(file, &known) => {
                tracing::info!("the kubeconfig of the hub has changed, starting anew with it");
                (known, hub) = (contents, client);
                round.cancel();
            }
        }
        running.await?;
        if shutdown.is_cancelled() {
            return Ok(());
        }
    }
}

/// Returns once a kubeconfig, or a file that it names, has changed and can be used.
async fn wait_for_change(file: &Path, known: &[Vec<u8>]) -> (Vec<Vec<u8>>, Client) {
    loop {
        tokio::time::sleep(KUBECONFIG_CHECK).await;
        let contents = contents(file);
        if contents == known {
            continue;
        }
        match connection(file).client().await {
            Ok(client) => return (contents, client),
            Err(error) => {
                tracing::warn!("the kubeconfig of the hub has changed and cannot be used: {error:#}");
            }
        }
    }
}

/// The contents of a kubeconfig and of the files that it names.
fn contents(file: &Path) -> Vec<Vec<u8>> {
    let config = connection(file).read().unwrap_or_default();
    let users = config.auth_infos.into_iter().filter_map(|user| user.auth_info);
    let of_users = users.flat_map(|user| [user.client_certificate, user.client_key, user.token_file]);
    let clusters = config.clusters.into_iter().filter_map(|cluster| cluster.cluster);
    let of_clusters = clusters.map(|cluster| cluster.certificate_authority);
    let named = of_users.chain(of_clusters).flatten().map(PathBuf::from);
    std::iter::once(file.to_owned())
        .chain(named)
        .map(|file| std::fs::read(file).unwrap_or_default())
        .collect()
}

/// Waits for a file: in a pod it comes from a Secret that may be created after the agent. Returns false if the agent is
/// stopped before.
async fn wait_for_file(file: &Path, shutdown: &CancellationToken) -> bool {
    if !file.exists() {
        tracing::warn!(
            "there is no {} to join the hub with, and no identity from before: waiting for it (in a pod: for the Secret \
             open-cluster-management-agent/bootstrap-hub-kubeconfig; `writ token bootstrap` on the hub prints it)",
            file.display()
        );
    }
    while !file.exists() {
        tokio::select! {
            () = shutdown.cancelled() => return false,
            () = tokio::time::sleep(FILE_CHECK) => {}
        }
    }
    true
}

fn connection(file: &Path) -> Connection {
    Connection {
        kubeconfig: Some(file.to_owned()),
        context: None,
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn renewed_kubeconfig_is_noticed_and_broken_one_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("kubeconfig");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        let config = r#"{"apiVersion": "v1", "kind": "Config", "current-context": "hub",
            "clusters": [{"name": "hub", "cluster": {"server": "https://hub.example:6443"}}],
            "users": [{"name": "me", "user": {"tokenFile": "token"}}],
            "contexts": [{"name": "hub", "context": {"cluster": "hub", "user": "me"}}]}"#;
        write("kubeconfig", config);
        write("token", "one");
        let known = contents(&file);
        let noticed = async |known: &[Vec<u8>]| {
            let changed = wait_for_change(&file, known);
            let waited = tokio::time::timeout(Duration::from_mins(5), changed).await;
            waited.ok().map(|(contents, _)| contents)
        };
        assert!(noticed(&known).await.is_none(), "nothing has changed");
        write("token", "two");
        let known = noticed(&known).await.expect("another token");
        write("kubeconfig", "{");
        assert!(noticed(&known).await.is_none(), "it cannot be used");
    }

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        agent: Agent,
    }

    fn parse(flags: &[&str]) -> Agent {
        let all = ["agent", "--spoke-cluster-name=c1"].iter().chain(flags);
        Command::try_parse_from(all).unwrap().agent
    }

    #[test]
    fn flags_of_ocms_agent_are_accepted() {
        let agent = parse(&[
            "--workload-source-driver=kube",
            "--workload-source-config=/spoke/hub-kubeconfig/kubeconfig",
            "--agent-id=a",
            "--feature-gates=RawFeedbackJsonString=true,ExecutorValidatingCaches=true",
            "--terminate-on-files=/a",
            "--terminate-on-files=/b",
            "--status-sync-interval=60s",
            "--kube-api-qps=50",
            "--hub-kube-api-burst=100",
            "--max-json-raw-length=1024",
            "--disable-leader-election",
            "--namespace=open-cluster-management-agent",
            "--kubeconfig=/k",
        ]);
        agent.ocm.check().unwrap();
        assert_eq!(
            agent.hub_kubeconfig.as_deref(),
            Some(Path::new("/spoke/hub-kubeconfig/kubeconfig"))
        );
        assert_eq!(agent.ocm.terminate_on_files.len(), 2);
        for (flag, words) in [
            ("--workload-source-driver=mqtt", "the only driver is kube"),
            ("--max-json-raw-length=4096", "at most 1024"),
            ("--listen=0.0.0.0:8443", "--health-address"),
            ("--config=/c", "use flags"),
        ] {
            let refusal = parse(&[flag]).ocm.check().unwrap_err().to_string();
            assert!(refusal.contains(words), "{refusal}");
        }
    }
}

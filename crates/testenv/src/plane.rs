//! Starts and stops one control plane.

use std::{
    collections::BTreeMap,
    fs::{self, File, TryLockError},
    net::{Ipv4Addr, TcpListener},
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use base64::{Engine, engine::general_purpose::STANDARD};
use kube::{
    Client, Config,
    config::{
        AuthInfo, Cluster, Context as KubeContext, KubeConfigOptions, Kubeconfig, NamedAuthInfo,
        NamedCluster, NamedContext,
    },
};
use tempfile::TempDir;
use writ_process::private;

use crate::{
    Assets,
    etcd::{self, Etcd},
    pki::Authority,
    process::Guarded,
};

/// What the controller manager runs: what writ's objects need, nothing that wants nodes.
const CONTROLLERS: &str = "garbage-collector-controller,namespace-controller,serviceaccount-controller,\
    clusterrole-aggregation-controller,root-ca-certificate-publisher-controller,\
    certificatesigningrequest-signing-controller,serviceaccount-token-controller,resourcequota-controller,\
    validatingadmissionpolicy-status-controller";

/// How long a control plane may take to become ready. Machines are shared and noisy.
const READY_WITHIN: Duration = Duration::from_mins(2);

/// What to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Run kube-controller-manager: garbage collection, namespaces, ServiceAccounts, aggregated ClusterRoles, CSR
    /// signing, quotas, the status of admission policies.
    pub controllers: bool,
    /// Keep the data in this folder instead of a temporary one.
    pub data: Option<PathBuf>,
    /// The port of the API server; 0 picks a free one.
    pub port: u16,
    /// More arguments of the API server, such as those of an audit log.
    pub apiserver_args: Vec<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            controllers: true,
            data: None,
            port: 0,
            apiserver_args: Vec::new(),
        }
    }
}

/// A running control plane. It stops when it is dropped.
pub struct ControlPlane {
    assets: Assets,
    authority: Authority,
    kubeconfig: Kubeconfig,
    kubeconfig_file: PathBuf,
    folder: PathBuf,
    // The order matters: a process is stopped before those it depends on, and the folder is removed last.
    processes: Vec<Guarded>,
    _temporary: Option<TempDir>,
    /// Locks the folder against a second control plane, which would overwrite its keys.
    _lock: Option<File>,
}

impl ControlPlane {
    /// Starts a control plane and waits until it is ready.
    pub async fn start(options: Options) -> Result<Self> {
        let assets = Assets::find()?;
        let lock = options.data.as_deref().map(lock).transpose()?;
        // Another process can take a free port before it is used: retry with other ports.
        let mut attempt = 1;
        loop {
            let held = lock.as_ref().map(File::try_clone).transpose()?;
            match Self::try_start(&assets, &options, held).await {
                Err(error) if attempt < 3 && options.port == 0 => {
                    tracing::warn!(%error, attempt, "the control plane did not start, trying again");
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    async fn try_start(assets: &Assets, options: &Options, lock: Option<File>) -> Result<Self> {
        let (temporary, folder) = if let Some(folder) = &options.data {
            private::folder(folder)?;
            (None, folder.clone())
        } else {
            let temporary = private::temporary("writ-control-plane-")?;
            let folder = temporary.path().to_owned();
            (Some(temporary), folder)
        };
        let [etcd_port, peer_port, free_port] = free_ports()?;
        let port = if options.port == 0 {
            free_port
        } else {
            options.port
        };
        let authority = Authority::load_or_create(&folder)?;
        let kubeconfig = write_credentials(&authority, &folder, port)?;
        let kubeconfig_file = folder.join("admin.kubeconfig");
        write_kubeconfig(&kubeconfig, &kubeconfig_file)?;

        let Etcd {
            process: etcd,
            mut apiserver_args,
        } = etcd::start(assets, &folder, etcd_port, peer_port)?;
        let file = |name: &str| folder.join(name).display().to_string();
        apiserver_args.extend([
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".into(),
            "--advertise-address=127.0.0.1".into(),
            format!("--cert-dir={}", folder.display()),
            format!("--tls-cert-file={}", file("serving.crt")),
            format!("--tls-private-key-file={}", file("serving.key")),
            format!("--client-ca-file={}", file("ca.crt")),
            format!("--service-account-key-file={}", file("sa.pub")),
            format!("--service-account-signing-key-file={}", file("sa.key")),
            "--service-account-issuer=https://kubernetes.default.svc".into(),
            "--authorization-mode=RBAC".into(),
            // Enabled by some distributions. Rights that suffice with it suffice without it.
            "--enable-admission-plugins=OwnerReferencesPermissionEnforcement".into(),
            "--service-cluster-ip-range=10.0.0.0/24".into(),
            "--endpoint-reconciler-type=none".into(),
            "--allow-privileged=true".into(),
        ]);
        apiserver_args.extend(options.apiserver_args.iter().cloned());
        let apiserver = Guarded::start(assets, &folder, "kube-apiserver", &apiserver_args)?;
        let mut plane = Self {
            assets: assets.clone(),
            authority,
            kubeconfig,
            kubeconfig_file,
            folder,
            processes: vec![apiserver, etcd],
            _temporary: temporary,
            _lock: lock,
        };
        plane.wait_ready().await?;
        if options.controllers {
            let file = |name: &str| plane.folder.join(name).display().to_string();
            let manager = Guarded::start(
                assets,
                &plane.folder,
                "kube-controller-manager",
                &[
                    format!("--kubeconfig={}", file("admin.kubeconfig")),
                    format!("--service-account-private-key-file={}", file("sa.key")),
                    format!("--root-ca-file={}", file("ca.crt")),
                    format!("--cluster-signing-cert-file={}", file("ca.crt")),
                    format!("--cluster-signing-key-file={}", file("ca.key")),
                    "--leader-elect=false".into(),
                    // Its endpoints are not used, and another process could take the port first, which would end it unnoticed.
                    "--secure-port=0".into(),
                    "--kube-api-qps=500".into(),
                    "--kube-api-burst=1000".into(),
                    format!("--controllers={CONTROLLERS}"),
                ],
            )?;
            plane.processes.insert(0, manager);
        }
        Ok(plane)
    }

    /// A client with all rights.
    pub fn client(&self) -> Result<Client> {
        client_of(&self.kubeconfig)
    }

    /// A client that acts as this user in these groups, by impersonation: rights are exactly the user's.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client> {
        client_of(&self.kubeconfig_as(user, groups))
    }

    /// A client that authenticates with this bearer token.
    pub fn client_with_token(&self, token: &str) -> Result<Client> {
        client_of(&self.kubeconfig_with(AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        }))
    }

    /// The admin's kubeconfig; everything is inside, it refers to no file.
    pub fn kubeconfig(&self) -> &Kubeconfig {
        &self.kubeconfig
    }

    /// The same as a file, for programs.
    pub fn kubeconfig_file(&self) -> &Path {
        &self.kubeconfig_file
    }

    /// A kubeconfig that acts as this user in these groups.
    pub fn kubeconfig_as(&self, user: &str, groups: &[&str]) -> Kubeconfig {
        let admin = self
            .kubeconfig
            .auth_infos
            .first()
            .and_then(|named| named.auth_info.clone())
            .unwrap_or_default();
        self.kubeconfig_with(AuthInfo {
            impersonate: Some(user.into()),
            impersonate_groups: Some(groups.iter().map(|group| (*group).to_owned()).collect()),
            ..admin
        })
    }

    /// A kubeconfig with other credentials.
    pub fn kubeconfig_with(&self, auth: AuthInfo) -> Kubeconfig {
        let mut config = self.kubeconfig.clone();
        if let Some(named) = config.auth_infos.first_mut() {
            named.auth_info = Some(auth);
        }
        config
    }

    /// A client certificate and its key, in PEM, signed by the client CA.
    pub fn client_certificate(&self, user: &str, group: &str) -> Result<(String, String)> {
        let identity = self.authority.client(user, group)?;
        Ok((identity.cert, identity.key))
    }

    /// The CA of the API server, in PEM.
    pub fn ca(&self) -> &str {
        self.authority.cert()
    }

    /// Where the API server listens.
    pub fn url(&self) -> String {
        let cluster = self
            .kubeconfig
            .clusters
            .first()
            .and_then(|named| named.cluster.as_ref());
        cluster
            .and_then(|cluster| cluster.server.clone())
            .unwrap_or_default()
    }

    /// Where its credentials and logs are.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The binaries that this control plane runs.
    pub fn assets(&self) -> &Assets {
        &self.assets
    }

    /// Stops the API server while etcd goes on, as an outage does; [`Self::resume`] ends it.
    pub fn pause(&self) -> Result<()> {
        self.signal("STOP")
    }

    /// Continues after [`Self::pause`].
    pub fn resume(&self) -> Result<()> {
        self.signal("CONT")
    }

    fn signal(&self, signal: &str) -> Result<()> {
        let apiserver = self
            .processes
            .iter()
            .find(|process| process.name() == "kube-apiserver");
        apiserver.context("there is no API server")?.signal(signal)?;
        Ok(())
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let client = self.client()?;
        let started = Instant::now();
        loop {
            for process in &mut self.processes {
                if let Some(status) = process.exited()? {
                    let log = self.folder.join(format!("{}.log", process.name()));
                    bail!(
                        "{} ended with {status}; the end of its log:\n{}",
                        process.name(),
                        tail(&log)
                    );
                }
            }
            let request = http_get("/readyz")?;
            match client.request_text(request).await {
                Ok(_) => return Ok(()),
                Err(error) if started.elapsed() > READY_WITHIN => {
                    bail!("the API server was not ready within {READY_WITHIN:?}: {error}");
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
        }
    }
}

/// Locks a folder for one control plane while the returned file is open.
fn lock(folder: &Path) -> Result<File> {
    private::folder(folder)?;
    let path = folder.join("lock");
    let file = File::create(&path).with_context(|| format!("write {}", path.display()))?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => {
            bail!("{} is in use: another control plane runs on it", folder.display())
        }
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", path.display())),
        Ok(()) => Ok(file),
    }
}

fn http_get(path: &str) -> Result<http::Request<Vec<u8>>> {
    Ok(http::Request::get(path).body(Vec::new())?)
}

fn tail(log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().rev().take(15).collect();
    lines.into_iter().rev().collect::<Vec<_>>().join("\n")
}

/// Three ports that are free now; all are bound until all are known, so that they differ.
fn free_ports() -> Result<[u16; 3]> {
    let listen = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let held = [listen()?, listen()?, listen()?];
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(&held) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

fn write_credentials(authority: &Authority, folder: &Path, port: u16) -> Result<Kubeconfig> {
    let serving = authority.serving()?;
    fs::write(folder.join("serving.crt"), &serving.cert)?;
    private::file(&folder.join("serving.key"), &serving.key)?;
    let tokens = folder.join("sa.key");
    if !tokens.is_file() {
        let key = rcgen::KeyPair::generate()?;
        fs::write(folder.join("sa.pub"), key.public_key_pem())?;
        private::file(&tokens, key.serialize_pem())?;
    }
    let admin = authority.client("admin", "system:masters")?;
    let name = "writ-testenv".to_owned();
    let cluster = Cluster {
        server: Some(format!("https://127.0.0.1:{port}")),
        certificate_authority_data: Some(STANDARD.encode(authority.cert())),
        ..Cluster::default()
    };
    let auth = AuthInfo {
        client_certificate_data: Some(STANDARD.encode(admin.cert)),
        client_key_data: Some(STANDARD.encode(admin.key).into()),
        ..AuthInfo::default()
    };
    let context = KubeContext {
        cluster: name.clone(),
        user: Some("admin".into()),
        ..KubeContext::default()
    };
    Ok(Kubeconfig {
        clusters: vec![NamedCluster {
            name: name.clone(),
            cluster: Some(cluster),
            other: BTreeMap::default(),
        }],
        auth_infos: vec![NamedAuthInfo {
            name: "admin".into(),
            auth_info: Some(auth),
            other: BTreeMap::default(),
        }],
        contexts: vec![NamedContext {
            name: name.clone(),
            context: Some(context),
            other: BTreeMap::default(),
        }],
        current_context: Some(name),
        ..Kubeconfig::default()
    })
}

/// Writes a kubeconfig as JSON, which is YAML too.
fn write_kubeconfig(config: &Kubeconfig, file: &Path) -> Result<()> {
    Ok(private::file(file, serde_json::to_vec_pretty(config)?)?)
}

fn client_of(kubeconfig: &Kubeconfig) -> Result<Client> {
    let config = futures::executor::block_on(Config::from_custom_kubeconfig(
        kubeconfig.clone(),
        &KubeConfigOptions::default(),
    ))?;
    Ok(Client::try_from(config)?)
}

//! A cluster, a manager with exactly the rights that `deploy/sync` ships, and a repository.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::PathBuf,
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, DynamicObject, Patch, PatchParams},
    client::Body,
    core::{ApiResource, GroupVersionKind},
};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::Mutex,
};
use writ_fleet::git::Repository;

use crate::{Cluster, Fleet, Running};

pub use crate::{wait::until, yaml::apply};

/// Where RootSyncs are.
pub const SYSTEM: &str = "config-management-system";

/// A cluster on which a manager runs.
pub struct Env {
    fleet: Fleet,
    folder: TempDir,
    pub options: writ_sync::Options,
    /// Between the reconcilers and the API server.
    pub front: Front,
    running: Mutex<Option<Running>>,
}

impl Env {
    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.fleet.hub
    }

    /// Where clones are kept.
    pub fn cache(&self) -> PathBuf {
        self.folder.path().join("clones")
    }
}

/// A case: an admin's client, and a repository.
pub struct Case {
    pub env: Arc<Env>,
    pub admin: Client,
    pub repo: Repository,
}

impl Case {
    /// A manager with default options on this cluster, and an empty repository.
    pub async fn new(fleet: Fleet) -> Result<Self> {
        let options = writ_sync::Options {
            tenants_read_local: true,
            ..writ_sync::Options::default()
        };
        Self::with(fleet, options).await
    }

    /// The same with other options.
    pub async fn with(fleet: Fleet, mut options: writ_sync::Options) -> Result<Self> {
        let folder = TempDir::new()?;
        options.cache = folder.path().join("clones");
        options.leader_election = Some("e2e".into());
        let front = Front::default();
        let between = |client| front.before(client);
        let running = Fleet::run_sync_through(&fleet.hub, options.clone(), between).await?;
        let admin = fleet.hub.admin().await?;
        Ok(Self {
            env: Arc::new(Env {
                fleet,
                folder,
                options,
                front,
                running: Mutex::new(Some(running)),
            }),
            admin,
            repo: Repository::new()?,
        })
    }

    /// Stops the manager; another one starts after that was done.
    pub async fn restart(&self, between: impl Future<Output = Result<()>>) -> Result<()> {
        self.restart_with(self.env.options.clone(), between).await
    }

    /// The same; the other one has other options.
    pub async fn restart_with(
        &self,
        options: writ_sync::Options,
        between: impl Future<Output = Result<()>>,
    ) -> Result<()> {
        let mut running = self.env.running.lock().await;
        if let Some(running) = running.take() {
            running.stop().await?;
        }
        between.await?;
        let front = |client| self.env.front.before(client);
        *running = Some(Fleet::run_sync_through(&self.env.fleet.hub, options, front).await?);
        Ok(())
    }

    /// Another repository on the same cluster.
    pub fn another(&self) -> Result<Self> {
        Ok(Self {
            env: self.env.clone(),
            admin: self.admin.clone(),
            repo: Repository::new()?,
        })
    }

    pub fn syncs(&self, kind: &str, namespace: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("configsync.gke.io", "v1beta1", kind));
        Api::namespaced_with(self.admin.clone(), namespace, &resource)
    }

    /// The part of a sync that names this case's repository.
    pub fn source(&self) -> Value {
        json!({ "spec": {
            "sourceFormat": "unstructured",
            "git": { "repo": self.repo.url(), "branch": "main", "auth": "none", "period": "500ms" },
        }})
    }

    /// Creates or changes a RootSync of this case's repository.
    pub async fn root_sync(&self, name: &str, extra: Value) -> Result<()> {
        self.sync("RootSync", SYSTEM, name, extra).await
    }

    pub async fn sync(&self, kind: &str, namespace: &str, name: &str, extra: Value) -> Result<()> {
        let mut object = json!({
            "apiVersion": "configsync.gke.io/v1beta1",
            "kind": kind,
            "metadata": { "name": name, "namespace": namespace },
        });
        json_merge(&mut object, self.source());
        json_merge(&mut object, extra);
        self.syncs(kind, namespace)
            .patch(name, &PatchParams::apply("test").force(), &Patch::Apply(&object))
            .await?;
        Ok(())
    }

    pub async fn status(&self, kind: &str, namespace: &str, name: &str) -> Result<Value> {
        let object = self.syncs(kind, namespace).get(name).await?;
        Ok(object.data.get("status").cloned().unwrap_or_default())
    }

    /// Waits until the sync's status is as asked for.
    pub async fn when(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        self.when_of("RootSync", SYSTEM, name, what, is).await
    }

    pub async fn when_of(
        &self,
        kind: &str,
        namespace: &str,
        name: &str,
        what: &str,
        is: impl Fn(&Value) -> bool,
    ) -> Result<Value> {
        let last = std::cell::RefCell::new(Value::Null);
        let found = until(what, || async {
            let status = self.status(kind, namespace, name).await?;
            *last.borrow_mut() = status.clone();
            Ok(is(&status).then_some(status))
        })
        .await;
        found.with_context(|| format!("the last status of {kind} {name}: {:#}", last.borrow()))
    }

    /// Waits until that commit is applied without errors.
    pub async fn synced(&self, name: &str, commit: &str) -> Result<Value> {
        self.when(name, &format!("{name} is at {commit}"), |status| {
            status["lastSyncedCommit"] == commit
        })
        .await
    }

    pub async fn delete(&self, kind: &str, namespace: &str, name: &str) -> Result<()> {
        self.syncs(kind, namespace)
            .delete(name, &DeleteParams::default())
            .await?;
        Ok(())
    }

    pub async fn gone(&self, kind: &str, namespace: &str, name: &str) -> Result<()> {
        until(&format!("{kind} {name} is gone"), || async {
            Ok(self
                .syncs(kind, namespace)
                .get_opt(name)
                .await?
                .is_none()
                .then_some(()))
        })
        .await
    }

    /// A client with the token of a sync's account.
    pub async fn as_reconciler(&self, account: &str) -> Result<Client> {
        self.env.cluster().service_account(SYSTEM, account).await
    }
}

/// Puts the second into the first.
pub fn json_merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                json_merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// The condition of a type.
pub fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    status["conditions"]
        .as_array()
        .and_then(|all| all.iter().find(|c| c["type"] == type_))
        .unwrap_or(&Value::Null)
}

/// A ConfigMap as a file.
pub fn config_map(namespace: &str, name: &str, value: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: {name}\n  namespace: {namespace}\ndata:\n  key: {value:?}\n"
    )
}

/// What a reconciler needs to manage ConfigMaps.
pub fn config_map_role(kind: &str, name: &str, namespace: &str) -> String {
    let namespace = if namespace.is_empty() {
        String::new()
    } else {
        format!("\n  namespace: {namespace}")
    };
    format!(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: {kind}\nmetadata:\n  name: {name}{namespace}\nrules:\n- apiGroups: [\"\"]\n  resources: [configmaps]\n  verbs: [get, list, watch, create, patch, delete]\n"
    )
}

pub fn namespace(name: &str) -> String {
    format!("apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {name}\n")
}

/// What [`config_map`] put into a ConfigMap.
pub fn value(map: &ConfigMap) -> &str {
    map.data
        .as_ref()
        .and_then(|data| data.get("key"))
        .map_or("", String::as_str)
}

/// What is between the reconcilers and the API server: it can refuse requests, and counts them.
#[derive(Clone, Default)]
pub struct Front {
    refused: Arc<std::sync::Mutex<Option<String>>>,
    asked: Arc<std::sync::Mutex<Vec<String>>>,
}

impl Front {
    fn before(&self, client: Client) -> Client {
        let front = self.clone();
        let service = tower::service_fn(move |request: http::Request<Body>| {
            let path = request.uri().path().to_owned();
            let refused = front.refused.lock().unwrap_or_else(PoisonError::into_inner);
            let refused = refused.as_ref() == Some(&path);
            front
                .asked
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(path);
            let client = client.clone();
            async move {
                if !refused {
                    return client.send(request).await;
                }
                http::Response::builder()
                    .status(500)
                    .body(Body::from(b"not now".to_vec()))
                    .map_err(kube::Error::HttpError)
            }
        });
        Client::new(service, "default")
    }

    /// From now on that path is answered with an error; nothing means none is.
    pub fn refuse(&self, path: Option<&str>) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = path.map(str::to_owned);
    }

    /// How often that path was asked for.
    pub fn asked(&self, path: &str) -> usize {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.iter().filter(|asked| *asked == path).count()
    }
}

/// A way to a server that can be closed: then the server is away, as a proxy before it says. It counts who knocks.
pub struct Door {
    /// Where the door is.
    pub address: SocketAddr,
    is_open: Arc<AtomicBool>,
    knocks: Arc<AtomicU32>,
    task: tokio::task::JoinHandle<()>,
}

impl Door {
    /// An open door to the server at this address.
    pub async fn to(server: &str) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let (is_open, knocks) = (Arc::new(AtomicBool::new(true)), Arc::new(AtomicU32::new(0)));
        let task = tokio::spawn({
            let (is_open, knocks, server) = (is_open.clone(), knocks.clone(), server.to_owned());
            async move {
                while let Ok((mut inside, _)) = listener.accept().await {
                    knocks.fetch_add(1, Ordering::SeqCst);
                    let (server, is_open) = (server.clone(), is_open.load(Ordering::SeqCst));
                    tokio::spawn(async move {
                        if !is_open {
                            let answer = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                            let _ = inside.read(&mut [0; 4096]).await;
                            let _ = inside.write_all(answer).await;
                        } else if let Ok(mut outside) = TcpStream::connect(server).await {
                            let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
                        }
                    });
                }
            }
        });
        Ok(Self {
            address,
            is_open,
            knocks,
            task,
        })
    }

    pub fn open(&self) {
        self.is_open.store(true, Ordering::SeqCst);
    }

    pub fn close(&self) {
        self.is_open.store(false, Ordering::SeqCst);
    }

    /// How many connections there were.
    pub fn knocks(&self) -> u32 {
        self.knocks.load(Ordering::SeqCst)
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.task.abort();
    }
}

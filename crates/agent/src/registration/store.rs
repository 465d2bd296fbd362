//! Where the agent keeps its identity: a file, or a Secret in its own namespace.

use std::{collections::BTreeMap, fs, io::ErrorKind, path::PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::{
    ByteString,
    api::core::v1::{Namespace, Secret},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, Patch, PatchParams, PostParams},
    config::{AuthInfo, Kubeconfig},
};
use writ_controller::{Error, error::Context as _};
use writ_runtime::yaml;

/// The Secret of upstream's agents.
pub const SECRET: &str = "hub-kubeconfig-secret";

/// Where.
#[derive(Clone)]
pub enum Store {
    /// A kubeconfig, readable by its owner only; what is unfinished lies beside it.
    File(PathBuf),
    /// The Secret [`SECRET`].
    Secret {
        /// A client of the managed cluster.
        client: Client,
        /// The agent's namespace.
        namespace: String,
    },
}

/// What is kept.
#[derive(Clone, Default)]
pub struct Kept {
    /// The kubeconfig of the hub, once there is one.
    pub kubeconfig: Option<Kubeconfig>,
    /// The certificate request that is about to be sent, or was and has no answer yet, with its key.
    pub pending: Option<PendingRequest>,
    /// The name of the agent, the same for the life of the store.
    pub agent: Option<String>,
}

/// A certificate request that is about to be sent, or was.
#[derive(Clone)]
pub struct PendingRequest {
    /// Its name on the hub.
    pub name: String,
    /// The key that it is for, in PEM.
    pub key: String,
}

const KUBECONFIG: &str = "kubeconfig";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AGENT: &str = "agent-name";
const CLUSTER: &str = "cluster-name";
const PENDING_NAME: &str = "pending-request";
const PENDING_KEY: &str = "pending.key";

type Entries = BTreeMap<String, Vec<u8>>;

impl Store {
    /// Reads what is kept; nothing if there is nothing.
    pub async fn load(&self) -> Result<Kept, Error> {
        let entries = match self {
            Self::File(path) => {
                let mut entries = Entries::new();
                for (key, path) in [
                    (KUBECONFIG, path.clone()),
                    (PENDING_NAME, beside(path, "request")),
                    (PENDING_KEY, beside(path, "key")),
                    (AGENT, beside(path, "agent")),
                ] {
                    match fs::read(&path) {
                        Ok(bytes) => {
                            entries.insert(key.to_owned(), bytes);
                        }
                        Err(error) if error.kind() == ErrorKind::NotFound => {}
                        Err(error) => return Err(Error::io(format!("read {}", path.display()), error)),
                    }
                }
                entries
            }
            Self::Secret { client, namespace } => {
                let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
                let secret = api
                    .get_opt(SECRET)
                    .await
                    .context(|| format!("read Secret {namespace}/{SECRET}"))?;
                let data = secret.and_then(|s| s.data).unwrap_or_default();
                data.into_iter().map(|(key, value)| (key, value.0)).collect()
            }
        };
        let text = |key: &str| {
            entries
                .get(key)
                .and_then(|bytes| String::from_utf8(bytes.clone()).ok())
                .filter(|text| !text.is_empty())
        };
        let kubeconfig = text(KUBECONFIG).and_then(|text| yaml::from_str(&text).ok());
        let pending = text(PENDING_NAME)
            .zip(text(PENDING_KEY))
            .map(|(name, key)| PendingRequest { name, key });
        Ok(Kept {
            kubeconfig,
            pending,
            agent: text(AGENT),
        })
    }

    /// Keeps all of it.
    pub async fn save(&self, cluster: &str, kept: &Kept) -> Result<(), Error> {
        let kubeconfig = match &kept.kubeconfig {
            // JSON is YAML too.
            Some(config) => serde_json::to_vec_pretty(config)
                .map_err(|e| Error::Invalid(format!("the kubeconfig cannot be written: {e}")))?,
            None => Vec::new(),
        };
        let pending = kept.pending.as_ref();
        let name = pending.map(|p| p.name.clone()).unwrap_or_default();
        let key = pending.map(|p| p.key.clone()).unwrap_or_default();
        let agent = kept.agent.clone().unwrap_or_default();
        match self {
            Self::File(path) => {
                for (path, bytes) in [
                    (beside(path, "agent"), agent.into_bytes()),
                    (beside(path, "key"), key.into_bytes()),
                    (beside(path, "request"), name.into_bytes()),
                    (path.clone(), kubeconfig),
                ] {
                    write_private(&path, &bytes)?;
                }
                Ok(())
            }
            Self::Secret { client, namespace } => {
                let auth = kept.kubeconfig.as_ref().and_then(auth_of);
                let decode =
                    |data: Option<String>| data.and_then(|d| STANDARD.decode(d).ok()).unwrap_or_default();
                let certificate = decode(auth.and_then(|a| a.client_certificate_data.clone()));
                let private = decode(auth.and_then(private_key));
                let data: BTreeMap<String, ByteString> = [
                    (KUBECONFIG, kubeconfig),
                    (CERTIFICATE, certificate),
                    (KEY, private),
                    (AGENT, agent.into_bytes()),
                    (CLUSTER, cluster.as_bytes().to_vec()),
                    (PENDING_NAME, name.into_bytes()),
                    (PENDING_KEY, key.into_bytes()),
                ]
                .into_iter()
                .map(|(key, value)| (key.to_owned(), ByteString(value)))
                .collect();
                write_secret(client, namespace, data).await
            }
        }
    }
}

/// The credentials of a kubeconfig that this crate made.
pub fn auth_of(config: &Kubeconfig) -> Option<&AuthInfo> {
    config.auth_infos.first()?.auth_info.as_ref()
}

/// The key in a kubeconfig, in base64. The type hides secrets from logs; its serialized form is what is kept.
pub fn private_key(auth: &AuthInfo) -> Option<String> {
    secret(auth, "client-key-data")
}

/// The token in a kubeconfig.
pub fn token(auth: &AuthInfo) -> Option<String> {
    secret(auth, "token")
}

fn secret(auth: &AuthInfo, field: &str) -> Option<String> {
    let value = serde_json::to_value(auth).ok()?;
    Some(value.get(field)?.as_str()?.to_owned())
}

async fn write_secret(
    client: &Client,
    namespace: &str,
    data: BTreeMap<String, ByteString>,
) -> Result<(), Error> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(SECRET.into()),
            namespace: Some(namespace.into()),
            ..ObjectMeta::default()
        },
        data: Some(data),
        ..Secret::default()
    };
    let mut created = api.create(&PostParams::default(), &secret).await;
    if matches!(&created, Err(kube::Error::Api(status)) if status.code == 404) {
        create_namespace(client, namespace).await?;
        created = api.create(&PostParams::default(), &secret).await;
    }
    match created {
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let patch = serde_json::json!({"data": secret.data});
            api.patch(SECRET, &PatchParams::default(), &Patch::Merge(patch))
                .await
                .context(|| format!("change Secret {namespace}/{SECRET}"))?;
        }
        answer => {
            answer.context(|| format!("create Secret {namespace}/{SECRET}"))?;
        }
    }
    Ok(())
}

/// A cluster that joins before anything is installed in it has no namespace for its agent yet.
async fn create_namespace(client: &Client, name: &str) -> Result<(), Error> {
    let api: Api<Namespace> = Api::all(client.clone());
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(name.into()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    match api.create(&PostParams::default(), &namespace).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        answer => answer
            .map(drop)
            .context(|| format!("create Namespace {name}, to keep the identity in a Secret there")),
    }
}

fn beside(path: &std::path::Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    name.into()
}

/// Writes a file that only its owner can read, as a whole or not at all; nothing to keep removes it.
fn write_private(path: &std::path::Path, bytes: &[u8]) -> Result<(), Error> {
    use std::{io::Write, os::unix::fs::OpenOptionsExt};
    let failed = |error: std::io::Error| Error::io(format!("write {}", path.display()), error);
    if bytes.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(error)),
            _ => Ok(()),
        };
    }
    let unfinished = beside(path, "new");
    let _ = fs::remove_file(&unfinished);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&unfinished)
        .map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    fs::rename(&unfinished, path).map_err(failed)
}

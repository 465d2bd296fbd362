//! From a repository to the objects that its files declare, with the Secrets that the sync's own account may read.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use writ_api::configsync::{Git, GitAuth};
use writ_controller::error::Context as _;

use super::{
    Shared,
    desired::{Ask, Fetched, source_problem},
    error::{Code, Problem},
    parse,
    source::{self, Budget, Credentials, SourceError, clone_folder, clones_of},
};
use crate::model::SyncId;

/// Reads the commit that is asked for, and its files unless it is the known one.
pub async fn fetch(
    shared: Arc<Shared>,
    client: Client,
    (id, uid): (SyncId, String),
    ask: Ask,
    known: Option<String>,
) -> Result<Option<Fetched>, Problem> {
    let credentials = credentials(&client, &id, &ask.git).await?;
    let clones = clones_of(&shared.cache, &id, &uid);
    // The thread keeps its turn even if nobody waits for it any more: that is when it must count.
    let turn = shared.readers.turn(&id, ask.request.host()).await;
    let budget = Budget::new(shared.room.clone(), id.kind);
    let Ask {
        request, format, git, ..
    } = ask;
    let read = tokio::task::spawn_blocking(move || {
        let _turn = turn;
        let folder = clone_folder(&clones, &git);
        let snapshot = source::read(&request, &credentials, &folder, known.as_deref(), &budget)?;
        Ok::<_, SourceError>(snapshot.files.map(|files| Fetched {
            commit: snapshot.commit,
            parsed: parse::parse(files, format, &request.dir),
        }))
    });
    read.await
        .map_err(|error| Problem::new(Code::Source, format!("reading the repository failed: {error}")))?
        .map_err(|error| source_problem(&error))
}

/// The Secrets that the source names, read as the sync's own account.
async fn credentials(client: &Client, id: &SyncId, git: &Git) -> Result<Credentials, Problem> {
    let mut credentials = Credentials::default();
    if matches!(git.auth, GitAuth::Token | GitAuth::Ssh) {
        let name = git
            .secret_ref
            .as_ref()
            .and_then(|s| s.name.clone())
            .filter(|name| !name.is_empty())
            .ok_or_else(|| {
                let auth = git.auth.as_str();
                Problem::new(
                    Code::InvalidSync,
                    format!("spec.git.auth {auth} needs spec.git.secretRef.name"),
                )
            })?;
        let found = secret(client, id, &name).await?;
        let text = |key: &str| {
            field(&found, key)
                .and_then(|value| String::from_utf8(value).ok())
                .map(|value| value.trim().to_owned())
                .ok_or_else(|| Problem::new(Code::InvalidSync, format!("Secret {name:?} has no key {key:?}")))
        };
        if git.auth == GitAuth::Token {
            credentials.username = text("username")?;
            credentials.token = text("token")?;
        } else {
            let key = field(&found, "ssh")
                .ok_or_else(|| Problem::new(Code::InvalidSync, format!("Secret {name:?} has no key \"ssh\"")))?;
            credentials.ssh_key = Some(key);
            credentials.known_hosts = field(&found, "known_hosts");
        }
    }
    let ca = git.ca_cert_secret_ref.as_ref().and_then(|s| s.name.clone());
    if let Some(name) = ca.filter(|name| !name.is_empty()) {
        let found = secret(client, id, &name).await?;
        let cert = field(&found, "cert")
            .ok_or_else(|| Problem::new(Code::InvalidSync, format!("Secret {name:?} has no key \"cert\"")))?;
        credentials.ca = Some(cert);
    }
    Ok(credentials)
}

async fn secret(client: &Client, id: &SyncId, name: &str) -> Result<Secret, Problem> {
    Api::<Secret>::namespaced(client.clone(), &id.namespace)
        .get(name)
        .await
        .context(|| format!("read Secret {}/{name}", id.namespace))
        .map_err(|error| Problem::new(Code::InvalidSync, error.to_string()))
}

fn field(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    secret.data.as_ref()?.get(key).map(|value| value.0.clone())
}

//! From the spec of a sync to the objects that its files declare, read with the Secrets that its own account may read.
//!
//! A fetch is a task of its own, so a repository that does not answer stops nothing else.

use std::{path::Path, sync::Arc, time::Duration};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use serde_json::json;
use tokio::task::JoinHandle;
use writ_api::{
    configsync::{Git, GitAuth, GitStatus, RootSyncSpec, SourceType, overrides::NamespaceStrategy},
    go_duration,
};
use writ_controller::error::Context as _;

use super::{
    error::{Code, Problem},
    parse::{self, Format, Parsed},
    shared::Shared,
    source::{self, Budget, Credentials, Request, SourceError, clone_folder, clones_of},
};
use crate::{
    model::{Sync, SyncId, SyncKind},
    spec::invalid,
};

/// The period of a sync that sets none.
const DEFAULT_PERIOD: Duration = Duration::from_secs(15);
/// The shortest period; a shorter one would be a busy loop.
const SHORTEST_PERIOD: Duration = Duration::from_millis(100);

/// The source that a spec asks for.
#[derive(Clone, Debug, PartialEq)]
pub struct SourceSpec {
    request: Request,
    format: Format,
    git: Git,
    /// Whether namespaces that objects use and that are not declared are created.
    pub implies_namespaces: bool,
    /// The repository, branch and revision as JSON, for the metadata of managed objects.
    pub context: String,
}

/// A commit, and what its files declare.
#[derive(Debug)]
pub struct Fetched {
    /// The commit.
    pub commit: String,
    /// The content of its files.
    pub parsed: Parsed,
}

/// The result of a fetch; `None` if the commit is the known one.
pub type FetchResult = Result<Option<Fetched>, Problem>;

impl SourceSpec {
    /// The source of a sync, or why it cannot be read.
    pub fn new(sync: &Sync, spec: &RootSyncSpec, shared: &Shared) -> Result<Self, Problem> {
        let invalid_sync = |message: String| Problem::new(Code::InvalidSync, message);
        if spec.source_type != SourceType::Git {
            let source_type = spec.source_type.as_str();
            return Err(invalid_sync(format!(
                "spec.sourceType {source_type} is not supported: use git"
            )));
        }
        if let Some(problem) = invalid(sync, spec) {
            return Err(invalid_sync(problem));
        }
        let git = spec
            .git
            .as_ref()
            .ok_or_else(|| invalid_sync("spec.git is missing, and spec.sourceType is git".into()))?;
        let depth = spec.override_.as_ref().and_then(|o| o.git_sync_depth);
        let request = Request::new(git, depth).map_err(|error| source_problem(&error))?;
        if let Some(path) = request.local() {
            check_local_folder(&path, sync.id.kind, shared)?;
        }
        if let Some(period) = git.period.as_deref()
            && !period.is_empty()
            && parse_period(period).is_none()
        {
            return Err(invalid_sync(format!(
                "spec.git.period {period:?} is not a duration such as 15s"
            )));
        }
        let format = match (sync.id.kind, spec.source_format.as_deref()) {
            (SyncKind::Root, None | Some("" | "hierarchy")) => Format::Hierarchy,
            _ => Format::Unstructured,
        };
        let strategy = spec.override_.as_ref().and_then(|o| o.namespace_strategy);
        let context = json!({
            "repo": request.shown(),
            "branch": git.branch.as_deref().unwrap_or_default(),
            "rev": git.revision.as_deref().unwrap_or("HEAD"),
        });
        Ok(Self {
            request,
            format,
            git: git.clone(),
            implies_namespaces: sync.id.kind == SyncKind::Root
                && strategy.unwrap_or_default() != NamespaceStrategy::Explicit,
            context: context.to_string(),
        })
    }

    /// A source for tests of plans.
    #[cfg(test)]
    pub fn for_tests(implies_namespaces: bool) -> Self {
        let git = Git {
            repo: "/repository".into(),
            ..Git::default()
        };
        Self {
            request: Request::new(&git, None).unwrap(),
            format: Format::Unstructured,
            git,
            implies_namespaces,
            context: "{}".into(),
        }
    }

    /// The source as a status describes it.
    fn git_status(&self) -> GitStatus {
        let git = &self.git;
        GitStatus {
            repo: self.request.shown(),
            revision: git.revision.clone().unwrap_or_else(|| "HEAD".into()),
            branch: git.branch.clone().unwrap_or_default(),
            dir: git.dir.clone().unwrap_or_default(),
        }
    }
}

/// How often a sync looks for a new commit.
pub fn period(sync: &Sync) -> Duration {
    let git = sync.spec.as_ref().ok().and_then(|spec| spec.git.as_ref());
    git.and_then(|git| git.period.as_deref())
        .and_then(parse_period)
        .unwrap_or(DEFAULT_PERIOD)
}

/// Parses a duration of Go: `15s`, `1m30s`, `500ms`.
fn parse_period(text: &str) -> Option<Duration> {
    let nanoseconds = go_duration::nanoseconds(text.trim())?;
    let period = Duration::from_nanos(u64::try_from(nanoseconds).ok()?);
    Some(period.max(SHORTEST_PERIOD))
}

/// Whether a local folder may be read. The clones of other syncs are private.
fn check_local_folder(path: &Path, kind: SyncKind, shared: &Shared) -> Result<(), Problem> {
    let refused = |message: &str| Err(Problem::new(Code::InvalidSync, message));
    if kind == SyncKind::Repo && !shared.tenants_read_local {
        return refused("spec.git.repo of a RepoSync must not be a folder: use https or ssh");
    }
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if real(path).starts_with(real(&shared.cache)) {
        return refused("spec.git.repo must not be in the folder of the clones");
    }
    Ok(())
}

fn source_problem(error: &SourceError) -> Problem {
    let code = match error {
        SourceError::Unsupported(_) => Code::InvalidSync,
        _ => Code::Source,
    };
    Problem::new(code, error.to_string())
}

/// The state of reading the source of one sync.
pub struct SourceReader {
    fetch: Option<Fetch>,
    /// The generation of the spec for which the source was last read or refused.
    read_generation: Option<i64>,
    /// Why no commit could be read.
    pub problem: Option<Problem>,
    /// The source as the status describes it.
    pub git: Option<GitStatus>,
}

/// What to do with the result of a fetch.
pub enum Read {
    /// The spec has changed since the fetch began: fetch again.
    Outdated,
    /// There is no new commit.
    Unchanged,
    /// A commit was read, from this source.
    Commit(Fetched, Box<SourceSpec>),
}

/// A running fetch. It is aborted when this value is dropped.
struct Fetch {
    source: SourceSpec,
    task: JoinHandle<FetchResult>,
}

impl Drop for Fetch {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl SourceReader {
    /// A reader that has read nothing. The source is described by an earlier status.
    pub fn new(git: Option<GitStatus>) -> Self {
        Self {
            fetch: None,
            read_generation: None,
            problem: None,
            git,
        }
    }

    /// Whether a fetch is running.
    pub fn is_reading(&self) -> bool {
        self.fetch.is_some()
    }

    /// Whether the source was read or refused for this generation of the spec.
    pub fn has_read(&self, generation: i64) -> bool {
        self.read_generation == Some(generation)
    }

    /// Starts to fetch. If the commit and the source are the `known` ones, no files are read.
    pub fn start(
        &mut self,
        shared: &Arc<Shared>,
        client: &Client,
        sync: &Sync,
        known: Option<(&str, &SourceSpec)>,
    ) {
        let Ok(spec) = &sync.spec else {
            return;
        };
        match SourceSpec::new(sync, spec, shared) {
            Err(problem) => {
                if spec.source_type != SourceType::Git {
                    self.git = None;
                }
                self.refuse(sync, problem);
            }
            Ok(source) => {
                self.git = Some(source.git_status());
                let known = known.filter(|(_, known)| **known == source);
                let known = known.map(|(commit, _)| commit.to_owned());
                let id = (sync.id.clone(), sync.metadata.uid.clone().unwrap_or_default());
                let task = tokio::spawn(fetch(shared.clone(), client.clone(), id, source.clone(), known));
                self.fetch = Some(Fetch { source, task });
            }
        }
    }

    /// Waits for the result of the running fetch; for ever if there is none.
    pub async fn result(&mut self) -> FetchResult {
        match &mut self.fetch {
            Some(fetch) => (&mut fetch.task)
                .await
                .unwrap_or_else(|error| Err(failed(&error))),
            None => std::future::pending().await,
        }
    }

    /// Takes over the result of the running fetch.
    pub fn accept(&mut self, shared: &Shared, sync: &Sync, result: FetchResult) -> Read {
        let Some(fetch) = self.fetch.take() else {
            return Read::Unchanged;
        };
        let current = sync.spec.as_ref().ok();
        let current = current.and_then(|spec| SourceSpec::new(sync, spec, shared).ok());
        if current.as_ref() != Some(&fetch.source) {
            return Read::Outdated;
        }
        match result {
            Err(problem) => {
                self.refuse(sync, problem);
                Read::Unchanged
            }
            Ok(fetched) => {
                self.read_generation = Some(sync.generation());
                self.problem = None;
                fetched.map_or(Read::Unchanged, |fetched| {
                    Read::Commit(fetched, Box::new(fetch.source.clone()))
                })
            }
        }
    }

    fn refuse(&mut self, sync: &Sync, problem: Problem) {
        self.read_generation = Some(sync.generation());
        self.problem = Some(problem);
    }
}

fn failed(error: &tokio::task::JoinError) -> Problem {
    Problem::new(Code::Source, format!("reading the repository failed: {error}"))
}

async fn fetch(
    shared: Arc<Shared>,
    client: Client,
    (id, uid): (SyncId, String),
    source: SourceSpec,
    known: Option<String>,
) -> FetchResult {
    let credentials = credentials(&client, &id, &source.git).await?;
    let clones = clones_of(&shared.cache, &id, &uid);
    // The thread keeps its permit even if the fetch is aborted: a thread that never ends is what the limit is for.
    let permit = shared.fetch_limits.acquire(&id, source.request.host()).await;
    let budget = Budget::new(shared.memory.clone(), id.kind);
    let SourceSpec {
        request, format, git, ..
    } = source;
    let read = tokio::task::spawn_blocking(move || {
        let _permit = permit;
        let folder = clone_folder(&clones, &git);
        let snapshot = source::read(&request, &credentials, &folder, known.as_deref(), &budget)?;
        Ok::<_, SourceError>(snapshot.files.map(|files| Fetched {
            commit: snapshot.commit,
            parsed: parse::parse(files, format, &request.dir),
        }))
    });
    read.await
        .map_err(|error| failed(&error))?
        .map_err(|error| source_problem(&error))
}

/// The credentials in the Secrets that the source names, read with the account of the sync.
async fn credentials(client: &Client, id: &SyncId, git: &Git) -> Result<Credentials, Problem> {
    let invalid_sync = |message: String| Problem::new(Code::InvalidSync, message);
    let mut credentials = Credentials::default();
    if matches!(git.auth, GitAuth::Token | GitAuth::Ssh) {
        let name = git
            .secret_ref
            .as_ref()
            .and_then(|secret| secret.name.clone())
            .filter(|name| !name.is_empty())
            .ok_or_else(|| {
                let auth = git.auth.as_str();
                invalid_sync(format!("spec.git.auth {auth} needs spec.git.secretRef.name"))
            })?;
        let secret = read_secret(client, id, &name).await?;
        let missing = |key: &str| invalid_sync(format!("Secret {name:?} has no key {key:?}"));
        let text = |key: &str| {
            field(&secret, key)
                .and_then(|value| String::from_utf8(value).ok())
                .map(|value| value.trim().to_owned())
                .ok_or_else(|| missing(key))
        };
        if git.auth == GitAuth::Token {
            credentials.username = text("username")?;
            credentials.token = text("token")?;
        } else {
            credentials.ssh_key = Some(field(&secret, "ssh").ok_or_else(|| missing("ssh"))?);
            credentials.known_hosts = field(&secret, "known_hosts");
        }
    }
    let ca = git
        .ca_cert_secret_ref
        .as_ref()
        .and_then(|secret| secret.name.clone());
    if let Some(name) = ca.filter(|name| !name.is_empty()) {
        let secret = read_secret(client, id, &name).await?;
        let cert = field(&secret, "cert")
            .ok_or_else(|| invalid_sync(format!("Secret {name:?} has no key \"cert\"")))?;
        credentials.ca = Some(cert);
    }
    Ok(credentials)
}

async fn read_secret(client: &Client, id: &SyncId, name: &str) -> Result<Secret, Problem> {
    Api::<Secret>::namespaced(client.clone(), &id.namespace)
        .get(name)
        .await
        .context(|| format!("read Secret {}/{name}", id.namespace))
        .map_err(|error| Problem::new(Code::InvalidSync, error.to_string()))
}

fn field(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    secret.data.as_ref()?.get(key).map(|value| value.0.clone())
}

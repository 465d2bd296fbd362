//! From a repository to declared objects.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::task::JoinHandle;
use writ_api::configsync::{Git, GitStatus, RootSyncSpec, SourceType};
use writ_api::go_duration;

use super::{
    engine::{Engine, Unresolved},
    error::{Code, Problem},
    fetch::fetch,
    namespaces,
    object::{Declared, Key, Origin, Raw},
    parse::{self, Format, Parsed},
    rest_mapper::Kind,
    source::{Request, SourceError},
};
use crate::{manager::plan::invalid, model::SyncKind};

/// What a fetch is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ask {
    pub request: Request,
    pub format: Format,
    pub git: Git,
    /// Whether namespaces that are used and not declared are made.
    pub implicit: bool,
    /// What managed objects say about where they come from.
    pub context: String,
}

/// A fetch that is under way, on its own: a repository that does not answer stops nothing else.
pub(super) struct Fetching {
    ask: Ask,
    task: JoinHandle<Result<Option<Fetched>, Problem>>,
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A commit, and what its files declare.
pub(super) struct Fetched {
    pub commit: String,
    pub parsed: Parsed,
}

/// Waits for the fetch that is under way; for ever if there is none.
pub(super) async fn finished(fetching: &mut Option<Fetching>) -> Result<Option<Fetched>, Problem> {
    match fetching {
        Some(fetching) => (&mut fetching.task).await.unwrap_or_else(|error| {
            Err(Problem::new(
                Code::Source,
                format!("reading the repository failed: {error}"),
            ))
        }),
        None => std::future::pending().await,
    }
}

impl Engine {
    /// Begins to look for a new commit.
    pub(super) fn start_fetch(&mut self) {
        let Ok(spec) = self.sync.spec.clone() else {
            return;
        };
        let ask = match self.ask(&spec) {
            Ok(ask) => ask,
            Err(problem) => return self.unreadable(problem),
        };
        let known = self.commit.clone().filter(|_| self.asked.as_ref() == Some(&ask));
        let (shared, client) = (self.shared.clone(), self.client.clone());
        let who = (
            self.id.clone(),
            self.sync.metadata.uid.clone().unwrap_or_default(),
        );
        let task = tokio::spawn(fetch(shared, client, who, ask.clone(), known));
        self.fetching = Some(Fetching { ask, task });
    }

    /// There is no commit, for this reason.
    fn unreadable(&mut self, problem: Problem) {
        self.looked = Some(self.sync.generation());
        self.state.unreadable = true;
        self.state.source = vec![problem];
    }

    /// Takes over what was fetched; returns whether that is still what the spec asks for.
    pub(super) async fn adopt_fetched(&mut self, fetched: Result<Option<Fetched>, Problem>) -> bool {
        let Some(done) = self.fetching.take() else {
            return true;
        };
        let current = self.sync.spec.clone().ok().and_then(|spec| self.ask(&spec).ok());
        if current.as_ref() != Some(&done.ask) {
            return false;
        }
        let fetched = match fetched {
            Err(problem) => {
                self.unreadable(problem);
                return true;
            }
            Ok(fetched) => fetched,
        };
        self.looked = Some(self.sync.generation());
        self.state.unreadable = false;
        match fetched {
            None => self.state.source.clone_from(&self.parse_problems),
            Some(Fetched { commit, parsed }) => {
                self.state.known = true;
                self.commit = Some(commit.clone());
                self.state.source_commit = Some(commit);
                self.state.rendering = parsed.rendering;
                self.parse_problems = parsed.problems;
                let context = done.ask.context.clone();
                self.asked = Some(done.ask.clone());
                self.adopt(parsed.objects, &context).await;
                self.state.source.clone_from(&self.parse_problems);
            }
        }
        true
    }

    /// What the spec asks for, in the terms of Git.
    fn ask(&mut self, spec: &RootSyncSpec) -> Result<Ask, Problem> {
        if spec.source_type != SourceType::Git {
            self.state.git = None;
            return Err(Problem::new(
                Code::InvalidSync,
                format!(
                    "spec.sourceType {} is not supported: use git",
                    spec.source_type.as_str()
                ),
            ));
        }
        if let Some(problem) = invalid(&self.sync, spec) {
            return Err(Problem::new(Code::InvalidSync, problem));
        }
        let git = spec
            .git
            .as_ref()
            .ok_or_else(|| Problem::new(Code::InvalidSync, "spec.git is missing, and spec.sourceType is git"))?;
        let depth = spec.override_.as_ref().and_then(|o| o.git_sync_depth);
        let request = Request::new(git, depth).map_err(|error| source_problem(&error))?;
        if let Some(path) = request.local() {
            self.may_read(&path)?;
        }
        let branch = git.branch.clone().unwrap_or_default();
        let revision = git.revision.clone().unwrap_or_else(|| "HEAD".into());
        self.state.git = Some(GitStatus {
            repo: request.shown(),
            revision: revision.clone(),
            branch: branch.clone(),
            dir: git.dir.clone().unwrap_or_default(),
        });
        if let Some(period) = git.period.as_deref()
            && !period.is_empty()
            && duration(period).is_none()
        {
            return Err(Problem::new(
                Code::InvalidSync,
                format!("spec.git.period {period:?} is no duration such as 15s"),
            ));
        }
        let format = match (self.id.kind, spec.source_format.as_deref()) {
            (SyncKind::Root, None | Some("" | "hierarchy")) => Format::Hierarchy,
            _ => Format::Unstructured,
        };
        let context = json!({ "repo": request.shown(), "branch": branch, "rev": revision }).to_string();
        Ok(Ask {
            request,
            format,
            git: git.clone(),
            implicit: namespaces::implicit(self.id.kind, spec),
            context,
        })
    }

    /// Whether a folder of this machine may be read. The clones of other syncs are private repositories.
    fn may_read(&self, path: &std::path::Path) -> Result<(), Problem> {
        if self.id.kind == SyncKind::Repo && !self.shared.tenants_read_local {
            return Err(Problem::new(
                Code::InvalidSync,
                "spec.git.repo of a RepoSync must not be a folder: use https or ssh",
            ));
        }
        let real = |path: &std::path::Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        if real(path).starts_with(real(&self.shared.cache)) {
            return Err(Problem::new(
                Code::InvalidSync,
                "spec.git.repo must not be in the folder where clones are kept",
            ));
        }
        Ok(())
    }

    /// Makes the objects of the files the declared ones.
    async fn adopt(&mut self, objects: Vec<Raw>, context: &str) {
        // A RepoSync cannot make definitions, so what its files say about a kind is only a claim.
        let crds = match self.id.kind {
            SyncKind::Root => scopes(&objects),
            SyncKind::Repo => Vec::new(),
        };
        let mut placed: Vec<(Raw, Key)> = Vec::new();
        self.unresolved.clear();
        self.disabled.clear();
        self.held_back.clear();
        for raw in objects {
            let (group, version) = raw.group_version();
            let known = self
                .shared
                .discovery
                .resolve(&self.client, group, version, raw.kind())
                .await;
            let namespaced = match known {
                Ok(Some(Kind { namespaced, .. })) => Ok(namespaced),
                Ok(None) => crds
                    .iter()
                    .find(|(g, k, _)| g == group && k == raw.kind())
                    .map(|(_, _, namespaced)| *namespaced)
                    .ok_or(None),
                Err(error) => Err(Some(error.to_string())),
            };
            match namespaced.map(|namespaced| self.place(&raw, namespaced)) {
                Ok(Ok(key)) => placed.push((raw, key)),
                Ok(Err(problem)) => self.parse_problems.push(problem),
                Err(said) => self.unresolved.push(Unresolved { raw, said }),
            }
        }
        self.declared.clear();
        self.declare(placed, context).await;
        self.failed.retain(|key, _| self.declared.contains_key(key));
        self.fights.retain(|key| self.declared.contains_key(key));
        self.drifted.clear();
    }

    /// Declares these objects, too.
    async fn declare(&mut self, mut placed: Vec<(Raw, Key)>, context: &str) {
        let earlier = self
            .declared
            .values()
            .map(|object| (object.key.clone(), object.path.clone()));
        let keys: Vec<(Key, Arc<str>)> = placed
            .iter()
            .map(|(raw, key)| (key.clone(), raw.path.clone()))
            .chain(earlier.filter(|(_, path)| !path.is_empty()))
            .collect();
        let (problems, doubled) = parse::duplicates(&keys);
        self.parse_problems.extend(problems);
        placed.retain(|(_, key)| !doubled.contains(key));
        self.declared.retain(|key, _| !doubled.contains(key));
        placed.retain(|(raw, key)| {
            let off = raw.annotation("configmanagement.gke.io/managed") == Some("disabled");
            if off {
                self.disabled.insert(key.clone());
            }
            !off
        });
        let used = placed.iter().map(|(_, key)| key.namespace.clone()).collect();
        self.put(placed, context);
        self.imply_namespaces(used).await;
    }

    /// Makes these objects declared ones.
    pub(super) fn put(&mut self, placed: Vec<(Raw, Key)>, context: &str) {
        let origin = Origin {
            id: &self.id,
            commit: self.commit.as_deref().unwrap_or_default(),
            context,
        };
        self.declared.extend(
            placed
                .into_iter()
                .map(|(raw, key)| (key.clone(), Declared::new(raw, key, &origin))),
        );
    }

    /// The namespace of an object, if it may be there.
    fn place(&self, raw: &Raw, namespaced: bool) -> Result<Key, Problem> {
        let declared = raw.namespace();
        let key = match (self.id.kind, namespaced) {
            (SyncKind::Repo, false) => {
                return Err(Problem::new(
                    Code::BadScope,
                    format!("{} {}: a RepoSync manages objects of its own namespace only, this one is of the cluster", raw.kind(), raw.name()),
                )
                .at(&raw.path)
                .about(&raw.key("")));
            }
            (SyncKind::Repo, true) if !declared.is_empty() && declared != &*self.id.namespace => {
                return Err(Problem::new(
                    Code::BadScope,
                    format!(
                        "{} {}: its namespace is {declared:?}; a RepoSync manages objects of its own namespace {:?} only",
                        raw.kind(),
                        raw.name(),
                        self.id.namespace
                    ),
                )
                .at(&raw.path)
                .about(&raw.key(declared)));
            }
            (SyncKind::Repo, true) => raw.key(&self.id.namespace),
            (SyncKind::Root, false) => raw.key(""),
            (SyncKind::Root, true) if declared.is_empty() => raw.key("default"),
            (SyncKind::Root, true) => raw.key(declared),
        };
        let own = match (key.group.as_str(), key.kind.as_str()) {
            (writ_api::configsync::GROUP, kind) if kind == self.id.kind.as_str() => "itself",
            (writ_api::kpt::GROUP, "ResourceGroup") => "its own inventory",
            _ => return Ok(key),
        };
        if key.name != *self.id.name || key.namespace != *self.id.namespace {
            return Ok(key);
        }
        let problem = Problem::new(Code::SelfReconcile, format!("{} declares {own} in its own source", self.id));
        Err(problem.at(&raw.path).about(&key))
    }

    /// Kinds that were not known may be by now: their definition may have come in this very commit.
    pub(super) async fn resolve_again(&mut self) {
        if self.unresolved.is_empty() {
            return;
        }
        let context = self
            .asked
            .as_ref()
            .map(|ask| ask.context.clone())
            .unwrap_or_default();
        let (mut left, mut placed) = (Vec::new(), Vec::new());
        for Unresolved { raw, .. } in std::mem::take(&mut self.unresolved) {
            let (group, version) = raw.group_version();
            let kind = self
                .shared
                .discovery
                .resolve(&self.client, group, version, raw.kind())
                .await;
            let said = match kind {
                Ok(Some(kind)) => {
                    match self.place(&raw, kind.namespaced) {
                        Ok(key) => placed.push((raw, key)),
                        Err(problem) => self.parse_problems.push(problem),
                    }
                    continue;
                }
                Ok(None) => None,
                Err(error) => Some(error.to_string()),
            };
            left.push(Unresolved { raw, said });
        }
        self.unresolved = left;
        if !placed.is_empty() {
            self.declare(placed, &context).await;
        }
        if !self.state.unreadable {
            self.state.source.clone_from(&self.parse_problems);
        }
    }
}

/// The kinds that the objects themselves define: group, kind, and whether it is in namespaces.
fn scopes(objects: &[Raw]) -> Vec<(String, String, bool)> {
    let text = |raw: &Raw, pointer: &str| {
        raw.value
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
            .to_owned()
    };
    objects
        .iter()
        .filter(|raw| raw.kind() == "CustomResourceDefinition")
        .map(|raw| {
            (
                text(raw, "/spec/group"),
                text(raw, "/spec/names/kind"),
                text(raw, "/spec/scope") == "Namespaced",
            )
        })
        .collect()
}

pub(super) fn source_problem(error: &SourceError) -> Problem {
    match error {
        SourceError::Unsupported(_) => Problem::new(Code::InvalidSync, error.to_string()),
        _ => Problem::new(Code::Source, error.to_string()),
    }
}

/// Reads a duration as Go writes it: `15s`, `1m30s`, `500ms`.
pub(super) fn duration(text: &str) -> Option<Duration> {
    let nanoseconds = go_duration::nanoseconds(text.trim())?;
    let total = Duration::from_nanos(u64::try_from(nanoseconds).ok()?);
    // Less than this would be a busy loop.
    Some(total.max(Duration::from_millis(100)))
}

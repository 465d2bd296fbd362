//! Reads the files of one commit of a repository.
//!
//! Nothing is checked out: files are read from the object database of a local repository or of a bare clone, so that
//! no link or path in a repository can lead anywhere else. Local repositories are opened in place.

mod budget;
mod clones;
mod fetch_limits;
mod http;
mod insecure;
mod remote;
mod ssh;
mod tree;

use std::{path::PathBuf, time::Duration};

use tokio::sync::OwnedSemaphorePermit;
use writ_api::configsync::{Git, GitAuth};

pub use budget::{Budget, Room};
pub use clones::{clone_folder, clones_of, private_clones};
pub use fetch_limits::Readers;
pub use tree::{File, FileProblem, MAX_FILE};

/// How much a server may take of this machine.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// How long one fetch may take in all: a server that sends a byte a minute must not hold a thread for ever.
    whole: Duration,
    /// How many bytes one answer may have: they end up on this machine's disk.
    answer: u64,
    /// How many bytes one object of a repository may have: unpacked, a few kilobytes can be gigabytes.
    object: u64,
}

const BOUNDS: Bounds = Bounds {
    whole: Duration::from_mins(5),
    answer: 1024 * 1024 * 1024,
    object: 128 * 1024 * 1024,
};

/// How repositories are opened: as nobody's in particular, and with a limit for what one object takes.
fn options(bounds: Bounds) -> gix::open::Options {
    let limit = format!("gitoxide.objects.allocLimit={}", bounds.object);
    gix::open::Options::isolated()
        .with(gix::sec::Trust::Full)
        .config_overrides([limit])
}

/// What a repository needs that is not in the spec.
#[derive(Clone, Default)]
pub struct Credentials {
    /// For `token`.
    pub username: String,
    /// For `token`.
    pub token: String,
    /// For `ssh`: the private key.
    pub ssh_key: Option<Vec<u8>>,
    /// For `ssh`: the hosts to trust.
    pub known_hosts: Option<Vec<u8>>,
    /// The certificate authority of the server, in PEM.
    pub ca: Option<Vec<u8>>,
}

/// Why no commit could be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The repository could not be opened or asked.
    #[error("cannot read the repository {repo}: {reason}")]
    Repository {
        /// Its address, without credentials.
        repo: String,
        /// What went wrong.
        reason: String,
    },
    /// The branch, tag or commit is not there.
    #[error("the repository {repo} has no {what}")]
    Revision {
        /// Its address, without credentials.
        repo: String,
        /// What is missing.
        what: String,
    },
    /// The folder is not there, or is none.
    #[error("{0}")]
    Directory(String),
    /// The spec asks for something that is not built.
    #[error("{0}")]
    Unsupported(String),
}

/// The files of one commit.
#[derive(Debug)]
pub struct Snapshot {
    /// The commit.
    pub commit: String,
    /// Its files; nothing if the caller knows this commit already.
    pub files: Option<Files>,
}

/// What was read of a commit.
#[derive(Debug, Default)]
pub struct Files {
    /// The files.
    pub files: Vec<File>,
    /// Files that were refused.
    pub problems: Vec<FileProblem>,
    /// The room that they take, until they are parsed.
    pub room: Option<OwnedSemaphorePermit>,
}

/// Which files of which commit, in the terms of Git.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The address.
    pub repo: String,
    /// The branch or the revision.
    pub target: Target,
    /// The folder, without slashes at its ends.
    pub dir: String,
    /// Whether the server's certificate is not checked.
    pub no_verify: bool,
    /// How many commits to fetch; all if there is no number.
    pub depth: Option<u32>,
}

/// A branch or anything else that names a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A branch.
    Branch(String),
    /// A tag, a branch or a commit.
    Revision(String),
}

impl Target {
    fn describe(&self) -> String {
        match self {
            Self::Branch(name) => format!("branch {name:?}"),
            Self::Revision(name) => format!("tag, branch or commit {name:?}"),
        }
    }

    /// The references that it can be, the one that counts first.
    fn references(&self) -> Vec<String> {
        match self {
            Self::Branch(name) => vec![format!("refs/heads/{name}")],
            Self::Revision(name) => vec![format!("refs/tags/{name}"), format!("refs/heads/{name}")],
        }
    }

    /// The commit, if it is given by its id.
    fn commit(&self) -> Option<gix::ObjectId> {
        match self {
            Self::Branch(_) => None,
            Self::Revision(name) => gix::ObjectId::from_hex(name.as_bytes()).ok(),
        }
    }
}

impl Request {
    /// Reads the spec of a source.
    pub fn new(git: &Git, depth: Option<i64>) -> Result<Self, SourceError> {
        match git.auth {
            GitAuth::None | GitAuth::Token | GitAuth::Ssh => {}
            other => {
                return Err(SourceError::Unsupported(format!(
                    "spec.git.auth {} is not supported: use none, token or ssh",
                    other.as_str()
                )));
            }
        }
        if git.proxy.as_deref().is_some_and(|proxy| !proxy.is_empty()) {
            return Err(SourceError::Unsupported("spec.git.proxy is not supported".into()));
        }
        let text = |value: &Option<String>| value.clone().filter(|value| !value.is_empty());
        let revision = text(&git.revision).filter(|revision| revision != "HEAD");
        let target = match revision {
            Some(revision) => Target::Revision(revision),
            None => Target::Branch(text(&git.branch).unwrap_or_else(|| "master".into())),
        };
        let dir = git
            .dir
            .as_deref()
            .unwrap_or_default()
            .trim_matches('/')
            .to_owned();
        let dir = if dir == "." { String::new() } else { dir };
        if dir.split('/').any(|part| part == "..") {
            return Err(SourceError::Directory(format!(
                "spec.git.dir {dir:?} leaves the repository"
            )));
        }
        let depth = match depth {
            Some(depth) => u32::try_from(depth).ok().filter(|depth| *depth > 0),
            None => Some(1),
        };
        Ok(Self {
            repo: git.repo.clone(),
            target,
            dir,
            no_verify: git.no_ssl_verify == Some(true),
            depth,
        })
    }

    /// The local folder that the address names, if it does.
    pub fn local(&self) -> Option<PathBuf> {
        if let Some(path) = self.repo.strip_prefix("file://") {
            return Some(PathBuf::from(path));
        }
        self.repo.starts_with('/').then(|| PathBuf::from(&self.repo))
    }

    /// The server that the address names; nothing for a folder of this machine.
    pub fn host(&self) -> Option<String> {
        if self.local().is_some() {
            return None;
        }
        let url = gix::url::parse(self.repo.as_bytes()).ok();
        Some(
            url.and_then(|url| url.host().map(str::to_lowercase))
                .unwrap_or_default(),
        )
    }

    /// The address without a password.
    pub fn shown(&self) -> String {
        match (self.repo.split_once("://"), self.repo.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
            _ => self.repo.clone(),
        }
    }

    fn failed(&self, reason: impl std::fmt::Display) -> SourceError {
        let mut reason = reason.to_string();
        // What cannot be understood is quoted, the password in it included.
        let user = self.repo.rsplit_once('@').map(|(before, _)| before);
        let user = user.map(|user| user.split_once("://").map_or(user, |(_, user)| user));
        if let Some(user) = user.filter(|user| user.contains(':')) {
            reason = reason.replace(user, "...");
        }
        SourceError::Repository {
            repo: self.shown(),
            reason,
        }
    }
}

/// Reads the commit that the request names, and its files unless it is `known`. Blocks: call it off the runtime.
pub fn read(
    request: &Request,
    credentials: &Credentials,
    clone: &std::path::Path,
    known: Option<&str>,
    budget: &Budget,
) -> Result<Snapshot, SourceError> {
    let (repository, commit) = match request.local() {
        Some(path) => {
            let repository =
                gix::open_opts(path, options(BOUNDS)).map_err(|error| request.failed(last_cause(&error)))?;
            let commit = resolve(&repository, request)?;
            (repository, commit)
        }
        None => remote::fetch(request, credentials, clone)?,
    };
    let text = commit.to_string();
    if known == Some(text.as_str()) {
        return Ok(Snapshot {
            commit: text,
            files: None,
        });
    }
    let files = tree::read(&repository, commit, request, budget).inspect_err(|error| {
        // A clone that lacks something is made anew next time; the repository itself is not ours to touch.
        if request.local().is_none() && matches!(error, SourceError::Repository { .. }) {
            let _ = std::fs::remove_dir_all(clone);
        }
    })?;
    Ok(Snapshot {
        commit: text,
        files: Some(files),
    })
}

/// The commit that a branch, tag or id names in a repository.
fn resolve(repository: &gix::Repository, request: &Request) -> Result<gix::ObjectId, SourceError> {
    for name in request.target.references() {
        let Ok(Some(mut reference)) = repository.try_find_reference(&name) else {
            continue;
        };
        let id = reference
            .peel_to_id()
            .map_err(|error| request.failed(last_cause(&error)))?
            .detach();
        return Ok(id);
    }
    if let Some(id) = request.target.commit()
        && repository.find_commit(id).is_ok()
    {
        return Ok(id);
    }
    Err(SourceError::Revision {
        repo: request.shown(),
        what: request.target.describe(),
    })
}

/// The innermost reason of an error: what a person can act on.
fn last_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut current = error.source();
    while let Some(cause) = current {
        let cause_text = cause.to_string();
        // Many errors say what their cause says, too.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        current = cause.source();
    }
    text
}

#[cfg(test)]
mod tests;

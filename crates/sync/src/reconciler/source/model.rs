//! The types of a source: a request, the credentials for it, and what was read.

use std::{path::PathBuf, time::Duration};

use tokio::sync::OwnedSemaphorePermit;
use writ_api::configsync::{Git, GitAuth};

/// Limits of what a server may consume of this machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// The duration of one whole fetch. A server that sends a byte a minute must not occupy a thread for ever.
    pub whole: Duration,
    /// The bytes of one response. They are stored on this machine's disk.
    pub answer: u64,
    /// The bytes of one unpacked object of a repository. A few kilobytes can unpack to gigabytes.
    pub object: u64,
}

pub(super) const BOUNDS: Bounds = Bounds {
    whole: Duration::from_mins(5),
    answer: 1024 * 1024 * 1024,
    object: 128 * 1024 * 1024,
};

/// Options to open a repository: without the Git configuration of this machine, and with a limit for one object.
pub(super) fn options(bounds: Bounds) -> gix::open::Options {
    let limit = format!("gitoxide.objects.allocLimit={}", bounds.object);
    gix::open::Options::isolated()
        .with(gix::sec::Trust::Full)
        .config_overrides([limit])
}

/// Credentials for a repository, from Secrets.
#[derive(Clone, Default)]
pub struct Credentials {
    /// The user name, for `token`.
    pub username: String,
    /// The token, for `token`.
    pub token: String,
    /// The private key, for `ssh`.
    pub ssh_key: Option<Vec<u8>>,
    /// The hosts to trust, for `ssh`.
    pub known_hosts: Option<Vec<u8>>,
    /// The certificate authority of the server, in PEM.
    pub ca: Option<Vec<u8>>,
}

/// Why no commit could be read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The repository could not be opened or fetched.
    #[error("cannot read the repository {repo}: {reason}")]
    Repository {
        /// Its address, without credentials.
        repo: String,
        /// The reason.
        reason: String,
    },
    /// The branch, tag or commit does not exist.
    #[error("the repository {repo} has no {what}")]
    Revision {
        /// Its address, without credentials.
        repo: String,
        /// What is missing.
        what: String,
    },
    /// The folder does not exist, is no folder, or is too large.
    #[error("{0}")]
    Directory(String),
    /// The spec uses a feature that is not supported.
    #[error("{0}")]
    Unsupported(String),
}

/// The files of one commit.
#[derive(Debug)]
pub struct Snapshot {
    /// The commit.
    pub commit: String,
    /// Its files; `None` if the caller already has this commit.
    pub files: Option<Files>,
}

/// The files of a commit, and those that were refused.
#[derive(Debug, Default)]
pub struct Files {
    /// The files.
    pub files: Vec<File>,
    /// Files that were refused.
    pub problems: Vec<FileProblem>,
    /// The memory reserved for the files until they are parsed.
    pub memory: Option<OwnedSemaphorePermit>,
}

/// One file.
#[derive(Debug)]
pub struct File {
    /// Its path in the repository.
    pub path: String,
    /// Its content.
    pub content: Vec<u8>,
}

/// One file that was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// Its path in the repository.
    pub path: String,
    /// The reason.
    pub reason: String,
}

/// The files to read, in the terms of Git.
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
    /// The number of commits to fetch; `None` fetches all.
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
    pub(super) fn describe(&self) -> String {
        match self {
            Self::Branch(name) => format!("branch {name:?}"),
            Self::Revision(name) => format!("tag, branch or commit {name:?}"),
        }
    }

    /// The references that may hold the target, the preferred one first.
    pub(super) fn references(&self) -> Vec<String> {
        match self {
            Self::Branch(name) => vec![format!("refs/heads/{name}")],
            Self::Revision(name) => vec![format!("refs/tags/{name}"), format!("refs/heads/{name}")],
        }
    }

    /// The commit, if the target is a commit id.
    pub(super) fn commit(&self) -> Option<gix::ObjectId> {
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

    /// The local folder, if the address is one.
    pub fn local(&self) -> Option<PathBuf> {
        if let Some(path) = self.repo.strip_prefix("file://") {
            return Some(PathBuf::from(path));
        }
        self.repo.starts_with('/').then(|| PathBuf::from(&self.repo))
    }

    /// The host of the server; `None` for a local folder.
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

    /// The address without credentials.
    pub fn shown(&self) -> String {
        match (self.repo.split_once("://"), self.repo.rsplit_once('@')) {
            (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://{rest}"),
            _ => self.repo.clone(),
        }
    }

    /// A failure, without the credentials of the address.
    pub(super) fn failed(&self, reason: impl std::fmt::Display) -> SourceError {
        let mut reason = reason.to_string();
        // A parser quotes an address that it cannot parse, with its password.
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

/// The message of an error with its chain of causes. The innermost cause is what a person can act on.
pub(super) fn last_cause(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut current = error.source();
    while let Some(cause) = current {
        let cause_text = cause.to_string();
        // Many errors repeat the message of their cause.
        if !text.ends_with(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        current = cause.source();
    }
    text
}

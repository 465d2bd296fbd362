//! Fetches a remote repository into a bare clone.

use std::{
    num::NonZeroU32,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use gix::{ObjectId, Repository, progress::Discard, remote::Direction};
use gix_transport::{
    Protocol,
    client::{TransportWithoutIO as _, blocking_io},
};

use super::{
    http,
    model::{BOUNDS, Bounds, Credentials, Request, SourceError, last_cause, options},
    ssh,
};

/// The packs of a clone. Every fetch adds one; a clone with more packs, or with twice the bytes of the largest response,
/// is cloned again.
const MAX_PACKS: usize = 50;

/// The commit that a branch, tag or id names in a repository.
pub fn resolve(repository: &gix::Repository, request: &Request) -> Result<gix::ObjectId, SourceError> {
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

/// Brings the clone up to date and returns the commit.
pub fn fetch(
    request: &Request,
    credentials: &Credentials,
    clone: &Path,
) -> Result<(Repository, ObjectId), SourceError> {
    fetch_with(&ssh::find, BOUNDS, request, credentials, clone)
}

/// Like [`fetch`], with another program in place of `ssh` and other limits.
#[cfg(test)]
pub fn fetch_by_ssh(
    program: &Path,
    bounds: Bounds,
    request: &Request,
    credentials: &Credentials,
    clone: &Path,
) -> Result<(Repository, ObjectId), SourceError> {
    fetch_with(&|| Ok(program.to_owned()), bounds, request, credentials, clone)
}

fn fetch_with(
    ssh_program: &dyn Fn() -> Result<PathBuf, String>,
    bounds: Bounds,
    request: &Request,
    credentials: &Credentials,
    clone: &Path,
) -> Result<(Repository, ObjectId), SourceError> {
    let repository = open(clone, bounds).map_err(|reason| request.failed(reason))?;
    let url = gix::url::parse(request.repo.as_bytes()).map_err(|error| request.failed(last_cause(&error)))?;
    // A tag or branch is requested by its full name, as the server matches prefixes.
    let named: Vec<String> = request.target.references();
    let by_commit = request.target.commit();
    let specs: Vec<String> = match by_commit {
        None => named.iter().map(|name| format!("+{name}:{name}")).collect(),
        // A commit never changes.
        Some(id) if repository.find_commit(id).is_ok() => return Ok((repository, id)),
        // The commit may be on any branch.
        Some(_) => vec![
            "+refs/heads/*:refs/heads/*".to_owned(),
            "+refs/tags/*:refs/tags/*".to_owned(),
        ],
    };
    let depth = request
        .depth
        .filter(|_| by_commit.is_none())
        .and_then(NonZeroU32::new);
    let offered = match url.scheme {
        gix::url::Scheme::Https | gix::url::Scheme::Http => {
            let client = http::Client::new(credentials.ca.as_deref(), request.no_verify)
                .map_err(|reason| request.failed(reason))?;
            let mut transport = blocking_io::http::connect_http(client, url.clone(), Protocol::V2, false);
            if !credentials.token.is_empty() {
                transport
                    .set_identity(gix::sec::identity::Account {
                        username: credentials.username.clone(),
                        password: credentials.token.clone(),
                        oauth_refresh_token: None,
                    })
                    .map_err(|error| request.failed(last_cause(&error)))?;
            }
            receive(&repository, request, &url, &specs, depth, transport)?
        }
        gix::url::Scheme::Ssh => {
            let (session, transport) = ssh::Session::start(ssh_program, credentials, &url, bounds)
                .map_err(|reason| request.failed(reason))?;
            let received = receive(&repository, request, &url, &specs, depth, transport);
            received.map_err(|error| match error {
                // The messages of `ssh` are closer to the cause than the end of its output.
                SourceError::Repository { reason, .. } => request.failed(session.end().unwrap_or(reason)),
                other => other,
            })?
        }
        other => {
            return Err(SourceError::Unsupported(format!(
                "addresses that start with {}: are not supported: use https, ssh or a local folder",
                other.as_str()
            )));
        }
    };
    // Only a new handle sees the fetched objects.
    let repository = open(clone, bounds).map_err(|reason| request.failed(reason))?;
    // References that the server no longer has are removed: an old tag would hide a branch of the same name.
    let stale = named.iter().filter(|name| !offered.contains(name));
    for reference in stale.filter_map(|name| repository.try_find_reference(name).ok().flatten()) {
        reference
            .delete()
            .map_err(|error| request.failed(last_cause(&error)))?;
    }
    let commit = resolve(&repository, request)?;
    Ok((repository, commit))
}

/// Fetches, and returns the requested references that the server has.
fn receive<T: blocking_io::Transport>(
    repository: &Repository,
    request: &Request,
    url: &gix::Url,
    specs: &[String],
    depth: Option<NonZeroU32>,
    transport: T,
) -> Result<Vec<String>, SourceError> {
    let fail = |error: gix::error::Error| request.failed(last_cause(&error));
    let remote = repository
        .remote_at_without_url_rewrite(url.clone())
        .and_then(|remote| {
            remote
                .with_fetch_tags(gix::remote::fetch::Tags::None)
                .with_refspecs(
                    specs.iter().map(String::as_bytes).map(gix::bstr::BStr::new),
                    Direction::Fetch,
                )
        })
        .map_err(fail)?;
    let connection = remote
        .to_connection_with_transport(transport)
        // Credentials come from the Secret, never from credential helpers or a prompt.
        .with_credentials(|_| Ok(None));
    let mut prepared = connection
        .prepare_fetch(Discard, gix::remote::ref_map::Options::default())
        .map_err(fail)?;
    if prepared.ref_map().mappings.is_empty() {
        return Err(SourceError::Revision {
            repo: request.shown(),
            what: request.target.describe(),
        });
    }
    let local = prepared
        .ref_map()
        .mappings
        .iter()
        .filter_map(|mapping| mapping.local.as_ref());
    let offered = local.map(ToString::to_string).collect();
    if unchanged(repository, prepared.ref_map()) {
        return Ok(offered);
    }
    if let Some(depth) = depth {
        prepared = prepared.with_shallow(gix::remote::fetch::Shallow::DepthAtRemote(depth));
    }
    prepared
        .receive(Discard, &AtomicBool::new(false))
        .map_err(|error| {
            let text = last_cause(&error);
            let hint = if text.contains("too large to fit in memory") {
                format!(": a file in it has more than {} MiB", BOUNDS.object >> 20)
            } else {
                String::new()
            };
            request.failed(format!("{text}{hint}"))
        })?;
    Ok(offered)
}

/// Whether the clone already has everything the server offers. A shallow fetch would transfer it again.
fn unchanged(repository: &Repository, offered: &gix::remote::fetch::RefMap) -> bool {
    offered.mappings.iter().all(|mapping| {
        let (Some(id), Some(local)) = (mapping.remote.as_id(), mapping.local.as_ref()) else {
            return false;
        };
        let here = repository
            .try_find_reference(local)
            .ok()
            .flatten()
            .and_then(|reference| reference.try_id().map(gix::Id::detach));
        here.is_some_and(|here| here.as_ref() == id && repository.has_object(here))
    })
}

fn open(clone: &Path, bounds: Bounds) -> Result<Repository, String> {
    let packs: Vec<u64> = std::fs::read_dir(clone.join("objects/pack"))
        .map(|entries| {
            entries
                .flatten()
                .filter(|e| e.path().extension().is_some_and(|x| x == "pack"))
                .map(|e| e.metadata().map_or(0, |found| found.len()))
                .collect()
        })
        .unwrap_or_default();
    if packs.len() > MAX_PACKS || packs.iter().sum::<u64>() > bounds.answer.saturating_mul(2) {
        std::fs::remove_dir_all(clone).map_err(|error| format!("clear the clone: {error}"))?;
    }
    if let Ok(repository) = gix::open_opts(clone, options(bounds)) {
        return Ok(repository);
    }
    // The clone is absent, or was damaged by a crash.
    if clone.exists() {
        std::fs::remove_dir_all(clone).map_err(|error| format!("clear the clone: {error}"))?;
    }
    // Clones may be of private repositories, in a folder that others can list.
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(clone)
        .map_err(|error| format!("make the clone: {error}"))?;
    gix::init_bare(clone).map_err(|error| last_cause(&error))?;
    gix::open_opts(clone, options(bounds)).map_err(|error| last_cause(&error))
}

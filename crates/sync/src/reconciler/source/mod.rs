//! Reads the files of one commit of a repository.
//!
//! Nothing is checked out. Files are read from the object database of a local repository or of a bare clone, so no link
//! or path in a repository leads anywhere else. Local repositories are opened in place.

mod budget;
mod clones;
mod fetch_limits;
mod http;
mod insecure;
mod model;
mod remote;
mod ssh;
mod tree;

use self::model::{BOUNDS, last_cause, options};
pub use self::{
    budget::{Budget, MemoryPool},
    clones::{clone_folder, clones_of, private_clones},
    fetch_limits::FetchLimits,
    model::{Credentials, File, FileProblem, Files, Request, Snapshot, SourceError, Target},
};

/// Reads the commit that a request names, and its files unless it is the `known` commit. Blocks: call it off the runtime.
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
            let commit = remote::resolve(&repository, request)?;
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
        // An incomplete clone is cloned again next time. A local repository is never touched.
        if request.local().is_none() && matches!(error, SourceError::Repository { .. }) {
            let _ = std::fs::remove_dir_all(clone);
        }
    })?;
    Ok(Snapshot {
        commit: text,
        files: Some(files),
    })
}

#[cfg(test)]
mod tests;

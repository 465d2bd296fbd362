//! Reads the files of a commit's tree, with limits, and follows no link out of the repository.

use gix::{ObjectId, Repository, objs::tree::EntryKind};

use super::{Files, Request, SourceError, last_cause};

/// The largest file that is read: an object in it could not be stored anyway.
pub const MAX_FILE: u64 = 5 * 1024 * 1024;
/// The most that is read of one commit.
const MAX_TOTAL: u64 = 256 * 1024 * 1024;
/// How deep folders are followed.
const MAX_DEPTH: usize = 64;

/// One file.
#[derive(Debug)]
pub struct File {
    /// Its path in the repository.
    pub path: String,
    /// What it holds.
    pub content: Vec<u8>,
}

/// One file that was refused.
#[derive(Debug, PartialEq, Eq)]
pub struct FileProblem {
    /// Its path in the repository.
    pub path: String,
    /// Why.
    pub reason: String,
}

struct Reader<'a> {
    repository: &'a Repository,
    root: ObjectId,
    request: &'a Request,
    total: u64,
    files: Files,
}

/// Reads every YAML and JSON file below the folder of the request.
pub fn read(repository: &Repository, commit: ObjectId, request: &Request) -> Result<Files, SourceError> {
    let fail = |error: gix::error::Error| request.failed(last_cause(&error));
    let root = repository
        .find_commit(commit)
        .and_then(|commit| commit.tree_id().map(gix::Id::detach))
        .map_err(fail)?;
    let mut start = root;
    for part in request.dir.split('/').filter(|part| !part.is_empty()) {
        let tree = repository.find_tree(start).map_err(fail)?;
        let entry = tree.find_entry(part).ok_or_else(|| {
            SourceError::Directory(format!(
                "the folder {:?} is not in commit {commit} of {}",
                request.dir,
                request.shown()
            ))
        })?;
        if entry.mode().kind() != EntryKind::Tree {
            return Err(SourceError::Directory(format!(
                "{:?} is no folder in commit {commit} of {}",
                request.dir,
                request.shown()
            )));
        }
        start = entry.object_id();
    }
    let mut reader = Reader {
        repository,
        root,
        request,
        total: 0,
        files: Files::default(),
    };
    reader.folder(start, &request.dir, 0)?;
    Ok(reader.files)
}

impl Reader<'_> {
    fn folder(&mut self, id: ObjectId, path: &str, depth: usize) -> Result<(), SourceError> {
        let request = self.request;
        let fail = |error: gix::error::Error| request.failed(last_cause(&error));
        if depth > MAX_DEPTH {
            self.refuse(path, format!("folders are followed {MAX_DEPTH} deep"));
            return Ok(());
        }
        let tree = self.repository.find_tree(id).map_err(fail)?;
        for entry in tree.iter() {
            let entry = entry.map_err(fail)?;
            let name = entry.filename().to_string();
            let path = if path.is_empty() {
                name.clone()
            } else {
                format!("{path}/{name}")
            };
            if matches!(name.as_str(), "" | "." | "..") || name.contains('/') || name.contains('\\') {
                self.refuse(&path, "the path leaves the repository".into());
                continue;
            }
            let id = entry.object_id();
            match entry.mode().kind() {
                EntryKind::Tree if name.starts_with(".git") => {}
                EntryKind::Tree => self.folder(id, &path, depth + 1)?,
                EntryKind::Blob | EntryKind::BlobExecutable => {
                    if declares(&name) {
                        self.file(id, &path)?;
                    }
                }
                EntryKind::Link => self.link(id, &path)?,
                // A submodule is another repository.
                EntryKind::Commit => {}
            }
        }
        Ok(())
    }

    fn file(&mut self, id: ObjectId, path: &str) -> Result<(), SourceError> {
        let request = self.request;
        let fail = |error: gix::error::Error| request.failed(last_cause(&error));
        let size = self.repository.find_header(id).map_err(fail)?.size();
        if size > MAX_FILE {
            self.refuse(
                path,
                format!("the file has {size} bytes, the limit is {MAX_FILE}"),
            );
            return Ok(());
        }
        self.total += size;
        if self.total > MAX_TOTAL {
            return Err(SourceError::Directory(format!(
                "the files below {:?} have more than {MAX_TOTAL} bytes in all",
                request.dir
            )));
        }
        let content = self.repository.find_object(id).map_err(fail)?.detach().data;
        self.files.files.push(File {
            path: path.to_owned(),
            content,
        });
        Ok(())
    }

    /// A link to a file of the repository is read, one hop; one that leaves it is refused.
    fn link(&mut self, id: ObjectId, path: &str) -> Result<(), SourceError> {
        let request = self.request;
        let fail = |error: gix::error::Error| request.failed(last_cause(&error));
        let target = self.repository.find_object(id).map_err(fail)?.detach().data;
        let target = String::from_utf8_lossy(&target).into_owned();
        let Some(resolved) = inside(path, &target) else {
            self.refuse(path, format!("the link to {target:?} leaves the repository"));
            return Ok(());
        };
        if !declares(path) {
            return Ok(());
        }
        let root = self.repository.find_tree(self.root).map_err(fail)?;
        let found = root
            .lookup_entry(resolved.iter().map(String::as_bytes))
            .map_err(fail)?;
        match found {
            Some(entry) if entry.mode().is_blob() => self.file(entry.object_id(), path),
            Some(_) => {
                self.refuse(path, format!("the link to {target:?} leads to no file"));
                Ok(())
            }
            None => {
                self.refuse(path, format!("the link to {target:?} leads nowhere"));
                Ok(())
            }
        }
    }

    fn refuse(&mut self, path: &str, reason: String) {
        self.files.problems.push(FileProblem {
            path: path.to_owned(),
            reason,
        });
    }
}

/// The path that a link leads to, if that is inside the repository.
fn inside(link: &str, target: &str) -> Option<Vec<String>> {
    if target.starts_with('/') || target.contains('\\') {
        return None;
    }
    let mut parts: Vec<String> = link.split('/').map(str::to_owned).collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part.to_owned()),
        }
    }
    Some(parts)
}

/// Whether a file declares objects, by its name.
fn declares(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    [".yaml", ".yml", ".json"]
        .iter()
        .any(|end| name.to_ascii_lowercase().ends_with(end))
}

//! Reads the files of a commit's tree, within limits. No link is followed out of the repository.

use gix::{ObjectId, Repository, objs::tree::EntryKind};

use super::{
    budget::Budget,
    model::{File, FileProblem, Files, Request, SourceError, last_cause},
};

/// The largest file. A larger object could not be stored in the API server.
pub const MAX_FILE: u64 = 5 * 1024 * 1024;
/// The depth of nested folders.
const MAX_DEPTH: usize = 64;
/// The number of files and folders visited. A dozen trees that contain each other stand for an astronomical number.
const MAX_ENTRIES: usize = 250_000;
/// The bytes of folders read. A folder counts each time it is visited.
const MAX_FOLDERS: u64 = 256 * 1024 * 1024;
/// The longest name of a file or folder, as in a file system.
const MAX_NAME: usize = 255;
/// The longest target of a link.
const MAX_TARGET: u64 = 4096;
/// The number of refused files reported. One is enough to stop pruning.
const MAX_PROBLEMS: usize = 1000;

struct Reader<'a> {
    repository: &'a Repository,
    root: ObjectId,
    request: &'a Request,
    /// The bytes of the files found so far, including their paths.
    total: u64,
    limit: u64,
    /// The number of files and folders visited.
    entries: usize,
    /// The bytes of folders read.
    folders: u64,
    found: Vec<(ObjectId, String)>,
    problems: Vec<FileProblem>,
}

/// Reads every YAML and JSON file below the folder of the request, once memory for them is available.
pub fn read(
    repository: &Repository,
    commit: ObjectId,
    request: &Request,
    budget: &Budget,
) -> Result<Files, SourceError> {
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
                "{:?} is not a folder in commit {commit} of {}",
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
        limit: budget.limit(),
        entries: 0,
        folders: 0,
        found: Vec::new(),
        problems: Vec::new(),
    };
    reader.folder(start, &request.dir, 0)?;
    let Reader {
        found,
        problems,
        total,
        ..
    } = reader;
    let memory = budget.take(total).map_err(|reason| request.failed(reason))?;
    let files = found
        .into_iter()
        .map(|(id, path)| {
            let content = repository.find_object(id).map_err(fail)?.detach().data;
            Ok(File { path, content })
        })
        .collect::<Result<_, SourceError>>()?;
    Ok(Files {
        files,
        problems,
        memory: Some(memory),
    })
}

impl<'a> Reader<'a> {
    fn folder(&mut self, id: ObjectId, path: &str, depth: usize) -> Result<(), SourceError> {
        let request = self.request;
        let fail = |error: gix::error::Error| request.failed(last_cause(&error));
        if depth > MAX_DEPTH {
            self.refuse(path, format!("folders are followed {MAX_DEPTH} deep"));
            return Ok(());
        }
        let tree = self.tree(id)?;
        for entry in tree.iter() {
            let entry = entry.map_err(fail)?;
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return Err(self.too_much(&format!("more than {MAX_ENTRIES} files and folders")));
            }
            if entry.filename().len() > MAX_NAME {
                self.refuse(path, format!("a name in it has more than {MAX_NAME} bytes"));
                continue;
            }
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
                // Folders of Git and of its hosting services.
                EntryKind::Tree if matches!(name.as_str(), ".git" | ".github" | ".gitlab") => {}
                EntryKind::Tree => self.folder(id, &path, depth + 1)?,
                EntryKind::Blob | EntryKind::BlobExecutable => {
                    if declares(&name) {
                        self.file(id, &path)?;
                    }
                }
                EntryKind::Link => self.link(id, &path)?,
                // If it were skipped in silence, its objects would be pruned.
                EntryKind::Commit => self.refuse(
                    &path,
                    "submodules are not read: commit the files of the submodule instead".into(),
                ),
            }
        }
        Ok(())
    }

    /// Reads a folder, within the limit of all folders.
    fn tree(&mut self, id: ObjectId) -> Result<gix::Tree<'a>, SourceError> {
        let (repository, request) = (self.repository, self.request);
        let fail = |error: gix::error::Error| request.failed(last_cause(&error));
        self.folders += repository.find_header(id).map_err(fail)?.size();
        if self.folders > MAX_FOLDERS {
            return Err(self.too_much("too many entries in folders"));
        }
        repository.find_tree(id).map_err(fail)
    }

    fn too_much(&self, what: &str) -> SourceError {
        SourceError::Directory(format!(
            "there are {what} below {:?} of {}: set spec.git.dir to a smaller folder",
            self.request.dir,
            self.request.shown()
        ))
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
        // Even an empty file has a path.
        self.total += size + u64::try_from(path.len()).unwrap_or_default();
        if self.total > self.limit {
            return Err(SourceError::Directory(format!(
                "the files below {:?} have more than {} bytes in all",
                request.dir, self.limit
            )));
        }
        self.found.push((id, path.to_owned()));
        Ok(())
    }

    /// Reads the file that a link leads to. Links out of the repository, to folders and to other links are refused.
    fn link(&mut self, id: ObjectId, path: &str) -> Result<(), SourceError> {
        let request = self.request;
        let fail = |error: gix::error::Error| request.failed(last_cause(&error));
        let length = self.repository.find_header(id).map_err(fail)?.size();
        if length > MAX_TARGET {
            self.refuse(
                path,
                format!("the link has {length} bytes, the limit is {MAX_TARGET}"),
            );
            return Ok(());
        }
        let target = self.repository.find_object(id).map_err(fail)?.detach().data;
        let target = String::from_utf8_lossy(&target).into_owned();
        let Some(resolved) = inside(path, &target) else {
            self.refuse(path, format!("the link to {target:?} leaves the repository"));
            return Ok(());
        };
        match self.find(&resolved)? {
            Some((EntryKind::Blob | EntryKind::BlobExecutable, id)) if declares(path) => {
                return self.file(id, path);
            }
            Some((EntryKind::Blob | EntryKind::BlobExecutable, _)) => {}
            // Whatever the name of the link, there may be objects behind it.
            Some(_) => self.refuse(
                path,
                format!(
                    "the link to {target:?} does not lead to a file; links to folders and to links are not followed"
                ),
            ),
            None if declares(path) => self.refuse(path, format!("the target {target:?} of the link does not exist")),
            None => {}
        }
        Ok(())
    }

    /// The entry at a path of the repository.
    fn find(&mut self, parts: &[String]) -> Result<Option<(EntryKind, ObjectId)>, SourceError> {
        let mut found = (EntryKind::Tree, self.root);
        for part in parts {
            if found.0 != EntryKind::Tree {
                return Ok(None);
            }
            let tree = self.tree(found.1)?;
            let entry = tree.find_entry(part.as_str());
            let Some(entry) = entry.map(|entry| (entry.mode().kind(), entry.object_id())) else {
                return Ok(None);
            };
            found = entry;
        }
        Ok(Some(found))
    }

    fn refuse(&mut self, path: &str, reason: String) {
        if self.problems.len() >= MAX_PROBLEMS {
            return;
        }
        self.problems.push(FileProblem {
            path: path.to_owned(),
            reason,
        });
    }
}

/// The path that a link leads to, if it is inside the repository.
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

/// Whether a file of this name declares objects.
fn declares(name: &str) -> bool {
    let name = name.rsplit('/').next().unwrap_or(name);
    // One of the file names of kustomize.
    if name == "Kustomization" {
        return true;
    }
    [".yaml", ".yml", ".json"]
        .iter()
        .any(|end| name.to_ascii_lowercase().ends_with(end))
}

//! Reads the files of a commit's tree, with limits, and follows no link out of the repository.

use gix::{ObjectId, Repository, objs::tree::EntryKind};

use super::{Files, Request, SourceError, budget::Budget, last_cause};

/// The largest file that is read: an object in it could not be stored anyway.
pub const MAX_FILE: u64 = 5 * 1024 * 1024;
/// How deep folders are followed.
const MAX_DEPTH: usize = 64;
/// How many files and folders are looked at. A dozen trees that hold each other stand for more than anybody can count.
const MAX_ENTRIES: usize = 250_000;
/// How many bytes of folders are read, each as often as it is looked into.
const MAX_FOLDERS: u64 = 256 * 1024 * 1024;
/// The longest name of a file or folder, as on a disk.
const MAX_NAME: usize = 255;
/// The longest path that a link may lead to.
const MAX_TARGET: u64 = 4096;
/// How many refused files are told; one is enough to stop pruning.
const MAX_PROBLEMS: usize = 1000;

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
    /// How many bytes the files that were found so far have in all, their paths included.
    total: u64,
    limit: u64,
    /// How many files and folders were looked at.
    entries: usize,
    /// How many bytes of folders were read.
    folders: u64,
    found: Vec<(ObjectId, String)>,
    problems: Vec<FileProblem>,
}

/// Reads every YAML and JSON file below the folder of the request, once there is room for them.
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
    let held = budget.take(total).map_err(|reason| request.failed(reason))?;
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
        room: Some(held),
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
                // What belongs to Git and to those who host it.
                EntryKind::Tree if matches!(name.as_str(), ".git" | ".github" | ".gitlab") => {}
                EntryKind::Tree => self.folder(id, &path, depth + 1)?,
                EntryKind::Blob | EntryKind::BlobExecutable => {
                    if declares(&name) {
                        self.file(id, &path)?;
                    }
                }
                EntryKind::Link => self.link(id, &path)?,
                // Passed over in silence, what it declares would be pruned.
                EntryKind::Commit => self.refuse(
                    &path,
                    "it is a submodule, another repository, which is not read: commit its files instead"
                        .into(),
                ),
            }
        }
        Ok(())
    }

    /// Reads a folder, as long as there is something left to spend on it.
    fn tree(&mut self, id: ObjectId) -> Result<gix::Tree<'a>, SourceError> {
        let (repository, request) = (self.repository, self.request);
        let fail = |error: gix::error::Error| request.failed(last_cause(&error));
        self.folders += repository.find_header(id).map_err(fail)?.size();
        if self.folders > MAX_FOLDERS {
            return Err(self.too_much("folders without end"));
        }
        repository.find_tree(id).map_err(fail)
    }

    fn too_much(&self, what: &str) -> SourceError {
        SourceError::Directory(format!(
            "there are {what} below {:?} of {}: set spec.git.dir to a smaller part of it",
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
        // An empty one has a path all the same.
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

    /// A link to a file of the repository is read, one hop; one that leaves it is refused.
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
            // Whatever the link is called, objects may be behind it.
            Some(_) => self.refuse(
                path,
                format!(
                    "the link to {target:?} leads to no file; links to folders and to links are not followed"
                ),
            ),
            None if declares(path) => self.refuse(path, format!("the link to {target:?} leads nowhere")),
            None => {}
        }
        Ok(())
    }

    /// What is at a path of the repository.
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
    // One of the names that kustomize looks for.
    if name == "Kustomization" {
        return true;
    }
    [".yaml", ".yml", ".json"]
        .iter()
        .any(|end| name.to_ascii_lowercase().ends_with(end))
}

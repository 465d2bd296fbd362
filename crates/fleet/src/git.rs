//! Git repositories, written without the `git` program: for the example of `writ up`, the tour and tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use gix::{
    ObjectId,
    objs::{
        Commit, Tree,
        tree::{Entry, EntryKind},
    },
};
use tempfile::TempDir;

/// One entry of a tree.
#[derive(Clone, Debug)]
pub enum Content {
    /// A file.
    File(Vec<u8>),
    /// A symbolic link.
    Link(String),
    /// Another repository, at a commit that this one does not have.
    Submodule,
    /// Nested folders: this many layers with ten entries each, the same ones, around an empty file of that name.
    Folders(u32, String),
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::File(text.as_bytes().to_vec())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::File(text.into_bytes())
    }
}

/// A bare repository, in a given folder or a temporary one.
pub struct Repository {
    folder: PathBuf,
    git: gix::Repository,
    /// Removes the folder at the end.
    _temporary: Option<TempDir>,
}

impl Repository {
    /// An empty repository.
    pub fn new() -> Result<Self> {
        let temporary = TempDir::new()?;
        let made = Self::at(temporary.path())?;
        Ok(Self {
            _temporary: Some(temporary),
            ..made
        })
    }

    /// The repository in this folder, created if there is none, and kept.
    pub fn at(folder: &Path) -> Result<Self> {
        let folder = std::path::absolute(folder)?;
        let repository = if folder.join("HEAD").exists() {
            gix::open(&folder).with_context(|| format!("open the repository {}", folder.display()))?
        } else {
            gix::init_bare(&folder).with_context(|| format!("make the repository {}", folder.display()))?
        };
        Ok(Self {
            folder,
            git: repository,
            _temporary: None,
        })
    }

    /// Whether it has this branch.
    pub fn has_branch(&self, branch: &str) -> bool {
        self.git.find_reference(&format!("refs/heads/{branch}")).is_ok()
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("file://{}", self.folder.display())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.folder
    }

    /// Makes `branch` point at a new commit with exactly these files; returns the commit.
    ///
    /// The commit has no parent: every one is a forced push.
    pub fn commit<C: Into<Content> + Clone>(&self, branch: &str, files: &[(&str, C)]) -> Result<String> {
        let mut root = Folder::default();
        for (path, content) in files {
            root.add(path, content.clone().into());
        }
        let tree = root.write(&self.git)?;
        let at = gix::date::Time::now_utc();
        let signature = gix::actor::Signature {
            name: "test".into(),
            email: "test@example.com".into(),
            time: at,
        };
        let commit = Commit {
            tree,
            parents: [].into_iter().collect(),
            author: signature.clone(),
            committer: signature,
            encoding: None,
            message: "change".into(),
            extra_headers: Vec::new(),
        };
        let id = self.git.write_object(&commit)?.detach();
        self.point(&format!("refs/heads/{branch}"), id)?;
        Ok(id.to_string())
    }

    /// Makes a tag.
    pub fn tag(&self, name: &str, commit: &str) -> Result<()> {
        self.point(
            &format!("refs/tags/{name}"),
            ObjectId::from_hex(commit.as_bytes())?,
        )
    }

    /// Removes a branch.
    pub fn remove_branch(&self, branch: &str) -> Result<()> {
        fs::remove_file(self.folder.join("refs/heads").join(branch)).context("remove the branch")
    }

    fn point(&self, name: &str, id: ObjectId) -> Result<()> {
        let file = self.folder.join(name);
        if let Some(folder) = file.parent() {
            fs::create_dir_all(folder)?;
        }
        // Written aside and renamed, as Git does: a reader sees the old or the new commit, never half a name.
        let lock = file.with_extension("new");
        fs::write(&lock, format!("{id}\n"))?;
        fs::rename(lock, file).context("move the branch")
    }
}

#[derive(Default)]
struct Folder {
    files: Vec<(String, Content)>,
    folders: std::collections::BTreeMap<String, Folder>,
}

impl Folder {
    fn add(&mut self, path: &str, content: Content) {
        match path.split_once('/') {
            Some((folder, rest)) => self
                .folders
                .entry(folder.to_owned())
                .or_default()
                .add(rest, content),
            None => self.files.push((path.to_owned(), content)),
        }
    }

    fn write(self, repository: &gix::Repository) -> Result<ObjectId> {
        let mut entries = Vec::new();
        for (name, content) in self.files {
            let (mode, oid) = match content {
                Content::File(data) => (EntryKind::Blob, repository.write_blob(data)?.detach()),
                Content::Link(target) => (EntryKind::Link, repository.write_blob(target)?.detach()),
                Content::Submodule => (EntryKind::Commit, ObjectId::from_hex(&[b'1'; 40])?),
                Content::Folders(layers, name) => (EntryKind::Tree, layered(repository, layers, name)?),
            };
            entries.push(Entry {
                mode: mode.into(),
                filename: name.into(),
                oid,
            });
        }
        for (name, folder) in self.folders {
            entries.push(Entry {
                mode: EntryKind::Tree.into(),
                filename: name.into(),
                oid: folder.write(repository)?,
            });
        }
        entries.sort();
        Ok(repository.write_object(&Tree { entries })?.detach())
    }
}

fn layered(repository: &gix::Repository, layers: u32, name: String) -> Result<ObjectId> {
    let mut inner = Entry {
        mode: EntryKind::Blob.into(),
        filename: name.into(),
        oid: repository.write_blob([])?.detach(),
    };
    let mut copies = 1;
    for _ in 0..=layers {
        let entries = (0..copies).map(|number| Entry {
            filename: if copies == 1 {
                inner.filename.clone()
            } else {
                format!("f{number}").into()
            },
            ..inner.clone()
        });
        let tree = Tree {
            entries: entries.collect(),
        };
        inner = Entry {
            mode: EntryKind::Tree.into(),
            filename: "f".into(),
            oid: repository.write_object(&tree)?.detach(),
        };
        copies = 10;
    }
    Ok(inner.oid)
}

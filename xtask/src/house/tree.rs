//! The sources of a crate as its module tree, without test code.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use super::syntax::{Import, Source, read};

/// A module's path inside its crate; the crate itself has an empty one.
pub type ModulePath = Vec<String>;

/// The sources of one crate.
#[derive(Debug, Default)]
pub struct Crate {
    /// Every module that is not a test.
    pub modules: BTreeMap<ModulePath, Module>,
    /// Every source file that is not a test: its path from the root of the repository, and what it says.
    pub files: BTreeMap<PathBuf, Source>,
    /// Files of declared modules that do not exist.
    pub missing: Vec<PathBuf>,
}

/// One module.
#[derive(Debug, Default)]
pub struct Module {
    /// Its file, from the root of the repository.
    pub file: PathBuf,
    /// Items defined in it.
    pub items: BTreeSet<String>,
    /// Names imported into it.
    pub imports: Vec<Import>,
    /// Paths in its code that begin with `super`, `self` or `crate`.
    pub paths: Vec<(Vec<String>, usize)>,
}

/// The sources of the crate in `folder`, which lies below `root`.
pub fn load(root: &Path, folder: &Path) -> Result<Crate> {
    let mut found = Crate::default();
    let sources = root.join(folder).join("src");
    for name in ["lib.rs", "main.rs"] {
        let file = sources.join(name);
        if file.is_file() {
            found.add(root, &file, &sources, &ModulePath::new())?;
        }
    }
    // Programs and build scripts are crates of their own, without modules here.
    let mut programs = vec![root.join(folder).join("build.rs")];
    if let Ok(entries) = fs::read_dir(sources.join("bin")) {
        programs.extend(entries.flatten().map(|entry| entry.path()));
    }
    for file in programs.iter().filter(|file| file.is_file()) {
        let source = read(&text(file)?);
        found.files.insert(relative(root, file), source);
    }
    Ok(found)
}

impl Crate {
    /// Adds a file as the module `path`, with the modules it declares, whose files are in `folder`.
    fn add(&mut self, root: &Path, file: &Path, folder: &Path, path: &ModulePath) -> Result<()> {
        let source = read(&text(file)?);
        if source.lines == 0 {
            return Ok(());
        }
        for scope in &source.scopes {
            let mut here = path.clone();
            here.extend(scope.inside.iter().cloned());
            let module = self.modules.entry(here.clone()).or_default();
            module.file = relative(root, file);
            module.items.extend(scope.items.iter().cloned());
            module.imports.extend(scope.imports.iter().cloned());
            module.paths.extend(scope.paths.iter().cloned());
            let folder = scope
                .inside
                .iter()
                .fold(folder.to_owned(), |folder, name| folder.join(name));
            for name in &scope.files {
                let (flat, nested) = (folder.join(format!("{name}.rs")), folder.join(name));
                let file = if flat.is_file() {
                    flat
                } else {
                    nested.join("mod.rs")
                };
                let mut path = here.clone();
                path.push(name.clone());
                if file.is_file() {
                    self.add(root, &file, &nested, &path)?;
                } else {
                    self.missing.push(relative(root, &file));
                }
            }
        }
        self.files.insert(relative(root, file), source);
        Ok(())
    }
}

fn text(file: &Path) -> Result<String> {
    fs::read_to_string(file).with_context(|| format!("read {}", file.display()))
}

fn relative(root: &Path, file: &Path) -> PathBuf {
    file.strip_prefix(root).unwrap_or(file).to_owned()
}

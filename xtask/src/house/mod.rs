//! Checks of the house: what a reader may rely on in every crate but the embedded API server.
//!
//! Limits are a smell, not a cap: exceptions stand in `xtask/house.toml`, each with its reason.

mod exceptions;
mod imports;
mod lexer;
mod manifests;
mod map;
mod places;
mod prose;
mod syntax;
mod tree;

use std::{
    collections::BTreeSet,
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use self::{
    exceptions::Exception,
    map::{Folder, Folders},
    tree::Crate,
};

/// A source file has at most so many lines.
const LINES: usize = 500;
/// A folder has at most so many source files beside each other.
const FILES: usize = 14;
/// A `controller.rs` has at most so many lines.
const CONTROLLER: usize = 220;
/// The embedded API server is a product of its own.
const NOT_COVERED: &str = "crates/apiserver";
/// One file per command: their names are what the commands are called.
const MANY_FILES: &str = "crates/cli/src/commands";

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    path: String,
    line: Option<usize>,
    what: String,
}

impl Finding {
    fn new(path: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            line: None,
            what: what.into(),
        }
    }

    fn at(path: &Path, line: usize, what: String) -> Self {
        Self {
            line: Some(line),
            ..Self::new(path.display().to_string(), what)
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.path, self.what),
            None => write!(f, "{}: {}", self.path, self.what),
        }
    }
}

/// Checks everything, and prints what is found.
pub fn check() -> Result<()> {
    let (root, house) = (root()?, House::load()?);
    let mut findings = house.findings(&root)?;
    let page = fs::read_to_string(root.join(map::PAGE)).with_context(|| format!("read {}", map::PAGE))?;
    findings.extend(map::check(&page, &house.map())?);
    findings.extend(places::check(&page, |path| {
        fs::read_to_string(root.join(path)).ok()
    }));
    for finding in &findings {
        println!("{finding}");
    }
    if findings.is_empty() {
        let (files, lines) = house.folders.values().fold((0, 0), |(files, lines), folder| {
            (files + folder.files, lines + folder.lines)
        });
        println!("the house is in order: {files} files, {lines} lines");
        return Ok(());
    }
    bail!("{} findings in the house", findings.len())
}

/// Writes the map into its page.
pub fn write_map() -> Result<()> {
    let path = root()?.join(map::PAGE);
    let page = fs::read_to_string(&path).with_context(|| format!("read {}", map::PAGE))?;
    fs::write(&path, map::replace(&page, &House::load()?.map())?)
        .with_context(|| format!("write {}", map::PAGE))
}

fn root() -> Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent()
        .map(Path::to_owned)
        .context("xtask has no parent folder")
}

/// All that is checked.
struct House {
    packages: Vec<manifests::Package>,
    crates: Vec<(String, Crate)>,
    folders: Folders,
    exceptions: Vec<Exception>,
}

impl House {
    fn load() -> Result<Self> {
        let root = root()?;
        let exceptions =
            fs::read_to_string(root.join("xtask/house.toml")).context("read xtask/house.toml")?;
        let packages = manifests::packages(&root)?;
        let mut crates = Vec::new();
        for package in packages.iter().filter(|package| package.folder != NOT_COVERED) {
            crates.push((
                package.folder.clone(),
                tree::load(&root, Path::new(&package.folder))?,
            ));
        }
        let mut folders = Folders::new();
        for (file, source) in crates.iter().flat_map(|(_, sources)| &sources.files) {
            let folder = file.parent().unwrap_or(file).display().to_string();
            let all: &mut Folder = folders.entry(folder).or_default();
            all.files += 1;
            all.lines += source.lines;
        }
        Ok(Self {
            packages,
            crates,
            folders,
            exceptions: exceptions::read(&exceptions)?,
        })
    }

    fn map(&self) -> String {
        map::render(&self.folders, &self.exceptions)
    }

    fn findings(&self, root: &Path) -> Result<Vec<Finding>> {
        let mut findings = manifests::check_direction(&self.packages);
        findings.extend(manifests::check_shipped(root)?);
        let mut limits = Limits::new(&self.exceptions);
        for (folder, sources) in &self.crates {
            let missing = sources.missing.iter().map(|file| file.display().to_string());
            findings.extend(
                missing.map(|file| Finding::new(file, "a module is declared, and its file is missing")),
            );
            for (file, source) in &sources.files {
                let path = file.display().to_string();
                limits.check(&path, "lines", LINES, source.lines, "lines");
                if file.file_name().is_some_and(|name| name == "controller.rs") {
                    limits.check(
                        &path,
                        "controller",
                        CONTROLLER,
                        source.lines,
                        "lines of a controller.rs",
                    );
                }
                findings.extend(prose::check(file, source));
            }
            for cycle in imports::cycles(sources) {
                let path = format!("{folder}/src/{}", cycle.parent.join("/"));
                let path = path.trim_end_matches('/');
                let what = format!("modules in one import cycle ({})", cycle.modules.join(", "));
                if limits.check(path, "cycle", 0, cycle.modules.len(), &what) {
                    limits.findings.extend(cycle.edges.iter().map(|edge| {
                        let (file, line) = &edge.place;
                        Finding::at(file, *line, format!("  {} imports {}", edge.from, edge.to))
                    }));
                }
            }
        }
        for (path, folder) in self.folders.iter().filter(|(path, _)| *path != MANY_FILES) {
            limits.check(
                path,
                "files",
                FILES,
                folder.files,
                "source files beside each other",
            );
        }
        findings.extend(limits.finish());
        Ok(findings)
    }
}

/// What goes beyond a limit, the exceptions considered.
struct Limits<'a> {
    exceptions: &'a [Exception],
    /// Exceptions that something needs, by their place in the list.
    needed: BTreeSet<usize>,
    findings: Vec<Finding>,
}

impl<'a> Limits<'a> {
    fn new(exceptions: &'a [Exception]) -> Self {
        Self {
            exceptions,
            needed: BTreeSet::new(),
            findings: Vec::new(),
        }
    }

    /// Compares one figure with its limit; returns true if it is beyond it, and beyond the limit of an exception.
    fn check(&mut self, path: &str, check: &str, limit: usize, found: usize, what: &str) -> bool {
        if found <= limit {
            return false;
        }
        let is = |exception: &Exception| exception.path == path && exception.check == check;
        let exception = self
            .exceptions
            .iter()
            .enumerate()
            .find(|(_, exception)| is(exception));
        let limit = exception.map_or(limit, |(index, exception)| {
            self.needed.insert(index);
            exception.limit
        });
        let beyond = found > limit;
        if beyond {
            self.findings.push(Finding::new(
                path,
                format!("{what}: limit {limit}, found {found}"),
            ));
        }
        beyond
    }

    /// The findings, and the exceptions that nothing needs any more.
    fn finish(mut self) -> Vec<Finding> {
        for (index, exception) in self.exceptions.iter().enumerate() {
            if !self.needed.contains(&index) {
                let what = format!(
                    "the exception of {} ({}) is no longer needed",
                    exception.path, exception.check
                );
                self.findings.push(Finding::new("xtask/house.toml", what));
            }
        }
        self.findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exception(limit: usize) -> Exception {
        Exception {
            path: "a.rs".into(),
            check: "lines".into(),
            limit,
            reason: "a table".into(),
        }
    }

    #[test]
    fn figure_beyond_its_limit_is_found() {
        let mut limits = Limits::new(&[]);
        assert!(!limits.check("a.rs", "lines", 500, 500, "lines"));
        assert!(limits.check("a.rs", "lines", 500, 501, "lines"));
        let shown: Vec<_> = limits.finish().iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["a.rs: lines: limit 500, found 501"]);
    }

    #[test]
    fn exception_raises_the_limit_of_one_place() {
        let exceptions = [exception(600)];
        let mut limits = Limits::new(&exceptions);
        assert!(!limits.check("a.rs", "lines", 500, 600, "lines"));
        assert!(limits.check("b.rs", "lines", 500, 600, "lines"));
        assert!(limits.check("a.rs", "files", 14, 600, "files"));
        assert_eq!(limits.finish().len(), 2);
    }

    #[test]
    fn exception_that_is_not_needed_is_found() {
        let exceptions = [exception(600)];
        let mut limits = Limits::new(&exceptions);
        assert!(!limits.check("a.rs", "lines", 500, 499, "lines"));
        let findings = limits.finish();
        assert_eq!(
            findings[0].what,
            "the exception of a.rs (lines) is no longer needed"
        );
    }

    #[test]
    fn finding_begins_with_its_place() {
        assert_eq!(
            Finding::at(Path::new("a.rs"), 7, "b".into()).to_string(),
            "a.rs:7: b"
        );
    }
}

//! Generated files are committed; CI fails when they differ from what the code would write.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, bail, ensure};

/// What is generated: the arguments of `writ` that write it, and the folder.
const GENERATED: [(&[&str], &str); 2] = [
    (&["crds", "--dir"], "deploy/crds"),
    (&["reference", "--dir"], "docs/reference"),
];

/// Writes the generated files in place.
pub fn write() -> Result<()> {
    for (args, folder) in GENERATED {
        run(args, Path::new(folder))?;
    }
    Ok(())
}

/// Writes them elsewhere and compares.
pub fn check() -> Result<()> {
    let scratch = std::env::temp_dir().join(format!("writ-generated-{}", std::process::id()));
    let mut different = Vec::new();
    for (args, folder) in GENERATED {
        let fresh = scratch.join(folder);
        run(args, &fresh)?;
        let (mut names, committed) = (files(&fresh)?, files(Path::new(folder))?);
        names.extend(committed.into_iter().filter(|name| !fresh.join(name).exists()));
        for name in names {
            if fs::read(fresh.join(&name)).ok() != fs::read(Path::new(folder).join(&name)).ok() {
                different.push(format!("{folder}/{}", name.display()));
            }
        }
    }
    fs::remove_dir_all(&scratch).context("remove the scratch folder")?;
    if !different.is_empty() {
        bail!(
            "generated files differ, run `cargo xtask generate` and commit: {}",
            different.join(", ")
        );
    }
    Ok(())
}

fn run(args: &[&str], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder)?;
    let status = Command::new(env!("CARGO"))
        .args(["run", "--quiet", "--package", "writ", "--"])
        .args(args)
        .arg(folder)
        .status()
        .context("run writ")?;
    ensure!(status.success(), "writ {} ended with {status}", args.join(" "));
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))? {
        names.push(PathBuf::from(entry?.file_name()));
    }
    names.sort();
    Ok(names)
}

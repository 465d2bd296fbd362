//! Builds OCM's `work` binary (agent, manager and webhook server) from the Go module proxy, once, and takes its
//! definitions out of the module: what the interop tests run writ against.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::control_plane::{cache_folder, downloaded, ensure_go, go, go_output, path, version};

/// Fills the cache folder; the second run finds everything there.
pub fn build() -> Result<()> {
    work()?;
    account_definitions()
}

/// The definitions of ManagedServiceAccounts, which have a module of their own.
fn account_definitions() -> Result<()> {
    let version = version("managed-serviceaccount")?;
    let target = cache_folder()?.join(format!("managed-serviceaccount-{version}"));
    if target.join("crds").is_dir() {
        println!("{} is there", target.display());
        return Ok(());
    }
    ensure_go("the definitions of ManagedServiceAccounts")?;
    let work = target.with_extension(format!("build-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("create {}", work.display()))?;
    let module = format!("open-cluster-management.io/managed-serviceaccount@v{version}");
    let copied = downloaded(&work, &module, "Dir").and_then(|folder| {
        let bases = Path::new(&folder).join("config/crd/bases");
        copy_yaml(&bases, &work.join("crds"), ".yaml")
    });
    if copied.is_ok() {
        fs::rename(&work, &target).with_context(|| format!("move {}", target.display()))?;
        println!("fetched {}", target.display());
        return Ok(());
    }
    fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    copied
}

fn work() -> Result<()> {
    let version = version("ocm")?;
    let target = cache_folder()?.join(format!("ocm-{version}"));
    let (binary, definitions) = (target.join("work"), target.join("crds"));
    if binary.is_file() && definitions.is_dir() {
        println!("{} is there", binary.display());
        return Ok(());
    }
    ensure_go("OCM's work binary")?;
    // Built beside the target and moved at the end, so that an interrupted build leaves nothing half done.
    let work = target.with_extension(format!("build-{}", std::process::id()));
    fs::create_dir_all(&work).with_context(|| format!("create {}", work.display()))?;
    fs::write(
        work.join("go.mod"),
        format!("module interop\n\ngo 1.26\n\nrequire open-cluster-management.io/ocm v{version}\n"),
    )?;
    fs::write(
        work.join("tools.go"),
        "//go:build tools\n\npackage interop\n\nimport _ \"open-cluster-management.io/ocm/cmd/work\"\n",
    )?;
    let built = go(&work, &["mod", "tidy", "-e"]).and_then(|()| {
        go(
            &work,
            &[
                "build",
                "-trimpath",
                "-ldflags=-s -w",
                "-o",
                &path(&work.join("work")),
                "open-cluster-management.io/ocm/cmd/work",
            ],
        )
    });
    let built = built.and_then(|()| copy_definitions(&work));
    if built.is_ok() {
        fs::create_dir_all(&target)?;
        if definitions.is_dir() {
            fs::remove_dir_all(&definitions)?;
        }
        fs::rename(work.join("crds"), &definitions)
            .with_context(|| format!("move {}", definitions.display()))?;
        fs::rename(work.join("work"), &binary).with_context(|| format!("move {}", binary.display()))?;
        println!("built {}", binary.display());
    }
    fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    built
}

/// Copies the definitions of OCM's own API module into `crds`.
fn copy_definitions(work: &Path) -> Result<()> {
    let module = go_output(
        work,
        &["list", "-m", "-f", "{{.Dir}}", "open-cluster-management.io/api"],
    )?;
    copy_yaml(Path::new(module.trim()), &work.join("crds"), ".crd.yaml")
}

/// Copies every file below `from` whose name ends so, into one folder.
fn copy_yaml(from: &Path, target: &Path, ending: &str) -> Result<()> {
    fs::create_dir_all(target)?;
    let mut folders = vec![PathBuf::from(from)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))? {
            let file = entry?.path();
            let name = path(&file);
            if file.is_dir() {
                folders.push(file);
            } else if name.ends_with(ending) {
                // The same kind may lie in the folders of several versions.
                let flat = name.trim_start_matches(&path(from)).replace('/', "_");
                let text = fs::read(&file).with_context(|| format!("read {name}"))?;
                fs::write(target.join(flat.trim_start_matches('_')), text)?;
            }
        }
    }
    Ok(())
}

//! Builds OCM's `work` binary (agent, manager and webhook server) from the Go module proxy, once: what the interop
//! tests run writ against.

use std::fs;

use anyhow::{Context, Result};

use crate::control_plane::{cache_folder, ensure_go, go, path, version};

/// Fills the cache folder; the second run finds everything there.
pub fn build() -> Result<()> {
    let version = version("ocm")?;
    let target = cache_folder()?.join(format!("ocm-{version}"));
    let binary = target.join("work");
    if binary.is_file() {
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
    if built.is_ok() {
        fs::create_dir_all(&target)?;
        fs::rename(work.join("work"), &binary).with_context(|| format!("move {}", binary.display()))?;
        println!("built {}", binary.display());
    }
    fs::remove_dir_all(&work).with_context(|| format!("remove {}", work.display()))?;
    built
}

//! OCM's `work` binary: where it is, and its three parts as processes.

use std::{
    fs,
    net::TcpListener,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use kube::config::Kubeconfig;
use writ_testenv::{assets, pinned_version, process::Guarded};

/// The binary, if `cargo xtask interop` built it.
pub fn binary() -> Option<PathBuf> {
    let binary = folder()?.join("work");
    binary.is_file().then_some(binary)
}

/// Upstream's own definitions, if `cargo xtask interop` fetched them: OCM's, and those of ManagedServiceAccounts.
pub fn definitions() -> Option<[PathBuf; 2]> {
    let accounts = format!(
        "managed-serviceaccount-{}",
        pinned_version("managed-serviceaccount")
    );
    let folders = [folder()?, assets::cache_folder()?.join(accounts)].map(|folder| folder.join("crds"));
    folders.iter().all(|folder| folder.is_dir()).then_some(folders)
}

fn folder() -> Option<PathBuf> {
    Some(assets::cache_folder()?.join(format!("ocm-{}", pinned_version("ocm"))))
}

/// A part of OCM that runs until it is dropped.
pub struct Part {
    _process: Guarded,
    log: PathBuf,
}

impl Part {
    /// Starts `work NAME ARGS`.
    pub fn start(folder: &Path, name: &str, args: &[String], env: &[(&str, &str)]) -> Result<Self> {
        let binary = binary().context("OCM's work binary is not built")?;
        let log = folder.join(format!("{name}.log"));
        let args: Vec<String> = [name.to_owned()]
            .into_iter()
            .chain(args.iter().cloned())
            .collect();
        let process = Guarded::spawn(&binary, args, env, &log).with_context(|| format!("start {name}"))?;
        Ok(Self {
            _process: process,
            log,
        })
    }

    /// The end of what it said, for the message of a failure.
    pub fn tail(&self) -> String {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        // What it says without end about a CA that no test control plane has.
        let telling = text
            .lines()
            .filter(|line| !line.contains("configmap_cafile_content"));
        let lines: Vec<_> = telling.rev().take(30).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

/// Writes a kubeconfig where a process can read it.
pub fn write(folder: &Path, name: &str, kubeconfig: &Kubeconfig) -> Result<String> {
    let file = folder.join(name);
    fs::write(&file, serde_json::to_vec(kubeconfig)?)?;
    Ok(file.display().to_string())
}

/// A port that is free now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

//! `writ crds`

use std::{
    fs,
    io::{self, Write},
    path::PathBuf,
    process::ExitCode,
};

use anyhow::{Context, Result};
use clap::Args;
use kube::ResourceExt;

/// Print every custom resource definition as YAML.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  writ crds | kubectl apply --server-side -f -")]
pub struct Crds {
    /// Write one file for each into this folder instead.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

impl Crds {
    pub fn run(self) -> Result<ExitCode> {
        let crds = writ_api::crds();
        if let Some(folder) = &self.dir {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
            for crd in &crds {
                let file = folder.join(format!("{}.yaml", crd.name_any()));
                fs::write(&file, writ_runtime::yaml::to_string(crd)?)
                    .with_context(|| format!("write {}", file.display()))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        let mut out = io::stdout().lock();
        for crd in &crds {
            writeln!(out, "---\n{}", writ_runtime::yaml::to_string(crd)?.trim_end())?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

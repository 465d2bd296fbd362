//! `writ reference`: the generated pages of docs/reference.

use std::{fs, path::PathBuf, process::ExitCode};

use anyhow::{Context, Result};
use clap::{Args, CommandFactory};

use crate::reference;

/// Write the references of the command line and of the API.
#[derive(Debug, Args)]
pub struct Reference {
    /// The folder.
    #[arg(long, value_name = "DIR")]
    dir: PathBuf,
}

impl Reference {
    pub fn run(self) -> Result<ExitCode> {
        fs::create_dir_all(&self.dir).with_context(|| format!("create {}", self.dir.display()))?;
        let pages = [
            ("cli.md", reference::cli(crate::Arguments::command())),
            ("api.md", reference::api(writ_api::crds())),
        ];
        for (name, text) in pages {
            let file = self.dir.join(name);
            fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

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

use crate::output::{self, Format};

/// Print every custom resource definition as YAML.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  writ crds | kubectl apply --server-side -f -\n  writ crds -o name")]
pub struct Crds {
    /// Write one file for each into this folder instead.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

impl Crds {
    pub fn run(self) -> Result<ExitCode> {
        let crds = writ_api::crds();
        if let Some(folder) = &self.dir {
            fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
            for crd in crds {
                let file = folder.join(format!("{}.yaml", crd.name_any()));
                fs::write(&file, writ_runtime::yaml::to_string(crd)?)
                    .with_context(|| format!("write {}", file.display()))?;
            }
            return Ok(ExitCode::SUCCESS);
        }
        match self.output {
            Format::Yaml => {
                let mut out = io::stdout().lock();
                for crd in crds {
                    writeln!(out, "---\n{}", writ_runtime::yaml::to_string(crd)?.trim_end())?;
                }
            }
            Format::Json => {
                let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": crds});
                output::value(Format::Json, &list, String::new)?;
            }
            Format::Name => output::names(
                crds.iter()
                    .map(|crd| format!("customresourcedefinition.apiextensions.k8s.io/{}", crd.name_any())),
            ),
            Format::Table => {
                let rows: Vec<_> = crds
                    .iter()
                    .map(|crd| {
                        let versions = crd.spec.versions.iter().filter(|version| version.served);
                        let versions: Vec<_> = versions.map(|version| version.name.as_str()).collect();
                        vec![
                            crd.spec.names.kind.clone(),
                            crd.spec.group.clone(),
                            versions.join(","),
                            crd.spec.scope.clone(),
                        ]
                    })
                    .collect();
                print!(
                    "{}",
                    output::table(&["KIND", "GROUP", "VERSIONS", "SCOPE"], &rows)
                );
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

//! `writ install`: what a real cluster needs to run a part of writ.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, Result};
use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, ValueEnum};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::{DynamicObject, Patch, PatchParams},
    runtime::wait::{await_condition, conditions},
};
use writ_fleet::{fleet::AGENT_NAMESPACE, manifests};

use crate::{
    connect::{self, Connection, explain},
    flags::cluster_name,
    output::{self, Format},
    terminal,
};

/// What `podman build -t writ:VERSION .` makes.
const IMAGE: &str = concat!("writ:", env!("CARGO_PKG_VERSION"));
/// Where the agent's Deployment looks for what it joins with; the name is OCM's.
const BOOTSTRAP_SECRET: &str = "bootstrap-hub-kubeconfig";

/// Print the manifests of a hub, an agent or the syncs, roles included; or apply them.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ install hub | kubectl apply --server-side -f -\n  writ install agent --cluster-name cluster1 --bootstrap-kubeconfig bootstrap.kubeconfig --context cluster1 --apply\n  writ install sync --image registry.example.com/writ:1.0 > sync.yaml"
)]
pub struct Install {
    /// Which part.
    #[arg(value_enum)]
    part: Part,
    /// The image to run.
    #[arg(long, value_name = "IMAGE", default_value = IMAGE, value_parser = image)]
    image: String,
    /// The name of the cluster on the hub, for the agent.
    #[arg(long, value_name = "NAME", required_if_eq("part", "agent"), value_parser = cluster_name)]
    cluster_name: Option<String>,
    /// What the agent joins the hub with, from `writ token bootstrap`; becomes a Secret beside the agent.
    #[arg(long, value_name = "FILE")]
    bootstrap_kubeconfig: Option<PathBuf>,
    /// Leave the custom resource definitions out.
    #[arg(long)]
    no_crds: bool,
    /// Apply to the cluster of the current context instead of printing.
    #[arg(long)]
    apply: bool,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Format::Yaml)]
    output: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Part {
    /// The controllers and the admission of a hub.
    Hub,
    /// The agent of a managed cluster.
    Agent,
    /// RootSyncs and RepoSyncs.
    Sync,
}

impl Part {
    fn name(self) -> &'static str {
        match self {
            Self::Hub => "hub",
            Self::Agent => "agent",
            Self::Sync => "sync",
        }
    }

    /// Whether this part needs a kind.
    fn needs(self, kind: &str) -> bool {
        let syncs = ["RootSync", "RepoSync", "ResourceGroup"];
        let spoke = ["AppliedManifestWork", "ClusterClaim", "NamespaceGrant"];
        match self {
            Self::Hub => !syncs.contains(&kind) && kind != "AppliedManifestWork" && kind != "NamespaceGrant",
            Self::Agent => spoke.contains(&kind),
            Self::Sync => syncs.contains(&kind),
        }
    }
}

impl Install {
    pub async fn run(self) -> Result<ExitCode> {
        let crds: Vec<_> = writ_api::crds()
            .iter()
            .filter(|crd| !self.no_crds && self.part.needs(&crd.spec.names.kind))
            .cloned()
            .collect();
        let texts = self.texts()?;
        if self.apply {
            let client = self.connection.client().await?;
            apply(&client, &crds, &texts).await?;
        }
        match self.output {
            // Applied already: names are enough.
            Format::Yaml if !self.apply => {
                for crd in &crds {
                    println!("---\n{}", writ_runtime::yaml::to_string(crd)?.trim_end());
                }
                for (_, text) in &texts {
                    println!("---\n{}", text.trim_end());
                }
            }
            Format::Json => {
                let mut items: Vec<_> = crds.iter().map(serde_json::to_value).collect::<Result<_, _>>()?;
                for (_, text) in &texts {
                    items.extend(writ_runtime::yaml::documents::<serde_json::Value>(text)?);
                }
                let list = serde_json::json!({"apiVersion": "v1", "kind": "List", "items": items});
                output::value(Format::Json, &list, String::new)?;
            }
            _ => {
                for crd in &crds {
                    println!("customresourcedefinition/{}", crd.name_any());
                }
                for (_, text) in &texts {
                    for object in writ_runtime::yaml::documents::<DynamicObject>(text)? {
                        let kind = object
                            .types
                            .as_ref()
                            .map_or("", |types| &types.kind)
                            .to_lowercase();
                        println!("{kind}/{}", object.name_any());
                    }
                }
            }
        }
        if self.part == Part::Agent && self.apply {
            let name = self.cluster_name.as_deref().unwrap_or_default();
            if self.bootstrap_kubeconfig.is_none() {
                eprintln!(
                    "the agent waits for the Secret {AGENT_NAMESPACE}/{BOOTSTRAP_SECRET}, unless it has joined before: run `writ token bootstrap` on the hub and this again with --bootstrap-kubeconfig"
                );
            }
            eprintln!("once the agent asks, `writ accept {name}` on the hub lets it in");
        }
        Ok(ExitCode::SUCCESS)
    }

    /// The files: accounts and roles first, then what runs.
    fn texts(&self) -> Result<Vec<(String, String)>> {
        let mut texts = manifests::folder(self.part.name());
        let name = format!("workloads/{}.yaml", self.part.name());
        let (file, workload) = manifests::folder("workloads")
            .into_iter()
            .find(|(file, _)| *file == name)
            .with_context(|| format!("deploy/{name} is not in this program"))?;
        let workload = workload
            .replace("image: IMAGE", &format!("image: {}", self.image))
            // The syncs themselves make Deployments, of the same program.
            .replace("args: [sync,", &format!("args: [sync, --image={},", self.image))
            .replace(
                "--cluster-name=CLUSTER",
                &format!(
                    "--cluster-name={}",
                    self.cluster_name.as_deref().unwrap_or_default()
                ),
            );
        if let Some(file) = &self.bootstrap_kubeconfig {
            texts.push((BOOTSTRAP_SECRET.into(), bootstrap(file)?));
        }
        texts.push((file, workload));
        Ok(texts)
    }
}

/// An image as registries name them; anything else would break the manifests.
fn image(text: &str) -> Result<String, String> {
    let legal = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    if text.is_empty() || !text.chars().all(legal) {
        return Err("an image is written REGISTRY/NAME:TAG or REGISTRY/NAME@DIGEST".into());
    }
    Ok(text.into())
}

/// The Secret with what the agent joins with.
fn bootstrap(file: &Path) -> Result<String> {
    let from = Connection {
        kubeconfig: Some(file.to_owned()),
        context: None,
    };
    let config = connect::self_contained(connect::minimal(from.read()?))?;
    let kubeconfig = writ_runtime::yaml::to_string(&config)?;
    let secret = serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": BOOTSTRAP_SECRET, "namespace": AGENT_NAMESPACE},
        "data": {"kubeconfig": STANDARD.encode(kubeconfig)},
    });
    Ok(writ_runtime::yaml::to_string(&secret)?)
}

async fn apply(client: &Client, crds: &[CustomResourceDefinition], texts: &[(String, String)]) -> Result<()> {
    let bar = terminal::spinner("installing");
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crds {
        let name = crd.name_any();
        bar.set_message(format!("installing {name}"));
        api.patch(&name, &PatchParams::apply("writ").force(), &Patch::Apply(crd))
            .await
            .map_err(|e| explain(&format!("install the definition {name}"), &e))?;
    }
    for crd in crds {
        await_condition(api.clone(), &crd.name_any(), conditions::is_crd_established())
            .await
            .with_context(|| format!("wait for the definition {}", crd.name_any()))?;
    }
    for (file, text) in texts {
        bar.set_message(format!("applying {file}"));
        manifests::apply(client, text)
            .await
            .with_context(|| format!("apply deploy/{file}"))?;
    }
    bar.finish_and_clear();
    Ok(())
}

//! The guide of the tour: explains and applies manifests, and shows what became of them.

use std::{
    collections::BTreeMap,
    io::{self, BufRead, IsTerminal, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;
use writ_api::cluster::ManagedCluster;
use writ_fleet::{Cluster, Fleet, manifests, wait};

use super::proof::{Answer, Claim, Expected};

/// Leads through the tour and counts the proofs.
pub struct Guide<'a> {
    /// The fleet that is shown.
    pub fleet: &'a Fleet,
    /// Whether to wait for the reader before each step.
    wait: bool,
    /// How many proofs held.
    proven: usize,
    /// How long a proof may take.
    patience: Duration,
    /// What a chapter wrote, to be removed at its end.
    written: Vec<(&'a Cluster, Written)>,
}

/// A change to undo.
enum Written {
    /// The objects of a manifest.
    Objects(String),
    /// Labels of a managed cluster.
    Labels {
        cluster: &'static str,
        keys: &'static [&'static str],
    },
}

impl<'a> Guide<'a> {
    /// A guide that waits for the reader before each step if standard input is a terminal.
    pub fn new(fleet: &'a Fleet, yes: bool, patience: Duration) -> Self {
        Self {
            fleet,
            wait: !yes && io::stdin().is_terminal(),
            proven: 0,
            patience,
            written: Vec::new(),
        }
    }

    /// How many proofs held.
    pub fn proven(&self) -> usize {
        self.proven
    }

    /// The first managed cluster.
    pub fn first(&self) -> Result<&'a Cluster> {
        self.fleet.cluster(1)
    }

    /// Announces the next step, and waits for the reader.
    pub async fn say(&self, text: &str) -> Result<()> {
        println!("\n  {}", text.replace('\n', "\n  "));
        if !self.wait {
            return Ok(());
        }
        print!("  [Enter] ");
        io::stdout().flush()?;
        tokio::task::spawn_blocking(|| io::stdin().lock().read_line(&mut String::new())).await??;
        Ok(())
    }

    /// Shows a manifest and applies it as the admin of a cluster.
    pub async fn write(&mut self, on: &'a Cluster, text: &str) -> Result<()> {
        let admin = on.admin().await?;
        self.write_as(on, &admin, "the admin", text).await
    }

    /// Shows a manifest and applies it as another user.
    pub async fn write_as(&mut self, on: &'a Cluster, client: &Client, who: &str, text: &str) -> Result<()> {
        let text = text.trim();
        println!("\n  {who} writes on {}:", on.name());
        for line in text.lines() {
            println!("    {line}");
        }
        println!();
        self.written.push((on, Written::Objects(text.to_owned())));
        manifests::apply(client, text).await
    }

    /// Removes what an earlier tour left behind, if it was killed or its terminal was closed.
    pub async fn start_clean(&mut self, texts: &[(&'a Cluster, &str)]) -> Result<()> {
        let objects = texts
            .iter()
            .map(|(on, text)| (*on, Written::Objects((*text).to_owned())));
        self.written.splice(0..0, objects);
        self.clean_up().await
    }

    /// Creates a namespace for the chapter; an existing one is kept at the end.
    pub async fn namespace(&mut self, on: &'a Cluster, name: &str) -> Result<()> {
        let namespaces: Api<Namespace> = Api::all(on.admin().await?);
        if namespaces.get_metadata_opt(name).await?.is_none() {
            let text = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
            self.written.push((on, Written::Objects(text)));
        }
        on.namespace(name).await
    }

    /// Remembers labels that the chapter is about to set on a managed cluster.
    pub fn will_label(&mut self, on: &'a Cluster, cluster: &'static str, keys: &'static [&'static str]) {
        self.written.push((on, Written::Labels { cluster, keys }));
    }

    /// Deletes the objects of a manifest as the admin of a cluster.
    pub async fn delete(&mut self, on: &'a Cluster, what: &str, text: &str) -> Result<()> {
        println!("\n  the admin deletes on {}: {what}\n", on.name());
        manifests::delete(&on.admin().await?, text).await
    }

    /// Waits until both the authorizer and a real request answer as expected.
    pub async fn prove<F, Fut>(&mut self, claim: &Claim<'_>, expected: Expected, request: F) -> Result<()>
    where
        F: Fn() -> Fut,
        Fut: Future<Output = Result<(), kube::Error>>,
    {
        let started = Instant::now();
        let text = format!("{} {} {}", claim.who, expected.verb(), claim.words);
        let answer: Result<Answer> = wait::until_within(self.patience, &text, || async {
            let answer = claim.ask(&request).await?;
            if answer.is(expected) {
                Ok(Some(answer))
            } else {
                anyhow::bail!("{answer}")
            }
        })
        .await;
        let answer = answer.with_context(|| format!("NOT PROVEN on {}: {text}", claim.cluster.name()))?;
        self.proven += 1;
        println!(
            "  proof {:>2} on {}: {text}\n           {answer} ({} ms)",
            self.proven,
            claim.cluster.name(),
            started.elapsed().as_millis()
        );
        Ok(())
    }

    /// Waits until something else can be seen, and shows it.
    pub async fn see<F, Fut>(&mut self, what: &str, ask: F) -> Result<()>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<Option<String>>>,
    {
        let started = Instant::now();
        let seen = wait::until_within(self.patience, what, ask)
            .await
            .with_context(|| format!("NOT SEEN: {what}"))?;
        println!("  seen: {what} ({} ms)", started.elapsed().as_millis());
        for line in seen.lines().filter(|line| !line.is_empty()) {
            println!("           {line}");
        }
        Ok(())
    }

    /// Undoes what the chapter wrote, the last first. Continues after a failure, and returns the first one.
    pub async fn clean_up(&mut self) -> Result<()> {
        let mut outcome = Ok(());
        while let Some((on, written)) = self.written.pop() {
            let undone = undo(on, &written).await;
            outcome = outcome.and(undone.with_context(|| format!("clean up on {}", on.name())));
        }
        outcome
    }
}

async fn undo(on: &Cluster, written: &Written) -> Result<()> {
    let admin = on.admin().await?;
    match written {
        Written::Objects(text) => manifests::delete_and_wait(&admin, text).await,
        Written::Labels { cluster, keys } => {
            let none: BTreeMap<&str, Option<&str>> = keys.iter().map(|key| (*key, None)).collect();
            let patch = Patch::Merge(json!({"metadata": {"labels": none}}));
            let clusters: Api<ManagedCluster> = Api::all(admin);
            clusters.patch(cluster, &PatchParams::default(), &patch).await?;
            Ok(())
        }
    }
}

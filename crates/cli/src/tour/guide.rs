//! The guide: says what is written, writes it, and shows what became of it.

use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Instant;

use anyhow::{Context, Result};
use kube::Client;
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
    /// What a chapter wrote, to be taken away at its end.
    written: Vec<(&'a Cluster, String)>,
}

impl<'a> Guide<'a> {
    /// A guide that waits for the reader, where there is one.
    pub fn new(fleet: &'a Fleet, yes: bool) -> Self {
        Self {
            fleet,
            wait: !yes && io::stdin().is_terminal(),
            proven: 0,
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

    /// Says what comes, and waits for the reader.
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

    /// Shows a manifest and applies it as somebody.
    pub async fn write_as(&mut self, on: &'a Cluster, client: &Client, who: &str, text: &str) -> Result<()> {
        let text = text.trim();
        println!("\n  {who} writes on {}:", on.name());
        for line in text.lines() {
            println!("    {line}");
        }
        println!();
        self.written.push((on, text.to_owned()));
        manifests::apply(client, text).await
    }

    /// Deletes what a manifest says, as the admin of a cluster.
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
        let answer: Result<Answer> = wait::until(&text, || async {
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

    /// Waits until something else that can be seen is so; the answer is shown.
    pub async fn see<F, Fut>(&mut self, what: &str, ask: F) -> Result<()>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<Option<String>>>,
    {
        let started = Instant::now();
        let seen = wait::until(what, ask)
            .await
            .with_context(|| format!("NOT SEEN: {what}"))?;
        println!("  seen: {what} ({} ms)", started.elapsed().as_millis());
        for line in seen.lines().filter(|line| !line.is_empty()) {
            println!("           {line}");
        }
        Ok(())
    }

    /// Takes away what the chapter wrote, the last first.
    pub async fn clean_up(&mut self) -> Result<()> {
        while let Some((on, text)) = self.written.pop() {
            manifests::delete(&on.admin().await?, &text).await?;
        }
        Ok(())
    }
}

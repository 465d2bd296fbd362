//! `writ placement explain`: why a placement chose what it chose.

use std::{fmt::Write, process::ExitCode};

use anyhow::Result;
use clap::{Args, Subcommand};
use serde::Serialize;
use writ_hub::placement::explain::{Explanation, explain};

use crate::{
    connect::Connection,
    output::{self, Format},
};

/// Ask about placements.
#[derive(Debug, Args)]
pub struct Placement {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Why does a placement choose these clusters, and why not the others?
    Explain(Explain),
}

/// Why does a placement choose these clusters, and why not the others?
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  writ placement explain web -n team-a\n\nThe scheduler is run anew with what you may read; nothing is written.\n\nExit code: 0, or 1 if the placement cannot be understood and keeps its decisions, 2 on an error."
)]
struct Explain {
    /// The placement.
    name: String,
    /// Its namespace; default: that of the context, else `default`.
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    sets: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    misconfigured: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    clusters: Vec<Row>,
}

#[derive(Serialize)]
struct Row {
    cluster: String,
    chosen: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    decision: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    score: Option<i64>,
    reason: String,
}

impl Placement {
    pub async fn run(self) -> Result<ExitCode> {
        match self.command {
            Command::Explain(command) => command.run().await,
        }
    }
}

impl Explain {
    async fn run(self) -> Result<ExitCode> {
        let client = self.connection.client().await?;
        let namespace = match self.namespace {
            Some(namespace) => namespace,
            None => self.connection.namespace()?.unwrap_or_else(|| "default".into()),
        };
        let explanation = explain(&client, &namespace, &self.name).await?;
        let answer = answer(&self.name, explanation);
        output::value(self.output, &answer, || match self.output {
            Format::Name => names(&answer),
            _ => text(&answer),
        })?;
        Ok(if answer.misconfigured.is_some() {
            ExitCode::FAILURE
        } else {
            ExitCode::SUCCESS
        })
    }
}

fn answer(placement: &str, explanation: Explanation) -> Answer {
    let outcome = explanation.outcome;
    let mut clusters: Vec<Row> = Vec::new();
    for object in &outcome.objects {
        for cluster in &object.clusters {
            let group = match object.group_name.as_str() {
                "" => String::new(),
                name => format!(", group {name}"),
            };
            clusters.push(Row {
                cluster: cluster.clone(),
                chosen: true,
                decision: Some(writ_hub::placement::plan::decision_name(placement, object.slot)),
                score: outcome.scores.get(cluster).copied(),
                reason: format!("chosen{group}"),
            });
        }
    }
    clusters.extend(outcome.left_out.into_iter().map(|(cluster, reason)| Row {
        score: outcome.scores.get(&cluster).copied(),
        cluster,
        chosen: false,
        decision: None,
        reason,
    }));
    clusters.sort_by(|a, b| (!a.chosen, &a.cluster).cmp(&(!b.chosen, &b.cluster)));
    Answer {
        sets: explanation.sets,
        misconfigured: explanation.misconfigured,
        note: explanation.note,
        clusters,
    }
}

fn names(answer: &Answer) -> String {
    let chosen = answer.clusters.iter().filter(|row| row.chosen);
    chosen.fold(String::new(), |mut text, row| {
        let _ = writeln!(
            text,
            "managedclusters.cluster.open-cluster-management.io/{}",
            row.cluster
        );
        text
    })
}

fn text(answer: &Answer) -> String {
    let mut text = String::new();
    if let Some(why) = &answer.misconfigured {
        let _ = writeln!(
            text,
            "the placement cannot be understood: {why}\nit keeps its decisions\n"
        );
    } else if answer.sets.is_empty() {
        let _ = writeln!(
            text,
            "no set is bound to the namespace, or none that the placement names: make a ManagedClusterSetBinding"
        );
    } else {
        let _ = writeln!(text, "chooses from the sets {}", answer.sets.join(", "));
    }
    if let Some(note) = &answer.note {
        let _ = writeln!(text, "{note}");
    }
    if !answer.clusters.is_empty() {
        let rows: Vec<_> = answer
            .clusters
            .iter()
            .map(|row| {
                vec![
                    row.cluster.clone(),
                    if row.chosen { "yes" } else { "no" }.into(),
                    row.score.map(|score| score.to_string()).unwrap_or_default(),
                    row.decision.clone().unwrap_or_default(),
                    row.reason.clone(),
                ]
            })
            .collect();
        text.push('\n');
        text.push_str(&output::table(
            &["CLUSTER", "CHOSEN", "SCORE", "DECISION", "REASON"],
            &rows,
        ));
    }
    text
}

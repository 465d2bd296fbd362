//! `writ accept`: an administrator lets a cluster join.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Result, anyhow};
use clap::Args;
use kube::{Client, config::AuthInfo};
use serde::Serialize;
use writ_agent::registration::identity;
use writ_controller::backoff::Backoff;
use writ_hub::registration::operator_actions::{self, Accepted, Pending};
use writ_process::private;

use crate::{
    connect::{self, Connection},
    output::{self, Format},
};

/// Accept a cluster, and approve the certificate request that its agent sent.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ accept cluster1\n  writ accept cluster1 --csr cluster1-x7k2p\n  writ accept cluster1 --hub-kubeconfig-out first.kubeconfig   # token driver: carry the file to the cluster\n\nIf several requests match, none is approved: they are listed, with the fingerprints of their keys.\n\nExit code: 0 once accepted, 1 if there are several requests to choose from, 2 on an error."
)]
pub struct Accept {
    /// The cluster.
    name: String,
    /// The certificate request to approve, where several match.
    #[arg(long, value_name = "NAME")]
    csr: Option<String>,
    /// On a hub with the token driver: write a hub kubeconfig with the first token of the cluster's agent here.
    #[arg(long, value_name = "FILE")]
    hub_kubeconfig_out: Option<PathBuf>,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

#[derive(Serialize)]
struct Answer {
    cluster: String,
    accepted: bool,
    requests: Vec<Request>,
}

#[derive(Serialize)]
struct Request {
    name: String,
    requester: String,
    fingerprint: String,
}

impl From<Pending> for Request {
    fn from(pending: Pending) -> Self {
        Self {
            name: pending.name,
            requester: pending.requester,
            fingerprint: pending.fingerprint,
        }
    }
}

/// How long the first token is valid: enough to carry it to the cluster.
const FIRST_TOKEN_SECONDS: i64 = 3600;

impl Accept {
    pub async fn run(self) -> Result<ExitCode> {
        let client = self.connection.client().await?;
        let accepted = operator_actions::accept(&client, &self.name, self.csr.as_deref()).await?;
        let (text, code, requests) = match accepted {
            // With the token driver the token lets the agent in; there is no certificate request.
            Accepted::Waiting | Accepted::Again(_) if self.hub_kubeconfig_out.is_some() => (
                format!("{} is accepted", self.name),
                ExitCode::SUCCESS,
                Vec::new(),
            ),
            Accepted::Waiting => (
                format!(
                    "{} is accepted; no certificate request waits: the first one that matches is approved",
                    self.name
                ),
                ExitCode::SUCCESS,
                Vec::new(),
            ),
            Accepted::Again(others) => {
                let names: Vec<_> = others.iter().map(|other| other.name.as_str()).collect();
                let waiting = if names.is_empty() {
                    String::new()
                } else {
                    format!("; not approved: {} (--csr lets one in)", names.join(", "))
                };
                (
                    format!(
                        "{} is accepted; the agent that was let in before is in again{waiting}",
                        self.name
                    ),
                    ExitCode::SUCCESS,
                    Vec::new(),
                )
            }
            Accepted::Chosen(chosen) => (
                format!(
                    "{} is accepted; the request {} of {} is chosen, key {}: the hub approves it, or an event of the \
                     cluster says why not",
                    self.name, chosen.name, chosen.requester, chosen.fingerprint
                ),
                ExitCode::SUCCESS,
                vec![chosen.into()],
            ),
            Accepted::Ambiguous(several) => (
                String::new(),
                ExitCode::FAILURE,
                several.into_iter().map(Request::from).collect(),
            ),
        };
        let answer = Answer {
            cluster: self.name.clone(),
            accepted: code == ExitCode::SUCCESS,
            requests,
        };
        output::value(self.output, &answer, || self.text(&answer, text))?;
        if !answer.accepted {
            eprintln!(
                "{} requests match {}; nothing was accepted: compare the keys with what the agent logs and pick one with --csr",
                answer.requests.len(),
                self.name
            );
        } else if let Some(file) = &self.hub_kubeconfig_out {
            self.hand_over(&client, file).await?;
        }
        Ok(code)
    }

    fn text(&self, answer: &Answer, text: String) -> String {
        if self.output == Format::Name {
            return format!("managedclusters.cluster.open-cluster-management.io/{}", self.name);
        }
        if answer.accepted {
            return text;
        }
        let rows: Vec<_> = answer
            .requests
            .iter()
            .map(|r| vec![r.name.clone(), r.requester.clone(), r.fingerprint.clone()])
            .collect();
        output::table(&["REQUEST", "REQUESTER", "KEY (SHA-256)"], &rows)
    }

    /// Writes a kubeconfig with the first token, once the hub has made the account.
    async fn hand_over(&self, client: &Client, file: &Path) -> Result<()> {
        let token = tokio::time::timeout(Duration::from_secs(30), async {
            let mut pauses = Backoff::new(Duration::from_millis(50), Duration::from_secs(2));
            loop {
                match operator_actions::first_token(client, &self.name, FIRST_TOKEN_SECONDS).await {
                    Err(error) if error.is_code(404) => {
                        operator_actions::until_account(client, &self.name, &mut pauses).await;
                    }
                    answer => return answer,
                }
            }
        })
        .await
        .map_err(|_| {
            anyhow!(
                "the hub made no account for {}; does it run with --registration-driver token?",
                self.name
            )
        })??;
        let auth = AuthInfo {
            token: Some(token.into()),
            ..AuthInfo::default()
        };
        let mine = connect::self_contained(self.connection.chosen()?)?;
        let config = identity::kubeconfig(&mine, auth)?;
        let text = writ_runtime::yaml::to_string(&config)?;
        private::file(file, &text)?;
        eprintln!(
            "the first hub kubeconfig of {} is in {}; carry it to the cluster within the hour and start there:\n  \
             writ agent --cluster-name {} --registration-driver token --bootstrap-kubeconfig FILE",
            self.name,
            file.display(),
            self.name
        );
        Ok(())
    }
}

//! `writ can-i`, `writ who-can`, `writ why`: rights on one cluster or on all.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::{Error, Result, bail};
use clap::Args;
use serde::Serialize;
use writ_authz::{Explanation, Identity, Index, Missing, ObjectName, Subject, SubjectKind};

use crate::{
    access_question::{self, Question, Resolved, Who, parse_subject},
    cluster_choice::{self, Choice},
    connect::Connection,
    output::{self, Format},
    terminal,
};

/// The flags of all three commands.
#[derive(Debug, Args)]
struct Asked {
    #[command(flatten)]
    question: Question,
    #[command(flatten)]
    choice: Choice,
    #[command(flatten)]
    connection: Connection,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t)]
    output: Format,
}

/// The question and the subject resolved on one cluster, and the RBAC of that cluster.
type Known = (Resolved, Identity, Index);

impl Asked {
    /// Reads the RBAC of every chosen cluster. Returns the results, and the error to end with if some clusters could not be
    /// read.
    async fn ask(&self, who: &Who) -> Result<(Vec<(String, Known)>, Option<Error>)> {
        if let (Who::Account(name), false) = (who, self.choice.is_named()) {
            bail!(
                "account:{name} is an account of managed clusters: name one with --cluster, or ask --all; where it lives it is serviceaccount:NAMESPACE/{name}"
            );
        }
        let chosen = cluster_choice::choose(&self.connection, &self.choice).await?;
        let bar = terminal::spinner(format!("reading the roles of {} clusters", chosen.len()));
        let answers = cluster_choice::ask(chosen, |cluster, client| async move {
            tokio::try_join!(
                self.question.resolve(&client),
                self.identity(who, &cluster),
                access_question::read_rbac(&client)
            )
        })
        .await;
        bar.finish_and_clear();
        answers
    }

    /// The identity of a subject on this cluster.
    async fn identity(&self, who: &Who, cluster: &str) -> Result<Identity> {
        match who {
            Who::Known(identity) => Ok(identity.clone()),
            Who::Account(name) => {
                let hub = self.connection.client().await?;
                let namespace = cluster_choice::account_namespace(&hub, cluster).await?;
                Ok(Identity::service_account(&namespace, name))
            }
        }
    }
}

/// May this subject do that?
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  writ can-i get pods --as user:alice --cluster cluster1 -n web\n  writ can-i delete nodes --as group:team-a --all\n\n-o name prints the clusters where it is allowed.\n\nExit code: 0 if allowed everywhere, 1 if refused anywhere, 2 on an error."
)]
pub struct CanI {
    #[command(flatten)]
    asked: Asked,
    /// Who: user:NAME, group:NAME, serviceaccount:NAMESPACE/NAME, or account:NAME for a ManagedServiceAccount.
    #[arg(long = "as", value_name = "SUBJECT")]
    subject: String,
}

#[derive(Serialize)]
struct Verdict {
    cluster: String,
    allowed: bool,
    because: String,
}

impl CanI {
    pub async fn run(self) -> Result<ExitCode> {
        let who = parse_subject(&self.subject)?;
        if self.asked.output == Format::Name && !self.asked.choice.is_named() {
            bail!(
                "-o name prints the managed clusters where it is allowed: name one with --cluster, or ask --all"
            );
        }
        let mut verdicts = Vec::new();
        let (answers, missing) = self.asked.ask(&who).await?;
        for (cluster, (question, who, index)) in answers {
            let explanation = explain(&index, &who, &question);
            verdicts.push(Verdict {
                cluster,
                allowed: explanation.allowed,
                because: summarize(&explanation),
            });
        }
        if self.asked.output == Format::Name {
            let allowed = verdicts.iter().filter(|v| v.allowed);
            output::names(allowed.map(|v| output::cluster(&v.cluster)));
            return missing.map_or_else(|| Ok(exit_code(&verdicts)), Err);
        }
        output::value(self.asked.output, &verdicts, || {
            let rows: Vec<_> = verdicts
                .iter()
                .map(|v| {
                    vec![
                        v.cluster.clone(),
                        if v.allowed { "yes" } else { "no" }.into(),
                        v.because.clone(),
                    ]
                })
                .collect();
            output::table(&["CLUSTER", "ALLOWED", "BECAUSE"], &rows)
        })?;
        missing.map_or_else(|| Ok(exit_code(&verdicts)), Err)
    }
}

/// The exit code: success only if it is allowed on every cluster, and at least one answered.
fn exit_code(verdicts: &[Verdict]) -> ExitCode {
    if !verdicts.is_empty() && verdicts.iter().all(|v| v.allowed) {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Who may do that?
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  writ who-can delete secrets -n web --cluster cluster1\n\n-o name prints the subjects, as --as of the other commands takes them."
)]
pub struct WhoCan {
    #[command(flatten)]
    asked: Asked,
}

#[derive(Serialize)]
struct HolderOn {
    cluster: String,
    #[serde(flatten)]
    holder: writ_authz::Holder,
}

impl WhoCan {
    pub async fn run(self) -> Result<ExitCode> {
        let mut holders = Vec::new();
        let any = Who::Known(Identity::user(""));
        let (answers, missing) = self.asked.ask(&any).await?;
        for (cluster, (question, _, index)) in answers {
            for mut holder in index.who_can(&question.attributes()) {
                holder.chains = deduplicate(holder.chains);
                let cluster = cluster.clone();
                holders.push(HolderOn { cluster, holder });
            }
        }
        if self.asked.output == Format::Name {
            let subjects: BTreeSet<String> = holders.iter().map(|on| as_flag(&on.holder.subject)).collect();
            output::names(subjects);
            return missing.map_or(Ok(ExitCode::SUCCESS), Err);
        }
        output::value(self.asked.output, &holders, || {
            let rows: Vec<_> = holders
                .iter()
                .flat_map(|on| {
                    on.holder.chains.iter().map(|chain| {
                        vec![
                            on.cluster.clone(),
                            on.holder.subject.to_string(),
                            chain.binding.to_string(),
                            chain.role.to_string(),
                        ]
                    })
                })
                .collect();
            output::table(&["CLUSTER", "SUBJECT", "THROUGH", "ROLE"], &rows)
        })?;
        missing.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

/// Why may, or may not, this subject do that?
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  writ why get secrets --as user:alice -n web --cluster cluster1\n\n-o name prints the bindings that allow it."
)]
pub struct Why {
    #[command(flatten)]
    asked: Asked,
    /// Who: user:NAME, group:NAME, serviceaccount:NAMESPACE/NAME, or account:NAME for a ManagedServiceAccount.
    #[arg(long = "as", value_name = "SUBJECT")]
    subject: String,
}

#[derive(Serialize)]
struct ExplanationOn {
    cluster: String,
    #[serde(flatten)]
    explanation: Explanation,
}

impl Why {
    pub async fn run(self) -> Result<ExitCode> {
        let who = parse_subject(&self.subject)?;
        let (mut all, mut text) = (Vec::new(), String::new());
        let (answers, missing) = self.asked.ask(&who).await?;
        for (cluster, (question, who, index)) in answers {
            let explanation = explain(&index, &who, &question);
            let verdict = if explanation.allowed { "may" } else { "may not" };
            text.extend([
                format!(
                    "On {cluster}, {} {verdict} {}.\n",
                    self.subject,
                    question.describe()
                ),
                explanation_text(&explanation),
            ]);
            all.push(ExplanationOn { cluster, explanation });
        }
        if self.asked.output == Format::Name {
            let chains = all.iter().flat_map(|on| &on.explanation.chains);
            output::names(
                chains
                    .map(|chain| binding_name(&chain.binding))
                    .collect::<BTreeSet<_>>(),
            );
            return missing.map_or(Ok(ExitCode::SUCCESS), Err);
        }
        output::value(self.asked.output, &all, || text)?;
        missing.map_or(Ok(ExitCode::SUCCESS), Err)
    }
}

/// The explanation without duplicate chains: a rule of an aggregated role is found in the role and in its source.
fn explain(index: &Index, who: &Identity, question: &Resolved) -> Explanation {
    let mut explanation = index.explain(&who.user, &who.groups, &question.attributes());
    explanation.chains = deduplicate(explanation.chains);
    explanation.nearest = deduplicate(explanation.nearest);
    explanation
}

fn deduplicate<T: PartialEq>(all: Vec<T>) -> Vec<T> {
    let mut kept = Vec::with_capacity(all.len());
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

/// A subject in the form of `--as`.
fn as_flag(subject: &Subject) -> String {
    match (subject.kind, &subject.namespace) {
        (SubjectKind::Group, _) => format!("group:{}", subject.name),
        (SubjectKind::ServiceAccount, Some(namespace)) => {
            format!("serviceaccount:{namespace}/{}", subject.name)
        }
        _ => format!("user:{}", subject.name),
    }
}

/// A binding as kubectl names it.
fn binding_name(binding: &ObjectName) -> String {
    let kind = binding.kind.to_string().to_lowercase();
    format!("{kind}.rbac.authorization.k8s.io/{}", binding.name)
}

/// One line for a table.
fn summarize(explanation: &Explanation) -> String {
    if explanation.superuser {
        return "member of system:masters".into();
    }
    match (explanation.chains.first(), explanation.nearest.first()) {
        (Some(chain), _) => format!("{} -> {}", chain.binding, chain.role),
        (None, Some(near)) => {
            format!(
                "nearest: {} lacks {}",
                near.chain.role,
                near.missing
                    .iter()
                    .map(missing_part)
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
        (None, None) => "no rule matches even in part".into(),
    }
}

/// The whole explanation, indented.
fn explanation_text(explanation: &Explanation) -> String {
    let mut lines = Vec::new();
    if explanation.superuser {
        lines.push("Members of system:masters may do everything.".to_owned());
    }
    for chain in &explanation.chains {
        lines.push(format!(
            "{} binds {} to {}",
            chain.binding, chain.subject, chain.role
        ));
        if let Some(source) = &chain.aggregated_from {
            lines.push(format!("  aggregated from {source}"));
        }
        lines.push(format!("  rule: {}", writ_authz::describe(&chain.rule)));
    }
    for near in &explanation.nearest {
        let missing: Vec<_> = near.missing.iter().map(missing_part).collect();
        lines.push(format!(
            "nearly: {} binds {} to {}",
            near.chain.binding, near.chain.subject, near.chain.role
        ));
        lines.push(format!("  rule: {}", writ_authz::describe(&near.chain.rule)));
        lines.push(format!("  lacks: {}", missing.join(", ")));
    }
    for dangling in &explanation.dangling {
        lines.push(format!(
            "{} refers to {}, which does not exist",
            dangling.binding, dangling.role
        ));
    }
    if !explanation.roles.is_empty() {
        let roles: Vec<_> = explanation.roles.iter().map(ToString::to_string).collect();
        lines.push(format!(
            "roles that would allow it, if bound: {}",
            roles.join(", ")
        ));
    }
    lines
        .iter()
        .map(|line| format!("  {line}\n"))
        .collect::<Vec<_>>()
        .concat()
}

fn missing_part(missing: &Missing) -> String {
    match missing {
        Missing::Verb(verb) => format!("the verb {verb}"),
        Missing::ApiGroup(group) if group.is_empty() => "the core API group".into(),
        Missing::ApiGroup(group) => format!("the API group {group}"),
        Missing::Resource(resource) => format!("the resource {resource}"),
        Missing::ResourceName(name) if name.is_empty() => "a rule without resourceNames".into(),
        Missing::ResourceName(name) => format!("the name {name}"),
        Missing::NonResourceUrl(path) => format!("the path {path}"),
        Missing::Namespace(namespace) if namespace.is_empty() => "a binding for all namespaces".into(),
        Missing::Namespace(namespace) => format!("a binding in namespace {namespace}"),
    }
}

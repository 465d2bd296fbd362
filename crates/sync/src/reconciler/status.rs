//! What a reconciler reports of its sync.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use serde_json::json;
use writ_api::configsync::{GitStatus, RenderingStatus, SourceStatus};
use writ_runtime::Error;

use super::problem::{self, Problem};
use crate::{
    model::Sync,
    report::{self, Wanted},
};

/// The field manager of a reconciler's reports.
pub const FIELD_MANAGER: &str = "writ-reconciler";

/// What is to be reported.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Which files of which repository.
    pub git: Option<GitStatus>,
    /// The commit that was read.
    pub source_commit: Option<String>,
    /// What is wrong with the repository or its files.
    pub source: Vec<Problem>,
    /// What the source needs that is not built.
    pub rendering: Vec<Problem>,
    /// The commit that was applied, errors or not.
    pub sync_commit: Option<String>,
    /// What is wrong with objects in the cluster.
    pub sync: Vec<Problem>,
    /// The commit that was applied without errors.
    pub synced: Option<String>,
    /// How many objects are managed.
    pub objects: usize,
    /// Whether a commit is being applied.
    pub busy: bool,
    /// How far the deletion is.
    pub finalizing: Option<Finalizing>,
}

/// How far a deletion is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finalizing {
    /// Objects are being deleted.
    Working,
    /// Some cannot be.
    Failed(Vec<Problem>),
    /// None is left.
    Done(String),
}

/// Writes the report if it differs from the last one.
pub async fn write(client: &Client, sync: &Sync, state: &State) -> Result<(), Error> {
    let now = Time(report::now());
    let old = &sync.status;
    let (errors, error_summary) = problem::report(&state.source);
    let source = SourceStatus {
        git_status: state.git.clone(),
        commit: state.source_commit.clone(),
        errors,
        error_summary,
        ..SourceStatus::default()
    };
    let (errors, error_summary) = problem::report(&state.rendering);
    let rendering = RenderingStatus {
        git_status: state.git.clone(),
        commit: state.source_commit.clone(),
        message: Some(if state.rendering.is_empty() {
            "Rendering skipped".into()
        } else {
            "Rendering failed".into()
        }),
        errors,
        error_summary,
        ..RenderingStatus::default()
    };
    let (errors, error_summary) = problem::report(&state.sync);
    let applied = SourceStatus {
        git_status: state.git.clone(),
        commit: state.sync_commit.clone(),
        errors,
        error_summary,
        object_count: i64::try_from(state.objects).ok(),
        ..SourceStatus::default()
    };
    // A part keeps its time as long as it says the same.
    let source = timed(source, old.source.as_ref(), &now);
    let applied = timed(applied, old.sync.as_ref(), &now);
    let mut rendering = rendering;
    rendering.last_update = match &old.rendering {
        Some(old)
            if RenderingStatus {
                last_update: None,
                ..old.clone()
            } == rendering =>
        {
            old.last_update.clone()
        }
        _ => Some(now.clone()),
    };
    let fields = json!({
        "source": source,
        "rendering": rendering,
        "sync": applied,
        "lastSyncedCommit": state.synced,
    });
    report::write(client, sync, FIELD_MANAGER, fields, &conditions(state)).await
}

fn timed(mut part: SourceStatus, old: Option<&SourceStatus>, now: &Time) -> SourceStatus {
    part.last_update = match old {
        Some(old)
            if SourceStatus {
                last_update: None,
                ..old.clone()
            } == part =>
        {
            old.last_update.clone()
        }
        _ => Some(now.clone()),
    };
    part
}

fn conditions(state: &State) -> Vec<Wanted> {
    let all: Vec<Problem> = [&state.source, &state.rendering, &state.sync]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    let refs: Vec<String> = [
        ("status.source.errors", &state.source),
        ("status.rendering.errors", &state.rendering),
        ("status.sync.errors", &state.sync),
    ]
    .into_iter()
    .filter(|(_, problems)| !problems.is_empty())
    .map(|(name, _)| name.to_owned())
    .collect();
    let (reason, message) = if !state.source.is_empty() && state.sync_commit.is_none() {
        ("Source", "the source cannot be read")
    } else if !state.rendering.is_empty() {
        ("Rendering", "the source cannot be rendered")
    } else if state.busy {
        ("Sync", "Syncing")
    } else if all.is_empty() {
        ("Sync", "Sync Completed")
    } else {
        ("Sync", "Sync Completed with errors")
    };
    let mut syncing = Wanted::new(
        "Syncing",
        if state.busy { "True" } else { "False" },
        reason,
        message,
    );
    syncing.commit.clone_from(&state.source_commit);
    if !refs.is_empty() {
        syncing.errors = problem::report(&all).1;
        syncing.error_refs = Some(refs);
    }
    let mut conditions = vec![syncing];
    match &state.finalizing {
        None => {}
        Some(Finalizing::Working) => conditions.push(Wanted::new(
            "ReconcilerFinalizing",
            "True",
            "ResourcesDeleting",
            "Deleting managed resource objects",
        )),
        Some(Finalizing::Failed(problems)) => {
            conditions.push(Wanted::new(
                "ReconcilerFinalizing",
                "True",
                "ResourcesDeleting",
                "Deleting managed resource objects",
            ));
            let text: Vec<&str> = problems.iter().map(|p| p.message.as_str()).collect();
            let mut failure = Wanted::new(
                "ReconcilerFinalizerFailure",
                "True",
                "DestroyFailure",
                &format!(
                    "Failed to delete managed resource objects: {}. Give the rights back, or set the annotation {}=true to leave these objects behind",
                    text.join("; "),
                    crate::model::ABANDON
                ),
            );
            failure.errors = problem::report(problems).1;
            conditions.push(failure);
        }
        Some(Finalizing::Done(message)) => {
            conditions.push(Wanted::new(
                "ReconcilerFinalizing",
                "False",
                report::FINALIZED,
                message,
            ));
        }
    }
    conditions
}

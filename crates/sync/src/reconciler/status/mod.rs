//! The status of a sync, as far as its reconciler reports it.

#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use serde_json::json;
use tokio::time::Instant;
use writ_api::configsync::{GitStatus, RenderingStatus, SourceStatus, SyncStatus};
use writ_controller::Error;

use super::{
    apply::REPORTER,
    desired::Desired,
    error::{self, Problem},
    fetch::SourceReader,
    observed::Observed,
    plan,
    session::Session,
};
use crate::{
    model::{ABANDON, Sync},
    sync_status::{self, Wanted},
};

/// What a reconciler reports.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The source.
    pub git: Option<GitStatus>,
    /// The commit that was read, and the problems of the repository or its files.
    pub source: Part,
    /// How far the source was read for the present spec.
    pub reading: Reading,
    /// Whether a commit was read since the process started. Until then the earlier report stands.
    pub is_known: bool,
    /// Why the source must be rendered first, which is not supported.
    pub rendering: Vec<Problem>,
    /// The commit that was applied, with or without problems, and the problems in the cluster.
    pub sync: Part,
    /// The commit that was last applied without problems.
    pub synced: Option<String>,
    /// The number of objects in the inventory.
    pub objects: usize,
    /// Whether a commit is being applied.
    pub is_busy: bool,
    /// How far the deletion of the sync is.
    pub finalizing: Option<Finalizing>,
}

/// A commit, and the problems with it.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// The commit.
    pub commit: Option<String>,
    /// The problems.
    pub problems: Vec<Problem>,
}

/// How far the source was read for the present spec.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reading {
    /// It is being read.
    InProgress,
    /// It could not be read.
    Failed,
    /// It was read.
    #[default]
    Done,
}

/// How far a deletion is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Finalizing {
    /// Objects are being removed.
    Working,
    /// Some objects cannot be removed.
    Failed(Vec<Problem>),
    /// No object is left to remove.
    Done(String),
}

impl Report {
    /// The report in a status. It stands until more is known.
    pub fn restored(status: &SyncStatus) -> Self {
        let (source, sync) = (status.source.as_ref(), status.sync.as_ref());
        let part = |part: Option<&SourceStatus>| Part {
            commit: part.and_then(|part| part.commit.clone()),
            problems: Vec::new(),
        };
        Self {
            git: source.and_then(|source| source.git_status.clone()),
            source: part(source),
            sync: part(sync),
            synced: status.last_synced_commit.clone(),
            objects: sync
                .and_then(|sync| sync.object_count)
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or_default(),
            ..Self::default()
        }
    }

    /// Reports what is known now, for this generation of the spec, and a `failure` of the whole pass.
    pub fn update(
        &mut self,
        source: &SourceReader,
        desired: &Desired,
        observed: &Observed,
        generation: i64,
        failure: Option<Problem>,
    ) {
        self.git.clone_from(&source.git);
        self.reading = match &source.problem {
            _ if !source.has_read(generation) => Reading::InProgress,
            Some(_) => Reading::Failed,
            None => Reading::Done,
        };
        self.source.problems = match &source.problem {
            Some(problem) => vec![problem.clone()],
            None => desired.problems.clone(),
        };
        if desired.commit.is_some() {
            self.is_known = true;
            self.source.commit.clone_from(&desired.commit);
        }
        self.rendering.clone_from(&desired.rendering);
        self.sync.problems = plan::problems(desired, observed, Instant::now());
        self.sync.problems.extend(failure);
        let is_clean =
            self.source.problems.is_empty() && self.rendering.is_empty() && self.sync.problems.is_empty();
        if is_clean && self.sync.commit.is_some() && self.sync.commit == desired.commit {
            self.synced.clone_from(&desired.commit);
        }
    }
}

/// Writes the report if it differs from the status. Returns true if the status is as reported; a failure is logged.
pub async fn send(session: &Session, observed: &mut Observed, report: &Report) -> bool {
    match write(session.client(), &session.sync, report).await {
        Ok(()) => true,
        Err(error) => {
            observed.is_unauthorized |= error.is_code(401);
            tracing::warn!(sync = %session.id(), %error, "the status was not written, will try again");
            false
        }
    }
}

async fn write(client: &Client, sync: &Sync, report: &Report) -> Result<(), Error> {
    let now = Time(sync_status::now());
    let old = &sync.status;
    let part = |part: &Part, object_count| {
        let (errors, error_summary) = error::list(&part.problems);
        SourceStatus {
            git_status: report.git.clone(),
            commit: part.commit.clone(),
            errors,
            error_summary,
            object_count,
            ..SourceStatus::default()
        }
    };
    let mut source = Some(timed(part(&report.source, None), old.source.as_ref(), &now));
    let applied = part(&report.sync, i64::try_from(report.objects).ok());
    let mut applied = Some(timed(applied, old.sync.as_ref(), &now));
    let mut rendering = Some(rendering(report, old.rendering.as_ref(), &now));
    if !report.is_known {
        rendering.clone_from(&old.rendering);
        applied.clone_from(&old.sync);
        if report.source.problems.is_empty() {
            source.clone_from(&old.source);
        }
    }
    let fields = json!({
        "source": source,
        "rendering": rendering,
        "sync": applied,
        "lastSyncedCommit": report.synced,
    });
    sync_status::write(client, sync, REPORTER, fields, &conditions(report, sync)).await
}

/// Sets the time of a part; it moves only when the part changes.
fn timed(mut part: SourceStatus, old: Option<&SourceStatus>, now: &Time) -> SourceStatus {
    let unchanged = old.filter(|old| {
        part == SourceStatus {
            last_update: None,
            ..(*old).clone()
        }
    });
    part.last_update = unchanged.map_or_else(|| Some(now.clone()), |old| old.last_update.clone());
    part
}

fn rendering(report: &Report, old: Option<&RenderingStatus>, now: &Time) -> RenderingStatus {
    let (errors, error_summary) = error::list(&report.rendering);
    let message = if report.rendering.is_empty() {
        "Rendering skipped"
    } else {
        "Rendering failed"
    };
    let mut part = RenderingStatus {
        git_status: report.git.clone(),
        commit: report.source.commit.clone(),
        message: Some(message.into()),
        errors,
        error_summary,
        ..RenderingStatus::default()
    };
    let unchanged = old.filter(|old| {
        part == RenderingStatus {
            last_update: None,
            ..(*old).clone()
        }
    });
    part.last_update = unchanged.map_or_else(|| Some(now.clone()), |old| old.last_update.clone());
    part
}

fn conditions(report: &Report, sync: &Sync) -> Vec<Wanted> {
    let deleting = || {
        Wanted::new(
            "ReconcilerFinalizing",
            "True",
            "ResourcesDeleting",
            "Deleting managed resource objects",
        )
    };
    let mut conditions = vec![syncing(report, sync)];
    match &report.finalizing {
        None => {}
        Some(Finalizing::Working) => conditions.push(deleting()),
        Some(Finalizing::Failed(problems)) => {
            let messages: Vec<&str> = problems.iter().map(|problem| problem.message.as_str()).collect();
            let mut failure = Wanted::new(
                "ReconcilerFinalizerFailure",
                "True",
                "DestroyFailure",
                &format!(
                    "Failed to delete managed resource objects: {}. Give the rights back, or set the annotation {ABANDON}=true to leave these objects behind",
                    messages.join("; ")
                ),
            );
            failure.errors = error::list(problems).1;
            conditions.extend([deleting(), failure]);
        }
        Some(Finalizing::Done(message)) => {
            conditions.push(Wanted::new(
                "ReconcilerFinalizing",
                "False",
                sync_status::FINALIZED,
                message,
            ));
        }
    }
    conditions
}

/// The condition `Syncing`: whether a commit is being applied, or the result.
fn syncing(report: &Report, sync: &Sync) -> Wanted {
    let mut reported = sync.status.conditions.iter().flatten();
    let reported = reported.find(|condition| condition.type_ == "Syncing");
    let stands = if report.finalizing.is_some() {
        !report.is_known
    } else {
        let observed = reported.and_then(|condition| condition.observed_generation);
        report.reading == Reading::InProgress && observed == Some(sync.generation())
    };
    if let Some(reported) = reported.filter(|_| stands) {
        return Wanted::like(reported);
    }
    let parts = [
        ("status.source.errors", &report.source.problems),
        ("status.rendering.errors", &report.rendering),
        ("status.sync.errors", &report.sync.problems),
    ];
    let all: Vec<Problem> = parts
        .iter()
        .flat_map(|(_, problems)| *problems)
        .cloned()
        .collect();
    let first = |problems: &[Problem]| problems.iter().min().map(Problem::text).unwrap_or_default();
    let (is_busy, reason, message) = match report.reading {
        Reading::InProgress => (true, "Source", "the source is being read".to_owned()),
        Reading::Failed => (false, "Source", first(&report.source.problems)),
        Reading::Done if !report.rendering.is_empty() => (false, "Rendering", first(&report.rendering)),
        Reading::Done if report.is_busy => (true, "Sync", "Syncing".to_owned()),
        Reading::Done if all.is_empty() => (false, "Sync", "Sync Completed".to_owned()),
        Reading::Done => (false, "Sync", "Sync Completed with errors".to_owned()),
    };
    let status = if is_busy { "True" } else { "False" };
    let mut syncing = Wanted::new("Syncing", status, reason, &message);
    syncing.commit.clone_from(&report.source.commit);
    if !all.is_empty() {
        syncing.errors = error::list(&all).1;
        let named = parts.iter().filter(|(_, problems)| !problems.is_empty());
        syncing.error_refs = Some(named.map(|(name, _)| (*name).to_owned()).collect());
    }
    syncing
}

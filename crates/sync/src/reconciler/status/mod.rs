//! What a reconciler reports of its sync.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Client;
use serde_json::json;
use writ_api::configsync::{GitStatus, RenderingStatus, SourceStatus, SyncStatus};
use writ_controller::Error;

use super::error::{self, Problem};
use crate::{
    model::Sync,
    sync_status::{self, Wanted},
};

/// The field manager of a reconciler's reports.
pub const FIELD_MANAGER: &str = "writ-reconciler";

/// What is to be reported.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each says one thing of its own, in any combination"
)]
pub struct State {
    /// Which files of which repository.
    pub git: Option<GitStatus>,
    /// The commit that was read.
    pub source_commit: Option<String>,
    /// What is wrong with the repository or its files.
    pub source: Vec<Problem>,
    /// Whether that is why nothing was read, and not what was read.
    pub unreadable: bool,
    /// Whether a commit was read since this process began; until then what it reported before stands.
    pub known: bool,
    /// Whether the source is still to be read for this spec.
    pub reading: bool,
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

impl State {
    /// What was reported before a restart stands until it is known to be otherwise.
    pub fn restored(status: &SyncStatus) -> Self {
        let (source, sync) = (status.source.as_ref(), status.sync.as_ref());
        Self {
            git: source.and_then(|source| source.git_status.clone()),
            source_commit: source.and_then(|source| source.commit.clone()),
            sync_commit: sync.and_then(|sync| sync.commit.clone()),
            synced: status.last_synced_commit.clone(),
            objects: sync
                .and_then(|sync| sync.object_count)
                .and_then(|count| usize::try_from(count).ok())
                .unwrap_or_default(),
            ..Self::default()
        }
    }
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
    let now = Time(sync_status::now());
    let old = &sync.status;
    let (errors, error_summary) = error::report(&state.source);
    let source = SourceStatus {
        git_status: state.git.clone(),
        commit: state.source_commit.clone(),
        errors,
        error_summary,
        ..SourceStatus::default()
    };
    let (errors, error_summary) = error::report(&state.rendering);
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
    let (errors, error_summary) = error::report(&state.sync);
    let applied = SourceStatus {
        git_status: state.git.clone(),
        commit: state.sync_commit.clone(),
        errors,
        error_summary,
        object_count: i64::try_from(state.objects).ok(),
        ..SourceStatus::default()
    };
    // A part keeps its time as long as it says the same.
    let mut source = Some(timed(source, old.source.as_ref(), &now));
    let mut applied = Some(timed(applied, old.sync.as_ref(), &now));
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
    let mut rendering = Some(rendering);
    if !state.known {
        rendering.clone_from(&old.rendering);
        applied.clone_from(&old.sync);
        if state.source.is_empty() {
            source.clone_from(&old.source);
        }
    }
    let fields = json!({
        "source": source,
        "rendering": rendering,
        "sync": applied,
        "lastSyncedCommit": state.synced,
    });
    sync_status::write(client, sync, FIELD_MANAGER, fields, &conditions(state, sync)).await
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

fn conditions(state: &State, sync: &Sync) -> Vec<Wanted> {
    let mut conditions = vec![syncing(state, sync)];
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
            failure.errors = error::report(problems).1;
            conditions.push(failure);
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

/// Whether a commit is being applied, or how that ended.
fn syncing(state: &State, sync: &Sync) -> Wanted {
    let reported = sync.status.conditions.iter().flatten();
    let reported = reported
        .into_iter()
        .find(|condition| condition.type_ == "Syncing");
    let stands = match &state.finalizing {
        Some(_) => !state.known,
        None => state.reading && reported.and_then(|c| c.observed_generation) == Some(sync.generation()),
    };
    if let Some(reported) = reported.filter(|_| stands) {
        return Wanted::like(reported);
    }
    let parts = [
        ("status.source.errors", &state.source),
        ("status.rendering.errors", &state.rendering),
        ("status.sync.errors", &state.sync),
    ];
    let all: Vec<Problem> = parts
        .iter()
        .flat_map(|(_, problems)| *problems)
        .cloned()
        .collect();
    let first = |problems: &[Problem]| problems.iter().min().map(Problem::text).unwrap_or_default();
    let (busy, reason, message) = if state.reading {
        (true, "Source", "the source is being read".to_owned())
    } else if state.unreadable {
        (false, "Source", first(&state.source))
    } else if !state.rendering.is_empty() {
        (false, "Rendering", first(&state.rendering))
    } else if state.busy {
        (true, "Sync", "Syncing".to_owned())
    } else if all.is_empty() {
        (false, "Sync", "Sync Completed".to_owned())
    } else {
        (false, "Sync", "Sync Completed with errors".to_owned())
    };
    let mut syncing = Wanted::new("Syncing", if busy { "True" } else { "False" }, reason, &message);
    syncing.commit.clone_from(&state.source_commit);
    if !all.is_empty() {
        syncing.errors = error::report(&all).1;
        let named = parts.iter().filter(|(_, problems)| !problems.is_empty());
        syncing.error_refs = Some(named.map(|(name, _)| (*name).to_owned()).collect());
    }
    syncing
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::model::{SyncId, SyncKind};

    fn sync(generation: i64, status: Value) -> Sync {
        Sync {
            id: SyncId::new(SyncKind::Root, "config-management-system", "a"),
            metadata: kube::api::ObjectMeta {
                generation: Some(generation),
                ..Default::default()
            },
            spec: Ok(writ_api::configsync::RootSyncSpec::default()),
            status: serde_json::from_value(status).unwrap(),
        }
    }

    #[test]
    fn done_is_said_of_what_was_read_only() {
        let reported = |generation| {
            let syncing = json!({ "type": "Syncing", "status": "False", "reason": "Sync", "message": "as before", "observedGeneration": generation });
            json!({ "conditions": [syncing] })
        };
        let problem = || vec![Problem::new(Code::InvalidSync, "no such source")];
        let base = || State {
            known: true,
            sync_commit: Some("c".into()),
            ..State::default()
        };
        let cases = [
            (
                "nothing is known",
                State {
                    reading: true,
                    ..State::default()
                },
                json!({}),
                "True Source the source is being read",
            ),
            (
                "a restart",
                State {
                    reading: true,
                    ..State::default()
                },
                reported(2),
                "False Sync as before",
            ),
            (
                "a new spec",
                State {
                    reading: true,
                    ..base()
                },
                reported(1),
                "True Source the source is being read",
            ),
            (
                "an old error and a new spec",
                State {
                    reading: true,
                    unreadable: true,
                    source: problem(),
                    ..base()
                },
                reported(1),
                "True Source the source is being read",
            ),
            (
                "synced, then unreadable",
                State {
                    unreadable: true,
                    source: problem(),
                    ..base()
                },
                reported(2),
                "False Source KNV1061: no such source",
            ),
            (
                "not rendered",
                State {
                    rendering: problem(),
                    ..base()
                },
                reported(2),
                "False Rendering KNV1061: no such source",
            ),
            (
                "one bad file",
                State {
                    source: problem(),
                    ..base()
                },
                reported(2),
                "False Sync Sync Completed with errors",
            ),
            (
                "applying",
                State { busy: true, ..base() },
                reported(2),
                "True Sync Syncing",
            ),
            ("done", base(), reported(2), "False Sync Sync Completed"),
            (
                "deleted after a restart",
                State {
                    finalizing: Some(Finalizing::Working),
                    ..State::default()
                },
                reported(1),
                "False Sync as before",
            ),
        ];
        for (case, state, status, wanted) in cases {
            let syncing = serde_json::to_value(syncing(&state, &sync(2, status)).condition()).unwrap();
            let text = |field: &str| syncing[field].as_str().unwrap_or_default().to_owned();
            let found = format!("{} {} {}", text("status"), text("reason"), text("message"));
            assert_eq!(found, wanted, "{case}");
        }
    }

    #[test]
    fn what_was_reported_is_taken_up_again() {
        let status = json!({
            "lastSyncedCommit": "old",
            "source": { "commit": "new", "gitStatus": { "repo": "r", "revision": "HEAD", "branch": "main", "dir": "" }},
            "sync": { "commit": "new", "objectCount": 7 },
        });
        let state = State::restored(&sync(1, status).status);
        assert_eq!(state.source_commit.as_deref(), Some("new"));
        assert_eq!((state.synced.as_deref(), state.objects), (Some("old"), 7));
        assert!(state.git.is_some() && !state.known);
    }
}

use serde_json::{Value, json};

use super::*;
use crate::{
    model::{SyncId, SyncKind},
    reconciler::error::Code,
};

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
fn syncing_is_completed_only_for_what_was_read() {
    let reported = |generation| {
        let syncing = json!({ "type": "Syncing", "status": "False", "reason": "Sync", "message": "as before", "observedGeneration": generation });
        json!({ "conditions": [syncing] })
    };
    let problem = || vec![Problem::new(Code::InvalidSync, "no such source")];
    let source = || Part {
        commit: None,
        problems: problem(),
    };
    let base = || Report {
        is_known: true,
        sync: Part {
            commit: Some("c".into()),
            problems: Vec::new(),
        },
        ..Report::default()
    };
    let cases = [
        (
            "nothing is known",
            Report {
                reading: Reading::InProgress,
                ..Report::default()
            },
            json!({}),
            "True Source the source is being read",
        ),
        (
            "a restart",
            Report {
                reading: Reading::InProgress,
                ..Report::default()
            },
            reported(2),
            "False Sync as before",
        ),
        (
            "a new spec",
            Report {
                reading: Reading::InProgress,
                ..base()
            },
            reported(1),
            "True Source the source is being read",
        ),
        (
            "an old error and a new spec",
            Report {
                reading: Reading::InProgress,
                source: source(),
                ..base()
            },
            reported(1),
            "True Source the source is being read",
        ),
        (
            "synced, then unreadable",
            Report {
                reading: Reading::Failed,
                source: source(),
                ..base()
            },
            reported(2),
            "False Source KNV1061: no such source",
        ),
        (
            "not rendered",
            Report {
                rendering: problem(),
                ..base()
            },
            reported(2),
            "False Rendering KNV1061: no such source",
        ),
        (
            "one bad file",
            Report {
                source: source(),
                ..base()
            },
            reported(2),
            "False Sync Sync Completed with errors",
        ),
        (
            "applying",
            Report {
                is_busy: true,
                ..base()
            },
            reported(2),
            "True Sync Syncing",
        ),
        ("done", base(), reported(2), "False Sync Sync Completed"),
        (
            "deleted after a restart",
            Report {
                finalizing: Some(Finalizing::Working),
                ..Report::default()
            },
            reported(1),
            "False Sync as before",
        ),
    ];
    for (case, report, status, expected) in cases {
        let syncing = serde_json::to_value(syncing(&report, &sync(2, status)).condition()).unwrap();
        let text = |field: &str| syncing[field].as_str().unwrap_or_default().to_owned();
        let found = format!("{} {} {}", text("status"), text("reason"), text("message"));
        assert_eq!(found, expected, "{case}");
    }
}

#[test]
fn report_is_restored_from_the_status() {
    let status = json!({
        "lastSyncedCommit": "old",
        "source": { "commit": "new", "gitStatus": { "repo": "r", "revision": "HEAD", "branch": "main", "dir": "" }},
        "sync": { "commit": "new", "objectCount": 7 },
    });
    let report = Report::restored(&sync(1, status).status);
    assert_eq!(report.source.commit.as_deref(), Some("new"));
    assert_eq!(report.sync.commit.as_deref(), Some("new"));
    assert_eq!((report.synced.as_deref(), report.objects), (Some("old"), 7));
    assert!(report.git.is_some() && !report.is_known);
}

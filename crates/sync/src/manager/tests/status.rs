//! What the manager reports.

use serde_json::{Value, json};
use writ_api::configsync::Condition;

use super::plan::{planned, root};
use crate::{
    DefaultRole,
    manager::{
        model::Bound,
        status::{Setup, status},
    },
    model::Sync,
};

/// The conditions as `type status reason`.
fn conditions(sync: &Sync, default: DefaultRole, setup: &Setup) -> Vec<String> {
    let plan = planned(sync, default);
    let bound = Bound {
        failures: vec![None; plan.roles.len()],
        ..Bound::default()
    };
    let (_, conditions) = status(sync, &plan, &bound, setup);
    conditions
        .iter()
        .map(|condition| {
            let Condition {
                type_,
                status,
                reason,
                ..
            } = condition.condition();
            let text = format!("{type_} {status} {}", reason.unwrap_or_default());
            text.trim().to_owned()
        })
        .collect()
}

fn roles(roles: &Value) -> Sync {
    root(json!({ "override": { "roleRefs": roles }}))
}

fn failed() -> Setup {
    Setup {
        failure: Some("no account".into()),
        unavailable: Some("no pod".into()),
    }
}

fn unavailable() -> Setup {
    Setup {
        failure: None,
        unavailable: Some("no pod".into()),
    }
}

#[test]
fn setup_decides_stalled_and_reconciling() {
    let admin = "RolesBound True ClusterAdmin";
    let valid = root(json!({}));
    let invalid = root(json!({ "sourceFormat": "tree" }));
    let mut deleting = root(json!({}));
    deleting.metadata.deletion_timestamp =
        Some(serde_json::from_value(json!("2020-01-01T00:00:00Z")).unwrap());
    for (why, sync, setup, expected) in [
        (
            "all is well",
            &valid,
            Setup::default(),
            ["Stalled False", "Reconciling False"],
        ),
        (
            "a failure",
            &valid,
            failed(),
            ["Stalled True Error", "Reconciling True Setup"],
        ),
        (
            "no pod",
            &valid,
            unavailable(),
            ["Stalled False", "Reconciling True Deployment"],
        ),
        (
            "invalid",
            &invalid,
            Setup::default(),
            ["Stalled True Validation", "Reconciling False"],
        ),
        (
            "invalid, and a failure",
            &invalid,
            failed(),
            ["Stalled True Validation", "Reconciling True Setup"],
        ),
        (
            "deleting",
            &deleting,
            failed(),
            ["Stalled True Error", "Reconciling True Teardown"],
        ),
    ] {
        let found = conditions(sync, DefaultRole::ClusterAdmin, &setup);
        assert_eq!(found, [expected[0], expected[1], admin], "{why}");
    }
}

#[test]
fn roles_bound_has_the_reason_of_the_first_unbound_role() {
    let view = json!({ "kind": "ClusterRole", "name": "view" });
    let gone = json!({ "kind": "ClusterRole", "name": "gone" });
    let away = json!({ "kind": "ClusterRole", "name": "view", "namespace": "away" });
    for (sync, default, expected) in [
        (root(json!({})), DefaultRole::ClusterAdmin, "True ClusterAdmin"),
        (root(json!({})), DefaultRole::None, "True NoRoles"),
        (roles(&json!([view])), DefaultRole::None, "True Bound"),
        (
            roles(&json!([view, gone])),
            DefaultRole::None,
            "False RoleMissing",
        ),
        (
            roles(&json!([away, view])),
            DefaultRole::None,
            "False WaitingForNamespace",
        ),
    ] {
        let found = conditions(&sync, default, &Setup::default());
        assert_eq!(found[2], format!("RolesBound {expected}"));
    }
}

#[test]
fn role_that_could_not_be_bound_is_reported_as_failed() {
    let sync = roles(&json!([{ "kind": "ClusterRole", "name": "view" }]));
    let plan = planned(&sync, DefaultRole::None);
    let bound = Bound {
        failures: vec![Some("forbidden".into())],
        ..Bound::default()
    };
    let (fields, _) = status(&sync, &plan, &bound, &Setup::default());
    let role = &fields["roleRefs"][0];
    assert_eq!(
        (&role["state"], &role["message"]),
        (&json!("Failed"), &json!("forbidden"))
    );
}

#[test]
fn fields_without_effect_are_reported_until_they_are_gone() {
    let mut sync = root(json!({ "override": { "statusMode": "enabled" }}));
    let last = |sync: &Sync| conditions(sync, DefaultRole::None, &Setup::default()).pop();
    assert_eq!(last(&sync).unwrap(), "FieldsIgnored True NotSupported");
    let status = json!({ "conditions": [{ "type": "FieldsIgnored", "status": "True" }]});
    sync.spec = root(json!({})).spec;
    assert_eq!(last(&sync).unwrap(), "RolesBound True NoRoles");
    sync.status = serde_json::from_value(status).unwrap();
    assert_eq!(last(&sync).unwrap(), "FieldsIgnored False");
}

use std::time::Duration;

use k8s_openapi::api::{core::v1::ServiceAccount, rbac::v1::ClusterRole};
use serde_json::{Value, json};
use writ_api::cluster::ManagedCluster;

use super::{
    model::{Delete, Level, Observation, Rights},
    plan::{agent_requests, cluster::plan, rights},
};
use crate::{
    names::reserved,
    options::{AgentRights, RegistrationDriver},
};

mod certificate_requests;

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn cluster(spec: Value, metadata: Value) -> ManagedCluster {
    let mut object = json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": "prod"},
        "spec": spec,
    });
    json_patch::merge(&mut object, &json!({"metadata": metadata}));
    serde_json::from_value(object).unwrap()
}

fn status(mut object: ManagedCluster, available: &str) -> ManagedCluster {
    object.status = serde_json::from_value(json!({"conditions": [
        {"type": "ManagedClusterConditionAvailable", "status": available, "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"},
        {"type": "HubAcceptedManagedCluster", "status": "True", "reason": "R", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"},
    ]}))
    .unwrap();
    object
}

#[test]
fn silent_lease_makes_a_cluster_unknown_and_tainted() {
    let accepted = cluster(
        json!({"hubAcceptsClient": true, "leaseDurationSeconds": 10}),
        json!({}),
    );
    let silent = |seconds| Observation {
        silent_for: Some(Duration::from_secs(seconds)),
        ..Observation::default()
    };
    let keys = |taints: Option<Vec<writ_api::cluster::managed_cluster::Taint>>| {
        taints.map(|t| {
            t.iter()
                .map(|t| t.key.rsplit('/').next().unwrap().to_owned())
                .collect::<Vec<_>>()
        })
    };
    // A new cluster is unreachable until its agent reports.
    let new = plan(&accepted, &silent(0));
    assert_eq!(keys(new.taints), Some(vec!["unreachable".into()]));
    assert_eq!(new.again_in, Some(Duration::from_secs(50)));
    assert!(new.home && new.finalizer && new.level == Level::Member);

    let up = plan(&status(accepted.clone(), "True"), &silent(49));
    assert_eq!((keys(up.taints), up.conditions.len()), (None, 1));
    let late = plan(&status(accepted.clone(), "True"), &silent(50));
    assert_eq!(late.conditions[1].reason, "ManagedClusterLeaseUpdateStopped");
    assert_eq!(keys(late.taints), Some(vec!["unreachable".into()]));
    let broken = plan(&status(accepted.clone(), "False"), &silent(1));
    assert_eq!(keys(broken.taints), Some(vec!["unavailable".into()]));

    let mut tainted = status(accepted, "True");
    tainted.spec.taints = serde_json::from_value(json!([
        {"key": "cluster.open-cluster-management.io/unreachable", "effect": "NoSelect"},
        {"key": "theirs", "effect": "NoSelect"},
    ]))
    .unwrap();
    assert_eq!(
        keys(plan(&tainted, &silent(1)).taints),
        Some(vec!["theirs".into()])
    );
    // A clock that is off by five times a lease's duration is out of sync, as upstream; without a renewal nothing is reported.
    for (off, reason) in [
        (49, "ManagedClusterClockSynced"),
        (50, "ManagedClusterClockOutOfSync"),
    ] {
        let observed = Observation {
            clock_off: Some(Duration::from_secs(off)),
            ..silent(1)
        };
        let said = plan(&tainted, &observed).conditions;
        let said = said
            .iter()
            .find(|c| c.type_ == "ManagedClusterConditionClockSynced");
        assert_eq!(said.unwrap().reason, reason);
    }
    // Zero means the default.
    let zero = cluster(
        json!({"hubAcceptsClient": true, "leaseDurationSeconds": 0}),
        json!({}),
    );
    assert_eq!(plan(&zero, &silent(0)).again_in, Some(Duration::from_mins(5)));
}

#[test]
fn denied_cluster_loses_all_rights_and_deleted_one_keeps_its_works() {
    let denied = status(cluster(json!({"hubAcceptsClient": false}), json!({})), "True");
    let planned = plan(&denied, &Observation::default());
    assert_eq!(planned.level, Level::Nothing);
    assert_eq!(planned.conditions[0].reason, "HubClusterAdminDenied");
    let new = cluster(json!({"hubAcceptsClient": false}), json!({}));
    assert!(plan(&new, &Observation::default()).conditions.is_empty());

    let leaving = |annotations: Value| {
        cluster(
            json!({"hubAcceptsClient": true}),
            json!({"deletionTimestamp": "2026-01-01T00:00:00Z", "annotations": annotations}),
        )
    };
    let force = json!({"writ.dev/force-detach": "true"});
    for (annotations, works, addons, level, delete, finalizer) in [
        (json!({}), 2, 1, Level::Leaving, Delete::AddOns, true),
        (json!({}), 2, 0, Level::Leaving, Delete::Works, true),
        (json!({}), 0, 0, Level::Nothing, Delete::Nothing, false),
        (force.clone(), 2, 1, Level::Nothing, Delete::WorksByForce, true),
        (force, 0, 0, Level::Nothing, Delete::Nothing, false),
    ] {
        let observed = Observation {
            works,
            addons,
            ..Observation::default()
        };
        let planned = plan(&leaving(annotations), &observed);
        assert_eq!(
            (planned.level, planned.delete, planned.finalizer),
            (level, delete, finalizer)
        );
    }
}

#[test]
fn accepted_agent_gets_the_rights_of_its_level() {
    let (minimal, ocm) = (AgentRights::Minimal, AgentRights::Ocm);
    let by_certificate = |level, kind| rights::of("prod", level, kind, RegistrationDriver::Csr, None);
    let verbs = |kind| {
        let rights = by_certificate(Level::Member, kind);
        rights.roles[0].rules.as_ref().unwrap()[0].verbs.clone()
    };
    assert_eq!(verbs(minimal), ["get", "list", "watch"]);
    assert_eq!(verbs(ocm), ["get", "list", "watch", "update"]);
    let leaving = by_certificate(Level::Leaving, minimal);
    assert_eq!(leaving.bindings.len(), 1);
    assert_eq!(
        leaving.bindings[0].role_ref.name,
        "open-cluster-management:managedcluster:work"
    );
    let token = rights::of("prod", Level::Member, minimal, RegistrationDriver::Token, None);
    assert!(token.account.is_some());
    for binding in &token.bindings {
        assert_eq!(binding.subjects.as_ref().unwrap()[0].kind, "ServiceAccount");
    }
    assert_eq!(by_certificate(Level::Nothing, ocm), Rights::default());
}

/// Once it is known who was let in, the rights are that user's alone: a certificate of a former agent has the same groups.
#[test]
fn known_agent_gets_the_rights_instead_of_its_group() {
    let user = "system:open-cluster-management:prod:abc";
    let known = |user: &str| cluster(json!({}), json!({"annotations": {"writ.dev/agent-user": user}}));
    assert_eq!(agent_requests::agent_user(&known(user)), Some(user));
    for other in [
        "",
        "kubernetes-admin",
        "system:open-cluster-management:prod:",
        "system:open-cluster-management:prod",
        "system:open-cluster-management:prod2:abc",
        "system:open-cluster-management:prod:abc:def",
    ] {
        assert_eq!(agent_requests::agent_user(&known(other)), None, "{other}");
    }
    assert_eq!(agent_requests::agent_user(&cluster(json!({}), json!({}))), None);
    for (agent, expected) in [
        (Some(user), vec![("User", user)]),
        (
            None,
            vec![
                ("Group", "system:open-cluster-management:prod"),
                ("Group", "open-cluster-management:prod"),
            ],
        ),
    ] {
        let csr = RegistrationDriver::Csr;
        let rights = rights::of("prod", Level::Member, AgentRights::Ocm, csr, agent);
        let cluster_wide = rights
            .cluster_bindings
            .into_iter()
            .map(|binding| binding.subjects);
        let all = cluster_wide.chain(rights.bindings.into_iter().map(|binding| binding.subjects));
        for subjects in all {
            let subjects = subjects.unwrap();
            let found: Vec<_> = subjects
                .iter()
                .map(|s| (s.kind.as_str(), s.name.as_str()))
                .collect();
            assert_eq!(found, expected);
        }
    }
}

/// The role of a cluster never takes the place of a role that all clusters share, nor of a foreign one.
#[test]
fn own_role_of_a_cluster_never_has_a_shared_name() {
    let shipped = include_str!("../../../../deploy/hub/agents.yaml");
    let roles: Vec<ClusterRole> = writ_runtime::yaml::documents::<Value>(shipped)
        .unwrap()
        .into_iter()
        .filter(|object| object["kind"] == "ClusterRole")
        .map(|role| serde_json::from_value(role).unwrap())
        .collect();
    let shared: Vec<_> = roles
        .iter()
        .filter_map(|role| {
            let name = role.metadata.name.as_deref()?;
            name.strip_prefix("open-cluster-management:managedcluster:")
        })
        .collect();
    assert_eq!(
        shared.len(),
        crate::agent_identity::SHARED_ROLES.len(),
        "{shared:?}"
    );
    for name in shared {
        assert!(reserved(name).is_some(), "{name}");
        let mut accepted = cluster(json!({"hubAcceptsClient": true}), json!({}));
        accepted.metadata.name = Some(name.into());
        assert_eq!(plan(&accepted, &Observation::default()).level, Level::Nothing);
    }
    let role = |metadata: Value, names: Value| -> ClusterRole {
        let rule = json!({"apiGroups": ["g"], "resources": ["managedclusters"], "resourceNames": names, "verbs": ["get"]});
        serde_json::from_value(json!({"metadata": metadata, "rules": [rule]})).unwrap()
    };
    let label = |cluster: &str| json!({"labels": {"open-cluster-management.io/cluster-name": cluster}});
    for (there, expected) in [
        (role(label("prod"), json!(null)), true),
        // As older hubs of upstream leave it.
        (role(json!({}), json!(["prod"])), true),
        (role(label("prod1"), json!(["prod"])), false),
        (role(json!({}), json!(["prod", "prod1"])), false),
        (role(json!({}), json!(null)), false),
    ] {
        assert_eq!(rights::is_for(&there, "prod"), expected, "{there:?}");
    }
}

#[test]
fn account_of_a_former_cluster_is_not_reused() {
    let prod = cluster(
        json!({"hubAcceptsClient": true}),
        json!({"uid": "u2", "creationTimestamp": "2026-01-02T00:00:00Z"}),
    );
    let account = |uid: Option<&str>, created: &str| -> ServiceAccount {
        let annotations = uid.map(|uid| json!({"writ.dev/cluster-uid": uid}));
        serde_json::from_value(
            json!({"metadata": {"annotations": annotations, "creationTimestamp": created}}),
        )
        .unwrap()
    };
    for (uid, created, own) in [
        (Some("u2"), "2026-01-02T00:00:00Z", true),
        (Some("u1"), "2026-01-02T00:00:01Z", false),
        (Some(""), "2026-01-02T00:00:01Z", false),
        (None, "2026-01-02T00:00:01Z", true),
        (None, "2026-01-02T00:00:00Z", false),
        (None, "2026-01-01T00:00:00Z", false),
    ] {
        let account = account(uid, created);
        assert_eq!(rights::is_account_of(&account, &prod), own, "{uid:?} {created}");
    }
}

//! What the agent of a cluster may do on the hub.
//!
//! The rules that are the same for every cluster are ClusterRoles that `deploy/hub` ships; the hub may bind those
//! and needs to hold none of their rights. Only the rule that names the cluster is written here.

use std::collections::BTreeMap;

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding, RoleRef, Subject},
};
use kube::{ResourceExt, api::ObjectMeta};
use writ_api::cluster::{CLUSTER_NAME_LABEL, GROUP, ManagedCluster};

use crate::{
    agent_identity::AGENT_ACCOUNT,
    csr::cluster_group,
    options::{AgentRights, RegistrationDriver},
    registration::model::{CLUSTER_UID_ANNOTATION, LABEL, Level, Rights},
};

/// How the names of the roles and bindings of agents begin. A cluster's own role ends in its name, those that all
/// clusters share in one of [`SHARED_ROLES`](crate::agent_identity::SHARED_ROLES).
const PREFIX: &str = "open-cluster-management:managedcluster:";

/// Every name that a cluster-wide object of ours for this cluster can have.
pub fn names(cluster: &str) -> [String; 2] {
    let own = format!("{PREFIX}{cluster}");
    [format!("{own}:certificates"), own]
}

/// Returns true if a role that has the name of a cluster's own was made for that cluster: by this controller, or by
/// upstream's, whose older versions put no label on it.
pub fn is_for(role: &ClusterRole, cluster: &str) -> bool {
    let names_it = |rule: &PolicyRule| rule.resource_names.as_ref().is_some_and(|n| *n == [cluster]);
    role.labels().get(CLUSTER_NAME_LABEL).map_or_else(
        || role.rules.iter().flatten().any(names_it),
        |labelled| labelled == cluster,
    )
}

/// Returns true if the account of an agent was made for this very cluster, not for a former one of its name. Without the
/// annotation, an account that is younger than the cluster was.
pub fn is_account_of(account: &ServiceAccount, cluster: &ManagedCluster) -> bool {
    account.annotations().get(CLUSTER_UID_ANNOTATION).map_or_else(
        || account.metadata.creation_timestamp > cluster.metadata.creation_timestamp,
        |uid| Some(uid) == cluster.metadata.uid.as_ref(),
    )
}

/// The objects that grant the agent of `cluster` this level: to the user `agent`, or, while that is not known, to the
/// cluster's group.
pub fn of(
    cluster: &str,
    level: Level,
    kind: AgentRights,
    driver: RegistrationDriver,
    agent: Option<&str>,
) -> Rights {
    if level == Level::Nothing {
        return Rights::default();
    }
    let subjects = subjects(cluster, driver, agent);
    let own = format!("{PREFIX}{cluster}");
    let mut verbs = vec!["get", "list", "watch"];
    if kind == AgentRights::Ocm {
        verbs.push("update");
    }
    let rule = |resource: &str, verbs: &[&str]| PolicyRule {
        api_groups: Some(vec![GROUP.into()]),
        resources: Some(vec![resource.into()]),
        resource_names: Some(vec![cluster.into()]),
        verbs: verbs.iter().map(|v| (*v).to_owned()).collect(),
        ..PolicyRule::default()
    };
    let about_itself = ClusterRole {
        metadata: meta(&own, None, cluster),
        rules: Some(vec![
            rule("managedclusters", &verbs),
            rule("managedclusters/status", &["patch", "update"]),
        ]),
        aggregation_rule: None,
    };
    let cluster_binding = |name: &str, role: &str| ClusterRoleBinding {
        metadata: meta(name, None, cluster),
        role_ref: role_ref(role),
        subjects: Some(subjects.clone()),
    };
    let binding = |part: &str| RoleBinding {
        metadata: meta(&format!("{own}:{part}"), Some(cluster), cluster),
        role_ref: role_ref(&format!("{PREFIX}{part}")),
        subjects: Some(subjects.clone()),
    };
    let mut rights = Rights {
        roles: vec![about_itself],
        cluster_bindings: vec![cluster_binding(&own, &own)],
        bindings: vec![binding("work")],
        account: None,
    };
    if level == Level::Member {
        rights.bindings.push(binding("registration"));
        let certificates = match kind {
            AgentRights::Minimal => "open-cluster-management:managedcluster-certificates",
            AgentRights::Ocm => "open-cluster-management:managedcluster-certificates-ocm",
        };
        if driver == RegistrationDriver::Csr {
            rights
                .cluster_bindings
                .push(cluster_binding(&format!("{own}:certificates"), certificates));
        }
        if kind == AgentRights::Ocm {
            rights.bindings.push(binding("ocm"));
        }
    }
    if driver == RegistrationDriver::Token {
        if level == Level::Member {
            rights.bindings.push(binding("token"));
        }
        rights.account = Some(ServiceAccount {
            metadata: meta(AGENT_ACCOUNT, Some(cluster), cluster),
            ..ServiceAccount::default()
        });
    }
    rights
}

fn subjects(cluster: &str, driver: RegistrationDriver, agent: Option<&str>) -> Vec<Subject> {
    if driver == RegistrationDriver::Token {
        return vec![Subject {
            kind: "ServiceAccount".into(),
            name: AGENT_ACCOUNT.into(),
            namespace: Some(cluster.into()),
            api_group: None,
        }];
    }
    let subject = |kind: &str, name: String| Subject {
        kind: kind.into(),
        name,
        namespace: None,
        api_group: Some("rbac.authorization.k8s.io".into()),
    };
    if let Some(agent) = agent {
        return vec![subject("User", agent.into())];
    }
    vec![
        subject("Group", cluster_group(cluster)),
        subject("Group", format!("open-cluster-management:{cluster}")),
    ]
}

fn role_ref(name: &str) -> RoleRef {
    RoleRef {
        api_group: Some("rbac.authorization.k8s.io".into()),
        kind: "ClusterRole".into(),
        name: name.into(),
    }
}

fn meta(name: &str, namespace: Option<&str>, cluster: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: namespace.map(str::to_owned),
        labels: Some(BTreeMap::from([
            (CLUSTER_NAME_LABEL.to_owned(), cluster.to_owned()),
            (LABEL.to_owned(), "true".to_owned()),
        ])),
        ..ObjectMeta::default()
    }
}

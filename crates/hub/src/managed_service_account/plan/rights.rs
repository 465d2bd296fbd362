//! What a cluster's agent may do on the hub for its accounts: exactly this, in exactly its namespace.

use std::collections::BTreeSet;

use k8s_openapi::{
    api::{
        core::v1::ServiceAccount,
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt, api::ObjectMeta};
use writ_api::authentication::{ANNOTATION_API_SERVER_CA, ANNOTATION_API_SERVER_URL, GROUP};

use crate::{
    agent_identity::AGENT_ACCOUNT,
    csr::cluster_group,
    managed_service_account::model::{ADDON, ADDON_ACCOUNT, AGENT_ROLE, Granted},
    options::RegistrationDriver,
};

/// The user of the add-on's agent of a cluster, where the token driver is used.
pub fn addon_account_user(cluster: &str) -> String {
    format!("system:serviceaccount:{cluster}:{ADDON_ACCOUNT}")
}

/// The user of the add-on's agent of a cluster.
pub fn addon_user(cluster: &str) -> String {
    format!("system:open-cluster-management:cluster:{cluster}:addon:managed-serviceaccount:agent:addon-agent")
}

/// The group of the add-on's agent of a cluster, and of no other cluster.
pub fn addon_group(cluster: &str) -> String {
    format!("system:open-cluster-management:cluster:{cluster}:addon:managed-serviceaccount")
}

/// On the Role: the accounts, by the start of their uid, whose name no foreign Secret had when they got it. The agent cannot
/// write the Role, so it cannot clear a name itself.
const ANNOTATION_CLEARED: &str = "authentication.writ.dev/cleared";

/// The start of a uid: enough to tell accounts apart, and short enough for the thousands that a cluster may have.
fn short_uid(uid: &str) -> &str {
    uid.get(..18).unwrap_or(uid)
}

/// Returns true if the Role says that the account of this uid was cleared to use its name.
pub fn is_cleared(role: Option<&Role>, uid: &str) -> bool {
    role.and_then(|role| role.annotations().get(ANNOTATION_CLEARED))
        .is_some_and(|all| {
            all.split(',')
                .any(|cleared| !cleared.is_empty() && cleared == short_uid(uid))
        })
}

/// The Role of the agent: its accounts, and the Secrets of exactly these names.
pub fn role(cluster: &str, owner: &OwnerReference, granted: &Granted) -> Role {
    let rule = |group: &str, resource: &str, verbs: &[&str], names: Vec<String>| PolicyRule {
        api_groups: Some(vec![group.into()]),
        resources: Some(vec![resource.into()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        resource_names: (!names.is_empty()).then_some(names),
        ..PolicyRule::default()
    };
    let mut rules = vec![
        rule(GROUP, "managedserviceaccounts", &["get", "list", "watch"], vec![]),
        rule(
            GROUP,
            "managedserviceaccounts/status",
            &["get", "patch", "update"],
            vec![],
        ),
        // The agent watches its Role to see when it may write a Secret, instead of trying.
        rule(
            "rbac.authorization.k8s.io",
            "roles",
            &["list", "watch"],
            vec![AGENT_ROLE.into()],
        ),
    ];
    // The admission policy limits names and types.
    if granted.create {
        rules.push(rule("", "secrets", &["create"], vec![]));
    }
    // A rule without names would be one for every name.
    if !granted.secrets.is_empty() {
        let verbs = ["delete", "get", "patch", "update"];
        rules.push(rule(
            "",
            "secrets",
            &verbs,
            granted.secrets.keys().cloned().collect(),
        ));
    }
    let cleared: BTreeSet<&str> = granted.secrets.values().map(|uid| short_uid(uid)).collect();
    let cleared: Vec<&str> = cleared.into_iter().collect();
    let (url, ca) = granted
        .server
        .clone()
        .map(|server| (server.url, server.ca_bundle.unwrap_or_default()))
        .unwrap_or_default();
    let annotations = [
        (ANNOTATION_CLEARED, cleared.join(",")),
        (ANNOTATION_API_SERVER_URL, url),
        (ANNOTATION_API_SERVER_CA, ca),
    ];
    Role {
        metadata: ObjectMeta {
            annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
            ..metadata(AGENT_ROLE, cluster, owner)
        },
        rules: Some(rules),
    }
}

/// The account of the add-on's agent, labelled as upstream's.
pub fn addon_account(cluster: &str, owner: &OwnerReference) -> ServiceAccount {
    let labels = [
        ("addon.open-cluster-management.io/token-infrastructure", "true"),
        ("addon.open-cluster-management.io/name", ADDON),
    ];
    ServiceAccount {
        metadata: ObjectMeta {
            labels: Some(labels.map(|(key, value)| (key.into(), value.into())).into()),
            ..metadata(ADDON_ACCOUNT, cluster, owner)
        },
        ..ServiceAccount::default()
    }
}

/// Returns true if an account of that name was made for this add-on. Tokens of another one may be in foreign hands.
pub fn is_addon_account(account: &ServiceAccount, owner: &OwnerReference) -> bool {
    account.owner_references().iter().any(|o| o.uid == owner.uid)
}

/// Binds the Role to the identities of this one cluster: the one that its agent has with this driver (the user `agent`
/// where that is known), and that of the add-on's agent. With the token driver the latter is an account, which has the right
/// only while it is `given` to the add-on.
pub fn role_binding(
    cluster: &str,
    owner: &OwnerReference,
    driver: RegistrationDriver,
    agent: Option<&str>,
    given: bool,
) -> RoleBinding {
    let subject = |kind: &str, name: String| Subject {
        api_group: Some("rbac.authorization.k8s.io".into()),
        kind: kind.into(),
        name,
        namespace: None,
    };
    let account = |name: &str| Subject {
        api_group: None,
        kind: "ServiceAccount".into(),
        name: name.into(),
        namespace: Some(cluster.into()),
    };
    let subjects = match driver {
        RegistrationDriver::Csr => vec![
            agent.map_or_else(
                || subject("Group", cluster_group(cluster)),
                |agent| subject("User", agent.into()),
            ),
            subject("User", addon_user(cluster)),
        ],
        RegistrationDriver::Token => {
            let mut subjects = vec![account(AGENT_ACCOUNT)];
            subjects.extend(given.then(|| account(ADDON_ACCOUNT)));
            subjects
        }
    };
    RoleBinding {
        metadata: metadata(AGENT_ROLE, cluster, owner),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".into()),
            kind: "Role".into(),
            name: AGENT_ROLE.into(),
        },
        subjects: Some(subjects),
    }
}

fn metadata(name: &str, cluster: &str, owner: &OwnerReference) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.into()),
        namespace: Some(cluster.into()),
        owner_references: Some(vec![owner.clone()]),
        ..ObjectMeta::default()
    }
}

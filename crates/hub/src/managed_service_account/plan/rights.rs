//! What a cluster's agent may do on the hub for its accounts: exactly this, in exactly its namespace.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::{
    api::{
        admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding},
        core::v1::ServiceAccount,
        rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::{ResourceExt, api::ObjectMeta};
use serde_json::json;
use writ_api::{
    authentication::{ANNOTATION_API_SERVER_CA, ANNOTATION_API_SERVER_URL, GROUP},
    cluster::managed_cluster::ClientConfig,
};
use writ_controller::Error;

use crate::{admission::access::AGENT_ACCOUNT, options::RegistrationDriver};

/// The name of Role and RoleBinding in every cluster namespace.
pub use writ_api::authentication::AGENT_ROLE as NAME;

/// The policy on Secrets that agents write.
pub const POLICY: &str = "managed-serviceaccount-secrets.writ.dev";

/// The ServiceAccount of the add-on's agent in its cluster's namespace, where the token driver is used. Upstream names
/// it so.
pub const ADDON_ACCOUNT: &str = "managed-serviceaccount-agent";

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

/// The group of a cluster's own agent, and of no other cluster's.
pub fn cluster_group(cluster: &str) -> String {
    format!("system:open-cluster-management:{cluster}")
}

/// On the Role: the accounts, by the start of their uid, whose name no Secret of somebody else had when they got it.
/// The agent cannot write it; what the agent reports of its Secrets decides nothing.
const ANNOTATION_CLEARED: &str = "authentication.writ.dev/cleared";

/// The start of a uid: enough to tell accounts apart, and short enough for the thousands that a cluster may have.
fn mark(uid: &str) -> &str {
    uid.get(..18).unwrap_or(uid)
}

/// Whether the Role says that the account of this uid has its name for good.
pub fn is_cleared(role: Option<&Role>, uid: &str) -> bool {
    role.and_then(|role| role.annotations().get(ANNOTATION_CLEARED))
        .is_some_and(|all| {
            all.split(',')
                .any(|cleared| !cleared.is_empty() && cleared == mark(uid))
        })
}

/// What a Role says.
#[derive(Debug, Default)]
pub struct Granted {
    /// The Secrets that the agent may write, with the uids of their accounts.
    pub secrets: BTreeMap<String, String>,
    /// Whether it may create them: only while the policy says which.
    pub create: bool,
    /// How others reach the cluster's API server.
    pub server: Option<ClientConfig>,
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
        // So that it sees when a Secret has become its to write, and need not try.
        rule(
            "rbac.authorization.k8s.io",
            "roles",
            &["list", "watch"],
            vec![NAME.into()],
        ),
    ];
    // Which Secrets, of which type and under which names, is for the policy to say.
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
    let cleared: BTreeSet<&str> = granted.secrets.values().map(|uid| mark(uid)).collect();
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
            ..metadata(NAME, cluster, owner)
        },
        rules: Some(rules),
    }
}

/// The account of the add-on's agent, labelled as upstream's.
pub fn addon_account(cluster: &str, owner: &OwnerReference) -> ServiceAccount {
    let labels = [
        ("addon.open-cluster-management.io/token-infrastructure", "true"),
        ("addon.open-cluster-management.io/name", super::addon::NAME),
    ];
    ServiceAccount {
        metadata: ObjectMeta {
            labels: Some(labels.map(|(key, value)| (key.into(), value.into())).into()),
            ..metadata(ADDON_ACCOUNT, cluster, owner)
        },
        ..ServiceAccount::default()
    }
}

/// Whether an account of that name was made for this add-on. Of another one somebody may hold tokens.
pub fn is_addon_account(account: &ServiceAccount, owner: &OwnerReference) -> bool {
    account.owner_references().iter().any(|o| o.uid == owner.uid)
}

/// Binds the Role to the identities of this one cluster: to the one that its agent has with this driver (the user `agent`
/// where that is known), to that of the add-on's agent, and to no other that somebody could come by. With the token driver the add-on's is an account, which
/// has the right only while it is `given` to the add-on.
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
        metadata: metadata(NAME, cluster, owner),
        role_ref: RoleRef {
            api_group: Some("rbac.authorization.k8s.io".into()),
            kind: "Role".into(),
            name: NAME.into(),
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

/// The policy: a cluster's agent writes only Opaque Secrets that belong to an account of that name, so that it can
/// never obtain a token of the hub through a Secret of the type `kubernetes.io/service-account-token`.
///
/// It has no parameters: a policy whose parameters are missing refuses everybody's Secrets, before it asks who writes.
pub fn policy() -> Result<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding), Error> {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": POLICY },
        "spec": {
            "failurePolicy": "Fail",
            // The defaults are spelled out: what is there is compared to the letter.
            "matchConstraints": {
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
                    "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
                }],
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
            },
            "matchConditions": [{
                "name": "by-an-agent",
                "expression": "(has(request.userInfo.groups) && \
                    ('system:open-cluster-management:' + request.namespace in request.userInfo.groups || \
                    'open-cluster-management:' + request.namespace in request.userInfo.groups)) || \
                    request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':managed-cluster-agent' || \
                    request.userInfo.username == 'system:serviceaccount:' + request.namespace + \
                    ':managed-serviceaccount-agent' || \
                    request.userInfo.username == 'system:open-cluster-management:cluster:' + request.namespace + \
                    ':addon:managed-serviceaccount:agent:addon-agent'",
            }],
            "validations": [
                {
                    // The Role names the Secrets of the accounts: whoever may update a Secret of that name may make it.
                    "expression": "authorizer.group('').resource('secrets').namespace(request.namespace)\
                        .name(object.metadata.name).check('update').allowed()",
                    "message": "there is no ManagedServiceAccount of that name, or the hub has not seen it yet",
                    "reason": "Forbidden",
                },
                {
                    "expression": "object.type == 'Opaque'",
                    "message": "the Secret of a ManagedServiceAccount must have the type Opaque",
                    "reason": "Forbidden",
                },
                {
                    "expression": "!has(object.metadata.annotations) || \
                        !object.metadata.annotations.exists(key, key.startsWith('kubernetes.io/service-account.'))",
                    "message": "the Secret of a ManagedServiceAccount must not name a ServiceAccount of the hub",
                    "reason": "Forbidden",
                },
                {
                    "expression": "has(object.metadata.ownerReferences) && \
                        object.metadata.ownerReferences.size() == 1 && object.metadata.ownerReferences.all(o, \
                        o.apiVersion.startsWith('authentication.open-cluster-management.io/') && \
                        o.kind == 'ManagedServiceAccount' && o.name == object.metadata.name)",
                    "message": "the Secret must be owned by the ManagedServiceAccount of its name, and by nothing else",
                    "reason": "Forbidden",
                },
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": POLICY },
        "spec": {
            "policyName": POLICY,
            "validationActions": ["Deny"],
        },
    });
    let read = |error: serde_json::Error| Error::Invalid(format!("the policy cannot be written: {error}"));
    Ok((
        serde_json::from_value(policy).map_err(read)?,
        serde_json::from_value(binding).map_err(read)?,
    ))
}

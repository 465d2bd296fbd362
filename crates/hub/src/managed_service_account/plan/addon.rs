//! The add-on `managed-serviceaccount` on one cluster: what its ManagedClusterAddOn says, and what is delivered where
//! no agent of ours runs.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use kube::{Resource, ResourceExt, api::ObjectMeta};
use serde_json::{Value, json};
use writ_api::{
    addon::{
        HealthCheck, LABEL_ADDON, ManagedClusterAddOn, ManagedClusterAddOnSpec, ManagedClusterAddOnStatus,
        Registration, RegistrationSubject,
    },
    cluster::{
        ManagedCluster,
        cluster_claim::CLAIM_AGENT_NAMESPACE,
        managed_cluster::{CONDITION_AVAILABLE, CONDITION_JOINED, ClientConfig},
    },
    work::{
        DeleteOption, FeedbackRule, FeedbackType, Manifest, ManifestConfig, ManifestWork, ManifestWorkSpec,
        OrphaningRule, PropagationPolicy, ResourceIdentifier, SelectivelyOrphan, Workload,
    },
};
use writ_controller::condition::{self, Wanted};

use super::rights;

/// The add-on's name.
pub const NAME: &str = "managed-serviceaccount";

/// The ManifestWork that delivers it.
pub const WORK: &str = "addon-managed-serviceaccount-deploy-0";

/// The Deployment that it delivers.
const DEPLOYMENT: &str = "managed-serviceaccount-addon-agent";

/// Who signs its credential.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The condition that says whether somebody has asked for the credential, where our own agent does not.
const CREDENTIAL: &str = "CredentialRequested";

/// The condition that says whether the account of the add-on's agent is there, as upstream's, which our agents and
/// klusterlets wait for.
const TOKEN_READY: &str = "TokenInfrastructureReady";

/// How the add-on's agent comes to its credential for the hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// By a certificate; whether somebody on the cluster has asked for it.
    Certificate {
        /// Somebody has.
        requested: bool,
    },
    /// By tokens of an account on the hub: its uid, or why it has none.
    Token(Result<String, String>),
}

/// The namespace of our own agent where it does not say another one.
const AGENT_NAMESPACE: &str = "open-cluster-management-agent";

/// Whether our own agent keeps the accounts on this cluster, as its claim says.
pub fn runs_our_agent(cluster: &ManagedCluster) -> bool {
    cluster.agent_runs("tokens") == Some(true)
}

/// Whether some agent has joined, and so has said what it is: until then nobody knows who keeps the accounts.
pub fn has_joined(cluster: &ManagedCluster) -> bool {
    let status = cluster.status.as_ref();
    status.is_some_and(|status| condition::is_true(&status.conditions, CONDITION_JOINED))
}

/// The namespace of our own agent on this cluster, which is that of the accounts' ServiceAccounts.
fn agent_namespace(cluster: &ManagedCluster) -> &str {
    let claims = cluster.status.iter().flat_map(|status| &status.cluster_claims);
    let mut claimed = claims.filter(|claim| claim.name == CLAIM_AGENT_NAMESPACE);
    claimed
        .next()
        .map_or(AGENT_NAMESPACE, |claim| claim.value.as_str())
}

/// How others reach the cluster's API server.
pub fn api_server(cluster: &ManagedCluster) -> Option<ClientConfig> {
    cluster.spec.managed_cluster_client_configs.first().cloned()
}

/// The ManagedClusterAddOn that a cluster gets by default.
pub fn wanted(cluster: &str) -> ManagedClusterAddOn {
    ManagedClusterAddOn {
        metadata: ObjectMeta {
            name: Some(NAME.into()),
            namespace: Some(cluster.into()),
            ..ObjectMeta::default()
        },
        spec: ManagedClusterAddOnSpec::default(),
        status: None,
    }
}

/// Who owns what is made for the add-on on a cluster.
pub fn owner(addon: &ManagedClusterAddOn) -> OwnerReference {
    OwnerReference {
        controller: None,
        ..addon.controller_owner_ref(&()).unwrap_or_default()
    }
}

/// The status of the add-on. It is available where our agent runs and its cluster is available, and elsewhere when
/// the cluster reports that the delivered Deployment is.
pub fn status(
    addon: &ManagedClusterAddOn,
    cluster: &ManagedCluster,
    work: Option<&ManifestWork>,
    credential: &Credential,
    now: Timestamp,
) -> ManagedClusterAddOnStatus {
    let mut status = addon.status.clone().unwrap_or_default();
    let generation = addon.metadata.generation;
    let ours = runs_our_agent(cluster);
    status.health_check = Some(HealthCheck {
        mode: "Customized".into(),
    });
    let mut wanted = vec![Wanted::new(
        "RegistrationApplied",
        true,
        "SetPermissionApplied",
        "",
    )];
    if ours {
        status.namespace = Some(agent_namespace(cluster).to_owned());
        status.registrations = Vec::new();
        forget_token(&mut status);
        let conditions = cluster
            .status
            .as_ref()
            .map_or(&[] as &[_], |status| &status.conditions);
        let available = condition::find(conditions, CONDITION_AVAILABLE);
        wanted.push(Wanted {
            type_: "Available".into(),
            status: value_of(available),
            reason: "RunByTheAgent".into(),
            message: "the cluster's own agent keeps the accounts".into(),
        });
        condition::remove(&mut status.conditions, "ManifestApplied");
        condition::remove(&mut status.conditions, CREDENTIAL);
    } else {
        let (subject, said) = registration(&mut status, cluster, credential);
        wanted.extend(said);
        status.namespace = Some(addon.wished_namespace().to_owned());
        status.registrations = vec![Registration {
            signer_name: SIGNER.into(),
            subject: Some(subject),
        }];
        let reported = work.and_then(|work| work.status.as_ref());
        let applied = reported.and_then(|status| condition::find(&status.conditions, "Applied"));
        wanted.push(available(cluster, work));
        wanted.push(match applied {
            Some(applied) if applied.status == "True" => {
                Wanted::new("ManifestApplied", true, "AddonManifestApplied", "")
            }
            Some(applied) => Wanted::new(
                "ManifestApplied",
                false,
                "AddonManifestAppliedFailed",
                applied.message.clone(),
            ),
            None => Wanted::new(
                "ManifestApplied",
                condition::Status::Unknown,
                "AddonManifestPending",
                "the cluster has not reported the add-on's objects yet",
            ),
        });
    }
    for wanted in &wanted {
        condition::set(&mut status.conditions, wanted, generation, now);
    }
    let ignored: &[&str] = if addon.spec.configs.is_empty() {
        &[]
    } else {
        &["spec.configs"]
    };
    condition::set_ignored(&mut status.conditions, ignored, generation, now);
    status
}

/// Whether a delivered add-on runs: as upstream's probe of its Deployment, by what the work reports of it.
fn available(cluster: &ManagedCluster, work: Option<&ManifestWork>) -> Wanted {
    let conditions = cluster.status.iter().flat_map(|status| &status.conditions);
    let silent = conditions
        .filter(|condition| condition.type_ == CONDITION_AVAILABLE)
        .any(|condition| condition.status == "Unknown");
    let manifests = work
        .and_then(|work| work.status.as_ref())
        .map_or(&[] as &[_], |status| &status.resource_status.manifests);
    let deployment = manifests
        .iter()
        .find(|manifest| {
            manifest.resource_meta.kind == "Deployment" && manifest.resource_meta.name == DEPLOYMENT
        })
        .filter(|_| !silent);
    let Some(deployment) = deployment else {
        let why = if silent {
            "the cluster's agent does not report any more"
        } else {
            "the cluster has not reported the add-on's Deployment yet"
        };
        return Wanted::new("Available", condition::Status::Unknown, "NoProbeResult", why);
    };
    let values = &deployment.status_feedback.values;
    // One that has none does not say so.
    let ready = values
        .iter()
        .find(|value| value.name == "ReadyReplicas")
        .and_then(|value| value.value.integer)
        .unwrap_or_default();
    if ready > 0 {
        Wanted::new("Available", true, "ProbeAvailable", "")
    } else {
        Wanted::new(
            "Available",
            false,
            "ProbeUnavailable",
            format!("the Deployment {DEPLOYMENT} has no pod that is ready"),
        )
    }
}

/// Whose the credential of a delivered add-on is, and what is said about how it comes to it.
fn registration(
    status: &mut ManagedClusterAddOnStatus,
    cluster: &ManagedCluster,
    credential: &Credential,
) -> (RegistrationSubject, Vec<Wanted>) {
    let name = cluster.name_any();
    let user = |user: String, groups: Vec<String>| RegistrationSubject {
        user,
        groups,
        organization_units: Vec::new(),
    };
    let registered_by_us = cluster.agent_runs("registration") == Some(true);
    let nobody = || {
        Wanted::new(
            CREDENTIAL,
            false,
            "NobodyRegistersAddOns",
            "the cluster's own agent runs without the controllers tokens and addons; run it with one of them, or let a \
             klusterlet register this add-on",
        )
    };
    match credential {
        Credential::Token(account) => {
            status.kube_client_driver = Some("token".into());
            // Tokens are asked for without a trace: only that nobody will is known.
            let mut said = Vec::new();
            if registered_by_us && cluster.agent_runs("addons") != Some(true) {
                said.push(nobody());
            } else {
                condition::remove(&mut status.conditions, CREDENTIAL);
            }
            said.push(match account {
                Ok(uid) => Wanted::new(
                    TOKEN_READY,
                    true,
                    "TokenInfrastructureReady",
                    format!(
                        "ServiceAccount {name}/{} (UID: {uid}) is ready",
                        rights::ADDON_ACCOUNT
                    ),
                ),
                Err(why) => Wanted::new(TOKEN_READY, false, "TokenInfrastructureNotReady", why.clone()),
            });
            (user(rights::addon_account_user(&name), Vec::new()), said)
        }
        Credential::Certificate { requested } => {
            forget_token(status);
            // Somebody must ask for the credential, or the delivered Deployment waits for ever.
            let asked = *requested || condition::is_true(&status.conditions, CREDENTIAL);
            let said = if !registered_by_us {
                condition::remove(&mut status.conditions, CREDENTIAL);
                None
            } else if asked {
                Some(Wanted::new(CREDENTIAL, true, "Requested", ""))
            } else if cluster.agent_runs("addons") == Some(true) {
                Some(Wanted::new(
                    CREDENTIAL,
                    false,
                    "NotRequestedYet",
                    "the cluster's own agent has not asked for the credential of the add-on; if that lasts, its log says why",
                ))
            } else {
                Some(nobody())
            };
            let groups = vec![rights::addon_group(&name)];
            (
                user(rights::addon_user(&name), groups),
                said.into_iter().collect(),
            )
        }
    }
}

/// Takes back what was said about tokens, where this hub said it: a klusterlet may have chosen the driver, too.
fn forget_token(status: &mut ManagedClusterAddOnStatus) {
    if condition::find(&status.conditions, TOKEN_READY).is_some() {
        status.kube_client_driver = None;
        condition::remove(&mut status.conditions, TOKEN_READY);
    }
}

fn value_of(condition: Option<&Condition>) -> condition::Status {
    match condition.map(|condition| condition.status.as_str()) {
        Some("True") => condition::Status::True,
        Some("False") => condition::Status::False,
        _ => condition::Status::Unknown,
    }
}

/// What is delivered to a cluster without our agent: the same binary, for the accounts only.
pub fn work(addon: &ManagedClusterAddOn, cluster: &str, image: &str) -> ManifestWork {
    let namespace = addon.wished_namespace();
    ManifestWork {
        metadata: ObjectMeta {
            name: Some(WORK.into()),
            namespace: Some(cluster.into()),
            labels: Some([(LABEL_ADDON.to_owned(), NAME.to_owned())].into()),
            owner_references: Some(vec![owner(addon)]),
            ..ObjectMeta::default()
        },
        spec: ManifestWorkSpec {
            workload: Workload {
                manifests: manifests(namespace, cluster, image)
                    .into_iter()
                    .map(Manifest)
                    .collect(),
            },
            // Other add-ons live in the same namespace. The accounts' ServiceAccounts need it not to go: the agent's own
            // owns them.
            delete_option: Some(DeleteOption {
                propagation_policy: PropagationPolicy::SelectivelyOrphan,
                selectively_orphans: Some(SelectivelyOrphan {
                    orphaning_rules: vec![OrphaningRule {
                        resource: "namespaces".into(),
                        name: namespace.into(),
                        ..OrphaningRule::default()
                    }],
                }),
                ..DeleteOption::default()
            }),
            manifest_configs: vec![ManifestConfig {
                resource_identifier: ResourceIdentifier {
                    group: "apps".into(),
                    resource: "deployments".into(),
                    name: DEPLOYMENT.into(),
                    namespace: namespace.into(),
                },
                feedback_rules: vec![FeedbackRule {
                    type_: FeedbackType::WellKnownStatus,
                    json_paths: Vec::new(),
                }],
                ..ManifestConfig::default()
            }],
            ..ManifestWorkSpec::default()
        },
        status: None,
    }
}

fn manifests(namespace: &str, cluster: &str, image: &str) -> Vec<Value> {
    let role = "open-cluster-management:managed-serviceaccount:addon-agent";
    let rbac = "rbac.authorization.k8s.io";
    let subjects = json!([{ "kind": "ServiceAccount", "name": NAME, "namespace": namespace }]);
    let bound = |kind: &str| json!({ "apiGroup": rbac, "kind": kind, "name": role });
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": NAME, "namespace": namespace } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": role },
            "rules": [{ "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"] }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": role },
            "roleRef": bound("ClusterRole"), "subjects": subjects,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": role, "namespace": namespace },
            "rules": [
                { "apiGroups": [""], "resources": ["serviceaccounts"],
                  "verbs": ["get", "list", "watch", "create", "patch", "delete"] },
                { "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] },
                { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["kube-root-ca.crt"],
                  "verbs": ["get", "list", "watch"] },
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": role, "namespace": namespace },
            "roleRef": bound("Role"), "subjects": subjects,
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": DEPLOYMENT, "namespace": namespace },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": { "addon-agent": NAME } },
                "template": {
                    "metadata": { "labels": { "addon-agent": NAME } },
                    "spec": {
                        "serviceAccountName": NAME,
                        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
                        "containers": [{
                            "name": "addon-agent",
                            "image": image,
                            "command": ["writ-agent"],
                            "args": [
                                format!("--cluster-name={cluster}"), format!("--agent-namespace={namespace}"),
                                "--hub-kubeconfig=/etc/hub/kubeconfig", "--controllers=tokens", "--health-address=0.0.0.0:8080",
                            ],
                            "ports": [{ "name": "health", "containerPort": 8080, "protocol": "TCP" }],
                            "livenessProbe": { "httpGet": { "path": "/livez", "port": "health", "scheme": "HTTP" } },
                            "readinessProbe": { "httpGet": { "path": "/readyz", "port": "health", "scheme": "HTTP" } },
                            "securityContext": {
                                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                                "capabilities": { "drop": ["ALL"] },
                            },
                            "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
                            "volumeMounts": [{ "name": "hub", "mountPath": "/etc/hub", "readOnly": true }],
                        }],
                        "volumes": [{ "name": "hub", "secret": { "secretName": format!("{NAME}-hub-kubeconfig") } }],
                    },
                },
            },
        }),
    ]
}

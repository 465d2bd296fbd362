//! The add-on `managed-serviceaccount` on one cluster: what its ManagedClusterAddOn says.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, OwnerReference};
use kube::{Resource, ResourceExt, api::ObjectMeta};
use writ_api::{
    addon::{
        HealthCheck, ManagedClusterAddOn, ManagedClusterAddOnSpec, ManagedClusterAddOnStatus, Registration,
        RegistrationSubject,
    },
    cluster::{
        ManagedCluster,
        cluster_claim::CLAIM_AGENT_NAMESPACE,
        managed_cluster::{CONDITION_AVAILABLE, CONDITION_JOINED, ClientConfig},
    },
    work::ManifestWork,
};
use writ_controller::condition::{self, Wanted};

use super::rights;
use crate::{
    csr,
    managed_service_account::model::{ADDON, ADDON_ACCOUNT, ADDON_DEPLOYMENT, Credential},
};

/// The condition that says whether an agent of the cluster has asked for the credential.
const CREDENTIAL: &str = "CredentialRequested";

/// Upstream's condition that says whether the account of the add-on's agent exists. Agents wait for it.
const TOKEN_READY: &str = "TokenInfrastructureReady";

/// The namespace of our own agent, unless its claim says another.
const AGENT_NAMESPACE: &str = "open-cluster-management-agent";

/// Returns true if our own agent keeps the accounts on this cluster, as its claim says.
pub fn runs_our_agent(cluster: &ManagedCluster) -> bool {
    cluster.agent_runs("tokens") == Some(true)
}

/// Returns true if an agent has joined. Before that its claims are not known, so that it is open which program keeps the
/// accounts.
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

/// The address of the cluster's API server, for consumers of tokens.
pub fn api_server(cluster: &ManagedCluster) -> Option<ClientConfig> {
    cluster.spec.managed_cluster_client_configs.first().cloned()
}

/// The ManagedClusterAddOn that a cluster gets by default.
pub fn wanted(cluster: &str) -> ManagedClusterAddOn {
    ManagedClusterAddOn {
        metadata: ObjectMeta {
            name: Some(ADDON.into()),
            namespace: Some(cluster.into()),
            ..ObjectMeta::default()
        },
        spec: ManagedClusterAddOnSpec::default(),
        status: None,
    }
}

/// The owner reference of what is made for the add-on of a cluster.
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
            status: status_of(available),
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
            signer_name: csr::SIGNER.into(),
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

/// Whether a delivered add-on is available: like upstream's probe of its Deployment, by the feedback of its work.
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
            manifest.resource_meta.kind == "Deployment" && manifest.resource_meta.name == ADDON_DEPLOYMENT
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
    // A Deployment without ready pods reports no number.
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
            format!("the Deployment {ADDON_DEPLOYMENT} has no pod that is ready"),
        )
    }
}

/// The user of a delivered add-on's credential, and the conditions about how it comes to it.
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
    let unregistered = || {
        Wanted::new(
            CREDENTIAL,
            false,
            "AddOnsNotRegistered",
            "the cluster's own agent runs without the controllers tokens and addons; run it with one of them, or let a \
             klusterlet register this add-on",
        )
    };
    match credential {
        Credential::Token(account) => {
            status.kube_client_driver = Some("token".into());
            // Requests for tokens leave no trace; known is only whether the agent makes any.
            let mut said = Vec::new();
            if registered_by_us && cluster.agent_runs("addons") != Some(true) {
                said.push(unregistered());
            } else {
                condition::remove(&mut status.conditions, CREDENTIAL);
            }
            said.push(match account {
                Ok(uid) => Wanted::new(
                    TOKEN_READY,
                    true,
                    "TokenInfrastructureReady",
                    format!("ServiceAccount {name}/{ADDON_ACCOUNT} (UID: {uid}) is ready"),
                ),
                Err(why) => Wanted::new(TOKEN_READY, false, "TokenInfrastructureNotReady", why.clone()),
            });
            (user(rights::addon_account_user(&name), Vec::new()), said)
        }
        Credential::Certificate { requested } => {
            forget_token(status);
            // Without a request for the credential the delivered Deployment would wait forever.
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
                Some(unregistered())
            };
            let groups = vec![rights::addon_group(&name)];
            (
                user(rights::addon_user(&name), groups),
                said.into_iter().collect(),
            )
        }
    }
}

/// Removes what this hub reported about tokens. A driver that a klusterlet chose stays.
fn forget_token(status: &mut ManagedClusterAddOnStatus) {
    if condition::find(&status.conditions, TOKEN_READY).is_some() {
        status.kube_client_driver = None;
        condition::remove(&mut status.conditions, TOKEN_READY);
    }
}

fn status_of(condition: Option<&Condition>) -> condition::Status {
    match condition.map(|condition| condition.status.as_str()) {
        Some("True") => condition::Status::True,
        Some("False") => condition::Status::False,
        _ => condition::Status::Unknown,
    }
}

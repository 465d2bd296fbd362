//! The ServiceAccount of an account: how it must look, and whether an existing one may be used.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ServiceAccount, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{ResourceExt, api::ObjectMeta};
use serde_json::{Value, json};
use writ_api::authentication::{
    ANNOTATION_ACCOUNT, ANNOTATION_ADOPT, ANNOTATION_CLUSTER, ANNOTATION_FORMER, CONDITION_PRESENT,
    LABEL_MANAGED, ManagedServiceAccount, REASON_NOT_OURS, REASON_RESERVED,
};

use crate::tokens::model::{Existing, Refusal, Settings, Wish};

/// Returns true if a ServiceAccount was made by this agent, or by another implementation of it. A ServiceAccount that lost
/// its label and annotations is still recognised by its owner.
pub fn is_ours(account: &ServiceAccount, settings: &Settings) -> bool {
    let labelled = account
        .labels()
        .get(LABEL_MANAGED)
        .is_some_and(|value| value == "true");
    match account.annotations().get(ANNOTATION_CLUSTER) {
        Some(cluster) => *cluster == settings.cluster,
        None => labelled || settings.owner.as_ref().is_some_and(|agent| owns(agent, account)),
    }
}

/// Returns true if the agent's own ServiceAccount owns this one.
fn owns(agent: &OwnerReference, account: &ServiceAccount) -> bool {
    account
        .owner_references()
        .iter()
        .any(|owner| owner.uid == agent.uid)
}

/// The ServiceAccount that an account needs.
pub fn wanted(account: &ManagedServiceAccount, settings: &Settings) -> ServiceAccount {
    let annotations = [
        (ANNOTATION_CLUSTER, settings.cluster.clone()),
        (ANNOTATION_ACCOUNT, account.uid().unwrap_or_default()),
    ];
    ServiceAccount {
        metadata: ObjectMeta {
            name: Some(account.name_any()),
            namespace: Some(settings.namespace.clone()),
            labels: Some([(LABEL_MANAGED.to_owned(), "true".to_owned())].into()),
            annotations: Some(annotations.map(|(key, value)| (key.to_owned(), value)).into()),
            owner_references: settings.owner.clone().map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        ..ServiceAccount::default()
    }
}

/// Decides whether an existing ServiceAccount may be used. One that this agent made (`known`) stays ours, whatever was removed
/// from it; one that an add-on installs ([`belongs_to_an_add_on`]) is never used, whatever it carries.
pub fn existing(
    account: &ManagedServiceAccount,
    wish: &Wish,
    found: &ServiceAccount,
    known: bool,
    settings: &Settings,
) -> Result<Existing, Refusal> {
    let refuse = |reason, message: String| Err(Refusal::new(CONDITION_PRESENT, reason, message));
    let (namespace, name) = (&settings.namespace, &wish.name);
    if belongs_to_an_add_on(found) {
        return Err(taken_by_an_add_on(name, settings));
    }
    if found.metadata.deletion_timestamp.is_some() {
        return refuse(
            "ServiceAccountTerminating",
            format!(
                "the ServiceAccount {namespace}/{name} is being deleted, and its tokens are refused or soon will be; a \
                 finalizer keeps it: {}",
                found.finalizers().join(", ")
            ),
        );
    }
    if known || is_ours(found, settings) {
        if !known && is_of_before(found, account) {
            return Ok(Existing::Replace);
        }
        let wanted = wanted(account, settings);
        let edited = found.automount_service_account_token.is_some()
            || found.owner_references() != wanted.owner_references()
            || wanted
                .labels()
                .iter()
                .any(|(key, value)| found.labels().get(key) != Some(value))
            || wanted
                .annotations()
                .iter()
                .any(|(key, value)| found.annotations().get(key) != Some(value))
            || found.annotations().keys().any(|key| is_foreign(key));
        return Ok(if edited {
            Existing::Restore(restoration(found, &wanted))
        } else {
            Existing::Use
        });
    }
    if let Some(other) = found.annotations().get(ANNOTATION_CLUSTER) {
        return refuse(
            REASON_NOT_OURS,
            format!("the ServiceAccount {namespace}/{name} is managed for another hub, as {other}"),
        );
    }
    if wish.adopt {
        return Ok(Existing::Use);
    }
    refuse(
        REASON_NOT_OURS,
        format!(
            "the ServiceAccount {namespace}/{name} exists and was not made for this account; delete it, or set the \
             annotation {ANNOTATION_ADOPT}: \"true\" to use it"
        ),
    )
}

/// Returns true if a ServiceAccount of ours was made for a former account of that name. Without the annotation (an older agent
/// made it, or it was edited) it is this account's only if that has had a token already.
fn is_of_before(found: &ServiceAccount, account: &ManagedServiceAccount) -> bool {
    match found.annotations().get(ANNOTATION_ACCOUNT) {
        Some(uid) => Some(uid) != account.metadata.uid.as_ref(),
        None => account
            .status
            .as_ref()
            .is_none_or(|status| status.token_secret_ref.is_none()),
    }
}

/// Returns true if an annotation is to be removed from a ServiceAccount of ours: it may give it an identity in a cloud.
/// OpenShift writes its own on every ServiceAccount, again and again, so these stay.
fn is_foreign(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let of_the_platform = domain == "openshift.io" || domain.ends_with(".openshift.io");
    ![ANNOTATION_CLUSTER, ANNOTATION_ACCOUNT, ANNOTATION_FORMER].contains(&key) && !of_the_platform
}

/// The merge patch that restores a ServiceAccount of ours.
fn restoration(found: &ServiceAccount, wanted: &ServiceAccount) -> Value {
    let foreign = found.annotations().keys().filter(|key| is_foreign(key));
    let mut annotations: BTreeMap<&str, Option<&str>> = foreign.map(|key| (key.as_str(), None)).collect();
    annotations.extend(
        wanted
            .annotations()
            .iter()
            .map(|(key, value)| (key.as_str(), Some(value.as_str()))),
    );
    json!({
        "metadata": {
            "uid": found.uid(),
            "labels": wanted.labels(),
            "annotations": annotations,
            "ownerReferences": wanted.metadata.owner_references,
        },
        "automountServiceAccountToken": null,
    })
}

/// The name belongs to an add-on: what the account had under it is withdrawn.
pub fn taken_by_an_add_on(name: &str, settings: &Settings) -> Refusal {
    let namespace = &settings.namespace;
    Refusal {
        condition: CONDITION_PRESENT,
        reason: REASON_RESERVED,
        message: format!("the ServiceAccount {namespace}/{name} belongs to an add-on; choose another name"),
        withdrawn: true,
    }
}

/// Returns true if this agent made the ServiceAccount, though an add-on has it now: installing an add-on takes over the
/// existing object, and our annotations stay on it.
pub fn was_ours(found: &ServiceAccount, settings: &Settings) -> bool {
    found.annotations().get(ANNOTATION_CLUSTER) == Some(&settings.cluster)
        && settings.owner.as_ref().is_none_or(|agent| owns(agent, found))
}

/// Returns true if an add-on installs this ServiceAccount.
pub fn belongs_to_an_add_on(account: &ServiceAccount) -> bool {
    account
        .owner_references()
        .iter()
        .any(|owner| owner.kind == "AppliedManifestWork")
        || account.labels().keys().any(|key| {
            key == writ_api::addon::LABEL_ADDON || key.starts_with("addon.open-cluster-management.io/")
        })
}

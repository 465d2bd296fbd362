//! The ServiceAccount of an account: how it must look, and whether one that is there may be used.

use std::collections::BTreeMap;

use k8s_openapi::{api::core::v1::ServiceAccount, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{ResourceExt, api::ObjectMeta};
use serde_json::{Value, json};
use writ_api::authentication::{
    ANNOTATION_ACCOUNT, ANNOTATION_ADOPT, ANNOTATION_CLUSTER, ANNOTATION_FORMER, CONDITION_PRESENT,
    LABEL_MANAGED, ManagedServiceAccount, REASON_NOT_OURS, REASON_RESERVED,
};

use super::plan::{Refusal, Settings, Wish};

/// Whether a ServiceAccount was made by this agent (or by another implementation of it). One that lost its marks while
/// nobody looked is still the agent's by its owner.
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

/// Whether the agent's own account owns this one.
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

/// What to do with a ServiceAccount that is there.
#[derive(Clone, Debug, PartialEq)]
pub enum Existing {
    /// It is as it should be, or somebody's that was adopted.
    Use,
    /// It is ours and was edited: this merge patch restores it.
    Restore(Value),
    /// It is ours, and was made for an account of that name from before: it goes, and with it every token of it.
    Replace,
}

/// Whether the ServiceAccount that is there may be used. One that we made (`known`) stays ours, whatever was taken off
/// it; one that something else installs ([`belongs_to_an_add_on`]) is never used, whatever it carries.
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

/// Whether a ServiceAccount of ours was made for an account of that name from before. One that does not say for which
/// (an older agent made it, or it was edited) is this account's only if that has had a token already.
fn is_of_before(found: &ServiceAccount, account: &ManagedServiceAccount) -> bool {
    match found.annotations().get(ANNOTATION_ACCOUNT) {
        Some(uid) => Some(uid) != account.metadata.uid.as_ref(),
        None => account
            .status
            .as_ref()
            .is_none_or(|status| status.token_secret_ref.is_none()),
    }
}

/// Whether an annotation has no place on a ServiceAccount of ours: it may give it an identity in a cloud. OpenShift notes
/// its own on every ServiceAccount, and would write them again and again.
fn is_foreign(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    let of_the_platform = domain == "openshift.io" || domain.ends_with(".openshift.io");
    ![ANNOTATION_CLUSTER, ANNOTATION_ACCOUNT, ANNOTATION_FORMER].contains(&key) && !of_the_platform
}

/// Brings a ServiceAccount that we made back into its shape.
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

/// The name belongs to an add-on: what the account had under it is taken away.
pub fn taken_by_an_add_on(name: &str, settings: &Settings) -> Refusal {
    let namespace = &settings.namespace;
    Refusal {
        condition: CONDITION_PRESENT,
        reason: REASON_RESERVED,
        message: format!("the ServiceAccount {namespace}/{name} belongs to an add-on; choose another name"),
        withdrawn: true,
    }
}

/// Whether this agent made the ServiceAccount, though an add-on has it now: whoever installs an add-on takes over what
/// has the name, and what we put on it stays.
pub fn was_ours(found: &ServiceAccount, settings: &Settings) -> bool {
    found.annotations().get(ANNOTATION_CLUSTER) == Some(&settings.cluster)
        && settings.owner.as_ref().is_none_or(|agent| owns(agent, found))
}

/// Whether something else installs this ServiceAccount.
pub fn belongs_to_an_add_on(account: &ServiceAccount) -> bool {
    account
        .owner_references()
        .iter()
        .any(|owner| owner.kind == "AppliedManifestWork")
        || account.labels().keys().any(|key| {
            key == writ_api::addon::LABEL_ADDON || key.starts_with("addon.open-cluster-management.io/")
        })
}

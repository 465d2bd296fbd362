//! Accounts of the older group `proxy.open-cluster-management.io`: each owns one of the present group.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource, ResourceExt, api::ObjectMeta};
use writ_api::{
    authentication::{
        ANNOTATION_ADOPT, ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS, CONDITION_PRESENT,
        ManagedServiceAccount, ManagedServiceAccountSpec, ManagedServiceAccountStatus, Rotation,
    },
    proxy,
};
use writ_controller::{
    Error,
    condition::{self, Wanted},
};

/// The account that one of the older group owns.
pub fn owned(from: &proxy::ManagedServiceAccount) -> ManagedServiceAccount {
    let mut annotations: BTreeMap<String, String> = [ANNOTATION_ADOPT, ANNOTATION_SECRET_KEYS]
        .into_iter()
        .filter_map(|key| Some((key.to_owned(), from.annotations().get(key)?.clone())))
        .collect();
    let rotation = if from.spec.rotation.enabled {
        "enabled"
    } else {
        "disabled"
    };
    annotations.insert(ANNOTATION_ROTATION.into(), rotation.into());
    ManagedServiceAccount {
        metadata: ObjectMeta {
            name: Some(from.name_any()),
            namespace: from.namespace(),
            annotations: Some(annotations),
            owner_references: from.controller_owner_ref(&()).map(|owner| vec![owner]),
            ..ObjectMeta::default()
        },
        spec: ManagedServiceAccountSpec {
            audiences: from.spec.audiences.clone(),
            rotation: Rotation {
                enabled: true,
                validity: from.spec.rotation.validity.clone(),
            },
            ttl_seconds_after_creation: None,
        },
        status: None,
    }
}

/// Returns true if this object of the older group owns the account.
pub fn owns(from: &proxy::ManagedServiceAccount, account: &ManagedServiceAccount) -> bool {
    account.owner_references().iter().any(|owner: &OwnerReference| {
        owner.controller == Some(true) && Some(&owner.uid) == from.uid().as_ref()
    })
}

/// The status of an object of the older group: its account's, that the name is taken, or why the account was refused.
pub fn owner_status(
    from: &proxy::ManagedServiceAccount,
    account: Option<&ManagedServiceAccount>,
    refused: Option<&Error>,
    now: Timestamp,
) -> ManagedServiceAccountStatus {
    let mut status = status_of_account(from, account, now);
    if let Some(error) = refused {
        let message = condition::clip(&error.to_string(), 1024);
        for type_ in [CONDITION_PRESENT, "TokenReported"] {
            let wanted = Wanted::new(type_, false, error.reason(), message.clone());
            condition::set(&mut status.conditions, &wanted, from.metadata.generation, now);
        }
    }
    status
}

fn status_of_account(
    from: &proxy::ManagedServiceAccount,
    account: Option<&ManagedServiceAccount>,
    now: Timestamp,
) -> ManagedServiceAccountStatus {
    match account {
        Some(account) if owns(from, account) => {
            let mut status = account.status.clone().unwrap_or_default();
            status.secret_digest = None;
            for condition in &mut status.conditions {
                // The generation is the account's; an up-to-date one becomes this object's.
                condition.observed_generation = (condition.observed_generation
                    == account.metadata.generation)
                    .then_some(from.metadata.generation)
                    .flatten();
            }
            status
        }
        Some(_) => {
            let mut status = from.status.clone().unwrap_or_default();
            let message = "a ManagedServiceAccount of that name in authentication.open-cluster-management.io exists \
                           and was not made for this one; delete it, or choose another name";
            let generation = from.metadata.generation;
            for wanted in [
                Wanted::new("Conflict", true, "NameTaken", message),
                Wanted::new(CONDITION_PRESENT, false, "Conflict", message),
            ] {
                condition::set(&mut status.conditions, &wanted, generation, now);
            }
            status
        }
        None => from.status.clone().unwrap_or_default(),
    }
}

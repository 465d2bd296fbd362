//! The status of an account.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use writ_api::authentication::{
    ANNOTATION_FORMER, CONDITION_PRESENT, ManagedServiceAccount, ManagedServiceAccountStatus, SecretRef,
};
use writ_controller::condition::{self, Wanted};

use crate::tokens::model::Report;

/// The status of an account after this report.
pub fn status(
    account: &ManagedServiceAccount,
    report: &Report,
    now: Timestamp,
) -> ManagedServiceAccountStatus {
    let mut status = account.status.clone().unwrap_or_default();
    let generation = account.metadata.generation;
    let mut wanted = Vec::new();
    let present = Wanted::new(CONDITION_PRESENT, true, "ServiceAccountPresent", "");
    match report {
        Report::Good {
            expires,
            digest,
            refreshed,
            authenticates,
            previous,
            keys,
        } => {
            wanted.push(Wanted::new("SecretCreated", true, "SecretCreated", ""));
            wanted.push(Wanted::new("TokenReported", true, "TokenReported", ""));
            wanted.push(present);
            match previous {
                None => {
                    condition::remove(&mut status.conditions, "FormerServiceAccountGone");
                }
                Some(why) => wanted.push(Wanted::new(
                    "FormerServiceAccountGone",
                    false,
                    "FormerServiceAccountLeft",
                    format!(
                        "the agent has moved, and tokens of the ServiceAccount in its former namespace are still \
                         accepted: {why}; delete that ServiceAccount, or the agent's own in that namespace, and \
                         then the annotation {ANNOTATION_FORMER} of the new one"
                    ),
                )),
            }
            match keys {
                None => {
                    condition::remove(&mut status.conditions, "SecretKeysWritten");
                }
                Some(missing) => wanted.push(missing.condition()),
            }
            match authenticates {
                None => {
                    condition::remove(&mut status.conditions, "AuthenticatesToAPIServer");
                }
                Some(true) => wanted.push(Wanted::new(
                    "AuthenticatesToAPIServer",
                    true,
                    "AudienceAccepted",
                    "",
                )),
                Some(false) => wanted.push(Wanted::new(
                    "AuthenticatesToAPIServer",
                    false,
                    "AudienceMissing",
                    "the token will not authenticate to the cluster's API server: spec.audiences does not name its audience",
                )),
            }
            // An earlier report may have failed: another expiry means another token.
            let expires = Some(Time(*expires));
            let renewed = refreshed.is_some() || status.expiration_timestamp != expires;
            status.expiration_timestamp = expires;
            status.secret_digest = Some(digest.clone());
            let before = status
                .token_secret_ref
                .as_ref()
                .map(|at| at.last_refresh_timestamp.0);
            if renewed || before.is_none() {
                status.token_secret_ref = Some(SecretRef {
                    name: account.name_any(),
                    last_refresh_timestamp: Time(distinct(refreshed.unwrap_or(now), before)),
                });
            }
        }
        Report::Expired => {
            wanted.push(present);
            wanted.push(Wanted::new(
                "TokenReported",
                false,
                "TokenExpired",
                "the token has expired, and rotation is disabled for this account",
            ));
        }
        Report::Refused(refusal) => {
            wanted.push(refusal.condition());
            if refusal.withdrawn {
                wanted.push(Wanted::new(
                    "SecretCreated",
                    false,
                    refusal.reason,
                    refusal.message.clone(),
                ));
                status.token_secret_ref = None;
                status.expiration_timestamp = None;
                status.secret_digest = None;
            }
            if refusal.condition != "TokenReported" {
                wanted.push(Wanted::new(
                    "TokenReported",
                    false,
                    refusal.reason,
                    refusal.message.clone(),
                ));
            }
        }
        Report::Failed {
            present: exists,
            message,
        } => {
            if *exists {
                wanted.push(present);
            } else if status.not_own().is_none() {
                // A failure does not take back that the ServiceAccount is foreign: the hub would grant the account's rights
                // to it.
                wanted.push(Wanted::new(
                    CONDITION_PRESENT,
                    false,
                    "ServiceAccountMissing",
                    message.clone(),
                ));
            }
            wanted.push(Wanted::new(
                "TokenReported",
                false,
                "TokenReportFailed",
                message.clone(),
            ));
        }
    }
    for wanted in &wanted {
        condition::set(&mut status.conditions, wanted, generation, now);
    }
    let ignored: &[&str] = if account.spec.rotation.enabled {
        &[]
    } else {
        &["spec.rotation.enabled"]
    };
    condition::set_ignored(&mut status.conditions, ignored, generation, now);
    status
}

/// Consumers notice a new token by this time, which has whole seconds: it must differ from the one before.
fn distinct(now: Timestamp, before: Option<Timestamp>) -> Timestamp {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    match before {
        Some(before) if before.as_second() >= now.as_second() => {
            Timestamp::from_second(before.as_second() + 1).unwrap_or(now)
        }
        _ => now,
    }
}

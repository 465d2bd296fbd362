//! What an account's status says.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use writ_api::authentication::{
    ANNOTATION_FORMER, CONDITION_PRESENT, ManagedServiceAccount, ManagedServiceAccountStatus, SecretRef,
};
use writ_controller::condition::{self, Wanted};

use super::plan::Refusal;

/// What is reported about an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The token is in the Secret.
    Good {
        /// When it expires.
        expires: Timestamp,
        /// The digest of the Secret.
        digest: String,
        /// Set when the token is new.
        refreshed: Option<Timestamp>,
        /// Whether the API server itself accepts it, if audiences were asked for.
        authenticates: Option<bool>,
        /// Why the ServiceAccount of the agent's former namespace is still there.
        left: Option<String>,
        /// Why the Secret lacks keys that were asked for.
        keys: Option<Refusal>,
    },
    /// The token has expired and is not renewed, as was asked for.
    Expired,
    /// Something is wrong with the account itself.
    Refused(Refusal),
    /// A request failed; the ServiceAccount is there or not.
    Failed {
        /// Whether the ServiceAccount is there.
        present: bool,
        /// What was tried, and the answer.
        message: String,
    },
}

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
            left,
            keys,
        } => {
            wanted.push(Wanted::new("SecretCreated", true, "SecretCreated", ""));
            wanted.push(Wanted::new("TokenReported", true, "TokenReported", ""));
            wanted.push(present);
            match left {
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
            // A report that failed is made up for: another expiry is another token.
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
            present: there,
            message,
        } => {
            if *there {
                wanted.push(present);
            } else if status.not_own().is_none() {
                // A look that failed does not take back whose it is: the hub would grant to others what the account gets.
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

/// Times on the wire have whole seconds, and consumers notice a new token by this time: it must differ.
fn distinct(now: Timestamp, before: Option<Timestamp>) -> Timestamp {
    let now = Timestamp::from_second(now.as_second()).unwrap_or(now);
    match before {
        Some(before) if before.as_second() >= now.as_second() => {
            Timestamp::from_second(before.as_second() + 1).unwrap_or(now)
        }
        _ => now,
    }
}

//! What an account asks for, whether the token in its Secret will do, and when it is renewed.

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use writ_api::authentication::{
    ANNOTATION_ADOPT, ANNOTATION_REFUSED, ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS,
    ANNOTATION_TOKEN_REQUEST, CONDITION_PRESENT, KEY_CA, KEY_TOKEN, ManagedServiceAccount, REASON_RESERVED,
    digest, validity,
};
use writ_controller::renewal;

use super::secret;
use crate::{
    token_claims::{self, Claims},
    tokens::model::{Address, Extra, Facts, Refusal, Settings, Verdict, Wish},
};

/// How long a malformed token is left alone: some tools write such a value in passing.
pub const MALFORMED_GRACE: Duration = Duration::from_secs(5);

/// How often a token is reviewed at least; varied by a fifth.
pub const REVIEW_EVERY: Duration = Duration::from_hours(6);

/// Reads what an account asks for, or says which field is wrong.
pub fn wish(account: &ManagedServiceAccount, settings: &Settings) -> Result<Wish, Refusal> {
    let name = account.name_any();
    if settings.reserved.contains(&name) {
        return Err(Refusal::new(
            CONDITION_PRESENT,
            REASON_RESERVED,
            format!(
                "the ServiceAccount {name} of namespace {} belongs to the system; choose another name",
                settings.namespace
            ),
        ));
    }
    let text = &account.spec.rotation.validity;
    let validity = validity::parse(text).map_err(|refused| {
        Refusal::new(
            "TokenReported",
            "InvalidValidity",
            format!("spec.rotation.validity {text:?} {refused}"),
        )
    })?;
    let audiences = account.spec.audiences.clone().unwrap_or_default();
    for (index, audience) in audiences.iter().enumerate() {
        let earlier = audiences.get(..index).unwrap_or_default();
        let wrong = if audience.is_empty() {
            Some("is empty")
        } else if earlier.contains(audience) {
            Some("occurs twice")
        } else {
            None
        };
        if let Some(wrong) = wrong {
            return Err(Refusal::new(
                "TokenReported",
                "InvalidAudience",
                format!("spec.audiences[{index}] {audience:?} {wrong}; remove it"),
            ));
        }
    }
    let annotations = account.annotations();
    if let Some(why) = annotations.get(ANNOTATION_REFUSED) {
        return Err(Refusal::new("SecretCreated", "SecretNotOurs", why.clone()));
    }
    let keys: Vec<&str> = annotations
        .get(ANNOTATION_SECRET_KEYS)
        .map(|keys| {
            keys.split(',')
                .map(str::trim)
                .filter(|key| !key.is_empty())
                .collect()
        })
        .unwrap_or_default();
    let unknown = keys.iter().filter(|key| !["kubeconfig", "argocd"].contains(key));
    Ok(Wish {
        name,
        validity,
        audiences,
        rotate: annotations.get(ANNOTATION_ROTATION).map(String::as_str) != Some("disabled"),
        adopt: annotations.get(ANNOTATION_ADOPT).map(String::as_str) == Some("true"),
        extra: Extra {
            kubeconfig: keys.contains(&"kubeconfig"),
            argocd: keys.contains(&"argocd"),
        },
        unknown_keys: unknown.map(|key| (*key).to_owned()).collect(),
    })
}

/// Why the Secret lacks keys that were asked for.
pub fn keys_missing(wish: &Wish, address: Option<&Address>) -> Option<Refusal> {
    let (reason, message) = if let Some(key) = wish.unknown_keys.first() {
        (
            "UnknownKey",
            format!("the annotation {ANNOTATION_SECRET_KEYS} names {key:?}; there are kubeconfig and argocd"),
        )
    } else if wish.extra.any() && address.is_none() {
        (
            "AddressUnknown",
            "the address of the cluster's API server is not known: set spec.managedClusterClientConfigs of its \
             ManagedCluster, or start its agent with --api-server-url"
                .to_owned(),
        )
    } else {
        return None;
    };
    Some(Refusal::new("SecretKeysWritten", reason, message))
}

/// A foreign Secret has the name.
pub fn secret_not_ours(name: &str) -> Refusal {
    Refusal::new(
        "SecretCreated",
        "SecretNotOurs",
        format!(
            "the Secret {name} exists and was not made for this account; delete it, or set the annotation \
             {ANNOTATION_ADOPT}: \"true\" to overwrite it"
        ),
    )
}

/// Judges the Secret that is on the hub.
pub fn judge(found: Option<&Secret>, facts: &Facts<'_>) -> Verdict {
    let Some(found) = found else {
        return Verdict::Renew("there is no Secret");
    };
    if !secret::is_ours(found, facts.account) && !facts.wish.adopt {
        return Verdict::NotOurs;
    }
    if secret::must_be_replaced(found) {
        return Verdict::Renew("the Secret cannot be changed");
    }
    let Some(token) = found.data.as_ref().and_then(|data| data.get(KEY_TOKEN)) else {
        return Verdict::Malformed;
    };
    let Some(claims) = token_claims::read(&token.0) else {
        return Verdict::Malformed;
    };
    if let Some(why) = outdated(&claims, found.annotations().get(ANNOTATION_TOKEN_REQUEST), facts) {
        return Verdict::Renew(why);
    }
    let wanted = secret::wanted(facts.account, facts.wish, &facts.cluster, &token.0, None);
    let (digest, status) = (digest::of(found), facts.account.status.as_ref());
    // The Secret is as reported but has another CA: the cluster was changed, not the Secret.
    let reported = status.and_then(|status| status.secret_digest.as_ref()) == Some(&digest);
    let same_ca =
        (found.data.iter().flatten()).any(|(key, value)| key == KEY_CA && value.0 == facts.cluster.ca);
    if reported && !same_ca {
        return Verdict::Renew("the cluster has another CA");
    }
    if digest::of(&wanted) == digest {
        Verdict::Good(claims)
    } else {
        Verdict::Repair(claims)
    }
}

/// Why a well-formed token has to be replaced; `None` if it is good.
fn outdated(claims: &Claims, request: Option<&String>, facts: &Facts<'_>) -> Option<&'static str> {
    if claims.subject != token_claims::subject(facts.namespace, &facts.wish.name) {
        return Some("the token is another account's");
    }
    if claims.uid.as_deref().is_some_and(|uid| uid != facts.uid) {
        return Some("the ServiceAccount is a new one");
    }
    let wished = &facts.wish.audiences;
    let same_audiences = wished.len() == claims.audiences.len()
        && wished.iter().all(|audience| claims.audiences.contains(audience));
    match request {
        Some(request) if *request != facts.wish.request() => {
            return Some("the account asks for another token");
        }
        // A Secret of another implementation does not record the request.
        None if !wished.is_empty() && !same_audiences => return Some("the token is for another audience"),
        _ => {}
    }
    is_due(claims, facts).then_some("the token is to be renewed")
}

/// Returns true if a token is due for renewal.
pub fn is_due(claims: &Claims, facts: &Facts<'_>) -> bool {
    facts.wish.rotate && renew_at(claims, facts.account) <= facts.now
}

/// Returns true if a token has expired and is not to be renewed.
pub fn stays_expired(claims: &Claims, facts: &Facts<'_>) -> bool {
    !facts.wish.rotate && claims.expires <= facts.now
}

/// How far a clock that shows `theirs` is ahead of ours. Up to five seconds count as the latency of the request.
pub fn skew(theirs: Timestamp, ours: Timestamp) -> SignedDuration {
    let skew = theirs.duration_since(ours);
    if skew.abs() <= SignedDuration::from_secs(5) {
        SignedDuration::ZERO
    } else {
        skew
    }
}

/// When a token is renewed, by the API server's own times.
pub fn renew_at(claims: &Claims, account: &ManagedServiceAccount) -> Timestamp {
    let seed = (account.uid(), account.namespace(), account.name_any());
    renewal::renew_at(claims.issued, claims.expires, &seed)
}

/// A fingerprint of what a person, or the hub for a person, last wrote to an account: the token is reviewed once for each.
/// The agent's own status does not count.
pub fn input_fingerprint(account: &ManagedServiceAccount) -> u64 {
    let mut hasher = DefaultHasher::new();
    (account.metadata.generation, account.annotations()).hash(&mut hasher);
    hasher.finish()
}

/// When the token is reviewed next: within [`REVIEW_EVERY`], spread over a fifth of it.
pub fn review_at(account: &ManagedServiceAccount, now: Timestamp) -> Timestamp {
    let mut hasher = DefaultHasher::new();
    (account.uid(), now.as_second()).hash(&mut hasher);
    let share = 800 + i64::try_from(hasher.finish() % 201).unwrap_or_default();
    let seconds = i64::try_from(REVIEW_EVERY.as_secs()).unwrap_or(i64::MAX) * share / 1000;
    now.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}

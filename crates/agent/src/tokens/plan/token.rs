//! Decides, without asking anybody: what an account wishes, whether the token in its Secret will do, and when it is to
//! be renewed.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher},
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    api::{
        core::v1::Secret,
        rbac::v1::{PolicyRule, Role},
    },
    apimachinery::pkg::apis::meta::v1::OwnerReference,
};
use kube::ResourceExt;
use writ_api::authentication::{
    ANNOTATION_ADOPT, ANNOTATION_REFUSED, ANNOTATION_ROTATION, ANNOTATION_SECRET_KEYS,
    ANNOTATION_TOKEN_REQUEST, CONDITION_PRESENT, KEY_CA, KEY_TOKEN, ManagedServiceAccount, REASON_RESERVED,
    digest, validity,
};

use writ_controller::{condition::Wanted, renewal};

use super::{
    claims::{self, Claims},
    secret::{self, Address, Cluster},
};

/// How long a token that is no token is left alone: some write such a value in passing.
pub const MALFORMED_GRACE: Duration = Duration::from_secs(5);

/// How often a token is reviewed at least; varied by a fifth.
pub const REVIEW_EVERY: Duration = Duration::from_hours(6);

/// An account, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wish {
    /// The account's name, and the ServiceAccount's.
    pub name: String,
    /// How long a token shall live.
    pub validity: Duration,
    /// For whom it shall be; none means the API server itself.
    pub audiences: Vec<String>,
    /// Whether it is renewed before it expires.
    pub rotate: bool,
    /// Whether a ServiceAccount or Secret of somebody else may be taken over.
    pub adopt: bool,
    /// Further keys of the Secret.
    pub extra: Extra,
    /// Names of further keys that nobody knows.
    pub unknown_keys: Vec<String>,
}

/// Further keys of the Secret.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Extra {
    /// A kubeconfig.
    pub kubeconfig: bool,
    /// The keys of an Argo CD cluster.
    pub argocd: bool,
}

impl Extra {
    /// Whether there are any. They hold the address of the API server.
    pub fn any(self) -> bool {
        self.kubeconfig || self.argocd
    }
}

impl Wish {
    /// What is asked of the managed cluster, as text; a token for another request is renewed.
    pub fn request(&self) -> String {
        let mut audiences = self.audiences.clone();
        audiences.sort();
        format!(
            "validity={}s audiences={}",
            self.validity.as_secs(),
            audiences.join(",")
        )
    }
}

/// Why nothing is done for an account, until it changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The condition that says so.
    pub condition: &'static str,
    /// One word.
    pub reason: &'static str,
    /// What a person reads.
    pub message: String,
    /// Whether the Secret that the account had is gone.
    pub withdrawn: bool,
}

impl Refusal {
    pub(super) fn new(condition: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            condition,
            reason,
            message: message.into(),
            withdrawn: false,
        }
    }

    /// As a condition.
    pub fn condition(&self) -> Wanted {
        Wanted::new(self.condition, false, self.reason, self.message.clone())
    }
}

/// What the agent itself is.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The cluster's name on the hub.
    pub cluster: String,
    /// The agent's namespace, where the ServiceAccounts are.
    pub namespace: String,
    /// ServiceAccounts of that namespace that are never managed.
    pub reserved: Vec<String>,
    /// Where others reach the API server.
    pub url: Option<String>,
    /// The agent's own ServiceAccount, where that is what it runs as: it owns those that it makes, so that they go
    /// with it when the agent is removed from that namespace.
    pub owner: Option<OwnerReference>,
}

/// Reads what an account wishes, or says which field is wrong.
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
            Some("is there twice")
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
            "nobody says where the cluster's API server is reached: set spec.managedClusterClientConfigs of its \
             ManagedCluster, or start its agent with --api-server-url"
                .to_owned(),
        )
    } else {
        return None;
    };
    Some(Refusal::new("SecretKeysWritten", reason, message))
}

/// A Secret of that name is there and is somebody else's.
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

/// The Secrets that the agent's Role on the hub lets it write, by name; `None` if it names none, as that of another hub.
pub fn writable_secrets(role: &Role) -> Option<BTreeSet<String>> {
    let of_secrets = |rule: &&PolicyRule| {
        let has = |list: Option<&Vec<String>>, wanted: &str| {
            list.is_some_and(|list| list.iter().any(|item| item == wanted))
        };
        has(rule.api_groups.as_ref(), "")
            && has(rule.resources.as_ref(), "secrets")
            && has(Some(&rule.verbs), "update")
    };
    let mut writable = BTreeSet::new();
    for rule in role.rules.iter().flatten().filter(of_secrets) {
        let named = rule.resource_names.as_ref().filter(|named| !named.is_empty())?;
        writable.extend(named.iter().cloned());
    }
    Some(writable)
}

/// What is known when a Secret is judged.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The account.
    pub account: &'a ManagedServiceAccount,
    /// What it wishes.
    pub wish: &'a Wish,
    /// The uid of the ServiceAccount.
    pub uid: &'a str,
    /// What is known of the cluster.
    pub cluster: Cluster<'a>,
    /// The agent's namespace.
    pub namespace: &'a str,
    /// The time, by the managed cluster's clock as far as it is known.
    pub now: Timestamp,
}

/// What a Secret needs.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Nothing.
    Good(Claims),
    /// The token is good, the rest is not.
    Repair(Claims),
    /// A new token, because of this.
    Renew(&'static str),
    /// The token is no token; maybe somebody is about to write another one.
    Malformed,
    /// The Secret is somebody else's.
    NotOurs,
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
    let Some(claims) = claims::read(&token.0) else {
        return Verdict::Malformed;
    };
    if let Some(why) = outdated(&claims, found.annotations().get(ANNOTATION_TOKEN_REQUEST), facts) {
        return Verdict::Renew(why);
    }
    let wanted = secret::wanted(facts.account, facts.wish, &facts.cluster, &token.0, None);
    let (digest, status) = (digest::of(found), facts.account.status.as_ref());
    // As it was reported, and with another CA: not the Secret was changed, the cluster was.
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

/// Why a well-formed token will not do; `None` if it will.
fn outdated(claims: &Claims, request: Option<&String>, facts: &Facts<'_>) -> Option<&'static str> {
    if claims.subject != claims::subject(facts.namespace, &facts.wish.name) {
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
        // A Secret of another implementation: it knows no audiences.
        None if !wished.is_empty() && !same_audiences => return Some("the token is for another audience"),
        _ => {}
    }
    is_due(claims, facts).then_some("the token is to be renewed")
}

/// Whether the time of a token has come.
pub fn is_due(claims: &Claims, facts: &Facts<'_>) -> bool {
    facts.wish.rotate && renew_at(claims, facts.account) <= facts.now
}

/// Whether a token is left expired, because it shall not be renewed.
pub fn stays_expired(claims: &Claims, facts: &Facts<'_>) -> bool {
    !facts.wish.rotate && claims.expires <= facts.now
}

/// How far a clock that shows `theirs` is ahead of ours. A few seconds are the way of the request.
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

/// What a person, or the hub for a person, has last done to an account: its token is reviewed once for each such event.
/// What the agent itself reports is none.
pub fn event(account: &ManagedServiceAccount) -> u64 {
    let mut hasher = DefaultHasher::new();
    (account.metadata.generation, account.annotations()).hash(&mut hasher);
    hasher.finish()
}

/// When the token is reviewed next: within [`REVIEW_EVERY`], not all at once.
pub fn review_at(account: &ManagedServiceAccount, now: Timestamp) -> Timestamp {
    let mut hasher = DefaultHasher::new();
    (account.uid(), now.as_second()).hash(&mut hasher);
    let share = 800 + i64::try_from(hasher.finish() % 201).unwrap_or_default();
    let seconds = i64::try_from(REVIEW_EVERY.as_secs()).unwrap_or(i64::MAX) * share / 1000;
    now.saturating_add(SignedDuration::from_secs(seconds))
        .unwrap_or(Timestamp::MAX)
}

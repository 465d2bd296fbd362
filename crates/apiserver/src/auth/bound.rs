//! Tokens that are asked for: they end, are for an audience, and may live as long as an object.

use serde::{Deserialize, Serialize};

use super::User;
use super::issuer::ISSUER;
use super::user::account_name;
use crate::clock::Clock;
use crate::store::{Store, key_of, new_uid, uid_of};

/// Clocks of a cluster may differ by this much.
const LEEWAY: i64 = 60;
/// How many seconds kubelets ask for: an hour, and a few by which they are known.
const KUBELETS: i64 = 3607;
const YEAR: i64 = 365 * 24 * 3600;

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Claims {
    pub aud: Vec<String>,
    exp: i64,
    iat: i64,
    iss: String,
    jti: String,
    #[serde(rename = "kubernetes.io")]
    private: Private,
    nbf: i64,
    sub: String,
}

#[derive(Debug, Default, Clone, Serialize, Deserialize)]
struct Private {
    namespace: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<Bound>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pod: Option<Bound>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<Bound>,
    serviceaccount: Bound,
    /// From when on it should have been replaced by a newer one.
    #[serde(skip_serializing_if = "Option::is_none")]
    warnafter: Option<i64>,
}

/// An object whose life a token shares.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bound {
    pub name: String,
    /// Empty for the node of a pod that is not there.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// What a token is to be.
#[derive(Debug, Default)]
pub(crate) struct TokenWish {
    pub namespace: String,
    pub account: Bound,
    pub audiences: Vec<String>,
    pub seconds: i64,
    pub pod: Option<Bound>,
    pub secret: Option<Bound>,
    pub node: Option<Bound>,
}

impl Claims {
    /// The claims of a new token, and the end that is told, in seconds since 1970.
    pub fn new(wish: TokenWish, clock: &Clock) -> (Self, i64) {
        let now = clock.now().as_second();
        let told = now + wish.seconds;
        // Programs in pods may not know yet that tokens end: those that kubelets ask for live on for a year.
        let longer = wish.pod.is_some()
            && wish.seconds == KUBELETS
            && wish.audiences.iter().all(|audience| audience == ISSUER);
        let claims = Self {
            aud: wish.audiences,
            exp: if longer { now + YEAR } else { told },
            iat: now,
            iss: ISSUER.into(),
            jti: new_uid(),
            sub: account_name(&wish.namespace, &wish.account.name),
            private: Private {
                namespace: wish.namespace,
                node: wish.node,
                pod: wish.pod,
                secret: wish.secret,
                serviceaccount: wish.account,
                warnafter: longer.then_some(told),
            },
            nbf: now,
        };
        (claims, told)
    }

    /// The user, as long as the token and what it is bound to live.
    pub fn check(self, store: &Store, clock: &Clock) -> Result<User, &'static str> {
        let now = clock.now().as_second();
        if now > self.exp + LEEWAY {
            return Err("service account token has expired");
        }
        if self.nbf > now + LEEWAY || self.iat > now + LEEWAY {
            return Err("service account token is not valid yet");
        }
        let Private {
            namespace,
            node,
            pod,
            secret,
            serviceaccount,
            warnafter: _,
        } = self.private;
        if self.sub != account_name(&namespace, &serviceaccount.name) {
            return Err("the subject and the private claim differ");
        }
        alive(store, "serviceaccounts", &namespace, &serviceaccount, now)?;
        let mut user = User::service_account(&namespace, &serviceaccount.name, &serviceaccount.uid);
        let mut extra = |name: &str, value: &str| {
            user.extra.insert(
                format!("authentication.kubernetes.io/{name}"),
                vec![value.to_owned()],
            );
        };
        extra("credential-id", &format!("JTI={}", self.jti));
        if let Some(secret) = secret {
            alive(store, "secrets", &namespace, &secret, now)?;
        }
        if let Some(pod) = &pod {
            alive(store, "pods", &namespace, pod, now)?;
            extra("pod-name", &pod.name);
            extra("pod-uid", &pod.uid);
        }
        if let Some(node) = node {
            // With a pod, the node only says where it runs; alone, it is what the token lives as long as.
            if pod.is_none() {
                alive(store, "nodes", "", &node, now)?;
            }
            extra("node-name", &node.name);
            if !node.uid.is_empty() {
                extra("node-uid", &node.uid);
            }
        }
        Ok(user)
    }
}

/// A token lives as long as what it is bound to; one that is being deleted counts as gone a minute later.
fn alive(store: &Store, table: &str, namespace: &str, bound: &Bound, now: i64) -> Result<(), &'static str> {
    let why = "service account token has been invalidated";
    let object = store.get(table, &key_of(namespace, &bound.name)).ok_or(why)?;
    if object.uid != uid_of(&bound.uid) {
        return Err(why);
    }
    if object.deleting {
        let value = object.value();
        let since = value
            .pointer("/metadata/deletionTimestamp")
            .and_then(serde_json::Value::as_str);
        let since = since.and_then(|text| text.parse::<jiff::Timestamp>().ok());
        if since.is_none_or(|since| now > since.as_second() + LEEWAY) {
            return Err(why);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kubelets_ask_for_lives_for_a_year() {
        let (own, other) = (ISSUER.to_owned(), "other".to_owned());
        for (seconds, pod, audiences, life) in [
            (3607, true, vec![own.clone()], YEAR),
            (3607, false, vec![own.clone()], 3607),
            (3608, true, vec![own.clone()], 3608),
            (3607, true, vec![own.clone(), other.clone()], 3607),
            (3607, true, vec![other], 3607),
        ] {
            let wish = TokenWish {
                seconds,
                pod: pod.then(Bound::default),
                audiences,
                ..TokenWish::default()
            };
            let (claims, told) = Claims::new(wish, &Clock::default());
            assert_eq!(claims.exp, claims.iat + life);
            assert_eq!(told, claims.iat + seconds);
            let warning = claims.private.warnafter;
            assert_eq!(warning, (life == YEAR).then_some(claims.iat + seconds));
        }
    }
}

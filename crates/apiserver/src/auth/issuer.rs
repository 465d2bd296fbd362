//! Tokens of ServiceAccounts: signed ES256, bound to objects, checked against the store and the server's clock.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use super::User;
use crate::clock::Clock;
use crate::store::{Store, key_of, new_uid, uid_of};

/// The issuer that kube-apiserver is given in most clusters; also the default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Clocks of a cluster may differ by this much.
const LEEWAY: i64 = 60;
/// How many seconds kubelets ask for: an hour, and a few by which they are known.
const KUBELETS: i64 = 3607;
const YEAR: i64 = 365 * 24 * 3600;
/// What is said of a token that nobody knows.
pub(crate) const INVALID: &str = "invalid bearer token";
/// Reads what the real server reads: bits that belong to no byte may be anything.
pub(super) const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(base64::engine::DecodePaddingMode::RequireNone)
        .with_encode_padding(false),
);

#[derive(Debug, Clone, Serialize, Deserialize)]
struct Claims {
    aud: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exp: Option<i64>,
    iat: i64,
    iss: String,
    #[serde(default)]
    jti: String,
    #[serde(rename = "kubernetes.io")]
    private: Private,
    #[serde(default)]
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
    /// Forever, for the tokens in Secrets.
    pub seconds: Option<i64>,
    pub pod: Option<Bound>,
    pub secret: Option<Bound>,
    pub node: Option<Bound>,
}

/// Signs tokens and checks them.
pub(crate) struct Issuer {
    encoding: EncodingKey,
    decoding: DecodingKey,
    /// The public key, for those who check tokens themselves.
    pub jwk: serde_json::Value,
    key_id: String,
    /// The claims of tokens whose signature was checked, by the hash of the token: checking takes longer than most
    /// requests, and a signature stays good. Times and what the token is bound to are looked at each time.
    checked: Mutex<HashMap<[u8; 32], Claims>>,
}

/// How many checked tokens are remembered.
const CHECKED: usize = 1024;

impl Issuer {
    /// From a key pair of the curve P-256.
    pub fn new(key: &rcgen::KeyPair) -> Result<Self, String> {
        use sha2::Digest;
        let base64 = URL_SAFE_NO_PAD;
        let encoding =
            EncodingKey::from_ec_pem(key.serialize_pem().as_bytes()).map_err(|error| error.to_string())?;
        let decoding =
            DecodingKey::from_ec_pem(key.public_key_pem().as_bytes()).map_err(|error| error.to_string())?;
        let key_id = base64.encode(sha2::Sha256::digest(key.public_key_raw()));
        // An uncompressed point: 4, then x and y.
        let point = key.public_key_raw();
        let jwk = serde_json::json!({
            "use": "sig", "kty": "EC", "kid": key_id, "crv": "P-256", "alg": "ES256",
            "x": base64.encode(point.get(1..33).unwrap_or_default()),
            "y": base64.encode(point.get(33..65).unwrap_or_default()),
        });
        Ok(Self {
            encoding,
            decoding,
            jwk,
            key_id,
            checked: Mutex::default(),
        })
    }

    /// Signs a token; returns it with the end that is told, in seconds since 1970.
    pub fn sign(&self, wish: TokenWish, clock: &Clock) -> Result<(String, i64), String> {
        let now = clock.now().as_second();
        let told = wish.seconds.map(|seconds| now + seconds);
        // Programs in pods may not know yet that tokens end: those that kubelets ask for live on for a year.
        let longer = wish.pod.is_some()
            && wish.seconds == Some(KUBELETS)
            && wish.audiences.iter().all(|audience| audience == ISSUER);
        let (exp, warnafter) = if longer {
            (Some(now + YEAR), told)
        } else {
            (told, None)
        };
        let claims = Claims {
            aud: wish.audiences,
            exp,
            iat: now,
            iss: ISSUER.into(),
            jti: new_uid(),
            sub: format!("system:serviceaccount:{}:{}", wish.namespace, wish.account.name),
            private: Private {
                namespace: wish.namespace,
                node: wish.node,
                pod: wish.pod,
                secret: wish.secret,
                serviceaccount: wish.account,
                warnafter,
            },
            nbf: now,
        };
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.key_id.clone());
        header.typ = None;
        let token =
            jsonwebtoken::encode(&header, &claims, &self.encoding).map_err(|error| error.to_string())?;
        Ok((token, told.unwrap_or(i64::MAX)))
    }

    /// Whether a token claims to be one of ours, so that no other authenticator need look at it.
    pub fn claims(token: &str) -> bool {
        #[derive(Deserialize)]
        struct Issued {
            iss: String,
        }
        let parts: Vec<&str> = token.split('.').collect();
        let [_, claims, _] = parts.as_slice() else {
            return false;
        };
        let claims = LENIENT.decode(claims.replace(['\r', '\n'], ""));
        claims.is_ok_and(|bytes| serde_json::from_slice::<Issued>(&bytes).is_ok_and(|it| it.iss == ISSUER))
    }

    /// The claims of a token that this issuer signed.
    fn verify(&self, token: &str) -> Result<Claims, &'static str> {
        use sha2::Digest;
        let key: [u8; 32] = sha2::Sha256::digest(token).into();
        let checked = || self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(claims) = checked().get(&key) {
            return Ok(claims.clone());
        }
        let mut validation = Validation::new(Algorithm::ES256);
        // Times are checked by the server's own clock.
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation.validate_aud = false;
        validation.required_spec_claims.clear();
        validation.set_issuer(&[ISSUER]);
        let spelled = spelled_strictly(token).ok_or(INVALID)?;
        let claims = jsonwebtoken::decode::<Claims>(spelled, &self.decoding, &validation)
            .map_err(|error| match error.kind() {
                ErrorKind::InvalidSignature => "go-jose/go-jose: error in cryptographic primitive",
                _ => INVALID,
            })?
            .claims;
        let mut checked = checked();
        if checked.len() >= CHECKED {
            checked.clear();
        }
        checked.insert(key, claims.clone());
        Ok(claims)
    }

    /// The user of a token that is good for one of `audiences`, and those it is good for.
    pub fn check(
        &self,
        token: &str,
        audiences: &[String],
        store: &Store,
        clock: &Clock,
    ) -> Result<(User, Vec<String>), Cow<'static, str>> {
        let claims = self.verify(token)?;
        let now = clock.now().as_second();
        if claims.exp.is_some_and(|exp| now > exp + LEEWAY) {
            return Err("service account token has expired".into());
        }
        if claims.nbf > now + LEEWAY || claims.iat > now + LEEWAY {
            return Err("service account token is not valid yet".into());
        }
        let good: Vec<String> = audiences
            .iter()
            .filter(|wanted| claims.aud.contains(wanted))
            .cloned()
            .collect();
        if good.is_empty() {
            return Err(no_audience(&claims.aud, audiences));
        }
        let Private {
            namespace,
            node,
            pod,
            secret,
            serviceaccount,
            warnafter: _,
        } = claims.private;
        if claims.sub != format!("system:serviceaccount:{namespace}:{}", serviceaccount.name) {
            return Err("the subject and the private claim differ".into());
        }
        alive(store, "serviceaccounts", &namespace, &serviceaccount, now)?;
        let mut user = User::service_account(&namespace, &serviceaccount.name, &serviceaccount.uid);
        let mut extra = |name: &str, value: &str| {
            user.extra.insert(
                format!("authentication.kubernetes.io/{name}"),
                vec![value.to_owned()],
            );
        };
        match (claims.exp, secret) {
            // A token that does not end is one of those kept in a Secret, and is told by no id.
            (None, Some(secret)) => super::kept::check(store, &namespace, &secret.name, token)?,
            (_, secret) => {
                extra("credential-id", &format!("JTI={}", claims.jti));
                if let Some(secret) = secret {
                    alive(store, "secrets", &namespace, &secret, now)?;
                }
            }
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
        Ok((user, good))
    }
}

/// What is said of a token for others.
pub(super) fn no_audience(of: &[String], wanted: &[String]) -> Cow<'static, str> {
    let list = |all: &[String]| {
        let all: Vec<String> = all.iter().map(|one| format!("{one:?}")).collect();
        all.join(" ")
    };
    format!(
        "token audiences [{}] is invalid for the target audiences [{}]",
        list(of),
        list(wanted)
    )
    .into()
}

/// A token as the real server reads it: blanks are nothing, nor are bits of the last letter that belong to no byte.
fn spelled_strictly(token: &str) -> Option<String> {
    let token: String = token.chars().filter(|c| !c.is_whitespace()).collect();
    let (signed, signature) = token.rsplit_once('.')?;
    let signature = URL_SAFE_NO_PAD.encode(LENIENT.decode(signature).ok()?);
    Some(format!("{signed}.{signature}"))
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
        let issuer = Issuer::new(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let (own, other) = (ISSUER.to_owned(), "other".to_owned());
        for (seconds, pod, audiences, life) in [
            (3607, true, vec![own.clone()], YEAR),
            (3607, false, vec![own.clone()], 3607),
            (3608, true, vec![own.clone()], 3608),
            (3607, true, vec![own.clone(), other.clone()], 3607),
            (3607, true, vec![other], 3607),
        ] {
            let wish = TokenWish {
                seconds: Some(seconds),
                pod: pod.then(Bound::default),
                audiences,
                ..TokenWish::default()
            };
            let (token, told) = issuer.sign(wish, &Clock::default()).unwrap();
            let claims = issuer.verify(&token).unwrap();
            assert_eq!(claims.exp, Some(claims.iat + life));
            assert_eq!(told, claims.iat + seconds);
            let warning = claims.private.warnafter;
            assert_eq!(warning, (life == YEAR).then_some(claims.iat + seconds));
        }
    }
}

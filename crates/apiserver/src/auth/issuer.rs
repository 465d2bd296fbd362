//! Tokens of ServiceAccounts: signed ES256, and checked.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, URL_SAFE_NO_PAD};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

use super::bound::{self, Bound, TokenWish};
use super::{User, kept};
use crate::clock::Clock;
use crate::state::State;

/// The issuer that kube-apiserver is given in most clusters; also the default audience.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
const ISSUERS: [&str; 2] = [ISSUER, kept::ISSUER];
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

/// What a token says.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Claims {
    Kept(kept::Claims),
    Bound(Box<bound::Claims>),
}

/// Who sent a token.
pub(crate) struct Known {
    pub user: User,
    /// Those of the audiences asked for that it is good for.
    pub audiences: Vec<String>,
    /// What its owner should know.
    pub warning: Option<&'static str>,
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

impl Known {
    pub fn new(user: User, audiences: Vec<String>) -> Self {
        Self {
            user,
            audiences,
            warning: None,
        }
    }
}

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

    /// A token that was asked for, with the end that is told, in seconds since 1970.
    pub fn issue(&self, wish: TokenWish, clock: &Clock) -> Result<(String, i64), String> {
        let (claims, told) = bound::Claims::new(wish, clock);
        Ok((self.sign(&claims)?, told))
    }

    /// A token to be kept in a Secret.
    pub fn issue_kept(&self, namespace: &str, secret: &str, account: &Bound) -> Result<String, String> {
        self.sign(&kept::Claims::new(namespace, secret, account))
    }

    fn sign(&self, claims: &impl Serialize) -> Result<String, String> {
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(self.key_id.clone());
        header.typ = None;
        jsonwebtoken::encode(&header, claims, &self.encoding).map_err(|error| error.to_string())
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
        claims.is_ok_and(|bytes| {
            serde_json::from_slice::<Issued>(&bytes).is_ok_and(|it| ISSUERS.contains(&it.iss.as_str()))
        })
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
        validation.set_issuer(&ISSUERS);
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

    /// Who sent a token that is good for one of `audiences`.
    pub fn check(
        &self,
        token: &str,
        audiences: &[String],
        state: &State,
    ) -> Result<Known, Cow<'static, str>> {
        let claims = self.verify(token)?;
        let own = [ISSUER.to_owned()];
        let of = match &claims {
            Claims::Kept(_) => own.as_slice(),
            Claims::Bound(claims) => &claims.aud,
        };
        let good: Vec<String> = audiences
            .iter()
            .filter(|wanted| of.contains(wanted))
            .cloned()
            .collect();
        if good.is_empty() {
            return Err(no_audience(of, audiences));
        }
        let (user, warning) = match claims {
            Claims::Kept(claims) => claims.check(token, state)?,
            Claims::Bound(claims) => (claims.check(&state.store, &state.clock)?, None),
        };
        Ok(Known {
            warning,
            ..Known::new(user, good)
        })
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

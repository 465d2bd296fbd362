//! Pure: keys, certificate requests, and what an identity says about itself.

use std::{collections::BTreeMap, fmt::Write};

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::certificates::v1::{CertificateSigningRequest, CertificateSigningRequestSpec},
};
use kube::{
    api::ObjectMeta,
    config::{AuthInfo, Cluster, Context, Kubeconfig, NamedAuthInfo, NamedCluster, NamedContext},
};
use rand::RngExt;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData};
use sha2::{Digest, Sha256};
use writ_api::cluster::CLUSTER_NAME_LABEL;
use writ_controller::Error;

use crate::token_claims;

/// The signer of client certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// The user of a cluster's agent.
pub fn user(cluster: &str, agent: &str) -> String {
    format!("system:open-cluster-management:{cluster}:{agent}")
}

/// A new private key, in PEM.
pub fn new_key() -> Result<String, Error> {
    let key = KeyPair::generate().map_err(|e| Error::io("make a key", e))?;
    Ok(key.serialize_pem())
}

/// A random name for this agent.
pub fn new_agent_name() -> String {
    let mut random = rand::rng();
    (0..8)
        .map(|_| char::from(random.random_range(b'a'..=b'z')))
        .collect()
}

/// The certificate request of an agent, for a key that it holds.
pub fn request(cluster: &str, agent: &str, key: &str) -> Result<CertificateSigningRequest, Error> {
    let meta = ObjectMeta {
        generate_name: Some(format!("{cluster}-")),
        labels: Some([(CLUSTER_NAME_LABEL.to_owned(), cluster.to_owned())].into()),
        ..ObjectMeta::default()
    };
    let group = format!("system:open-cluster-management:{cluster}");
    request_for(meta, &user(cluster, agent), &[group], key)
}

/// The request for a client certificate of a user, for a key that the requester holds.
pub fn request_for(
    metadata: ObjectMeta,
    user: &str,
    groups: &[String],
    key: &str,
) -> Result<CertificateSigningRequest, Error> {
    let failed = |e: rcgen::Error| Error::io("make a certificate request", e);
    let key = KeyPair::from_pem(key).map_err(failed)?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    let pem = params
        .serialize_request(&key)
        .and_then(|request| request.pem())
        .map_err(failed)?;
    Ok(CertificateSigningRequest {
        metadata,
        spec: CertificateSigningRequestSpec {
            request: ByteString(pem.into_bytes()),
            signer_name: SIGNER.into(),
            usages: Some(
                ["digital signature", "key encipherment", "client auth"]
                    .map(str::to_owned)
                    .into(),
            ),
            ..CertificateSigningRequestSpec::default()
        },
        status: None,
    })
}

/// From when to when an identity is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetime {
    /// From when.
    pub from: Timestamp,
    /// To when.
    pub until: Timestamp,
}

/// The subject of a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    /// The user.
    pub user: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// The lifetime and the subject of a certificate in PEM.
pub fn certificate(pem: &str) -> Option<(Lifetime, Subject)> {
    let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let validity = certificate.validity();
    let name = certificate.subject();
    let text = |value: &x509_parser::x509::AttributeTypeAndValue| value.as_str().map(str::to_owned).ok();
    let subject = Subject {
        user: text(name.iter_common_name().next()?)?,
        groups: name.iter_organization().map(text).collect::<Option<_>>()?,
    };
    let lifetime = Lifetime {
        from: Timestamp::from_second(validity.not_before.timestamp()).ok()?,
        until: Timestamp::from_second(validity.not_after.timestamp()).ok()?,
    };
    Some((lifetime, subject))
}

/// Returns true if a certificate is for this key, both in PEM.
pub fn belong_together(certificate: &str, key: &str) -> bool {
    let public = |pem: &str| {
        let (_, pem) = x509_parser::pem::parse_x509_pem(pem.as_bytes()).ok()?;
        Some(pem.parse_x509().ok()?.public_key().raw.to_vec())
    };
    let key = KeyPair::from_pem(key).ok();
    key.is_some_and(|key| public(certificate) == Some(key.subject_public_key_info()))
}

/// SHA-256 of the public key that belongs to a private key in PEM: what a person compares with `writ accept`.
pub fn fingerprint(key: &str) -> Result<String, Error> {
    let key = KeyPair::from_pem(key).map_err(|e| Error::io("read a key", e))?;
    let digest = Sha256::digest(key.subject_public_key_info());
    Ok(digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// The address of the hub in a kubeconfig.
pub fn server(config: &Kubeconfig) -> Option<&str> {
    cluster(config).ok()?.server.as_deref()
}

/// The hub of a kubeconfig.
pub fn cluster(config: &Kubeconfig) -> Result<&Cluster, Error> {
    let invalid = |what: &str| Error::Invalid(format!("the kubeconfig of the hub has no {what}"));
    let current = config
        .current_context
        .as_ref()
        .ok_or_else(|| invalid("current context"))?;
    let context = config
        .contexts
        .iter()
        .find(|c| c.name == *current)
        .and_then(|c| c.context.as_ref())
        .ok_or_else(|| invalid("context of that name"))?;
    config
        .clusters
        .iter()
        .find(|c| c.name == context.cluster)
        .and_then(|c| c.cluster.as_ref())
        .ok_or_else(|| invalid("cluster of that context"))
}

/// The user of a ServiceAccount token, as it says itself.
pub fn token_subject(token: &str) -> Option<String> {
    Some(token_claims::read(token.as_bytes())?.subject)
}

/// The uid of the account of a ServiceAccount token, as it says itself.
pub fn token_account_uid(token: &str) -> Option<String> {
    token_claims::read(token.as_bytes())?.uid
}

/// The lifetime of a ServiceAccount token, as it says itself.
pub fn token(token: &str) -> Option<Lifetime> {
    let claims = token_claims::read(token.as_bytes())?;
    Some(Lifetime {
        from: claims.issued,
        until: claims.expires,
    })
}

/// A kubeconfig for the hub of `bootstrap` with another identity; it refers to no file but the hub's CA.
pub fn kubeconfig(bootstrap: &Kubeconfig, auth: AuthInfo) -> Result<Kubeconfig, Error> {
    Ok(kubeconfig_of(cluster(bootstrap)?.clone(), auth))
}

/// A kubeconfig for one hub and one identity.
pub fn kubeconfig_of(hub: Cluster, auth: AuthInfo) -> Kubeconfig {
    Kubeconfig {
        clusters: vec![NamedCluster {
            name: "default-cluster".into(),
            cluster: Some(hub),
            other: BTreeMap::default(),
        }],
        auth_infos: vec![NamedAuthInfo {
            name: "default-auth".into(),
            auth_info: Some(auth),
            other: BTreeMap::default(),
        }],
        contexts: vec![NamedContext {
            name: "default-context".into(),
            context: Some(Context {
                cluster: "default-cluster".into(),
                user: Some("default-auth".into()),
                ..Context::default()
            }),
            other: BTreeMap::default(),
        }],
        current_context: Some("default-context".into()),
        ..Kubeconfig::default()
    }
}

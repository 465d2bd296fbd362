//! The Secret on the hub: how it must look, and whether an existing one is ours.

use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::STANDARD};
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret, apimachinery::pkg::apis::meta::v1::OwnerReference};
use kube::{ResourceExt, api::ObjectMeta};
use serde_json::{Value, json};
use writ_api::authentication::{
    ANNOTATION_EXPIRATION, ANNOTATION_LAST_REFRESH, ANNOTATION_TOKEN_REQUEST, GROUP, KEY_CA, KEY_TOKEN,
    LABEL_MANAGED, ManagedServiceAccount, digest,
};
use writ_controller::condition;

use crate::tokens::model::{Address, Cluster, Wish};

/// The type of the Secret.
pub const TYPE: &str = "Opaque";

/// The Secret of an account, around its token.
pub fn wanted(
    account: &ManagedServiceAccount,
    wish: &Wish,
    cluster: &Cluster<'_>,
    token: &[u8],
    times: Option<(Timestamp, Timestamp)>,
) -> Secret {
    let mut annotations = BTreeMap::new();
    if let Some((expires, refreshed)) = times {
        annotations.insert(ANNOTATION_TOKEN_REQUEST.to_owned(), wish.request());
        annotations.insert(ANNOTATION_EXPIRATION.to_owned(), expires.to_string());
        annotations.insert(ANNOTATION_LAST_REFRESH.to_owned(), refreshed.to_string());
    }
    Secret {
        metadata: ObjectMeta {
            name: Some(account.name_any()),
            namespace: account.namespace(),
            labels: Some([(LABEL_MANAGED.to_owned(), "true".to_owned())].into()),
            annotations: Some(annotations),
            owner_references: Some(vec![owner(account)]),
            ..ObjectMeta::default()
        },
        type_: Some(TYPE.into()),
        data: Some(data(wish, cluster, token)),
        ..Secret::default()
    }
}

fn owner(account: &ManagedServiceAccount) -> OwnerReference {
    OwnerReference {
        api_version: format!("{GROUP}/v1beta1"),
        kind: "ManagedServiceAccount".into(),
        name: account.name_any(),
        uid: account.uid().unwrap_or_default(),
        controller: None,
        block_owner_deletion: None,
    }
}

/// The keys of the Secret.
fn data(wish: &Wish, cluster: &Cluster<'_>, token: &[u8]) -> BTreeMap<String, ByteString> {
    let mut data = BTreeMap::new();
    let mut put = |key: &str, value: Vec<u8>| {
        data.insert(key.to_owned(), ByteString(value));
    };
    put(KEY_TOKEN, token.to_vec());
    put(KEY_CA, cluster.ca.to_vec());
    let text = String::from_utf8_lossy(token);
    if let Some(Address { url, ca }) = cluster.address {
        let ca = STANDARD.encode(ca.as_deref().unwrap_or(cluster.ca));
        if wish.extra.kubeconfig {
            put("kubeconfig", kubeconfig(wish, cluster.name, url, &ca, &text));
        }
        if wish.extra.argocd {
            put("name", cluster.name.into());
            put("server", url.clone().into_bytes());
            let config =
                json!({ "bearerToken": text, "tlsClientConfig": { "insecure": false, "caData": ca } });
            put("config", config.to_string().into_bytes());
        }
    }
    data
}

/// A kubeconfig, as JSON, which is YAML too.
fn kubeconfig(wish: &Wish, cluster: &str, url: &str, ca: &str, token: &str) -> Vec<u8> {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": cluster,
        "clusters": [{ "name": cluster, "cluster": { "server": url, "certificate-authority-data": ca } }],
        "users": [{ "name": wish.name, "user": { "token": token } }],
        "contexts": [{ "name": cluster, "context": { "cluster": cluster, "user": wish.name } }],
    })
    .to_string()
    .into_bytes()
}

/// Returns true if the Secret was made for this account: it says so, or the account's status does.
pub fn is_ours(secret: &Secret, account: &ManagedServiceAccount) -> bool {
    let owned = secret.owner_references().iter().any(|owner| {
        owner.kind == "ManagedServiceAccount"
            && owner.api_version.starts_with(GROUP)
            && owner.name == account.name_any()
    });
    let labelled = secret
        .labels()
        .get(LABEL_MANAGED)
        .is_some_and(|value| value == "true");
    let reported = account.status.as_ref().is_some_and(|status| {
        status.token_secret_ref.is_some() && condition::is_true(&status.conditions, "SecretCreated")
    });
    owned || labelled || reported
}

/// Returns true if the Secret can only be recreated, because its type or data is immutable.
pub fn must_be_replaced(secret: &Secret) -> bool {
    secret.type_.as_deref().unwrap_or(TYPE) != TYPE || secret.immutable == Some(true)
}

/// A merge patch that brings the Secret into shape; labels, annotations and keys of others stay.
pub fn patch(current: Option<&Secret>, wanted: &Secret) -> Result<Value, serde_json::Error> {
    let mut patch = serde_json::to_value(wanted)?;
    if let Some(Value::Object(data)) = patch.get_mut("data") {
        let have = current.and_then(|secret| secret.data.as_ref());
        for key in digest::KEYS {
            let stale = have.is_none_or(|have| have.contains_key(key));
            if stale && !data.contains_key(key) {
                data.insert(key.into(), Value::Null);
            }
        }
    }
    if let (Some(Value::Object(metadata)), Some(uid)) =
        (patch.get_mut("metadata"), current.and_then(Secret::uid))
    {
        metadata.insert("uid".into(), Value::String(uid));
    }
    Ok(patch)
}

//! What the agent's Role on the hub says: which Secrets it may write, and the address of the cluster's API server.

use base64::{Engine, engine::general_purpose::STANDARD};
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use kube::ResourceExt;
use std::collections::BTreeSet;
use writ_api::authentication::{ANNOTATION_API_SERVER_CA, ANNOTATION_API_SERVER_URL};

use crate::tokens::model::Address;

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

/// The address of the cluster's API server for consumers of tokens, as the hub tells it.
pub fn address(role: &Role) -> Option<Address> {
    let annotation = |key| role.annotations().get(key).filter(|value| !value.is_empty());
    Some(Address {
        url: annotation(ANNOTATION_API_SERVER_URL)?.clone(),
        ca: annotation(ANNOTATION_API_SERVER_CA).and_then(|ca| STANDARD.decode(ca).ok()),
    })
}

//! What depends on kinds that have not been read stays as the works carry it now, and the rest follows the spec: absence
//! revokes, a failed read never does.

use k8s_openapi::api::rbac::v1::{PolicyRule, Subject};

use super::manifest;
use crate::cluster_permission::model::{Body, Content, ObjectId, Observation};

/// The subjects of a binding: the known ones, and of the accounts that could not be resolved those that the object has now.
pub fn subjects_before(
    seen: &Observation,
    id: &ObjectId,
    known: &[Subject],
    accounts: &[String],
) -> Vec<Subject> {
    let carried = match carried_content(seen, id) {
        Some(Content::Binding(_, subjects)) => subjects,
        Some(Content::Rules(_)) | None => Vec::new(),
    };
    let before = carried.into_iter().filter(|subject| {
        subject.kind == "ServiceAccount" && accounts.contains(&subject.name) && !known.contains(subject)
    });
    known.iter().cloned().chain(before).collect()
}

/// The rules of a role.
pub fn rules_before(seen: &Observation, id: &ObjectId) -> Option<Vec<PolicyRule>> {
    match carried_content(seen, id)? {
        Content::Rules(rules) => Some(rules),
        Content::Binding(..) => None,
    }
}

/// The namespaces of the objects of this kind and name.
pub fn namespaces_before(seen: &Observation, kind: &str, name: &str) -> Vec<String> {
    let ids = seen.manifests().map(manifest::id);
    ids.filter(|id| &*id.kind == kind && &*id.name.name == name)
        .map(|id| id.name.namespace.to_string())
        .collect()
}

fn carried_content(seen: &Observation, id: &ObjectId) -> Option<Content> {
    let manifest = seen.manifests().find(|manifest| manifest::id(manifest) == *id)?;
    match manifest::read(manifest)?.body {
        Body::Object(content) => Some(content),
        Body::Grant(grant) => Some(grant.content),
        Body::Stub => None,
    }
}

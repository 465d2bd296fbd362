//! Pure: which grant or work an object in a namespace belongs to.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use writ_api::work::AppliedManifestWork;

use super::{
    model::{Live, RBAC_GROUP, WRITER},
    object::Object,
};
use crate::owner::{is_applied_work, is_grant};

/// Returns true if a grant made the object. It stays the grant's, whatever is removed from it: the server records the writer
/// of its fields, and `known` says that it was a grant's before.
pub fn is_granted(meta: &ObjectMeta, known: bool) -> bool {
    known
        || is_written(meta.managed_fields.as_deref())
        || meta.owner_references.iter().flatten().any(is_grant)
}

/// What the object is; see [`is_granted`].
pub fn classify(mut object: Object, known: bool) -> Live {
    let ours = is_granted(object.meta(), known);
    let meta = object.meta_mut();
    meta.managed_fields = None;
    if meta.owner_references.iter().flatten().any(is_applied_work) {
        Live::Delivered { object, ours }
    } else if ours {
        Live::Granted(object)
    } else {
        Live::Foreign
    }
}

/// Returns true if a work's record says that it delivers this object.
pub fn confirms(record: &AppliedManifestWork, object: &Object) -> bool {
    let (meta, resource) = (object.meta(), object.resource());
    let recorded = record.status.iter().flat_map(|status| &status.applied_resources);
    recorded.into_iter().any(|known| {
        known.group == RBAC_GROUP
            && known.resource == resource
            && Some(&known.namespace) == meta.namespace.as_ref()
            && Some(&known.name) == meta.name.as_ref()
            && Some(&known.uid) == meta.uid.as_ref()
    })
}

/// The works that an object says it belongs to.
pub fn works(object: &Object) -> impl Iterator<Item = &OwnerReference> {
    let owners = object.meta().owner_references.iter().flatten();
    owners.filter(|owner| is_applied_work(owner))
}

/// The work that carried the grant which made an object: grants are named after it.
pub fn granting_work(object: &Object) -> Option<String> {
    let mut owners = object.meta().owner_references.iter().flatten();
    let grant = owners.find(|owner| is_grant(owner))?;
    grant.name.rsplit_once('-').map(|(work, _)| work.to_owned())
}

/// Returns true if the server says that this controller wrote fields of the object.
pub fn is_written(fields: Option<&[ManagedFieldsEntry]>) -> bool {
    let mut entries = fields.into_iter().flatten();
    entries
        .any(|entry| entry.manager.as_deref() == Some(WRITER) && entry.operation.as_deref() == Some("Apply"))
}

/// The names on the hub of the works that an object says it belongs to: they follow the hash of the hub.
pub fn work_names(object: &Object) -> impl Iterator<Item = &str> {
    works(object).map(|owner| owner.name.split_once('-').map_or(&*owner.name, |(_, work)| work))
}

/// Returns true if a work, or a further part of it, delivers an object.
pub fn delivers(work: &str, object: &Object) -> bool {
    work_names(object).any(|name| {
        let rest = name.strip_prefix(work);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

//! Pure: whose an object in a namespace is.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, OwnerReference};
use writ_api::{work::AppliedManifestWork, writ::NamespaceGrant};

use super::{
    object::Object,
    plan::{RBAC_GROUP, WRITER},
};
use crate::work::{is_applied_work, is_grant};

/// An object in the namespace, as the watch shows it.
#[derive(Clone, Debug)]
pub enum Live {
    /// Somebody else made it.
    Foreign,
    /// A grant made it.
    Granted(Object),
    /// Its owner is a work. Grants share it as long as they want the same, and never change it.
    Delivered {
        /// The object.
        object: Object,
        /// Whether it is a grant's as well. Then the work's own record has to confirm that it delivers it: whoever may
        /// write the object may also write an owner reference.
        ours: bool,
    },
}

impl Live {
    /// What the watch shows now, after what it showed before. A grant's object stays one, whatever somebody takes off
    /// it: who wrote its fields is known to the server, and what it was is known here.
    pub fn seen(object: Object, written: bool, before: Option<&Self>) -> Self {
        let meta = object.meta();
        let owners = meta.owner_references.as_deref().unwrap_or_default();
        let known = match before {
            Some(
                Self::Granted(was)
                | Self::Delivered {
                    object: was,
                    ours: true,
                },
            ) => was.meta().uid == meta.uid,
            _ => false,
        };
        let ours = written || known || owners.iter().any(is_grant);
        if owners.iter().any(is_applied_work) {
            Self::Delivered { object, ours }
        } else if ours {
            Self::Granted(object)
        } else {
            Self::Foreign
        }
    }
}

/// Whether a work's record says that it delivers this object.
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

/// Whether a grant made what is there, and it has not been left to others.
pub fn made_by(grant: &NamespaceGrant, live: &Live) -> bool {
    let (Live::Granted(object) | Live::Delivered { object, ours: true }) = live else {
        return false;
    };
    let mut owners = object.meta().owner_references.iter().flatten();
    owners.any(|owner| Some(&owner.uid) == grant.metadata.uid.as_ref())
}

/// The works that an object says it belongs to.
pub fn works(object: &Object) -> impl Iterator<Item = &OwnerReference> {
    let owners = object.meta().owner_references.iter().flatten();
    owners.filter(|owner| is_applied_work(owner))
}

/// The work that carried the grant which made an object: grants are named after it.
pub fn former_work(object: &Object) -> Option<String> {
    let mut owners = object.meta().owner_references.iter().flatten();
    let grant = owners.find(|owner| is_grant(owner))?;
    grant.name.rsplit_once('-').map(|(work, _)| work.to_owned())
}

/// Whether the server says that this controller wrote fields of the object.
pub fn written(fields: Option<&[ManagedFieldsEntry]>) -> bool {
    let mut entries = fields.into_iter().flatten();
    entries
        .any(|entry| entry.manager.as_deref() == Some(WRITER) && entry.operation.as_deref() == Some("Apply"))
}

/// The names on the hub of the works that an object says it belongs to: they follow the hash of the hub.
pub fn work_names(object: &Object) -> impl Iterator<Item = &str> {
    works(object).map(|owner| owner.name.split_once('-').map_or(&*owner.name, |(_, work)| work))
}

/// Whether a work, or a further part of it, delivers an object.
pub fn delivers(work: &str, object: &Object) -> bool {
    work_names(object).any(|name| {
        let rest = name.strip_prefix(work);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    })
}

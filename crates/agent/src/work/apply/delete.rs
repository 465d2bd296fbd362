//! Deletes objects of a work: only those that belong to it and to no other work.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Value, json};
use writ_api::{
    work::{AppliedManifestWork, AppliedResource},
    writ::NamespaceGrant,
};
use writ_controller::{
    Error, Name, ServedKind,
    error::{Context as _, status_code},
};

use super::{
    managed_fields::{as_applied, written_by},
    strategies::owners,
};
use crate::owner::{Owner, is_applied_work, is_grant};
use crate::work::{
    model::{Key, ObjectIdentity, OwnedObject},
    plan::{
        rbac::{GRANT_GROUP, RBAC_GROUP},
        records::recorded,
    },
    state::Agent,
    status::redact::redact_error,
};

/// The outcome of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// The object does not belong to the work any more: it was deleted, orphaned, or left to another work.
    Done,
    /// It is terminating; an event will show its end.
    Pending,
}

/// Why a recorded object belongs to its work, beside the owner reference: every writer of the object can remove that, and must
/// not keep the object by doing so.
#[derive(Clone, Copy, Debug)]
pub enum Claim<'a> {
    /// It belonged to the work when this agent last wrote or read it.
    Owned(&'a OwnedObject),
    /// The work owns what it delivers: an object that its field manager wrote belongs to it.
    Written,
    /// The manifest refuses foreign objects: the recorded object was written by the work, whatever was changed since.
    RefusesForeign,
    /// Only the owner reference counts: it is not known what the work says of the object.
    Reference,
    /// The work orphans the object: only the owner reference is removed.
    Orphaned,
}

impl Claim<'_> {
    /// Whether the live object is the recorded one, and belongs to the work.
    fn holds(self, live: &ObjectMeta, record: &AppliedResource, owner: &Owner) -> bool {
        if matches!(self, Self::Orphaned) {
            return false;
        }
        let uid = live.uid.as_deref().unwrap_or_default();
        if !record.uid.is_empty() && record.uid != uid {
            return false;
        }
        let mut references = live.owner_references.iter().flatten();
        if references.any(|reference| reference.uid == owner.uid) {
            return true;
        }
        match self {
            Self::Owned(object) => object.uid == uid,
            Self::Written => !record.uid.is_empty() && fields_of(live, &owner.manager()).is_some(),
            Self::RefusesForeign => !record.uid.is_empty(),
            Self::Reference | Self::Orphaned => false,
        }
    }
}

/// The fields of an object that a manager has written.
fn fields_of<'a>(live: &'a ObjectMeta, manager: &str) -> Option<&'a ManagedFieldsEntry> {
    written_by(live.managed_fields.as_deref().unwrap_or_default(), manager)
}

/// Deletes one recorded object, unless another work needs it or it is orphaned. One request is enough where the exact version
/// is known to belong to no other work.
pub async fn delete(
    agent: &Agent,
    record: &AppliedResource,
    owner: &Owner,
    claim: Claim<'_>,
) -> Result<Deletion, Error> {
    let Some(kind) = agent.recorded_kind(record).await? else {
        // An object of a kind that is not served, or of a name that no server accepts, cannot exist.
        return Ok(Deletion::Done);
    };
    let deletion = delete_of_kind(agent, &kind, record, owner, claim).await;
    deletion.map_err(|error| redact_error(&kind, &record.namespace, &record.name, error))
}

async fn delete_of_kind(
    agent: &Agent,
    kind: &ServedKind,
    record: &AppliedResource,
    owner: &Owner,
    claim: Claim<'_>,
) -> Result<Deletion, Error> {
    if matches!(claim, Claim::Orphaned) {
        return orphan(agent, kind, record, owner).await;
    }
    if let Claim::Owned(OwnedObject {
        uid,
        version: Some(version),
    }) = claim
    {
        let same = Preconditions {
            uid: Some(uid.clone()),
            resource_version: Some(version.clone()),
        };
        let api = kind.api(&agent.spoke, &record.namespace);
        // If that fails, the general way reports why.
        if let Ok(deletion) = send_delete(&api, kind, &record.name, same).await {
            return Ok(deletion);
        }
    }
    for _ in 0..5 {
        match attempt(agent, kind, record, owner, claim).await {
            Err(error) if error.is_code(409) => {}
            other => return other,
        }
    }
    Ok(Deletion::Pending)
}

async fn attempt(
    agent: &Agent,
    kind: &ServedKind,
    record: &AppliedResource,
    owner: &Owner,
    claim: Claim<'_>,
) -> Result<Deletion, Error> {
    let what = || {
        format!(
            "delete {} {}/{}",
            kind.resource.kind, record.namespace, record.name
        )
    };
    let api = kind.api(&agent.spoke, &record.namespace);
    let live = match api.get_metadata(&record.name).await {
        // The object does not exist, or its kind is not served any more.
        Err(error) if status_code(&error) == Some(404) => return Ok(Deletion::Done),
        live => live.context(what)?,
    };
    if !claim.holds(&live.metadata, record, owner) {
        return Ok(Deletion::Done);
    }
    let uid = live.metadata.uid.clone().unwrap_or_default();
    let references = live.metadata.owner_references.as_deref().unwrap_or_default();
    let mut is_shared = false;
    for reference in references.iter().filter(|reference| reference.uid != owner.uid) {
        if is_applied_work(reference) {
            is_shared |= is_delivered_by_work(agent, reference, kind, record)
                .await
                .context(what)?;
        } else if is_grant(reference) {
            is_shared |= is_made_by_grant(&agent.spoke, reference, record)
                .await
                .context(what)?;
        }
    }
    if is_shared {
        release_fields(&api, kind, record, &live.metadata, owner)
            .await
            .context(what)?;
        let Some(live) = api.get_metadata_opt(&record.name).await.context(what)? else {
            return Ok(Deletion::Done);
        };
        remove_owner(&api, &record.name, &live.metadata, owner)
            .await
            .context(what)?;
        return Ok(Deletion::Done);
    }
    if live.metadata.deletion_timestamp.is_some() {
        empty_terminating(&api, kind, record, &live.metadata)
            .await
            .context(what)?;
        return Ok(Deletion::Pending);
    }
    let same = Preconditions {
        uid: Some(uid),
        resource_version: None,
    };
    send_delete(&api, kind, &record.name, same).await.context(what)
}

/// Removes the work's owner reference from an object that stays. With it, the object would be garbage-collected with the
/// AppliedManifestWork.
async fn orphan(
    agent: &Agent,
    kind: &ServedKind,
    record: &AppliedResource,
    owner: &Owner,
) -> Result<Deletion, Error> {
    let api = kind.api(&agent.spoke, &record.namespace);
    let mut attempts = 0;
    loop {
        let orphaned = match api.get_metadata(&record.name).await {
            Ok(live) => remove_owner(&api, &record.name, &live.metadata, owner).await,
            Err(error) => Err(error),
        };
        attempts += 1;
        match orphaned {
            Err(error) if status_code(&error) == Some(404) => return Ok(Deletion::Done),
            Err(error) if status_code(&error) == Some(409) && attempts < 5 => {}
            orphaned => {
                return orphaned.map(|()| Deletion::Done).context(|| {
                    format!(
                        "orphan {} {}/{}",
                        kind.resource.kind, record.namespace, record.name
                    )
                });
            }
        }
    }
}

/// Removes the work's owner reference from an object, if that is still as it was seen.
async fn remove_owner(
    api: &Api<DynamicObject>,
    name: &str,
    seen: &ObjectMeta,
    owner: &Owner,
) -> Result<(), kube::Error> {
    let Some(kept) = owners(seen.owner_references.as_deref(), owner, false) else {
        return Ok(());
    };
    let patch = json!({"metadata": {
        "uid": seen.uid,
        "resourceVersion": seen.resource_version,
        "ownerReferences": kept,
    }});
    let params = PatchParams::apply(writ_api::work::DEFAULT_FIELD_MANAGER);
    api.patch_metadata(name, &params, &Patch::Merge(&patch))
        .await
        .map(drop)
}

/// Whether another work delivers this object: by its record, or because it is a work of this agent that is about to.
async fn is_delivered_by_work(
    agent: &Agent,
    reference: &OwnerReference,
    kind: &ServedKind,
    record: &AppliedResource,
) -> Result<bool, kube::Error> {
    let works: Api<AppliedManifestWork> = Api::all(agent.spoke.clone());
    let Some(other) = works.get_opt(&reference.name).await? else {
        return Ok(false);
    };
    if other.metadata.uid.as_ref() != Some(&reference.uid) {
        return Ok(false);
    }
    let is_recorded = recorded(&other)
        .iter()
        .any(|known| ObjectIdentity::of_record(known) == ObjectIdentity::of_record(record));
    let name = Name::new(record.namespace.as_str(), record.name.as_str());
    let work = Key::work(&other.spec.manifest_work_name);
    let is_wanted =
        || other.spec.hub_hash == agent.hub_hash && agent.drift.is_interested(&work, &kind.resource, &name);
    Ok(is_recorded || is_wanted())
}

/// Whether the referenced grant makes this object. Every writer of the object can add an owner reference: a reference to a
/// grant that does not make it must not keep it.
async fn is_made_by_grant(
    client: &Client,
    reference: &OwnerReference,
    record: &AppliedResource,
) -> Result<bool, kube::Error> {
    let grants: Api<NamespaceGrant> = Api::all(client.clone());
    let grant = match grants.get_opt(&reference.name).await {
        // Where the kind is not served there are no grants.
        Err(error) if status_code(&error) == Some(404) => None,
        grant => grant?,
    };
    Ok(grant.is_some_and(|grant| {
        grant.metadata.uid.as_ref() == Some(&reference.uid)
            && grant.metadata.deletion_timestamp.is_none()
            && grant.spec.name == record.name
    }))
}

/// Empties a role or binding that a finalizer keeps: otherwise it would grant its rights until it is gone.
async fn empty_terminating(
    api: &Api<DynamicObject>,
    kind: &ServedKind,
    record: &AppliedResource,
    seen: &ObjectMeta,
) -> Result<(), kube::Error> {
    let Some(field) = granting_field(kind).filter(|_| seen.finalizers.is_some()) else {
        return Ok(());
    };
    let nothing = json!({
        "metadata": {"uid": seen.uid, "resourceVersion": seen.resource_version},
        field: [],
    });
    let params = PatchParams::apply(writ_api::work::DEFAULT_FIELD_MANAGER);
    let emptied = api.patch(&record.name, &params, &Patch::Merge(&nothing)).await;
    match emptied {
        Err(error) if status_code(&error) == Some(404) => Ok(()),
        emptied => emptied.map(drop),
    }
}

/// The field by which objects of a kind grant something, if they do.
fn granting_field(kind: &ServedKind) -> Option<&'static str> {
    match (&*kind.resource.group, &*kind.resource.kind) {
        (RBAC_GROUP, "Role" | "ClusterRole") => Some("rules"),
        (RBAC_GROUP, "RoleBinding" | "ClusterRoleBinding") => Some("subjects"),
        _ => None,
    }
}

async fn send_delete(
    api: &Api<DynamicObject>,
    kind: &ServedKind,
    name: &str,
    same: Preconditions,
) -> Result<Deletion, kube::Error> {
    // A grant goes after its roles and bindings: until then the work reports that it still exists.
    let params = if kind.resource.group == GRANT_GROUP {
        DeleteParams::foreground()
    } else {
        DeleteParams::background()
    };
    let params = params.preconditions(same);
    match api.delete(name, &params).await {
        Ok(answer) => Ok(match answer.right() {
            Some(_) => Deletion::Done,
            None => Deletion::Pending,
        }),
        Err(error) if status_code(&error) == Some(404) => Ok(Deletion::Done),
        Err(error) => Err(error),
    }
}

/// Gives up the fields of this work's own field manager, so that the remaining works decide about them.
async fn release_fields(
    api: &Api<DynamicObject>,
    kind: &ServedKind,
    record: &AppliedResource,
    seen: &ObjectMeta,
    owner: &Owner,
) -> Result<(), kube::Error> {
    let name = owner.manager();
    let entries = seen.managed_fields.as_deref().unwrap_or_default();
    let Some(entry) = written_by(entries, &name) else {
        return Ok(());
    };
    let mut version = seen.resource_version.clone();
    // Fields that were created and never applied can only be given up once they count as applied.
    if let Some(entries) = as_applied(entries, &name) {
        let patch =
            json!({"metadata": {"uid": seen.uid, "resourceVersion": version, "managedFields": entries}});
        let patched = api
            .patch_metadata(&record.name, &PatchParams::apply(&name), &Patch::Merge(&patch))
            .await?;
        version = patched.metadata.resource_version;
    }
    // Applying only the identity removes the manager and the fields that only it owned. Only as the object was seen: if the
    // other owner gives it up in the same moment, one of the two has to delete it.
    let mut nothing = json!({
        "apiVersion": entry.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": record.name, "resourceVersion": version},
    });
    if kind.namespaced
        && let Some(metadata) = nothing.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".into(), record.namespace.clone().into());
    }
    let params = PatchParams::apply(&name).force();
    api.patch_metadata(&record.name, &params, &Patch::Apply(&nothing))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn object_without_owner_reference_still_belongs_to_its_work() {
        let owner = Owner {
            name: "hub-work".into(),
            uid: "me".into(),
        };
        let written = json!([{"manager": owner.manager(), "operation": "Apply"}]);
        let created = json!([{"manager": owner.manager(), "operation": "Update"}]);
        let others = json!([{"manager": "kubectl", "operation": "Apply"}]);
        let referred = json!([{"apiVersion": "work.open-cluster-management.io/v1", "kind": "AppliedManifestWork",
            "name": "hub-work", "uid": "me"}]);
        let none = json!([]);
        let object = OwnedObject {
            uid: "1".into(),
            version: None,
        };
        let (known, reference) = (Claim::Owned(&object), Claim::Reference);
        for (what, claim, recorded, references, fields, wanted) in [
            ("as it was left", reference, "1", &referred, &written, true),
            ("referred to no more", reference, "1", &none, &written, false),
            ("orphaned", Claim::Orphaned, "1", &referred, &written, false),
            ("stripped", Claim::Written, "1", &none, &written, true),
            (
                "created, and stripped",
                Claim::Written,
                "1",
                &none,
                &created,
                true,
            ),
            (
                "known as owned, and stripped of all",
                known,
                "1",
                &none,
                &none,
                true,
            ),
            (
                "refuses foreign, and stripped of all",
                Claim::RefusesForeign,
                "1",
                &none,
                &none,
                true,
            ),
            (
                "refuses foreign, and recreated",
                Claim::RefusesForeign,
                "2",
                &none,
                &written,
                false,
            ),
            (
                "refuses foreign, and never recorded",
                Claim::RefusesForeign,
                "",
                &none,
                &written,
                false,
            ),
            ("never written", Claim::Written, "1", &none, &others, false),
            ("no record of it", Claim::Written, "", &none, &written, false),
            ("another object of the name", known, "2", &none, &written, false),
            (
                "another object with the reference",
                Claim::Written,
                "2",
                &referred,
                &written,
                false,
            ),
        ] {
            let live: ObjectMeta = serde_json::from_value(
                json!({"name": "x", "uid": "1", "ownerReferences": references, "managedFields": fields}),
            )
            .unwrap();
            let record = AppliedResource {
                name: "x".into(),
                uid: recorded.into(),
                ..AppliedResource::default()
            };
            assert_eq!(claim.holds(&live, &record, &owner), wanted, "{what}");
        }
    }
}

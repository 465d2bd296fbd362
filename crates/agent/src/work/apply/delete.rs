//! Deletes objects that a work applied: only ours, never somebody else's, never twice.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference};
use kube::{
    Api, Client, Resource as _,
    api::{DeleteParams, Patch, PatchParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Value, json};
use writ_api::{
    work::{AppliedManifestWork, AppliedResource},
    writ::NamespaceGrant,
};
use writ_controller::{
    Error,
    error::{Context as _, status_code},
};

use super::{
    Agent, Key,
    apply::{Owner, api, is_applied_work, is_grant, owners},
    mapper::Kind,
    objects::Own,
    records::{named, recorded},
    takeover::{as_applied, written_by},
};

/// What became of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It is not ours any more: deleted, orphaned, or left to another work.
    Yes,
    /// It is on its way out; an event will tell.
    Pending,
}

/// Why an object is its work's. Its owner reference says so; whoever may write the object may take that off, and does not
/// make it his own by that.
#[derive(Clone, Copy, Debug)]
pub enum Claim<'a> {
    /// It was the work's when this agent last wrote or read it.
    Own(&'a Own),
    /// The work owns what it delivers: what the server knows to be written for it is its own.
    Written,
    /// The manifest guards it against strangers: what is recorded was written, and is the work's as long as it lives.
    Guarded,
    /// Nothing but the reference counts: nobody can tell what the work says of it.
    Reference,
    /// It is not the work's to delete: the work leaves it behind, and only the reference has to go.
    Left,
}

impl Claim<'_> {
    /// Whether the recorded object is the one that is there, and the work's.
    fn holds(self, live: &ObjectMeta, resource: &AppliedResource, owner: &Owner) -> bool {
        if matches!(self, Self::Left) {
            return false;
        }
        let uid = live.uid.as_deref().unwrap_or_default();
        if !resource.uid.is_empty() && resource.uid != uid {
            return false;
        }
        let mut references = live.owner_references.iter().flatten();
        if references.any(|reference| reference.uid == owner.uid) {
            return true;
        }
        match self {
            Self::Own(own) => own.uid == uid,
            Self::Written => !resource.uid.is_empty() && written(live, &owner.manager()).is_some(),
            Self::Guarded => !resource.uid.is_empty(),
            Self::Reference | Self::Left => false,
        }
    }
}

/// What a field manager has written of an object.
fn written<'a>(live: &'a ObjectMeta, manager: &str) -> Option<&'a ManagedFieldsEntry> {
    written_by(live.managed_fields.as_deref().unwrap_or_default(), manager)
}

/// Deletes one object, unless somebody else still needs it or it is left behind. Where its exact version is known to be
/// nobody else's, one request is enough.
pub async fn delete(
    agent: &Agent,
    resource: &AppliedResource,
    owner: &Owner,
    claim: Claim<'_>,
) -> Result<Gone, Error> {
    let Some(kind) = agent.recorded_kind(resource).await? else {
        // Nothing of a kind that is not served can exist, and nothing of a name that no server takes.
        return Ok(Gone::Yes);
    };
    if matches!(claim, Claim::Left) {
        let left = leave(agent, &kind, resource, owner).await;
        return left.map_err(|error| withheld(&kind, resource, error));
    }
    if let Claim::Own(Own {
        uid,
        version: Some(version),
    }) = claim
    {
        let same = Preconditions {
            uid: Some(uid.clone()),
            resource_version: Some(version.clone()),
        };
        let api = api(&agent.spoke, &kind, &resource.namespace);
        // Whatever else is said, the long way says it better.
        if let Ok(gone) = remove(&api, &kind, &resource.name, same).await {
            return Ok(gone);
        }
    }
    for _ in 0..5 {
        match attempt(agent, &kind, resource, owner, claim).await {
            Err(error) if error.is_code(409) => {}
            other => return other.map_err(|error| withheld(&kind, resource, error)),
        }
    }
    Ok(Gone::Pending)
}

/// A server's words about a Secret can hold what is in it, as admission may quote what it refuses.
fn withheld(kind: &Kind, resource: &AppliedResource, error: Error) -> Error {
    let is_secret = kind.resource.group.is_empty() && kind.resource.plural == "secrets";
    match error {
        Error::Api { source, .. } if is_secret => Error::Invalid(format!(
            "delete Secret {}/{}: the server refused it with code {}; its words are withheld, as they may hold secrets",
            resource.namespace,
            resource.name,
            status_code(&source).unwrap_or_default()
        )),
        error => error,
    }
}

async fn attempt(
    agent: &Agent,
    kind: &Kind,
    resource: &AppliedResource,
    owner: &Owner,
    claim: Claim<'_>,
) -> Result<Gone, Error> {
    let what = || {
        format!(
            "delete {} {}/{}",
            kind.resource.kind, resource.namespace, resource.name
        )
    };
    let api = api(&agent.spoke, kind, &resource.namespace);
    let live = match api.get_metadata(&resource.name).await {
        // There is no such object, or no such kind any more, and so no object of it.
        Err(error) if status_code(&error) == Some(404) => return Ok(Gone::Yes),
        live => live.context(what)?,
    };
    if !claim.holds(&live.metadata, resource, owner) {
        return Ok(Gone::Yes);
    }
    let uid = live.metadata.uid.clone().unwrap_or_default();
    let references = live.metadata.owner_references.as_deref().unwrap_or_default();
    let mut shared = false;
    for reference in references.iter().filter(|reference| reference.uid != owner.uid) {
        if is_applied_work(reference) {
            shared |= holds(agent, reference, kind, resource).await.context(what)?;
        } else if is_grant(reference) {
            shared |= makes(&agent.spoke, reference, resource).await.context(what)?;
        }
    }
    if shared {
        release(&api, kind, resource, &live.metadata, owner)
            .await
            .context(what)?;
        let Some(live) = api.get_metadata_opt(&resource.name).await.context(what)? else {
            return Ok(Gone::Yes);
        };
        disown(&api, &resource.name, &live.metadata, owner)
            .await
            .context(what)?;
        return Ok(Gone::Yes);
    }
    if live.metadata.deletion_timestamp.is_some() {
        empty(&api, kind, resource, &live.metadata).await.context(what)?;
        return Ok(Gone::Pending);
    }
    let same = Preconditions {
        uid: Some(uid),
        resource_version: None,
    };
    remove(&api, kind, &resource.name, same).await.context(what)
}

/// Takes the work's reference off an object that stays. With it, the object would go when the record of the work goes.
async fn leave(agent: &Agent, kind: &Kind, resource: &AppliedResource, owner: &Owner) -> Result<Gone, Error> {
    let api = api(&agent.spoke, kind, &resource.namespace);
    let mut attempts = 0;
    loop {
        let left = match api.get_metadata(&resource.name).await {
            Ok(live) => disown(&api, &resource.name, &live.metadata, owner).await,
            Err(error) => Err(error),
        };
        attempts += 1;
        match left {
            Err(error) if status_code(&error) == Some(404) => return Ok(Gone::Yes),
            Err(error) if status_code(&error) == Some(409) && attempts < 5 => {}
            left => {
                return left.map(|()| Gone::Yes).context(|| {
                    format!(
                        "leave {} {}/{} behind",
                        kind.resource.kind, resource.namespace, resource.name
                    )
                });
            }
        }
    }
}

/// Takes the work's reference off an object, as it was seen, if it is there.
async fn disown(
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

/// Whether another work delivers this object: its record says so, or it is a work of this agent that is about to.
async fn holds(
    agent: &Agent,
    reference: &OwnerReference,
    kind: &Kind,
    resource: &AppliedResource,
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
        .any(|known| named(known) == named(resource));
    let name = (resource.namespace.as_str().into(), resource.name.as_str().into());
    let work = Key::work(&other.spec.manifest_work_name);
    Ok(is_recorded
        || (other.spec.hub_hash == agent.hub_hash && agent.objects.matters_to(&work, &kind.resource, &name)))
}

/// Whether there is a grant that makes this object. Whoever may write the object may also write an owner reference: one
/// to a grant that knows nothing of it must not keep it.
async fn makes(
    client: &Client,
    reference: &OwnerReference,
    resource: &AppliedResource,
) -> Result<bool, kube::Error> {
    let grants: Api<NamespaceGrant> = Api::all(client.clone());
    let grant = match grants.get_opt(&reference.name).await {
        // Where the kind is not known there are no grants.
        Err(error) if status_code(&error) == Some(404) => None,
        grant => grant?,
    };
    Ok(grant.is_some_and(|grant| {
        grant.metadata.uid.as_ref() == Some(&reference.uid)
            && grant.metadata.deletion_timestamp.is_none()
            && grant.spec.name == resource.name
    }))
}

/// What somebody's finalizer keeps from going would grant what it did until it goes. It can be made to grant nothing.
async fn empty(
    api: &Api<DynamicObject>,
    kind: &Kind,
    resource: &AppliedResource,
    seen: &ObjectMeta,
) -> Result<(), kube::Error> {
    let Some(content) = granting(kind).filter(|_| seen.finalizers.is_some()) else {
        return Ok(());
    };
    let nothing = json!({
        "metadata": {"uid": seen.uid, "resourceVersion": seen.resource_version},
        content: [],
    });
    let params = PatchParams::apply(writ_api::work::DEFAULT_FIELD_MANAGER);
    let emptied = api.patch(&resource.name, &params, &Patch::Merge(&nothing)).await;
    match emptied {
        Err(error) if status_code(&error) == Some(404) => Ok(()),
        emptied => emptied.map(drop),
    }
}

/// The field by which objects of a kind grant something, if they do.
fn granting(kind: &Kind) -> Option<&'static str> {
    match (&*kind.resource.group, &*kind.resource.kind) {
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => Some("rules"),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => Some("subjects"),
        _ => None,
    }
}

async fn remove(
    api: &Api<DynamicObject>,
    kind: &Kind,
    name: &str,
    same: Preconditions,
) -> Result<Gone, kube::Error> {
    // A grant is gone when what it granted is: until then the work tells that something is left.
    let params = if kind.resource.group == NamespaceGrant::group(&()) {
        DeleteParams::foreground()
    } else {
        DeleteParams::background()
    };
    let params = params.preconditions(same);
    match api.delete(name, &params).await {
        Ok(answer) => Ok(match answer.right() {
            Some(_) => Gone::Yes,
            None => Gone::Pending,
        }),
        Err(error) if status_code(&error) == Some(404) => Ok(Gone::Yes),
        Err(error) => Err(error),
    }
}

/// Gives up the fields of this work's own field manager, so that the works that stay decide about them.
async fn release(
    api: &Api<DynamicObject>,
    kind: &Kind,
    resource: &AppliedResource,
    seen: &ObjectMeta,
    owner: &Owner,
) -> Result<(), kube::Error> {
    let name = owner.manager();
    let entries = seen.managed_fields.as_deref().unwrap_or_default();
    let Some(entry) = written_by(entries, &name) else {
        return Ok(());
    };
    let mut version = seen.resource_version.clone();
    // What was created and never applied is only given up once it counts as applied.
    if let Some(entries) = as_applied(entries, &name) {
        let patch =
            json!({"metadata": {"uid": seen.uid, "resourceVersion": version, "managedFields": entries}});
        let patched = api
            .patch_metadata(&resource.name, &PatchParams::apply(&name), &Patch::Merge(&patch))
            .await?;
        version = patched.metadata.resource_version;
    }
    // Applying nothing but the identity removes the manager and what only it owned. Only as it was seen: if the other
    // owner lets go in the same moment, somebody has to delete the object.
    let mut nothing = json!({
        "apiVersion": entry.api_version,
        "kind": kind.resource.kind,
        "metadata": {"name": resource.name, "resourceVersion": version},
    });
    if kind.namespaced
        && let Some(metadata) = nothing.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("namespace".into(), resource.namespace.clone().into());
    }
    let params = PatchParams::apply(&name).force();
    api.patch_metadata(&resource.name, &params, &Patch::Apply(&nothing))
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use kube::core::{ApiResource, GroupVersionKind};

    use super::*;

    #[test]
    fn nothing_that_may_quote_a_secret_is_told() {
        for (name, plural, told) in [("Secret", "secrets", false), ("ConfigMap", "configmaps", true)] {
            let gvk = GroupVersionKind::gvk("", "v1", name);
            let kind = Kind {
                resource: ApiResource::from_gvk_with_plural(&gvk, plural),
                namespaced: true,
            };
            let said = json!({"kind": "Status", "status": "Failure", "code": 403, "message": "hunter2", "reason": "R"});
            let error = Error::Api {
                what: "delete".into(),
                source: Box::new(kube::Error::Api(serde_json::from_value(said).unwrap())),
            };
            let error = withheld(&kind, &AppliedResource::default(), error).to_string();
            assert_eq!(error.contains("hunter2"), told, "{error}");
        }
    }

    #[test]
    fn an_object_stays_its_works_without_the_owner_reference() {
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
        let own = Own {
            uid: "1".into(),
            version: None,
        };
        let (claims, reference) = (Claim::Own(&own), Claim::Reference);
        for (what, claim, recorded, references, fields, wanted) in [
            ("as it was left", reference, "1", &referred, &written, true),
            ("referred to no more", reference, "1", &none, &written, false),
            ("left behind", Claim::Left, "1", &referred, &written, false),
            ("stripped", Claim::Written, "1", &none, &written, true),
            (
                "created, and stripped",
                Claim::Written,
                "1",
                &none,
                &created,
                true,
            ),
            ("remembered, and stripped of all", claims, "1", &none, &none, true),
            (
                "guarded, and stripped of all",
                Claim::Guarded,
                "1",
                &none,
                &none,
                true,
            ),
            (
                "guarded, and made anew",
                Claim::Guarded,
                "2",
                &none,
                &written,
                false,
            ),
            (
                "guarded, and never recorded",
                Claim::Guarded,
                "",
                &none,
                &written,
                false,
            ),
            ("never written", Claim::Written, "1", &none, &others, false),
            ("no record of it", Claim::Written, "", &none, &written, false),
            ("another one of the name", claims, "2", &none, &written, false),
            (
                "another one that claims it",
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
            let resource = AppliedResource {
                name: "x".into(),
                uid: recorded.into(),
                ..AppliedResource::default()
            };
            assert_eq!(claim.holds(&live, &resource, &owner), wanted, "{what}");
        }
    }
}

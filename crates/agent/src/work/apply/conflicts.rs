//! Conflicts with objects that no work wrote: they are not overwritten, and a foreign role is not bound to the subjects of
//! a permission.

use std::collections::HashSet;

use k8s_openapi::{
    api::rbac::v1::{ClusterRole, Role},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client};
use writ_api::writ::ADOPT_ANNOTATION;
use writ_authz::Kind;

use super::managed_fields;
use crate::owner::is_delivered;
use crate::work::{
    model::{ApplyFailure, PlannedManifest, RbacId, RecordedUids, TargetObject},
    plan::rbac::{binds_own_role, bound_role, refuses_foreign, roles_made},
};

/// Checks the objects of one work for conflicts.
pub struct ConflictCheck<'a> {
    client: &'a Client,
    /// The field manager of the work.
    manager: String,
    /// What the work has written before.
    recorded: &'a RecordedUids<'a>,
    /// The roles that the work itself makes: the pass holds back what binds one that was not written.
    own_roles: HashSet<RbacId>,
}

impl<'a> ConflictCheck<'a> {
    /// A check for a work with these manifests, with this field manager and record.
    pub fn new(
        client: &'a Client,
        manager: String,
        manifests: &[PlannedManifest],
        recorded: &'a RecordedUids<'a>,
    ) -> Self {
        Self {
            client,
            manager,
            recorded,
            own_roles: roles_made(manifests),
        }
    }

    /// Fails if the manifest must not overwrite a foreign object, and would; or if it binds a role of its own permission, and
    /// that role is foreign.
    pub async fn check(&self, target: &TargetObject) -> Result<(), ApplyFailure> {
        let recorded = self.recorded.get(&target.identity()).copied();
        check_not_foreign(self.client, target, &self.manager, recorded).await?;
        let other_role =
            bound_role(target).filter(|role| binds_own_role(target) && !self.own_roles.contains(role));
        match other_role {
            Some(role) => self.check_bound_role(&role).await,
            None => Ok(()),
        }
    }

    /// The role is delivered by another work of the permission, or by a grant. A missing role grants nothing.
    async fn check_bound_role(&self, (kind, namespace, name): &RbacId) -> Result<(), ApplyFailure> {
        let live: Option<ObjectMeta> = match (kind, namespace.as_str()) {
            // Of a grant: the controller that expands it checks each namespace.
            (Kind::Role, "") => None,
            (Kind::Role, namespace) => {
                let api: Api<Role> = Api::namespaced(self.client.clone(), namespace);
                api.get_metadata_opt(name).await?.map(|live| live.metadata)
            }
            _ => {
                let api: Api<ClusterRole> = Api::all(self.client.clone());
                api.get_metadata_opt(name).await?.map(|live| live.metadata)
            }
        };
        let is_foreign = live.is_some_and(|live| !live.owner_references.iter().flatten().any(is_delivered));
        if !is_foreign {
            return Ok(());
        }
        Err(ApplyFailure::HeldBack(format!(
            "held back: the {kind:?} {name} that it binds exists and was not put there by a work, so binding it would \
             grant rules that the permission does not have: remove that role, or let it be adopted (annotation \
             {ADOPT_ANNOTATION}=true on the ClusterPermission)"
        )))
    }
}

/// Fails if a foreign object would be overwritten against the manifest. Removing the owner reference does not make an object
/// of the work foreign: the server still knows that `manager` wrote its fields. Those entries can be removed as
/// well; then the `recorded` uid still identifies it.
pub async fn check_not_foreign(
    client: &Client,
    target: &TargetObject,
    manager: &str,
    recorded: Option<&str>,
) -> Result<(), ApplyFailure> {
    if !refuses_foreign(target) {
        return Ok(());
    }
    let api = target.kind.api(client, &target.namespace);
    let Some(live) = api.get_metadata_opt(&target.name).await? else {
        return Ok(());
    };
    let is_delivered = live.metadata.owner_references.iter().flatten().any(is_delivered);
    if is_delivered || was_written(&live.metadata, manager, recorded) {
        return Ok(());
    }
    Err(ApplyFailure::Foreign(format!(
        "{} {} exists and was not put there by a work, so it is left alone: remove it, or let it be adopted (annotation \
         {ADOPT_ANNOTATION}=true on the ClusterPermission)",
        target.kind.resource.kind, target.name
    )))
}

/// Whether the work wrote an object: the server knows that by its field manager, or the record by the uid.
pub fn was_written(live: &ObjectMeta, manager: &str, recorded: Option<&str>) -> bool {
    let fields = live.managed_fields.as_deref().unwrap_or_default();
    managed_fields::written_by(fields, manager).is_some()
        || recorded.is_some_and(|uid| !uid.is_empty() && live.uid.as_deref() == Some(uid))
}

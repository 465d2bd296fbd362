//! What is not ours: it is not overwritten, and what somebody else wrote into a role is not given to the subjects of ours.

use std::collections::HashSet;

use k8s_openapi::{
    api::rbac::v1::{ClusterRole, Role},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client};
use writ_api::writ::{
    ADOPT_ANNOTATION, BOUND_ROLE_ANNOTATION, BOUND_ROLE_OWN, ON_CONFLICT_ANNOTATION, ON_CONFLICT_REFUSE,
};
use writ_authz::Kind;

use super::{
    apply::{self, Failure, is_delivered},
    executor::{Place, bound_role, is_role, place},
    plan::{Item, Target},
    records::{Recorded, key},
    takeover,
};

/// Looks for strangers' objects in the way of one work.
pub struct Strangers<'a> {
    client: &'a Client,
    /// The field manager of the work.
    manager: String,
    /// What the work has written before.
    recorded: &'a Recorded<'a>,
    /// The roles that the work itself makes: what binds them waits for them anyway.
    roles: HashSet<Place>,
}

impl<'a> Strangers<'a> {
    /// For a work with these manifests, which writes by this field manager and has written this before.
    pub fn new(client: &'a Client, manager: String, items: &[Item], recorded: &'a Recorded<'a>) -> Self {
        Self {
            client,
            manager,
            recorded,
            roles: roles(items),
        }
    }

    /// Fails if the manifest says that somebody else's object is not to be overwritten, and it is; or that it binds a role
    /// of its own permission, and that is somebody else's.
    pub async fn none(&self, target: &Target) -> Result<(), Failure> {
        let recorded = self.recorded.get(&key(target)).copied();
        not_foreign(self.client, target, &self.manager, recorded).await?;
        let elsewhere = bound_role(target).filter(|role| binds_own(target) && !self.roles.contains(role));
        match elsewhere {
            Some(role) => self.own_role(&role).await,
            None => Ok(()),
        }
    }

    /// A role that another work of the permission delivers, or a grant. One that is not there yet grants nothing.
    async fn own_role(&self, (kind, namespace, name): &Place) -> Result<(), Failure> {
        let live: Option<ObjectMeta> = match (kind, namespace.as_str()) {
            // Of a grant: whoever expands it knows the namespaces, and looks there.
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
        let foreign = live.is_some_and(|live| !live.owner_references.iter().flatten().any(is_delivered));
        if !foreign {
            return Ok(());
        }
        Err(Failure::Held(format!(
            "held back: the {kind:?} {name} that it binds exists and was not put there by a work, so it would grant what somebody else wrote: remove that role, or let it be adopted (annotation {ADOPT_ANNOTATION}=true on the ClusterPermission)"
        )))
    }
}

/// The roles that the manifests of a work make.
fn roles(items: &[Item]) -> HashSet<Place> {
    let targets = items.iter().filter_map(|item| item.target.as_ref().ok());
    targets
        .filter(|target| is_role(target))
        .filter_map(place)
        .collect()
}

/// The roles that decide whether something of a work is held back, and that others make: their coming and going matters.
pub fn awaited_roles(items: &[Item]) -> HashSet<Place> {
    let own = roles(items);
    let targets = items.iter().filter_map(|item| item.target.as_ref().ok());
    targets
        .filter(|target| binds_own(target))
        .filter_map(bound_role)
        .filter(|role| {
            !own.contains(role) && !matches!(role, (Kind::Role, namespace, _) if namespace.is_empty())
        })
        .collect()
}

fn says(target: &Target, annotation: &str, value: &str) -> bool {
    let annotations = target.object.pointer("/metadata/annotations");
    annotations
        .and_then(|annotations| annotations.get(annotation))
        .is_some_and(|said| said == value)
}

/// Whether the manifest says that an object of somebody else is not to be overwritten.
pub fn refuses(target: &Target) -> bool {
    says(target, ON_CONFLICT_ANNOTATION, ON_CONFLICT_REFUSE)
}

/// Whether the manifest says that the role which it binds is one of its own permission.
fn binds_own(target: &Target) -> bool {
    says(target, BOUND_ROLE_ANNOTATION, BOUND_ROLE_OWN)
}

/// What is not ours is not overwritten, if the manifest says so. An object that this work has written stays ours when
/// somebody takes the owner reference off it: who wrote its fields is known to the server, by `manager`. He may take that
/// off as well; then the uid that is `recorded` still tells.
pub async fn not_foreign(
    client: &Client,
    target: &Target,
    manager: &str,
    recorded: Option<&str>,
) -> Result<(), Failure> {
    if !refuses(target) {
        return Ok(());
    }
    let api = apply::api(client, &target.kind, &target.namespace);
    let Some(live) = api.get_metadata_opt(&target.name).await? else {
        return Ok(());
    };
    let delivered = live.metadata.owner_references.iter().flatten().any(is_delivered);
    if delivered || wrote(&live.metadata, manager, recorded) {
        return Ok(());
    }
    Err(Failure::Foreign(format!(
        "{} {} exists and was not put there by a work, so it is left alone: remove it, or let it be adopted (annotation {ADOPT_ANNOTATION}=true on the ClusterPermission)",
        target.kind.resource.kind, target.name
    )))
}

/// Whether a work has written an object: the server knows it by the field manager, or the work's record by the uid.
pub fn wrote(live: &ObjectMeta, manager: &str, recorded: Option<&str>) -> bool {
    let fields = live.managed_fields.as_deref().unwrap_or_default();
    takeover::written_by(fields, manager).is_some()
        || recorded.is_some_and(|uid| !uid.is_empty() && live.uid.as_deref() == Some(uid))
}

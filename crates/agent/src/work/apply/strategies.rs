//! Writes one object as its strategy says, with as few requests as that takes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{Patch, PatchParams, PostParams},
    core::DynamicObject,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use writ_api::work::{
    AppliedManifestWork, CONFIG_SPEC_HASH_ANNOTATION, IgnoreFieldCondition, ServerSideApply,
    UpdateStrategyType,
};
use writ_controller::error::status_code;
use writ_runtime::segment;

use super::{
    create, hex, ignore,
    mapper::Kind,
    plan::{Target, removal_patch, take_removals},
    read::read,
    replace::replace,
    settle,
    strangers::not_foreign,
    takeover, untyped,
};
use crate::Replacements;

/// The owner of a work's objects.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The name of the AppliedManifestWork.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl Owner {
    /// The reference on an object.
    pub fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: "work.open-cluster-management.io/v1".into(),
            kind: "AppliedManifestWork".into(),
            name: self.name.clone(),
            uid: self.uid.clone(),
            controller: None,
            block_owner_deletion: None,
        }
    }

    /// The field manager of strategy `Update`: one per work, so that works that share an object keep their own
    /// fields and their own owner reference.
    pub fn manager(&self) -> String {
        Self::manager_of(&self.name)
    }

    /// The same, from the name of the AppliedManifestWork, which may not be there yet.
    pub fn manager_of(name: &str) -> String {
        let digest = hex(&Sha256::digest(name.as_bytes()));
        format!("work-agent-{}", digest.get(..10).unwrap_or_default())
    }
}

/// Whether a reference says that an object belongs to a work. Anybody may write a reference, and its name is looked up.
pub fn is_applied_work(reference: &OwnerReference) -> bool {
    reference.kind == "AppliedManifestWork"
        && segment::is_subdomain(&reference.name)
        && reference
            .api_version
            .starts_with("work.open-cluster-management.io/")
}

/// Whether a reference says that an object belongs to a NamespaceGrant.
pub fn is_grant(reference: &OwnerReference) -> bool {
    reference.kind == "NamespaceGrant"
        && segment::is_subdomain(&reference.name)
        && reference.api_version.starts_with("writ.dev/")
}

/// Whether a reference says that this agent put an object there, for a work or for a grant that a work brought.
pub fn is_delivered(reference: &OwnerReference) -> bool {
    is_applied_work(reference) || is_grant(reference)
}

impl From<&AppliedManifestWork> for Owner {
    fn from(applied: &AppliedManifestWork) -> Self {
        Self {
            name: applied.metadata.name.clone().unwrap_or_default(),
            uid: applied.metadata.uid.clone().unwrap_or_default(),
        }
    }
}

/// Why an object could not be written.
#[derive(Debug)]
pub enum Failure {
    /// The ignored fields could not be found.
    IgnoreFields(String),
    /// Another manager owns a field; trying again does not help.
    Conflict(String),
    /// The object is there, no work put it there, and the manifest says not to take it over.
    Foreign(String),
    /// What it binds is there, no work put it there, and the manifest says that it binds its own permission's.
    Held(String),
    /// The server said no, or nothing.
    Server(Box<kube::Error>),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Server(Box::new(error))
    }
}

impl Failure {
    /// What a person reads.
    pub fn message(&self) -> String {
        match self {
            Self::IgnoreFields(message)
            | Self::Conflict(message)
            | Self::Foreign(message)
            | Self::Held(message) => message.clone(),
            Self::Server(error) => match &**error {
                kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
                other => other.to_string(),
            },
        }
    }

    /// The HTTP status code of the server's answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Server(error) => status_code(error),
            Self::Conflict(_) => Some(409),
            Self::IgnoreFields(_) | Self::Foreign(_) | Self::Held(_) => None,
        }
    }
}

/// The API of a kind in one namespace (empty for a cluster-scoped kind).
pub fn api(client: &Client, kind: &Kind, namespace: &str) -> Api<DynamicObject> {
    if kind.namespaced {
        Api::namespaced_with(client.clone(), namespace, &kind.resource)
    } else {
        Api::all_with(client.clone(), &kind.resource)
    }
}

/// What is known of an object before it is written.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// What cannot be changed is made anew only if it may be deleted.
    pub may_replace: Option<&'a Replacements>,
    /// What the work did with it.
    pub past: Past,
}

/// What a work did with an object before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// Nothing, so that most likely it is not there.
    Nothing,
    /// It was written, by an agent that has ended since: most likely it is as it should be.
    Written,
    /// It was written, and now something is to be changed.
    Changes,
}

/// Writes the object; returns it as the server has it now. `None` if it is only to be read and is not there.
pub async fn write(
    client: &Client,
    target: &Target,
    owner: &Owner,
    known: Known<'_>,
) -> Result<Option<DynamicObject>, Failure> {
    let api = api(client, &target.kind, &target.namespace);
    let written = match target.config.strategy.type_ {
        // One that was written before belongs to the work no more.
        UpdateStrategyType::ReadOnly => match read(client, target).await? {
            Some(live) => live,
            None => return Ok(None),
        },
        UpdateStrategyType::Update => update(client, &api, target, owner, known).await?,
        UpdateStrategyType::CreateOnly => create_only(client, &api, target, owner).await?,
        UpdateStrategyType::ServerSideApply => {
            let options = target
                .config
                .strategy
                .server_side_apply
                .clone()
                .unwrap_or_default();
            server_side_apply(client, &api, target, &options).await?
        }
    };
    own(&api, target, owner, written).await.map(Some)
}

/// Everything in the manifest is enforced by the server's own merge: fields of others stay, fields that left the
/// manifest go, and an unchanged object is not written.
async fn update(
    client: &Client,
    api: &Api<DynamicObject>,
    target: &Target,
    owner: &Owner,
    known: Known<'_>,
) -> Result<DynamicObject, Failure> {
    let mut object = target.object.clone();
    if let Some(map) = object.as_object_mut() {
        map.remove("status");
    }
    let removals = take_removals(&mut object);
    if target.owned
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("ownerReferences".into(), json!([owner.reference()]));
    }
    let manager = owner.manager();
    if removals.is_empty() && create::is_plain(target, &object) {
        match known.past {
            Past::Nothing => {
                if let Some(created) = create::create(client, api, &object, &manager).await? {
                    return Ok(created);
                }
                // It is there, and came after it was looked for.
                not_foreign(client, target, &manager, None).await?;
            }
            Past::Written => {
                let live = read(client, target).await?;
                if let Some(live) = live.filter(|live| create::is_as_wanted(live, &object, &manager)) {
                    return Ok(live);
                }
            }
            Past::Changes => {}
        }
    }
    let params = PatchParams::apply(&manager).force();
    let applied = match (
        api.patch(&target.name, &params, &Patch::Apply(&object)).await,
        known.may_replace,
    ) {
        (Err(error), _) if untyped::cannot_be_applied(&error, target) => {
            untyped::write(client, api, target, &object, &manager).await?
        }
        (Err(error), Some(replacements))
            if status_code(&error) == Some(422)
                && matches!(
                    (
                        target.kind.resource.group.as_str(),
                        target.kind.resource.kind.as_str()
                    ),
                    ("", "Secret") | ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding")
                ) =>
        {
            // A Secret's type, the data of an immutable one, and the role of a binding cannot be changed: it is
            // made anew.
            let made = replace(api, target, &params, &object, replacements).await?;
            take_over(api, target, &params, &object, made).await?
        }
        (applied, _) => take_over(api, target, &params, &object, applied?).await?,
    };
    if removals.is_empty() {
        return Ok(applied);
    }
    let live = serde_json::to_value(&applied).unwrap_or_default();
    match removal_patch(&live, &removals) {
        Some(patch) => Ok(api
            .patch(&target.name, &PatchParams::apply(&manager), &Patch::Merge(patch))
            .await?),
        None => Ok(applied),
    }
}

/// What OCM's agent wrote before becomes ours, and what of it the manifest does not say goes.
async fn take_over(
    api: &Api<DynamicObject>,
    target: &Target,
    params: &PatchParams,
    object: &Value,
    applied: DynamicObject,
) -> Result<DynamicObject, Failure> {
    let manager = params.field_manager.as_deref().unwrap_or_default();
    let entries = applied.metadata.managed_fields.as_deref().unwrap_or_default();
    let Some(merged) = takeover::merged(entries, manager) else {
        return Ok(applied);
    };
    let patch = json!({"metadata": {
        "uid": applied.metadata.uid,
        "resourceVersion": applied.metadata.resource_version,
        "managedFields": merged,
    }});
    let quiet = PatchParams::apply(manager);
    api.patch_metadata(&target.name, &quiet, &Patch::Merge(&patch))
        .await?;
    Ok(api.patch(&target.name, params, &Patch::Apply(object)).await?)
}

async fn create_only(
    client: &Client,
    api: &Api<DynamicObject>,
    target: &Target,
    owner: &Owner,
) -> Result<DynamicObject, Failure> {
    if let Some(live) = read(client, target).await? {
        return Ok(live);
    }
    let mut object = target.object.clone();
    let _ = take_removals(&mut object);
    if target.owned
        && let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.insert("ownerReferences".into(), json!([owner.reference()]));
    }
    let object: DynamicObject = serde_json::from_value(object)
        .map_err(|error| Failure::IgnoreFields(format!("the manifest is not an object: {error}")))?;
    let params = PostParams {
        field_manager: Some(owner.manager()),
        ..PostParams::default()
    };
    match api.create(&params, &object).await {
        // Somebody else was faster.
        Err(error) if status_code(&error) == Some(409) => Ok(api.get(&target.name).await?),
        other => Ok(other?),
    }
}

async fn server_side_apply(
    client: &Client,
    api: &Api<DynamicObject>,
    target: &Target,
    options: &ServerSideApply,
) -> Result<DynamicObject, Failure> {
    let mut params = PatchParams::apply(&options.field_manager);
    params.force = options.force;
    let mut attempts = 0;
    loop {
        let mut object = target.object.clone();
        let _ = take_removals(&mut object);
        if !options.ignore_fields.is_empty() {
            object = without_ignored(client, target, options, object).await?;
        }
        attempts += 1;
        match api.patch(&target.name, &params, &Patch::Apply(&object)).await {
            Err(kube::Error::Api(status))
                if status.code == 409 && status.message.starts_with("Apply failed with ") =>
            {
                return Err(Failure::Conflict(status.message.clone()));
            }
            // Somebody changed it since it was read.
            Err(error) if status_code(&error) == Some(409) && attempts < 5 => {}
            other => return Ok(other?),
        }
    }
}

/// What is applied of a manifest of which some fields are ignored once the object is there.
async fn without_ignored(
    client: &Client,
    target: &Target,
    options: &ServerSideApply,
    mut object: Value,
) -> Result<Value, Failure> {
    // What is always ignored does not count as a change of the manifest.
    let mut counted = object.clone();
    ignore::remove(
        &mut counted,
        &options.ignore_fields,
        IgnoreFieldCondition::OnSpokePresent,
    )
    .map_err(Failure::IgnoreFields)?;
    let hash = digest(&counted);
    let live = read(client, target).await?;
    if let Some(live) = &live {
        let annotations = live.metadata.annotations.as_ref();
        let applied = annotations.and_then(|annotations| annotations.get(CONFIG_SPEC_HASH_ANNOTATION));
        let conditions: &[_] = if applied == Some(&hash) {
            &[
                IgnoreFieldCondition::OnSpokePresent,
                IgnoreFieldCondition::OnSpokeChange,
            ]
        } else {
            &[IgnoreFieldCondition::OnSpokePresent]
        };
        let entries = live.metadata.managed_fields.as_deref().unwrap_or_default();
        let ours = settle::applied_by(entries, &options.field_manager);
        let there = serde_json::to_value(live).map_err(kube::Error::SerdeError)?;
        object = settle::settle(&object, &there, ours, &options.ignore_fields, conditions)
            .map_err(Failure::IgnoreFields)?;
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(CONFIG_SPEC_HASH_ANNOTATION.into(), hash.into());
        }
        // Only over what was read: a field that somebody changes in this moment is his.
        if let Some(version) = live.and_then(|live| live.metadata.resource_version) {
            metadata.insert("resourceVersion".into(), version.into());
        }
    }
    Ok(object)
}

fn digest(object: &Value) -> String {
    hex(&Sha256::digest(object.to_string().as_bytes()))
}

/// Puts our owner reference on the object, or takes it off.
async fn own(
    api: &Api<DynamicObject>,
    target: &Target,
    owner: &Owner,
    mut live: DynamicObject,
) -> Result<DynamicObject, Failure> {
    for attempt in 0..5 {
        let Some(owners) = owners(live.metadata.owner_references.as_deref(), owner, target.owned) else {
            return Ok(live);
        };
        let patch = json!({"metadata": {
            "uid": live.metadata.uid,
            "resourceVersion": live.metadata.resource_version,
            "ownerReferences": owners,
        }});
        let params = PatchParams::apply(writ_api::work::DEFAULT_FIELD_MANAGER);
        match api.patch(&target.name, &params, &Patch::Merge(&patch)).await {
            Err(error) if status_code(&error) == Some(409) && attempt < 4 => {
                live = api.get(&target.name).await?;
            }
            other => return Ok(other?),
        }
    }
    Ok(live)
}

/// The owner references that an object should have; `None` if it has them.
pub fn owners(current: Option<&[OwnerReference]>, owner: &Owner, ours: bool) -> Option<Vec<OwnerReference>> {
    let current = current.unwrap_or_default();
    let has = current.iter().any(|reference| reference.uid == owner.uid);
    if has == ours {
        return None;
    }
    let mut wanted = current.to_vec();
    if ours {
        wanted.push(owner.reference());
    } else {
        wanted.retain(|reference| reference.uid != owner.uid);
    }
    Some(wanted)
}

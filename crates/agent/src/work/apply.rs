//! Writes one object as its strategy says, with as few requests as that takes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions},
    core::DynamicObject,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use writ_api::work::{
    AppliedManifestWork, CONFIG_SPEC_HASH_ANNOTATION, IgnoreFieldCondition, ServerSideApply,
    UpdateStrategyType,
};
use writ_api::writ::{ADOPT_ANNOTATION, ON_CONFLICT_ANNOTATION, ON_CONFLICT_REFUSE};
use writ_runtime::{error::status_code, segment};

use super::{
    create, hex, ignore,
    mapper::Kind,
    plan::{Target, removal_patch, take_removals},
    read::read,
    takeover,
};

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
        && segment::is_plain(&reference.name)
        && reference
            .api_version
            .starts_with("work.open-cluster-management.io/")
}

/// Whether a reference says that an object belongs to a NamespaceGrant.
pub fn is_grant(reference: &OwnerReference) -> bool {
    reference.kind == "NamespaceGrant"
        && segment::is_plain(&reference.name)
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
            Self::IgnoreFields(message) | Self::Conflict(message) | Self::Foreign(message) => message.clone(),
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
            Self::IgnoreFields(_) | Self::Foreign(_) => None,
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
pub struct Known {
    /// What cannot be changed is made anew only if it may be deleted.
    pub may_replace: bool,
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
    known: Known,
) -> Result<Option<DynamicObject>, Failure> {
    let api = api(client, &target.kind, &target.namespace);
    let written = match target.config.strategy.type_ {
        UpdateStrategyType::ReadOnly => return Ok(read(client, target).await?),
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

/// Whether the manifest says that an object of somebody else is not to be overwritten.
pub fn refuses(target: &Target) -> bool {
    let annotations = target.object.pointer("/metadata/annotations");
    annotations
        .and_then(|annotations| annotations.get(ON_CONFLICT_ANNOTATION))
        .is_some_and(|value| value == ON_CONFLICT_REFUSE)
}

/// What is not ours is not overwritten, if the manifest says so. An object that this work has written stays ours when
/// somebody takes the owner reference off it: who wrote its fields is known to the server, by `manager`.
pub async fn not_foreign(client: &Client, target: &Target, manager: &str) -> Result<(), Failure> {
    if !refuses(target) {
        return Ok(());
    }
    let api = api(client, &target.kind, &target.namespace);
    let Some(live) = api.get_metadata_opt(&target.name).await? else {
        return Ok(());
    };
    let owners = live.metadata.owner_references.unwrap_or_default();
    let delivered = owners.iter().any(is_delivered);
    let fields = live.metadata.managed_fields.unwrap_or_default();
    if delivered || takeover::written_by(&fields, manager).is_some() {
        return Ok(());
    }
    Err(Failure::Foreign(format!(
        "{} {} exists and was not put there by a work, so it is left alone: remove it, or let it be adopted (annotation {ADOPT_ANNOTATION}=true on the ClusterPermission)",
        target.kind.resource.kind, target.name
    )))
}

/// Everything in the manifest is enforced by the server's own merge: fields of others stay, fields that left the
/// manifest go, and an unchanged object is not written.
async fn update(
    client: &Client,
    api: &Api<DynamicObject>,
    target: &Target,
    owner: &Owner,
    known: Known,
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
                not_foreign(client, target, &manager).await?;
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
    let applied = match api.patch(&target.name, &params, &Patch::Apply(&object)).await {
        Err(error)
            if known.may_replace
                && status_code(&error) == Some(422)
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
            replace(api, target, &params, &object, error).await?
        }
        other => other?,
    };
    let applied = take_over(api, target, &params, &object, applied).await?;
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

async fn replace(
    api: &Api<DynamicObject>,
    target: &Target,
    params: &PatchParams,
    object: &Value,
    refused: kube::Error,
) -> Result<DynamicObject, Failure> {
    let live = api.get(&target.name).await?;
    let immutable = live.data.get("immutable") == Some(&Value::Bool(true));
    let other_type = target
        .object
        .get("type")
        .is_some_and(|wanted| live.data.get("type") != Some(wanted));
    let other_role = target.object.get("roleRef").is_some_and(|wanted| {
        let live = live.data.get("roleRef");
        ["kind", "name"]
            .iter()
            .any(|field| live.and_then(|role| role.get(field)) != wanted.get(field))
    });
    if !immutable && !other_type && !other_role {
        return Err(refused.into());
    }
    would_be_made(api, object).await?;
    let exact = DeleteParams::background().preconditions(Preconditions {
        uid: live.metadata.uid,
        resource_version: live.metadata.resource_version,
    });
    api.delete(&target.name, &exact).await?;
    Ok(api.patch(&target.name, params, &Patch::Apply(object)).await?)
}

/// Nothing is deleted for something that cannot be made: the server is asked first, under another name.
async fn would_be_made(api: &Api<DynamicObject>, object: &Value) -> Result<(), Failure> {
    let mut object = object.clone();
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("name");
        metadata.insert("generateName".into(), "writ-trial-".into());
    }
    let trial: DynamicObject = serde_json::from_value(object)
        .map_err(|error| Failure::IgnoreFields(format!("the manifest is not an object: {error}")))?;
    let params = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api.create(&params, &trial).await {
        // A webhook that cannot try says nothing about the object.
        Err(kube::Error::Api(status)) if status.code == 400 && status.message.contains("dry run") => Ok(()),
        other => Ok(other.map(drop)?),
    }
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
        field_manager: Some(writ_api::work::DEFAULT_FIELD_MANAGER.into()),
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
    let mut object = target.object.clone();
    let _ = take_removals(&mut object);
    if !options.ignore_fields.is_empty() {
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
        if let Some(live) = live {
            let applied = live
                .metadata
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(CONFIG_SPEC_HASH_ANNOTATION));
            if applied == Some(&hash) {
                return Ok(live);
            }
            object = counted;
        }
        annotate(&mut object, &hash);
    }
    let mut params = PatchParams::apply(&options.field_manager);
    params.force = options.force;
    match api.patch(&target.name, &params, &Patch::Apply(&object)).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Err(Failure::Conflict(status.message.clone())),
        other => Ok(other?),
    }
}

fn annotate(object: &mut Value, hash: &str) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
        if let Some(annotations) = annotations.as_object_mut() {
            annotations.insert(CONFIG_SPEC_HASH_ANNOTATION.into(), hash.into());
        }
    }
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

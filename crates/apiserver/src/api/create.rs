//! POST.

use bytes::Bytes;
use http::{Method, Response, StatusCode};
use serde_json::{Value, json};
use writ_authz::Write;

use super::admit::{self, Operation};
use super::update::{Done, finish, no_version};
use super::write::{self, Options};
use super::{Call, meta, ownership, restrict, signing};
use crate::http::Body;
use crate::status::{Failure, Result};
use crate::store::{Expect, Refused, key_of};

pub(super) async fn create(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    call.accept()?;
    let options = write::options(call, "CreateOptions")?;
    let value = write::read_object(call, body, &options)?;
    let done = store_new(call, value, &options, true).await?;
    finish(call, done).await
}

/// Makes a new object that the server wants by itself; those who have a say about new ones have it about this one, too.
pub(crate) async fn create_as(call: &Call, manager: &str, value: Value) -> Result<()> {
    store_new(call, value, &Options::of(manager), true)
        .await
        .map(drop)
}

/// Makes a new object of what a client sent. `track` says whether ownership is still to be recorded.
pub(super) async fn store_new(call: &Call, mut value: Value, options: &Options, track: bool) -> Result<Done> {
    call.writable()?;
    write::check_place(call, &mut value)?;
    let resource = &call.resource;
    let generated = meta::text(&value, "name").is_empty();
    // The real server checks the namespace before it looks at the object any further.
    admit::definition(call, &value)?;
    admit::namespace(call, &value)?;
    // A custom resource may be posted to the path of one; that is where it is asked for, not what it is called.
    let posted = call.method == Method::POST;
    if posted {
        meta::wipe(&mut value);
    }
    if track {
        ownership::track(call, options, None, &mut value)?;
    } else {
        ownership::forget_empty(call, &mut value)?;
    }
    // The object gets its identity when those who may change it have done so.
    let mutated = admit::mutate(call, Operation::Create, &mut value, None, options, None).await?;
    if mutated {
        write::check_place(call, &mut value)?;
    }
    if !posted {
        let rv = meta::text(&value, "resourceVersion");
        if !rv.is_empty() && meta::parse_version(rv).is_none() {
            return Err(no_version(rv));
        }
        meta::edit(&mut value, |metadata| metadata.remove("resourceVersion"));
    }
    meta::begin(resource, &mut value, &call.state.clock);
    prepare(call, &mut value)?;
    // A path that names the object also names what may be escalated.
    let write = if posted { Write::Create } else { Write::Update };
    admit::escalation(call, &value, write)?;
    write::validate(call, &value, None)?;
    signing::check_subject(call, &value)?;
    if !posted {
        // The right to update or patch is not the right to create.
        write::demand(call, "create")?;
    }
    let _charge = admit::validate(call, Operation::Create, &value, None, options).await?;
    if mutated || (!track && resource.builtin.is_none()) {
        write::forget_unknown(call, &mut value)?;
    }
    if let Some(kind) = resource.builtin {
        kind.complete(&mut value);
    }
    // A path that names the object says where it is kept, even if a webhook gave it another name.
    let key = if posted {
        key_of(meta::text(&value, "namespace"), meta::text(&value, "name"))
    } else {
        call.key()
    };
    if options.dry_run {
        if call.state.store.get(&resource.table, &key).is_some() {
            return Err(exists(call, meta::text(&value, "name"), generated, &key));
        }
        return Ok(Done::tried(StatusCode::CREATED, call.as_read(value)));
    }
    let versioned = meta::parse_version(meta::text(&value, "resourceVersion")).is_some_and(|rv| rv != 0);
    if posted && versioned {
        let why = "resourceVersion should not be set on objects to be created";
        return Err(Failure::new(500, "", why));
    }
    let name = meta::text(&value, "name").to_owned();
    meta::forget_link(&mut value);
    crate::registry::to_storage(resource, &mut value);
    match call
        .state
        .store
        .put_at(&resource.table, key.clone(), Expect::Absent, value)
    {
        Ok(object) => Ok(Done::stored(StatusCode::CREATED, object)),
        Err(Refused::Exists) => Err(exists(call, &name, generated, &key)),
        Err(Refused::TooLarge) => Err(write::too_large()),
        Err(_) => Err(Failure::internal("the object could not be stored")),
    }
}

fn exists(call: &Call, name: &str, generated: bool, key: &str) -> Failure {
    let resource = &call.resource;
    if generated {
        return Failure::retry(
            409,
            "AlreadyExists",
            format!(
                "{} \"{name}\" already exists, the server was not able to generate a unique name for the object",
                crate::status::qualified(&resource.group, &resource.plural)
            ),
            1,
        );
    }
    let failure = Failure::already_exists(&resource.group, &resource.plural, name);
    if call
        .state
        .store
        .get(&resource.table, key)
        .is_some_and(|object| object.deleting)
    {
        return failure.prefixed("object is being deleted: ");
    }
    failure
}

/// What a new object begins with.
fn prepare(call: &Call, value: &mut Value) -> Result<()> {
    match call.resource.builtin {
        Some(kind) => kind.prepare_create(value, &call.state.clock.rfc3339()),
        None => {
            if call.version()?.status
                && let Some(map) = value.as_object_mut()
            {
                map.remove("status");
            }
        }
    }
    if &*call.resource.table == "customresourcedefinitions.apiextensions.k8s.io" {
        let stored = restrict::storage_versions(value, &[]);
        if let Some(map) = value.as_object_mut() {
            map.insert(
                "status".into(),
                json!({ "acceptedNames": { "kind": "", "plural": "" }, "conditions": null, "storedVersions": stored }),
            );
        }
    }
    if &*call.resource.table == "certificatesigningrequests.certificates.k8s.io"
        && let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut)
    {
        // Who asks is not for the asker to say.
        for name in ["username", "uid", "groups", "extra"] {
            spec.remove(name);
        }
        if let Value::Object(user) = call.user.to_json() {
            spec.extend(user);
        }
    }
    Ok(())
}

//! PUT, and the way that all changes of existing objects take.

use std::sync::Arc;

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::Value;
use writ_authz::Write;

use super::admit::{self, Operation};
use super::write::{self, Options};
use super::{Call, create, meta, ownership, patched, restrict, signing};
use crate::http::Body;
use crate::schema::Cause;
use crate::status::{Failure, Result};
use crate::store::{Expect, Object, Refused};

/// How often a change is tried again on a newer state.
const TRIES: usize = 8;

/// How an object is changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// PUT: the whole object.
    Replace,
    /// PATCH: computed from the current state, so that it can be tried again.
    Patch,
    /// Server-side apply: as PATCH, creates what is missing, and has recorded ownership itself.
    Apply,
}

pub(super) async fn update(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    call.accept()?;
    let options = write::options(call, "UpdateOptions")?;
    let mut value = write::read_object(call, body, &options)?;
    check_name(call, &value)?;
    write::check_place(call, &mut value)?;
    let done = modify(call, &options, How::Replace, &|_| Ok(value.clone())).await?;
    finish(call, done).await
}

pub(super) fn check_name(call: &Call, value: &Value) -> Result<()> {
    let name = meta::text(value, "name");
    if name.is_empty() {
        return Err(Failure::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            call.target.name
        )));
    }
    if name != call.target.name {
        return Err(Failure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            call.target.name
        )));
    }
    Ok(())
}

/// A finished write.
pub(super) struct Done {
    pub code: StatusCode,
    outcome: Outcome,
}

enum Outcome {
    /// This is what is stored now.
    Stored(Arc<Object>),
    /// It is not stored: it was only tried, or this write was its end, which has a version.
    Shown(Value, Option<u64>),
}

impl Done {
    pub fn stored(code: StatusCode, object: Arc<Object>) -> Self {
        let outcome = Outcome::Stored(object);
        Self { code, outcome }
    }

    pub fn tried(code: StatusCode, value: Value) -> Self {
        let outcome = Outcome::Shown(value, None);
        Self { code, outcome }
    }

    fn ended(value: Value, rv: u64) -> Self {
        let outcome = Outcome::Shown(value, Some(rv));
        let code = StatusCode::OK;
        Self { code, outcome }
    }

    /// Waits for the disk.
    pub async fn durable(&self, call: &Call) -> Result<()> {
        match &self.outcome {
            Outcome::Stored(object) => call.durable(object.rv).await,
            Outcome::Shown(_, Some(rv)) => call.durable(*rv).await,
            Outcome::Shown(_, None) => Ok(()),
        }
    }

    pub fn value(self, call: &Call) -> Value {
        match self.outcome {
            Outcome::Stored(object) => call.value_of(&object),
            Outcome::Shown(value, _) => value,
        }
    }
}

/// Waits for the disk and answers.
pub(super) async fn finish(call: &Call, done: Done) -> Result<Response<Body>> {
    done.durable(call).await?;
    match &done.outcome {
        Outcome::Stored(object) => call.respond(done.code, object),
        Outcome::Shown(value, _) => call.respond_value(done.code, value),
    }
}

/// A change that the server makes by itself; those who have a say about changes have it about this one, too.
pub(crate) async fn change_as(
    call: &Call,
    manager: &str,
    how: How,
    make: &(dyn Fn(Option<&Value>) -> Result<Value> + Sync),
) -> Result<()> {
    modify(call, &Options::of(manager), how, make).await.map(drop)
}

/// Changes an object: `make` gets the current one (none, if apply is to create it) and returns what it is to be.
pub(super) async fn modify(
    call: &Call,
    options: &Options,
    how: How,
    make: &(dyn Fn(Option<&Value>) -> Result<Value> + Sync),
) -> Result<Done> {
    call.writable()?;
    let store = &call.state.store;
    for _ in 0..TRIES {
        let Some(current) = store.get(&call.resource.table, &call.key()) else {
            let main = call.target.subresource.is_empty();
            if !main || !(how == How::Apply || (how == How::Replace && restrict::creates_on_update(call))) {
                return Err(call.not_found());
            }
            let mut value = make(None)?;
            check_no_uid(call, &value)?;
            fill(call, how, &mut value)?;
            match create::store_new(call, value, options, how != How::Apply).await {
                Err(failure) if failure.reason() == "AlreadyExists" => continue,
                done => return done,
            }
        };
        match change(call, options, how, make, &current).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(Refused::TooLarge)) => return Err(write::too_large()),
            Ok(Err(Refused::Missing)) if how != How::Apply => return Err(call.not_found()),
            Ok(Err(_)) => {}
            Err(failure) => return Err(failure),
        }
    }
    Err(Failure::stale(
        &call.resource.group,
        &call.resource.plural,
        &call.target.name,
    ))
}

fn fill(call: &Call, how: How, value: &mut Value) -> Result<()> {
    match how {
        How::Apply => write::default_made(call, value),
        How::Replace | How::Patch => write::default(call, value),
    }
}

/// One try. The inner error says that somebody else was faster.
async fn change(
    call: &Call,
    options: &Options,
    how: How,
    make: &(dyn Fn(Option<&Value>) -> Result<Value> + Sync),
    current: &Arc<Object>,
) -> Result<Result<Done, Refused>> {
    call.readable(current)?;
    let old = call.value_of(current);
    let mut new = make(Some(&old))?;
    check_uid(call, how, &old, &new)?;
    // Before the server fills in what a write left out.
    let grants = admit::may_grant(call, &old, &new);
    let version = call.version()?;
    let applied = (how == How::Apply && admit::may_patch(call)).then(|| patched::differs(&new, &old));
    fill(call, how, &mut new)?;
    // An apply, and all that comes through `/scale`, has recorded it already.
    let emptied = if how != How::Apply && call.target.subresource != "scale" {
        ownership::track(call, options, Some(&old), &mut new)?
    } else {
        ownership::forget_empty(call, &mut new)?
    };
    let mutated = admit::mutate(call, Operation::Update, &mut new, Some(&old), options, applied).await?;
    assume_version(call, &old, &mut new);
    check_version(call, &old, &new)?;
    write::check_place(call, &mut new)?;
    meta::carry(&old, &mut new);
    // Of client and webhooks alike: they come through the same door.
    restrict::keep(call, version, &old, &mut new);
    meta::carry_end(&old, &mut new);
    if let Some(kind) = call.resource.builtin {
        kind.prepare_update(&mut new, &old, &call.state.clock.rfc3339());
    }
    // Through the status nothing else changes, whatever defaults another version brings. What is not kept is no change.
    if call.target.subresource != "status" {
        meta::count_generation(&call.resource, version, &old, &mut new, emptied);
    }
    if grants || admit::may_grant(call, &old, &new) {
        admit::escalation(call, &new, Write::Update)?;
    }
    write::validate(call, &new, Some(&old))?;
    signing::check_rights(call, &old, &new)?;
    let _charge = admit::validate(call, Operation::Update, &new, Some(&old), options).await?;
    if mutated || (how == How::Apply && call.resource.builtin.is_none()) {
        write::forget_unknown(call, &mut new)?;
    }
    if let Some(kind) = call.resource.builtin {
        kind.complete(&mut new);
    }

    if !options.dry_run {
        meta::forget_link(&mut new);
    }
    let expect = Expect::At(current.rv);
    // A pod that somebody waited for needs no more time to stop here.
    let held = &*call.resource.table == "pods" && !meta::finalizers(&old).is_empty();
    let stopped = held || meta::grace(&old).unwrap_or_default() == 0;
    let gone =
        current.deleting && meta::finalizers(&new).is_empty() && stopped && !restrict::lives_on(call, &new);
    if !gone && meta::same(&old, &new) && is_kept_so(call, current, &new) {
        return Ok(Ok(Done::stored(StatusCode::OK, current.clone())));
    }
    meta::edit(&mut new, |metadata| {
        metadata.insert("resourceVersion".into(), current.rv.to_string().into())
    });
    if options.dry_run {
        return Ok(Ok(Done::tried(StatusCode::OK, call.as_read(new))));
    }
    let store = &call.state.store;
    if gone {
        // The last finalizer is gone: this write is the end of the object.
        return Ok(store
            .remove(&call.resource.table, &current.key, expect)
            .map(|object| {
                meta::edit(&mut new, |metadata| {
                    metadata.insert("resourceVersion".into(), object.rv.to_string().into())
                });
                Done::ended(new, object.rv)
            }));
    }
    crate::registry::to_storage(&call.resource, &mut new);
    Ok(store
        .put_at(&call.resource.table, current.key.clone(), expect, new)
        .map(|object| Done::stored(StatusCode::OK, object)))
}

/// Whether what is stored would not change. It may be in another version, or lack defaults that came since: who writes such
/// an object as it is read brings it up to date.
fn is_kept_so(call: &Call, current: &Object, new: &Value) -> bool {
    call.resource.builtin.is_some() || {
        let mut kept = new.clone();
        crate::registry::to_storage(&call.resource, &mut kept);
        meta::same(&current.value(), &kept)
    }
}

/// A write without a version is about whatever is there now, where that is allowed.
fn assume_version(call: &Call, old: &Value, new: &mut Value) {
    let rv = meta::text(new, "resourceVersion");
    if restrict::unconditional(call) && (rv.is_empty() || meta::parse_version(rv) == Some(0)) {
        meta::edit(new, |metadata| {
            metadata.insert(
                "resourceVersion".into(),
                meta::text(old, "resourceVersion").into(),
            )
        });
    }
}

fn check_uid(call: &Call, how: How, old: &Value, new: &Value) -> Result<()> {
    let resource = &call.resource;
    let name = &call.target.name;
    let (uid, old_uid) = (meta::text(new, "uid"), meta::text(old, "uid"));
    if how == How::Replace && !uid.is_empty() && uid != old_uid {
        return Err(Failure::conflict(
            &resource.group,
            &resource.plural,
            name,
            &format!(
                "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {old_uid}",
                storage_key(call)
            ),
        ));
    }
    Ok(())
}

/// What is not there yet has no uid.
pub(super) fn check_no_uid(call: &Call, value: &Value) -> Result<()> {
    let uid = meta::text(value, "uid");
    if uid.is_empty() {
        return Ok(());
    }
    let why =
        format!("uid mismatch: the provided object specified uid {uid}, and no existing object was found");
    let resource = &call.resource;
    Err(Failure::conflict(
        &resource.group,
        &resource.plural,
        &call.target.name,
        &why,
    ))
}

/// Only now, after those who may change the object, who may also change which version it is about.
fn check_version(call: &Call, old: &Value, new: &Value) -> Result<()> {
    let resource = &call.resource;
    let name = &call.target.name;
    let rv = meta::text(new, "resourceVersion");
    match meta::parse_version(rv) {
        None if !rv.is_empty() => Err(no_version(rv)),
        None | Some(0) => Err(Failure::invalid(
            &resource.group,
            &resource.plural,
            name,
            &[Cause::invalid(
                "metadata.resourceVersion",
                &0.into(),
                "must be specified for an update",
            )],
        )),
        same if same == meta::parse_version(meta::text(old, "resourceVersion")) => Ok(()),
        _ => Err(Failure::stale(&resource.group, &resource.plural, name)),
    }
}

/// What cannot be a version, which the real server finds late.
pub(super) fn no_version(rv: &str) -> Failure {
    Failure::new(
        500,
        "",
        format!("strconv.ParseUint: parsing {rv:?}: invalid syntax"),
    )
}

/// The key that the real server stores the object under; its messages name it.
fn storage_key(call: &Call) -> String {
    let resource = &call.resource;
    let builtin = resource.builtin.is_some() && resource.group != "apiextensions.k8s.io";
    let group = if builtin {
        String::new()
    } else {
        format!("{}/", resource.group)
    };
    format!("/registry/{group}{}/{}", resource.plural, call.key())
}

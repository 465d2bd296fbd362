//! DELETE, of one object and of a collection.

use bytes::Bytes;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::admit::{self, Operation};
use super::write::Options;
use super::{Call, list, meta, write};
use crate::clock::Clock;
use crate::http::{Body, decode_body};
use crate::registry::Resource;
use crate::schema::Cause;
use crate::status::{Failure, Result, success};
use crate::store::{Expect, Object, Refused, Store};

/// What becomes of dependents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Propagation {
    Background,
    Foreground,
    Orphan,
}

/// How an object is to be deleted.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeleteWish {
    pub propagation: Option<Propagation>,
    pub uid: Option<String>,
    pub rv: Option<String>,
    pub dry_run: bool,
    /// The options as they were given, for admission.
    pub shown: Value,
}

/// What a deletion did.
pub(crate) enum Deleted {
    /// It waits for finalizers.
    Marked(Value, u64),
    /// It is gone.
    Gone(Value, u64),
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

fn invalid(causes: &[Cause]) -> Failure {
    Failure::invalid("meta.k8s.io", "DeleteOptions", "", causes)
}

fn wish(call: &Call, bytes: &[u8]) -> Result<DeleteWish> {
    let mut options = json!({});
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let query = &call.query;
        if let Some(policy) = query.get("propagationPolicy") {
            put(&mut options, "propagationPolicy", policy.into());
        }
        if let Some(orphan) = query.optional_flag("orphanDependents") {
            put(&mut options, "orphanDependents", orphan.into());
        }
        let dry_run = query.all("dryRun");
        if !dry_run.is_empty() {
            put(&mut options, "dryRun", dry_run.into());
        }
        if let Some(seconds) = query.number("gracePeriodSeconds")? {
            put(&mut options, "gracePeriodSeconds", seconds.into());
        }
    } else {
        let decoded = decode_body(&call.headers, bytes)?;
        options = decoded
            .map_err(|error| Failure::bad_request(format!("error decoding DeleteOptions: {error}")))?
            .value;
        if !options.is_object() {
            return Err(Failure::bad_request(
                "the body of the request is no DeleteOptions",
            ));
        }
        if let Some(bad) = options
            .get("gracePeriodSeconds")
            .filter(|s| !s.is_null() && !s.is_i64())
        {
            let found = if bad.is_string() { "string" } else { "value" };
            return Err(Failure::bad_request(format!(
                "json: cannot unmarshal {found} into Go struct field DeleteOptions.gracePeriodSeconds of type int64"
            )));
        }
        let kind = options.get("kind").and_then(Value::as_str).unwrap_or_default();
        if !kind.is_empty() && kind != "DeleteOptions" {
            return Err(Failure::bad_request(format!(
                "decoded object cannot be converted to DeleteOptions: {kind}"
            )));
        }
    }
    let mut causes = Vec::new();
    let mut wish = DeleteWish::default();
    let policy = options
        .get("propagationPolicy")
        .and_then(Value::as_str)
        .unwrap_or_default();
    wish.propagation = match policy {
        "" => None,
        "Background" => Some(Propagation::Background),
        "Foreground" => Some(Propagation::Foreground),
        "Orphan" => Some(Propagation::Orphan),
        other => {
            causes.push(Cause::not_supported(
                "propagationPolicy",
                &other.into(),
                &["Foreground", "Background", "Orphan", "nil"],
            ));
            None
        }
    };
    if let Some(orphan) = options.get("orphanDependents").and_then(Value::as_bool) {
        if wish.propagation.is_some() {
            causes.push(Cause::invalid(
                "propagationPolicy",
                &policy.into(),
                "orphanDependents and deletionPropagation cannot be both set",
            ));
        }
        wish.propagation = Some(if orphan {
            Propagation::Orphan
        } else {
            Propagation::Background
        });
    }
    for value in options
        .get("dryRun")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
    {
        match value.as_str() {
            Some("All") => wish.dry_run = true,
            Some("") => {}
            _ => causes.push(Cause::not_supported("dryRun", &json!([value]), &["All"])),
        }
    }
    if !causes.is_empty() {
        return Err(invalid(&causes));
    }
    let precondition = |name: &str| {
        options
            .pointer(&format!("/preconditions/{name}"))
            .and_then(Value::as_str)
            .map(str::to_owned)
    };
    wish.uid = precondition("uid");
    wish.rv = precondition("resourceVersion");
    if let Some(map) = options.as_object_mut() {
        map.remove("kind");
        map.remove("apiVersion");
    }
    wish.shown = options;
    Ok(wish)
}

fn put(value: &mut Value, name: &str, field: Value) {
    if let Some(map) = value.as_object_mut() {
        map.insert(name.to_owned(), field);
    }
}

pub(super) async fn delete(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    call.accept()?;
    let bytes = body;
    let wish = wish(call, bytes)?;
    let current = call.current()?;
    let deleted = remove(call, &current, &wish).await?;
    let (code, value, rv) = match deleted {
        Deleted::Marked(value, rv) => {
            // Still there, until others are done with it.
            (StatusCode::OK, value, rv)
        }
        Deleted::Gone(value, rv) if returns_object(&call.resource) => (StatusCode::OK, value, rv),
        Deleted::Gone(value, rv) => {
            call.durable(rv).await?;
            let mut details = json!({ "name": call.target.name, "kind": call.resource.plural, "uid": meta::text(&value, "uid") });
            if !call.resource.group.is_empty() {
                put(&mut details, "group", call.resource.group.clone().into());
            }
            return call
                .accept()?
                .media
                .respond(StatusCode::OK, success(&details).to_string().into());
        }
    };
    call.durable(rv).await?;
    call.respond_value(code, &value)
}

/// A few kinds answer with the object that is gone.
fn returns_object(resource: &Resource) -> bool {
    matches!(
        &*resource.table,
        "pods"
            | "podtemplates"
            | "serviceaccounts"
            | "services"
            | "persistentvolumes"
            | "persistentvolumeclaims"
            | "namespaces"
            | "resourcequotas"
            | "storageclasses.storage.k8s.io"
    )
}

async fn remove(call: &Call, current: &Object, wish: &DeleteWish) -> Result<Deleted> {
    let options = Options {
        dry_run: wish.dry_run,
        validation: write::Validation::Ignore,
        manager: String::new(),
        force: false,
        delete: Some(wish.shown.clone()),
    };
    let old = call.value_of(current);
    preconditions(&call.resource, &old, wish)?;
    admit::forbid_delete(call, &old)?;
    admit::mutate(call, Operation::Delete, &mut Value::Null, Some(&old), &options).await?;
    admit::validate(call, Operation::Delete, &Value::Null, Some(&old), &options).await?;
    let deleted = delete_object(
        &call.state.store,
        &call.state.clock,
        &call.resource,
        current,
        wish,
    )?;
    Ok(match deleted {
        Deleted::Marked(mut value, rv) => {
            call.to_request_version(&mut value);
            Deleted::Marked(value, rv)
        }
        Deleted::Gone(mut value, rv) => {
            call.to_request_version(&mut value);
            Deleted::Gone(value, rv)
        }
    })
}

fn preconditions(resource: &Resource, value: &Value, wish: &DeleteWish) -> Result<()> {
    let name = meta::text(value, "name");
    let check = |what: &str, wanted: &Option<String>, have: &str, perhaps: &str| match wanted {
        // Namespaces end in a way of their own.
        Some(wanted) if wanted != have && &*resource.table == "namespaces" => Err(Failure::conflict(
            &resource.group,
            &resource.plural,
            name,
            &format!("Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {have}"),
        )),
        Some(wanted) if wanted != have => Err(Failure::conflict(
            &resource.group,
            &resource.kind,
            name,
            &format!(
                "the {what} in the precondition ({wanted}) does not match the {what} in record ({have}). The object might have been {perhaps}"
            ),
        )),
        _ => Ok(()),
    };
    check(
        "UID",
        &wish.uid,
        meta::text(value, "uid"),
        "deleted and then recreated",
    )?;
    check(
        "ResourceVersion",
        &wish.rv,
        meta::text(value, "resourceVersion"),
        "modified",
    )
}

/// Deletes an object, or marks it if finalizers stand in the way. Tries again when the object changes meanwhile.
pub(crate) fn delete_object(
    store: &Store,
    clock: &Clock,
    resource: &Resource,
    current: &Object,
    wish: &DeleteWish,
) -> Result<Deleted> {
    let key = current.key.clone();
    let uid = current.uid;
    let missing = || Failure::not_found(&resource.group, &resource.plural, current.name());
    for _ in 0..8 {
        let now = store
            .get(&resource.table, &key)
            .filter(|now| now.uid == uid)
            .ok_or_else(missing)?;
        let mut value = now.value();
        preconditions(resource, &value, wish)?;
        let before = meta::finalizers(&value);
        let mut finalizers = before.clone();
        if let Some(propagation) = wish.propagation {
            finalizers.retain(|name| name != ORPHAN && name != FOREGROUND);
            match propagation {
                Propagation::Orphan => finalizers.push(ORPHAN.into()),
                Propagation::Foreground => finalizers.push(FOREGROUND.into()),
                Propagation::Background => {}
            }
        }
        if &*resource.table == "customresourcedefinitions.apiextensions.k8s.io" && !now.deleting {
            crate::controllers::mark_crd(&mut value, &mut finalizers, &clock.rfc3339());
        }
        let stays = !finalizers.is_empty() || is_namespace_with_content(resource, &value);
        let expect = Expect::At(now.rv);
        if !stays {
            if wish.dry_run {
                return Ok(Deleted::Gone(value, now.rv));
            }
            match store.remove(&resource.table, &key, expect) {
                Ok(object) => return Ok(Deleted::Gone(object.value(), object.rv)),
                Err(Refused::Missing) => return Err(missing()),
                Err(_) => continue,
            }
        }
        if now.deleting && finalizers == before {
            return Ok(Deleted::Marked(value, now.rv));
        }
        meta::set_finalizers(&mut value, &finalizers);
        if !now.deleting {
            let plain = !matches!(
                &*resource.table,
                "namespaces" | "customresourcedefinitions.apiextensions.k8s.io"
            );
            meta::edit(&mut value, |metadata| {
                metadata.insert("deletionTimestamp".into(), clock.rfc3339().into());
                // Definitions and namespaces have their own way to end.
                if plain {
                    metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
                }
                let generation = metadata.get("generation").and_then(Value::as_i64);
                if let Some(generation) = generation.filter(|generation| plain && *generation > 0) {
                    metadata.insert("generation".into(), (generation + 1).into());
                }
            });
            if &*resource.table == "namespaces"
                && let Some(status) = value.get_mut("status").and_then(Value::as_object_mut)
            {
                status.insert("phase".into(), "Terminating".into());
            }
        }
        if wish.dry_run {
            return Ok(Deleted::Marked(value, now.rv));
        }
        match store.put(&resource.table, expect, value) {
            Ok(object) => return Ok(Deleted::Marked(object.value(), object.rv)),
            Err(Refused::Missing) => return Err(missing()),
            Err(_) => {}
        }
    }
    Err(Failure::stale(&resource.group, &resource.plural, current.name()))
}

fn is_namespace_with_content(resource: &Resource, value: &Value) -> bool {
    &*resource.table == "namespaces"
        && value
            .pointer("/spec/finalizers")
            .and_then(Value::as_array)
            .is_some_and(|list| !list.is_empty())
}

/// Deletes everything that a list with the same parameters would show.
pub(super) async fn delete_collection(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    let accept = call.accept()?;
    let bytes = body;
    let wish = wish(call, bytes)?;
    let (page, position) = list::page(call)?;
    let mut items = Vec::new();
    let mut newest = page.rv;
    for object in &page.objects {
        match remove(call, object, &wish).await {
            // The answer shows what was found, not what became of it.
            Ok(Deleted::Marked(_, rv) | Deleted::Gone(_, rv)) => {
                newest = newest.max(rv);
                items.push(call.value_of(object));
            }
            Err(failure) if failure.code() == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    call.durable(newest).await?;
    if call.resource.builtin.is_some() {
        for item in &mut items {
            if let Some(map) = item.as_object_mut() {
                map.remove("apiVersion");
                map.remove("kind");
            }
        }
    }
    let list = json!({
        "kind": call.resource.list_kind,
        "apiVersion": call.api_version(),
        "metadata": position.to_json(),
        "items": items,
    });
    accept.media.respond(StatusCode::OK, list.to_string().into())
}

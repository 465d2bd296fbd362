//! DELETE, of one object and of a collection.

use bytes::Bytes;
use http::{Response, StatusCode};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::DeleteOptions;
use serde_json::{Value, json};

use super::admit::{self, Operation};
use super::write::Options;
use super::{Call, list, meta, write};
use crate::clock::Clock;
use crate::controllers::CRDS;
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

impl Propagation {
    /// The name in options.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Background => "Background",
            Self::Foreground => "Foreground",
            Self::Orphan => "Orphan",
        }
    }
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

/// The options of a deletion: in the body, or else in the query.
fn given(call: &Call, bytes: &[u8]) -> Result<DeleteOptions> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        let query = &call.query;
        let dry_run = query.all("dryRun");
        return Ok(DeleteOptions {
            propagation_policy: query.first("propagationPolicy").map(str::to_owned),
            orphan_dependents: query.optional_flag("orphanDependents"),
            dry_run: (!dry_run.is_empty()).then(|| dry_run.into_iter().map(str::to_owned).collect()),
            grace_period_seconds: query.number("gracePeriodSeconds")?,
            ..DeleteOptions::default()
        });
    }
    let refuse = |error: String| Failure::bad_request(format!("error decoding DeleteOptions: {error}"));
    let value = decode_body(&call.headers, bytes, ("v1", "DeleteOptions"))?
        .map_err(refuse)?
        .value;
    // Something of another type is refused: what was meant to be spared must not be deleted.
    let options: DeleteOptions = serde_json::from_value(value).map_err(|error| refuse(error.to_string()))?;
    match options.kind.as_deref().unwrap_or_default() {
        "" | "DeleteOptions" => Ok(options),
        kind => Err(Failure::bad_request(format!(
            "decoded object cannot be converted to DeleteOptions: {kind}"
        ))),
    }
}

fn wish(call: &Call, bytes: &[u8]) -> Result<DeleteWish> {
    let options = given(call, bytes)?;
    let mut causes = Vec::new();
    let policy = options.propagation_policy.as_deref();
    if let (Some(policy), Some(_)) = (policy, options.orphan_dependents) {
        let detail = "orphanDependents and deletionPropagation cannot be both set";
        causes.push(Cause::invalid("propagationPolicy", &policy.into(), detail));
    }
    let mut propagation = match policy {
        None => None,
        Some("Background") => Some(Propagation::Background),
        Some("Foreground") => Some(Propagation::Foreground),
        Some("Orphan") => Some(Propagation::Orphan),
        Some(other) => {
            let known = ["Foreground", "Background", "Orphan", "nil"];
            causes.push(Cause::not_supported("propagationPolicy", &other.into(), &known));
            None
        }
    };
    if let Some(orphan) = options.orphan_dependents {
        propagation = Some(if orphan {
            Propagation::Orphan
        } else {
            Propagation::Background
        });
    }
    let dry_run = options.dry_run.as_deref().unwrap_or_default();
    if dry_run.iter().any(|value| value != "All") {
        causes.push(Cause::not_supported("dryRun", &dry_run.into(), &["All"]));
    }
    if !causes.is_empty() {
        return Err(invalid(&causes));
    }
    let dry_run = !dry_run.is_empty();
    let shown = DeleteOptions {
        kind: None,
        api_version: None,
        dry_run: options.dry_run.filter(|_| dry_run),
        ..options
    };
    let preconditions = shown.preconditions.as_ref();
    Ok(DeleteWish {
        propagation,
        uid: preconditions.and_then(|it| it.uid.clone()),
        rv: preconditions.and_then(|it| it.resource_version.clone()),
        dry_run,
        shown: serde_json::to_value(&shown).map_err(Failure::internal)?,
    })
}

fn put(value: &mut Value, name: &str, field: Value) {
    if let Some(map) = value.as_object_mut() {
        map.insert(name.to_owned(), field);
    }
}

pub(super) async fn delete(call: &Call, body: &Bytes) -> Result<Response<Body>> {
    call.accept()?;
    let mut wish = wish(call, body)?;
    keep_pods(call, &mut wish);
    admit::forbid_delete_named(call)?;
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
            let mut details = json!({ "name": meta::text(&value, "name"), "kind": call.resource.plural, "uid": meta::text(&value, "uid") });
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

/// Pods of a job stay, unless it is said what becomes of them.
fn keep_pods(call: &Call, wish: &mut DeleteWish) {
    if &*call.resource.table == "jobs.batch" && wish.propagation.is_none() {
        wish.propagation = Some(Propagation::Orphan);
        call.warn(
            "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or set \
             propagationPolicy=Orphan to suppress this warning",
        );
    }
}

/// The options as those see them who are asked: the real server has filled in what it will do.
fn shown(call: &Call, old: &Value, wish: &DeleteWish) -> Value {
    let mut shown = wish.shown.clone();
    match &*call.resource.table {
        "namespaces" => {
            let mut preconditions = shown.get("preconditions").cloned().unwrap_or_else(|| json!({}));
            put(&mut preconditions, "uid", meta::text(old, "uid").into());
            put(&mut shown, "preconditions", preconditions);
        }
        "pods" => {
            let text = |pointer: &str| old.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
            let given = shown.get("gracePeriodSeconds").and_then(Value::as_i64);
            let usual = old
                .pointer("/spec/terminationGracePeriodSeconds")
                .and_then(Value::as_i64);
            // What does not run needs no time to stop.
            let idle =
                text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Failed" | "Succeeded");
            let grace = match given.or(usual).unwrap_or_default() {
                _ if idle => 0,
                negative if negative < 0 => 1,
                seconds => seconds,
            };
            put(&mut shown, "gracePeriodSeconds", grace.into());
        }
        _ => {}
    }
    shown
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

/// Deletes an object if nobody has anything against it.
pub(crate) async fn remove(call: &Call, current: &Object, wish: &DeleteWish) -> Result<Deleted> {
    call.readable(current)?;
    let old = call.value_of(current);
    let options = Options {
        dry_run: wish.dry_run,
        validation: write::Validation::Ignore,
        manager: String::new(),
        force: false,
        delete: Some(shown(call, &old, wish)),
    };
    preconditions(&call.resource, &old, wish)?;
    admit::forbid_delete(call, &old)?;
    admit::mutate(
        call,
        Operation::Delete,
        &mut Value::Null,
        Some(&old),
        &options,
        None,
    )
    .await?;
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
            call.to_request_version(&mut value, current.rv);
            Deleted::Marked(value, rv)
        }
        Deleted::Gone(mut value, rv) => {
            call.to_request_version(&mut value, current.rv);
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
        // Events own nothing: nobody waits for what they own.
        let propagation = match &*resource.table {
            "events" => Some(Propagation::Background),
            _ => wish.propagation,
        };
        if let Some(propagation) = propagation {
            finalizers.retain(|name| name != ORPHAN && name != FOREGROUND);
            match propagation {
                Propagation::Orphan => finalizers.push(ORPHAN.into()),
                Propagation::Foreground => finalizers.push(FOREGROUND.into()),
                Propagation::Background => {}
            }
        }
        if &*resource.table == CRDS && !now.deleting {
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
        // Definitions and namespaces have their own way to end.
        let plain = !matches!(&*resource.table, "namespaces" | CRDS);
        // Whoever made it may have written the time of its end. A definition gets what others get at once when it is
        // deleted for the second time.
        let begun = now.deleting && (&*resource.table == "namespaces" || meta::grace(&value) == Some(0));
        if begun && finalizers == before {
            return Ok(Deleted::Marked(value, now.rv));
        }
        meta::set_finalizers(&mut value, &finalizers);
        if !begun {
            let later = meta::text(&value, "deletionTimestamp")
                .parse()
                .is_ok_and(|end: jiff::Timestamp| end > clock.now());
            meta::edit(&mut value, |metadata| {
                if !now.deleting || later {
                    metadata.insert("deletionTimestamp".into(), clock.rfc3339().into());
                }
                if plain || now.deleting {
                    metadata.insert("deletionGracePeriodSeconds".into(), 0.into());
                }
                let generation = metadata.get("generation").and_then(Value::as_i64);
                let counted = plain && !now.deleting;
                if let Some(generation) = generation.filter(|generation| counted && *generation > 0) {
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
    list::check_options(call, call.query.flag("watch"))?;
    let mut wish = wish(call, body)?;
    keep_pods(call, &mut wish);
    let (mut page, position) = list::page(call)?;
    let mut deleted = Vec::new();
    let mut newest = page.rv;
    for object in page.objects {
        match remove(call, &object, &wish).await {
            // The answer shows what was found, not what became of it.
            Ok(Deleted::Marked(_, rv) | Deleted::Gone(_, rv)) => {
                newest = newest.max(rv);
                deleted.push(object);
            }
            Err(failure) if failure.code() == 404 => {}
            Err(failure) => return Err(failure),
        }
    }
    call.durable(newest).await?;
    page.objects = deleted;
    list::render(call, &accept, &page, position)
}

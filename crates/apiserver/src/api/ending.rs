//! How an object ends: at once, or marked until others are done with it.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::admit::{self, Operation};
use super::write::{self, Options};
use super::{Call, meta, restrict};
use crate::clock::{Clock, seconds};
use crate::controllers::CRDS;
use crate::registry::Resource;
use crate::status::{Failure, Result};
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
    /// How many seconds it may take.
    pub grace: Option<i64>,
    pub dry_run: bool,
    /// The options as they were given, for admission.
    pub shown: Value,
}

/// What a deletion did.
pub(crate) enum Deleted {
    /// It waits for others.
    Marked(Value, u64),
    /// It is gone.
    Gone(Value, u64),
}

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// How often a deletion is tried again on a newer state.
const TRIES: usize = 8;

/// What is to be done with an object that is to end.
enum Next {
    /// It ends already, and no sooner for this.
    Leave,
    /// It says from now on that it ends.
    Mark(Value, Then),
    /// Nobody waits for it.
    Remove,
    /// The same, once this deletion has dropped the finalizer of an older one. Others are asked about both.
    Release,
}

/// What becomes of an object that is marked.
#[derive(Clone, Copy)]
enum Then {
    /// It waits for its finalizers.
    Waits,
    /// It is removed, by a step that others are asked about again.
    Goes,
    /// It would be given its time to stop. Nothing runs here, so it needs none.
    Stops,
}

/// How long an object is given to stop.
enum Grace {
    /// Nothing of it runs.
    None,
    /// It was told before, and this is no less.
    Told,
    Seconds(i64),
}

/// Deletes an object if nobody has anything against it.
pub(crate) async fn remove(call: &Call, current: &Object, wish: &DeleteWish) -> Result<Deleted> {
    call.readable(current)?;
    let options = Options {
        dry_run: wish.dry_run,
        validation: write::Validation::Ignore,
        manager: String::new(),
        force: false,
        delete: Some(shown(call, &call.value_of(current), wish)),
    };
    let mut ending = Ending {
        store: &call.state.store,
        clock: &call.state.clock,
        resource: &call.resource,
        own_rules: has_own_rules(call),
        wish: wish.clone(),
    };
    for _ in 0..TRIES {
        let now = ending.find(current)?;
        let next = ending.next(&now);
        if !matches!(next, Next::Leave) {
            ask(call, &now, &options).await?;
        }
        if matches!(next, Next::Release) && !wish.dry_run {
            ask(call, &now, &options).await?;
        }
        let Some(mut deleted) = ending.go(&now, next)? else {
            continue;
        };
        let (Deleted::Marked(value, _) | Deleted::Gone(value, _)) = &mut deleted;
        call.to_request_version(value, current.rv);
        return Ok(deleted);
    }
    Err(ending.stale(current))
}

/// Asks those who have a say about deletions.
async fn ask(call: &Call, now: &Object, options: &Options) -> Result<()> {
    let (old, operation) = (call.value_of(now), Operation::Delete);
    admit::forbid_delete(call, &old)?;
    admit::mutate(call, operation, &mut Value::Null, Some(&old), options, None).await?;
    admit::validate(call, operation, &Value::Null, Some(&old), options)
        .await
        .map(drop)
}

/// Deletes an object without asking anybody.
pub(crate) fn delete_object(
    store: &Store,
    clock: &Clock,
    resource: &Resource,
    current: &Object,
    wish: &DeleteWish,
) -> Result<Deleted> {
    let mut ending = Ending {
        store,
        clock,
        resource,
        own_rules: false,
        wish: wish.clone(),
    };
    for _ in 0..TRIES {
        let now = ending.find(current)?;
        let next = ending.next(&now);
        if let Some(deleted) = ending.go(&now, next)? {
            return Ok(deleted);
        }
    }
    Err(ending.stale(current))
}

/// The options as those see them who are asked: the real server has filled in what it will do. Those of a whole collection it
/// leaves as they are.
fn shown(call: &Call, old: &Value, wish: &DeleteWish) -> Value {
    let mut shown = wish.shown.clone();
    let Some(options) = shown.as_object_mut().filter(|_| !call.target.name.is_empty()) else {
        return shown;
    };
    if has_own_rules(call) {
        let preconditions = options.entry("preconditions").or_insert_with(|| json!({}));
        if let Some(preconditions) = preconditions.as_object_mut() {
            preconditions.insert("uid".into(), meta::text(old, "uid").into());
        }
        return shown;
    }
    let ends = !meta::text(old, "deletionTimestamp").is_empty();
    let grace = match wish.grace.map(at_least) {
        given if is_pod(&call.resource) && !ends => Some(time_to_stop(old, given)),
        given => given,
    };
    if let Some(grace) = grace {
        options.insert("gracePeriodSeconds".into(), grace.into());
    }
    shown
}

/// Definitions and namespaces have their own way to end, unless a whole collection of them does.
fn has_own_rules(call: &Call) -> bool {
    matches!(&*call.resource.table, "namespaces" | CRDS) && !call.target.name.is_empty()
}

fn is_pod(resource: &Resource) -> bool {
    &*resource.table == "pods"
}

/// Less than no time is as little as there is.
fn at_least(seconds: i64) -> i64 {
    if seconds < 0 { 1 } else { seconds }
}

/// The seconds that a pod is given; what does not run needs none.
fn time_to_stop(pod: &Value, given: Option<i64>) -> i64 {
    let text = |pointer: &str| pod.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    if text("/spec/nodeName").is_empty() || matches!(text("/status/phase"), "Failed" | "Succeeded") {
        return 0;
    }
    let usual = pod.pointer("/spec/terminationGracePeriodSeconds");
    at_least(given.or(usual.and_then(Value::as_i64)).unwrap_or_default())
}

/// So many seconds later. Too many of them are counted as the real server counts them, which is round and round.
fn later(time: Timestamp, seconds: i64) -> Timestamp {
    let nanoseconds = seconds.wrapping_mul(1_000_000_000);
    time.saturating_add(SignedDuration::from_nanos(nanoseconds))
        .unwrap_or(time)
}

fn set_end(value: &mut Value, end: Timestamp) {
    meta::edit(value, |metadata| {
        metadata.insert("deletionTimestamp".into(), seconds(end).into())
    });
}

fn set_grace(value: &mut Value, seconds: i64) {
    meta::edit(value, |metadata| {
        metadata.insert("deletionGracePeriodSeconds".into(), seconds.into())
    });
}

/// An object that ends is another one to those who look after it.
fn count_end(value: &mut Value) {
    meta::edit(value, |metadata| {
        let generation = metadata.get("generation").and_then(Value::as_i64);
        if let Some(generation) = generation.filter(|generation| *generation > 0) {
            metadata.insert("generation".into(), (generation + 1).into());
        }
    });
}

/// One deletion.
struct Ending<'a> {
    store: &'a Store,
    clock: &'a Clock,
    resource: &'a Resource,
    own_rules: bool,
    wish: DeleteWish,
}

impl Ending<'_> {
    fn missing(&self, object: &Object) -> Failure {
        Failure::not_found(&self.resource.group, &self.resource.plural, object.name())
    }

    fn stale(&self, object: &Object) -> Failure {
        Failure::stale(&self.resource.group, &self.resource.plural, object.name())
    }

    /// The object as it is now, if it is the one that is meant.
    fn find(&self, seen: &Object) -> Result<Arc<Object>> {
        let now = self.store.get(&self.resource.table, &seen.key);
        let now = now
            .filter(|now| now.uid == seen.uid)
            .ok_or_else(|| self.missing(seen))?;
        self.check_preconditions(&now.value())?;
        Ok(now)
    }

    fn check_preconditions(&self, value: &Value) -> Result<()> {
        let (resource, name) = (self.resource, meta::text(value, "name"));
        let check = |what: &str, wanted: &Option<String>, have: &str, perhaps: &str| {
            let Some(wanted) = wanted.as_ref().filter(|wanted| *wanted != have) else {
                return Ok(());
            };
            let (named, why) = if self.own_rules {
                let why = format!(
                    "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {have}"
                );
                (&resource.plural, why)
            } else {
                let why = format!(
                    "the {what} in the precondition ({wanted}) does not match the {what} in record ({have}). The object might have been {perhaps}"
                );
                (&resource.kind, why)
            };
            Err(Failure::conflict(&resource.group, named, name, &why))
        };
        let (uid, rv) = (meta::text(value, "uid"), meta::text(value, "resourceVersion"));
        check("UID", &self.wish.uid, uid, "deleted and then recreated")?;
        check("ResourceVersion", &self.wish.rv, rv, "modified")
    }

    fn next(&self, now: &Object) -> Next {
        let mut value = now.value();
        let table = &*self.resource.table;
        if table == "namespaces" && now.deleting && restrict::has_content(&value) {
            return Next::Leave;
        }
        let mut finalizers = self.finalizers(&value);
        if self.own_rules && !now.deleting {
            set_end(&mut value, self.clock.now());
            if table == CRDS {
                finalizers = meta::finalizers(&value);
                crate::controllers::mark_crd(&mut value, &mut finalizers, &self.clock.rfc3339());
            } else if let Some(status) = value.get_mut("status").and_then(Value::as_object_mut) {
                status.insert("phase".into(), "Terminating".into());
            }
            meta::set_finalizers(&mut value, &finalizers);
            return Next::Mark(value, Then::Waits);
        }
        let grace = if is_pod(self.resource) {
            self.give_time(now, &mut value)
        } else {
            Grace::None
        };
        let dropped = !meta::finalizers(&value).is_empty();
        meta::set_finalizers(&mut value, &finalizers);
        match grace {
            Grace::Told => Next::Leave,
            Grace::None if finalizers.is_empty() && dropped => Next::Release,
            Grace::None if finalizers.is_empty() => Next::Remove,
            Grace::None => {
                self.mark(now, &mut value);
                Next::Mark(value, Then::Waits)
            }
            Grace::Seconds(_) if !finalizers.is_empty() => Next::Mark(value, Then::Waits),
            Grace::Seconds(0) => Next::Mark(value, Then::Goes),
            Grace::Seconds(_) => Next::Mark(value, Then::Stops),
        }
    }

    /// Who waits for the end of the object; in the order that it has, if they are the same as before.
    fn finalizers(&self, value: &Value) -> Vec<String> {
        let before = meta::finalizers(value);
        let is_policy = |name: &String| name == ORPHAN || name == FOREGROUND;
        let propagation = match &*self.resource.table {
            // Events own nothing: nobody waits for what they own.
            "events" => Some(Propagation::Background),
            // Pods of these stay, unless it is said what becomes of them.
            "jobs.batch" | "replicationcontrollers" if !before.iter().any(is_policy) => {
                Some(self.wish.propagation.unwrap_or(Propagation::Orphan))
            }
            _ => self.wish.propagation,
        };
        let Some(propagation) = propagation else {
            return before;
        };
        let mut finalizers = before.clone();
        finalizers.retain(|name| !is_policy(name));
        match propagation {
            Propagation::Orphan => finalizers.push(ORPHAN.into()),
            Propagation::Foreground => finalizers.push(FOREGROUND.into()),
            Propagation::Background => {}
        }
        let set = |list: &[String]| list.iter().cloned().collect::<BTreeSet<_>>();
        if set(&before) == set(&finalizers) {
            before
        } else {
            finalizers
        }
    }

    /// Marks an object that ends without any time to stop.
    fn mark(&self, now: &Object, value: &mut Value) {
        if !now.deleting {
            count_end(value);
        }
        // Whoever made it may have written the time of its end.
        let end = meta::text(value, "deletionTimestamp").parse();
        if end.map_or(true, |end: Timestamp| end > self.clock.now()) {
            set_end(value, self.clock.now());
        }
        set_grace(value, 0);
    }

    /// Tells a pod how long it may take. That can be made less later, not more.
    fn give_time(&self, now: &Object, pod: &mut Value) -> Grace {
        let given = self.wish.grace.map(at_least);
        let time = self.clock.now();
        if !now.deleting {
            let grace = time_to_stop(pod, given);
            count_end(pod);
            set_end(pod, later(time, grace));
            set_grace(pod, grace);
            return Grace::Seconds(grace);
        }
        let told = meta::grace(pod).map(at_least).unwrap_or_default();
        if told == 0 {
            return Grace::None;
        }
        let Some(grace) = given.filter(|grace| *grace < told) else {
            return Grace::Told;
        };
        let end = meta::text(pod, "deletionTimestamp").parse().unwrap_or(time);
        let end = later(later(end, told.wrapping_neg()), grace);
        if end < time {
            // Its time is over; it may be that nobody has seen that yet.
            set_end(pod, time);
            set_grace(pod, grace.min(1));
        } else {
            set_end(pod, end);
            set_grace(pod, grace);
        }
        Grace::Seconds(grace)
    }

    /// One step. None, if there are more: the object has changed, or is to be looked at again.
    fn go(&mut self, now: &Object, next: Next) -> Result<Option<Deleted>> {
        let (table, expect) = (&self.resource.table, Expect::At(now.rv));
        let (value, then) = match next {
            Next::Leave => (now.value(), Then::Waits),
            Next::Remove if self.wish.dry_run => return Ok(Some(Deleted::Gone(now.value(), now.rv))),
            Next::Release if self.wish.dry_run => {
                // It was never made, so nothing is known of it.
                let nothing = json!({ "kind": self.resource.kind, "metadata": {} });
                return Ok(Some(Deleted::Marked(nothing, now.rv)));
            }
            Next::Remove | Next::Release => {
                return match self.store.remove(table, &now.key, expect) {
                    Ok(gone) => Ok(Some(Deleted::Gone(gone.value(), gone.rv))),
                    Err(Refused::Missing) => Err(self.missing(now)),
                    Err(_) => Ok(None),
                };
            }
            Next::Mark(value, then) => (value, then),
        };
        if self.wish.dry_run {
            return Ok(Some(match then {
                Then::Goes => Deleted::Gone(value, now.rv),
                Then::Waits | Then::Stops => Deleted::Marked(value, now.rv),
            }));
        }
        if value == now.value() {
            return Ok(Some(Deleted::Marked(value, now.rv)));
        }
        let marked = match self.store.put(table, expect, value) {
            Ok(marked) => marked,
            Err(Refused::Missing) => return Err(self.missing(now)),
            Err(_) => return Ok(None),
        };
        match then {
            Then::Waits => Ok(Some(Deleted::Marked(marked.value(), marked.rv))),
            Then::Stops => Ok(Some(Deleted::Marked(marked.value(), self.stop(&marked)))),
            Then::Goes => {
                // Whoever wants a certain version means the one before.
                self.wish.rv = self.wish.rv.take().map(|_| marked.rv.to_string());
                Ok(None)
            }
        }
    }

    /// Removes what has nothing to wait for, whatever happened to it meanwhile. Says which version that made.
    fn stop(&self, marked: &Object) -> u64 {
        let table = &self.resource.table;
        while let Some(now) = self.store.get(table, &marked.key)
            && now.uid == marked.uid
        {
            if let Ok(gone) = self.store.remove(table, &now.key, Expect::At(now.rv)) {
                return gone.rv;
            }
        }
        marked.rv
    }
}

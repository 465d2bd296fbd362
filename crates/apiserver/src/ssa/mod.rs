//! Server-side apply and the ownership of fields.
//!
//! Every write goes through here: [`apply`] merges a configuration into an object and answers conflicts,
//! [`track_update`] records what another write changed. Both leave `metadata.managedFields` as the real
//! server would.

mod bare;
mod fieldset;
mod last_applied;
mod managed;
mod merge;
mod reconcile;
mod scale;
#[cfg(test)]
mod tests;
mod types;
mod variants;
mod walk;

use std::sync::LazyLock;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::builtin;
use crate::schema::Schema;
pub use bare::same_but_times;
use bare::{take_owners, without_owners};
use fieldset::{Element, Set};
pub use managed::owners_problem;
use managed::{Key, Managers, Owned};
pub use scale::{ReplicasPaths, SCALE_VERSION, owners_of_object, owners_of_scale};
use types::TypeRef;
pub use variants::Variant;
use variants::{Changes, prune};

/// Who writes, and how.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// The field manager's name.
    pub name: &'a str,
    /// The subresource written through, or empty.
    pub subresource: &'a str,
    /// The time of the write.
    pub time: Timestamp,
    /// Whether an apply takes fields from others.
    pub force: bool,
    /// The API version of the request.
    pub api_version: &'a str,
    /// Fields that this write cannot change: `status` on the object itself when there is a status
    /// subresource, `spec` on the status subresource, `metadata.labels` on that of a Deployment.
    pub ignored: &'a [&'a str],
    /// The versions that owners may have written, beside that of the request.
    pub versions: &'a [String],
    /// Those of them in which the object may have other fields.
    pub variants: &'a [Variant],
    /// What becomes of an owner that wrote in any other version.
    pub others: Others,
}

/// What becomes of an owner that wrote in a version that there is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Others {
    /// It is forgotten, alone: so it is with the built-in kinds.
    Forgotten,
    /// The object cannot be compared in that version, and all owners are lost: so it is with custom resources.
    Fatal,
}

impl Manager<'_> {
    /// Forgets owners of unknown versions, or says why that is not possible.
    fn heed_versions(&self, managers: &mut Managers) -> Result<(), String> {
        // `/v1` is another spelling of `v1`.
        let known = |version: &String| {
            let plain = version
                .strip_prefix('/')
                .filter(|plain| !plain.contains('/') && !plain.is_empty());
            let plain = plain.map_or_else(|| version.clone(), str::to_owned);
            plain == self.api_version || self.versions.contains(&plain)
        };
        let mut versions = managers.fields.values().map(|owned| &owned.api_version);
        if let Some(odd) = versions.clone().find(|version| version.matches('/').count() > 1) {
            return Err(format!("unexpected GroupVersion string: {odd}"));
        }
        if self.others == Others::Fatal {
            return versions.find(|version| !known(version)).map_or(Ok(()), |lost| {
                Err(format!(
                    "request to convert CR to an invalid group/version: {lost}"
                ))
            });
        }
        managers.fields.retain(|_, owned| known(&owned.api_version));
        Ok(())
    }
}

/// A field that somebody else owns with another value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The other manager, as the message names it: `"kubectl" using v1`.
    pub manager: String,
    /// The field's path: `.spec.replicas`.
    pub field: String,
}

/// Why an apply was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// Others own the fields: 409, unless forced.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The request is wrong: 400.
    #[error("{0}")]
    BadRequest(String),
    /// The configuration does not fit the type: the real server calls this an internal error, 500.
    #[error("{0}")]
    Type(String),
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.manager, only.field
        );
    }
    let mut lines = Vec::new();
    let mut last = "";
    for conflict in conflicts {
        if conflict.manager != last {
            lines.push(format!("conflicts with {}:", conflict.manager));
            last = &conflict.manager;
        }
        lines.push(format!("- {}", conflict.field));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}

/// Fields of every object that nobody owns.
static STRIPPED: LazyLock<Set> = LazyLock::new(|| {
    let mut set = Set::default();
    for name in ["apiVersion", "kind", "metadata"] {
        set.insert(&[Element::Field(name.into())]);
    }
    for name in [
        "name",
        "namespace",
        "creationTimestamp",
        "selfLink",
        "uid",
        "clusterName",
        "generation",
        "managedFields",
        "resourceVersion",
    ] {
        set.insert(&[Element::Field("metadata".into()), Element::Field(name.into())]);
    }
    set
});

static META: LazyLock<Schema> = LazyLock::new(builtin::object_meta);

/// Applies a configuration to the live object, or makes the object. The answer carries its new
/// `managedFields`; defaulting and validation are still to come.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    schema: &Schema,
) -> Result<Value, ApplyError> {
    let mut applied = match (merge_into(live, config, manager, schema), live) {
        (Err(ApplyError::Conflicts(conflicts)), Some(live)) => {
            let conflicts = last_applied::remaining(conflicts, live, manager, schema);
            if !conflicts.is_empty() {
                return Err(ApplyError::Conflicts(conflicts));
            }
            let forced = Manager {
                force: true,
                ..*manager
            };
            merge_into(Some(live), config, &forced, schema)?
        }
        (applied, _) => applied?,
    };
    last_applied::keep_note(&mut applied, config, manager);
    Ok(applied)
}

fn merge_into(
    live: Option<&Value>,
    config: &Value,
    manager: &Manager<'_>,
    schema: &Schema,
) -> Result<Value, ApplyError> {
    if config
        .pointer("/metadata/managedFields")
        .is_some_and(Value::is_array)
    {
        return Err(ApplyError::BadRequest(
            "metadata.managedFields must be nil".into(),
        ));
    }
    let version = config
        .get("apiVersion")
        .and_then(Value::as_str)
        .unwrap_or_default();
    if version != manager.api_version {
        return Err(ApplyError::BadRequest(format!(
            "Incorrect version specified in apply patch. Specified patch version: {version}, expected: {}",
            manager.api_version
        )));
    }
    let ty = TypeRef::Root { schema, meta: &META };
    let errors = walk::type_errors(config, ty);
    if !errors.is_empty() {
        let about = about(config, manager);
        let errors = if let [only] = errors.as_slice() {
            only.clone()
        } else {
            format!("errors:\n  {}", errors.join("\n  "))
        };
        return Err(ApplyError::Type(format!(
            "failed to create typed patch object ({about}): {errors}"
        )));
    }

    let empty = empty_object(schema);
    let entries = live.and_then(|l| l.pointer("/metadata/managedFields"));
    let mut managers = Managers::decode(entries)
        .ok_or_else(|| ApplyError::Type("failed to decode managed fields".into()))?;
    let live = without_owners(live.unwrap_or(&empty));
    let unowned = managers.fields.is_empty();
    manager.heed_versions(&mut managers).map_err(ApplyError::Type)?;
    if unowned {
        // Whoever wrote the object before anybody applied owns what is there.
        let before = Manager {
            name: "before-first-apply",
            ..*manager
        };
        if !update(&mut managers, &empty, &live, &before, ty) {
            let what = "failed to create manager for existing fields: failed to convert new object";
            return Err(unreadable(what, &live, manager, ty));
        }
    }
    if !schema.typed {
        reconcile::owners(&mut managers, manager, ty);
    }

    let key = Key::new(manager.name, true, manager.api_version, manager.subresource);
    let before = managers.fields.get(&key).cloned();
    let mut merged = merge::merge(&live, config, ty);
    let set = walk::field_set(config, ty).without_fields(manager.ignored);
    managers.fields.insert(
        key.clone(),
        Owned {
            set,
            api_version: manager.api_version.to_owned(),
        },
    );
    if let Some(last) = before.filter(|owned| !owned.set.is_empty()) {
        merged = prune(&merged, &managers, &last, manager, ty);
    }
    let changes = Changes::new(&live, &merged, manager, ty, &managers);
    if changes.own.unreadable {
        return Err(unreadable(
            "failed to create typed live object",
            &live,
            manager,
            ty,
        ));
    }
    take(&mut managers, &changes, &key, manager.force)?;
    strip(&mut managers, &key);
    if walk::equal(&live, &merged) {
        merged = live;
    } else {
        managers.times.insert(key, time(manager));
    }
    managers.encode(&mut merged);
    Ok(merged)
}

/// Why nothing can be applied to an object: it does not have its type.
fn unreadable(what: &str, live: &Value, manager: &Manager<'_>, ty: TypeRef<'_>) -> ApplyError {
    let why = walk::type_errors(live, ty).into_iter().next();
    ApplyError::Type(format!(
        "{what} ({}): {}",
        about(live, manager),
        why.unwrap_or_default()
    ))
}

/// Which object a message is about.
fn about(object: &Value, manager: &Manager<'_>) -> String {
    let text = |pointer: &str| {
        object
            .pointer(pointer)
            .and_then(Value::as_str)
            .unwrap_or_default()
    };
    format!(
        "{}/{}; {}, Kind={}",
        text("/metadata/namespace"),
        text("/metadata/name"),
        manager.api_version,
        text("/kind")
    )
}

/// Records who changed what when an object is created, replaced or patched. `new` may bring
/// `managedFields` of its own: they replace the old ones, and a single empty entry resets them.
pub fn track_update(old: Option<&Value>, new: &mut Value, manager: &Manager<'_>, schema: &Schema) {
    let ty = TypeRef::Root { schema, meta: &META };
    let given = take_owners(new);
    let live = old.and_then(|o| o.pointer("/metadata/managedFields"));
    let reset = given
        .as_ref()
        .and_then(Value::as_array)
        .is_some_and(|entries| match entries.as_slice() {
            [] => true,
            [only] => only.as_object().is_some_and(Map::is_empty),
            _ => false,
        });
    let mut managers = if !manager.subresource.is_empty() {
        Managers::decode(live).unwrap_or_default()
    } else if reset {
        Managers::default()
    } else {
        Managers::decode(given.as_ref())
            .filter(|managers| !managers.fields.is_empty())
            .or_else(|| Managers::decode(live))
            .unwrap_or_default()
    };
    // Objects that lost their managers stay without until somebody applies.
    let created = old.is_none_or(|o| o.pointer("/metadata/uid").is_none());
    let tracked = !managers.fields.is_empty() || created;
    if manager.heed_versions(&mut managers).is_err() {
        managers = Managers::default();
    } else if tracked {
        // The schemas of built-in kinds do not change: only what the request says of owners may not fit them.
        if !schema.typed || given.as_ref() != live {
            reconcile::owners(&mut managers, manager, ty);
        }
        let empty = empty_object(schema);
        let before = old.map_or_else(|| empty.clone(), without_owners);
        if update(&mut managers, &before, new, manager, ty) {
            managers.cap();
        } else {
            managers = Managers::default();
        }
    }
    managers.encode(new);
    if let Some(old) = old {
        keep_old_times(old, new);
    }
}

/// A write that changed nothing but times keeps the old times, so that it is no write at all.
fn keep_old_times(old: &Value, new: &mut Value) {
    if same_but_times(old, new, &[])
        && let (Some(old), Some(slot)) = (
            old.pointer("/metadata/managedFields"),
            new.pointer_mut("/metadata/managedFields"),
        )
    {
        *slot = old.clone();
    }
}

/// What keeps an object from having a type, owners aside.
pub fn type_errors(object: &Value, schema: &Schema) -> Vec<String> {
    walk::type_errors(&without_owners(object), TypeRef::Root { schema, meta: &META })
}

/// Whether two objects differ in nothing but their `managedFields`.
pub fn same_but_owners(a: &Value, b: &Value) -> bool {
    walk::equal(&without_owners(a), &without_owners(b))
}

fn time(manager: &Manager<'_>) -> String {
    manager.time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn empty_object(schema: &Schema) -> Value {
    let mut empty = Value::Object(Map::new());
    if schema.typed {
        schema.normalize(&mut empty);
    }
    empty
}

/// Takes changed fields from everybody but `key`.
fn take(managers: &mut Managers, all: &Changes<'_>, key: &Key, force: bool) -> Result<(), ApplyError> {
    let changed = |owned: &Owned| {
        let seen = all.to(owned);
        seen.modified.union(&seen.added)
    };
    if !force {
        let mut conflicts = Vec::new();
        for (other, owned) in managers.fields.iter().filter(|(other, _)| *other != key) {
            owned
                .set
                .intersection(&changed(owned))
                .each(&mut Vec::new(), &mut |path| {
                    let field = path.iter().map(Element::shown).collect();
                    conflicts.push(Conflict {
                        manager: other.shown(),
                        field,
                    });
                });
        }
        if !conflicts.is_empty() {
            return Err(ApplyError::Conflicts(conflicts));
        }
    }
    for (_, owned) in managers.fields.iter_mut().filter(|(other, _)| *other != key) {
        let removed = &all.to(owned).removed;
        owned.set = owned.set.difference(&changed(owned)).difference(removed);
    }
    managers.fields.retain(|_, owned| !owned.set.is_empty());
    Ok(())
}

fn strip(managers: &mut Managers, key: &Key) {
    if let Some(owned) = managers.fields.get_mut(key) {
        owned.set = owned.set.difference(&STRIPPED);
        if owned.set.is_empty() {
            managers.fields.remove(key);
        }
    }
}

/// Answers whether the objects could be read.
fn update(managers: &mut Managers, old: &Value, new: &Value, manager: &Manager<'_>, ty: TypeRef<'_>) -> bool {
    let key = Key::new(manager.name, false, manager.api_version, manager.subresource);
    let all = Changes::new(old, new, manager, ty, managers);
    // The manager's own fields are looked at like everybody's, then get back what it changed.
    let nobody = Key::new("current-operation", false, "", "");
    let forced = take(managers, &all, &nobody, true);
    debug_assert!(forced.is_ok(), "a forced take has no conflicts");
    let changed = all.own.modified.union(&all.own.added).difference(&STRIPPED);
    let is_readable = !all.own.unreadable;
    if changed.is_empty() {
        return is_readable;
    }
    let set = managers
        .fields
        .get(&key)
        .map_or_else(|| changed.clone(), |owned| owned.set.union(&changed));
    managers.fields.insert(
        key.clone(),
        Owned {
            set,
            api_version: manager.api_version.to_owned(),
        },
    );
    managers.times.insert(key, time(manager));
    is_readable
}

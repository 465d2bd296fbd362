//! Which objects on the managed cluster matter to which work, and what was last seen of them.
//!
//! No content is kept: a version, a generation and two hashes tell whether a change is our own, whether it can be drift,
//! and whether it can change what is reported.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;
use tokio::time::Instant;
use writ_controller::{DriftBackoff, Name, ServedKind};

use super::{
    last_seen::{Fingerprint, LastSeen, hash_uid, resource_version},
    watch_scope::WatchScope,
};
use crate::work::model::{Key, OwnedObject};

/// So many corrections of an object in a minute are a fight over it.
const FIGHT: u8 = 10;

/// A work that has to run because an object changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wake {
    /// The work.
    pub key: Key,
    /// When it runs: later for an object that another writer changes again and again.
    pub delay: Duration,
    /// Whether the work waits for objects of this kind, and this one is new: its retries start over, because it may take
    /// the server a moment to act on the object.
    pub is_awaited: bool,
}

impl Wake {
    fn at_once(key: &Key) -> Self {
        Self {
            key: key.clone(),
            delay: Duration::ZERO,
            is_awaited: false,
        }
    }
}

/// The request that brings an object in line with its manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// None: it is as it was left.
    Nothing,
    /// Its status may have changed: read it.
    Read,
    /// It may differ from the manifest: write it.
    Write,
}

/// What is known of one object for one work.
#[derive(Debug)]
pub(super) struct WatchedObject {
    pub(super) last_seen: Option<LastSeen>,
    pub(super) need: Option<Need>,
    /// The newest version that an event showed.
    pub(super) newest: u64,
    /// The version up to which the work's status reports the object; `None` if nothing was reported.
    pub(super) reported: Option<u64>,
    /// Whether a request about it is under way. Its answer supersedes events that come meanwhile, our own echo included.
    is_busy: bool,
    /// The newest version that was known when that request began.
    newest_at_begin: u64,
    backoff: DriftBackoff,
}

impl Default for WatchedObject {
    fn default() -> Self {
        Self {
            last_seen: None,
            need: None,
            newest: 0,
            reported: None,
            is_busy: false,
            newest_at_begin: 0,
            backoff: DriftBackoff::new(FIGHT),
        }
    }
}

/// The works interested in one object. Usually one, so a Vec is smaller than a map.
#[derive(Debug, Default)]
pub(super) struct InterestedWorks(pub(super) Vec<(Key, WatchedObject)>);

impl InterestedWorks {
    fn get(&self, key: &Key) -> Option<&WatchedObject> {
        let mut works = self.0.iter();
        works.find(|(known, _)| known == key).map(|(_, object)| object)
    }

    fn get_mut(&mut self, key: &Key) -> Option<&mut WatchedObject> {
        let mut works = self.0.iter_mut();
        works.find(|(known, _)| known == key).map(|(_, object)| object)
    }

    fn add(&mut self, key: &Key) {
        if self.get(key).is_none() {
            self.0.reserve_exact(1);
            self.0.push((key.clone(), WatchedObject::default()));
        }
    }

    fn remove(&mut self, key: &Key) {
        self.0.retain(|(known, _)| known != key);
    }
}

#[derive(Debug, Default)]
pub(super) struct KindIndex {
    pub(super) objects: HashMap<Name, InterestedWorks>,
    /// The works that wait for any new object of this kind.
    pub(super) awaited_by: HashSet<Key>,
    /// The newest version that an event of this kind showed.
    newest: u64,
    /// The namespace that was named last: most objects share it with the one before, and then its text too.
    namespace: Option<Arc<str>>,
}

/// What matters to one work.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Interest {
    pub(super) objects: HashSet<(Arc<ServedKind>, Name)>,
    awaited: HashSet<Arc<ServedKind>>,
}

#[derive(Debug, Default)]
pub(super) struct Index {
    pub(super) kinds: HashMap<ApiResource, KindIndex>,
    pub(super) interests: HashMap<Key, Interest>,
}

/// The index. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct DriftIndex {
    index: Arc<Mutex<Index>>,
}

impl DriftIndex {
    pub(super) fn lock(&self) -> MutexGuard<'_, Index> {
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets which objects matter to a work, and of which kinds it awaits any new object. What is known of an object is
    /// forgotten with the interest in it. Returns true if anything changed.
    pub fn set_interest(
        &self,
        key: &Key,
        objects: &[(Arc<ServedKind>, Name)],
        awaited: &[Arc<ServedKind>],
    ) -> bool {
        let new = Interest {
            objects: objects.iter().cloned().collect(),
            awaited: awaited.iter().cloned().collect(),
        };
        let mut index = self.lock();
        let mut interest = index.interests.remove(key).unwrap_or_default();
        let has_changed = interest != new;
        if has_changed {
            for (kind, name) in interest.objects.difference(&new.objects) {
                index.remove_object(key, &kind.resource, name);
            }
            for kind in interest.awaited.difference(&new.awaited) {
                index.stop_awaiting(key, &kind.resource);
            }
            // What is known stays as it is: the text of a name is kept once, however often the object is named.
            interest.objects.retain(|object| new.objects.contains(object));
            for (kind, name) in new.objects {
                if interest.objects.contains(&(kind.clone(), name.clone())) {
                    continue;
                }
                let name = index.share_name(&kind.resource, name);
                let of_kind = index.kinds.entry(kind.resource.clone()).or_default();
                of_kind.objects.entry(name.clone()).or_default().add(key);
                interest.objects.insert((kind, name));
            }
            interest.objects.shrink_to_fit();
            for kind in &new.awaited {
                let of_kind = index.kinds.entry(kind.resource.clone()).or_default();
                of_kind.awaited_by.insert(key.clone());
            }
            interest.awaited = new.awaited;
        }
        if interest != Interest::default() {
            index.interests.insert(key.clone(), interest);
        }
        has_changed
    }

    /// Adds an object to those that matter to a work. Returns true if it is new.
    pub fn add_interest(&self, key: &Key, kind: &Arc<ServedKind>, name: Name) -> bool {
        let mut index = self.lock();
        let name = index.share_name(&kind.resource, name);
        let interest = index.interests.entry(key.clone()).or_default();
        if !interest.objects.insert((kind.clone(), name.clone())) {
            return false;
        }
        let of_kind = index.kinds.entry(kind.resource.clone()).or_default();
        of_kind.objects.entry(name).or_default().add(key);
        true
    }

    /// The part of each kind that has to be watched.
    pub fn scopes(&self) -> Vec<(ApiResource, WatchScope)> {
        self.lock()
            .kinds
            .iter()
            .filter_map(|(resource, of_kind)| {
                let scope = if of_kind.awaited_by.is_empty() {
                    WatchScope::around(of_kind.objects.keys())
                } else {
                    Some(WatchScope::All)
                };
                Some((resource.clone(), scope?))
            })
            .collect()
    }

    /// A request about an object begins; [`Self::end_request`] ends it.
    pub fn begin_request(&self, key: &Key, resource: &ApiResource, name: &Name) {
        if let Some(object) = self.lock().object_mut(key, resource, name) {
            object.is_busy = true;
            object.newest_at_begin = object.newest;
        }
    }

    /// Remembers the object as the server answered; `None` if the request failed. Returns true if another writer changed
    /// the object meanwhile, so that the work has to run again.
    pub fn end_request(
        &self,
        key: &Key,
        resource: &ApiResource,
        name: &Name,
        last_seen: Option<LastSeen>,
    ) -> bool {
        let mut index = self.lock();
        let Some(object) = index.object_mut(key, resource, name) else {
            return false;
        };
        object.is_busy = false;
        let version = last_seen.as_ref().map(|last_seen| last_seen.fingerprint.version);
        let was_corrected = object.need == Some(Need::Write)
            && object.last_seen.is_some()
            && version.is_some_and(|version| version > object.newest_at_begin);
        if was_corrected {
            object.backoff.count(Instant::now());
        }
        let has_changed = version.is_some_and(|version| object.newest > version);
        object.need = has_changed.then_some(Need::Write);
        object.reported = version;
        object.last_seen = last_seen;
        has_changed
    }

    /// The object as it was last written or read.
    pub fn last_seen(&self, key: &Key, resource: &ApiResource, name: &Name) -> Option<LastSeen> {
        self.lock().object(key, resource, name)?.last_seen.clone()
    }

    /// The newest version of an object that an event showed, if that is newer than what was reported.
    pub fn unreported_version(&self, key: &Key, resource: &ApiResource, name: &Name) -> Option<u64> {
        let index = self.lock();
        let Some(object) = index.object(key, resource, name) else {
            return Some(0);
        };
        let is_newer = object.reported.is_none_or(|reported| reported < object.newest);
        is_newer.then_some(object.newest)
    }

    /// Remembers up to which version the object was reported without being written; `None` if it was not.
    pub fn mark_reported(&self, key: &Key, resource: &ApiResource, name: &Name, version: Option<u64>) {
        if let Some(object) = self.lock().object_mut(key, resource, name) {
            object.reported = version;
        }
    }

    /// The object, if it belonged to this AppliedManifestWork when it was last written or read.
    pub fn owned_object(
        &self,
        key: &Key,
        resource: &ApiResource,
        name: &Name,
        owner_uid: &str,
    ) -> Option<OwnedObject> {
        let index = self.lock();
        let object = index.object(key, resource, name)?;
        let last_seen = object.last_seen.as_ref().filter(|last_seen| last_seen.is_owned)?;
        let version = last_seen.fingerprint.version;
        let is_current = version != 0 && object.newest <= version;
        let is_exact = is_current && last_seen.sole_owner == Some(hash_uid(owner_uid));
        Some(OwnedObject {
            uid: last_seen.uid.to_string(),
            version: is_exact.then(|| version.to_string()),
        })
    }

    /// What an object needs, if the work asks for what this is the hash of.
    pub fn need(&self, key: &Key, resource: &ApiResource, name: &Name, wanted: u64) -> Need {
        match self.lock().object(key, resource, name) {
            Some(WatchedObject {
                last_seen: Some(last_seen),
                need,
                ..
            }) if last_seen.wanted == wanted => need.unwrap_or(Need::Nothing),
            _ => Need::Write,
        }
    }

    /// Takes in a new or changed object.
    pub fn object_changed(&self, resource: &ApiResource, metadata: &ObjectMeta) -> Vec<Wake> {
        self.take_event(resource, metadata, false)
    }

    /// Takes in that an object was deleted.
    pub fn object_deleted(&self, resource: &ApiResource, metadata: &ObjectMeta) -> Vec<Wake> {
        self.take_event(resource, metadata, true)
    }

    fn take_event(&self, resource: &ApiResource, metadata: &ObjectMeta, is_deleted: bool) -> Vec<Wake> {
        let mut index = self.lock();
        let Some(of_kind) = index.kinds.get_mut(resource) else {
            return Vec::new();
        };
        let version = resource_version(metadata.resource_version.as_deref());
        let is_news = version > of_kind.newest;
        of_kind.newest = of_kind.newest.max(version);
        let awaiting = of_kind.awaited_by.iter().map(|key| Wake {
            is_awaited: is_news,
            ..Wake::at_once(key)
        });
        let mut wake: Vec<Wake> = awaiting.collect();
        let Some(works) = of_kind.objects.get_mut(&name_of(metadata)) else {
            return wake;
        };
        let seen = Fingerprint::of(metadata);
        for (key, object) in &mut works.0 {
            object.newest = object.newest.max(version);
            if object.is_busy && version != 0 {
                continue;
            }
            let need = match &object.last_seen {
                // Not written yet: the work may wait for it to appear, or to go.
                None => Need::Write,
                Some(last) if !is_deleted && version <= last.fingerprint.version && version != 0 => continue,
                Some(last) if is_deleted || !last.fingerprint.has_same_spec(&seen) => Need::Write,
                Some(last) if last.reads_content => Need::Read,
                Some(_) => {
                    if let Some(last) = &mut object.last_seen {
                        last.fingerprint = seen;
                    }
                    continue;
                }
            };
            object.need = object.need.max(Some(need));
            let delay = match (need, &object.last_seen) {
                (Need::Write, Some(_)) => object.backoff.pause(Instant::now()),
                _ => Duration::ZERO,
            };
            wake.push(Wake {
                delay,
                ..Wake::at_once(key)
            });
        }
        wake
    }

    /// Takes in that a scope was listed completely: what is not among `present` is gone.
    pub fn listing_completed(
        &self,
        resource: &ApiResource,
        scope: &WatchScope,
        present: &BTreeSet<Name>,
    ) -> Vec<Wake> {
        let mut index = self.lock();
        let Some(of_kind) = index.kinds.get_mut(resource) else {
            return Vec::new();
        };
        let mut wake = Vec::new();
        let gone = of_kind
            .objects
            .iter_mut()
            .filter(|(name, _)| scope.contains(name) && !present.contains(*name));
        for (key, object) in gone.flat_map(|(_, works)| &mut works.0) {
            if object.last_seen.is_some() {
                object.need = Some(Need::Write);
                wake.push(Wake::at_once(key));
            }
        }
        wake
    }

    /// Whether the object matters to this work.
    pub fn is_interested(&self, key: &Key, resource: &ApiResource, name: &Name) -> bool {
        self.lock().object(key, resource, name).is_some()
    }

    /// Whether the object matters to any work.
    pub fn is_known(&self, resource: &ApiResource, name: &Name) -> bool {
        let index = self.lock();
        let of_kind = index.kinds.get(resource);
        of_kind.is_some_and(|of_kind| of_kind.objects.contains_key(name))
    }
}

impl Index {
    /// The same name, with its text shared: with other works interested in the object, or with the last namespace of the
    /// kind that was named.
    fn share_name(&mut self, resource: &ApiResource, name: Name) -> Name {
        let Some(of_kind) = self.kinds.get_mut(resource) else {
            return name;
        };
        if let Some((known, _)) = of_kind.objects.get_key_value(&name) {
            return known.clone();
        }
        match &of_kind.namespace {
            Some(namespace) if *namespace == name.namespace => Name::new(namespace.clone(), name.name),
            _ => {
                of_kind.namespace = Some(name.namespace.clone());
                name
            }
        }
    }

    fn object(&self, key: &Key, resource: &ApiResource, name: &Name) -> Option<&WatchedObject> {
        self.kinds.get(resource)?.objects.get(name)?.get(key)
    }

    fn object_mut(&mut self, key: &Key, resource: &ApiResource, name: &Name) -> Option<&mut WatchedObject> {
        self.kinds.get_mut(resource)?.objects.get_mut(name)?.get_mut(key)
    }

    fn remove_object(&mut self, key: &Key, resource: &ApiResource, name: &Name) {
        let Some(of_kind) = self.kinds.get_mut(resource) else {
            return;
        };
        if let Some(works) = of_kind.objects.get_mut(name) {
            works.remove(key);
            if works.0.is_empty() {
                of_kind.objects.remove(name);
            }
        }
        self.remove_unused_kind(resource);
    }

    fn stop_awaiting(&mut self, key: &Key, resource: &ApiResource) {
        if let Some(of_kind) = self.kinds.get_mut(resource) {
            of_kind.awaited_by.remove(key);
        }
        self.remove_unused_kind(resource);
    }

    fn remove_unused_kind(&mut self, resource: &ApiResource) {
        let is_unused = |of_kind: &KindIndex| of_kind.objects.is_empty() && of_kind.awaited_by.is_empty();
        if self.kinds.get(resource).is_some_and(is_unused) {
            self.kinds.remove(resource);
        }
    }
}

/// The name in an object's metadata.
pub fn name_of(metadata: &ObjectMeta) -> Name {
    Name::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

//! Which objects on the managed cluster matter to which work, and what was last seen of them.
//!
//! Nothing of an object's content is kept: a version, a generation and two hashes are enough to tell whether a
//! change is ours, whether it can be drift, and whether it can change what is reported.

mod fights;
mod mark;
mod scope;
#[cfg(test)]
mod tests;
mod uid;
mod unwatched;

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;

use self::{
    fights::Fights,
    mark::{Seen, hash_of},
};
pub use self::{mark::Mark, scope::Scope};
use super::{Key, mapper::Kind};

/// Who has to look, and after which delay.
pub type Wake = (Key, Duration);

/// Namespace (empty for a cluster-scoped object) and name. An object's name is held by everybody who asks about it.
pub type Name = (Arc<str>, Arc<str>);

/// An object that a work owned when it was last written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its uid.
    pub uid: String,
    /// Its resource version, if that is known to be nobody else's. Whoever names it in a request need not look first: if
    /// anything has changed since, the server says so.
    pub version: Option<String>,
}

/// What an object needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Nothing: it is as it was left.
    Nothing,
    /// Its status may have changed: read it.
    Read,
    /// It may differ from the manifest: write it.
    Write,
}

#[derive(Debug, Default)]
struct Watched {
    mark: Option<Mark>,
    need: Option<Need>,
    /// The newest version that an event showed.
    latest: u64,
    /// The version up to which the work's status tells what is there; `None` if nothing was told.
    told: Option<u64>,
    /// Whether a request about it is under way; its answer tells more than events meanwhile, our own echo included.
    busy: bool,
    /// The newest version that was known when that request began.
    begun: u64,
    fights: Fights,
}

/// Those to whom one object matters. It is nearly always one, and a map of one takes five times the room.
#[derive(Debug, Default)]
struct Keys(Vec<(Key, Watched)>);

impl Keys {
    fn get(&self, key: &Key) -> Option<&Watched> {
        self.0
            .iter()
            .find(|(known, _)| known == key)
            .map(|(_, watched)| watched)
    }

    fn get_mut(&mut self, key: &Key) -> Option<&mut Watched> {
        let mut keys = self.0.iter_mut();
        keys.find(|(known, _)| known == key).map(|(_, watched)| watched)
    }

    fn add(&mut self, key: &Key) {
        if self.get(key).is_none() {
            self.0.reserve_exact(1);
            self.0.push((key.clone(), Watched::default()));
        }
    }

    fn remove(&mut self, key: &Key) {
        self.0.retain(|(known, _)| known != key);
    }
}

#[derive(Debug, Default)]
struct OfKind {
    objects: HashMap<Name, Keys>,
    /// Those who wait for any change of this kind.
    any: HashSet<Key>,
    /// The namespace that was named last: the next one is mostly the same.
    namespace: Option<Arc<str>>,
}

/// What matters to one key.
#[derive(Debug, Default, PartialEq)]
struct Interest {
    objects: HashSet<(Arc<Kind>, Name)>,
    any: HashSet<Arc<Kind>>,
}

#[derive(Debug, Default)]
struct Known {
    kinds: HashMap<ApiResource, OfKind>,
    interests: HashMap<Key, Interest>,
}

/// The index. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    known: Arc<Mutex<Known>>,
}

impl Objects {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which objects matter to a key; those that mattered before and are not named any more are forgotten.
    /// Returns whether anything changed.
    pub fn interest(&self, key: &Key, wanted: &[(Arc<Kind>, Name)], any: &[Arc<Kind>]) -> bool {
        let new = Interest {
            objects: wanted.iter().cloned().collect(),
            any: any.iter().cloned().collect(),
        };
        let mut known = self.lock();
        let mut interest = known.interests.remove(key).unwrap_or_default();
        let changed = interest != new;
        if changed {
            for (kind, name) in interest.objects.difference(&new.objects) {
                known.drop_object(key, &kind.resource, name);
            }
            for kind in interest.any.difference(&new.any) {
                known.drop_any(key, &kind.resource);
            }
            // What is known stays as it is: a name is kept once, however often it is named.
            interest.objects.retain(|object| new.objects.contains(object));
            for (kind, name) in new.objects {
                if interest.objects.contains(&(kind.clone(), name.clone())) {
                    continue;
                }
                let name = known.shared(&kind.resource, name);
                let of_kind = known.kinds.entry(kind.resource.clone()).or_default();
                of_kind.objects.entry(name.clone()).or_default().add(key);
                interest.objects.insert((kind, name));
            }
            interest.objects.shrink_to_fit();
            for kind in &new.any {
                let of_kind = known.kinds.entry(kind.resource.clone()).or_default();
                of_kind.any.insert(key.clone());
            }
            interest.any = new.any;
        }
        if interest != Interest::default() {
            known.interests.insert(key.clone(), interest);
        }
        changed
    }

    /// One more object matters to a key. Returns whether that is new.
    pub fn also(&self, key: &Key, kind: &Arc<Kind>, name: Name) -> bool {
        let mut known = self.lock();
        let name = known.shared(&kind.resource, name);
        let interest = known.interests.entry(key.clone()).or_default();
        if !interest.objects.insert((kind.clone(), name.clone())) {
            return false;
        }
        let of_kind = known.kinds.entry(kind.resource.clone()).or_default();
        of_kind.objects.entry(name).or_default().add(key);
        true
    }

    /// The part of each kind that has to be watched.
    pub fn scopes(&self) -> Vec<(ApiResource, Scope)> {
        self.lock()
            .kinds
            .iter()
            .filter_map(|(resource, of_kind)| {
                let scope = if of_kind.any.is_empty() {
                    Scope::around(of_kind.objects.keys())
                } else {
                    Some(Scope::All)
                };
                Some((resource.clone(), scope?))
            })
            .collect()
    }

    /// A request about an object begins; [`Self::mark`] ends it.
    pub fn begin(&self, key: &Key, resource: &ApiResource, name: &Name) {
        if let Some(watched) = self.lock().watched(key, resource, name) {
            watched.busy = true;
            watched.begun = watched.latest;
        }
    }

    /// Remembers what a write or a read left behind; `None` if it failed. Returns whether somebody changed the object
    /// meanwhile, so that it has to be looked at again.
    pub fn mark(&self, key: &Key, resource: &ApiResource, name: &Name, mark: Option<Mark>) -> bool {
        let mut known = self.lock();
        let Some(watched) = known.watched(key, resource, name) else {
            return false;
        };
        watched.busy = false;
        let undone = watched.need == Some(Need::Write)
            && watched.mark.is_some()
            && mark
                .as_ref()
                .is_some_and(|mark| mark.seen.version > watched.begun);
        if undone {
            watched.fights.one_more();
        }
        let newer = mark
            .as_ref()
            .is_some_and(|mark| watched.latest > mark.seen.version);
        watched.need = newer.then_some(Need::Write);
        watched.told = mark.as_ref().map(|mark| mark.seen.version);
        watched.mark = mark;
        newer
    }

    /// The mark, if there is one.
    pub fn get(&self, key: &Key, resource: &ApiResource, name: &Name) -> Option<Mark> {
        self.lock()
            .kinds
            .get(resource)?
            .objects
            .get(name)?
            .get(key)?
            .mark
            .clone()
    }

    /// The newest version of an object that an event showed, if that is more than was told of it.
    pub fn untold(&self, key: &Key, resource: &ApiResource, name: &Name) -> Option<u64> {
        let mut known = self.lock();
        let Some(watched) = known.watched(key, resource, name) else {
            return Some(0);
        };
        let news = watched.told.is_none_or(|told| told < watched.latest);
        news.then_some(watched.latest)
    }

    /// Remembers up to which version it was told what is there, without a claim on the object; `None` if nothing is.
    pub fn tell(&self, key: &Key, resource: &ApiResource, name: &Name, version: Option<u64>) {
        if let Some(watched) = self.lock().watched(key, resource, name) {
            watched.told = version;
        }
    }

    /// The object, if it belonged to this AppliedManifestWork when it was last written or read.
    pub fn own(&self, key: &Key, resource: &ApiResource, name: &Name, owner: &str) -> Option<Own> {
        let known = self.lock();
        let watched = known.kinds.get(resource)?.objects.get(name)?.get(key)?;
        let mark = watched.mark.as_ref().filter(|mark| mark.owned)?;
        let current = mark.seen.version != 0 && watched.latest <= mark.seen.version;
        let exact = current && mark.sole_owner == Some(hash_of(owner));
        Some(Own {
            uid: mark.uid.to_string(),
            version: exact.then(|| mark.seen.version.to_string()),
        })
    }

    /// What the object needs, if the work wants it as this hash says.
    pub fn need(&self, key: &Key, resource: &ApiResource, name: &Name, wanted: u64) -> Need {
        let known = self.lock();
        let watched = known
            .kinds
            .get(resource)
            .and_then(|of_kind| of_kind.objects.get(name))
            .and_then(|keys| keys.get(key));
        match watched {
            Some(Watched {
                mark: Some(mark),
                need,
                ..
            }) if mark.wanted == wanted => need.unwrap_or(Need::Nothing),
            _ => Need::Write,
        }
    }

    /// Takes in that an object was seen; returns who has to look.
    pub fn seen(&self, resource: &ApiResource, metadata: &ObjectMeta) -> Vec<Wake> {
        self.event(resource, metadata, false)
    }

    /// Takes in that an object was deleted; returns who has to look.
    pub fn deleted(&self, resource: &ApiResource, metadata: &ObjectMeta) -> Vec<Wake> {
        self.event(resource, metadata, true)
    }

    fn event(&self, resource: &ApiResource, metadata: &ObjectMeta, deleted: bool) -> Vec<Wake> {
        let mut known = self.lock();
        let Some(of_kind) = known.kinds.get_mut(resource) else {
            return Vec::new();
        };
        let now = |key: &Key| (key.clone(), Duration::ZERO);
        let mut wake: Vec<Wake> = of_kind.any.iter().map(now).collect();
        let name = name_of(metadata);
        let seen = Seen::of(metadata);
        let keys = of_kind.objects.get_mut(&name).map(|keys| &mut keys.0);
        for (key, watched) in keys.into_iter().flatten() {
            watched.latest = watched.latest.max(seen.version);
            if watched.busy && seen.version != 0 {
                continue;
            }
            let need = match &watched.mark {
                // Nothing is known of it: whoever waits for it to appear or to go wants to know.
                None => Need::Write,
                Some(mark) if !deleted && seen.version <= mark.seen.version && seen.version != 0 => continue,
                Some(mark) if deleted || !mark.seen.same_spec(&seen) => Need::Write,
                Some(mark) if mark.reads_content => Need::Read,
                Some(_) => {
                    if let Some(mark) = &mut watched.mark {
                        mark.seen = seen;
                    }
                    continue;
                }
            };
            watched.need = watched.need.max(Some(need));
            let delay = match (need, &watched.mark) {
                (Need::Write, Some(_)) => watched.fights.delay(),
                _ => Duration::ZERO,
            };
            wake.push((key.clone(), delay));
        }
        wake
    }

    /// After a complete listing of a scope: whatever was not in it is gone; returns who has to look.
    pub fn listed(&self, resource: &ApiResource, scope: &Scope, present: &BTreeSet<Name>) -> Vec<Wake> {
        let mut known = self.lock();
        let Some(of_kind) = known.kinds.get_mut(resource) else {
            return Vec::new();
        };
        let mut wake = Vec::new();
        for (name, keys) in &mut of_kind.objects {
            if !scope.contains(name) || present.contains(name) {
                continue;
            }
            for (key, watched) in &mut keys.0 {
                if watched.mark.is_some() {
                    watched.need = Some(Need::Write);
                    wake.push((key.clone(), Duration::ZERO));
                }
            }
        }
        wake
    }

    /// Whether a key waits for any change of this kind.
    pub fn awaits(&self, key: &Key, resource: &ApiResource) -> bool {
        let known = self.lock();
        known
            .kinds
            .get(resource)
            .is_some_and(|of_kind| of_kind.any.contains(key))
    }

    /// Whether the object matters to this key.
    pub fn matters_to(&self, key: &Key, resource: &ApiResource, name: &Name) -> bool {
        let known = self.lock();
        let of_kind = known.kinds.get(resource);
        of_kind.is_some_and(|of_kind| {
            of_kind
                .objects
                .get(name)
                .is_some_and(|keys| keys.get(key).is_some())
        })
    }

    /// Whether anybody knows this object.
    pub fn knows(&self, resource: &ApiResource, name: &Name) -> bool {
        self.lock()
            .kinds
            .get(resource)
            .is_some_and(|of_kind| of_kind.objects.contains_key(name))
    }
}

impl Known {
    /// The same name, as far as it is kept already: by whoever else the object matters to, or for its namespace by the
    /// last one of the kind that was named.
    fn shared(&mut self, resource: &ApiResource, name: Name) -> Name {
        let Some(of_kind) = self.kinds.get_mut(resource) else {
            return name;
        };
        if let Some((kept, _)) = of_kind.objects.get_key_value(&name) {
            return kept.clone();
        }
        match &of_kind.namespace {
            Some(namespace) if *namespace == name.0 => (namespace.clone(), name.1),
            _ => {
                of_kind.namespace = Some(name.0.clone());
                name
            }
        }
    }

    fn watched(&mut self, key: &Key, resource: &ApiResource, name: &Name) -> Option<&mut Watched> {
        self.kinds.get_mut(resource)?.objects.get_mut(name)?.get_mut(key)
    }

    fn drop_object(&mut self, key: &Key, resource: &ApiResource, name: &Name) {
        let Some(of_kind) = self.kinds.get_mut(resource) else {
            return;
        };
        if let Some(keys) = of_kind.objects.get_mut(name) {
            keys.remove(key);
            if keys.0.is_empty() {
                of_kind.objects.remove(name);
            }
        }
        self.drop_kind(resource);
    }

    fn drop_any(&mut self, key: &Key, resource: &ApiResource) {
        if let Some(of_kind) = self.kinds.get_mut(resource) {
            of_kind.any.remove(key);
        }
        self.drop_kind(resource);
    }

    fn drop_kind(&mut self, resource: &ApiResource) {
        let unused = |of_kind: &OfKind| of_kind.objects.is_empty() && of_kind.any.is_empty();
        if self.kinds.get(resource).is_some_and(unused) {
            self.kinds.remove(resource);
        }
    }
}

/// Namespace and name of an object.
pub fn name_of(metadata: &ObjectMeta) -> Name {
    (
        metadata.namespace.clone().unwrap_or_default().into(),
        metadata.name.clone().unwrap_or_default().into(),
    )
}

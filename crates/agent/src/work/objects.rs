//! Which objects on the managed cluster matter to which work, and what was last seen of them.
//!
//! Nothing of an object's content is kept: a version, a generation and two hashes are enough to tell whether a
//! change is ours, whether it can be drift, and whether it can change what is reported.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::ApiResource;

use super::{Key, cache::version, mapper::Kind};

/// Namespace (empty for a cluster-scoped object) and name.
pub type Name = (Box<str>, Box<str>);

/// What was last written or read of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The hash of what the work wants.
    pub wanted: u64,
    /// The object's uid.
    pub uid: Box<str>,
    seen: Seen,
    /// Whether any change of the content matters, not only one that can be drift.
    reads_content: bool,
}

/// What a version of an object looks like from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    version: u64,
    generation: Option<i64>,
    metadata: u64,
}

impl Seen {
    fn of(metadata: &ObjectMeta) -> Self {
        let mut hasher = DefaultHasher::new();
        metadata.labels.hash(&mut hasher);
        metadata.annotations.hash(&mut hasher);
        metadata.finalizers.hash(&mut hasher);
        metadata.uid.hash(&mut hasher);
        metadata.deletion_timestamp.is_some().hash(&mut hasher);
        for owner in metadata.owner_references.iter().flatten() {
            owner.uid.hash(&mut hasher);
        }
        Self {
            version: version(metadata.resource_version.as_deref()),
            generation: metadata.generation,
            metadata: hasher.finish(),
        }
    }

    /// Whether only the status can differ: the server counts changes of anything else.
    fn same_spec(&self, other: &Self) -> bool {
        self.generation.is_some() && self.generation == other.generation && self.metadata == other.metadata
    }
}

impl Mark {
    /// What the server answered to a write or a read.
    pub fn of(metadata: &ObjectMeta, wanted: u64, reads_content: bool) -> Self {
        Self {
            wanted,
            uid: metadata.uid.clone().unwrap_or_default().into(),
            seen: Seen::of(metadata),
            reads_content,
        }
    }
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
}

#[derive(Debug, Default)]
struct OfKind {
    objects: HashMap<Name, HashMap<Key, Watched>>,
    /// Those who wait for any change of this kind.
    any: HashSet<Key>,
}

/// The part of a kind that is watched; wider is larger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One object.
    Object(Name),
    /// One namespace.
    Namespace(Box<str>),
    /// Everything.
    All,
}

impl Scope {
    /// Whether an object is in this part.
    pub fn contains(&self, name: &Name) -> bool {
        match self {
            Self::Object(only) => only == name,
            Self::Namespace(namespace) => namespace == &name.0,
            Self::All => true,
        }
    }

    /// Whether this part holds all of the other.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Namespace(a), Self::Namespace(b) | Self::Object((b, _))) => a == b,
            (Self::Object(a), Self::Object(b)) => a == b,
            (Self::Object(_), _) | (Self::Namespace(_), Self::All) => false,
        }
    }

    /// The smallest part that holds these objects.
    fn around<'a>(mut names: impl Iterator<Item = &'a Name>) -> Option<Self> {
        let first = names.next()?;
        let mut scope = Self::Object(first.clone());
        for name in names {
            if name.0.is_empty() || name.0 != first.0 {
                return Some(Self::All);
            }
            scope = Self::Namespace(first.0.clone());
        }
        Some(scope)
    }
}

/// The index. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    kinds: Arc<Mutex<HashMap<ApiResource, OfKind>>>,
}

impl Objects {
    fn lock(&self) -> MutexGuard<'_, HashMap<ApiResource, OfKind>> {
        self.kinds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which objects matter to a key; those that mattered before and are not named any more are forgotten.
    pub fn interest(&self, key: &Key, wanted: &[(Arc<Kind>, Name)], any: &[Arc<Kind>]) {
        let named: HashSet<(&ApiResource, &Name)> =
            wanted.iter().map(|(kind, name)| (&kind.resource, name)).collect();
        let any: HashSet<&ApiResource> = any.iter().map(|kind| &kind.resource).collect();
        let mut kinds = self.lock();
        kinds.retain(|resource, of_kind| {
            if !any.contains(resource) {
                of_kind.any.remove(key);
            }
            of_kind.objects.retain(|name, keys| {
                if !named.contains(&(resource, name)) {
                    keys.remove(key);
                }
                !keys.is_empty()
            });
            !of_kind.objects.is_empty() || !of_kind.any.is_empty()
        });
        for (resource, name) in named {
            kinds
                .entry(resource.clone())
                .or_default()
                .objects
                .entry(name.clone())
                .or_default()
                .entry(key.clone())
                .or_default();
        }
        for resource in any {
            kinds.entry(resource.clone()).or_default().any.insert(key.clone());
        }
    }

    /// The part of each kind that has to be watched.
    pub fn scopes(&self) -> Vec<(ApiResource, Scope)> {
        self.lock()
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

    /// Remembers what a write or a read left behind; `None` if it failed.
    pub fn mark(&self, key: &Key, resource: &ApiResource, name: &Name, mark: Option<Mark>) {
        let mut kinds = self.lock();
        let Some(watched) = kinds
            .get_mut(resource)
            .and_then(|of_kind| of_kind.objects.get_mut(name))
            .and_then(|keys| keys.get_mut(key))
        else {
            return;
        };
        // A change that came while the request was under way is looked at again.
        let newer = mark
            .as_ref()
            .is_some_and(|mark| watched.latest > mark.seen.version);
        if !newer {
            watched.need = None;
        }
        watched.mark = mark;
    }

    /// The mark, if there is one.
    pub fn get(&self, key: &Key, resource: &ApiResource, name: &Name) -> Option<Mark> {
        self.lock()
            .get(resource)?
            .objects
            .get(name)?
            .get(key)?
            .mark
            .clone()
    }

    /// What the object needs, if the work wants it as this hash says.
    pub fn need(&self, key: &Key, resource: &ApiResource, name: &Name, wanted: u64) -> Need {
        let kinds = self.lock();
        let watched = kinds
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
    pub fn seen(&self, resource: &ApiResource, metadata: &ObjectMeta) -> Vec<Key> {
        self.event(resource, metadata, false)
    }

    /// Takes in that an object was deleted; returns who has to look.
    pub fn deleted(&self, resource: &ApiResource, metadata: &ObjectMeta) -> Vec<Key> {
        self.event(resource, metadata, true)
    }

    fn event(&self, resource: &ApiResource, metadata: &ObjectMeta, deleted: bool) -> Vec<Key> {
        let mut kinds = self.lock();
        let Some(of_kind) = kinds.get_mut(resource) else {
            return Vec::new();
        };
        let mut wake: Vec<Key> = of_kind.any.iter().cloned().collect();
        let name = name_of(metadata);
        let seen = Seen::of(metadata);
        for (key, watched) in of_kind.objects.get_mut(&name).into_iter().flatten() {
            watched.latest = watched.latest.max(seen.version);
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
            wake.push(key.clone());
        }
        wake
    }

    /// After a complete listing of a scope: whatever was not in it is gone; returns who has to look.
    pub fn listed(&self, resource: &ApiResource, scope: &Scope, present: &BTreeSet<Name>) -> Vec<Key> {
        let mut kinds = self.lock();
        let Some(of_kind) = kinds.get_mut(resource) else {
            return Vec::new();
        };
        let mut wake = Vec::new();
        for (name, keys) in &mut of_kind.objects {
            if !scope.contains(name) || present.contains(name) {
                continue;
            }
            for (key, watched) in keys {
                if watched.mark.is_some() {
                    watched.need = Some(Need::Write);
                    wake.push(key.clone());
                }
            }
        }
        wake
    }

    /// Whether anybody knows this object.
    pub fn knows(&self, resource: &ApiResource, name: &Name) -> bool {
        self.lock()
            .get(resource)
            .is_some_and(|of_kind| of_kind.objects.contains_key(name))
    }
}

/// Namespace and name of an object.
pub fn name_of(metadata: &ObjectMeta) -> Name {
    (
        metadata.namespace.clone().unwrap_or_default().into(),
        metadata.name.clone().unwrap_or_default().into(),
    )
}

#[cfg(test)]
mod tests {
    use kube::core::GroupVersionKind;

    use super::*;

    fn kind() -> Arc<Kind> {
        let gvk = GroupVersionKind::gvk("apps", "v1", "Deployment");
        Arc::new(Kind {
            resource: ApiResource::from_gvk_with_plural(&gvk, "deployments"),
            namespaced: true,
        })
    }

    fn name(namespace: &str, name: &str) -> Name {
        (namespace.into(), name.into())
    }

    fn metadata(version: u64, generation: Option<i64>, label: &str) -> ObjectMeta {
        ObjectMeta {
            namespace: Some("shop".into()),
            name: Some("web".into()),
            uid: Some("u".into()),
            resource_version: Some(version.to_string()),
            generation,
            labels: Some([("l".to_owned(), label.to_owned())].into()),
            ..ObjectMeta::default()
        }
    }

    #[test]
    fn only_a_change_that_is_not_ours_and_can_matter_wakes_a_work() {
        let key = Key::work("w");
        let (kind, web) = (kind(), name("shop", "web"));
        let resource = &kind.resource;
        let objects = Objects::default();
        objects.interest(&key, &[(kind.clone(), web.clone())], &[]);
        assert_eq!(objects.need(&key, resource, &web, 7), Need::Write);
        objects.mark(
            &key,
            resource,
            &web,
            Some(Mark::of(&metadata(10, Some(1), "a"), 7, false)),
        );
        assert_eq!(objects.need(&key, resource, &web, 7), Need::Nothing);
        assert_eq!(objects.need(&key, resource, &web, 8), Need::Write);
        // Our own write and an older event.
        assert!(objects.seen(resource, &metadata(10, Some(1), "a")).is_empty());
        assert!(objects.seen(resource, &metadata(9, Some(1), "b")).is_empty());
        // A change of the status only.
        assert!(objects.seen(resource, &metadata(11, Some(1), "a")).is_empty());
        // A change of a label, then of the spec.
        assert_eq!(
            objects.seen(resource, &metadata(12, Some(1), "b")),
            vec![key.clone()]
        );
        assert_eq!(objects.need(&key, resource, &web, 7), Need::Write);
        objects.mark(
            &key,
            resource,
            &web,
            Some(Mark::of(&metadata(13, Some(1), "a"), 7, false)),
        );
        assert_eq!(
            objects.seen(resource, &metadata(14, Some(2), "a")),
            vec![key.clone()]
        );
        // A kind without generations: any change can be drift.
        objects.mark(
            &key,
            resource,
            &web,
            Some(Mark::of(&metadata(15, None, "a"), 7, false)),
        );
        assert_eq!(
            objects.seen(resource, &metadata(16, None, "a")),
            vec![key.clone()]
        );
        // Feedback wants every change.
        objects.mark(
            &key,
            resource,
            &web,
            Some(Mark::of(&metadata(17, Some(3), "a"), 7, true)),
        );
        assert_eq!(
            objects.seen(resource, &metadata(18, Some(3), "a")),
            vec![key.clone()]
        );
        assert_eq!(objects.need(&key, resource, &web, 7), Need::Read);
        assert_eq!(
            objects.deleted(resource, &metadata(19, Some(3), "a")),
            vec![key.clone()]
        );
        assert_eq!(objects.need(&key, resource, &web, 7), Need::Write);
        objects.interest(&key, &[], &[]);
        assert!(objects.scopes().is_empty());
    }

    #[test]
    fn a_change_during_a_request_is_not_lost() {
        let key = Key::work("w");
        let (kind, web) = (kind(), name("shop", "web"));
        let objects = Objects::default();
        objects.interest(&key, &[(kind.clone(), web.clone())], &[]);
        assert_eq!(
            objects.seen(&kind.resource, &metadata(21, Some(1), "x")),
            vec![key.clone()]
        );
        let ours = Mark::of(&metadata(20, Some(1), "a"), 7, false);
        objects.mark(&key, &kind.resource, &web, Some(ours));
        assert_eq!(objects.need(&key, &kind.resource, &web, 7), Need::Write);
        // An object that a listing lacks is gone.
        let ours = Mark::of(&metadata(22, Some(1), "a"), 7, false);
        objects.mark(&key, &kind.resource, &web, Some(ours));
        assert_eq!(objects.need(&key, &kind.resource, &web, 7), Need::Nothing);
        let woken = objects.listed(&kind.resource, &Scope::All, &BTreeSet::new());
        assert_eq!(woken, vec![key.clone()]);
    }

    #[test]
    fn the_smallest_part_that_holds_everything_is_watched() {
        let key = Key::work("w");
        let kind = kind();
        let objects = Objects::default();
        let scope = |names: &[Name]| {
            let wanted: Vec<_> = names.iter().map(|name| (kind.clone(), name.clone())).collect();
            objects.interest(&key, &wanted, &[]);
            objects.scopes().pop().unwrap().1
        };
        assert_eq!(scope(&[name("a", "x")]), Scope::Object(name("a", "x")));
        assert_eq!(
            scope(&[name("a", "x"), name("a", "y")]),
            Scope::Namespace("a".into())
        );
        assert_eq!(scope(&[name("a", "x"), name("b", "y")]), Scope::All);
        assert_eq!(scope(&[name("", "x"), name("", "y")]), Scope::All);
        assert!(Scope::Namespace("a".into()).covers(&Scope::Object(name("a", "x"))));
        assert!(!Scope::Object(name("a", "x")).covers(&Scope::Namespace("a".into())));
    }
}

//! A copy of what a watch shows, by namespace and name.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Resource, ResourceExt, core::DeserializeGuard, runtime::watcher::Event};

/// Namespace (empty if there is none) and name.
pub type Id = (String, String);

/// What a watch has shown so far.
#[derive(Debug)]
pub struct Mirror<T> {
    objects: BTreeMap<Id, T>,
    /// The namespaces of each name.
    names: BTreeMap<String, BTreeSet<String>>,
    buffer: BTreeMap<Id, T>,
    ready: bool,
}

impl<T> Default for Mirror<T> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            names: BTreeMap::new(),
            buffer: BTreeMap::new(),
            ready: false,
        }
    }
}

impl<T> Mirror<T> {
    /// Whether everything was shown once.
    pub fn is_ready(&self) -> bool {
        self.ready
    }

    /// The object.
    pub fn get(&self, namespace: &str, name: &str) -> Option<&T> {
        self.objects.get(&(namespace.to_owned(), name.to_owned()))
    }

    /// All objects.
    pub fn iter(&self) -> impl Iterator<Item = (&Id, &T)> {
        self.objects.iter()
    }

    /// The objects of one namespace.
    pub fn within<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = (&'a str, &'a T)> {
        self.objects
            .range((namespace.to_owned(), String::new())..)
            .take_while(move |((of, _), _)| of == namespace)
            .map(|((_, name), object)| (name.as_str(), object))
    }

    /// The objects of one name, with their namespaces.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = (&'a str, &'a T)> {
        self.names
            .get(name)
            .into_iter()
            .flatten()
            .filter_map(move |namespace| Some((namespace.as_str(), self.get(namespace, name)?)))
    }

    fn insert(&mut self, id: Id, object: T) {
        self.names.entry(id.1.clone()).or_default().insert(id.0.clone());
        self.objects.insert(id, object);
    }

    fn remove(&mut self, id: &Id) {
        self.objects.remove(id);
        if let Some(namespaces) = self.names.get_mut(&id.1) {
            namespaces.remove(&id.0);
            if namespaces.is_empty() {
                self.names.remove(&id.1);
            }
        }
    }

    /// Takes an event in; returns which objects it may have changed. One that cannot be read counts as absent.
    pub fn take<K>(&mut self, event: Event<DeserializeGuard<K>>, keep: impl Fn(K) -> T) -> Vec<Id>
    where
        K: Resource<DynamicType = ()> + Clone,
    {
        let id = |object: &DeserializeGuard<K>| (object.namespace().unwrap_or_default(), object.name_any());
        let read = |object: DeserializeGuard<K>| match object.0 {
            Ok(object) => Some(keep(object)),
            Err(error) => {
                tracing::warn!(kind = %K::kind(&()), error = %error.error, "an object cannot be read");
                None
            }
        };
        match event {
            Event::Init => {
                self.buffer.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                let id = id(&object);
                if let Some(object) = read(object) {
                    self.buffer.insert(id, object);
                }
                Vec::new()
            }
            Event::InitDone => {
                self.ready = true;
                let before = std::mem::take(&mut self.objects);
                self.names.clear();
                for (id, object) in std::mem::take(&mut self.buffer) {
                    self.insert(id, object);
                }
                let mut changed: Vec<Id> = self.objects.keys().cloned().collect();
                changed.extend(before.into_keys().filter(|id| !self.objects.contains_key(id)));
                changed
            }
            Event::Apply(object) => {
                let id = id(&object);
                match read(object) {
                    Some(object) => self.insert(id.clone(), object),
                    None => self.remove(&id),
                }
                vec![id]
            }
            Event::Delete(object) => {
                let id = id(&object);
                self.remove(&id);
                vec![id]
            }
        }
    }
}

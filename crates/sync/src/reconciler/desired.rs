//! What a commit asks for: the declared objects, and what of its files cannot be applied. Pure.
//!
//! Fetched files -> [`Desired::adopt`] -> unresolved objects -> [`Desired::resolve`] with the kinds of the API server ->
//! declared objects.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
};

use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use writ_controller::ObjectId;

use super::{
    error::{Code, Problem},
    fetch::{Fetched, SourceSpec},
    object::{DELETION, Declared, Origin, Raw, full_name},
    parse,
};
use crate::model::{SyncId, SyncKind};

/// The scope of a kind, as the API server serves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KindScope {
    /// Its objects are in namespaces.
    Namespaced,
    /// Its objects are not in namespaces.
    Cluster,
    /// The kind is not served.
    NotServed,
    /// The API server did not answer, for this reason.
    Unknown(String),
}

/// An object whose kind is not known.
#[derive(Debug)]
pub struct Unresolved {
    /// The object.
    pub raw: Raw,
    /// Why the API server did not answer; `None` if it does not serve the kind.
    pub error: Option<String>,
}

/// What a commit asks for.
pub struct Desired {
    /// The sync.
    pub id: SyncId,
    /// The commit; `None` until one was read.
    pub commit: Option<String>,
    /// The source that it was read from.
    pub source: Option<SourceSpec>,
    /// The objects that the cluster must have.
    pub declared: BTreeMap<ObjectId, Declared>,
    /// Objects that must not be managed.
    pub disabled: BTreeSet<ObjectId>,
    /// Objects whose kind is not known yet.
    pub unresolved: Vec<Unresolved>,
    /// Problems of files and of objects in them.
    pub problems: Vec<Problem>,
    /// Why the source must be rendered first, which is not supported.
    pub rendering: Vec<Problem>,
    /// Group, kind and scope of the kinds that the commit defines.
    defined: Vec<(String, String, KindScope)>,
}

impl Desired {
    /// Nothing, before a commit was read.
    pub fn new(id: SyncId) -> Self {
        Self {
            id,
            commit: None,
            source: None,
            declared: BTreeMap::new(),
            disabled: BTreeSet::new(),
            unresolved: Vec::new(),
            problems: Vec::new(),
            rendering: Vec::new(),
            defined: Vec::new(),
        }
    }

    /// Whether there is a commit whose objects can be applied.
    pub fn is_applicable(&self) -> bool {
        self.commit.is_some() && self.rendering.is_empty()
    }

    /// Whether every object of the commit is known. Otherwise nothing is pruned: a missing object may be one of those
    /// that could not be read.
    pub fn is_complete(&self) -> bool {
        self.problems.is_empty() && self.unresolved.is_empty()
    }

    /// Takes over a new commit. Its objects are unresolved until [`Self::resolve`].
    pub fn adopt(&mut self, fetched: Fetched, source: SourceSpec) {
        let parsed = fetched.parsed;
        *self = Self {
            commit: Some(fetched.commit),
            source: Some(source),
            problems: parsed.problems,
            rendering: parsed.rendering,
            // A RepoSync cannot apply definitions, so a definition in its files says nothing about a kind.
            defined: match self.id.kind {
                SyncKind::Root => parsed.objects.iter().filter_map(defined_kind).collect(),
                SyncKind::Repo => Vec::new(),
            },
            unresolved: parsed
                .objects
                .into_iter()
                .map(|raw| Unresolved { raw, error: None })
                .collect(),
            ..Self::new(self.id.clone())
        };
    }

    /// The kinds whose scope [`Self::resolve`] needs.
    pub fn unresolved_kinds(&self) -> HashSet<GroupVersionKind> {
        self.unresolved.iter().map(|object| object.raw.gvk()).collect()
    }

    /// Declares the unresolved objects whose kind is known by now. A kind that the commit itself defines counts as known.
    pub fn resolve(&mut self, kinds: &HashMap<GroupVersionKind, KindScope>) {
        let mut placed = Vec::new();
        for Unresolved { raw, .. } in std::mem::take(&mut self.unresolved) {
            let scope = match kinds.get(&raw.gvk()) {
                Some(KindScope::NotServed) | None => self.defined_scope(&raw),
                Some(scope) => scope.clone(),
            };
            let in_namespace = match scope {
                KindScope::Namespaced => true,
                KindScope::Cluster => false,
                KindScope::NotServed => {
                    self.unresolved.push(Unresolved { raw, error: None });
                    continue;
                }
                KindScope::Unknown(error) => {
                    let error = Some(error);
                    self.unresolved.push(Unresolved { raw, error });
                    continue;
                }
            };
            match self.place(&raw, in_namespace) {
                Ok(id) => placed.push((raw, id)),
                Err(problem) => self.problems.push(problem),
            }
        }
        if !placed.is_empty() {
            self.declare(placed);
        }
    }

    fn defined_scope(&self, raw: &Raw) -> KindScope {
        let (group, kind) = (raw.group_version().0, raw.kind());
        let mut defined = self.defined.iter();
        defined
            .find(|(g, k, _)| g == group && k == kind)
            .map_or(KindScope::NotServed, |(_, _, scope)| scope.clone())
    }

    /// The id of an object in its namespace, if the sync may manage it there.
    fn place(&self, raw: &Raw, in_namespace: bool) -> Result<ObjectId, Problem> {
        let declared = raw.namespace();
        let (kind, name) = (raw.kind(), raw.name());
        let own_namespace = &*self.id.namespace;
        let bad_scope = |namespace: &str, message: String| {
            let problem = Problem::new(Code::BadScope, format!("{kind} {name}: {message}"));
            Err(problem.at(&raw.path).about(&raw.id(namespace)))
        };
        let id = match (self.id.kind, in_namespace) {
            (SyncKind::Repo, false) => {
                return bad_scope(
                    "",
                    "a RepoSync manages objects of its own namespace only, and this kind is not in namespaces"
                        .into(),
                );
            }
            (SyncKind::Repo, true) if !declared.is_empty() && declared != own_namespace => {
                return bad_scope(
                    declared,
                    format!(
                        "its namespace is {declared:?}; a RepoSync manages objects of its own namespace {own_namespace:?} only"
                    ),
                );
            }
            (SyncKind::Repo, true) => raw.id(own_namespace),
            (SyncKind::Root, false) => raw.id(""),
            (SyncKind::Root, true) if declared.is_empty() => raw.id("default"),
            (SyncKind::Root, true) => raw.id(declared),
        };
        let own = match (&*id.group, &*id.kind) {
            (writ_api::configsync::GROUP, kind) if kind == self.id.kind.as_str() => "itself",
            (writ_api::kpt::GROUP, "ResourceGroup") => "its own inventory",
            _ => return Ok(id),
        };
        if (&id.name.namespace, &id.name.name) != (&self.id.namespace, &self.id.name) {
            return Ok(id);
        }
        let problem = Problem::new(
            Code::SelfReconcile,
            format!("{} declares {own} in its own source", self.id),
        );
        Err(problem.at(&raw.path).about(&id))
    }

    /// Declares objects in addition to those that are declared. None of several declarations of one object counts.
    fn declare(&mut self, mut placed: Vec<(Raw, ObjectId)>) {
        let earlier = self
            .declared
            .values()
            .map(|object| (object.id.clone(), object.path.clone()));
        let all: Vec<(ObjectId, Arc<str>)> = placed
            .iter()
            .map(|(raw, id)| (id.clone(), raw.path.clone()))
            // An explicit declaration of a namespace replaces an implied one.
            .chain(earlier.filter(|(_, path)| !path.is_empty()))
            .collect();
        let (problems, duplicates) = parse::duplicates(&all);
        self.problems.extend(problems);
        placed.retain(|(_, id)| !duplicates.contains(id));
        self.declared.retain(|id, _| !duplicates.contains(id));
        placed.retain(|(raw, id)| {
            let disabled = raw.annotation("configmanagement.gke.io/managed") == Some("disabled");
            if disabled {
                self.disabled.insert(id.clone());
            }
            !disabled
        });
        self.insert(placed);
    }

    fn insert(&mut self, placed: Vec<(Raw, ObjectId)>) {
        let origin = Origin {
            id: &self.id,
            commit: self.commit.as_deref().unwrap_or_default(),
            context: self.source.as_ref().map_or("", |source| &source.context),
        };
        self.declared.extend(
            placed
                .into_iter()
                .map(|(raw, id)| (id.clone(), Declared::new(raw, id, &origin))),
        );
    }

    /// Declares namespaces that objects use and that no file declares. They are left on the cluster when they are no
    /// longer used.
    pub fn imply_namespaces(&mut self, names: &BTreeSet<String>) {
        let implied = names.iter().map(|name| {
            let raw = Raw {
                path: "".into(),
                value: json!({
                    "apiVersion": "v1",
                    "kind": "Namespace",
                    "metadata": { "name": name, "annotations": { DELETION: "detach" }},
                }),
            };
            let id = raw.id("");
            (raw, id)
        });
        self.insert(implied.collect());
    }

    /// The declared kinds that one of these definitions defines.
    pub fn kinds_defined_by(&self, definitions: &BTreeSet<ObjectId>) -> HashSet<GroupVersionKind> {
        let defined: HashSet<(&str, &str)> = definitions
            .iter()
            .filter_map(|id| {
                let value = &self.declared.get(id)?.value;
                let text = |pointer: &str| value.pointer(pointer).and_then(Value::as_str);
                Some((text("/spec/group")?, text("/spec/names/kind")?))
            })
            .collect();
        let objects = self.declared.values();
        objects
            .filter(|object| defined.contains(&(&*object.id.group, &*object.id.kind)))
            .map(Declared::gvk)
            .collect()
    }
}

impl Unresolved {
    /// The problem of an object that cannot be applied yet.
    pub fn problem(&self) -> Problem {
        let what = format!("kind {} in {}", self.raw.kind(), self.raw.api_version());
        match &self.error {
            None => Problem::new(Code::UnknownKind, format!("the API server does not serve {what}")),
            Some(error) => Problem::new(
                Code::ApiServer,
                format!("cannot find out whether the API server serves {what}; nothing is pruned meanwhile: {error}"),
            ),
        }
        .at(&self.raw.path)
    }
}

/// The kind that an object defines, if it is a CustomResourceDefinition.
fn defined_kind(raw: &Raw) -> Option<(String, String, KindScope)> {
    if raw.kind() != "CustomResourceDefinition" {
        return None;
    }
    let text = |pointer: &str| raw.value.pointer(pointer).and_then(Value::as_str);
    let scope = match text("/spec/scope") {
        Some("Namespaced") => KindScope::Namespaced,
        _ => KindScope::Cluster,
    };
    Some((
        text("/spec/group")?.into(),
        text("/spec/names/kind")?.into(),
        scope,
    ))
}

/// The problem of an object whose namespace contradicts the scope of its kind, as the API server serves it.
pub fn served_in_other_scope(object: &Declared, namespaced: bool) -> Problem {
    let scope = if namespaced {
        "in namespaces"
    } else {
        "not in namespaces"
    };
    let message = format!(
        "{}: the API server serves this kind {scope}",
        full_name(&object.id)
    );
    Problem::new(Code::BadScope, message)
        .at(&object.path)
        .about(&object.id)
}

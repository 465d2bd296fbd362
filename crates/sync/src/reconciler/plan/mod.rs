//! What to do next, and what to report. Pure: no request, no clock.
//!
//! [`Desired`] and [`Observed`] -> [`plan`] -> [`Plan`], whose stages are executed in order: the inventory first, so that
//! nothing that is written can be forgotten; then the waves of objects to apply; then the waves of objects to prune. Each
//! result changes what is observed, and the plan is made again until no action is left.

pub mod order;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use tokio::time::Instant;
use writ_controller::ObjectId;

use self::order::rank;
use super::{
    desired::{Desired, Unresolved},
    drift::Scope,
    error::{Cause, Code, Failure, Problem},
    object::{Declared, full_name},
    observed::{NamespaceState, ObjectState, Observed, WatchState},
};

/// A kind that is used in more namespaces than this is watched in all namespaces at once, if the account may do that.
const WATCHED_NAMESPACES: usize = 3;

/// The next step of a reconciler.
#[derive(Debug, Default)]
pub struct Plan {
    /// The inventory, written before the actions.
    pub inventory: BTreeSet<ObjectId>,
    /// What to write to the cluster.
    pub actions: Actions,
    /// The number of objects that are left to apply and to prune, in this and in later steps.
    pub changes: usize,
    /// Why the commit must not be applied at all. There are no actions then, and the inventory stays as it is.
    pub refusal: Option<Problem>,
}

/// Writes to the cluster, stage by stage.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// Objects that are not applied, because their dependencies form a cycle.
    pub cyclic: Vec<(ObjectId, Failure)>,
    /// Objects to apply: each wave at once, one after another.
    pub apply: Vec<Vec<ObjectId>>,
    /// Definitions that are applied. Everything else waits until their kinds are served.
    pub definitions: BTreeSet<ObjectId>,
    /// Objects to prune: each wave at once, one after another.
    pub prune: Vec<Vec<Prune>>,
}

/// The removal of one object from the sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prune {
    /// The object is deleted.
    Delete(ObjectId),
    /// The object stays, without the metadata of a managed object.
    GiveUp(ObjectId),
}

impl Prune {
    /// The object.
    pub fn id(&self) -> &ObjectId {
        match self {
            Self::Delete(id) | Self::GiveUp(id) => id,
        }
    }
}

impl Actions {
    /// Whether nothing is to be done.
    pub fn is_empty(&self) -> bool {
        self.cyclic.is_empty() && self.apply.is_empty() && self.prune.is_empty()
    }
}

/// The next step towards what is desired. The inventory must be known.
pub fn plan(desired: &Desired, observed: &Observed) -> Plan {
    if let Some(refusal) = refusal(desired, observed) {
        return Plan {
            inventory: listed(observed).cloned().collect(),
            refusal: Some(refusal),
            ..Plan::default()
        };
    }
    let dirty = dirty(desired, observed);
    // A definition that drifted is already served: it is corrected in the first wave, and nothing waits for it.
    let has_drifted = |id: &ObjectId| {
        observed
            .objects
            .get(id)
            .is_some_and(|state| state.drift.is_some())
    };
    let is_new_definition = |object: &&Declared| rank(&object.id) == 0 && !has_drifted(&object.id);
    let definitions: Vec<&Declared> = dirty.iter().copied().filter(is_new_definition).collect();
    let prune = prunes(desired, observed);
    let changes = dirty.len() + prune.iter().map(Vec::len).sum::<usize>();
    let mut actions = Actions::default();
    if definitions.is_empty() {
        actions.apply_in_waves(&dirty);
        actions.prune = prune;
    } else {
        actions.apply_in_waves(&definitions);
        actions.definitions = definitions.iter().map(|object| object.id.clone()).collect();
    }
    let mut inventory: BTreeSet<ObjectId> = listed(observed)
        .filter(|id| stays_listed(desired, observed, id))
        .cloned()
        .collect();
    let is_applied = |id: &&ObjectId| {
        observed
            .objects
            .get(*id)
            .is_some_and(|state| state.applied.is_some())
    };
    let applied = desired.declared.keys().filter(is_applied);
    inventory.extend(applied.cloned());
    inventory.extend(dirty.iter().map(|object| object.id.clone()));
    Plan {
        inventory,
        actions,
        changes,
        refusal: None,
    }
}

impl Actions {
    fn apply_in_waves(&mut self, objects: &[&Declared]) {
        let (waves, cyclic) = order::waves(objects);
        let ids = |wave: Vec<usize>| {
            let objects = wave.into_iter().filter_map(|index| objects.get(index));
            objects.map(|object| object.id.clone()).collect()
        };
        self.apply = waves.into_iter().map(ids).collect();
        let cyclic = cyclic.into_iter().filter_map(|index| objects.get(index));
        self.cyclic = cyclic
            .map(|object| {
                let name = full_name(&object.id);
                let message = format!("the dependencies of {name} form a cycle");
                let problem = Problem::new(Code::Resource, message);
                let failure = Failure::refused(problem.at(&object.path).about(&object.id));
                (object.id.clone(), failure)
            })
            .collect();
    }
}

fn listed(observed: &Observed) -> impl Iterator<Item = &ObjectId> {
    observed.inventory.objects.iter().flatten()
}

/// Declared objects that are not known to be as declared, without those that are held back.
fn dirty<'a>(desired: &'a Desired, observed: &Observed) -> Vec<&'a Declared> {
    let objects = desired.declared.values();
    objects
        .filter(|object| {
            let Some(state) = observed.objects.get(&object.id) else {
                return true;
            };
            let hash = state.applied.as_ref().map(|applied| &applied.hash);
            !state.held_back && hash != Some(&object.hash)
        })
        .collect()
}

/// Objects of the inventory that are no longer declared, what others need last. Nothing is pruned while a part of the
/// commit is unknown, as the object may be declared there.
fn prunes(desired: &Desired, observed: &Observed) -> Vec<Vec<Prune>> {
    if !desired.is_complete() {
        return Vec::new();
    }
    let stale = listed(observed).filter(|id| {
        let state = observed.objects.get(*id);
        let is_done = |state: &ObjectState| state.held_back || state.is_pruned;
        !desired.declared.contains_key(*id) && !state.is_some_and(is_done)
    });
    removal_order(stale)
        .into_iter()
        .map(|wave| {
            let prune = |id: ObjectId| {
                if desired.disabled.contains(&id) {
                    Prune::GiveUp(id)
                } else {
                    Prune::Delete(id)
                }
            };
            wave.into_iter().map(prune).collect()
        })
        .collect()
}

/// Objects in the order of their removal: those that others need last.
pub fn removal_order<'a>(objects: impl IntoIterator<Item = &'a ObjectId>) -> Vec<Vec<ObjectId>> {
    let mut waves: BTreeMap<u8, Vec<ObjectId>> = BTreeMap::new();
    for id in objects {
        waves.entry(u8::MAX - rank(id)).or_default().push(id.clone());
    }
    waves.into_values().collect()
}

/// Whether an object of the inventory stays in it, apart from those that are applied or about to be.
fn stays_listed(desired: &Desired, observed: &Observed, id: &ObjectId) -> bool {
    let Some(state) = observed.objects.get(id) else {
        return true;
    };
    if !desired.declared.contains_key(id) {
        return !state.is_pruned;
    }
    match state.failure.as_ref().map(|failure| failure.cause) {
        None => true,
        Some(Cause::ManagementConflict) => false,
        // An object that was refused before it existed is not ours to delete later.
        Some(cause) => cause.may_have_taken_effect() || !state.is_new,
    }
}

/// Why the commit must not be applied. A commit that drops every namespace at once is more likely a mistake than a wish.
fn refusal(desired: &Desired, observed: &Observed) -> Option<Problem> {
    let lost = dropped_namespaces(desired, observed)
        .into_iter()
        .filter(|name| match observed.namespaces.get(name) {
            Some(NamespaceState::Missing) => false,
            // A detached namespace stays on the cluster, as implied ones do.
            Some(NamespaceState::Present { is_detached, .. }) => !is_detached,
            Some(NamespaceState::Unknown) | None => true,
        })
        .count();
    (lost >= 2).then(|| {
        Problem::new(
            Code::EmptySource,
            format!("the commit would delete all {lost} namespaces of this sync; if that is intended, delete all but one first"),
        )
    })
}

fn is_namespace(id: &ObjectId) -> bool {
    id.group.is_empty() && &*id.kind == "Namespace"
}

/// The namespaces of the inventory, if there are several and none of them is declared any more. They must be read again
/// before each plan.
pub fn dropped_namespaces(desired: &Desired, observed: &Observed) -> BTreeSet<String> {
    if !desired.unresolved.is_empty() || desired.declared.keys().any(is_namespace) {
        return BTreeSet::new();
    }
    let dropped: BTreeSet<String> = listed(observed)
        .filter(|id| is_namespace(id) && !desired.disabled.contains(id))
        .map(|id| id.name.name.to_string())
        .collect();
    if dropped.len() < 2 {
        BTreeSet::new()
    } else {
        dropped
    }
}

/// The namespaces that objects use and that are not declared, if the sync creates such namespaces.
fn undeclared_namespaces(desired: &Desired) -> BTreeSet<String> {
    let source = desired.source.as_ref();
    if !source.is_some_and(|source| source.implies_namespaces) {
        return BTreeSet::new();
    }
    let used: BTreeSet<&str> = desired.declared.keys().map(|id| &*id.name.namespace).collect();
    let declared: BTreeSet<&str> = desired
        .declared
        .keys()
        .filter(|id| is_namespace(id))
        .map(|id| &*id.name.name)
        .collect();
    let undeclared = used.difference(&declared).filter(|name| !name.is_empty());
    undeclared.map(|name| (*name).to_owned()).collect()
}

/// The used namespaces that must be read to know whether they are implied.
pub fn namespaces_to_read(desired: &Desired, observed: &Observed) -> BTreeSet<String> {
    let mut names = undeclared_namespaces(desired);
    names.retain(|name| !observed.namespaces.contains_key(name));
    names
}

/// The namespaces that are implied by the objects in them: those that do not exist, and those that this sync has created.
pub fn implied_namespaces(desired: &Desired, observed: &Observed) -> BTreeSet<String> {
    let mut names = undeclared_namespaces(desired);
    names.retain(|name| {
        matches!(
            observed.namespaces.get(name),
            Some(NamespaceState::Missing | NamespaceState::Present { is_ours: true, .. })
        )
    });
    names
}

/// What must be watched: every declared kind where it is declared.
pub fn watch_scopes(desired: &Desired, observed: &Observed) -> BTreeSet<Scope> {
    let mut namespaces_of: BTreeMap<(&str, &str, &str), BTreeSet<&str>> = BTreeMap::new();
    for object in desired.declared.values() {
        let kind = (&*object.id.group, object.version.as_str(), &*object.id.kind);
        let namespaces = namespaces_of.entry(kind).or_default();
        namespaces.insert(&*object.id.name.namespace);
    }
    let mut scopes = BTreeSet::new();
    for ((group, version, kind), namespaces) in namespaces_of {
        let scope = |namespace: &str| Scope {
            group: group.to_owned(),
            version: version.to_owned(),
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
        };
        let all = scope("");
        if namespaces.len() > WATCHED_NAMESPACES && !observed.refused_for_all.contains(&all) {
            scopes.insert(all);
        } else {
            scopes.extend(namespaces.into_iter().map(scope));
        }
    }
    scopes
}

/// The problems of the cluster for the status.
pub fn problems(desired: &Desired, observed: &Observed, now: Instant) -> Vec<Problem> {
    let failures = observed
        .objects
        .values()
        .filter_map(|state| state.failure.as_ref());
    let watches = observed.watches.iter().filter_map(|(scope, state)| match state {
        WatchState::Failing(error) => Some(Problem::new(
            Code::ApiServer,
            format!("drift of {} is not seen, as its watch keeps failing: {error}", scope.kind),
        )),
        WatchState::Refused(answer) => Some(Problem::new(
            Code::InsufficientPermission,
            format!("drift is corrected once a minute instead of at once, as the reconciler may not watch: {answer}"),
        )),
        WatchState::Starting | WatchState::Ready => None,
    });
    failures
        .map(|failure| failure.problem.clone())
        .chain(desired.unresolved.iter().map(Unresolved::problem))
        .chain(observed.fights.problems(now))
        .chain(watches)
        .collect()
}

/// Whether a retry may lead further without any event: something failed, was refused, or is fought over.
pub fn needs_retry(desired: &Desired, observed: &Observed, now: Instant) -> bool {
    let has_failure = |state: &ObjectState| state.failure.is_some();
    let is_refused = |state: &WatchState| matches!(state, WatchState::Refused(_));
    observed.objects.values().any(has_failure)
        || !desired.unresolved.is_empty()
        || observed.watches.values().any(is_refused)
        || observed.fights.is_any(now)
}

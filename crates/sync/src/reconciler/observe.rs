//! Finds out what a plan must know: the inventory, kinds, namespaces, and what the watches show.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _, core::GroupVersionKind};
use tokio::time::Instant;
use writ_controller::{Error, ObjectId, backoff::Backoff, error::status_code};

use super::{
    apply::inventory,
    desired::{Desired, KindScope},
    drift::{Scope, Seen, Watches},
    execute::is_established,
    object::{DELETION, MANAGER},
    observed::{NamespaceState, Observed, WatchState},
    plan,
    session::Session,
};
use crate::names;

/// The time for a new watch to show its first list.
const FIRST_LIST_WITHIN: Duration = Duration::from_secs(10);
/// The time for new kinds to be served.
const KINDS_SERVED_WITHIN: Duration = Duration::from_secs(10);
/// The pauses between looking whether an established kind is served.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Finds out what the next plan must know. Fails if the inventory cannot be read.
pub async fn observe(
    session: &Session,
    desired: &mut Desired,
    observed: &mut Observed,
    watches: &mut Watches,
) -> Result<(), Error> {
    if observed.inventory.objects.is_none() {
        let objects = inventory::read(session.client(), session.id()).await?;
        observed.inventory.objects = Some(objects);
    }
    resolve_kinds(session, desired).await;
    let names = plan::namespaces_to_read(desired, observed);
    read_namespaces(session, observed, names).await;
    let implied = plan::implied_namespaces(desired, observed);
    if !implied.is_empty() {
        desired.imply_namespaces(&implied);
        observed.retry_in_namespaces(&implied);
    }
    let names = plan::dropped_namespaces(desired, observed);
    read_namespaces(session, observed, names).await;
    watch_declared(session, desired, observed, watches).await;
    Ok(())
}

/// Asks the API server for the kinds of unresolved objects.
pub async fn resolve_kinds(session: &Session, desired: &mut Desired) {
    let mut kinds: HashMap<GroupVersionKind, KindScope> = HashMap::new();
    for gvk in desired.unresolved_kinds() {
        let scope = match session.shared.mapper.find(session.client(), &gvk).await {
            Ok(Some(kind)) if kind.namespaced => KindScope::Namespaced,
            Ok(Some(_)) => KindScope::Cluster,
            Ok(None) => KindScope::NotServed,
            Err(error) => KindScope::Unknown(error.to_string()),
        };
        kinds.insert(gvk, scope);
    }
    if !kinds.is_empty() {
        desired.resolve(&kinds);
    }
}

async fn read_namespaces(session: &Session, observed: &mut Observed, names: BTreeSet<String>) {
    let api = Api::<Namespace>::all(session.client().clone());
    let own = names::manager_value(session.id());
    for name in names {
        let state = match api.get_opt(&name).await {
            Ok(None) => NamespaceState::Missing,
            Ok(Some(live)) => {
                let annotation = |key: &str| live.annotations().get(key).map(String::as_str);
                NamespaceState::Present {
                    is_ours: annotation(MANAGER) == Some(&own),
                    is_detached: annotation(DELETION) == Some("detach"),
                }
            }
            Err(error) => {
                // An account without the right to read namespaces is normal.
                if status_code(&error) != Some(403) {
                    let sync = session.id();
                    tracing::debug!(%sync, namespace = %name, %error, "the namespace cannot be read");
                }
                NamespaceState::Unknown
            }
        };
        observed.namespaces.insert(name, state);
    }
}

/// Watches every declared kind where it is declared, and waits until new watches have shown what exists.
async fn watch_declared(
    session: &Session,
    desired: &Desired,
    observed: &mut Observed,
    watches: &mut Watches,
) {
    loop {
        let scopes = plan::watch_scopes(desired, observed);
        watches.retain(&scopes);
        observed.watches.retain(|scope, _| scopes.contains(scope));
        let mut started = BTreeSet::new();
        for scope in scopes {
            if observed.watches.contains_key(&scope) {
                continue;
            }
            let gvk = GroupVersionKind::gvk(&scope.group, &scope.version, &scope.kind);
            // A kind that is not served yet is watched once it is.
            let Ok(Some(kind)) = session.shared.mapper.find(session.client(), &gvk).await else {
                continue;
            };
            watches.start(scope.clone(), &kind);
            observed.watches.insert(scope.clone(), WatchState::Starting);
            started.insert(scope);
        }
        if started.is_empty() {
            return;
        }
        // Only new watches are awaited: one that does not get ready must not delay every pass.
        let deadline = Instant::now() + FIRST_LIST_WITHIN;
        let is_starting =
            |scope: &Scope, observed: &Observed| observed.watches.get(scope) == Some(&WatchState::Starting);
        while started.iter().any(|scope| is_starting(scope, observed)) {
            match tokio::time::timeout_at(deadline, watches.next()).await {
                Ok(seen) => observed.see(desired, seen, Instant::now()),
                Err(_) => return,
            }
        }
        // A watch on all namespaces that was refused becomes one per namespace.
    }
}

/// Waits until the kinds of definitions that were just applied are served.
///
/// The watch for drift shows when the API server has established a `pending` definition. Discovery follows within moments,
/// and cannot be watched. Without the right to watch definitions there is only discovery, which is asked with growing
/// pauses.
pub async fn await_kinds(
    session: &Session,
    definitions: &BTreeSet<ObjectId>,
    mut pending: Vec<ObjectId>,
    desired: &Desired,
    observed: &mut Observed,
    watches: &mut Watches,
) {
    let deadline = Instant::now() + KINDS_SERVED_WITHIN;
    let is_applied = |id: &&ObjectId| {
        observed
            .objects
            .get(*id)
            .is_some_and(|state| state.applied.is_some())
    };
    let applied = definitions.iter().filter(is_applied).cloned().collect();
    let kinds = desired.kinds_defined_by(&applied);
    while pending.iter().any(|id| is_watched(desired, observed, id)) {
        let Ok(seen) = tokio::time::timeout_at(deadline, watches.next()).await else {
            break;
        };
        if let Seen::Live { id, object, .. } = &seen
            && is_established(object)
        {
            pending.retain(|other| other != id);
        }
        observed.see(desired, seen, Instant::now());
    }
    let mut pauses = Backoff::new(FIRST_PAUSE, LAST_PAUSE);
    loop {
        session.shared.mapper.expect_new_kinds();
        if session.executor().are_served(&kinds).await || Instant::now() >= deadline {
            return;
        }
        tokio::time::sleep(pauses.next_delay()).await;
    }
}

/// Whether a running watch shows changes of an object.
fn is_watched(desired: &Desired, observed: &Observed, id: &ObjectId) -> bool {
    let version = desired.declared.get(id).map(|object| object.version.as_str());
    observed.watches.iter().any(|(scope, state)| {
        *scope.group == *id.group
            && *scope.kind == *id.kind
            && Some(scope.version.as_str()) == version
            && matches!(state, WatchState::Starting | WatchState::Ready)
    })
}

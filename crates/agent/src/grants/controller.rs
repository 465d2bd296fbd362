//! Brings namespaces and grants to be reconciled when anything that they depend on changes.

use std::sync::Arc;

use writ_controller::{Controller, Error, cache::Change, events::Events};

use super::{
    definition,
    model::{Active, Key},
    object::Kind,
    observe::{Caches, Labels, OwnObjects},
    reconcile::{Outcomes, Reconciler},
};
use crate::Context;

/// How many namespaces and grants are reconciled side by side.
const CONCURRENCY: usize = 8;

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    definition::install(&context.spoke).await?;
    let caches = Arc::new(Caches::start(&context));
    let own = Arc::new(OwnObjects::default());
    let outcomes = Arc::new(Outcomes::default());
    let controller = watch(&context, &caches, &own, &outcomes);
    let shutdown = context.shutdown.clone();
    let events = Events::new(context.hub.clone(), "writ-agent/grants");
    let queue = controller.queue();
    let reconciler = Arc::new(Reconciler::new(&context, events, queue, caches, own, outcomes));
    controller
        .run(CONCURRENCY, &shutdown, move |key| {
            let reconciler = reconciler.clone();
            async move { reconciler.reconcile(&key).await }
        })
        .await;
    Ok(())
}

/// What brings which namespaces and grants to be reconciled. While a list is under way, what concerns all of them waits for
/// its end.
pub(super) fn watch(
    context: &Context,
    caches: &Arc<Caches>,
    own: &Arc<OwnObjects>,
    outcomes: &Arc<Outcomes>,
) -> Controller<Key> {
    let with = || caches.clone();
    let (namespaces, namespaces_listed, grants, grants_listed) = (with(), with(), with(), with());
    let (roles, bindings) = ((with(), own.clone()), (with(), own.clone()));
    let outcomes = outcomes.clone();
    Controller::new("grants", &context.health)
        .watch(&caches.namespaces, move |change| {
            namespace_changed(&namespaces, change)
        })
        .on_list(&caches.namespaces, move || namespaces_listed.all_grants())
        .watch(&caches.grants, move |change| {
            outcomes.forget_former(change);
            grant_changed(&grants, change)
        })
        .on_list(&caches.grants, move || grants_listed.all_namespaces())
        .watch(&caches.roles, move |change| {
            let (caches, own) = &roles;
            own.take(Kind::Role, change);
            object_changed(caches, change)
        })
        .watch(&caches.bindings, move |change| {
            let (caches, own) = &bindings;
            own.take(Kind::RoleBinding, change);
            object_changed(caches, change)
        })
}

/// A namespace that came, went, terminates or has other labels concerns what it holds, and what every grant reports.
fn namespace_changed(caches: &Caches, change: &Change<'_, Option<Labels>>) -> Vec<Key> {
    let labels = |labels: Option<&Arc<Option<Labels>>>| labels.and_then(|labels| (**labels).clone());
    if labels(change.new.as_ref()) == labels(change.old().as_ref()) {
        return Vec::new();
    }
    let mut keys = vec![Key::Namespace(change.name.name.clone())];
    if !change.listed {
        keys.extend(caches.all_grants());
    }
    keys
}

/// A grant concerns what every namespace holds, unless only its status has changed.
fn grant_changed(caches: &Caches, change: &Change<'_, Active>) -> Vec<Key> {
    let mut keys = vec![Key::Grant(change.name.name.clone())];
    if change.input_changed() && !change.listed {
        keys.extend(caches.all_namespaces());
    }
    keys
}

/// A Role or RoleBinding concerns its namespace; when it is gone, also the grants that wait for that.
fn object_changed<K>(caches: &Caches, change: &Change<'_, K>) -> Vec<Key> {
    let mut keys = vec![Key::Namespace(change.name.namespace.clone())];
    if change.is_gone() {
        keys.extend(caches.deleted_grants());
    }
    keys
}

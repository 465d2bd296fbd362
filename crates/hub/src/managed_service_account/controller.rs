//! Brings accounts, clusters, requests and the policy to be reconciled when anything that they depend on changes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::{Resource as _, ResourceExt as _};
use writ_api::{
    authentication::{ANNOTATION_PARENT, ManagedServiceAccount},
    cluster::{CLUSTER_NAME_LABEL, ManagedCluster},
};
use writ_controller::{Controller, Error, Name, cache::Change, events::Events};

use super::{
    foreign_secrets::ForeignSecrets,
    model::{ADDON, ADDON_WORK, AGENT_ROLE, Key},
    observe::{Caches, DeletedSecrets},
    reconcile::Reconciler,
};
use crate::Context;

/// How many things are reconciled side by side.
const CONCURRENCY: usize = 16;

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let caches = Arc::new(Caches::start(&context));
    let deleted = Arc::new(DeletedSecrets::default());
    let controller = watch(&context, &caches, &deleted);
    let queue = controller.queue();
    queue.add(Key::Policy);
    let foreign = ForeignSecrets::new(context.client.clone(), queue, context.shutdown.clone());
    let reconciler = Arc::new(Reconciler::new(&context, caches, deleted, foreign));
    controller
        .run(CONCURRENCY, &context.shutdown, move |key| {
            let reconciler = reconciler.clone();
            async move { reconciler.reconcile(&key).await }
        })
        .await;
    Ok(())
}

/// What brings which keys to be reconciled.
fn watch(context: &Context, caches: &Arc<Caches>, deleted: &Arc<DeletedSecrets>) -> Controller<Key> {
    let clock = context.options.managed_service_account.clock;
    let events = Events::new(context.client.clone(), "writ-hub/managed_service_account");
    let deleted = deleted.clone();
    let with = || caches.clone();
    let (accounts, clusters, listed, sets, bindings) = (with(), with(), with(), with(), with());
    let (policies, policy_bindings, about) = (with(), with(), with());
    Controller::with_clock("managed_service_account", &context.health, clock)
        .watch(&caches.accounts, move |change| account_changed(&accounts, change))
        .watch(&caches.owners, |change| [Key::Owner(change.name.clone())])
        .watch(&caches.clusters, move |change| cluster_changed(&clusters, change))
        .on_list(&caches.clusters, move || parents(&listed))
        .watch(&caches.sets, move |_| parents(&sets))
        .watch(&caches.set_bindings, move |change| {
            accounts_in(&bindings, &change.name.namespace)
        })
        .watch(&caches.add_ons, |change| cluster_of(&change.name, ADDON))
        .watch(&caches.works, |change| cluster_of(&change.name, ADDON_WORK))
        .watch(&caches.secrets, move |change| {
            deleted.take(change);
            [Key::Account(change.name.clone())]
        })
        .watch(&caches.requests, |change| {
            let cluster = change
                .new
                .as_ref()
                .and_then(|request| Some(request.labels().get(CLUSTER_NAME_LABEL)?.as_str().into()));
            let request = Key::Request(change.name.name.clone());
            cluster.map(Key::Cluster).into_iter().chain([request])
        })
        .watch(&caches.policies, move |_| policy_changed(&policies))
        .watch(&caches.policy_bindings, move |_| policy_changed(&policy_bindings))
        .watch(&caches.roles, |change| cluster_of(&change.name, AGENT_ROLE))
        .watch(&caches.role_bindings, |change| {
            [Key::Cluster(change.name.namespace.clone())]
        })
        .watch(&caches.identities, |change| {
            [Key::Cluster(change.name.namespace.clone())]
        })
        .report(events, move |key| object_of(&about, key))
}

/// The cluster in whose namespace an object of this name is, if it has the name that counts.
fn cluster_of(object: &Name, name: &str) -> Option<Key> {
    (*object.name == *name).then(|| Key::Cluster(object.namespace.clone()))
}

/// An account concerns its cluster, the account of the older group that owns it, its parent and its children, and accounts of
/// the same name in bound namespaces: the name may have become free.
fn account_changed(caches: &Caches, change: &Change<'_, ManagedServiceAccount>) -> Vec<Key> {
    let name = &change.name;
    let mut keys = vec![
        Key::Cluster(name.namespace.clone()),
        Key::Owner(name.clone()),
        Key::Account(name.clone()),
    ];
    let versions = [change.new.clone(), change.old()];
    let parents = versions.iter().flatten().filter_map(|account| parent_of(account));
    keys.extend(parents.map(Key::Account));
    for (other, account) in caches.accounts_named(&name.name) {
        if parent_of(&account).as_ref() == Some(name) || !caches.is_of_cluster(&other.namespace) {
            keys.push(Key::Account(other));
        }
    }
    keys
}

/// The account in a cluster-set namespace that a child names.
fn parent_of(child: &ManagedServiceAccount) -> Option<Name> {
    let (namespace, name) = child.annotations().get(ANNOTATION_PARENT)?.split_once('/')?;
    Some(Name::new(namespace, name))
}

/// A cluster concerns itself, every account that may have children, and the accounts in the namespace of its name, which may
/// have become a cluster's or ceased to be. While a list is under way, the parents wait for its end.
fn cluster_changed(caches: &Caches, change: &Change<'_, ManagedCluster>) -> Vec<Key> {
    let cluster = &change.name.name;
    let mut keys = accounts_in(caches, cluster);
    if !change.listed {
        keys.extend(parents(caches));
    }
    keys.push(Key::Cluster(cluster.clone()));
    keys
}

fn parents(caches: &Caches) -> Vec<Key> {
    caches.parents().into_iter().map(Key::Account).collect()
}

fn accounts_in(caches: &Caches, namespace: &str) -> Vec<Key> {
    let accounts = caches.accounts.in_namespace(namespace);
    accounts.into_iter().map(|(name, _)| Key::Account(name)).collect()
}

/// The policy concerns itself, and every cluster: without it agents have no rights.
fn policy_changed(caches: &Caches) -> Vec<Key> {
    let clusters = caches.clusters.names().into_iter();
    let clusters = clusters.map(|name| Key::Cluster(name.name));
    clusters.chain([Key::Policy]).collect()
}

/// The object about which an event tells a failure.
fn object_of(caches: &Caches, key: &Key) -> Option<ObjectReference> {
    match key {
        Key::Account(name) => Some(caches.accounts.get(name)?.object_ref(&())),
        Key::Owner(name) => Some(caches.owners.get(name)?.object_ref(&())),
        Key::Cluster(name) => Some(caches.clusters.get(&Name::global(name.clone()))?.object_ref(&())),
        Key::Policy | Key::Request(_) => None,
    }
}

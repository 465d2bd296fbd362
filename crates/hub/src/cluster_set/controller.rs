//! Watches sets, clusters, bindings and the roles of sets, and reconciles each on its own.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::{core::v1::ObjectReference, rbac::v1::ClusterRole};
use kube::{Api, Resource as _, ResourceExt};
use writ_api::cluster::{CLUSTER_SET_LABEL, ManagedClusterSet};
use writ_controller::{Controller, Error, Name, Next, events::Events, write};

use super::{
    apply,
    model::{Item, ObservedCluster},
    observe::{Observed, State},
    plan, status,
};
use crate::{Context, MANAGER, caches::Caches};

/// How many items are reconciled side by side.
const CONCURRENCY: usize = 8;

/// Runs until shutdown.
pub async fn run(context: Context) -> Result<(), Error> {
    let context = Arc::new(context);
    let caches = &context.caches;
    let observed = Arc::new(Observed::new(context.options.guards.default_key));
    let (of_clusters, of_sets) = (observed.clone(), observed.clone());
    let (bindings, about) = (caches.set_bindings().clone(), context.clone());
    Controller::new("cluster_set", &context.health)
        .watch(caches.clusters(), move |change| {
            of_clusters.take_cluster(&change.name.name, change.new.as_deref())
        })
        .watch(caches.sets(), move |change| {
            let old = change.old();
            let mut items = of_sets.take_set(&change.name.name, old.as_deref(), change.new.as_deref());
            if old.is_none() || change.is_gone() {
                let bindings = bindings.all().into_iter();
                let of_set = bindings.filter(|(_, binding)| *binding.spec.cluster_set == *change.name.name);
                items.extend(of_set.map(|(name, _)| Item::Binding(name)));
            }
            items
        })
        .watch(caches.set_bindings(), |change| {
            [Item::Binding(change.name.clone())]
        })
        .watch(caches.cluster_roles(), |change| {
            let (old, new) = (change.old(), change.new.clone());
            new.iter().chain(&old).find_map(|role| set_of(role))
        })
        .on_list(caches.sets(), || [Item::StandingSets])
        .report(
            Events::new(context.client.clone(), "writ-hub/cluster_set"),
            move |item| described(item, &about.caches),
        )
        .run(CONCURRENCY, &context.shutdown, |item| {
            let (context, observed) = (context.clone(), observed.clone());
            async move { reconcile(&context, &observed, item).await }
        })
        .await;
    Ok(())
}

/// The set that a role was made for.
fn set_of(role: &ClusterRole) -> Option<Item> {
    let labels = role.labels();
    let set = labels
        .get(CLUSTER_SET_LABEL)
        .filter(|_| labels.contains_key(plan::ROLE_LABEL));
    set.cloned().map(Item::Set)
}

/// The object that is described where a reconcile fails.
fn described(item: &Item, caches: &Caches) -> Option<ObjectReference> {
    match item {
        Item::Set(name) => Some(caches.sets().get(&Name::global(name.as_str()))?.object_ref(&())),
        Item::Binding(name) => Some(caches.set_bindings().get(name)?.object_ref(&())),
        Item::StandingSets | Item::Cluster(_) => None,
    }
}

async fn reconcile(context: &Context, observed: &Observed, item: Item) -> Result<Next, Error> {
    match item {
        Item::StandingSets if context.options.guards.default_set => {
            apply::write_standing_sets(&context.client, context.caches.sets()).await?;
        }
        Item::StandingSets => {}
        Item::Set(name) => reconcile_set(context, observed, &name).await?,
        Item::Cluster(name) => reconcile_cluster(context, observed, &name).await?,
        Item::Binding(name) => reconcile_binding(context, &name).await?,
    }
    Ok(Next::Wait)
}

async fn reconcile_set(context: &Context, observed: &Observed, name: &str) -> Result<(), Error> {
    let Some(set) = context.caches.sets().get(&Name::global(name)) else {
        return Ok(());
    };
    if set.metadata.deletion_timestamp.is_some() {
        return apply::finish_set(&context.client, &set).await;
    }
    apply::write_set(&context.client, &context.caches, &set).await?;
    let status = plan::set_status(&set, &observed.lock().index, Timestamp::now());
    let api: Api<ManagedClusterSet> = Api::all(context.client.clone());
    write::ensure_status(&api, &*set, &status, MANAGER).await?;
    Ok(())
}

async fn reconcile_cluster(context: &Context, observed: &Observed, name: &str) -> Result<(), Error> {
    let Some(cluster) = context.caches.clusters().get(&Name::global(name)) else {
        return Ok(());
    };
    let cluster = ObservedCluster::of(&cluster);
    let (report, sets) = {
        let State { index, gone_keys } = &*observed.lock();
        let sets = index
            .sets_of(name)
            .filter_map(|set| context.caches.sets().get(&Name::global(set)));
        let sets: Vec<_> = sets.collect();
        (plan::label_report(&cluster, gone_keys, index), sets)
    };
    status::report_labels(&context.client, &cluster, &report).await?;
    let sets: Vec<&ManagedClusterSet> = sets.iter().map(|set| &**set).collect();
    status::report_namespaces(&context.client, &cluster, &sets).await
}

async fn reconcile_binding(context: &Context, name: &Name) -> Result<(), Error> {
    let Some(binding) = context.caches.set_bindings().get(name) else {
        return Ok(());
    };
    let set = Name::global(binding.spec.cluster_set.as_str());
    let exists = context.caches.sets().get(&set).is_some();
    let status = plan::binding_status(&binding, exists, Timestamp::now());
    let api = write::namespaced(&context.client, &name.namespace);
    write::ensure_status(&api, &*binding, &status, MANAGER).await?;
    Ok(())
}

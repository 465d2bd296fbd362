//! What the plan of a set is made from.

use std::collections::{BTreeMap, BTreeSet};

use kube::{Api, ResourceExt, api::ListParams};
use writ_api::{
    cluster::{
        Placement, PlacementDecision,
        placement_decision::{GROUP_INDEX_LABEL, GROUP_NAME_LABEL, PLACEMENT_LABEL},
    },
    work::{ManifestWork, ManifestWorkReplicaSet},
};
use writ_controller::{Error, error::Context as _, write};
use writ_runtime::segment;

use super::{
    model::Group,
    ownership::{is_own, owner},
};
use crate::{Context, caches::works_of_replica_set};

/// The works that were made for the set.
pub fn works(context: &Context, set: &ManifestWorkReplicaSet) -> Vec<ManifestWork> {
    let Some(label) = owner(set) else {
        return Vec::new();
    };
    let labelled = context.caches.works().all_indexed(works_of_replica_set(&label));
    let own = labelled.into_iter().filter(|(_, work)| is_own(set, work));
    own.map(|(_, work)| (*work).clone()).collect()
}

/// Whether a decision is of a placement that the set names.
pub fn is_concerned(set: &ManifestWorkReplicaSet, decision: &PlacementDecision) -> bool {
    let placement = decision.labels().get(PLACEMENT_LABEL);
    let mut named = set.spec.placement_refs.iter().map(|reference| &reference.name);
    set.namespace() == decision.namespace() && named.any(|name| Some(name) == placement)
}

/// The names of the placements that exist. Only needed before works are deleted.
pub async fn existing_placements(
    context: &Context,
    set: &ManifestWorkReplicaSet,
) -> Result<BTreeSet<String>, Error> {
    let namespace = set.namespace().unwrap_or_default();
    let api: Api<Placement> = write::namespaced(&context.client, &namespace);
    let list = api
        .list_metadata(&ListParams::default())
        .await
        .context(|| format!("list the Placements of namespace {namespace}"))?;
    let alive = list
        .items
        .iter()
        .filter(|item| item.metadata.deletion_timestamp.is_none());
    Ok(alive.map(ResourceExt::name_any).collect())
}

/// The decision groups of the placements in the set's namespace, in the order of their indexes.
pub fn placements(context: &Context, set: &ManifestWorkReplicaSet) -> BTreeMap<String, Vec<Group>> {
    let mut found: BTreeMap<String, BTreeMap<i32, Group>> = BTreeMap::new();
    let namespace = set.namespace().unwrap_or_default();
    for (_, decision) in context.caches.decisions().in_namespace(&namespace) {
        let labels = decision.labels();
        let Some(placement) = labels.get(PLACEMENT_LABEL) else {
            continue;
        };
        let index = labels
            .get(GROUP_INDEX_LABEL)
            .and_then(|index| index.parse().ok())
            .unwrap_or_default();
        let group = found
            .entry(placement.clone())
            .or_default()
            .entry(index)
            .or_default();
        group.index = index;
        group.name = labels.get(GROUP_NAME_LABEL).cloned().unwrap_or_default();
        let clusters = decision.status.iter().flat_map(|status| &status.decisions);
        // A cluster is the namespace that its work is written to, so its name must be one.
        let names = clusters.filter(|cluster| segment::is_plain(&cluster.cluster_name));
        group
            .clusters
            .extend(names.map(|cluster| cluster.cluster_name.clone()));
    }
    found
        .into_iter()
        .map(|(placement, groups)| {
            let groups = groups
                .into_values()
                .map(|mut group| {
                    group.clusters.sort();
                    group.clusters.dedup();
                    group
                })
                .collect();
            (placement, groups)
        })
        .collect()
}

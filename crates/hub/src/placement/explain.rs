//! Why a placement chose what it chose: the same scheduler, run by whoever asks, with what they can read.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{Api, Client, ResourceExt, api::ListParams};
use writ_api::cluster::{
    AddOnPlacementScore, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, Placement,
    PlacementDecision, placement_decision::PLACEMENT_LABEL,
};
use writ_runtime::{Error, error::Context as _};

use super::{
    facts::Facts,
    plan::{Compiled, Outcome, Surroundings, Verdict, slot_of},
};
use crate::cluster_set::membership::{JOINED_ANNOTATION, Membership, SetView};

/// What a person is told about a placement.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The sets that the placement chooses from.
    pub sets: Vec<String>,
    /// What comes out, with a reason for every cluster that is left out.
    pub outcome: Outcome,
}

/// Explains the placement `namespace/name`.
pub async fn explain(client: &Client, namespace: &str, name: &str) -> Result<Explanation, Error> {
    let everything = ListParams::default();
    let placements: Api<Placement> = Api::namespaced(client.clone(), namespace);
    let placement = placements
        .get(name)
        .await
        .context(|| format!("read Placement {namespace}/{name}"))?;
    let compiled = Compiled::of(&placement.spec).map_err(Error::Invalid)?;
    let bindings: Api<ManagedClusterSetBinding> = Api::namespaced(client.clone(), namespace);
    let bindings = bindings
        .list(&everything)
        .await
        .context(|| "list ManagedClusterSetBindings".into())?;
    let sets: Api<ManagedClusterSet> = Api::all(client.clone());
    let sets = sets
        .list(&everything)
        .await
        .context(|| "list ManagedClusterSets".into())?;
    let clusters: Api<ManagedCluster> = Api::all(client.clone());
    let clusters = clusters
        .list(&everything)
        .await
        .context(|| "list ManagedClusters".into())?;
    let decisions: Api<PlacementDecision> = Api::namespaced(client.clone(), namespace);
    let decisions = decisions
        .list(&ListParams::default().labels(&format!("{PLACEMENT_LABEL}={name}")))
        .await
        .context(|| "list PlacementDecisions".into())?;
    let scores: Api<AddOnPlacementScore> = Api::all(client.clone());
    let scores = scores
        .list(&everything)
        .await
        .context(|| "list AddOnPlacementScores".into())?;

    let views: Vec<SetView> = sets
        .items
        .iter()
        .filter(|set| {
            let name = set.name_any();
            bindings.items.iter().any(|b| b.spec.cluster_set == name)
                && (placement.spec.cluster_sets.is_empty() || placement.spec.cluster_sets.contains(&name))
        })
        .map(|set| SetView::of(set, false))
        .collect();
    let before: BTreeMap<String, usize> = decisions
        .items
        .iter()
        .filter_map(|d| Some((slot_of(name, &d.name_any())?, d.status.clone()?)))
        .flat_map(|(slot, status)| status.decisions.into_iter().map(move |d| (d.cluster_name, slot)))
        .collect();
    let now = Timestamp::now();
    let judged: Vec<(Facts, Verdict)> = clusters
        .items
        .into_iter()
        .filter(|cluster| {
            let joined = cluster.annotations().get(JOINED_ANNOTATION).map(String::as_str);
            views
                .iter()
                .any(|view| view.membership(cluster.labels(), joined) == Membership::Member)
        })
        .map(|cluster| {
            let facts = Facts::of(cluster);
            let verdict = compiled.judge(&facts, before.contains_key(&facts.name), now);
            (facts, verdict)
        })
        .collect();
    let candidates: Vec<(&Facts, &Verdict)> = judged.iter().map(|(f, v)| (f, v)).collect();
    let add_on_score = |cluster: &str, resource: &str, score: &str| {
        scores
            .items
            .iter()
            .find(|s| s.namespace().as_deref() == Some(cluster) && s.name_any() == resource)
            .and_then(|s| super::controller::score_in(s, score, now))
    };
    let around = Surroundings {
        before: &before,
        chosen_elsewhere: &|_| 0,
        add_on_score: &add_on_score,
    };
    Ok(Explanation {
        sets: views.into_iter().map(|view| view.name).collect(),
        outcome: compiled.schedule(&candidates, &around),
    })
}

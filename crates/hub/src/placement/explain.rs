//! Why a placement chose its clusters: the same plan, made for a person with what that person may read.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    sync::Arc,
};

use jiff::Timestamp;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;
use writ_api::cluster::{
    AddOnPlacementScore, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, Placement,
    PlacementDecision, placement_decision::PLACEMENT_LABEL,
};
use writ_controller::{
    Error,
    error::Context as _,
    tolerant::{self, Tolerant},
};

use super::{
    cluster_view::{AddOnScores, ClusterView, score_in},
    model::{DecisionObject, Location, Outcome, Surroundings, Verdict},
    plan::{Compiled, locations},
};
use crate::cluster_set::membership::{CONFIRMED_ANNOTATION, JOINED_ANNOTATION, Membership, SetView};

/// The explanation of a placement.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// The sets that the placement chooses from.
    pub sets: Vec<String>,
    /// The choice, with a reason for every cluster that is left out.
    pub outcome: Outcome,
    /// Why the placement is invalid; it then keeps the decisions that `outcome` shows.
    pub misconfigured: Option<String>,
    /// A limit of this answer, if it has one.
    pub note: Option<String>,
}

/// Explains the placement `namespace/name`.
pub async fn explain(client: &Client, namespace: &str, name: &str) -> Result<Explanation, Error> {
    let placements: Api<Placement> = Api::namespaced(client.clone(), namespace);
    let placement = placements
        .get(name)
        .await
        .context(|| format!("read Placement {namespace}/{name}"))?;
    let bindings: Vec<ManagedClusterSetBinding> = all(
        &Api::namespaced(client.clone(), namespace),
        "ManagedClusterSetBindings",
    )
    .await?;
    let sets: Vec<ManagedClusterSet> = all(&Api::all(client.clone()), "ManagedClusterSets").await?;
    let clusters: Vec<ManagedCluster> = all(&Api::all(client.clone()), "ManagedClusters").await?;
    let (decisions, note) = decisions_to_compare(client, namespace).await?;
    let scores: Vec<AddOnPlacementScore> = all(&Api::all(client.clone()), "AddOnPlacementScores").await?;

    let views: Vec<SetView> = sets
        .iter()
        .filter(|set| {
            let name = set.name_any();
            bindings.iter().any(|b| b.spec.cluster_set == name)
                && (placement.spec.cluster_sets.is_empty() || placement.spec.cluster_sets.contains(&name))
        })
        // Admission annotates the sets whose key the hub guards, those with the default key too if it is guarded.
        .map(|set| SetView::of(set, set.annotations().contains_key(CONFIRMED_ANNOTATION)))
        .collect();
    let is_own = |d: &&PlacementDecision| {
        d.namespace().as_deref() == Some(namespace)
            && d.labels().get(PLACEMENT_LABEL).is_some_and(|p| p == name)
    };
    let before = locations(name, decisions.iter().filter(is_own));
    let sets: Vec<String> = views.iter().map(|view| view.name.clone()).collect();
    let compiled = match Compiled::of(&placement.spec) {
        Ok(compiled) => compiled,
        Err(why) => {
            return Ok(Explanation {
                sets,
                outcome: kept(&before),
                misconfigured: Some(why),
                note,
            });
        }
    };
    let mut elsewhere: BTreeMap<&str, BTreeSet<(Option<String>, &str)>> = BTreeMap::new();
    for decision in decisions.iter().filter(|d| !is_own(d)) {
        let Some(of) = decision.labels().get(PLACEMENT_LABEL) else {
            continue;
        };
        for chosen in decision.status.iter().flat_map(|s| &s.decisions) {
            let placements = elsewhere.entry(&chosen.cluster_name).or_default();
            placements.insert((decision.namespace(), of));
        }
    }
    let now = Timestamp::now();
    let (mut members, mut unconfirmed) = (Vec::new(), BTreeMap::new());
    for cluster in clusters {
        let joined = cluster.annotations().get(JOINED_ANNOTATION).map(String::as_str);
        let is = |wanted: Membership| {
            let mut sets = views.iter();
            sets.find(|view| view.membership(cluster.labels(), joined) == wanted)
        };
        if is(Membership::Member).is_some() {
            members.push(cluster);
        } else if let Some(view) = is(Membership::Unconfirmed) {
            unconfirmed.insert(cluster.name_any(), unconfirmed_in(&view.name));
        }
    }
    let judged: Vec<(ClusterView, Verdict)> = members
        .into_iter()
        .map(|cluster| {
            let facts = ClusterView::of(Arc::new(cluster));
            let chosen = before.contains_key(&facts.name);
            let verdict = compiled.judge(&facts, chosen, now, |cluster| {
                let own = scores.iter();
                AddOnScores::of(own.filter(|s| s.namespace().as_deref() == Some(cluster)), now)
            });
            (facts, verdict)
        })
        .collect();
    let candidates: Vec<(&ClusterView, &Verdict)> = judged.iter().map(|(f, v)| (f, v)).collect();
    let add_on_score = |cluster: &str, resource: &str, score: &str| {
        scores
            .iter()
            .find(|s| s.namespace().as_deref() == Some(cluster) && s.name_any() == resource)
            .and_then(|s| score_in(s, score, now))
    };
    let around = Surroundings {
        before: &before,
        chosen_elsewhere: &|cluster| elsewhere.get(cluster).map_or(0, BTreeSet::len),
        add_on_score: &add_on_score,
    };
    let mut outcome = compiled.schedule(&candidates, &around);
    outcome.left_out.extend(unconfirmed);
    Ok(Explanation {
        sets,
        outcome,
        misconfigured: None,
        note,
    })
}

/// All objects of a kind that parse, as in the hub's caches: a status that does not parse hides no other object.
async fn all<K>(api: &Api<Tolerant<K>>, what: &str) -> Result<Vec<K>, Error>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Default,
{
    let found = tolerant::list(api, &ListParams::default()).await;
    found.context(|| format!("list {what}"))
}

/// Why a cluster that carries the label of a set is not a member.
fn unconfirmed_in(set: &str) -> String {
    format!(
        "it carries the label of the set {set}, but the label was not set through the admission webhook; a user who may \
         update all managedclusters confirms it with the annotation {CONFIRMED_ANNOTATION}=true on the set"
    )
}

/// The decisions of all namespaces, which the balance counts. Without the right to list them, those of one namespace.
async fn decisions_to_compare(
    client: &Client,
    namespace: &str,
) -> Result<(Vec<PlacementDecision>, Option<String>), Error> {
    let everything = ListParams::default();
    let what = || "list PlacementDecisions".to_owned();
    let all: Api<PlacementDecision> = Api::all(client.clone());
    match all.list(&everything).await {
        Ok(list) => Ok((list.items, None)),
        Err(kube::Error::Api(status)) if status.code == 403 => {
            let own: Api<PlacementDecision> = Api::namespaced(client.clone(), namespace);
            let list = own.list(&everything).await.context(what)?;
            let note = format!(
                "you may not list PlacementDecisions in all namespaces: the balance counts those of {namespace} alone, and \
                 scores may differ from the hub's"
            );
            Ok((list.items, Some(note)))
        }
        Err(error) => Err(error).context(what),
    }
}

/// The stored decisions, as an outcome.
fn kept(before: &BTreeMap<String, Location>) -> Outcome {
    let mut objects: BTreeMap<usize, DecisionObject> = BTreeMap::new();
    for (cluster, home) in before {
        let object = objects.entry(home.slot).or_insert_with(|| DecisionObject {
            slot: home.slot,
            group: home.group,
            group_name: home.group_name.clone(),
            ..DecisionObject::default()
        });
        object.clusters.push(cluster.clone());
    }
    Outcome {
        selected: before.len(),
        objects: objects.into_values().collect(),
        ..Outcome::default()
    }
}

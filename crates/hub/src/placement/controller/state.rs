//! What the controller knows, indexed so that a change finds what it touches.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kube::{ResourceExt, runtime::watcher};
use writ_api::cluster::{
    AddOnPlacementScore, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, Placement,
    PlacementDecision, placement::SCHEDULING_DISABLE_ANNOTATION, placement_decision::PLACEMENT_LABEL,
};
use writ_runtime::watching::Mirror;

use super::{Event, Wanted, score_in};
use crate::{
    cluster_set::{
        fleet::Fleet,
        membership::{JOINED_ANNOTATION, SetView},
    },
    placement::{
        facts::Facts,
        plan::{Compiled, NoCandidates, Surroundings, Verdict, slot_of},
    },
};

/// Everything that the controller knows.
pub(in crate::placement) struct State {
    guard_default_key: bool,
    fleet: Fleet,
    clusters: Mirror<Facts>,
    sets: Mirror<ManagedClusterSet>,
    bindings: Mirror<ManagedClusterSetBinding>,
    placements: Mirror<Placement>,
    decisions: Mirror<PlacementDecision>,
    scores: Mirror<AddOnPlacementScore>,
    /// What is kept per placement.
    kept: BTreeMap<String, Kept>,
    /// How many placements chose each cluster.
    chosen: BTreeMap<String, usize>,
    dirty: BTreeSet<String>,
}

/// What is kept of a placement between two looks.
struct Kept {
    compiled: Result<Compiled, String>,
    /// The sets that it chooses from.
    sets: BTreeSet<String>,
    /// The verdict on every candidate.
    verdicts: BTreeMap<String, Verdict>,
    /// The clusters that it chose last.
    chosen: BTreeSet<String>,
}

impl State {
    pub(in crate::placement) fn new(guard_default_key: bool) -> Self {
        Self {
            guard_default_key,
            fleet: Fleet::default(),
            clusters: Mirror::default(),
            sets: Mirror::default(),
            bindings: Mirror::default(),
            placements: Mirror::default(),
            decisions: Mirror::default(),
            scores: Mirror::default(),
            kept: BTreeMap::new(),
            chosen: BTreeMap::new(),
            dirty: BTreeSet::new(),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.clusters.is_ready()
            && self.sets.is_ready()
            && self.bindings.is_ready()
            && self.placements.is_ready()
            && self.decisions.is_ready()
            && self.scores.is_ready()
    }

    pub(in crate::placement) fn take_dirty(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.dirty)
    }

    pub(super) fn placement(&self, key: &str) -> Option<&Placement> {
        self.placements.get(key)
    }

    pub(super) fn decisions_of(
        &self,
        namespace: &str,
        placement: &str,
    ) -> impl Iterator<Item = &PlacementDecision> {
        self.decisions
            .in_namespace(namespace)
            .filter(move |d| d.labels().get(PLACEMENT_LABEL).is_some_and(|p| p == placement))
    }

    pub(in crate::placement) fn take(&mut self, event: Event) {
        match event {
            Event::Cluster(event) => self.take_cluster(event),
            Event::Set(event) => {
                for change in self.sets.apply(event, |set| set) {
                    match self.sets.get(&change.key) {
                        Some(set) => self.fleet.upsert_set(SetView::of(set, self.guard_default_key)),
                        None => self.fleet.remove_set(&change.key),
                    };
                    self.rebuild_where(|spec, _| {
                        spec.cluster_sets.is_empty() || spec.cluster_sets.contains(&change.key)
                    });
                }
            }
            Event::Binding(event) => {
                for change in self.bindings.apply(event, |binding| binding) {
                    let namespace = change.key.split('/').next().unwrap_or_default().to_owned();
                    self.rebuild_where(|_, in_namespace| in_namespace == namespace);
                }
            }
            Event::Placement(event) => {
                for change in self.placements.apply(event, |placement| placement) {
                    let same = change
                        .old
                        .as_ref()
                        .zip(self.placements.get(&change.key))
                        .is_some_and(|(old, new)| {
                            old.spec == new.spec && old.annotations() == new.annotations()
                        });
                    if !same {
                        self.forget(&change.key);
                    }
                    self.dirty.insert(change.key);
                }
            }
            Event::Decision(event) => {
                for change in self.decisions.apply(event, |decision| decision) {
                    let placement = change
                        .old
                        .as_ref()
                        .or_else(|| self.decisions.get(&change.key))
                        .and_then(|d| {
                            Some(format!("{}/{}", d.namespace()?, d.labels().get(PLACEMENT_LABEL)?))
                        });
                    self.dirty.extend(placement);
                }
            }
            Event::Score(event) => {
                for change in self.scores.apply(event, |score| score) {
                    let cluster = change.key.split('/').next().unwrap_or_default();
                    let touched: Vec<String> = self
                        .kept
                        .iter()
                        .filter(|(_, kept)| kept.verdicts.contains_key(cluster))
                        .map(|(key, _)| key.clone())
                        .collect();
                    self.dirty.extend(touched);
                }
            }
        }
    }

    /// One verdict per placement that may choose the cluster, and nothing else.
    fn take_cluster(&mut self, event: watcher::Event<ManagedCluster>) {
        let mut names = Vec::new();
        if let watcher::Event::InitApply(cluster) | watcher::Event::Apply(cluster) = &event {
            let joined = cluster.annotations().get(JOINED_ANNOTATION).map(String::as_str);
            self.fleet
                .upsert_cluster(&cluster.name_any(), cluster.labels(), joined);
        }
        for change in self.clusters.apply(event, Facts::of) {
            if change.gone {
                self.fleet.remove_cluster(&change.key);
            }
            names.push(change.key);
        }
        let now = Timestamp::now();
        for name in names {
            let sets: BTreeSet<&str> = self.fleet.sets_of(&name).collect();
            let facts = self.clusters.get(&name);
            for (key, kept) in &mut self.kept {
                let Ok(compiled) = &kept.compiled else { continue };
                let candidate = kept.sets.iter().any(|set| sets.contains(set.as_str()));
                let verdict = facts
                    .filter(|_| candidate)
                    .map(|facts| compiled.judge(facts, kept.chosen.contains(&name), now));
                let known = kept.verdicts.get(&name);
                let matters = known != verdict.as_ref()
                    || (verdict.is_some() && compiled.looks_at_more_than_verdicts());
                if !matters {
                    continue;
                }
                match verdict {
                    Some(verdict) => kept.verdicts.insert(name.clone(), verdict),
                    None => kept.verdicts.remove(&name),
                };
                self.dirty.insert(key.clone());
            }
        }
    }

    fn rebuild_where(
        &mut self,
        touched: impl Fn(&writ_api::cluster::placement::PlacementSpec, &str) -> bool,
    ) {
        let keys: Vec<String> = self
            .placements
            .iter()
            .filter(|(_, p)| touched(&p.spec, p.metadata.namespace.as_deref().unwrap_or_default()))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.forget(&key);
            self.dirty.insert(key);
        }
    }

    fn forget(&mut self, key: &str) {
        if let Some(kept) = self.kept.remove(key) {
            for cluster in kept.chosen {
                uncount(&mut self.chosen, &cluster);
            }
        }
    }

    /// What should be written for a placement now, and when to look again because time passes.
    pub(in crate::placement) fn schedule(
        &mut self,
        key: &str,
        now: Timestamp,
    ) -> Option<(Wanted, Option<Duration>)> {
        let placement = self.placements.get(key)?;
        let disabled = placement
            .annotations()
            .get(SCHEDULING_DISABLE_ANNOTATION)
            .is_some_and(|v| v == "true");
        if disabled || placement.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let name = placement.name_any();
        let namespace = placement.namespace().unwrap_or_default();
        let before: BTreeMap<String, usize> = self
            .decisions_of(&namespace, &name)
            .filter_map(|d| Some((slot_of(&name, &d.name_any())?, d.status.as_ref()?)))
            .flat_map(|(slot, status)| {
                status
                    .decisions
                    .iter()
                    .map(move |d| (d.cluster_name.clone(), slot))
            })
            .collect();
        if name.len() > 63 {
            return Some((
                Wanted::Misconfigured("metadata.name: it has more than 63 characters".into()),
                None,
            ));
        }
        let bound: BTreeSet<String> = self
            .bindings
            .in_namespace(&namespace)
            .map(|binding| binding.spec.cluster_set.clone())
            .filter(|set| self.sets.get(set).is_some())
            .collect();
        let wanted_sets = &placement.spec.cluster_sets;
        let sets: BTreeSet<String> = bound
            .iter()
            .filter(|set| wanted_sets.is_empty() || wanted_sets.contains(*set))
            .cloned()
            .collect();
        if !self.kept.contains_key(key) {
            let kept = self.judge_all(placement, sets.clone(), &before, now);
            for cluster in &kept.chosen {
                *self.chosen.entry(cluster.clone()).or_default() += 1;
            }
            self.kept.insert(key.to_owned(), kept);
        }
        self.refresh_expired(key, now);
        let kept = self.kept.get(key)?;
        let compiled = match &kept.compiled {
            Ok(compiled) => compiled,
            Err(why) => return Some((Wanted::Misconfigured(why.clone()), None)),
        };
        let candidates: Vec<(&Facts, &Verdict)> = kept
            .verdicts
            .iter()
            .filter_map(|(name, verdict)| Some((self.clusters.get(name)?, verdict)))
            .collect();
        let own = &kept.chosen;
        let around = Surroundings {
            before: &before,
            chosen_elsewhere: &|cluster| {
                let all = self.chosen.get(cluster).copied().unwrap_or(0);
                all.saturating_sub(usize::from(own.contains(cluster)))
            },
            add_on_score: &|cluster, resource, score| {
                self.scores
                    .get(&format!("{cluster}/{resource}"))
                    .and_then(|object| score_in(object, score, now))
            },
        };
        let outcome = compiled.schedule(&candidates, &around);
        let none = if bound.is_empty() {
            Some(NoCandidates::NoBindings)
        } else if sets.is_empty() {
            Some(NoCandidates::NoIntersection)
        } else if candidates.is_empty() {
            Some(NoCandidates::Empty(sets.into_iter().collect()))
        } else {
            None
        };
        let conditions = compiled.conditions(&outcome, candidates.len(), none.as_ref());
        let again = kept.verdicts.values().filter_map(|v| v.until).min();
        let chosen: BTreeSet<String> = outcome
            .objects
            .iter()
            .flat_map(|o| o.clusters.iter().cloned())
            .collect();
        self.recount(key, chosen);
        Some((Wanted::Scheduled(outcome, conditions), again))
    }

    fn judge_all(
        &self,
        placement: &Placement,
        sets: BTreeSet<String>,
        before: &BTreeMap<String, usize>,
        now: Timestamp,
    ) -> Kept {
        let compiled = Compiled::of(&placement.spec);
        let mut verdicts = BTreeMap::new();
        if let Ok(compiled) = &compiled {
            let members: BTreeSet<&String> = sets
                .iter()
                .filter_map(|set| self.fleet.members(set))
                .flatten()
                .collect();
            for name in members {
                if let Some(facts) = self.clusters.get(name) {
                    let verdict = compiled.judge(facts, before.contains_key(name), now);
                    verdicts.insert(name.clone(), verdict);
                }
            }
        }
        Kept {
            compiled,
            sets,
            verdicts,
            chosen: before.keys().cloned().collect(),
        }
    }

    /// Judges those again whose toleration has an end.
    fn refresh_expired(&mut self, key: &str, now: Timestamp) {
        let Some(kept) = self.kept.get_mut(key) else {
            return;
        };
        let Ok(compiled) = &kept.compiled else { return };
        for (name, verdict) in &mut kept.verdicts {
            if verdict.until.is_some()
                && let Some(facts) = self.clusters.get(name)
            {
                *verdict = compiled.judge(facts, kept.chosen.contains(name), now);
            }
        }
    }

    fn recount(&mut self, key: &str, chosen: BTreeSet<String>) {
        let Some(kept) = self.kept.get_mut(key) else {
            return;
        };
        for cluster in kept.chosen.difference(&chosen) {
            uncount(&mut self.chosen, cluster);
        }
        for cluster in chosen.difference(&kept.chosen) {
            *self.chosen.entry(cluster.clone()).or_default() += 1;
        }
        kept.chosen = chosen;
    }
}

fn uncount(counts: &mut BTreeMap<String, usize>, cluster: &str) {
    if let Some(count) = counts.get_mut(cluster) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(cluster);
        }
    }
}

//! What the controller knows, indexed so that a change finds what it touches.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use jiff::Timestamp;
use kube::{ResourceExt, runtime::watcher};
use writ_api::cluster::{
    AddOnPlacementScore, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, Placement,
    PlacementDecision,
    managed_cluster::TaintEffect,
    placement::{DecisionGroupStatus, PlacementSpec, SCHEDULING_DISABLE_ANNOTATION, SortBy},
    placement_decision::PLACEMENT_LABEL,
};
use writ_controller::watching::Mirror;

use super::{
    Event, Wanted,
    chosen::{DecisionsIndex, owner_of, placement_of},
    kept::PlacementMemory,
    score_in,
};
use crate::{
    cluster_set::{
        index::MembershipIndex,
        membership::{JOINED_ANNOTATION, SetView},
    },
    placement::{
        cluster_view::{self, ClusterView},
        layout::DecisionObjects,
        plan::{self, Compiled, NoCandidates, Surroundings, Verdict, decision_name},
    },
};

/// Everything that the controller knows.
pub struct Scheduler {
    guard_default_key: bool,
    fleet: MembershipIndex,
    clusters: Mirror<ClusterView>,
    sets: Mirror<ManagedClusterSet>,
    bindings: Mirror<ManagedClusterSetBinding>,
    placements: Mirror<Placement>,
    decisions: Mirror<PlacementDecision>,
    scores: Mirror<AddOnPlacementScore>,
    /// What is kept per placement.
    kept: BTreeMap<String, PlacementMemory>,
    chosen: DecisionsIndex,
    dirty: BTreeSet<String>,
}

impl Scheduler {
    /// Knows nothing yet. `guard_default_key` is the hub's option of that name.
    pub fn new(guard_default_key: bool) -> Self {
        Self {
            guard_default_key,
            fleet: MembershipIndex::default(),
            clusters: Mirror::default(),
            sets: Mirror::default(),
            bindings: Mirror::default(),
            placements: Mirror::default(),
            decisions: Mirror::default(),
            scores: Mirror::default(),
            kept: BTreeMap::new(),
            chosen: DecisionsIndex::default(),
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

    /// The placements that may have to change, by `namespace/name`.
    pub fn take_dirty(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.dirty)
    }

    pub(super) fn placement(&self, key: &str) -> Option<&Placement> {
        self.placements.get(key)
    }

    pub(super) fn decision(&self, namespace: &str, name: &str) -> Option<&PlacementDecision> {
        self.decisions.get(&format!("{namespace}/{name}"))
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

    /// Takes in what happened.
    pub fn take(&mut self, event: Event) {
        match event {
            Event::Cluster(event) => self.take_cluster(event),
            Event::Set(event) => {
                for change in self.sets.apply(event, |set| set) {
                    self.take_set(&change.key);
                }
            }
            Event::Binding(event) => {
                for change in self.bindings.apply(event, |binding| binding) {
                    let now = self.bindings.get(&change.key);
                    if change.old.as_ref().map(|b| &b.spec) == now.map(|b| &b.spec) {
                        continue;
                    }
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
                        self.kept.remove(&change.key);
                    }
                    if change.gone {
                        self.chosen.replace(&change.key, &BTreeSet::new());
                    }
                    self.dirty.insert(change.key);
                }
            }
            Event::Decision(event) => {
                for change in self.decisions.apply(event, |decision| decision) {
                    let (old, now) = (change.old.as_ref(), self.decisions.get(&change.key));
                    // The owner as well: one that lost its label before it was ever seen is to get it again.
                    let touched: BTreeSet<String> = old
                        .into_iter()
                        .chain(now)
                        .flat_map(|decision| [placement_of(decision), owner_of(decision)])
                        .flatten()
                        .collect();
                    for placement in touched {
                        match self.kept.get_mut(&placement) {
                            // What the scheduler itself wrote comes back as an event: nothing to do.
                            Some(kept) if kept.is_as_laid_out(&placement, &change.key, now) => continue,
                            Some(kept) => kept.layout = None,
                            None => self.chosen.follow(&placement, old, now),
                        }
                        self.dirty.insert(placement);
                    }
                }
            }
            Event::Score(event) => self.take_score(event),
        }
    }

    /// A set is written with every cluster that comes or goes. Only what decides about its members matters, and only
    /// where it is bound.
    fn take_set(&mut self, name: &str) {
        let view = self
            .sets
            .get(name)
            .map(|set| SetView::of(set, self.guard_default_key));
        if self.fleet.set(name) == view.as_ref() {
            return;
        }
        match view {
            Some(view) => self.fleet.upsert_set(view),
            None => self.fleet.remove_set(name),
        };
        let bound: BTreeSet<String> = self
            .bindings
            .iter()
            .filter(|(_, binding)| binding.spec.cluster_set == name)
            .filter_map(|(_, binding)| binding.namespace())
            .collect();
        self.rebuild_where(|spec, namespace| {
            bound.contains(namespace)
                && (spec.cluster_sets.is_empty() || spec.cluster_sets.iter().any(|set| set == name))
        });
    }

    /// A score changes the rank of its cluster, and the verdict where an expression asks for scores.
    fn take_score(&mut self, event: watcher::Event<AddOnPlacementScore>) {
        let now = Timestamp::now();
        for change in self.scores.apply(event, |score| score) {
            let (cluster, resource) = change.key.split_once('/').unwrap_or_default();
            for (key, kept) in &mut self.kept {
                let Ok(compiled) = &kept.compiled else { continue };
                let Some(known) = kept.verdicts.get(cluster) else {
                    continue;
                };
                if compiled.looks_at(resource) {
                    self.dirty.insert(key.clone());
                }
                let facts = self.clusters.get(cluster).filter(|_| compiled.asks_for_scores());
                let chosen = self.chosen.has(key, cluster);
                let verdict = facts.and_then(|facts| kept.judge(facts, chosen, &self.scores, now));
                if verdict.as_ref().is_some_and(|verdict| verdict != known) {
                    kept.note(cluster, verdict);
                    self.dirty.insert(key.clone());
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
        for change in self.clusters.apply(event, ClusterView::of) {
            if change.gone {
                self.fleet.remove_cluster(&change.key);
            }
            names.push((change.key, change.old));
        }
        let now = Timestamp::now();
        for (name, old) in names {
            let sets: BTreeSet<&str> = self.fleet.sets_of(&name).collect();
            let facts = self.clusters.get(&name);
            for (key, kept) in &mut self.kept {
                let Ok(compiled) = &kept.compiled else { continue };
                let candidate = kept.sets.iter().any(|set| sets.contains(set.as_str()));
                let verdict = facts
                    .filter(|_| candidate)
                    .and_then(|facts| kept.judge(facts, self.chosen.has(key, &name), &self.scores, now));
                let known = kept.verdicts.get(&name);
                let matters = known != verdict.as_ref()
                    || verdict.as_ref().is_some_and(|v| v.refusal.is_none())
                        && old
                            .as_ref()
                            .zip(facts)
                            .is_none_or(|(old, new)| compiled.tells_apart(old, new));
                if !matters {
                    continue;
                }
                kept.note(&name, verdict);
                self.dirty.insert(key.clone());
            }
        }
    }

    fn rebuild_where(&mut self, touched: impl Fn(&PlacementSpec, &str) -> bool) {
        let keys: Vec<String> = self
            .placements
            .iter()
            .filter(|(_, p)| touched(&p.spec, p.metadata.namespace.as_deref().unwrap_or_default()))
            .map(|(key, _)| key.clone())
            .collect();
        for key in keys {
            self.kept.remove(&key);
            self.dirty.insert(key);
        }
    }

    /// What was planned for a placement may not have been written: the next look is at all of it.
    pub fn look_anew(&mut self, key: &str) {
        if let Some(kept) = self.kept.get_mut(key) {
            kept.layout = None;
        }
    }

    /// What should be written for a placement now, and when to look again because time passes.
    pub fn schedule(&mut self, key: &str, now: Timestamp) -> Option<(Wanted, Option<Duration>)> {
        let placement = self.placements.get(key)?;
        let disabled = placement
            .annotations()
            .get(SCHEDULING_DISABLE_ANNOTATION)
            .is_some_and(|v| v == "true");
        let name = placement.name_any();
        let namespace = placement.namespace().unwrap_or_default();
        if disabled || placement.metadata.deletion_timestamp.is_some() {
            // What somebody else chose for it counts for the others.
            let stored = plan::homes(&name, self.decisions_of(&namespace, &name));
            self.chosen.replace(key, &stored.into_keys().collect());
            return None;
        }
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
        if let Some(changed) = self.change(key, &bound, &sets, now) {
            return Some(changed);
        }
        let placement = self.placements.get(key)?;
        let by_score = placement.spec.sort_by == Some(SortBy::Score);
        let before = plan::homes(&name, self.decisions_of(&namespace, &name));
        if !self.kept.contains_key(key) {
            self.chosen.replace(key, &before.keys().cloned().collect());
            let kept = self.judge_all(key, placement, sets.clone(), now);
            self.kept.insert(key.to_owned(), kept);
        }
        self.refresh_expired(key, now);
        let kept = self.kept.get(key)?;
        let compiled = match &kept.compiled {
            Ok(compiled) => compiled,
            Err(why) => return Some((Wanted::Misconfigured(why.clone()), None)),
        };
        let candidates: Vec<(&ClusterView, &Verdict)> = kept
            .verdicts
            .iter()
            .filter_map(|(name, verdict)| Some((self.clusters.get(name)?, verdict)))
            .collect();
        let around = Surroundings {
            before: &before,
            chosen_elsewhere: &|cluster| self.chosen.elsewhere(key, cluster),
            add_on_score: &|cluster, resource, score| {
                self.scores
                    .get(&format!("{cluster}/{resource}"))
                    .and_then(|object| score_in(object, score, now))
            },
        };
        let outcome = compiled.schedule(&candidates, &around);
        let asked = &self.placements.get(key)?.spec.cluster_sets;
        let none = NoCandidates::of(&bound, asked, &sets, candidates.len());
        let conditions = compiled.conditions(outcome.selected, outcome.feasible, none.as_ref());
        let plain = compiled.is_plain() && !by_score;
        // A score that is weighed counts until it is too old.
        let resources: BTreeSet<&str> = compiled.add_ons().collect();
        let score_ends = candidates.iter().flat_map(|(cluster, _)| {
            let objects = resources
                .iter()
                .filter_map(|r| self.scores.get(&format!("{}/{r}", cluster.name)));
            objects.filter_map(|object| cluster_view::remaining(object, now).filter(|left| !left.is_zero()))
        });
        let again = kept.ends().into_iter().chain(score_ends).min();
        let chosen: BTreeSet<String> = outcome
            .objects
            .iter()
            .flat_map(|o| o.clusters.iter().cloned())
            .collect();
        self.recount(key, &chosen, now);
        if let Some(kept) = self.kept.get_mut(key) {
            kept.moved.clear();
            kept.layout = plain.then(|| DecisionObjects::of(&outcome.objects));
        }
        Some((Wanted::Scheduled(outcome, conditions), again))
    }

    /// The same for a plain placement of which only some clusters changed; `None` where all must be looked at.
    fn change(
        &mut self,
        key: &str,
        bound: &BTreeSet<String>,
        sets: &BTreeSet<String>,
        now: Timestamp,
    ) -> Option<(Wanted, Option<Duration>)> {
        self.refresh_expired(key, now);
        let kept = self.kept.get_mut(key)?;
        let compiled = kept.compiled.as_ref().ok()?;
        let mut layout = kept.layout.take()?;
        let mut touched = BTreeSet::new();
        for cluster in std::mem::take(&mut kept.moved) {
            let wanted = kept.verdicts.get(&cluster).is_some_and(|v| v.refusal.is_none());
            if wanted == layout.contains(&cluster) {
                continue;
            }
            touched.insert(layout.change(&cluster, wanted)?);
            self.chosen.note(key, &cluster, wanted);
        }
        let (_, name) = key.split_once('/')?;
        let asked = &self.placements.get(key)?.spec.cluster_sets;
        let none = NoCandidates::of(bound, asked, sets, kept.verdicts.len());
        let changed = Wanted::Changed {
            objects: touched.iter().filter_map(|slot| layout.object(*slot)).collect(),
            gone: touched
                .iter()
                .filter(|slot| !layout.has(**slot))
                .map(|slot| decision_name(name, *slot))
                .collect(),
            group: DecisionGroupStatus {
                decisions: layout.slots().map(|slot| decision_name(name, slot)).collect(),
                cluster_count: i32::try_from(layout.len()).unwrap_or(i32::MAX),
                ..DecisionGroupStatus::default()
            },
            conditions: compiled.conditions(layout.len(), layout.len(), none.as_ref()),
        };
        let again = kept.ends();
        kept.layout = Some(layout);
        Some((changed, again))
    }

    fn judge_all(&self, key: &str, placement: &Placement, sets: BTreeSet<String>, now: Timestamp) -> PlacementMemory {
        let members: BTreeSet<&String> = sets
            .iter()
            .filter_map(|set| self.fleet.members(set))
            .flatten()
            .collect();
        let mut kept = PlacementMemory {
            compiled: Compiled::of(&placement.spec),
            sets,
            timed: BTreeSet::new(),
            verdicts: BTreeMap::new(),
            layout: None,
            moved: BTreeSet::new(),
        };
        for name in members {
            let chosen = self.chosen.has(key, name);
            let facts = self.clusters.get(name);
            let verdict = facts.and_then(|facts| kept.judge(facts, chosen, &self.scores, now));
            if verdict.as_ref().is_some_and(|verdict| verdict.until.is_some()) {
                kept.timed.insert(name.clone());
            }
            kept.verdicts
                .extend(verdict.map(|verdict| (name.clone(), verdict)));
        }
        kept
    }

    /// Judges those again whose verdict has an end.
    fn refresh_expired(&mut self, key: &str, now: Timestamp) {
        let Some(kept) = self.kept.get_mut(key) else {
            return;
        };
        for name in kept.timed.clone() {
            let facts = self.clusters.get(&name);
            let chosen = self.chosen.has(key, &name);
            let verdict = facts.and_then(|facts| kept.judge(facts, chosen, &self.scores, now));
            if verdict.is_some() {
                kept.note(&name, verdict);
            }
        }
    }

    /// Notes what was chosen. A taint against newcomers means another thing for who came or went: they are judged again.
    fn recount(&mut self, key: &str, chosen: &BTreeSet<String>, now: Timestamp) {
        let moved = self.chosen.replace(key, chosen);
        let Some(kept) = self.kept.get_mut(key) else {
            return;
        };
        for name in moved {
            let minds_newcomers = |facts: &&ClusterView| {
                let mut taints = facts.taints.iter();
                taints.any(|taint| taint.effect == TaintEffect::NoSelectIfNew)
            };
            let facts = self.clusters.get(&name).filter(minds_newcomers);
            if let Some(facts) = facts.filter(|_| kept.verdicts.contains_key(&name)) {
                let verdict = kept.judge(facts, chosen.contains(&name), &self.scores, now);
                kept.note(&name, verdict);
            }
        }
    }
}

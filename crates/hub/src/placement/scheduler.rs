//! Follows changes of the hub, and plans the placements that they touch.
//!
//! A change of one cluster costs one verdict per placement, and a plain placement changes only the decision objects of
//! the clusters that moved. Everything else is planned anew as a whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use jiff::Timestamp;
use kube::ResourceExt;
use writ_api::cluster::{
    AddOnPlacementScore, ManagedCluster, ManagedClusterSet, ManagedClusterSetBinding, Placement,
    PlacementDecision,
    managed_cluster::TaintEffect,
    placement::{DecisionGroupStatus, PlacementSpec, SCHEDULING_DISABLE_ANNOTATION, SortBy},
};
use writ_controller::Name;

use super::{
    cluster_view::{self, ClusterView},
    decision_objects::DecisionObjects,
    decisions_index::{DecisionsIndex, owner_of, placement_of},
    memory::PlacementMemory,
    model::{NoCandidates, Planned, Schedule, Surroundings, Verdict},
    observe::{Observed, replace},
    plan::{self, Compiled, decision_name},
};

/// What was observed, what was planned, and which placements have to be planned again.
pub struct Scheduler {
    observed: Observed,
    memory: BTreeMap<Name, PlacementMemory>,
    chosen: DecisionsIndex,
    dirty: BTreeSet<Name>,
}

impl Scheduler {
    /// Nothing is observed yet. `guard_default_key` is the hub's option of that name.
    pub fn new(guard_default_key: bool) -> Self {
        Self {
            observed: Observed::new(guard_default_key),
            memory: BTreeMap::new(),
            chosen: DecisionsIndex::default(),
            dirty: BTreeSet::new(),
        }
    }

    /// The placements that have to be planned again since the last call.
    pub fn take_dirty(&mut self) -> BTreeSet<Name> {
        std::mem::take(&mut self.dirty)
    }

    /// Takes in a cluster that came, changed or went.
    pub fn take_cluster(&mut self, name: &str, new: Option<&Arc<ManagedCluster>>) {
        let now = Timestamp::now();
        let old = self.observed.take_cluster(name, new);
        let sets: BTreeSet<&str> = self.observed.membership.sets_of(name).collect();
        let view = self.observed.clusters.get(name);
        for (key, memory) in &mut self.memory {
            let Ok(compiled) = &memory.compiled else { continue };
            let is_candidate = memory.sets.iter().any(|set| sets.contains(set.as_str()));
            let verdict = view
                .filter(|_| is_candidate)
                .and_then(|view| memory.judge(view, self.chosen.has(key, name), &self.observed.scores, now));
            let known = memory.verdicts.get(name);
            let matters = known != verdict.as_ref()
                || verdict.as_ref().is_some_and(|v| v.refusal.is_none())
                    && old
                        .as_ref()
                        .zip(view)
                        .is_none_or(|(old, new)| compiled.tells_apart(old, new));
            if matters {
                memory.record(name, verdict);
                self.dirty.insert(key.clone());
            }
        }
    }

    /// Takes in a set. Its status changes with every member; only what decides about members matters here, and only
    /// where the set is bound.
    pub fn take_set(&mut self, name: &str, new: Option<&Arc<ManagedClusterSet>>) {
        if !self.observed.take_set(name, new) {
            return;
        }
        let bound: BTreeSet<Arc<str>> = self
            .observed
            .bindings
            .iter()
            .filter(|(_, binding)| binding.spec.cluster_set == name)
            .map(|(binding, _)| binding.namespace.clone())
            .collect();
        self.forget_where(|spec, namespace| {
            bound.contains(namespace)
                && (spec.cluster_sets.is_empty() || spec.cluster_sets.iter().any(|set| set == name))
        });
    }

    /// Takes in a binding of a set to a namespace.
    pub fn take_binding(&mut self, name: &Name, new: Option<&Arc<ManagedClusterSetBinding>>) {
        let old = replace(&mut self.observed.bindings, name, new);
        if old.as_ref().map(|b| &b.spec) != new.map(|b| &b.spec) {
            self.forget_where(|_, namespace| *namespace == name.namespace);
        }
    }

    /// Takes in a placement.
    pub fn take_placement(&mut self, name: &Name, new: Option<&Arc<Placement>>) {
        let old = replace(&mut self.observed.placements, name, new);
        let unchanged = old
            .zip(new)
            .is_some_and(|(old, new)| old.spec == new.spec && old.annotations() == new.annotations());
        if !unchanged {
            self.memory.remove(name);
        }
        if new.is_none() {
            self.chosen.replace(name, &BTreeSet::new());
        }
        self.dirty.insert(name.clone());
    }

    /// Takes in a decision.
    pub fn take_decision(&mut self, name: &Name, new: Option<&Arc<PlacementDecision>>) {
        let old = replace(&mut self.observed.decisions, name, new);
        let (old, new) = (old.as_deref(), new.map(|decision| &**decision));
        // The owner too: its decision may have lost the label before it was ever observed.
        let touched: BTreeSet<Name> = old
            .into_iter()
            .chain(new)
            .flat_map(|decision| [placement_of(decision), owner_of(decision)])
            .flatten()
            .collect();
        for placement in touched {
            match self.memory.get_mut(&placement) {
                // Our own write.
                Some(memory) if memory.is_as_planned(&placement, name, new) => continue,
                Some(memory) => memory.layout = None,
                None => self.chosen.follow(&placement, old, new),
            }
            self.dirty.insert(placement);
        }
    }

    /// Takes in a score. It changes the rank of its cluster, and the verdict where an expression uses scores.
    pub fn take_score(&mut self, name: &Name, new: Option<&Arc<AddOnPlacementScore>>) {
        let now = Timestamp::now();
        replace(&mut self.observed.scores, name, new);
        let (cluster, resource) = (&*name.namespace, &*name.name);
        for (key, memory) in &mut self.memory {
            let Ok(compiled) = &memory.compiled else { continue };
            let Some(known) = memory.verdicts.get(cluster) else {
                continue;
            };
            if compiled.weighs(resource) {
                self.dirty.insert(key.clone());
            }
            let view = self.observed.clusters.get(cluster);
            let view = view.filter(|_| compiled.asks_for_scores());
            let chosen = self.chosen.has(key, cluster);
            let verdict = view.and_then(|view| memory.judge(view, chosen, &self.observed.scores, now));
            if verdict.as_ref().is_some_and(|verdict| verdict != known) {
                memory.record(cluster, verdict);
                self.dirty.insert(key.clone());
            }
        }
    }

    fn forget_where(&mut self, is_touched: impl Fn(&PlacementSpec, &Arc<str>) -> bool) {
        for (name, placement) in &self.observed.placements {
            if is_touched(&placement.spec, &name.namespace) {
                self.memory.remove(name);
                self.dirty.insert(name.clone());
            }
        }
    }

    /// Makes the next plan of a placement a full one: its last plan may not have been written.
    pub fn forget_layout(&mut self, name: &Name) {
        if let Some(memory) = self.memory.get_mut(name) {
            memory.layout = None;
        }
    }

    /// Plans a placement; `None` if there is none, or if it is not scheduled here.
    pub fn schedule(&mut self, name: &Name, now: Timestamp) -> Option<Schedule> {
        let placement = self.observed.placements.get(name)?.clone();
        let decisions: Vec<_> = self.observed.decisions_of(name).cloned().collect();
        let disabled = placement
            .annotations()
            .get(SCHEDULING_DISABLE_ANNOTATION)
            .is_some_and(|v| v == "true");
        if disabled || placement.metadata.deletion_timestamp.is_some() {
            // Decisions of another scheduler are weighed by other placements.
            let stored = plan::locations(&name.name, decisions.iter().map(|d| &**d));
            self.chosen.replace(name, &stored.into_keys().collect());
            return None;
        }
        let (planned, until) = self.plan(name, &placement, &decisions, now)?;
        Some(Schedule {
            placement,
            decisions,
            planned,
            until,
        })
    }

    fn plan(
        &mut self,
        name: &Name,
        placement: &Placement,
        decisions: &[Arc<PlacementDecision>],
        now: Timestamp,
    ) -> Option<(Planned, Option<Duration>)> {
        if name.name.len() > 63 {
            let why = "metadata.name: it has more than 63 characters".into();
            return Some((Planned::Misconfigured(why), None));
        }
        let bound = self.observed.bound_sets(&name.namespace);
        let asked = &placement.spec.cluster_sets;
        let sets: BTreeSet<String> = bound
            .iter()
            .filter(|set| asked.is_empty() || asked.contains(*set))
            .cloned()
            .collect();
        self.refresh_timed(name, now);
        if let Some(changed) = self.plan_changes(name, asked, &bound, &sets) {
            return Some(changed);
        }
        let before = plan::locations(&name.name, decisions.iter().map(|d| &**d));
        if !self.memory.contains_key(name) {
            self.chosen.replace(name, &before.keys().cloned().collect());
            let memory = self.judge_all(name, placement, &sets, now);
            self.memory.insert(name.clone(), memory);
        }
        let memory = self.memory.get(name)?;
        let compiled = match &memory.compiled {
            Ok(compiled) => compiled,
            Err(why) => return Some((Planned::Misconfigured(why.clone()), None)),
        };
        let observed = &self.observed;
        let candidates: Vec<(&ClusterView, &Verdict)> = memory
            .verdicts
            .iter()
            .filter_map(|(cluster, verdict)| Some((observed.clusters.get(cluster)?, verdict)))
            .collect();
        let outcome = compiled.schedule(
            &candidates,
            &Surroundings {
                before: &before,
                chosen_elsewhere: &|cluster| self.chosen.chosen_elsewhere(name, cluster),
                add_on_score: &|cluster, resource, score| {
                    observed.add_on_score(cluster, resource, score, now)
                },
            },
        );
        let none = NoCandidates::of(&bound, asked, &sets, candidates.len());
        let conditions = compiled.conditions(outcome.selected, outcome.feasible, none.as_ref());
        let is_plain = compiled.is_plain() && placement.spec.sort_by != Some(SortBy::Score);
        // A score that is weighed counts until it expires.
        let resources: BTreeSet<&str> = compiled.add_ons().collect();
        let score_ends = candidates.iter().flat_map(|(cluster, _)| {
            let objects = resources
                .iter()
                .filter_map(|resource| observed.scores.get(&Name::new(cluster.name.as_str(), *resource)));
            objects.filter_map(|object| cluster_view::remaining(object, now).filter(|left| !left.is_zero()))
        });
        let until = memory.first_end().into_iter().chain(score_ends).min();
        let chosen: BTreeSet<String> = outcome
            .objects
            .iter()
            .flat_map(|o| o.clusters.iter().cloned())
            .collect();
        self.record_choice(name, &chosen, now);
        if let Some(memory) = self.memory.get_mut(name) {
            memory.moved.clear();
            memory.layout = is_plain.then(|| DecisionObjects::of(&outcome.objects));
        }
        Some((Planned::Scheduled(outcome, conditions), until))
    }

    /// Plans a plain placement of which only some clusters changed; `None` if all of it has to be planned.
    fn plan_changes(
        &mut self,
        name: &Name,
        asked: &[String],
        bound: &BTreeSet<String>,
        sets: &BTreeSet<String>,
    ) -> Option<(Planned, Option<Duration>)> {
        let memory = self.memory.get_mut(name)?;
        let compiled = memory.compiled.as_ref().ok()?;
        let mut layout = memory.layout.take()?;
        let mut touched = BTreeSet::new();
        for cluster in std::mem::take(&mut memory.moved) {
            let wanted = memory.verdicts.get(&cluster).is_some_and(|v| v.refusal.is_none());
            if wanted == layout.contains(&cluster) {
                continue;
            }
            touched.insert(layout.change(&cluster, wanted)?);
            self.chosen.set(name, &cluster, wanted);
        }
        let none = NoCandidates::of(bound, asked, sets, memory.verdicts.len());
        let changed = Planned::Changed {
            objects: touched.iter().filter_map(|slot| layout.object(*slot)).collect(),
            gone: touched
                .iter()
                .filter(|slot| !layout.has(**slot))
                .map(|slot| decision_name(&name.name, *slot))
                .collect(),
            group: DecisionGroupStatus {
                decisions: layout
                    .slots()
                    .map(|slot| decision_name(&name.name, slot))
                    .collect(),
                cluster_count: i32::try_from(layout.len()).unwrap_or(i32::MAX),
                ..DecisionGroupStatus::default()
            },
            conditions: compiled.conditions(layout.len(), layout.len(), none.as_ref()),
        };
        memory.layout = Some(layout);
        Some((changed, memory.first_end()))
    }

    fn judge_all(
        &self,
        name: &Name,
        placement: &Placement,
        sets: &BTreeSet<String>,
        now: Timestamp,
    ) -> PlacementMemory {
        let observed = &self.observed;
        let members: BTreeSet<&String> = sets
            .iter()
            .filter_map(|set| observed.membership.members(set))
            .flatten()
            .collect();
        let mut memory = PlacementMemory::new(Compiled::of(&placement.spec), sets.clone());
        for cluster in members {
            let chosen = self.chosen.has(name, cluster);
            let view = observed.clusters.get(cluster);
            let verdict = view.and_then(|view| memory.judge(view, chosen, &observed.scores, now));
            if verdict.is_some() {
                memory.record(cluster, verdict);
            }
        }
        memory
    }

    /// Judges the clusters again whose verdict ends at some time.
    fn refresh_timed(&mut self, name: &Name, now: Timestamp) {
        let Some(memory) = self.memory.get_mut(name) else {
            return;
        };
        for cluster in memory.timed() {
            let view = self.observed.clusters.get(&cluster);
            let chosen = self.chosen.has(name, &cluster);
            let verdict = view.and_then(|view| memory.judge(view, chosen, &self.observed.scores, now));
            if verdict.is_some() {
                memory.record(&cluster, verdict);
            }
        }
    }

    /// Records the choice. A taint with the effect `NoSelectIfNew` depends on it: clusters that came or went are judged
    /// again.
    fn record_choice(&mut self, name: &Name, chosen: &BTreeSet<String>, now: Timestamp) {
        let moved = self.chosen.replace(name, chosen);
        let Some(memory) = self.memory.get_mut(name) else {
            return;
        };
        for cluster in moved {
            let minds_newcomers = |view: &&ClusterView| {
                let mut taints = view.taints.iter();
                taints.any(|taint| taint.effect == TaintEffect::NoSelectIfNew)
            };
            let view = self.observed.clusters.get(&cluster).filter(minds_newcomers);
            if let Some(view) = view.filter(|_| memory.verdicts.contains_key(&cluster)) {
                let verdict = memory.judge(view, chosen.contains(&cluster), &self.observed.scores, now);
                memory.record(&cluster, verdict);
            }
        }
    }
}

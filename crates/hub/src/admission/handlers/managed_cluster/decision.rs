//! Pure: decisions about ManagedClusters. Names, acceptance, taints, and every label that moves a cluster between sets.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use kube::ResourceExt;
use writ_api::cluster::{
    CLUSTER_SET_LABEL, DEFAULT_SET, ManagedCluster, ManagedClusterSet,
    managed_cluster::{TAINT_UNAVAILABLE, TAINT_UNREACHABLE, Taint},
};

use writ_process::admission::{Decision, Requirement};

use crate::{
    admission::requirement,
    agent_identity::{Requester, acts_as_agent},
    cluster_set::membership::{JOINED_ANNOTATION, Labels, Selection, format_pairs, is_guarded, parse_pairs},
    names::{is_namespace_name, is_subdomain, reserved},
    options::Guards,
};

/// Annotations that take the right to accept the cluster.
pub const ACCEPT_ANNOTATIONS: [&str; 5] = [
    crate::registration::AGENT_USER_ANNOTATION,
    crate::registration::ACCEPT_CSR_ANNOTATION,
    crate::registration::FORCE_ANNOTATION,
    crate::registration::ISSUED_ANNOTATION,
    crate::registration::TAKEN_OVER_ANNOTATION,
];
/// The annotations that an agent may write on its own cluster.
const AGENT_ANNOTATION_PREFIX: &str = "agent.open-cluster-management.io/";

/// A change of one ManagedCluster: a creation without `old`, a deletion without `new`.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The requester.
    pub user: &'a Requester,
    /// The stored object.
    pub old: Option<&'a ManagedCluster>,
    /// The object after mutation.
    pub new: Option<&'a ManagedCluster>,
}

/// What was read from the hub for this decision.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    /// The sets that [`sets_to_read`] names, or all sets where [`needs_every_set`] says so, read live.
    pub sets: Vec<ManagedClusterSet>,
    /// Whether the namespace of the cluster is being deleted.
    pub namespace_terminating: bool,
    /// Whether a namespace of that name exists that was not made for the cluster.
    pub namespace_is_foreign: bool,
}

/// The sets that the changed labels may name. They are read live: a cache could miss a set that was just created.
pub fn sets_to_read(change: &Change) -> BTreeSet<String> {
    let (old, new) = (labels(change.old), labels(change.new));
    changed_keys(old, new)
        .into_iter()
        .flat_map(|key| [old.get(key), new.get(key)])
        .flatten()
        .filter(|value| is_subdomain(value))
        .cloned()
        .collect()
}

/// Whether the decision needs all sets: an agent may write labels under known keys only, and which sets with a selector
/// match is known only by evaluating each.
pub fn needs_every_set(change: &Change, guards: &Guards) -> bool {
    let moved = !changed_keys(labels(change.old), labels(change.new)).is_empty();
    let name = change.new.or(change.old).map(ResourceExt::name_any);
    let by_agent = name.is_some_and(|name| acts_as_agent(change.user, &name).is_some());
    moved && (guards.selector_sets || by_agent)
}

/// Completes a cluster before it is stored; the error says why it cannot be.
pub fn mutate(
    old: Option<&ManagedCluster>,
    new: &mut ManagedCluster,
    sets: &[ManagedClusterSet],
    guards: &Guards,
    now: Timestamp,
) -> Result<(), String> {
    let known = old.map(|o| o.spec.taints.as_slice());
    stamp_taints(known, &mut new.spec.taints, now)?;
    if guards.default_set {
        let set = new.labels_mut().entry(CLUSTER_SET_LABEL.into()).or_default();
        if set.is_empty() {
            DEFAULT_SET.clone_into(set);
        }
    }
    let joined = joined_sets(old, new, sets, guards);
    if joined.is_empty() {
        new.annotations_mut().remove(JOINED_ANNOTATION);
    } else {
        new.annotations_mut()
            .insert(JOINED_ANNOTATION.into(), format_pairs(&joined));
    }
    Ok(())
}

/// Decides about a change, after mutation.
pub fn decide(change: &Change, observed: &Observed, guards: &Guards) -> Decision {
    let Some(cluster) = change.new.or(change.old) else {
        return Decision::invalid("the request holds no ManagedCluster");
    };
    let name = cluster.name_any();
    if let Some(new) = change.new
        && let Err(message) = check_object(&name, new)
    {
        return Decision::invalid(message);
    }
    if (change.old.is_none() || (accepts(change.new) && !accepts(change.old)))
        && change.new.is_some()
        && let Some(why) = reserved(&name)
    {
        return Decision::invalid(format!(
            "the name {name:?} cannot be the name of a cluster: {why}"
        ));
    }
    if let Some(identity) = acts_as_agent(change.user, &name)
        && let Err(message) = check_agent(identity, &name, change, &observed.sets)
    {
        return Decision::forbidden(format!("user {:?} {message}", change.user.name));
    }
    if let Some(new) = change.new {
        let stamped = new.annotations().get(JOINED_ANNOTATION).map(|a| parse_pairs(a));
        let expected = joined_sets(change.old, new, &observed.sets, guards);
        if stamped.is_some_and(|s| s.iter().any(|(key, uid)| expected.get(key) != Some(uid))) {
            return Decision::forbidden(format!(
                "the annotation {JOINED_ANNOTATION} is kept by the hub; a set changed at the same moment, try again"
            ));
        }
    }
    let (mut requirements, mut warnings) = (Vec::new(), Vec::new());
    if accepts(change.new) && !accepts(change.old) {
        if observed.namespace_is_foreign {
            warnings.push(format!(
                "a namespace {name:?} exists that was not made for this cluster: the agent of the cluster gets rights in it"
            ));
        }
        if observed.namespace_terminating {
            return Decision::forbidden(format!(
                "the namespace {name:?} is still being deleted; accept the cluster when it is gone"
            ));
        }
        requirements.push(accept_requirement(change.user, &name));
    } else if change.new.is_some() && accept_annotations_change(change) {
        requirements.push(Requirement::one(
            requirement::accept(&name),
            format!(
                "user {:?} cannot change the annotations {}: that needs update on managedclusters/accept",
                change.user.name,
                ACCEPT_ANNOTATIONS.join(", ")
            ),
        ));
    }
    if system_taints(change.old) != system_taints(change.new) && change.new.is_some() {
        requirements.push(Requirement::one(
            requirement::system_taints(&name),
            format!(
                "user {:?} cannot change the taints {TAINT_UNAVAILABLE} and {TAINT_UNREACHABLE}: the hub keeps them",
                change.user.name
            ),
        ));
    }
    for set in sets_left_and_entered(change, &observed.sets, guards) {
        let refusal = format!(
            "user {:?} cannot add/remove a ManagedCluster to/from ManagedClusterSet {set:?}",
            change.user.name
        );
        requirements.push(Requirement::one(requirement::join(&set), refusal));
    }
    Decision::Allow {
        requirements,
        warnings,
        patch: None,
    }
}

/// The sets that the cluster leaves or enters, as far as `join` is required.
fn sets_left_and_entered(change: &Change, sets: &[ManagedClusterSet], guards: &Guards) -> BTreeSet<String> {
    let (old, new) = (labels(change.old), labels(change.new));
    let mut touched = BTreeSet::new();
    for key in changed_keys(old, new) {
        let values = [old.get(key), new.get(key)]
            .into_iter()
            .flatten()
            .filter(|v| !v.is_empty());
        if key == CLUSTER_SET_LABEL {
            // OCM requires it on create and update, whether or not the set exists, and never on delete.
            if change.new.is_some() || guards.default_key {
                touched.extend(values.cloned());
            }
            continue;
        }
        touched.extend(
            values
                .filter(|value| find(sets, value).is_some_and(|set| set.spec.key() == Some(key)))
                .cloned(),
        );
    }
    if guards.selector_sets {
        for set in sets {
            let selection = Selection::of(set);
            if matches!(selection, Selection::Selector(_))
                && !selection.is_everything()
                && (change.old.is_some() && selection.matches(old))
                    != (change.new.is_some() && selection.matches(new))
            {
                touched.insert(set.name_any());
            }
        }
    }
    touched
}

/// The sets that the cluster is confirmed in: those confirmed before whose label stays, and those whose label this change
/// sets, as admission requires `join` for it.
fn joined_sets(
    old: Option<&ManagedCluster>,
    new: &ManagedCluster,
    sets: &[ManagedClusterSet],
    guards: &Guards,
) -> BTreeMap<String, String> {
    let before = old
        .and_then(|o| o.annotations().get(JOINED_ANNOTATION))
        .map(|a| parse_pairs(a))
        .unwrap_or_default();
    let (was, is) = (labels(old), new.labels());
    let changed: BTreeSet<&str> = changed_keys(was, is);
    let kept = before
        .into_iter()
        .filter(|(key, _)| is.contains_key(key) && !changed.contains(key.as_str()));
    let gained = changed.iter().filter_map(|key| {
        let set = find(sets, is.get(*key)?)?;
        (set.spec.key() == Some(key) && is_guarded(key, guards.default_key))
            .then(|| ((*key).to_owned(), set.uid().unwrap_or_default()))
    });
    kept.chain(gained).collect()
}

/// What an agent may change on its own cluster; everything else is refused, whatever its roles allow.
fn check_agent(
    identity: &str,
    name: &str,
    change: &Change,
    sets: &[ManagedClusterSet],
) -> Result<(), String> {
    if identity != name {
        return Err(format!(
            "is the agent of cluster {identity:?} and may not change cluster {name:?}"
        ));
    }
    let (Some(old), Some(new)) = (change.old, change.new) else {
        return Err("is an agent and may neither create nor delete its cluster".into());
    };
    if !old.spec.hub_accepts_client {
        return Err("is the agent of a cluster that is not accepted and may change nothing".into());
    }
    for key in changed_keys(old.labels(), new.labels()) {
        let known = key == CLUSTER_SET_LABEL || sets.iter().any(|set| set.spec.key() == Some(key));
        if !known {
            return Err(format!(
                "is an agent and may not change the label {key:?}: it is the exclusive key of no set"
            ));
        }
        if let Some(value) = new.labels().get(key)
            && key != CLUSTER_SET_LABEL
            && find(sets, value).is_none_or(|set| set.spec.key() != Some(key))
        {
            return Err(format!(
                "is an agent and may not set the label {key:?} to {value:?}: there is no such set"
            ));
        }
    }
    let foreign = changed_keys(old.annotations(), new.annotations())
        .into_iter()
        .find(|key| *key != JOINED_ANNOTATION && !key.starts_with(AGENT_ANNOTATION_PREFIX));
    if let Some(key) = foreign {
        return Err(format!("is an agent and may not change the annotation {key:?}"));
    }
    let mut spec = new.spec.clone();
    spec.managed_cluster_client_configs
        .clone_from(&old.spec.managed_cluster_client_configs);
    if spec != old.spec {
        return Err("is an agent and may change nothing in spec but managedClusterClientConfigs".into());
    }
    if new.metadata.finalizers != old.metadata.finalizers
        || new.metadata.owner_references != old.metadata.owner_references
    {
        return Err("is an agent and may not change finalizers or owners".into());
    }
    Ok(())
}

fn check_object(name: &str, cluster: &ManagedCluster) -> Result<(), String> {
    if !is_namespace_name(name) {
        return Err(format!(
            "the name {name:?} cannot be the name of a namespace: use at most 63 lower case letters, digits and '-'"
        ));
    }
    for (index, config) in cluster.spec.managed_cluster_client_configs.iter().enumerate() {
        let host = config
            .url
            .strip_prefix("https://")
            .filter(|host| !host.is_empty());
        if host.is_none() {
            return Err(format!(
                "spec.managedClusterClientConfigs[{index}].url: {:?} is not an address with scheme https",
                config.url
            ));
        }
    }
    Ok(())
}

/// Sets the time of new and changed taints, and refuses times set by the requester.
fn stamp_taints(known: Option<&[Taint]>, taints: &mut [Taint], now: Timestamp) -> Result<(), String> {
    let mut made_up = Vec::new();
    for taint in taints {
        // Several taints may share a key, with different values and effects.
        let same: Vec<_> = known
            .unwrap_or_default()
            .iter()
            .filter(|old| old.key == taint.key && old.value == taint.value && old.effect == taint.effect)
            .map(|old| &old.time_added)
            .collect();
        match same.first() {
            // A taint applied from a file has no time: the stored one is kept.
            Some(before) if taint.time_added.is_none() => taint.time_added.clone_from(before),
            Some(_) if same.contains(&&taint.time_added) => {}
            _ if known.is_some() && taint.time_added.is_some() => made_up.push(taint.key.clone()),
            _ => taint.time_added = Some(format!("{now:.0}")),
        }
    }
    if made_up.is_empty() {
        return Ok(());
    }
    Err(format!(
        "It is not allowed to set TimeAdded of Taint {:?}.",
        made_up.join(",")
    ))
}

fn accept_requirement(user: &Requester, cluster: &str) -> Requirement {
    Requirement::one(
        requirement::accept(cluster),
        format!("user {:?} cannot update the HubAcceptsClient field", user.name),
    )
}

fn accept_annotations_change(change: &Change) -> bool {
    let get =
        |cluster: Option<&ManagedCluster>, key: &str| cluster.and_then(|c| c.annotations().get(key).cloned());
    ACCEPT_ANNOTATIONS
        .iter()
        .any(|key| get(change.old, key) != get(change.new, key))
}

fn accepts(cluster: Option<&ManagedCluster>) -> bool {
    cluster.is_some_and(|c| c.spec.hub_accepts_client)
}

fn system_taints(cluster: Option<&ManagedCluster>) -> Vec<&Taint> {
    let taints = cluster.map(|c| c.spec.taints.as_slice()).unwrap_or_default();
    taints
        .iter()
        .filter(|t| t.key == TAINT_UNAVAILABLE || t.key == TAINT_UNREACHABLE)
        .collect()
}

fn labels(cluster: Option<&ManagedCluster>) -> &Labels {
    static NONE: Labels = Labels::new();
    cluster.map_or(&NONE, ResourceExt::labels)
}

fn changed_keys<'a>(old: &'a Labels, new: &'a Labels) -> BTreeSet<&'a str> {
    old.keys()
        .chain(new.keys())
        .filter(|key| old.get(*key) != new.get(*key))
        .map(String::as_str)
        .collect()
}

fn find<'a>(sets: &'a [ManagedClusterSet], name: &str) -> Option<&'a ManagedClusterSet> {
    sets.iter().find(|set| set.metadata.name.as_deref() == Some(name))
}

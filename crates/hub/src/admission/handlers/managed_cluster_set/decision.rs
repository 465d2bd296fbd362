//! Admission of ManagedClusterSets: who may make which set, and that no set takes clusters by surprise.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use writ_api::cluster::{
    CLUSTER_SET_LABEL, ManagedClusterSet,
    managed_cluster_set::{ClusterSelector, SelectorType},
};

use super::{
    access::{Access, Decision, Need, Requester},
    pairs::{CONFIG_MAP, NAMESPACE, Pairs},
};
use crate::{
    cluster_set::membership::{
        CONFIRMED_ANNOTATION, REMOVE_LABELS_ANNOTATION, Selection, is_guarded, removes_labels,
    },
    options::{Guards, KeyGrants},
    selector::is_label_key,
};

/// A change of one set: created without `old`, deleted without `new`.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// Who asks.
    pub user: &'a Requester,
    /// The stored object.
    pub old: Option<&'a ManagedClusterSet>,
    /// The object after mutation.
    pub new: Option<&'a ManagedClusterSet>,
}

/// What was read from the hub for this decision.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The ConfigMap of pairs, where a key is taken: absent restricts nothing, malformed is an error.
    pub pairs: Option<Result<Pairs, String>>,
    /// How many clusters the new selection chooses that the old one did not.
    pub gained: usize,
    /// How many clusters the old selection chooses that the new one does not; on delete, all of them.
    pub lost: usize,
}

/// Brings a set into the form that is stored.
///
/// A set with its own key is stored with the label selector that means the same, so that components which know
/// no keys read it correctly. `may_update_all` is whether the requester may update every cluster. `Err` says what cannot
/// be stored.
pub fn mutate(
    old: Option<&ManagedClusterSet>,
    new: &mut ManagedClusterSet,
    may_update_all: bool,
    guards: &Guards,
) -> Result<(), String> {
    let selector = &mut new.spec.cluster_selector;
    if selector.selector_type == SelectorType::LegacyClusterSetLabel {
        selector.selector_type = SelectorType::ExclusiveClusterSetLabel;
    }
    let name = new.name_any();
    if let Some(key) = new.spec.own_key().map(str::to_owned) {
        let written = &new.spec.cluster_selector;
        if written.selector_type == SelectorType::ExclusiveClusterSetLabel || written.label_selector.is_none()
        {
            // The server makes a name of generateName only later, and the label has to hold it.
            if new.metadata.name.as_deref().unwrap_or_default().is_empty() {
                return Err(format!(
                    "a set with exclusiveKey {key:?} needs a name of its own: its clusters carry the label {key}=<name>, so \
                     metadata.generateName cannot be used"
                ));
            }
            new.spec.cluster_selector = selector_of(&key, &name);
        }
    }
    let guarded = new
        .spec
        .key()
        .is_some_and(|key| is_guarded(key, guards.default_key));
    let annotation = |set: &ManagedClusterSet| set.annotations().get(CONFIRMED_ANNOTATION).cloned();
    let before = old.and_then(annotation);
    let asked = annotation(new);
    let value = match (old, guarded) {
        (_, false) => None,
        (None, true) => Some(may_update_all.to_string()),
        // A selector that becomes a key takes its clusters anew.
        (Some(old), true) if old.spec.key() != new.spec.key() => Some(may_update_all.to_string()),
        (Some(_), true) if asked != before && may_update_all => {
            Some((asked.as_deref() == Some("true")).to_string())
        }
        // A set with the default key that was made before that was guarded keeps its members.
        (Some(_), true) if new.spec.key() == Some(CLUSTER_SET_LABEL) => before,
        (Some(_), true) => Some(before.unwrap_or_else(|| "false".into())),
    };
    match value {
        Some(value) => {
            new.annotations_mut().insert(CONFIRMED_ANNOTATION.into(), value);
        }
        None => {
            new.annotations_mut().remove(CONFIRMED_ANNOTATION);
        }
    }
    Ok(())
}

/// Decides about a change, after mutation.
pub fn decide(change: &Change, observed: &Observed, guards: &Guards) -> Decision {
    match (change.old, change.new) {
        (None, Some(new)) => decide_create(change.user, new, observed, guards),
        (Some(old), Some(new)) => decide_update(change.user, old, new, observed, guards),
        (Some(old), None) => decide_delete(change.user, old, observed, guards),
        (None, None) => Decision::invalid("the request holds no ManagedClusterSet"),
    }
}

fn decide_create(
    user: &Requester,
    set: &ManagedClusterSet,
    observed: &Observed,
    guards: &Guards,
) -> Decision {
    let name = set.name_any();
    if let Err(message) = check_object(set) {
        return Decision::invalid(message);
    }
    let mut needs = match take_key(user, set, observed, guards) {
        Ok(need) => Vec::from_iter(need),
        Err(message) => return Decision::forbidden(message),
    };
    // Upstream's rights are enough for a set with the default key.
    if !needs.is_empty() || set.spec.key().is_none() {
        needs.extend(surprise(user, &name, observed.gained));
    }
    needs.extend(removal(user, None, set));
    Decision::needs(needs)
}

/// What it takes that a set has the key that it has: nothing for a selector, and nothing but a place in the ConfigMap
/// for a key that is not guarded.
fn take_key(
    user: &Requester,
    set: &ManagedClusterSet,
    observed: &Observed,
    guards: &Guards,
) -> Result<Option<Need>, String> {
    let (name, key) = (set.name_any(), set.spec.key());
    match &observed.pairs {
        Some(Err(message)) => {
            return Err(format!(
                "the ConfigMap {NAMESPACE}/{CONFIG_MAP} cannot be read, so no set can be created: {message}"
            ));
        }
        Some(Ok(pairs)) if !pairs.allow(key, &name) => {
            return Err(format!(
                "the pair of exclusiveKey {:?} and name {name:?} is not in the ConfigMap {NAMESPACE}/{CONFIG_MAP}",
                key.unwrap_or_default()
            ));
        }
        _ => {}
    }
    let Some(key) = key.filter(|key| is_guarded(key, guards.default_key)) else {
        return Ok(None);
    };
    let pair = Access::exclusive_key(&format!("{key}:{name}"));
    let (any_of, names) = match guards.key_grants {
        KeyGrants::Any => (
            vec![Access::exclusive_key(key), pair],
            format!("{key:?} or \"{key}:{name}\""),
        ),
        KeyGrants::Pair => (vec![pair], format!("\"{key}:{name}\"")),
    };
    Ok(Some(Need {
        any_of,
        refusal: format!(
            "user {:?} cannot create a ManagedClusterSet {name:?} with exclusiveKey {key:?}: it takes create on \
             managedclustersets/exclusiveKey with the name {names}",
            user.name,
        ),
    }))
}

/// Where the hub takes the labels off a set that goes, it moves the clusters with its own rights. Whoever asks for
/// that needs the right to, even if somebody else deletes the set.
fn removal(user: &Requester, old: Option<&ManagedClusterSet>, new: &ManagedClusterSet) -> Option<Need> {
    let name = new.name_any();
    (removes_labels(new) && !old.is_some_and(removes_labels)).then(|| {
        Need::one(
            Access::join(&name),
            format!(
                "user {:?} cannot have the label of the ManagedClusterSet {name:?} removed when it is deleted: it takes \
                 create on managedclustersets/join",
                user.name
            ),
        )
    })
}

fn decide_update(
    user: &Requester,
    old: &ManagedClusterSet,
    new: &ManagedClusterSet,
    observed: &Observed,
    guards: &Guards,
) -> Decision {
    let mut needs = Vec::from_iter(removal(user, Some(old), new));
    let key = |set: &ManagedClusterSet| set.spec.exclusive_key.clone().unwrap_or_default();
    if key(old) != key(new) {
        return Decision::invalid(
            "spec.exclusiveKey cannot be changed, added or removed; create another set",
        );
    }
    // A set with its own key selects by the key whatever its selector says, but upstream's components read that:
    // a selector that was written anew is looked at, too.
    if Selection::of(old) == Selection::of(new)
        && old.spec.cluster_label == new.spec.cluster_label
        && old.spec.cluster_selector == new.spec.cluster_selector
    {
        return Decision::needs(needs);
    }
    if let Err(message) = check_object(new) {
        return Decision::invalid(message);
    }
    // A selector that becomes the default label, or the other way round, is one set that goes and another that comes.
    if old.spec.key() != new.spec.key() {
        match take_key(user, new, observed, guards) {
            Ok(need) => needs.extend(need),
            Err(message) => return Decision::forbidden(message),
        }
        needs.extend(leave(user, old, observed, guards));
    }
    needs.extend(surprise(user, &new.name_any(), observed.gained));
    Decision::needs(needs)
}

/// What it takes that a set with a guarded key loses members other than by their labels.
fn leave(user: &Requester, set: &ManagedClusterSet, observed: &Observed, guards: &Guards) -> Option<Need> {
    let key = set.spec.key().filter(|_| observed.lost > 0)?;
    let name = set.name_any();
    (removes_labels(set) || is_guarded(key, guards.default_key)).then(|| {
        Need::one(
            Access::join(&name),
            format!(
                "user {:?} cannot delete the ManagedClusterSet {name:?} or make it another: it has {} members, and to \
                 remove them takes create on managedclustersets/join",
                user.name, observed.lost
            ),
        )
    })
}

fn decide_delete(
    user: &Requester,
    set: &ManagedClusterSet,
    observed: &Observed,
    guards: &Guards,
) -> Decision {
    let name = set.name_any();
    let Some(key) = set.spec.key().filter(|_| observed.lost > 0) else {
        return Decision::ALLOW;
    };
    let warnings = if removes_labels(set) {
        Vec::new()
    } else {
        vec![format!(
            "{} clusters keep the label {key}={name}; annotate the set with {REMOVE_LABELS_ANNOTATION}=true before \
             deleting it to have the label removed",
            observed.lost
        )]
    };
    Decision::AllowIf {
        needs: Vec::from_iter(leave(user, set, observed, guards)),
        warnings,
    }
}

fn surprise(user: &Requester, name: &str, gained: usize) -> Option<Need> {
    (gained > 0).then(|| {
        Need::one(
            Access::update_all_clusters(),
            format!(
                "user {:?} cannot put {gained} existing clusters into the ManagedClusterSet {name:?}: it takes update on \
                 all managedclusters, or a set that matches no cluster yet",
                user.name
            ),
        )
    })
}

/// What is wrong with a set, whoever writes it.
pub fn check_object(set: &ManagedClusterSet) -> Result<(), String> {
    let name = set.name_any();
    if name.len() > 63 {
        return Err(format!(
            "the name has {} characters: it is the value of labels, which have at most 63",
            name.len()
        ));
    }
    if let Some(key) = set.spec.key() {
        if !is_label_key(key) {
            return Err(format!("spec.exclusiveKey: {key:?} cannot be the key of a label"));
        }
        if let Some(label) = &set.spec.cluster_label
            && (label.key != key || label.value != name)
        {
            return Err(format!(
                "spec.clusterLabel must be {key}={name}, the exclusive key and the name of the set, or be left out"
            ));
        }
        if set.spec.own_key().is_some() && set.spec.cluster_selector != selector_of(key, &name) {
            return Err(format!(
                "spec.clusterSelector must be left out or select exactly {key}={name} beside an exclusiveKey"
            ));
        }
        if set.spec.own_key().is_none()
            && set.spec.cluster_selector.selector_type == SelectorType::LabelSelector
        {
            return Err(
                "spec.clusterSelector must not be a LabelSelector beside the default exclusiveKey".into(),
            );
        }
    } else if set.spec.cluster_label.is_some() {
        return Err("spec.clusterLabel has no meaning beside a LabelSelector; leave it out".into());
    }
    match Selection::of(set) {
        Selection::Broken(message) => Err(format!("spec.clusterSelector.labelSelector: {message}")),
        _ => Ok(()),
    }
}

/// The form in which a set with its own key is stored.
pub fn selector_of(key: &str, name: &str) -> ClusterSelector {
    ClusterSelector {
        selector_type: SelectorType::LabelSelector,
        label_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(key.to_owned(), name.to_owned())])),
            match_expressions: None,
        }),
    }
}

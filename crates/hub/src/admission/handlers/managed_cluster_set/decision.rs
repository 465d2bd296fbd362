//! Pure: decisions about ManagedClusterSets. Who may create which set, and that no set takes clusters from others unnoticed.

use kube::ResourceExt;
use writ_api::cluster::{CLUSTER_SET_LABEL, ManagedClusterSet, managed_cluster_set::SelectorType};

use writ_process::admission::{Decision, Requirement};

use super::exclusive_keys::{CONFIG_MAP, ExclusiveKeys, NAMESPACE};
use crate::{
    admission::requirement,
    agent_identity::Requester,
    cluster_set::membership::{
        CONFIRMED_ANNOTATION, REMOVE_LABELS_ANNOTATION, Selection, is_guarded, removes_labels, selector_of,
    },
    options::{Guards, KeyGrants},
    selector::is_label_key,
};

/// A change of one set: a creation without `old`, a deletion without `new`.
#[derive(Clone, Copy, Debug)]
pub struct Change<'a> {
    /// The requester.
    pub user: &'a Requester,
    /// The stored object.
    pub old: Option<&'a ManagedClusterSet>,
    /// The object after mutation.
    pub new: Option<&'a ManagedClusterSet>,
}

/// What was read from the hub for this decision.
#[derive(Clone, Debug)]
pub struct Observed {
    /// The ConfigMap of exclusive keys, if the set takes a key: absent, it restricts nothing; malformed, it is an error.
    pub keys: Option<Result<ExclusiveKeys, String>>,
    /// How many clusters the new selection chooses that the old one did not.
    pub gained: usize,
    /// How many clusters the old selection chooses that the new one does not; on delete, all of them.
    pub lost: usize,
}

/// Brings a set into the form that is stored; the error says why it cannot be.
///
/// A set with its own key is stored with the label selector that means the same, so that components that do not know
/// exclusive keys read it correctly. `may_update_all` is whether the requester may update every cluster.
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
            // The API server generates the name only after admission, and the selector has to contain it.
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
        // A selector that becomes a key gains all of its clusters anew.
        (Some(old), true) if old.spec.key() != new.spec.key() => Some(may_update_all.to_string()),
        (Some(_), true) if asked != before && may_update_all => {
            Some((asked.as_deref() == Some("true")).to_string())
        }
        // A set with the default key that is older than the guard keeps its members.
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
    let mut requirements = match take_key(user, set, observed, guards) {
        Ok(requirement) => Vec::from_iter(requirement),
        Err(message) => return Decision::forbidden(message),
    };
    // For a set with the default key, the rights that OCM requires are enough.
    if !requirements.is_empty() || set.spec.key().is_none() {
        requirements.extend(gain_clusters(user, &name, observed.gained));
    }
    requirements.extend(remove_labels(user, None, set));
    Decision::require(requirements)
}

/// The requirement for a set to have its key: none for a selector, and only an entry in the ConfigMap for a key that is
/// not guarded.
fn take_key(
    user: &Requester,
    set: &ManagedClusterSet,
    observed: &Observed,
    guards: &Guards,
) -> Result<Option<Requirement>, String> {
    let (name, key) = (set.name_any(), set.spec.key());
    match &observed.keys {
        Some(Err(message)) => {
            return Err(format!(
                "the ConfigMap {NAMESPACE}/{CONFIG_MAP} cannot be read, so no set can be created: {message}"
            ));
        }
        Some(Ok(keys)) if !keys.allow(key, &name) => {
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
    let pair = requirement::exclusive_key(&format!("{key}:{name}"));
    let (any_of, names) = match guards.key_grants {
        KeyGrants::Any => (
            vec![requirement::exclusive_key(key), pair],
            format!("{key:?} or \"{key}:{name}\""),
        ),
        KeyGrants::Pair => (vec![pair], format!("\"{key}:{name}\"")),
    };
    Ok(Some(Requirement {
        any_of,
        refusal: format!(
            "user {:?} cannot create a ManagedClusterSet {name:?} with exclusiveKey {key:?}: that needs create \
             on managedclustersets/exclusiveKey with the name {names}",
            user.name,
        ),
    }))
}

/// The hub removes the labels of a deleted set with its own rights. So the right to move the clusters is required when
/// the removal is requested, even if another user deletes the set.
fn remove_labels(
    user: &Requester,
    old: Option<&ManagedClusterSet>,
    new: &ManagedClusterSet,
) -> Option<Requirement> {
    let name = new.name_any();
    (removes_labels(new) && !old.is_some_and(removes_labels)).then(|| {
        Requirement::one(
            requirement::join(&name),
            format!(
                "user {:?} cannot have the label of the ManagedClusterSet {name:?} removed when it is deleted: that needs \
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
    let mut requirements = Vec::from_iter(remove_labels(user, Some(old), new));
    let key = |set: &ManagedClusterSet| set.spec.exclusive_key.clone().unwrap_or_default();
    if key(old) != key(new) {
        return Decision::invalid(
            "spec.exclusiveKey cannot be changed, added or removed; create another set",
        );
    }
    // A set with its own key selects by the key, but OCM's components read its selector: that is checked as well.
    if Selection::of(old) == Selection::of(new)
        && old.spec.cluster_label == new.spec.cluster_label
        && old.spec.cluster_selector == new.spec.cluster_selector
    {
        return Decision::require(requirements);
    }
    if let Err(message) = check_object(new) {
        return Decision::invalid(message);
    }
    // A selector that becomes the default label, or the other way round, is the end of one set and the start of another.
    if old.spec.key() != new.spec.key() {
        match take_key(user, new, observed, guards) {
            Ok(requirement) => requirements.extend(requirement),
            Err(message) => return Decision::forbidden(message),
        }
        requirements.extend(lose_members(user, old, observed, guards));
    }
    requirements.extend(gain_clusters(user, &new.name_any(), observed.gained));
    Decision::require(requirements)
}

/// The requirement for a set with a guarded key to lose members whose labels do not change.
fn lose_members(
    user: &Requester,
    set: &ManagedClusterSet,
    observed: &Observed,
    guards: &Guards,
) -> Option<Requirement> {
    let key = set.spec.key().filter(|_| observed.lost > 0)?;
    let name = set.name_any();
    (removes_labels(set) || is_guarded(key, guards.default_key)).then(|| {
        Requirement::one(
            requirement::join(&name),
            format!(
                "user {:?} cannot delete the ManagedClusterSet {name:?} or make it another: it has {} members, and \
                 removing them needs create on managedclustersets/join",
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
    Decision::Allow {
        requirements: Vec::from_iter(lose_members(user, set, observed, guards)),
        warnings,
        patch: None,
    }
}

/// The requirement for a set to gain clusters that exist already.
fn gain_clusters(user: &Requester, name: &str, gained: usize) -> Option<Requirement> {
    (gained > 0).then(|| {
        Requirement::one(
            requirement::update_all_clusters(),
            format!(
                "user {:?} cannot put {gained} existing clusters into the ManagedClusterSet {name:?}: that needs update on \
                 all managedclusters, or a set that matches no cluster yet",
                user.name
            ),
        )
    })
}

/// Checks what makes a set invalid for every requester.
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

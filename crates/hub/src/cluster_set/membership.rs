//! Which clusters a set holds: one answer for admission, status and placement.

use std::collections::BTreeMap;

use kube::{
    ResourceExt,
    core::{Selector, SelectorExt},
};
use writ_api::cluster::{CLUSTER_SET_LABEL, ManagedClusterSet, managed_cluster_set::SelectorType};

use crate::selector;

/// On a set with a guarded key, kept by admission: `true` if somebody who may update every cluster made or
/// confirmed it. Otherwise only clusters that joined under the eyes of admission are members, unless the set has the
/// default key and was made before the hub guarded that: then there is no such annotation.
pub const CONFIRMED_ANNOTATION: &str = "writ.dev/members-confirmed";
/// On a cluster, kept by admission: the sets that it joined with permission, as `key=uid of the set`.
pub const JOINED_ANNOTATION: &str = "writ.dev/joined-sets";
/// On a set, with value `true`: when the set is deleted, take its label off the clusters.
pub const REMOVE_LABELS_ANNOTATION: &str = "writ.dev/remove-labels-on-delete";

/// Keeps a set that is deleted until its label is off the clusters.
pub const REMOVE_LABELS_FINALIZER: &str = "writ.dev/remove-labels";

/// Whether the hub takes the label of this set off the clusters when it is deleted: it was asked to, or has begun.
pub fn removes_labels(set: &ManagedClusterSet) -> bool {
    set.annotations()
        .get(REMOVE_LABELS_ANNOTATION)
        .is_some_and(|v| v == "true")
        || set.finalizers().iter().any(|f| f == REMOVE_LABELS_FINALIZER)
}

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// How a set chooses clusters.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// By one label, which no two sets with the same key can share.
    Label {
        /// The key.
        key: String,
        /// The value: the name of the set.
        value: String,
    },
    /// By a selector that somebody wrote.
    Selector(Selector),
    /// It chooses nothing, as a label selector that is absent.
    Nothing,
    /// It cannot be understood; it chooses nothing until it is mended.
    Broken(String),
}

impl Selection {
    /// How this set chooses.
    pub fn of(set: &ManagedClusterSet) -> Self {
        if let Some(key) = set.spec.key() {
            return Self::Label {
                key: key.to_owned(),
                value: set.name_any(),
            };
        }
        debug_assert_eq!(
            set.spec.cluster_selector.selector_type,
            SelectorType::LabelSelector
        );
        let Some(selector) = &set.spec.cluster_selector.label_selector else {
            return Self::Nothing;
        };
        match selector::compile(selector) {
            Ok(selector) => Self::Selector(selector),
            Err(message) => Self::Broken(message),
        }
    }

    /// Whether a cluster with these labels is chosen.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Label { key, value } => labels.get(key) == Some(value),
            Self::Selector(selector) => selector.matches(labels),
            Self::Nothing | Self::Broken(_) => false,
        }
    }

    /// Whether every cluster is chosen.
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::Selector(selector) if selector.selects_all())
    }
}

/// A set, reduced to what decides about members.
#[derive(Clone, Debug, PartialEq)]
pub struct SetView {
    /// Its name.
    pub name: String,
    /// How it chooses.
    pub selection: Selection,
    /// With a guarded key and nobody's confirmation: a cluster must have joined this very set.
    pub only_joined: Option<String>,
}

/// What a cluster is to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It is in the set.
    Member,
    /// It carries the label, but nobody with the right to join was asked: it is left out and reported.
    Unconfirmed,
    /// It is not in the set.
    Stranger,
}

impl SetView {
    /// Reduces a set. `guard_default_key` is the hub's option of that name.
    pub fn of(set: &ManagedClusterSet, guard_default_key: bool) -> Self {
        let selection = Selection::of(set);
        let confirmed = set.annotations().get(CONFIRMED_ANNOTATION).map(String::as_str);
        let unconfirmed = match &selection {
            // What was there before the hub guarded this key says nothing, and keeps its members.
            Selection::Label { key, .. } if key == CLUSTER_SET_LABEL => {
                guard_default_key && confirmed == Some("false")
            }
            Selection::Label { .. } => confirmed != Some("true"),
            _ => false,
        };
        Self {
            name: set.name_any(),
            selection,
            only_joined: unconfirmed.then(|| set.uid().unwrap_or_default()),
        }
    }

    /// What a cluster with these labels, and this value of [`JOINED_ANNOTATION`], is to the set.
    pub fn membership(&self, labels: &Labels, joined: Option<&str>) -> Membership {
        if !self.selection.matches(labels) {
            return Membership::Stranger;
        }
        match (&self.only_joined, &self.selection) {
            (Some(uid), Selection::Label { key, .. }) => {
                let stamped = joined
                    .map(parse_joined)
                    .is_some_and(|joined| joined.get(key) == Some(uid) && !uid.is_empty());
                if stamped {
                    Membership::Member
                } else {
                    Membership::Unconfirmed
                }
            }
            _ => Membership::Member,
        }
    }
}

/// Whether sets with this key ask for more than upstream does.
pub fn is_guarded(key: &str, guard_default_key: bool) -> bool {
    key != CLUSTER_SET_LABEL || guard_default_key
}

/// Reads [`JOINED_ANNOTATION`]: label key to uid of the set. What cannot be read counts as absent.
pub fn parse_joined(text: &str) -> BTreeMap<String, String> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, uid)| (key.to_owned(), uid.to_owned()))
        .collect()
}

/// Writes [`JOINED_ANNOTATION`].
pub fn format_joined(joined: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = joined.iter().map(|(key, uid)| format!("{key}={uid}")).collect();
    pairs.join(",")
}

/// Whether a label value can be the name of a set: a DNS subdomain.
pub fn can_name_a_set(value: &str) -> bool {
    !value.is_empty()
        && value.len() <= 253
        && value.split('.').all(|part| {
            let edge = |c: Option<char>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
            edge(part.chars().next())
                && edge(part.chars().next_back())
                && part
                    .chars()
                    .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        })
}

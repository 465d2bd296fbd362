//! Which clusters are members of a set: one answer for admission, status and placement.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::{
    ResourceExt,
    core::{Selector, SelectorExt},
};
use writ_api::cluster::{
    CLUSTER_SET_LABEL, ManagedClusterSet,
    managed_cluster_set::{ClusterSelector, SelectorType},
};

use crate::selector;

/// On a set with a guarded key, kept by admission: `true` if a user who may update every cluster created or confirmed the
/// set. Otherwise only clusters whose label was set through admission are members. Sets with the default key that are
/// older than the guard have no such annotation, and keep their members.
pub const CONFIRMED_ANNOTATION: &str = "writ.dev/members-confirmed";
/// On a cluster, kept by admission: the sets whose label was set by a user with the right to, as `key=uid of the set`.
pub const JOINED_ANNOTATION: &str = "writ.dev/joined-sets";
/// On a cluster, kept by this controller: the labels reported to name no set that the cluster is a member of, as
/// `key=value`. Once the last set of a key is deleted, nothing else tells that the key was one.
pub const REPORTED_LABELS_ANNOTATION: &str = "writ.dev/reported-set-labels";
/// On a set, with value `true`: when the set is deleted, the hub removes its label from the clusters.
pub const REMOVE_LABELS_ANNOTATION: &str = "writ.dev/remove-labels-on-delete";

/// Keeps a deleted set until its label is removed from the clusters.
pub const REMOVE_LABELS_FINALIZER: &str = "writ.dev/remove-labels";

/// Whether the hub removes the label of this set from the clusters when the set is deleted, or has begun to.
pub fn removes_labels(set: &ManagedClusterSet) -> bool {
    asks_to_remove_labels(set) || set.finalizers().iter().any(|f| f == REMOVE_LABELS_FINALIZER)
}

/// Whether the set has [`REMOVE_LABELS_ANNOTATION`].
pub fn asks_to_remove_labels(set: &ManagedClusterSet) -> bool {
    set.annotations()
        .get(REMOVE_LABELS_ANNOTATION)
        .is_some_and(|value| value == "true")
}

/// Labels of an object.
pub type Labels = BTreeMap<String, String>;

/// How a set selects clusters.
#[derive(Clone, Debug, PartialEq)]
pub enum Selection {
    /// By one label, which no two sets with the same key can share.
    Label {
        /// The key.
        key: String,
        /// The value: the name of the set.
        value: String,
    },
    /// By a selector.
    Selector(Selector),
    /// No cluster: the label selector is absent.
    Nothing,
    /// No cluster: the selector is invalid, for this reason.
    Broken(String),
}

impl Selection {
    /// How this set selects.
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

    /// Whether a cluster with these labels is selected.
    pub fn matches(&self, labels: &Labels) -> bool {
        match self {
            Self::Label { key, value } => labels.get(key) == Some(value),
            Self::Selector(selector) => selector.matches(labels),
            Self::Nothing | Self::Broken(_) => false,
        }
    }

    /// Whether every cluster is selected.
    pub fn is_everything(&self) -> bool {
        matches!(self, Self::Selector(selector) if selector.selects_all())
    }
}

/// A set, reduced to what decides about its members.
#[derive(Clone, Debug, PartialEq)]
pub struct SetView {
    /// Its name.
    pub name: String,
    /// How it selects.
    pub selection: Selection,
    /// The uid of a set with a guarded key that is not confirmed: only clusters that joined exactly this set are members.
    pub only_joined: Option<String>,
}

/// How a cluster relates to a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// It is a member.
    Member,
    /// It carries the label, but the label was not set through admission: it is left out and reported.
    Unconfirmed,
    /// It is not selected.
    NotMember,
}

impl SetView {
    /// Reduces a set. `guard_default_key` is the hub's option of that name.
    pub fn of(set: &ManagedClusterSet, guard_default_key: bool) -> Self {
        let selection = Selection::of(set);
        let confirmed = set.annotations().get(CONFIRMED_ANNOTATION).map(String::as_str);
        let unconfirmed = match &selection {
            // A set that is older than the guard has no annotation, and keeps its members.
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

    /// The membership of a cluster with these labels and this value of [`JOINED_ANNOTATION`].
    pub fn membership(&self, labels: &Labels, joined: Option<&str>) -> Membership {
        if !self.selection.matches(labels) {
            return Membership::NotMember;
        }
        match (&self.only_joined, &self.selection) {
            (Some(uid), Selection::Label { key, .. }) => {
                let stamped = joined
                    .map(parse_pairs)
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

/// Whether sets with this key require more rights than OCM does.
pub fn is_guarded(key: &str, guard_default_key: bool) -> bool {
    key != CLUSTER_SET_LABEL || guard_default_key
}

/// Reads [`JOINED_ANNOTATION`] (label key to uid of the set) and [`REPORTED_LABELS_ANNOTATION`] (label key to value).
/// Unreadable entries count as absent.
pub fn parse_pairs(text: &str) -> BTreeMap<String, String> {
    text.split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// Writes [`JOINED_ANNOTATION`] and [`REPORTED_LABELS_ANNOTATION`].
pub fn format_pairs(pairs: &BTreeMap<String, String>) -> String {
    let pairs: Vec<_> = pairs
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    pairs.join(",")
}

/// The selector that a set with its own key is stored with.
pub fn selector_of(key: &str, name: &str) -> ClusterSelector {
    ClusterSelector {
        selector_type: SelectorType::LabelSelector,
        label_selector: Some(LabelSelector {
            match_labels: Some(BTreeMap::from([(key.to_owned(), name.to_owned())])),
            match_expressions: None,
        }),
    }
}

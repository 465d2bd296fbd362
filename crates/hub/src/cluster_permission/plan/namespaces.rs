//! In which namespaces the objects of an entry are: the one it names, or the ones that its selector selects. The agent
//! evaluates selectors against the namespaces of the managed cluster, the hub against its own.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::SelectorExt as _;

use crate::cluster_permission::{
    model::{Observation, SelectedBy},
    spec::{Entry, validate},
};

/// Where the objects of an entry are.
pub enum Namespaces<'a> {
    /// In the namespace that the entry names; empty for a cluster-scoped object.
    Named(&'a str),
    /// Wherever the agent finds that this selector selects.
    ByAgent(&'a LabelSelector),
    /// In these namespaces of the hub.
    ByHub(Vec<&'a str>),
    /// In namespaces of the hub that have not been read.
    NotRead,
}

impl<'a> Namespaces<'a> {
    /// Of an entry that can be built.
    pub fn of(entry: &Entry<'a>, seen: &'a Observation, by: SelectedBy) -> Self {
        let Some(labels) = entry.selector else {
            return Self::Named(entry.namespace);
        };
        match (by, &seen.hub_namespaces) {
            (SelectedBy::Agent, _) => Self::ByAgent(labels),
            (SelectedBy::Hub, None) => Self::NotRead,
            (SelectedBy::Hub, Some(namespaces)) => {
                // A selector that cannot be evaluated is a problem of its entry and selects nothing.
                let selector = validate::selector(&entry.field, labels);
                let selects = |labels: &_| selector.as_ref().is_ok_and(|s| s.matches(labels));
                let selected = namespaces.iter().filter(|(_, labels)| selects(labels));
                Self::ByHub(selected.map(|(name, _)| name.as_str()).collect())
            }
        }
    }

    /// The namespaces that are known to the hub.
    pub fn known(self) -> Vec<&'a str> {
        match self {
            Self::Named(namespace) => vec![namespace],
            Self::ByHub(namespaces) => namespaces,
            Self::ByAgent(_) | Self::NotRead => Vec::new(),
        }
    }
}

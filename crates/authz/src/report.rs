//! What the answers are made of. Everything here is plain data that serialises to JSON.

use std::fmt;

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde::{Deserialize, Serialize};

use crate::object::Kind;

/// A role or a binding by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ObjectName {
    /// The kind.
    pub kind: Kind,
    /// The namespace, for namespaced kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{} {}", self.kind, self.name),
        }
    }
}

/// The kinds of subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum SubjectKind {
    /// A user name.
    User,
    /// A group name.
    Group,
    /// A ServiceAccount of a namespace.
    ServiceAccount,
}

/// A subject of a binding; a ServiceAccount always has its namespace, defaulted from the binding where need be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Subject {
    /// The kind.
    pub kind: SubjectKind,
    /// The namespace of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    pub name: String,
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.namespace {
            Some(namespace) => write!(f, "{:?} {namespace}/{}", self.kind, self.name),
            None => write!(f, "{:?} {}", self.kind, self.name),
        }
    }
}

/// Why a subject holds a rule: binding, role, the role it is aggregated from, rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Chain {
    /// The subject of the binding that was matched.
    pub subject: Subject,
    /// The binding.
    pub binding: ObjectName,
    /// The role that the binding refers to.
    pub role: ObjectName,
    /// The ClusterRole that the rule comes from, where `role` is aggregated and the source is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregated_from: Option<ObjectName>,
    /// The rule.
    pub rule: PolicyRule,
}

impl Chain {
    /// The reason that kube-apiserver gives for an allow by this chain.
    pub fn reason(&self) -> String {
        let with_namespace = |name: &str, namespace: &Option<String>| match namespace {
            Some(namespace) => format!("{name}/{namespace}"),
            None => name.to_owned(),
        };
        format!(
            "RBAC: allowed by {} {:?} of {} {:?} to {:?} {:?}",
            self.binding.kind,
            with_namespace(&self.binding.name, &self.binding.namespace),
            self.role.kind,
            self.role.name,
            self.subject.kind,
            with_namespace(&self.subject.name, &self.subject.namespace),
        )
    }
}

/// A subject that may do what was asked, with every chain that lets it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Holder {
    /// The subject.
    pub subject: Subject,
    /// Each chain on its own is enough.
    pub chains: Vec<Chain>,
}

/// The answer of `explain`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The decision.
    pub allowed: bool,
    /// Allowed as a member of `system:masters`, whatever the rules say.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub superuser: bool,
    /// Every chain that allows it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chains: Vec<Chain>,
    /// Where it is denied: the rules that the asker holds and that come nearest, nearest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<NearMiss>,
    /// Where it is denied: the asker's bindings in reach whose role does not exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dangling: Vec<Dangling>,
    /// Where it is denied: roles that would allow it if they were bound to the asker.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<ObjectName>,
}

/// A rule that the asker holds and that nearly allows the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NearMiss {
    /// Where the rule comes from.
    pub chain: Chain,
    /// What the rule lacks.
    pub missing: Vec<Missing>,
}

/// What a rule would need in order to allow a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Missing {
    /// This verb.
    Verb(String),
    /// This API group.
    ApiGroup(String),
    /// This resource, or `resource/subresource`.
    Resource(String),
    /// This name among its `resourceNames`; empty where the request has no name, which a rule with names never allows.
    ResourceName(String),
    /// This path among its `nonResourceURLs`.
    NonResourceUrl(String),
    /// To be bound in this namespace; empty for cluster-wide.
    Namespace(String),
}

/// A binding whose role does not exist: no error, and no grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Dangling {
    /// The binding.
    pub binding: ObjectName,
    /// The role that is not there.
    pub role: ObjectName,
}

//! The types that the stages of a work share. Nothing here decides anything or talks to a server.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

use kube::core::GroupVersionKind;
use serde::Serialize;
use serde_json::Value;
use writ_api::work::{
    AppliedResource, ConditionRule, FeedbackRule, FeedbackValue, ManifestResourceMeta, UpdateStrategy,
    UpdateStrategyType,
};
use writ_controller::{Name, ServedKind, condition::Wanted, error::status_code};

/// What the queue is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Key {
    /// A ManifestWork, by name.
    Work(Arc<str>),
    /// An AppliedManifestWork, by name.
    Applied(Arc<str>),
    /// The rights of the agent itself: what it may watch.
    AgentRights,
}

impl Key {
    /// The ManifestWork of this name.
    pub fn work(name: &str) -> Self {
        Self::Work(name.into())
    }

    /// The AppliedManifestWork of this name.
    pub fn applied(name: &str) -> Self {
        Self::Applied(name.into())
    }
}

/// One manifest of a work.
#[derive(Clone, Debug)]
pub struct PlannedManifest {
    /// Its index in the spec.
    pub ordinal: usize,
    /// Lower ranks are applied first.
    pub rank: u16,
    /// What the status says about it.
    pub meta: ManifestResourceMeta,
    /// The object that it asks for, or why that cannot be known.
    pub target: Result<TargetObject, String>,
}

/// The object that a manifest asks for.
#[derive(Clone, Debug)]
pub struct TargetObject {
    /// The object's kind.
    pub kind: Arc<ServedKind>,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// The manifest, without what a server sets.
    pub object: Value,
    /// Whether the object is deleted with the work.
    pub owned: bool,
    /// How it is written and reported.
    pub config: ObjectConfig,
    /// Changes with everything above.
    pub hash: u64,
    /// Whether the definition of its kind comes with the same work and is not served yet.
    pub kind_to_come: bool,
}

impl TargetObject {
    /// Group, resource, namespace and name, by which the rules of a work match.
    pub fn identity(&self) -> ObjectIdentity<'_> {
        ObjectIdentity {
            group: &self.kind.resource.group,
            resource: &self.kind.resource.plural,
            namespace: &self.namespace,
            name: &self.name,
        }
    }

    /// Namespace and name.
    pub fn full_name(&self) -> Name {
        Name::new(self.namespace.as_str(), self.name.as_str())
    }

    /// The object as the AppliedManifestWork records it.
    pub fn to_record(&self, uid: &str) -> AppliedResource {
        AppliedResource {
            group: self.kind.resource.group.clone(),
            version: self.kind.resource.version.clone(),
            resource: self.kind.resource.plural.clone(),
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            uid: uid.into(),
        }
    }

    /// Whether the object is written, not only read.
    pub fn is_written(&self) -> bool {
        self.config.strategy.type_ != UpdateStrategyType::ReadOnly
    }
}

/// What identifies an object to the rules of a work, and in its record. Versions do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectIdentity<'a> {
    /// The API group.
    pub group: &'a str,
    /// The resource, plural.
    pub resource: &'a str,
    /// The namespace; empty for a cluster-scoped object.
    pub namespace: &'a str,
    /// The name.
    pub name: &'a str,
}

impl<'a> ObjectIdentity<'a> {
    /// The identity of a recorded object.
    pub fn of_record(record: &'a AppliedResource) -> Self {
        Self {
            group: &record.group,
            resource: &record.resource,
            namespace: &record.namespace,
            name: &record.name,
        }
    }
}

/// What the manifestConfigs of a work say about one object, merged.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ObjectConfig {
    /// How it is written.
    pub strategy: UpdateStrategy,
    /// What is reported.
    pub feedback: Vec<FeedbackRule>,
    /// The conditions to compute.
    pub conditions: Vec<ConditionRule>,
}

impl ObjectConfig {
    /// Whether the object's content is needed for more than applying it.
    pub fn reads_content(&self) -> bool {
        !self.feedback.is_empty() || !self.conditions.is_empty()
    }
}

/// What discovery said about the kinds of a work.
pub type ServedKinds = HashMap<GroupVersionKind, Result<Option<Arc<ServedKind>>, String>>;

/// The uids of a record's objects; a uid is empty if the object was recorded before it was written.
pub type RecordedUids<'a> = HashMap<ObjectIdentity<'a>, &'a str>;

/// Kind, namespace and name of an RBAC object. Of a NamespaceGrant's role or binding the namespace is empty.
pub type RbacId = (writ_authz::Kind, String, String);

/// What the gate says about one revision of a work.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// What the work's condition says, if anything is refused.
    pub refusal: Option<String>,
    /// Why each refused manifest is refused, by ordinal.
    pub refused: BTreeMap<usize, Refused>,
    /// The refused manifests whose objects the executor may read, so that their state may be reported.
    pub readable: BTreeSet<usize>,
    /// Whether the watched RBAC objects and the API server's authorizer disagree, so that asking again can help.
    pub unsettled: bool,
}

impl Verdict {
    /// Why this manifest must not be written, if it must not.
    pub fn refusal_of(&self, ordinal: usize) -> Option<&Refused> {
        self.refused.get(&ordinal)
    }

    /// Refuses all manifests for one reason.
    pub fn refuse_all(manifests: &[PlannedManifest], reason: &str) -> Self {
        let denied = |manifest: &PlannedManifest| (manifest.ordinal, Refused::Denied(reason.into()));
        Self {
            refusal: Some(reason.into()),
            refused: manifests.iter().map(denied).collect(),
            readable: BTreeSet::new(),
            unsettled: false,
        }
    }

    /// Refuses all manifests because the cluster did not answer: asking again can help.
    pub fn unanswered(manifests: &[PlannedManifest], reason: &str) -> Self {
        Self {
            unsettled: true,
            ..Self::refuse_all(manifests, reason)
        }
    }
}

/// Why a manifest is not written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The executor may not hold it.
    Denied(String),
    /// It would be allowed, but others of the same work are not.
    HeldBack(String),
}

/// Why an object could not be written.
#[derive(Debug)]
pub enum ApplyFailure {
    /// The ignored fields could not be found.
    IgnoreFields(String),
    /// Another field manager owns a field; trying again does not help.
    Conflict(String),
    /// The object exists, no work wrote it, and the manifest says not to take it over.
    Foreign(String),
    /// The role that it binds exists, no work wrote that, and the manifest says that it binds one of its own permission.
    HeldBack(String),
    /// The server refused it, or did not answer.
    Server(Box<kube::Error>),
}

impl From<kube::Error> for ApplyFailure {
    fn from(error: kube::Error) -> Self {
        Self::Server(Box::new(error))
    }
}

impl ApplyFailure {
    /// What a person reads. What it says of a Secret has to be redacted first.
    pub fn message(&self) -> String {
        match self {
            Self::IgnoreFields(message)
            | Self::Conflict(message)
            | Self::Foreign(message)
            | Self::HeldBack(message) => message.clone(),
            Self::Server(error) => match &**error {
                kube::Error::Api(status) if !status.message.is_empty() => status.message.clone(),
                other => other.to_string(),
            },
        }
    }

    /// The HTTP status code of the server's answer.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Server(error) => status_code(error),
            Self::Conflict(_) => Some(409),
            Self::IgnoreFields(_) | Self::Foreign(_) | Self::HeldBack(_) => None,
        }
    }
}

/// What has to happen before another attempt can succeed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Prerequisite {
    /// A namespace appears.
    Namespace(String),
    /// A kind is defined.
    Kind,
    /// A permission of the agent is granted.
    Permission,
}

/// The outcome of one pass for one manifest.
#[derive(Debug)]
pub struct ManifestOutcome {
    /// The manifest's index.
    pub ordinal: usize,
    /// What the status says about it.
    pub report: ManifestReport,
    /// The work's object that exists now, as the AppliedManifestWork records it.
    pub recorded: Option<AppliedResource>,
    /// Whether it is certain that the work has no such object: none exists, or it belongs to another owner.
    pub is_absent: bool,
    /// Whether another attempt is needed.
    pub failed: bool,
    /// What that attempt needs first.
    pub waits_for: Option<Prerequisite>,
}

/// What is known about one manifest after a pass.
#[derive(Clone, Debug)]
pub struct ManifestReport {
    /// Which manifest.
    pub meta: ManifestResourceMeta,
    /// Whether it was applied; `None` if nothing was tried.
    pub applied: Option<Wanted>,
    /// Whether its object exists; `None` if nothing new is known.
    pub available: Option<Wanted>,
    /// What its object says; `None` if nothing new is known.
    pub content: Option<ObjectContent>,
}

/// The values and conditions that a work asks for, as its object has them.
#[derive(Clone, Debug)]
pub struct ObjectContent {
    /// The values that the feedback rules ask for.
    pub values: Vec<FeedbackValue>,
    /// Whether they could be read.
    pub feedback: Wanted,
    /// The conditions that the rules compute.
    pub rules: Vec<Wanted>,
}

/// An object that belonged to a work when it was last written or read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnedObject {
    /// Its uid.
    pub uid: String,
    /// Its resource version, if no other work owns that version. A request that names it needs no read first: the server
    /// refuses it if anything has changed since.
    pub version: Option<String>,
}

//! The types of a permission's plan: what is observed, what the spec comes to, and what is wanted.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::LabelSelector,
    jiff::Timestamp,
};
use serde_json::Value;
use writ_api::{
    cluster::ManagedCluster,
    rbac::{ClusterPermission, cluster_permission::RBAC_GROUP},
    work::{Executor, ManifestConfig, ManifestWork},
};
use writ_controller::Name;
pub use writ_controller::ObjectId;

/// The kind of a namespace grant.
pub const GRANT_KIND: &str = "NamespaceGrant";

/// The id of an object that a work of a permission carries; the namespace of a cluster-scoped object is empty.
pub fn object_id(kind: &str, namespace: &str, name: &str) -> ObjectId {
    let group = if kind == GRANT_KIND {
        "writ.dev"
    } else {
        RBAC_GROUP
    };
    ObjectId {
        group: group.into(),
        kind: kind.into(),
        name: Name::new(namespace, name),
    }
}

/// Everything that the plan depends on.
#[derive(Clone, Debug)]
pub struct Observation {
    /// The permission.
    pub permission: Arc<ClusterPermission>,
    /// Its works, by number.
    pub works: BTreeMap<usize, Arc<ManifestWork>>,
    /// The cluster of its namespace.
    pub cluster: Option<Arc<ManagedCluster>>,
    /// The ManagedServiceAccounts of its namespace that it names and that exist, by name.
    pub accounts: BTreeMap<String, Account>,
    /// The add-on that keeps their ServiceAccounts.
    pub add_on: AddOn,
    /// The roles of the hub that it refers to and that exist.
    pub hub_roles: BTreeMap<ObjectId, HubRole>,
    /// Where its namespace selectors are evaluated.
    pub selected_by: SelectedBy,
    /// The hub's namespaces and their labels, where they may matter; `None` if they have not been read.
    pub hub_namespaces: Option<HubNamespaces>,
    /// The kinds that have not been read.
    pub not_synced: NotSynced,
    /// Other permissions of the cluster that name an object of the same kind and name.
    pub neighbours: Vec<Arc<ClusterPermission>>,
    /// The executor of every work.
    pub executor: Option<Executor>,
    /// How much a work may carry.
    pub limits: Limits,
    /// The time.
    pub now: Timestamp,
}

impl Observation {
    /// The manifests that the works carry now.
    pub fn manifests(&self) -> impl Iterator<Item = &Value> {
        let works = self.works.values();
        works.flat_map(|work| work.spec.workload.manifests.iter().map(|manifest| &manifest.0))
    }
}

/// The hub's namespaces, each with its labels, in order.
pub type HubNamespaces = Vec<(String, BTreeMap<String, String>)>;

/// Where namespace selectors are evaluated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SelectedBy {
    /// By the agent, against the namespaces of the managed cluster.
    Agent,
    /// By the hub, against its own namespaces, as OCM does.
    Hub,
}

impl SelectedBy {
    /// The other mode.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Agent => Self::Hub,
            Self::Hub => Self::Agent,
        }
    }
}

/// The kinds that a permission depends on and whose watch has not listed everything yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NotSynced {
    /// ManagedServiceAccounts, or the add-on that keeps them.
    pub accounts: bool,
    /// Roles or ClusterRoles.
    pub roles: bool,
    /// Namespaces.
    pub namespaces: bool,
}

impl NotSynced {
    /// Whether there is any.
    pub fn any(self) -> bool {
        self.accounts || self.roles || self.namespaces
    }
}

/// Whether the ServiceAccount of a ManagedServiceAccount is its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Account {
    /// It is, or the agent has not reported otherwise: a new account does not wait for its agent.
    Own,
    /// The agent reports that the ServiceAccount was not made for the account, in these words.
    NotOwn(String),
}

/// The add-on `managed-serviceaccount` of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddOn {
    /// It does not exist.
    Missing,
    /// It exists, but names no namespace.
    NoNamespace,
    /// The namespace of the ServiceAccounts.
    Namespace(String),
}

/// A role of the hub.
#[derive(Clone, Debug)]
pub struct HubRole {
    /// What it allows.
    pub rules: Vec<PolicyRule>,
    /// Whether Kubernetes itself brings it.
    pub built_in: bool,
}

/// What is wrong with a field of the spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The field, such as `spec.roleBindings[1].subjects[0].kind`.
    pub field: String,
    /// What is wrong with it, and the way out.
    pub message: String,
}

impl Problem {
    /// A problem with a field.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

/// What a role or a binding says.
#[derive(Clone, Debug, PartialEq)]
pub enum Content {
    /// The rules of a Role or a ClusterRole.
    Rules(Vec<PolicyRule>),
    /// The role and the subjects of a RoleBinding or a ClusterRoleBinding.
    Binding(RoleRef, Vec<Subject>),
}

impl Content {
    /// Whether it grants anything.
    pub fn grants(&self) -> bool {
        !matches!(self, Self::Binding(_, subjects) if subjects.is_empty())
    }
}

/// A namespace grant: a role or a binding in every namespace that a selector selects, expanded by the agent.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// Selects namespaces of the managed cluster.
    pub selector: LabelSelector,
    /// The name of the role or binding in each of them.
    pub name: String,
    /// Whether the agent takes over objects of that name that exist already.
    pub adopt: bool,
    /// Whether the agent reports roles that do not exist.
    pub validate: bool,
    /// What the role or binding says.
    pub content: Content,
}

impl Grant {
    /// The kind of the objects that the agent makes.
    pub fn kind(&self) -> &'static str {
        match self.content {
            Content::Rules(_) => "Role",
            Content::Binding(..) => "RoleBinding",
        }
    }
}

/// What the manifest of an item is.
#[derive(Clone, Debug, PartialEq)]
pub enum Body {
    /// A role or a binding.
    Object(Content),
    /// A NamespaceGrant.
    Grant(Grant),
    /// A role whose existence the agent reports and which it never writes (`validate: true`).
    Stub,
}

/// A manifest of a work, typed.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedManifest {
    /// The annotations of the object.
    pub annotations: BTreeMap<String, String>,
    /// What the object says.
    pub body: Body,
}

/// One object that a work is to carry.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// The object.
    pub id: ObjectId,
    /// The entry of the spec that wants it.
    pub field: String,
    /// Whether it is a binding whose entry names no role, and so means a role of this permission.
    pub binds_own_role: bool,
    /// The manifest.
    pub manifest: TypedManifest,
}

impl Item {
    /// What the role or binding says; `None` for a stub.
    pub fn content(&self) -> Option<&Content> {
        match &self.manifest.body {
            Body::Object(content) => Some(content),
            Body::Grant(grant) => Some(&grant.content),
            Body::Stub => None,
        }
    }

    /// The namespace grant, if it is one.
    pub fn grant(&self) -> Option<&Grant> {
        match &self.manifest.body {
            Body::Grant(grant) => Some(grant),
            Body::Object(_) | Body::Stub => None,
        }
    }

    /// Whether it is a role or a binding of its own.
    pub fn is_object(&self) -> bool {
        matches!(self.manifest.body, Body::Object(_))
    }

    /// Whether only its existence is reported.
    pub fn is_stub(&self) -> bool {
        self.manifest.body == Body::Stub
    }
}

/// What a spec comes to.
#[derive(Clone, Debug, Default)]
pub struct Built {
    /// The objects, in the order in which OCM writes them.
    pub items: Vec<Item>,
    /// The entries that could not be built.
    pub problems: Vec<Problem>,
    /// The subjects that do not exist, in words.
    pub missing: Vec<String>,
    /// Entries with a selector that the hub evaluated, and how many namespaces it selected.
    pub selected_by_hub: Vec<(String, usize)>,
    /// The kinds that have not been read, so that what depends on them stays as it is.
    pub not_read: BTreeSet<&'static str>,
    /// The kinds of roles that are to be checked and cannot be yet (`validate: true`).
    pub unchecked: BTreeSet<&'static str>,
    /// The kinds of roles that cannot be looked up by their names, and why (`validate: true`).
    pub unsearchable: BTreeSet<(&'static str, String)>,
    /// Subjects, as a person names them, in the order of the spec.
    pub subjects: Vec<String>,
}

/// A role that the permission wants to make and cannot.
#[derive(Clone, Debug)]
pub struct UnbuildableRole {
    /// The role; a Role without a namespace may be in any.
    pub role: ObjectId,
    /// The entry that wants it.
    pub field: String,
}

/// How much one work may carry.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all manifests together.
    pub bytes: usize,
    /// Number of manifests.
    pub manifests: usize,
}

impl Limits {
    /// The limits where admission allows so many bytes of manifests. The reserve covers a different way of counting, and no
    /// work exceeds what OCM's webhook allows, which may be installed too.
    pub fn within(admission: usize) -> Self {
        let reserve = 12_000.min(admission / 40);
        Self {
            bytes: (admission - reserve).min(500_000),
            manifests: 500,
        }
    }
}

/// The content of one work.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Its manifests, in the order of the spec.
    pub manifests: Vec<Value>,
    /// How the agent treats them.
    pub configs: Vec<ManifestConfig>,
    /// The objects whose home this work is.
    pub home: BTreeSet<ObjectId>,
    /// Whether something waits here until an object has moved.
    pub waits: bool,
}

/// What is wanted.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The works, by number.
    pub works: BTreeMap<usize, ManifestWork>,
    /// The numbers of the works to delete, after the others are written.
    pub delete: Vec<usize>,
    /// Which objects are at home in which work.
    pub parts: BTreeMap<usize, Part>,
    /// What the spec came to.
    pub built: Built,
    /// Why nothing can be delivered, if so.
    pub invalid: Option<Invalid>,
}

/// Why a permission as a whole delivers nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Invalid {
    /// Its spec names no role and no binding.
    Empty,
    /// Its namespace is not that of a managed cluster.
    NoCluster,
}

/// The works that the hub refused to write, by number, with its answer.
pub type Refused = BTreeMap<usize, String>;

//! The types of registration: what is observed, what is planned, and the names that both use.

use std::time::Duration;

use k8s_openapi::api::{
    core::v1::ServiceAccount,
    rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding},
};
use writ_api::cluster::managed_cluster::Taint;
use writ_controller::condition::Wanted;

/// On a cluster: the certificate request, as `name@uid`, that an operator who may accept the cluster chose.
pub const ACCEPT_CSR_ANNOTATION: &str = "writ.dev/accept-csr";
/// On a cluster: the certificate request, as `name@uid`, that its agent was last let in with. From then on only the
/// agent itself renews.
pub const ISSUED_ANNOTATION: &str = "writ.dev/certificate-issued";
/// On a cluster: the user of the agent that was last let in. The rights are this user's and not its group's, so that a
/// certificate of a former agent, or of a former cluster of the name, is worth nothing from then on.
pub const AGENT_USER_ANNOTATION: &str = "writ.dev/agent-user";
/// On a cluster, written once when the hub first sees it accepted: `true` if an agent had joined it before, under
/// another hub. A report of having joined that comes later proves nothing: the holder of a certificate of a former cluster of
/// that name has the rights of the name, and can report it.
pub const TAKEN_OVER_ANNOTATION: &str = "writ.dev/taken-over";
/// On a cluster that is being deleted, with value `true`: do not wait for its agent.
pub const FORCE_ANNOTATION: &str = "writ.dev/force-detach";
/// On the account of a cluster's agent: the uid of the ManagedCluster that it was made for.
pub const CLUSTER_UID_ANNOTATION: &str = "writ.dev/cluster-uid";
/// The label of everything that this controller makes for a cluster.
pub const LABEL: &str = "writ.dev/registration";
/// The lease that the agent renews.
pub const LEASE: &str = "managed-cluster-lease";
/// Keeps a cluster that is deleted until everything of it is gone.
pub const FINALIZER: &str = "cluster.open-cluster-management.io/api-resource-cleanup";
/// Condition: the cluster is being deleted and something is left.
pub const CONDITION_DELETING: &str = "Deleting";
/// Condition: the clocks of the hub and of the agent agree.
pub const CONDITION_CLOCK: &str = "ManagedClusterConditionClockSynced";

/// What is observed of a cluster besides its ManagedCluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Observation {
    /// For how long the lease has not been renewed; `None` if there is none.
    pub silent_for: Option<Duration>,
    /// How far the agent's clock was from the hub's when the lease was renewed last; `None` if that was not seen.
    pub clock_off: Option<Duration>,
    /// How many ManifestWorks are left in its namespace.
    pub works: usize,
    /// How many ManagedClusterAddOns are left in its namespace.
    pub addons: usize,
}

/// What is wanted for one cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The namespace and the lease are wanted.
    pub home: bool,
    /// How much the agent may do.
    pub level: Level,
    /// The finalizer of this controller is wanted.
    pub finalizer: bool,
    /// The value of [`TAKEN_OVER_ANNOTATION`] to record, if nothing is on record.
    pub taken_over: Option<bool>,
    /// The taints, if they should change.
    pub taints: Option<Vec<Taint>>,
    /// The conditions to set; others stay.
    pub conditions: Vec<Wanted>,
    /// The next step of a detach.
    pub delete: Delete,
    /// When to reconcile again without an event.
    pub again_in: Option<Duration>,
}

/// The next step while a cluster is detached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delete {
    /// Nothing.
    Nothing,
    /// The add-ons.
    AddOns,
    /// The works, once the add-ons are gone.
    Works,
    /// The works, with their finalizers taken off: the agent is gone and will not do it.
    WorksByForce,
}

/// How much an agent may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// Nothing: not accepted, denied or gone.
    Nothing,
    /// Finish its works, while it is detached.
    Leaving,
    /// All that an agent needs.
    Member,
}

/// The objects that grant a [`Level`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rights {
    /// The rule that names the cluster.
    pub roles: Vec<ClusterRole>,
    /// Cluster-wide bindings.
    pub cluster_bindings: Vec<ClusterRoleBinding>,
    /// Bindings in the namespace of the cluster.
    pub bindings: Vec<RoleBinding>,
    /// The account of the token driver.
    pub account: Option<ServiceAccount>,
}

/// What to do about the pending requests of a cluster that did not come from its own agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Nothing: there is none, or a person has to decide.
    Nothing,
    /// Write [`ISSUED_ANNOTATION`], so that no other is ever chosen automatically.
    Record(String),
    /// Approve this one.
    Approve(String),
    /// Several match; a person has to pick one.
    Ambiguous(Vec<String>),
}

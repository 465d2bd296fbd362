//! Settings of one sync's reconciler.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::NumberOrText;

/// Settings of one sync's reconciler.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Override {
    /// Requests and limits per container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<Vec<ContainerResources>>,
    /// How many commits to fetch; 0 fetches all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub git_sync_depth: Option<i64>,
    /// Whether the state of every object is kept in the ResourceGroup: `enabled` (the default) or `disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status_mode: Option<String>,
    /// How long to wait for objects to become ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconcile_timeout: Option<String>,
    /// How long one request to the API server may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server_timeout: Option<String>,
    /// Whether rendering may start a shell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_shell_in_rendering: Option<bool>,
    /// Log levels per container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["containerName"]))]
    pub log_levels: Option<Vec<ContainerLogLevel>>,
    /// Whether namespaces that objects use but the source does not declare are made: `implicit` (the default) or
    /// `explicit`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace_strategy: Option<NamespaceStrategy>,
    /// The roles of the reconciler. None means cluster-admin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_refs: Option<Vec<RoleRef>>,
}

/// The other spelling of [`Override`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Overrides {
    /// The roles of the reconciler, as in `override.roleRefs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role_refs: Option<Vec<RoleRef>>,
}

/// One role that the reconciler is bound to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub struct RoleRef {
    /// `Role` or `ClusterRole`.
    pub kind: RoleRefKind,
    /// The role's name.
    pub name: String,
    /// The namespace to bind the role in. A Role needs one; a ClusterRole without one is bound in the whole cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// The kinds of role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum RoleRefKind {
    /// A ClusterRole.
    ClusterRole,
    /// A Role.
    Role,
}

impl RoleRefKind {
    /// As the API spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClusterRole => "ClusterRole",
            Self::Role => "Role",
        }
    }
}

/// Who makes namespaces that the source uses but does not declare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NamespaceStrategy {
    /// The reconciler makes them.
    #[default]
    Implicit,
    /// None is created: the source declares them, or they exist already.
    Explicit,
}

/// Requests and limits of one container.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerResources {
    /// The container's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_name: Option<String>,
    /// Requested CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_request: Option<NumberOrText>,
    /// Requested memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_request: Option<NumberOrText>,
    /// CPU limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_limit: Option<NumberOrText>,
    /// Memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<NumberOrText>,
}

/// Log level of one container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ContainerLogLevel {
    /// The container's name.
    pub container_name: String,
    /// From 0 to 10.
    #[schemars(range(min = 0, max = 10))]
    pub log_level: i64,
}

//! `ClusterPermission`: which RBAC a managed cluster shall have, written in that cluster's namespace on the hub.

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, RoleRef, Subject},
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSON},
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector},
};
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The API group of a subject that is a ManagedServiceAccount.
pub const MANAGED_SERVICE_ACCOUNT_GROUP: &str = "authentication.open-cluster-management.io";
/// The kind of a subject that is a ManagedServiceAccount.
pub const MANAGED_SERVICE_ACCOUNT_KIND: &str = "ManagedServiceAccount";
/// The API group of roles, and of User and Group subjects.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";
/// The condition of a permission while the agent has something to do.
pub const CONDITION_PENDING: &str = "Pending";

/// The wanted RBAC of one managed cluster. Everything without a name of its own gets the permission's name.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "rbac.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ClusterPermission",
    shortname = "clp",
    plural = "clusterpermissions",
    singular = "clusterpermission",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    status = "ClusterPermissionStatus",
    doc = "RBAC for one managed cluster, written on the hub in the namespace of that cluster.",
    printcolumn = r#"{"name":"READY","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"CLUSTER","type":"string","jsonPath":".metadata.namespace"}"#,
    printcolumn = r#"{"name":"SUBJECTS","type":"string","jsonPath":".status.subjects"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPermissionSpec {
    /// Whether to check that the roles that the bindings name exist on the managed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<bool>,

    /// A ClusterRole to make on the managed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_role: Option<ClusterRole>,

    /// A ClusterRoleBinding to make on the managed cluster. Not looked at when `clusterRoleBindings` has entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(validation = Rule::new("has(self.subject) || has(self.subjects)")
        .message("Either subject or subjects has to exist in clusterRoleBinding"))]
    pub cluster_role_binding: Option<ClusterRoleBinding>,

    /// ClusterRoleBindings to make on the managed cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(validation = Rule::new("self.all(b, has(b.subject) || has(b.subjects))")
        .message("Either subject or subjects has to exist in every clusterRoleBinding"))]
    pub cluster_role_bindings: Vec<ClusterRoleBinding>,

    /// Roles to make on the managed cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(validation = Rule::new("self.all(r, (has(r.namespace) && r.namespace != '') != has(r.namespaceSelector))")
        .message("Exactly one of namespace and namespaceSelector has to exist in every role"))]
    pub roles: Vec<Role>,

    /// RoleBindings to make on the managed cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(validation = Rule::new("self.all(b, has(b.subject) || has(b.subjects))")
        .message("Either subject or subjects has to exist in every roleBinding"))]
    #[x_kube(validation = Rule::new("self.all(b, (has(b.namespace) && b.namespace != '') != has(b.namespaceSelector))")
        .message("Exactly one of namespace and namespaceSelector has to exist in every roleBinding"))]
    pub role_bindings: Vec<RoleBinding>,

    /// Roles and ClusterRoles of the hub that the managed cluster shall have too, with the same name and rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[x_kube(validation = Rule::new("self.all(r, r.kind == 'ClusterRole' || (r.kind == 'Role' && has(r.namespace) && r.namespace != ''))")
        .message("Every roleRef has to be a ClusterRole, or a Role with a namespace"))]
    pub role_refs: Vec<HubRoleRef>,
}

/// The rules of a ClusterRole that is made on the managed cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ClusterRole {
    /// What the role allows.
    pub rules: Vec<PolicyRule>,
}

/// A ClusterRoleBinding that is made on the managed cluster.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterRoleBinding {
    /// The name of the binding; the permission's name when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The ClusterRole to bind; the one of this permission when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub role_ref: Option<RoleRef>,

    /// Who is granted the role. Not looked at when `subjects` has entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub subject: Option<Subject>,

    /// Who is granted the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<Subject>>,
}

/// A Role that is made in one namespace of the managed cluster, or in all that a selector selects.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Role {
    /// The namespace on the managed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// Selects namespaces of the managed cluster by their labels, now and later. An empty selector selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub namespace_selector: Option<LabelSelector>,

    /// What the role allows.
    pub rules: Vec<PolicyRule>,
}

/// A RoleBinding that is made in one namespace of the managed cluster, or in all that a selector selects.
#[derive(KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RoleBinding {
    /// The name of the binding; the permission's name when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,

    /// The namespace on the managed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,

    /// Selects namespaces of the managed cluster by their labels, now and later. An empty selector selects all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub namespace_selector: Option<LabelSelector>,

    /// The Role or ClusterRole to bind.
    pub role_ref: BindingRoleRef,

    /// Who is granted the role. Not looked at when `subjects` has entries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub subject: Option<Subject>,

    /// Who is granted the role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<Vec<Subject>>,
}

/// The role of a RoleBinding: one of this permission (kind only), or any on the managed cluster (all three).
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct BindingRoleRef {
    /// The role's API group; given together with `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,

    /// `Role` or `ClusterRole`.
    pub kind: String,

    /// The role's name; given together with `apiGroup`. The permission's name when both are absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A Role or ClusterRole on the hub.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct HubRoleRef {
    /// The role's API group; `rbac.authorization.k8s.io` when it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_group: Option<String>,

    /// `Role` or `ClusterRole`.
    pub kind: String,

    /// The role's name, on the hub and on the managed cluster.
    pub name: String,

    /// The namespace of a Role, on the hub and on the managed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// What became of a permission.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPermissionStatus {
    /// `Ready` sums up; `Validation`, `SubjectPresent`, `RBACManifestWorkCreated`, `AppliedRBACManifestWork`,
    /// `ValidateRolesExist` and `ValidateClusterRolesExist` tell the steps. `Pending` is there, and `True`, while the agent has
    /// something to do; its `lastTransitionTime` says since when.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,

    /// What the agent reports of each object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_status: Option<ResourceStatus>,

    /// The subjects in a few words, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subjects: Option<String>,

    /// What the agent reports of each namespace selector.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespace_selections: Vec<NamespaceSelection>,
}

/// What the agent reports of each object. Bounded: failing objects come first, `omitted` counts the rest.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ResourceStatus {
    /// The ClusterRoles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_roles: Vec<ClusterObjectStatus>,

    /// The ClusterRoleBindings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_role_bindings: Vec<ClusterObjectStatus>,

    /// The Roles.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<NamespacedObjectStatus>,

    /// The RoleBindings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub role_bindings: Vec<NamespacedObjectStatus>,

    /// How many objects are not listed, because the lists are bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<i64>,
}

/// What the agent reports of one cluster-scoped object.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct ClusterObjectStatus {
    /// The object's name.
    pub name: String,

    /// One condition of type `Applied`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub condition: Vec<Condition>,
}

/// What the agent reports of one object in a namespace.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
pub struct NamespacedObjectStatus {
    /// The object's name.
    pub name: String,

    /// The object's namespace.
    pub namespace: String,

    /// One condition of type `Applied`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub condition: Vec<Condition>,
}

/// What became of one entry with a `namespaceSelector`.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceSelection {
    /// The entry, such as `spec.roleBindings[2]`.
    pub field: String,

    /// Who selects: `agent` (namespaces of the managed cluster) or `hub` (namespaces of the hub).
    pub by: String,

    /// How many namespaces are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<i64>,

    /// In how many of them the object is as wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<i64>,

    /// The first namespaces that fail, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The definition. An object without a spec is accepted, as one with an empty spec.
pub fn definition() -> CustomResourceDefinition {
    let mut crd = ClusterPermission::crd();
    for version in &mut crd.spec.versions {
        let schema = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut());
        let Some(schema) = schema else { continue };
        if let Some(required) = &mut schema.required {
            required.retain(|field| field != "spec");
        }
        schema.required.take_if(|required| required.is_empty());
        if let Some(spec) = schema.properties.as_mut().and_then(|p| p.get_mut("spec")) {
            spec.default = Some(JSON(serde_json::json!({})));
        }
    }
    crd
}

//! `NamespaceGrant`: one Role or RoleBinding in every namespace of a managed cluster that a selector selects.

use k8s_openapi::{
    api::rbac::v1::{PolicyRule, RoleRef, Subject},
    apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector},
};
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The object to make, and the namespaces to make it in. The agent follows namespaces as they come and go.
#[derive(CustomResource, KubeSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "writ.dev",
    version = "v1alpha1",
    kind = "NamespaceGrant",
    shortname = "nsg",
    plural = "namespacegrants",
    singular = "namespacegrant",
    derive = "Default",
    derive = "PartialEq",
    status = "NamespaceGrantStatus",
    doc = "A Role or a RoleBinding in every namespace of this cluster that a selector selects. Whoever may write one may grant anything.",
    printcolumn = r#"{"name":"READY","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status"}"#,
    printcolumn = r#"{"name":"SELECTED","type":"integer","jsonPath":".status.selected"}"#,
    printcolumn = r#"{"name":"FAILED","type":"integer","jsonPath":".status.failed"}"#,
    printcolumn = r#"{"name":"AGE","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[x_kube(validation = Rule::new("has(self.rules) != has(self.roleRef)").message("exactly one of rules (makes a Role) and roleRef (makes a RoleBinding) has to exist"))]
#[x_kube(validation = Rule::new("has(self.roleRef) == (has(self.subjects) && size(self.subjects) > 0)").message("subjects belong to a roleRef, and a roleRef needs at least one"))]
#[serde(rename_all = "camelCase")]
pub struct NamespaceGrantSpec {
    /// Selects namespaces by their labels. An empty selector selects all.
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub namespace_selector: LabelSelector,

    /// The name of the Role or RoleBinding in each namespace.
    // It becomes part of a URL.
    #[schemars(length(min = 1, max = 253), regex(pattern = r"^[^./\\?#%\s][^/\\?#%\s]*$"))]
    pub name: String,

    /// Makes a Role with these rules.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rules: Option<Vec<PolicyRule>>,

    /// Makes a RoleBinding to this role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[x_kube(merge_strategy = MapMerge::Atomic)]
    pub role_ref: Option<RoleRef>,

    /// Who is granted the role.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subjects: Vec<Subject>,

    /// Whether an object of that name that this grant did not make is taken over. Otherwise it is left alone and reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adopt: Option<bool>,

    /// Whether the status names the Roles of roleRef that are missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validate: Option<bool>,
}

/// In how many namespaces the object is as wanted, and where it is not.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceGrantStatus {
    /// The generation that the rest of the status is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,

    /// How many namespaces are selected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selected: Option<i64>,

    /// In how many of them the object is as wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<i64>,

    /// In how many it is not, or could not be taken away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<i64>,

    /// The first namespaces that fail and why, at most 900 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<String>,

    /// The Roles of roleRef that are missing, if validate asks for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub roles_missing: Option<String>,

    /// Every selected namespace, failing ones first, at most 1000.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub namespaces: Vec<GrantedNamespace>,

    /// How many namespaces are not listed, because the list is bounded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub omitted: Option<i64>,

    /// `Ready`: the object is as wanted in every selected namespace.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// One selected namespace.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GrantedNamespace {
    /// Its name.
    pub name: String,

    /// Whether the object is as wanted there.
    pub ready: bool,

    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

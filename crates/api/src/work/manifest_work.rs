//! ManifestWork: objects that the hub wants on one managed cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{Executor, ManifestConfig};

/// Objects to deliver to the cluster whose namespace the work is in.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "work.open-cluster-management.io",
    version = "v1",
    kind = "ManifestWork",
    shortname = "mw",
    namespaced,
    status = "ManifestWorkStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Applied", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Applied\")].status"}"#,
    printcolumn = r#"{"name": "Available", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Available\")].status"}"#,
    printcolumn = r#"{"name": "Executor", "type": "string", "jsonPath": ".spec.executor.subject.serviceAccount.name"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkSpec {
    /// The objects.
    #[serde(default)]
    #[schemars(transform = without_default)]
    pub workload: Workload,
    /// What happens to the objects when the work is deleted. Absent means `Foreground`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delete_option: Option<DeleteOption>,
    /// How single manifests are applied and reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifest_configs: Vec<ManifestConfig>,
    /// Whose permissions on the managed cluster bound this work. Absent means the agent's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<Executor>,
}

/// The objects of a work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Workload {
    /// The objects, each with a name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<Manifest>,
}

/// One Kubernetes object, as it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Manifest(
    /// The object.
    #[schemars(schema_with = "embedded_resource")]
    pub Value,
);

fn embedded_resource(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "x-kubernetes-embedded-resource": true,
        "x-kubernetes-preserve-unknown-fields": true,
    })
}

/// What happens to the objects when the work, or a manifest in it, goes away.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeleteOption {
    /// Which objects are deleted.
    #[serde(default)]
    pub propagation_policy: PropagationPolicy,
    /// The objects to keep, if the policy is `SelectivelyOrphan`.
    #[serde(
        default,
        rename = "selectivelyOrphans",
        skip_serializing_if = "Option::is_none"
    )]
    pub selectively_orphans: Option<SelectivelyOrphan>,
    /// Deletes the work so many seconds after its condition `Complete` became true.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_seconds_after_finished: Option<i64>,
}

/// Which objects are deleted with their work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PropagationPolicy {
    /// All, and the work stays until they are gone.
    #[default]
    Foreground,
    /// None.
    Orphan,
    /// All but those that the rules name.
    SelectivelyOrphan,
}

/// The objects to keep.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectivelyOrphan {
    /// One rule per object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub orphaning_rules: Vec<OrphaningRule>,
}

/// One object to keep; no wildcards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrphaningRule {
    /// The API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource, plural and in lower case.
    pub resource: String,
    /// The namespace; empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// What the agent reports about a work.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestWorkStatus {
    /// `Applied`, `Available`, `Deleting` and those of the condition rules.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The state of each manifest.
    #[serde(default)]
    pub resource_status: ManifestResourceStatus,
}

/// The state of each manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestResourceStatus {
    /// In the order of the manifests.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifests: Vec<ManifestCondition>,
}

/// The state of one manifest.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestCondition {
    /// Which manifest, and which object it became.
    pub resource_meta: ManifestResourceMeta,
    /// The values that the feedback rules ask for.
    #[serde(default)]
    pub status_feedback: StatusFeedback,
    /// `Applied`, `Available`, `StatusFeedbackSynced` and those of the condition rules.
    #[serde(default)]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// Which manifest, and which object it became.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ManifestResourceMeta {
    /// The manifest's index in the spec.
    pub ordinal: i32,
    /// The API group.
    #[serde(default)]
    pub group: String,
    /// The API version.
    #[serde(default)]
    pub version: String,
    /// The kind.
    #[serde(default)]
    pub kind: String,
    /// The resource.
    #[serde(default)]
    pub resource: String,
    /// The name.
    #[serde(default)]
    pub name: String,
    /// The namespace; empty for a cluster-scoped object.
    #[serde(default)]
    pub namespace: String,
}

/// The values that the feedback rules ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusFeedback {
    /// One per name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub values: Vec<FeedbackValue>,
}

/// One reported value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeedbackValue {
    /// The name that the rule gives it.
    pub name: String,
    /// The value.
    #[serde(rename = "fieldValue")]
    pub value: FieldValue,
}

/// A value of one of four types.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FieldValue {
    /// Which of the fields below is set.
    #[serde(rename = "type")]
    pub type_: FieldValueType,
    /// A whole number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub integer: Option<i64>,
    /// A text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub string: Option<String>,
    /// True or false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boolean: Option<bool>,
    /// Anything else, as JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub json_raw: Option<String>,
}

/// The types of a reported value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FieldValueType {
    /// A whole number.
    Integer,
    /// A text.
    String,
    /// True or false.
    Boolean,
    /// Anything else, as JSON.
    JsonRaw,
}

/// What upstream leaves out of a stored object is left out here.
pub(super) fn without_default(schema: &mut schemars::Schema) {
    schema.remove("default");
}

//! ClusterClaim: one fact that a managed cluster states about itself.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The label that keeps a claim on its cluster: it is not reported to the hub.
pub const SPOKE_ONLY_LABEL: &str = "open-cluster-management.io/spoke-only";
/// The claim with the names of the controllers that the agent runs, separated by commas.
pub const CLAIM_AGENT: &str = "agent.writ.dev";
/// The claim with the namespace of the agent on its cluster.
pub const CLAIM_AGENT_NAMESPACE: &str = "namespace.agent.writ.dev";

/// The value of the fact; its name is the name of the object.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ClusterClaim",
    derive = "Default",
    derive = "PartialEq",
    doc = "One fact that a managed cluster states about itself. It lives on the managed cluster.",
    printcolumn = r#"{"name": "Value", "type": "string", "jsonPath": ".spec.value"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterClaimSpec {
    /// The value that is reported to the hub.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub value: Option<String>,
}

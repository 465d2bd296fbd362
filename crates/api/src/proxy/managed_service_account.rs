//! ManagedServiceAccount as it was first proposed. Each owns one of the same name in the group
//! `authentication.open-cluster-management.io`, which does the work.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::authentication;

/// What shall be true of the account.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "proxy.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ManagedServiceAccount",
    doc = "A ServiceAccount on a managed cluster, whose token is kept in a Secret on the hub. It owns a ManagedServiceAccount of the same name in the group authentication.open-cluster-management.io and shows the status of that one.",
    namespaced,
    status = "authentication::ManagedServiceAccountStatus",
    derive = "Default",
    derive = "PartialEq",
    printcolumn = r#"{"name": "Present", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"AllServiceAccountPresent\")].status"}"#,
    printcolumn = r#"{"name": "Expires", "type": "string", "jsonPath": ".status.expirationTimestamp"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedServiceAccountSpec {
    /// The audiences of the token. None means the audience of the managed cluster's API server.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "authentication::managed_service_account::audiences")]
    pub audiences: Option<Vec<String>>,
    /// How the token is renewed.
    pub rotation: Rotation,
}

/// How a token is renewed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Rotation {
    /// Whether the token is renewed before it expires. Without, it is left to expire.
    pub enabled: bool,
    /// How long a token shall live, as a Go duration such as `4320h0m0s`. The managed cluster may grant less.
    #[schemars(schema_with = "authentication::managed_service_account::validity")]
    pub validity: String,
}

impl Default for Rotation {
    fn default() -> Self {
        Self {
            enabled: true,
            validity: authentication::validity::DEFAULT.into(),
        }
    }
}

pub(super) fn definition() -> CustomResourceDefinition {
    let mut crd = ManagedServiceAccount::crd();
    authentication::managed_service_account::spec_may_be_left_out(&mut crd);
    crd
}

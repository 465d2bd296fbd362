//! ManagedServiceAccountBinding: who on the hub may act as a managed account.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who may use which account as the executor of a ManifestWork.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "authentication.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ManagedServiceAccountBinding",
    doc = "Says which users, groups and ServiceAccounts of the hub may name a ManagedServiceAccount as the executor of a ManifestWork.",
    namespaced,
    derive = "Default",
    derive = "PartialEq",
    shortname = "msab",
    printcolumn = r#"{"name": "Account", "type": "string", "jsonPath": ".spec.ref.name"}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ManagedServiceAccountBindingSpec {
    /// The account.
    #[serde(rename = "ref")]
    pub reference: AccountReference,
    /// Who may use it.
    #[serde(default)]
    pub subjects: Vec<AccountSubject>,
}

/// Names a ManagedServiceAccount.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AccountReference {
    /// The namespace of the account, which must be that of the binding; empty means the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name of the account.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// A user, group or ServiceAccount of the hub.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [{"rule": "self.kind != 'ServiceAccount' || (has(self.__namespace__) && self.__namespace__ != '')", "message": "a subject of kind ServiceAccount needs a namespace"}]))]
pub struct AccountSubject {
    /// `User`, `Group` or `ServiceAccount`.
    #[schemars(regex(pattern = r"^(User|Group|ServiceAccount)$"))]
    pub kind: String,
    /// The namespace of a ServiceAccount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The name.
    #[schemars(length(min = 1))]
    pub name: String,
}

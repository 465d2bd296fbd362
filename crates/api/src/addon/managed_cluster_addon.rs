//! ManagedClusterAddOn: an add-on on one cluster.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AddOnConfig, AddOnMeta, ConfigCoordinates, ConfigKind, ConfigReference, RelatedObject};

/// How an add-on is installed on one cluster.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[kube(
    group = "addon.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ManagedClusterAddOn",
    doc = "An add-on on the cluster whose namespace this is. Its name is the add-on's.",
    namespaced,
    status = "ManagedClusterAddOnStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "mca",
    shortname = "mcas",
    printcolumn = r#"{"name": "Available", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Available\")].status"}"#,
    printcolumn = r#"{"name": "Degraded", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Degraded\")].status"}"#,
    printcolumn = r#"{"name": "Progressing", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"Progressing\")].status"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterAddOnSpec {
    /// The namespace on the managed cluster into which the add-on's agent is installed.
    #[schemars(length(max = 63), regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub install_namespace: String,
    /// What configures the add-on on this cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub configs: Vec<AddOnConfig>,
}

impl Default for ManagedClusterAddOnSpec {
    fn default() -> Self {
        Self {
            install_namespace: super::DEFAULT_INSTALL_NAMESPACE.into(),
            configs: Vec::new(),
        }
    }
}

impl ManagedClusterAddOn {
    /// The namespace that was asked for: the annotation of the newer version, the field, the default.
    pub fn wished_namespace(&self) -> &str {
        self.metadata
            .annotations
            .as_ref()
            .and_then(|annotations| annotations.get(super::ANNOTATION_INSTALL_NAMESPACE))
            .map(String::as_str)
            .filter(|namespace| !namespace.is_empty())
            .or(Some(self.spec.install_namespace.as_str()).filter(|namespace| !namespace.is_empty()))
            .unwrap_or(super::DEFAULT_INSTALL_NAMESPACE)
    }
}

/// What is true of an add-on on one cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedClusterAddOnStatus {
    /// Whether it is available, configured, registered.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The namespace on the managed cluster in which the add-on's agent runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The credentials that the add-on's agent gets for the hub.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub registrations: Vec<Registration>,
    /// How the agent gets its credential: by `csr` or by `token`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kube_client_driver: Option<String>,
    /// How it is found out whether the add-on is available.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// What people read about the add-on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_on_meta: Option<AddOnMeta>,
    /// The kind that configures the add-on, in the older way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_on_configuration: Option<ConfigCoordinates>,
    /// The kinds that may configure the add-on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["group", "resource"]))]
    pub supported_configs: Vec<ConfigKind>,
    /// The configuration that is in force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub config_references: Vec<ConfigReference>,
    /// Objects that are of interest to people who look at the add-on.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<RelatedObject>,
}

/// A credential for the hub.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Registration {
    /// Who signs it.
    #[schemars(length(min = 5, max = 571))]
    pub signer_name: String,
    /// Whose it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<RegistrationSubject>,
}

/// Whose credential it is.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct RegistrationSubject {
    /// The user's name.
    pub user: String,
    /// The user's groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// The organisational units.
    #[serde(rename = "organizationUnit", skip_serializing_if = "Vec::is_empty")]
    pub organization_units: Vec<String>,
}

/// How it is found out whether an add-on is available.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthCheck {
    /// `Lease` (the agent keeps one) or `Customized` (the add-on's manager says so).
    #[schemars(regex(pattern = r"^(Lease|Customized)$"))]
    pub mode: String,
}

impl Default for HealthCheck {
    fn default() -> Self {
        Self { mode: "Lease".into() }
    }
}

//! ClusterManagementAddOn: an add-on that the hub knows.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{AddOnConfig, AddOnMeta, ConfigCoordinates, DefaultConfigReference, InstallProgression};
use crate::work::RolloutStrategy;

/// What an add-on is and where it shall be installed.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "addon.open-cluster-management.io",
    version = "v1alpha1",
    kind = "ClusterManagementAddOn",
    doc = "An add-on that the hub knows. The ManagedClusterAddOns of the same name say on which clusters it runs.",
    status = "ClusterManagementAddOnStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "cma",
    shortname = "cmas",
    printcolumn = r#"{"name": "DISPLAY NAME", "type": "string", "jsonPath": ".spec.addOnMeta.displayName"}"#,
    printcolumn = r#"{"name": "CRD NAME", "type": "string", "jsonPath": ".spec.addOnConfiguration.crdName"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterManagementAddOnSpec {
    /// What people read about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_on_meta: Option<AddOnMeta>,
    /// The kind that configures it, in the older way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add_on_configuration: Option<ConfigCoordinates>,
    /// The kinds that may configure it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["group", "resource"]))]
    pub supported_configs: Vec<SupportedConfig>,
    /// Where it is installed: on the clusters of placements, or only where a ManagedClusterAddOn is created by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {"type": "Manual"}))]
    pub install_strategy: Option<InstallStrategy>,
}

/// A kind that may configure an add-on.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SupportedConfig {
    /// Its API group.
    #[serde(default)]
    pub group: String,
    /// Its resource name, in the plural.
    #[schemars(length(min = 1))]
    pub resource: String,
    /// The object that is used unless another one is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_config: Option<ConfigReferent>,
}

/// Names an object that configures an add-on.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReferent {
    /// Its namespace; none means that it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
}

/// Where an add-on is installed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InstallStrategy {
    /// `Manual` (each ManagedClusterAddOn is created by hand) or `Placements`.
    #[serde(rename = "type", default = "manual")]
    #[schemars(regex(pattern = r"^(Manual|Placements)$"))]
    pub type_: String,
    /// The placements whose clusters get the add-on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["namespace", "name"]))]
    pub placements: Vec<PlacementStrategy>,
}

/// A placement whose clusters get an add-on.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStrategy {
    /// The placement's namespace.
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// The placement's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The configuration on those clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub configs: Vec<AddOnConfig>,
    /// How changes reach those clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = {"type": "All"}))]
    pub rollout_strategy: Option<RolloutStrategy>,
}

/// What is true of an add-on as a whole.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterManagementAddOnStatus {
    /// The configuration where no placement says otherwise.
    #[serde(rename = "defaultconfigReferences", skip_serializing_if = "Vec::is_empty")]
    pub default_config_references: Vec<DefaultConfigReference>,
    /// How the installation proceeds, per placement.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub install_progressions: Vec<InstallProgression>,
}

fn manual() -> String {
    "Manual".into()
}

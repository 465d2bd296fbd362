//! What the status of add-ons says about their configuration and installation.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A kind that may configure an add-on.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigKind {
    /// Its API group.
    #[serde(default)]
    pub group: String,
    /// Its resource name, in the plural.
    #[schemars(length(min = 1))]
    pub resource: String,
}

/// An object that configures an add-on, as it was at some time.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigAsOf {
    /// Its namespace; none means that it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The hash of its spec.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec_hash: Option<String>,
}

/// The configuration of an add-on on one cluster.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ConfigReference {
    /// The object's API group.
    #[serde(default)]
    pub group: String,
    /// The object's resource name, in the plural.
    #[schemars(length(min = 1))]
    pub resource: String,
    /// The object's namespace; none means that it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// The object's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The generation of the object that was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_observed_generation: Option<i64>,
    /// What is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_config: Option<ConfigAsOf>,
    /// What is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_config: Option<ConfigAsOf>,
}

/// An object that is of interest to people who look at an add-on.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RelatedObject {
    /// Its API group.
    pub group: String,
    /// Its resource name, in the plural.
    pub resource: String,
    /// Its namespace; none means that it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
}

/// The configuration of an add-on where no placement says otherwise.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DefaultConfigReference {
    /// The object's API group.
    #[serde(default)]
    pub group: String,
    /// The object's resource name, in the plural.
    #[schemars(length(min = 1))]
    pub resource: String,
    /// What is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_config: Option<ConfigAsOf>,
}

/// How far an add-on is installed on the clusters of one placement.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InstallProgression {
    /// The placement's namespace.
    #[schemars(length(min = 1))]
    pub namespace: String,
    /// The placement's name.
    #[schemars(length(min = 1))]
    pub name: String,
    /// The configuration on those clusters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub config_references: Vec<InstallConfigReference>,
    /// Whether it is installed there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The configuration of an add-on on the clusters of one placement.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct InstallConfigReference {
    /// The object's API group.
    #[serde(default)]
    pub group: String,
    /// The object's resource name, in the plural.
    #[schemars(length(min = 1))]
    pub resource: String,
    /// What is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_config: Option<ConfigAsOf>,
    /// What was known to work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_known_good_config: Option<ConfigAsOf>,
    /// What is in force.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_applied_config: Option<ConfigAsOf>,
}

//! The description and the configuration of an add-on, as both kinds of add-ons hold them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What people read about an add-on.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct AddOnMeta {
    /// The name to show.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// What it is for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
}

/// A kind that configures an add-on, in the older way.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ConfigCoordinates {
    /// The definition's name.
    #[serde(rename = "crdName", skip_serializing_if = "String::is_empty")]
    pub crd_name: String,
    /// The object's name.
    #[serde(rename = "crName", skip_serializing_if = "String::is_empty")]
    pub cr_name: String,
    /// The generation of the object that was last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_observed_generation: Option<i64>,
}

/// An object that configures an add-on.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AddOnConfig {
    /// Its API group.
    #[serde(default)]
    pub group: String,
    /// Its resource name, in the plural.
    #[schemars(length(min = 1))]
    pub resource: String,
    /// Its namespace; none means that it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1))]
    pub name: String,
}

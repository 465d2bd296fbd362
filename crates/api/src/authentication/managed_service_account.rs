//! ManagedServiceAccount: a ServiceAccount on a managed cluster, its token kept fresh in a Secret on the hub.

use k8s_openapi::{
    apiextensions_apiserver::pkg::apis::apiextensions::v1::{CustomResourceDefinition, JSON},
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use kube::{CustomResource, CustomResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CONDITION_PRESENT, REASON_NOT_OURS, REASON_RESERVED};

/// What shall be true of the account.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "authentication.open-cluster-management.io",
    version = "v1beta1",
    kind = "ManagedServiceAccount",
    doc = "A ServiceAccount on a managed cluster, whose token is kept fresh in a Secret of the same name and namespace on the hub. In the namespace of a cluster it is an account on that cluster; in a namespace that is bound to cluster sets, one on each of their clusters.",
    namespaced,
    status = "ManagedServiceAccountStatus",
    derive = "Default",
    derive = "PartialEq",
    shortname = "msa",
    printcolumn = r#"{"name": "Reported", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"TokenReported\")].status"}"#,
    printcolumn = r#"{"name": "Expires", "type": "string", "jsonPath": ".status.expirationTimestamp"}"#,
    printcolumn = r#"{"name": "Clusters", "type": "integer", "jsonPath": ".status.clusters.total", "priority": 1}"#,
    printcolumn = r#"{"name": "Ready", "type": "integer", "jsonPath": ".status.clusters.ready", "priority": 1}"#,
    printcolumn = r#"{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedServiceAccountSpec {
    /// The audiences of the token. None means the audience of the managed cluster's API server, which is what
    /// a token needs to authenticate there.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "audiences")]
    pub audiences: Option<Vec<String>>,
    /// How the token is renewed.
    pub rotation: Rotation,
    /// Delete this object so many seconds after its creation, and the account with it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "ttl")]
    pub ttl_seconds_after_creation: Option<i32>,
}

/// How a token is renewed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Rotation {
    /// Whether the token is renewed before it expires. Ignored in this API group: tokens are always renewed.
    pub enabled: bool,
    /// How long a token shall live, as a Go duration such as `720h`. The managed cluster may grant less.
    #[schemars(schema_with = "validity")]
    pub validity: String,
}

/// A validity is a Go duration, in CEL; [`super::validity::parse`] says the same in Rust.
const SYNTAX: &str = r"self.matches('^[-+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h))+$|^[-+]?0$')";
/// A validity is within the bounds of a TokenRequest, in CEL. What `duration` cannot read is refused as too long.
const BOUNDS: &str = r"!self.matches('^[-+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h))+$|^[-+]?0$') || (self.matches('^[-+]?(([0-9]{1,9}([.][0-9]{0,9})?|[.][0-9]{1,9})(ns|us|µs|ms|s|m|h)){1,8}$') && duration(self) >= duration('10m') && duration(self) < duration('1193046h28m17s'))";

impl Default for Rotation {
    fn default() -> Self {
        Self {
            enabled: true,
            validity: super::validity::DEFAULT.into(),
        }
    }
}

/// What is true of the account.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ManagedServiceAccountStatus {
    /// Whether the Secret is there, the token reported, the ServiceAccount present.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// When the token in the Secret expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expiration_timestamp: Option<Time>,
    /// The Secret that holds the token. It changes with every new token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretRef>,
    /// A digest of what the agent put into the Secret, to notice changes by others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub secret_digest: Option<String>,
    /// In a cluster-set namespace: how many clusters have the account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clusters: Option<ClusterCounts>,
}

impl ManagedServiceAccountStatus {
    /// The agent's message, if a ServiceAccount of the account's name exists that belongs to another owner. No change of the account's
    /// spec makes it its own, so it does not matter of which generation this is.
    pub fn not_own(&self) -> Option<&Condition> {
        self.conditions.iter().find(|said| {
            said.type_ == CONDITION_PRESENT
                && said.status == "False"
                && [REASON_NOT_OURS, REASON_RESERVED].contains(&said.reason.as_str())
        })
    }
}

/// The Secret that holds a token.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct SecretRef {
    /// Its name, in the namespace of the account.
    pub name: String,
    /// When the token in it was last renewed.
    pub last_refresh_timestamp: Time,
}

/// How an account fares on the clusters of its sets.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterCounts {
    /// The clusters of the bound sets.
    pub total: i32,
    /// Those whose token is on the hub.
    pub ready: i32,
    /// Those where it failed, the first hundred by name; clusters that are merely not there yet are not named.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failing: Vec<FailingCluster>,
}

/// A cluster on which an account failed.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct FailingCluster {
    /// The cluster's name.
    pub name: String,
    /// One word that says why.
    pub reason: String,
    /// What a person reads.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

pub(crate) fn audiences(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "array",
        "items": { "type": "string", "minLength": 1, "maxLength": 1024 },
        "maxItems": 64,
        "x-kubernetes-list-type": "set",
    })
}

/// The schema of a validity: text with a default, a syntax and bounds.
pub(crate) fn validity(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "string",
        "default": super::validity::DEFAULT,
        "maxLength": 128,
        "x-kubernetes-validations": [
            {
                "rule": SYNTAX,
                "message": "is not a duration: use hours, minutes and seconds, such as 720h or 8640h0m0s",
            },
            {
                "rule": BOUNDS,
                "message": "must be at least 10m0s and at most 1193046h28m16s, or no API server grants a token",
            },
        ],
    })
}

fn ttl(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "integer", "format": "int32", "minimum": 0, "exclusiveMinimum": true })
}

/// The definition with its versions: `v1beta1` is stored, `v1alpha1` is the same under its older name.
pub(super) fn definition() -> CustomResourceDefinition {
    let mut crd = ManagedServiceAccount::crd();
    spec_may_be_left_out(&mut crd);
    if let Some(current) = crd.spec.versions.first() {
        let mut older = current.clone();
        older.name = "v1alpha1".into();
        older.storage = false;
        older.deprecated = Some(true);
        older.deprecation_warning = Some(
            "authentication.open-cluster-management.io/v1alpha1 ManagedServiceAccount is deprecated; use v1beta1"
                .into(),
        );
        crd.spec.versions.push(older);
    }
    crd
}

/// An account without a `spec` is one with every default.
pub(crate) fn spec_may_be_left_out(crd: &mut CustomResourceDefinition) {
    for version in &mut crd.spec.versions {
        let Some(root) = version
            .schema
            .as_mut()
            .and_then(|schema| schema.open_api_v3_schema.as_mut())
        else {
            continue;
        };
        if let Some(required) = &mut root.required {
            required.retain(|field| field != "spec");
        }
        if let Some(spec) = root
            .properties
            .as_mut()
            .and_then(|properties| properties.get_mut("spec"))
        {
            spec.default = Some(JSON(serde_json::json!({ "rotation": {} })));
            spec.required = Some(vec!["rotation".into()]);
            // The fields of a rotation have defaults; the rotation itself must be written, if a spec is.
            if let Some(rotation) = spec
                .properties
                .as_mut()
                .and_then(|properties| properties.get_mut("rotation"))
            {
                rotation.default = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn has_both_versions_with_one_schema() {
        let crd = definition();
        let versions: Vec<_> = crd
            .spec
            .versions
            .iter()
            .map(|v| (v.name.as_str(), v.served, v.storage))
            .collect();
        assert_eq!(versions, [("v1beta1", true, true), ("v1alpha1", true, false)]);
        assert_eq!(crd.spec.versions[0].schema, crd.spec.versions[1].schema);
    }

    #[test]
    fn an_account_as_others_write_it_is_understood() {
        let text = r#"{"apiVersion":"authentication.open-cluster-management.io/v1beta1",
            "kind":"ManagedServiceAccount","metadata":{"name":"a","namespace":"c1"},
            "spec":{"rotation":{}}}"#;
        let account: ManagedServiceAccount = serde_json::from_str(text).unwrap();
        assert!(account.spec.rotation.enabled);
        assert_eq!(account.spec.rotation.validity, "8640h0m0s");
        assert_eq!(account.spec.audiences, None);
    }
}

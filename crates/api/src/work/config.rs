//! How single manifests of a work are applied and reported.

use kube::KubeSchema;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The configuration of the manifests that an identifier matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManifestConfig {
    /// Which manifests this is for. `name` and `namespace` may hold `*` for any characters.
    pub resource_identifier: ResourceIdentifier,
    /// Which fields of the object to report to the hub.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub feedback_rules: Vec<FeedbackRule>,
    /// How the object is written. Absent means `Update`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub update_strategy: Option<UpdateStrategy>,
    /// Conditions to compute from the object.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["condition"]))]
    pub condition_rules: Vec<ConditionRule>,
    /// How changes of the object are noticed. The agent watches in both cases.
    #[serde(default)]
    pub feedback_scrape_type: ScrapeType,
}

/// A resource on the managed cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourceIdentifier {
    /// The API group; empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// The resource, plural and in lower case, such as `deployments`.
    pub resource: String,
    /// The name.
    pub name: String,
    /// The namespace; empty for a cluster-scoped resource.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

impl ResourceIdentifier {
    /// Whether this is about an object; `*` in namespace and name stands for any characters.
    pub fn matches(&self, group: &str, resource: &str, namespace: &str, name: &str) -> bool {
        self.group == group
            && self.resource == resource
            && wildcard(&self.namespace, namespace)
            && wildcard(&self.name, name)
    }
}

/// Whether the text matches a pattern in which `*` stands for any characters.
fn wildcard(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = parts.next().and_then(|first| text.strip_prefix(first)) else {
        return false;
    };
    let parts: Vec<&str> = parts.collect();
    let Some((last, middle)) = parts.split_last() else {
        return rest.is_empty();
    };
    for part in middle {
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    rest.ends_with(last)
}

/// One way to pick fields of an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FeedbackRule {
    /// Whether the fields are known by kind or named here.
    #[serde(rename = "type")]
    pub type_: FeedbackType,
    /// The fields, if the type is `JSONPaths`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub json_paths: Vec<JsonPath>,
}

/// Where the fields of a feedback rule come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FeedbackType {
    /// A fixed set for well-known kinds (Deployment, DaemonSet, Job, Pod and more).
    WellKnownStatus,
    /// The paths of the rule.
    #[serde(rename = "JSONPaths")]
    JsonPaths,
}

/// One field of an object, under a name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct JsonPath {
    /// The name of the reported value.
    pub name: String,
    /// The API version that the path is written for; empty means any.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub version: String,
    /// The path, in the JSONPath dialect of kubectl.
    pub path: String,
}

/// How an object is written.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpdateStrategy {
    /// The strategy.
    #[serde(rename = "type", default)]
    pub type_: UpdateStrategyType,
    /// Details, if the type is `ServerSideApply`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_side_apply: Option<ServerSideApply>,
}

/// The strategies to write an object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum UpdateStrategyType {
    /// Everything that the manifest says is enforced.
    #[default]
    Update,
    /// Created if it is missing, never changed afterwards.
    CreateOnly,
    /// Applied by the API server's field ownership; conflicts are reported.
    ServerSideApply,
    /// Never written, only reported.
    ReadOnly,
}

/// Details of `ServerSideApply`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ServerSideApply {
    /// Takes fields away from other managers instead of reporting a conflict.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub force: bool,
    /// The field manager; it starts with `work-agent`.
    #[serde(default = "default_field_manager")]
    #[schemars(regex(pattern = r"^work-agent"))]
    pub field_manager: String,
    /// Fields of the manifest that are left alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["condition"]))]
    pub ignore_fields: Vec<IgnoreField>,
}

impl Default for ServerSideApply {
    fn default() -> Self {
        Self {
            force: false,
            field_manager: default_field_manager(),
            ignore_fields: Vec::new(),
        }
    }
}

fn default_field_manager() -> String {
    super::DEFAULT_FIELD_MANAGER.into()
}

/// Fields to leave alone, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IgnoreField {
    /// When the fields are left alone.
    #[serde(default)]
    pub condition: IgnoreFieldCondition,
    /// Fields in the JSONPath dialect of kubectl.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json_paths: Vec<String>,
    /// Fields as JSON pointers (RFC 6901).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub json_pointers: Vec<String>,
    /// Fields as jq path expressions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jq_path_expressions: Vec<String>,
}

/// When ignored fields are left alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum IgnoreFieldCondition {
    /// As soon as the object exists.
    #[default]
    OnSpokePresent,
    /// Until the manifest changes.
    OnSpokeChange,
}

/// A condition that is computed from an object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.type != 'CEL' || self.condition != \"\"").message("Condition is required for CEL rules"))]
pub struct ConditionRule {
    /// The type of the condition. `Complete` also ends the work on the manifest.
    pub condition: String,
    /// How the condition is computed.
    #[serde(rename = "type")]
    pub type_: ConditionRuleType,
    /// CEL expressions over `object`; all must be true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cel_expressions: Vec<String>,
    /// The condition's message.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// A CEL expression over `object` and `result` whose text replaces the message unless it is empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message_expression: String,
}

impl ConditionRule {
    /// Every expression that is evaluated for it.
    pub fn expressions(&self) -> impl Iterator<Item = &String> {
        let message = (!self.message_expression.is_empty()).then_some(&self.message_expression);
        self.cel_expressions.iter().chain(message)
    }
}

/// How a condition is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ConditionRuleType {
    /// From what is known of the kind.
    WellKnownConditions,
    /// From the expressions of the rule.
    #[serde(rename = "CEL")]
    Cel,
}

/// How changes of an object are noticed by upstream's agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ScrapeType {
    /// In intervals.
    #[default]
    Poll,
    /// By a watch.
    Watch,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_stand_for_any_characters_anywhere() {
        for (pattern, text, expected) in [
            ("web", "web", true),
            ("web", "web1", false),
            ("*", "", true),
            ("*", "anything", true),
            ("web-*", "web-1", true),
            ("web-*", "we", false),
            ("*-1", "web-1", true),
            ("w*b*1", "web-1", true),
            ("w*x*1", "web-1", false),
            ("web*web", "web", false),
            ("", "", true),
            ("", "a", false),
        ] {
            assert_eq!(wildcard(pattern, text), expected, "{pattern} {text}");
        }
    }
}

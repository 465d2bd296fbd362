//! How a change reaches the clusters of a placement: at once, or step by step.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::NumberOrText;

/// The pattern of a success time: a duration as Go writes it.
const SUCCESS_TIME: &str = r"^[-+]?(0|([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+$";
/// The pattern of a deadline.
const DEADLINE: &str = r"^(([0-9])+[h|m|s])|None$";
/// The pattern of a share.
const SHARE: &str = r"^((100|[0-9]{1,2})%|[0-9]+)$";

/// One of three ways to roll out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutStrategy {
    /// Which of the fields below holds the details.
    #[serde(rename = "type", default)]
    pub type_: RolloutType,
    /// Details of `All`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all: Option<RolloutAll>,
    /// Details of `Progressive`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressive: Option<RolloutProgressive>,
    /// Details of `ProgressivePerGroup`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progressive_per_group: Option<RolloutProgressivePerGroup>,
}

impl Default for RolloutStrategy {
    fn default() -> Self {
        Self {
            type_: RolloutType::All,
            all: Some(RolloutAll::default()),
            progressive: None,
            progressive_per_group: None,
        }
    }
}

/// The ways to roll out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RolloutType {
    /// To all clusters at once.
    #[default]
    All,
    /// To so many clusters at a time.
    Progressive,
    /// To one decision group after the other.
    ProgressivePerGroup,
}

/// Details of a rollout to all clusters at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutAll {
    /// How long a cluster must have succeeded to count.
    #[serde(default = "zero")]
    #[schemars(regex(pattern = SUCCESS_TIME))]
    pub min_success_time: String,
    /// How long a cluster may take before it counts as timed out; `None` for ever.
    #[serde(default = "none")]
    #[schemars(regex(pattern = DEADLINE))]
    pub progress_deadline: String,
    /// How many failed clusters, as a number or a percentage, stop the rollout.
    #[serde(default = "no_failures")]
    #[schemars(schema_with = "share")]
    pub max_failures: NumberOrText,
}

impl Default for RolloutAll {
    fn default() -> Self {
        Self {
            min_success_time: zero(),
            progress_deadline: none(),
            max_failures: no_failures(),
        }
    }
}

/// Details of a rollout to so many clusters at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutProgressive {
    /// How long a cluster must have succeeded to count.
    #[serde(default = "zero")]
    #[schemars(regex(pattern = SUCCESS_TIME))]
    pub min_success_time: String,
    /// How long a cluster may take before it counts as timed out; `None` for ever.
    #[serde(default = "none")]
    #[schemars(regex(pattern = DEADLINE))]
    pub progress_deadline: String,
    /// How many failed clusters, as a number or a percentage, stop the rollout.
    #[serde(default = "no_failures")]
    #[schemars(schema_with = "share")]
    pub max_failures: NumberOrText,
    /// The groups that must succeed before the others begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mandatory_decision_groups: Vec<MandatoryDecisionGroup>,
    /// How many clusters at a time, as a number or a percentage; absent means all of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "share")]
    pub max_concurrency: Option<NumberOrText>,
}

impl Default for RolloutProgressive {
    fn default() -> Self {
        Self {
            min_success_time: zero(),
            progress_deadline: none(),
            max_failures: no_failures(),
            mandatory_decision_groups: Vec::new(),
            max_concurrency: None,
        }
    }
}

/// Details of a rollout to one decision group after the other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RolloutProgressivePerGroup {
    /// How long a cluster must have succeeded to count.
    #[serde(default = "zero")]
    #[schemars(regex(pattern = SUCCESS_TIME))]
    pub min_success_time: String,
    /// How long a cluster may take before it counts as timed out; `None` for ever.
    #[serde(default = "none")]
    #[schemars(regex(pattern = DEADLINE))]
    pub progress_deadline: String,
    /// How many failed clusters, as a number or a percentage, stop the rollout.
    #[serde(default = "no_failures")]
    #[schemars(schema_with = "share")]
    pub max_failures: NumberOrText,
    /// The groups that must succeed before the others begin.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mandatory_decision_groups: Vec<MandatoryDecisionGroup>,
}

impl Default for RolloutProgressivePerGroup {
    fn default() -> Self {
        Self {
            min_success_time: zero(),
            progress_deadline: none(),
            max_failures: no_failures(),
            mandatory_decision_groups: Vec::new(),
        }
    }
}

/// A decision group, by name or by index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MandatoryDecisionGroup {
    /// The group's name; it wins over the index.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub group_name: String,
    /// The group's index.
    #[serde(default, skip_serializing_if = "is_first")]
    pub group_index: i32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_first(index: &i32) -> bool {
    *index == 0
}

fn zero() -> String {
    "0".into()
}

fn none() -> String {
    "None".into()
}

fn no_failures() -> NumberOrText {
    0.into()
}

fn share(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "x-kubernetes-int-or-string": true,
        "pattern": SHARE,
    })
}

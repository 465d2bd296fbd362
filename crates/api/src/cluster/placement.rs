//! Placement: a rule that chooses clusters out of the sets that are bound to its namespace.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, LabelSelectorRequirement};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::managed_cluster::TaintEffect;
use crate::NumberOrText;

/// The annotation that makes the scheduler ignore a placement, with value `true`.
pub const SCHEDULING_DISABLE_ANNOTATION: &str =
    "cluster.open-cluster-management.io/experimental-scheduling-disable";
/// Condition: as many clusters were found as were asked for.
pub const CONDITION_SATISFIED: &str = "PlacementSatisfied";
/// Condition: the placement asks for something that cannot be understood.
pub const CONDITION_MISCONFIGURED: &str = "PlacementMisconfigured";

/// Which clusters are wanted. An empty spec wants all clusters of all sets bound to the namespace.
#[derive(CustomResource, JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[kube(
    group = "cluster.open-cluster-management.io",
    version = "v1beta1",
    kind = "Placement",
    shortname = "plc",
    namespaced,
    status = "PlacementStatus",
    derive = "Default",
    derive = "PartialEq",
    doc = "A rule that chooses clusters out of the sets that are bound to its namespace.",
    printcolumn = r#"{"name": "Succeeded", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"PlacementSatisfied\")].status"}"#,
    printcolumn = r#"{"name": "Reason", "type": "string", "jsonPath": ".status.conditions[?(@.type==\"PlacementSatisfied\")].reason"}"#,
    printcolumn = r#"{"name": "SelectedClusters", "type": "integer", "jsonPath": ".status.numberOfSelectedClusters"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct PlacementSpec {
    /// The sets to choose from, as far as they are bound to the namespace. None means all that are bound.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_sets: Vec<String>,
    /// How many clusters are wanted; absent means all that qualify.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub number_of_clusters: Option<i32>,
    /// What a cluster must be like. It is enough that one of them holds; none holds for every cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub predicates: Vec<ClusterPredicate>,
    /// Which clusters come first when there are more than wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prioritizer_policy: Option<PrioritizerPolicy>,
    /// How the choice spreads over regions, zones or anything that clusters have labels or claims for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread_policy: Option<SpreadPolicy>,
    /// The taints that do not keep clusters away.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// How the chosen clusters are divided into groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision_strategy: Option<DecisionStrategy>,
    /// The order of the clusters in the decisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "ClusterName"))]
    pub sort_by: Option<SortBy>,
    /// How often at most a change of scores alone is written to the decisions, such as `1m`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = "^[0-9]+[hms]$"), extend("default" = "1m"))]
    pub score_rate_limit: Option<String>,
}

/// The order of the clusters in the decisions.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SortBy {
    /// By name.
    #[default]
    ClusterName,
    /// Best score first, then by name.
    Score,
}

/// What a cluster must be like.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPredicate {
    /// All parts of it must hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required_cluster_selector: Option<ClusterSelector>,
}

/// Chooses clusters by labels, claims and CEL; all must hold, an empty one holds always.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSelector {
    /// By labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub label_selector: Option<LabelSelector>,
    /// By the claims that the cluster reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_selector: Option<ClaimSelector>,
    /// By expressions over the whole object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cel_selector: Option<CelSelector>,
}

/// Chooses clusters by claims.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClaimSelector {
    /// All of them must hold.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub match_expressions: Vec<LabelSelectorRequirement>,
}

/// Chooses clusters by CEL.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CelSelector {
    /// Expressions over `managedCluster`; all must be true.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cel_expressions: Vec<String>,
}

/// How clusters are ranked.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PrioritizerPolicy {
    /// `Additive` adds the configurations to the defaults, `Exact` counts nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Additive"))]
    pub mode: Option<String>,
    /// The weight of each score.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub configurations: Vec<PrioritizerConfig>,
}

/// The weight of one score.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct PrioritizerConfig {
    /// Which score.
    pub score_coordinate: ScoreCoordinate,
    /// Its weight; zero switches it off, below zero prefers the lowest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -10, max = 10), extend("default" = 1))]
    pub weight: Option<i32>,
}

/// One score: built in, or measured by an add-on.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct ScoreCoordinate {
    /// Where it comes from.
    #[serde(rename = "type", default)]
    pub type_: ScoreType,
    /// With `BuiltIn`: `Balance`, `Steady`, `ResourceAllocatableCPU` or `ResourceAllocatableMemory`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub built_in: Option<String>,
    /// With `AddOn`: which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub add_on: Option<AddOnScore>,
}

/// Where a score comes from.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScoreType {
    /// The scheduler computes it.
    #[default]
    BuiltIn,
    /// An AddOnPlacementScore in the namespace of the cluster holds it.
    AddOn,
}

/// A score of an AddOnPlacementScore.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AddOnScore {
    /// The name of the AddOnPlacementScore.
    pub resource_name: String,
    /// The name of the score in it.
    pub score_name: String,
}

/// How the choice spreads.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SpreadPolicy {
    /// The constraints, the most important first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub spread_constraints: Vec<SpreadConstraint>,
}

/// Keeps the numbers of chosen clusters per topology close to each other.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct SpreadConstraint {
    /// The label key or claim name whose value is the topology.
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$"
        )
    )]
    pub topology_key: String,
    /// Whether the key is a label or a claim.
    pub topology_key_type: TopologyKeyType,
    /// How far the fullest topology may be ahead of the emptiest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1), extend("default" = 1))]
    pub max_skew: Option<i32>,
    /// What happens when that cannot be kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "ScheduleAnyway"))]
    pub when_unsatisfiable: Option<WhenUnsatisfiable>,
}

/// Where a topology is read from.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopologyKeyType {
    /// A label of the cluster.
    Label,
    /// A claim of the cluster.
    Claim,
}

/// What happens when a spread constraint cannot be kept.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WhenUnsatisfiable {
    /// Fewer clusters are chosen.
    DoNotSchedule,
    /// The constraint is only preferred.
    #[default]
    ScheduleAnyway,
}

/// Taints that do not keep clusters away.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Toleration {
    /// The key of the taint; empty, with operator `Exists`, means every taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        length(max = 316),
        regex(
            pattern = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$"
        )
    )]
    pub key: Option<String>,
    /// `Equal` compares the value, `Exists` does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "Equal"))]
    pub operator: Option<String>,
    /// The value of the taint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1024))]
    pub value: Option<String>,
    /// The effect of the taint; absent means every effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub effect: Option<TaintEffect>,
    /// For how long after the taint was added it is tolerated; absent means forever.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

/// How the chosen clusters are divided.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionStrategy {
    /// The groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_strategy: Option<GroupStrategy>,
}

/// The groups that chosen clusters are divided into.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GroupStrategy {
    /// Groups with a name; a cluster goes to the first that it matches, the others follow after them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decision_groups: Vec<DecisionGroup>,
    /// How many clusters a group has at most, as a number or a percentage of all chosen clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "100%", "pattern" = "^((100|[1-9][0-9]{0,1})%|[1-9][0-9]*)$"))]
    pub clusters_per_decision_group: Option<NumberOrText>,
}

/// A group with a name.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionGroup {
    /// The name, set as a label on the group's decisions.
    #[schemars(regex(pattern = r"^[a-zA-Z0-9][-A-Za-z0-9_.]{0,61}[a-zA-Z0-9]$"))]
    pub group_name: String,
    /// The clusters of the group.
    pub group_cluster_selector: GroupSelector,
}

/// Chooses the clusters of a group by labels and claims; both must hold.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct GroupSelector {
    /// By labels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-map-type" = "atomic"))]
    pub label_selector: Option<LabelSelector>,
    /// By claims.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_selector: Option<ClaimSelector>,
}

/// What came out.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlacementStatus {
    /// How many clusters were chosen.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub number_of_selected_clusters: i32,
    /// The groups, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decision_groups: Vec<DecisionGroupStatus>,
    /// Whether enough clusters were found, and whether the placement can be understood.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// When scores alone last changed the decisions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_score_update_time: Option<String>,
}

/// One group of decisions.
#[derive(JsonSchema, Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct DecisionGroupStatus {
    /// Its number, from zero.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub decision_group_index: i32,
    /// Its name, empty for groups without one.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub decision_group_name: String,
    /// The PlacementDecisions that hold it.
    #[serde(default)]
    #[schemars(extend("default" = null))]
    pub decisions: Vec<String>,
    /// How many clusters are in it.
    #[serde(default)]
    pub cluster_count: i32,
}

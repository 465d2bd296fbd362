//! `work.open-cluster-management.io`: objects to deliver to managed clusters.

pub mod applied_manifest_work;
pub mod config;
pub mod executor;
pub mod manifest_work;
pub mod manifest_work_replica_set;
pub mod rollout;

pub use applied_manifest_work::{
    AppliedManifestWork, AppliedManifestWorkSpec, AppliedManifestWorkStatus, AppliedResource,
};
pub use config::{
    ConditionRule, ConditionRuleType, FeedbackRule, FeedbackType, IgnoreField, IgnoreFieldCondition,
    JsonPath, ManifestConfig, ResourceIdentifier, ScrapeType, ServerSideApply, UpdateStrategy,
    UpdateStrategyType,
};
pub use executor::{Executor, ExecutorServiceAccount, ExecutorSubject, ExecutorSubjectType};
pub use manifest_work::{
    DeleteOption, FeedbackValue, FieldValue, FieldValueType, Manifest, ManifestCondition,
    ManifestResourceMeta, ManifestResourceStatus, ManifestWork, ManifestWorkSpec, ManifestWorkStatus,
    OrphaningRule, PropagationPolicy, SelectivelyOrphan, StatusFeedback, Workload,
};
pub use manifest_work_replica_set::{
    CascadeDeletionPolicy, ManifestWorkReplicaSet, ManifestWorkReplicaSetSpec, ManifestWorkReplicaSetStatus,
    PlacementRef, PlacementSummary, Summary,
};
pub use rollout::{
    MandatoryDecisionGroup, RolloutAll, RolloutProgressive, RolloutProgressivePerGroup, RolloutStrategy,
    RolloutType,
};

#[cfg(test)]
mod tests;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use crate::schema;

/// The API group.
pub const GROUP: &str = "work.open-cluster-management.io";

/// The condition of a ManifestWork from which something is left that it no longer delivers. Not there if nothing is.
pub const PRUNED_CONDITION: &str = "Pruned";

/// The reason that our agents give with it.
pub const PRUNED_REASON: &str = "ObjectsLeft";

/// The finalizer of the agent on a ManifestWork.
pub const MANIFEST_WORK_FINALIZER: &str = "cluster.open-cluster-management.io/manifest-work-cleanup";

/// The finalizer of the agent on an AppliedManifestWork.
pub const APPLIED_MANIFEST_WORK_FINALIZER: &str =
    "cluster.open-cluster-management.io/applied-manifest-work-cleanup";

/// The finalizer of the hub on a ManifestWorkReplicaSet.
pub const REPLICA_SET_FINALIZER: &str = "work.open-cluster-management.io/manifest-work-cleanup";

/// On a generated ManifestWork: `<namespace>.<name>` of its ManifestWorkReplicaSet.
pub const REPLICA_SET_LABEL: &str = "work.open-cluster-management.io/manifestworkreplicaset";

/// On a generated ManifestWork: the name of the Placement that selected its cluster.
pub const PLACEMENT_LABEL: &str = "work.open-cluster-management.io/placementname";

/// On an object that is applied with ignored fields: what the manifest was when it was applied.
pub const CONFIG_SPEC_HASH_ANNOTATION: &str = "open-cluster-management.io/config-spec-hash";

/// The field manager of an apply, unless the work says otherwise.
pub const DEFAULT_FIELD_MANAGER: &str = "work-agent";

/// The user that stands for a work without an executor when `execute-as` is asked: the agent itself.
pub const NIL_EXECUTOR: &str = "system:serviceaccount::klusterlet-work-sa";

/// How many CEL expressions the rules of one object may have: each may take some thousandths of a second.
pub const MAX_RULE_EXPRESSIONS: usize = 64;

/// The conditions by which an agent says what it did. A rule that computes one of them would speak for it.
pub const RESERVED_CONDITIONS: [&str; 5] = [
    "Applied",
    "StatusFeedbackSynced",
    "Deleting",
    PRUNED_CONDITION,
    WATCHED_CONDITION,
];

/// The condition of a work whose objects are not all watched.
pub const WATCHED_CONDITION: &str = "Watched";

/// The longest name of a work: its AppliedManifestWork is named by 64 digits, a dash and this.
pub const MANIFEST_WORK_NAME_LIMIT: usize = 253 - 64 - 1;

/// The definitions of this group, in the order of their names.
pub fn crds() -> Vec<CustomResourceDefinition> {
    vec![
        schema::without_required_spec(AppliedManifestWork::crd()),
        schema::without_required_spec(ManifestWorkReplicaSet::crd()),
        schema::with_default_spec(ManifestWork::crd(), &serde_json::json!({})),
    ]
}

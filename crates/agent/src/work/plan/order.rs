//! The order in which kinds are applied. The ranks are OCM's, by kind alone, except that bindings come after the roles
//! that they bind.

/// The rank of kinds without a rank of their own.
const OTHER: u16 = 1000;

/// The rank of a manifest without a kind.
pub const UNKNOWN: u16 = 1001;

/// The rank of a kind; lower ranks are applied first.
pub fn rank_of(kind: &str) -> u16 {
    match kind {
        "PriorityClass"
        | "Namespace"
        | "CustomResourceDefinition"
        | "StorageClass"
        | "PersistentVolume"
        | "PodSecurityPolicy" => 0,
        "ClusterRole" | "Role" => 1,
        "ClusterRoleBinding" | "RoleBinding" => 2,
        "NetworkPolicy" | "ResourceQuota" | "LimitRange" | "PodDisruptionBudget" | "ServiceAccount" => 3,
        "Secret" | "ConfigMap" | "PersistentVolumeClaim" => 4,
        "Service" => 5,
        "Deployment"
        | "StatefulSet"
        | "DaemonSet"
        | "ReplicaSet"
        | "ReplicationController"
        | "Pod"
        | "Job"
        | "CronJob"
        | "HorizontalPodAutoscaler" => 6,
        "APIService"
        | "MutatingWebhookConfiguration"
        | "ValidatingWebhookConfiguration"
        | "ValidatingAdmissionPolicy"
        | "ValidatingAdmissionPolicyBinding" => 7,
        "" => UNKNOWN,
        _ => OTHER,
    }
}

//! The order of an apply: what others need comes first. The ranks are upstream's, by kind alone, but that bindings
//! come after the roles that they bind.

/// The rank of what has no rank of its own.
pub const OTHER: u16 = 1000;

/// The rank of what is not even an object.
pub const UNKNOWN: u16 = 1001;

/// The rank of a kind; lower ranks are applied first.
pub fn of(kind: &str) -> u16 {
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

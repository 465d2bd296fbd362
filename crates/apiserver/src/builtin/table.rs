//! The table of built-in kinds.

use super::columns::{self as c, Column};
use super::{Kind, autoscaler};
use crate::schema::meta::NameRule;

const ALL: &[&str] = &[
    "create",
    "delete",
    "deletecollection",
    "get",
    "list",
    "patch",
    "update",
    "watch",
];
const CREATE: &[&str] = &["create"];
const NAME_AGE: &[Column] = &[c::NAME, c::AGE];

const fn kind(group: &'static str, kind: &'static str, plural: &'static str, singular: &'static str) -> Kind {
    Kind {
        group,
        version: "v1",
        kind,
        plural,
        singular,
        namespaced: true,
        short_names: &[],
        categories: &[],
        verbs: ALL,
        subresources: &[],
        selectable_fields: &[],
        name_rule: NameRule::Subdomain,
        has_generation: false,
        columns: NAME_AGE,
        stored: true,
    }
}

/// In its older version.
const AUTOSCALER: Kind = kind(
    "autoscaling",
    "HorizontalPodAutoscaler",
    "horizontalpodautoscalers",
    "horizontalpodautoscaler",
)
.short(&["hpa"])
.all()
.with(STATUS)
.printed(c::AUTOSCALER);

impl Kind {
    const fn cluster(mut self) -> Self {
        self.namespaced = false;
        self
    }
    const fn short(mut self, names: &'static [&'static str]) -> Self {
        self.short_names = names;
        self
    }
    const fn all(mut self) -> Self {
        self.categories = &["all"];
        self
    }
    const fn extension(mut self) -> Self {
        self.categories = &["api-extensions"];
        self
    }
    const fn with(mut self, subresources: &'static [&'static str]) -> Self {
        self.subresources = subresources;
        self
    }
    const fn selecting(mut self, fields: &'static [&'static str]) -> Self {
        self.selectable_fields = fields;
        self
    }
    const fn named(mut self, rule: NameRule) -> Self {
        self.name_rule = rule;
        self
    }
    const fn generation(mut self) -> Self {
        self.has_generation = true;
        self
    }
    const fn printed(mut self, columns: &'static [Column]) -> Self {
        self.columns = columns;
        self
    }
    const fn review(mut self) -> Self {
        self.verbs = CREATE;
        self.stored = false;
        self
    }
}

/// What is sent to `serviceaccounts/token`: a kind without a resource of its own.
pub const TOKEN_REQUEST: &Kind = &kind(AUTHN, "TokenRequest", "serviceaccounts", "serviceaccount").review();

const STATUS: &[&str] = &["status"];
const STATUS_SCALE: &[&str] = &["status", "scale"];
const ADMISSION: &str = "admissionregistration.k8s.io";
const RBAC: &str = "rbac.authorization.k8s.io";
const AUTHZ: &str = "authorization.k8s.io";
const AUTHN: &str = "authentication.k8s.io";
const EVENT_FIELDS: &[&str] = &[
    "involvedObject.kind",
    "involvedObject.namespace",
    "involvedObject.name",
    "involvedObject.uid",
    "involvedObject.apiVersion",
    "involvedObject.resourceVersion",
    "involvedObject.fieldPath",
    "reason",
    "reportingComponent",
    "source",
    "type",
];
const NEW_EVENT_FIELDS: &[&str] = &[
    "regarding.kind",
    "regarding.namespace",
    "regarding.name",
    "regarding.uid",
    "regarding.apiVersion",
    "regarding.resourceVersion",
    "regarding.fieldPath",
    "reason",
    "reportingController",
    "type",
];
const POD_FIELDS: &[&str] = &[
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "spec.hostNetwork",
    "status.phase",
    "status.podIP",
    "status.podIPs",
    "status.nominatedNodeName",
];

static KINDS: &[Kind] = &[
    kind("", "ConfigMap", "configmaps", "configmap")
        .short(&["cm"])
        .printed(c::CONFIG_MAP),
    kind("", "Endpoints", "endpoints", "endpoints")
        .short(&["ep"])
        .printed(c::ENDPOINTS),
    kind("", "Event", "events", "event")
        .short(&["ev"])
        .selecting(EVENT_FIELDS)
        .printed(c::EVENT),
    kind("", "LimitRange", "limitranges", "limitrange")
        .short(&["limits"])
        .printed(&[c::NAME, c::CREATED_AT]),
    kind("", "Namespace", "namespaces", "namespace")
        .cluster()
        .short(&["ns"])
        .with(&["status", "finalize"])
        .selecting(&["status.phase"])
        .named(NameRule::Label)
        .printed(c::NAMESPACE),
    kind("", "Node", "nodes", "node")
        .cluster()
        .short(&["no"])
        .with(STATUS)
        .selecting(&["spec.unschedulable"])
        .printed(c::NODE),
    kind("", "PersistentVolume", "persistentvolumes", "persistentvolume")
        .cluster()
        .short(&["pv"])
        .with(STATUS)
        .printed(c::PERSISTENT_VOLUME),
    kind(
        "",
        "PersistentVolumeClaim",
        "persistentvolumeclaims",
        "persistentvolumeclaim",
    )
    .short(&["pvc"])
    .with(STATUS)
    .printed(c::CLAIM),
    kind("", "Pod", "pods", "pod")
        .short(&["po"])
        .all()
        .with(STATUS)
        .selecting(POD_FIELDS)
        .generation()
        .printed(c::POD),
    kind(
        "",
        "ReplicationController",
        "replicationcontrollers",
        "replicationcontroller",
    )
    .short(&["rc"])
    .all()
    .with(STATUS_SCALE)
    .selecting(&["status.replicas"])
    .generation()
    .printed(c::REPLICATION_CONTROLLER),
    kind("", "ResourceQuota", "resourcequotas", "resourcequota")
        .short(&["quota"])
        .with(STATUS)
        .printed(c::QUOTA),
    kind("", "Secret", "secrets", "secret")
        .selecting(&["type"])
        .printed(c::SECRET),
    kind("", "Service", "services", "service")
        .short(&["svc"])
        .all()
        .with(STATUS)
        .selecting(&["spec.clusterIP", "spec.type"])
        .named(NameRule::Label)
        .printed(c::SERVICE),
    kind("", "ServiceAccount", "serviceaccounts", "serviceaccount")
        .short(&["sa"])
        .with(&["token"]),
    kind(
        ADMISSION,
        "MutatingWebhookConfiguration",
        "mutatingwebhookconfigurations",
        "mutatingwebhookconfiguration",
    )
    .cluster()
    .extension()
    .generation()
    .printed(c::WEBHOOKS),
    kind(
        ADMISSION,
        "ValidatingAdmissionPolicy",
        "validatingadmissionpolicies",
        "validatingadmissionpolicy",
    )
    .cluster()
    .extension()
    .with(STATUS)
    .generation()
    .printed(c::POLICY),
    kind(
        ADMISSION,
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        "validatingadmissionpolicybinding",
    )
    .cluster()
    .extension()
    .generation()
    .printed(c::POLICY_BINDING),
    kind(
        ADMISSION,
        "ValidatingWebhookConfiguration",
        "validatingwebhookconfigurations",
        "validatingwebhookconfiguration",
    )
    .cluster()
    .extension()
    .generation()
    .printed(c::WEBHOOKS),
    kind(
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        "customresourcedefinitions",
        "customresourcedefinition",
    )
    .cluster()
    .short(&["crd", "crds"])
    .extension()
    .with(STATUS)
    .generation()
    .printed(c::CRD),
    kind(
        "apps",
        "ControllerRevision",
        "controllerrevisions",
        "controllerrevision",
    ),
    kind("apps", "DaemonSet", "daemonsets", "daemonset")
        .short(&["ds"])
        .all()
        .with(STATUS)
        .generation()
        .printed(c::DAEMON_SET),
    kind("apps", "Deployment", "deployments", "deployment")
        .short(&["deploy"])
        .all()
        .with(STATUS_SCALE)
        .generation()
        .printed(c::DEPLOYMENT),
    kind("apps", "ReplicaSet", "replicasets", "replicaset")
        .short(&["rs"])
        .all()
        .with(STATUS_SCALE)
        .generation()
        .printed(c::REPLICA_SET),
    kind("apps", "StatefulSet", "statefulsets", "statefulset")
        .named(NameRule::Label)
        .short(&["sts"])
        .all()
        .with(STATUS_SCALE)
        .generation()
        .printed(c::STATEFUL_SET),
    kind(
        AUTHN,
        "SelfSubjectReview",
        "selfsubjectreviews",
        "selfsubjectreview",
    )
    .cluster()
    .review(),
    kind(AUTHN, "TokenReview", "tokenreviews", "tokenreview")
        .cluster()
        .review(),
    kind(
        AUTHZ,
        "LocalSubjectAccessReview",
        "localsubjectaccessreviews",
        "localsubjectaccessreview",
    )
    .review(),
    kind(
        AUTHZ,
        "SelfSubjectAccessReview",
        "selfsubjectaccessreviews",
        "selfsubjectaccessreview",
    )
    .cluster()
    .review(),
    kind(
        AUTHZ,
        "SelfSubjectRulesReview",
        "selfsubjectrulesreviews",
        "selfsubjectrulesreview",
    )
    .cluster()
    .review(),
    kind(
        AUTHZ,
        "SubjectAccessReview",
        "subjectaccessreviews",
        "subjectaccessreview",
    )
    .cluster()
    .review(),
    AUTOSCALER,
    Kind {
        version: autoscaler::NEWER,
        ..AUTOSCALER
    },
    kind("batch", "CronJob", "cronjobs", "cronjob")
        .short(&["cj"])
        .all()
        .with(STATUS)
        .generation()
        .printed(c::CRON_JOB),
    kind("batch", "Job", "jobs", "job")
        .all()
        .with(STATUS)
        .selecting(&["status.successful"])
        .generation()
        .printed(c::JOB),
    kind(
        "certificates.k8s.io",
        "CertificateSigningRequest",
        "certificatesigningrequests",
        "certificatesigningrequest",
    )
    .cluster()
    .short(&["csr"])
    .named(NameRule::PathSegment)
    .with(&["status", "approval"])
    .selecting(&["spec.signerName"])
    .printed(c::CSR),
    kind("coordination.k8s.io", "Lease", "leases", "lease").printed(c::LEASE),
    kind(
        "discovery.k8s.io",
        "EndpointSlice",
        "endpointslices",
        "endpointslice",
    )
    .generation()
    .printed(c::ENDPOINT_SLICE),
    kind("events.k8s.io", "Event", "events", "event")
        .short(&["ev"])
        .selecting(NEW_EVENT_FIELDS)
        .printed(c::EVENT),
    kind("networking.k8s.io", "Ingress", "ingresses", "ingress")
        .short(&["ing"])
        .with(STATUS)
        .generation()
        .printed(c::INGRESS),
    kind(
        "networking.k8s.io",
        "IngressClass",
        "ingressclasses",
        "ingressclass",
    )
    .cluster()
    .generation()
    .printed(c::INGRESS_CLASS),
    kind(
        "networking.k8s.io",
        "NetworkPolicy",
        "networkpolicies",
        "networkpolicy",
    )
    .short(&["netpol"])
    .generation()
    .printed(c::NETWORK_POLICY),
    kind(
        "policy",
        "PodDisruptionBudget",
        "poddisruptionbudgets",
        "poddisruptionbudget",
    )
    .short(&["pdb"])
    .with(STATUS)
    .generation()
    .printed(c::DISRUPTION_BUDGET),
    kind(RBAC, "ClusterRole", "clusterroles", "clusterrole")
        .cluster()
        .named(NameRule::PathSegment)
        .printed(c::ROLE),
    kind(
        RBAC,
        "ClusterRoleBinding",
        "clusterrolebindings",
        "clusterrolebinding",
    )
    .cluster()
    .named(NameRule::PathSegment)
    .printed(c::CLUSTER_ROLE_BINDING),
    kind(RBAC, "Role", "roles", "role")
        .named(NameRule::PathSegment)
        .printed(c::ROLE),
    kind(RBAC, "RoleBinding", "rolebindings", "rolebinding")
        .named(NameRule::PathSegment)
        .printed(c::ROLE_BINDING),
    kind(
        "scheduling.k8s.io",
        "PriorityClass",
        "priorityclasses",
        "priorityclass",
    )
    .cluster()
    .short(&["pc"])
    .generation()
    .printed(c::PRIORITY_CLASS),
    kind("storage.k8s.io", "StorageClass", "storageclasses", "storageclass")
        .cluster()
        .short(&["sc"])
        .printed(c::STORAGE_CLASS),
];

/// Every built-in kind, by group and name.
pub fn kinds() -> &'static [Kind] {
    KINDS
}

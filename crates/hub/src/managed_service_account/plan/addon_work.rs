//! What is delivered to a cluster without our agent: the same program, for the accounts only.

use kube::api::ObjectMeta;
use serde_json::{Value, json};
use writ_api::{
    addon::{LABEL_ADDON, ManagedClusterAddOn},
    work::{
        DeleteOption, FeedbackRule, FeedbackType, Manifest, ManifestConfig, ManifestWork, ManifestWorkSpec,
        OrphaningRule, PropagationPolicy, ResourceIdentifier, SelectivelyOrphan, Workload,
    },
};

use super::addon::owner;
use crate::managed_service_account::model::{ADDON, ADDON_DEPLOYMENT, ADDON_WORK};

/// The ManifestWork that delivers the add-on's agent.
pub fn work(addon: &ManagedClusterAddOn, cluster: &str, image: &str) -> ManifestWork {
    let namespace = addon.wished_namespace();
    ManifestWork {
        metadata: ObjectMeta {
            name: Some(ADDON_WORK.into()),
            namespace: Some(cluster.into()),
            labels: Some([(LABEL_ADDON.to_owned(), ADDON.to_owned())].into()),
            owner_references: Some(vec![owner(addon)]),
            ..ObjectMeta::default()
        },
        spec: ManifestWorkSpec {
            workload: Workload {
                manifests: manifests(namespace, cluster, image)
                    .into_iter()
                    .map(Manifest)
                    .collect(),
            },
            // Other add-ons share the namespace, so it is orphaned. The accounts' ServiceAccounts go all the same: the
            // agent's own ServiceAccount owns them.
            delete_option: Some(DeleteOption {
                propagation_policy: PropagationPolicy::SelectivelyOrphan,
                selectively_orphans: Some(SelectivelyOrphan {
                    orphaning_rules: vec![OrphaningRule {
                        resource: "namespaces".into(),
                        name: namespace.into(),
                        ..OrphaningRule::default()
                    }],
                }),
                ..DeleteOption::default()
            }),
            manifest_configs: vec![ManifestConfig {
                resource_identifier: ResourceIdentifier {
                    group: "apps".into(),
                    resource: "deployments".into(),
                    name: ADDON_DEPLOYMENT.into(),
                    namespace: namespace.into(),
                },
                feedback_rules: vec![FeedbackRule {
                    type_: FeedbackType::WellKnownStatus,
                    json_paths: Vec::new(),
                }],
                ..ManifestConfig::default()
            }],
            ..ManifestWorkSpec::default()
        },
        status: None,
    }
}

fn manifests(namespace: &str, cluster: &str, image: &str) -> Vec<Value> {
    let role = "open-cluster-management:managed-serviceaccount:addon-agent";
    let rbac = "rbac.authorization.k8s.io";
    let subjects = json!([{ "kind": "ServiceAccount", "name": ADDON, "namespace": namespace }]);
    let bound = |kind: &str| json!({ "apiGroup": rbac, "kind": kind, "name": role });
    vec![
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ADDON, "namespace": namespace } }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": { "name": role },
            "rules": [{ "apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"] }],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": { "name": role },
            "roleRef": bound("ClusterRole"), "subjects": subjects,
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
            "metadata": { "name": role, "namespace": namespace },
            "rules": [
                { "apiGroups": [""], "resources": ["serviceaccounts"],
                  "verbs": ["get", "list", "watch", "create", "patch", "delete"] },
                { "apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"] },
                { "apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["kube-root-ca.crt"],
                  "verbs": ["get", "list", "watch"] },
            ],
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": { "name": role, "namespace": namespace },
            "roleRef": bound("Role"), "subjects": subjects,
        }),
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": ADDON_DEPLOYMENT, "namespace": namespace },
            "spec": {
                "replicas": 1,
                "selector": { "matchLabels": { "addon-agent": ADDON } },
                "template": {
                    "metadata": { "labels": { "addon-agent": ADDON } },
                    "spec": {
                        "serviceAccountName": ADDON,
                        "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } },
                        "containers": [{
                            "name": "addon-agent",
                            "image": image,
                            "command": ["writ-agent"],
                            "args": [
                                format!("--cluster-name={cluster}"), format!("--agent-namespace={namespace}"),
                                "--hub-kubeconfig=/etc/hub/kubeconfig", "--controllers=tokens", "--health-address=0.0.0.0:8080",
                            ],
                            "ports": [{ "name": "health", "containerPort": 8080, "protocol": "TCP" }],
                            "livenessProbe": { "httpGet": { "path": "/livez", "port": "health", "scheme": "HTTP" } },
                            "readinessProbe": { "httpGet": { "path": "/readyz", "port": "health", "scheme": "HTTP" } },
                            "securityContext": {
                                "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                                "capabilities": { "drop": ["ALL"] },
                            },
                            "resources": { "requests": { "cpu": "10m", "memory": "32Mi" } },
                            "volumeMounts": [{ "name": "hub", "mountPath": "/etc/hub", "readOnly": true }],
                        }],
                        "volumes": [{ "name": "hub", "secret": { "secretName": format!("{ADDON}-hub-kubeconfig") } }],
                    },
                },
            },
        }),
    ]
}

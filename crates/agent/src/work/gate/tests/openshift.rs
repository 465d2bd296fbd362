//! Tables of OpenShift's other APIs for roles, bindings and namespaces.

use serde_json::{Value, json};

use super::{ALL, Case, items, put};
use crate::work::gate::rbac_index::RbacIndex;

/// Account `shop/a` may write everything, and hold everything.
fn mighty() -> RbacIndex {
    let mut rbac = RbacIndex::default();
    put(
        &mut rbac,
        json!({"kind": "ClusterRole", "metadata": {"name": "all"},
            "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
    );
    put(
        &mut rbac,
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": "all"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}]}),
    );
    rbac
}

/// Account `shop/a` may write everything of OpenShift's, and holds nothing else.
fn writer() -> RbacIndex {
    let mut rbac = mighty();
    put(
        &mut rbac,
        json!({"kind": "ClusterRole", "metadata": {"name": "all"},
            "rules": [{"apiGroups": ["authorization.openshift.io"], "resources": ["*"], "verbs": ALL}]}),
    );
    rbac
}

fn refusal(rbac: &RbacIndex, object: &Value, strategy: &str) -> Option<String> {
    let (group, _) = object["apiVersion"].as_str().unwrap().split_once('/').unwrap();
    let resource = format!("{}s", object["kind"].as_str().unwrap().to_lowercase());
    let items = items(json!({
        "workload": {"manifests": [object]},
        "manifestConfigs": [{"resourceIdentifier": {"group": group, "resource": resource, "namespace": "*", "name": "*"},
            "updateStrategy": {"type": strategy}}],
    }));
    Case::new(&items, rbac).run().0.refusal
}

fn object(group: &str, kind: &str, namespace: Option<&str>, name: &str) -> Value {
    json!({"apiVersion": format!("{group}/v1"), "kind": kind, "metadata": {"namespace": namespace, "name": name}})
}

#[test]
fn openshift_role_or_binding_is_refused_with_the_kubernetes_api() {
    let group = "authorization.openshift.io";
    for rbac in [mighty(), writer()] {
        for (kind, namespace) in [
            ("Role", Some("shop")),
            ("RoleBinding", Some("shop")),
            ("ClusterRole", None),
            ("ClusterRoleBinding", None),
        ] {
            let mut object = object(group, kind, namespace, "x");
            object["rules"] = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]);
            object["roleRef"] = json!({"name": "cluster-admin"});
            for strategy in ["Update", "ServerSideApply", "CreateOnly"] {
                let refusal = refusal(&rbac, &object, strategy).unwrap_or_default();
                assert!(
                    refusal.contains("write it as rbac.authorization.k8s.io/v1"),
                    "{kind} {strategy}: {refusal:?}"
                );
            }
            // Reading grants nothing.
            assert_eq!(refusal(&rbac, &object, "ReadOnly"), None, "{kind}");
        }
        let harmless = object(group, "RoleBindingRestriction", Some("shop"), "x");
        assert_eq!(refusal(&rbac, &harmless, "Update"), None);
    }
}

#[test]
fn project_of_the_agents_namespace_is_protected() {
    let rbac = mighty();
    for kind in ["Project", "ProjectRequest"] {
        let named = |name: &str| refusal(&rbac, &object("project.openshift.io", kind, None, name), "Update");
        assert_eq!(named("shop"), None, "{kind}");
        let refusal = named("agent-system").unwrap_or_default();
        assert!(
            refusal.contains("namespace agent-system is the agent's own"),
            "{kind}: {refusal:?}"
        );
    }
}

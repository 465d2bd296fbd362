//! Tables of attacks: a manifest that looks harmless and is merged into an object that is not.

use serde_json::{Value, json};

use super::{
    plan::Refused,
    rbac::{Myself, Rbac},
    tests::{ALL, Case, account, binding, config_map, granting, items, manifests, put, rbac_rules, role},
};
use crate::{options::ExecutorGranularity, work::plan::Item};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Account `shop/a` may do everything with RBAC objects and grants but `bind` and `escalate`, and reads ConfigMaps. There
/// are roles and bindings that grant far more.
fn writer() -> Rbac {
    let mut rbac = Rbac::default();
    let star = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    for object in [
        json!({"kind": "ClusterRole", "metadata": {"name": "writer"}, "rules": rbac_rules(json!([
            {"apiGroups": ["writ.dev"], "resources": ["namespacegrants"], "verbs": ALL},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]))}),
        json!({"kind": "ClusterRole", "metadata": {"name": "harmless"},
            "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]}),
        json!({"kind": "ClusterRole", "metadata": {"name": "mighty"}, "rules": star}),
        json!({"kind": "ClusterRole", "metadata": {"name": "folded"}, "rules": [],
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}),
        json!({"kind": "Role", "metadata": {"name": "mighty", "namespace": "shop"}, "rules": star}),
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": "writer"},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "writer"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}]}),
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": "admins"},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "mighty"},
            "subjects": [{"kind": "User", "apiGroup": GROUP, "name": "root"}]}),
    ] {
        put(&mut rbac, object);
    }
    rbac
}

fn cluster_role(name: &str, rest: &Value) -> Value {
    let mut role =
        json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRole", "metadata": {"name": name}});
    for (key, value) in rest.as_object().unwrap() {
        role[key] = value.clone();
    }
    role
}

fn cluster_binding(name: &str, role: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": role, "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}]})
}

fn grant(spec: &Value) -> Value {
    let mut grant = json!({"apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "metadata": {"name": "g"},
        "spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}, "name": "g"}});
    for (key, value) in spec.as_object().unwrap() {
        grant["spec"][key] = value.clone();
    }
    grant
}

fn role_ref(name: &str) -> Value {
    json!({"apiGroup": GROUP, "kind": "ClusterRole", "name": name})
}

fn verdict(items: &[Item], rbac: &Rbac) -> Option<String> {
    Case::new(items, rbac).run().0.refusal
}

#[test]
fn what_results_counts_and_not_what_the_manifest_says() {
    let rbac = writer();
    let subjects = json!([{"kind": "User", "apiGroup": GROUP, "name": "dave"}]);
    let held = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    for (object, allowed) in [
        // Labels or nothing over a live role: its rules stay.
        (cluster_role("mighty", &json!({})), false),
        (cluster_role("mighty", &json!({"rules": null})), false),
        (cluster_role("new", &json!({})), true),
        (cluster_role("harmless", &json!({})), true),
        (
            json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Role", "metadata": {"name": "mighty", "namespace": "shop"}}),
            false,
        ),
        // What replaces the rules is what counts, so that a role can be narrowed.
        (cluster_role("mighty", &json!({"rules": held})), true),
        (cluster_role("mighty", &json!({"rules": []})), true),
        // A role that others are folded into can become anything, whatever this manifest says.
        (cluster_role("folded", &json!({"rules": held})), false),
        (cluster_role("folded", &json!({})), false),
        // A binding says which role it binds.
        (cluster_binding("admins", &role_ref("harmless")), true),
        (cluster_binding("admins", &role_ref("mighty")), false),
        (cluster_binding("admins", &json!({"apiGroup": GROUP})), false),
        (cluster_binding("admins", &Value::Null), false),
        // A grant says what it grants: exactly one of rules and a role.
        (grant(&json!({"rules": held})), true),
        (
            grant(&json!({"roleRef": role_ref("harmless"), "subjects": subjects})),
            true,
        ),
        (
            grant(&json!({"roleRef": role_ref("mighty"), "subjects": subjects})),
            false,
        ),
        (grant(&json!({})), false),
        (grant(&json!({"subjects": subjects})), false),
        (
            grant(&json!({"rules": held, "roleRef": role_ref("harmless"), "subjects": subjects})),
            false,
        ),
        (
            grant(&json!({"roleRef": {"apiGroup": GROUP}, "subjects": subjects})),
            false,
        ),
    ] {
        let refusal = verdict(&manifests(json!([object])), &rbac);
        assert_eq!(refusal.is_none(), allowed, "{object}: {refusal:?}");
    }
}

#[test]
fn no_field_of_what_grants_may_be_ignored() {
    let rbac = writer();
    let held = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    for (object, group, resource) in [
        (
            cluster_binding("admins", &role_ref("harmless")),
            GROUP,
            "clusterrolebindings",
        ),
        (
            cluster_role("mighty", &json!({"rules": held})),
            GROUP,
            "clusterroles",
        ),
        (grant(&json!({"rules": held})), "writ.dev", "namespacegrants"),
    ] {
        let with = |ignore: Value| {
            let items = items(json!({
                "workload": {"manifests": [object]},
                "manifestConfigs": [{
                    "resourceIdentifier": {"group": group, "resource": resource, "name": "*"},
                    "updateStrategy": {"type": "ServerSideApply", "serverSideApply": {"force": true, "ignoreFields": ignore}}}],
            }));
            verdict(&items, &rbac)
        };
        assert_eq!(with(json!([])), None, "{object}");
        for condition in ["OnSpokePresent", "OnSpokeChange"] {
            let refusal = with(json!([{"condition": condition, "jsonPointers": ["/roleRef"]}]));
            assert!(refusal.unwrap().contains("ignoreFields"), "{object}");
        }
    }
}

#[test]
fn a_binding_rests_only_on_roles_that_are_written() {
    let rbac = granting(rbac_rules(
        json!([{"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get"]}]),
    ));
    let spec = |strategy: &str, verbs: &[&str]| {
        items(json!({
            "workload": {"manifests": [binding("b", "x"), role("x", verbs), config_map("m")]},
            "manifestConfigs": [
                {"resourceIdentifier": {"group": GROUP, "resource": "roles", "namespace": "*", "name": "*"},
                 "updateStrategy": {"type": strategy}},
                {"resourceIdentifier": {"resource": "configmaps", "namespace": "*", "name": "*"},
                 "updateStrategy": {"type": "ReadOnly"}}],
        }))
    };
    let per_manifest = |items: &[Item]| {
        let mut case = Case::new(items, &rbac);
        case.granularity = ExecutorGranularity::Manifest;
        case.run().0
    };
    for strategy in ["Update", "ServerSideApply", "CreateOnly"] {
        assert_eq!(verdict(&spec(strategy, &["get"]), &rbac), None, "{strategy}");
        // The role is refused, so the binding would dangle.
        let refused = per_manifest(&spec(strategy, &["get", "list"]));
        assert!(refused.of(1).is_some(), "{strategy}");
        assert!(
            matches!(refused.of(0), Some(Refused::Denied(message)) if message.contains("not found")),
            "{strategy}: {refused:?}"
        );
        assert!(refused.of(2).is_none());
    }
    // One that is only read is never made.
    let refused = per_manifest(&spec("ReadOnly", &["get"]));
    assert!(refused.of(1).is_none());
    assert!(matches!(refused.of(0), Some(Refused::Denied(message)) if message.contains("not found")));
}

#[test]
fn nothing_of_the_agents_own_is_even_read() {
    let mut rbac = granting(json!([]));
    put(
        &mut rbac,
        json!({"kind": "ClusterRole", "metadata": {"name": "all"}, "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]}),
    );
    put(
        &mut rbac,
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": "all"}, "roleRef": role_ref("all"),
            "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}]}),
    );
    let read = |namespace: &str| {
        let items = items(json!({
            "workload": {"manifests": [{"apiVersion": "v1", "kind": "Secret", "metadata": {"namespace": namespace, "name": "s"}}]},
            "manifestConfigs": [{"resourceIdentifier": {"resource": "secrets", "namespace": "*", "name": "*"},
                "updateStrategy": {"type": "ReadOnly"}}],
        }));
        Case::new(&items, &rbac).run().0
    };
    assert_eq!(read("shop").refusal, None);
    let refused = read("agent-system");
    assert!(refused.refusal.unwrap().contains("is the agent's own"));
    assert!(refused.readable.is_empty());
}

#[test]
fn what_may_be_read_may_be_told_while_refused() {
    let without = |verb: &str| {
        let verbs: Vec<&str> = ALL.into_iter().filter(|other| *other != verb).collect();
        let rbac = granting(json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]));
        Case::new(&manifests(json!([config_map("x")])), &rbac)
            .run()
            .0
            .readable
    };
    assert!(without("delete").contains(&0));
    assert!(without("get").is_empty());
}

#[test]
fn the_agent_is_who_the_server_says_it_is() {
    let place = |namespace: &str| {
        (
            writ_authz::Kind::RoleBinding,
            namespace.to_owned(),
            "b".to_owned(),
        )
    };
    let subject = |value: Value| vec![serde_json::from_value(value).unwrap()];
    let robot = account("robots", "deliverer");
    let me = Myself::new("agent-system", &robot.user(), &robot.groups());
    assert!(me.namespaces.contains("agent-system") && me.namespaces.contains("robots"));
    assert!(me.is_named(
        &place("robots"),
        &subject(json!({"kind": "ServiceAccount", "name": "deliverer"}))
    ));
    assert!(!me.is_named(
        &place("agent-system"),
        &subject(json!({"kind": "ServiceAccount", "name": "deliverer"}))
    ));
    assert!(me.is_named(
        &place(""),
        &subject(json!({"kind": "Group", "name": "system:serviceaccounts:robots"}))
    ));
    // What everybody is named by names nobody.
    for group in ["system:authenticated", "system:serviceaccounts"] {
        assert!(!me.is_named(&place(""), &subject(json!({"kind": "Group", "name": group}))));
    }
    // A person's certificate is an identity, too.
    let person = Myself::new("agent-system", "dave", &["system:masters".into()]);
    assert_eq!(person.namespaces.len(), 1);
    assert!(person.is_named(&place(""), &subject(json!({"kind": "User", "name": "dave"}))));
    assert!(person.is_named(
        &place(""),
        &subject(json!({"kind": "Group", "name": "system:masters"}))
    ));
    assert!(!person.is_named(
        &place(""),
        &subject(json!({"kind": "ServiceAccount", "namespace": "agent-system", "name": "writ-agent"}))
    ));
}

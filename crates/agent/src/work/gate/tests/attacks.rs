//! Tables of attacks: manifests that look harmless and are merged into objects that are not.

use serde_json::{Value, json};

use super::{ALL, Case, account, binding, config_map, granting, items, manifests, put, rbac_rules, role};
use crate::{
    options::ExecutorGranularity,
    work::{
        gate::{model::AgentIdentity, rbac_index::RbacIndex},
        model::{PlannedManifest, Refused},
    },
};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Account `shop/a` has every verb on RBAC objects and grants but `bind` and `escalate`, and reads ConfigMaps. Other roles
/// and bindings of the cluster grant far more.
fn writer() -> RbacIndex {
    let mut rbac = RbacIndex::default();
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

fn verdict(items: &[PlannedManifest], rbac: &RbacIndex) -> Option<String> {
    Case::new(items, rbac).run().0.refusal
}

#[test]
fn manifest_merged_into_live_object_is_judged_by_the_result() {
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
        // The new rules count, so a role can be narrowed.
        (cluster_role("mighty", &json!({"rules": held})), true),
        (cluster_role("mighty", &json!({"rules": []})), true),
        // An aggregated role can come to hold any rule, whatever this manifest says.
        (cluster_role("folded", &json!({"rules": held})), false),
        (cluster_role("folded", &json!({})), false),
        // A binding must name the role that it binds.
        (cluster_binding("admins", &role_ref("harmless")), true),
        (cluster_binding("admins", &role_ref("mighty")), false),
        (cluster_binding("admins", &json!({"apiGroup": GROUP})), false),
        (cluster_binding("admins", &Value::Null), false),
        // A grant must have exactly one of rules and a role.
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
fn ignored_field_of_a_granting_object_is_refused() {
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
fn binding_to_a_role_that_is_not_written_is_refused() {
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
    let per_manifest = |items: &[PlannedManifest]| {
        let mut case = Case::new(items, &rbac);
        case.granularity = ExecutorGranularity::Manifest;
        case.run().0
    };
    for strategy in ["Update", "ServerSideApply", "CreateOnly"] {
        assert_eq!(verdict(&spec(strategy, &["get"]), &rbac), None, "{strategy}");
        // The role is refused, so the binding would dangle.
        let refused = per_manifest(&spec(strategy, &["get", "list"]));
        assert!(refused.refusal_of(1).is_some(), "{strategy}");
        assert!(
            matches!(refused.refusal_of(0), Some(Refused::Denied(message)) if message.contains("not found")),
            "{strategy}: {refused:?}"
        );
        assert!(refused.refusal_of(2).is_none());
    }
    // A role that is only read is not written.
    let refused = per_manifest(&spec("ReadOnly", &["get"]));
    assert!(refused.refusal_of(1).is_none());
    assert!(matches!(refused.refusal_of(0), Some(Refused::Denied(message)) if message.contains("not found")));
}

#[test]
fn agents_own_object_is_not_readable() {
    let rbac = almighty();
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
fn refused_object_is_readable_with_get() {
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

/// Account `shop/a` may do everything.
fn almighty() -> RbacIndex {
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
    rbac
}

#[test]
fn name_that_changes_the_url_is_refused() {
    let rbac = almighty();
    let refusal = |object: Value| verdict(&manifests(json!([object])), &rbac);
    assert_eq!(refusal(cluster_role("a:b", &json!({"rules": []}))), None);
    for name in [
        "?",
        "writ:agent:grants?x",
        "?watch=1&x=1",
        "victim/configmaps/cfg",
        "a%2fb",
        "a#b",
        ".",
        "..",
        "a b",
        "a\n",
    ] {
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "shop"}}),
            json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": name}}),
            cluster_role(name, &json!({"rules": []})),
            grant(&json!({"name": name, "rules": []})),
        ] {
            let refusal = refusal(object.clone()).unwrap_or_default();
            assert!(refusal.contains("cannot be part of a URL"), "{object}: {refusal}");
        }
    }
    for api_version in ["a/b/v1", "apps/v1?x", "v1%2f", "a?b/v1", "apps/.."] {
        let object = json!({"apiVersion": api_version, "kind": "Secret", "metadata": {"name": "s"}});
        let refusal = refusal(object).unwrap_or_default();
        assert!(
            refusal.contains("cannot be part of a URL"),
            "{api_version}: {refusal}"
        );
    }
}

#[test]
fn definition_that_is_not_written_defines_no_kind() {
    let definition = |change: &dyn Fn(&mut Value)| {
        let mut definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "widgets.shop.dev"},
            "spec": {"group": "shop.dev", "scope": "Cluster", "names": {"kind": "Widget", "plural": "widgets"},
                "versions": [{"name": "v1", "served": true}]}});
        change(&mut definition);
        definition
    };
    let with = |definition: &Value, strategy: &str| {
        let spec = &definition["spec"];
        let group = spec["group"].as_str().unwrap();
        let version = spec["versions"][0]["name"].as_str().unwrap();
        let api_version = format!("{group}/{version}");
        let object = json!({"apiVersion": api_version.trim_start_matches('/'), "kind": "Widget", "metadata": {"name": "secrets"}});
        let items = items(json!({
            "workload": {"manifests": [definition, object]},
            "manifestConfigs": [
                {"resourceIdentifier": {"group": "apiextensions.k8s.io", "resource": "customresourcedefinitions", "name": "*"},
                 "updateStrategy": {"type": strategy}}],
        }));
        items[1].target.as_ref().map(drop).map_err(Clone::clone)
    };
    let good = definition(&|_| {});
    assert_eq!(with(&good, "Update"), Ok(()));
    assert_eq!(with(&good, "CreateOnly"), Ok(()));
    assert!(
        with(&good, "ReadOnly")
            .unwrap_err()
            .contains("doesn't have a resource type")
    );
    let plural = "namespaces/agent-system";
    let bad: [&dyn Fn(&mut Value); 7] = [
        &|d| d["apiVersion"] = json!("example.com/v1"),
        // A version of the definition that is not served.
        &|d| d["apiVersion"] = json!("apiextensions.k8s.io/v0"),
        &|d| d["metadata"]["name"] = json!("other.shop.dev"),
        &|d| {
            d["spec"]["group"] = json!("");
            d["metadata"]["name"] = json!("widgets.");
        },
        &|d| {
            d["spec"]["group"] = json!("");
            d["spec"]["names"]["plural"] = json!(plural);
            d["metadata"]["name"] = json!(format!("{plural}."));
        },
        &|d| {
            d["spec"]["names"]["plural"] = json!(plural);
            d["metadata"]["name"] = json!(format!("{plural}.shop.dev"));
        },
        &|d| d["spec"]["versions"][0]["name"] = json!("V1"),
    ];
    for change in bad {
        let definition = definition(change);
        with(&definition, "Update").expect_err(&definition.to_string());
    }
}

#[test]
fn agent_identity_is_that_of_the_server() {
    let binding = |namespace: &str| {
        (
            writ_authz::Kind::RoleBinding,
            namespace.to_owned(),
            "b".to_owned(),
        )
    };
    let subject = |value: Value| vec![serde_json::from_value(value).unwrap()];
    let robot = account("robots", "deliverer");
    let agent = AgentIdentity::new("agent-system", &robot.user(), &robot.groups());
    assert!(agent.namespaces.contains("agent-system") && agent.namespaces.contains("robots"));
    assert!(agent.is_named(
        &binding("robots"),
        &subject(json!({"kind": "ServiceAccount", "name": "deliverer"}))
    ));
    assert!(!agent.is_named(
        &binding("agent-system"),
        &subject(json!({"kind": "ServiceAccount", "name": "deliverer"}))
    ));
    assert!(agent.is_named(
        &binding(""),
        &subject(json!({"kind": "Group", "name": "system:serviceaccounts:robots"}))
    ));
    // Groups of all accounts do not name the agent.
    for group in ["system:authenticated", "system:serviceaccounts"] {
        assert!(!agent.is_named(&binding(""), &subject(json!({"kind": "Group", "name": group}))));
    }
    // An agent with the certificate of a person.
    let person = AgentIdentity::new("agent-system", "dave", &["system:masters".into()]);
    assert_eq!(person.namespaces.len(), 1);
    assert!(person.is_named(&binding(""), &subject(json!({"kind": "User", "name": "dave"}))));
    assert!(person.is_named(
        &binding(""),
        &subject(json!({"kind": "Group", "name": "system:masters"}))
    ));
    assert!(!person.is_named(
        &binding(""),
        &subject(json!({"kind": "ServiceAccount", "namespace": "agent-system", "name": "writ-agent"}))
    ));
}

//! Names: which become objects, which can be looked for, and whose they are.

use kube::CustomResourceExt as _;
use writ_api::{authentication::ManagedServiceAccount, work::ManifestWorkSpec, writ::NamespaceGrant};
use writ_apiserver::schema::Schema;

use super::*;
use crate::{admission::handlers::manifest_work_spec, cluster_permission::observe};

/// What a ManifestWork may not name, and a binding in Kubernetes may.
const ODD: [&str; 8] = ["a b", "a?b", "a#b", "a\\b", "a<b", "a>b", "a`b", "a\u{7}b"];

fn admitted(world: &World) {
    for work in world.plan().works.values() {
        let spec: &ManifestWorkSpec = &work.spec;
        assert_eq!(
            manifest_work_spec::check(spec, 512_000),
            Ok(()),
            "{:?}",
            ids(work)
        );
    }
}

#[test]
fn name_that_no_work_may_carry_is_a_problem_of_its_entry() {
    let rest = "RoleBinding a/rest";
    for name in ODD.iter().chain(&[".", "..", "a/b", "a%b"]) {
        let named = |name: &str| binding("a", name, &user("u"));
        let kept = binding("a", "rest", &user("u"));
        let selecting =
            json!({"namespaceSelector": {}, "name": name, "subject": user("u"), "roleRef": {"kind": "Role"}});
        let wide = json!({"name": name, "subject": user("u")});
        for (field, spec) in [
            (
                "spec.roleBindings[0].name",
                json!({"roleBindings": [named(name), kept]}),
            ),
            (
                "spec.roleBindings[0].name",
                json!({"roleBindings": [selecting, kept]}),
            ),
            (
                "spec.clusterRoleBindings[0].name",
                json!({"clusterRoleBindings": [wide], "roleBindings": [kept]}),
            ),
            (
                "spec.roleRefs[0].name",
                json!({"roleRefs": [{"kind": "ClusterRole", "name": name}], "roleBindings": [kept]}),
            ),
        ] {
            let mut spec = spec;
            for validate in [false, true] {
                spec["validate"] = json!(validate);
                let mut world = World::new(spec.clone());
                let role = HubRole {
                    rules: Vec::new(),
                    built_in: false,
                };
                let id = object_id("ClusterRole", "", name);
                world.hub_roles.insert(id, role);
                let stub = validate.then_some("ClusterRole view");
                let wanted: Vec<&str> = [rest].into_iter().chain(stub).collect();
                assert_eq!(world.ids(), wanted, "{field} {name:?}");
                let message = world.condition("Ready").2;
                let words = format!("{field}: the name {name:?} cannot be part of a URL");
                assert!(message.contains(&words), "{message}");
                admitted(&world);
            }
        }
    }
}

#[test]
fn referred_role_may_have_any_kubernetes_name() {
    let role =
        |kind: &str, name: &str| json!({"kind": kind, "name": name, "apiGroup": "rbac.authorization.k8s.io"});
    for name in ODD {
        let wide = json!({"name": "wide", "subject": user("u"), "roleRef": role("ClusterRole", name)});
        let here =
            json!({"namespace": "a", "name": "here", "subject": user("u"), "roleRef": role("Role", name)});
        let mut spec =
            json!({"clusterRoleBindings": [wide], "roleBindings": [here, binding("a", "rest", &user("u"))]});
        let objects = [
            "ClusterRoleBinding wide",
            "RoleBinding a/here",
            "RoleBinding a/rest",
        ];
        let world = World::new(spec.clone());
        assert_eq!(world.ids(), objects, "{name:?}");
        assert!(world.plan().built.problems.is_empty(), "{name:?}");
        admitted(&world);

        // It cannot be looked for, and that is said; the others are.
        spec["validate"] = json!(true);
        let mut world = World::new(spec);
        assert_eq!(
            world.ids(),
            [&objects[..], &["ClusterRole view"]].concat(),
            "{name:?}"
        );
        admitted(&world);
        world.reconcile();
        world.agent(&[]);
        for (type_, field) in [
            (
                "ValidateClusterRolesExist",
                "spec.clusterRoleBindings[0].roleRef.name",
            ),
            ("ValidateRolesExist", "spec.roleBindings[0].roleRef.name"),
        ] {
            let (status, reason, message) = world.condition(type_);
            assert_eq!(
                (status.as_str(), reason.as_str()),
                ("Unknown", "CannotBeLookedUp"),
                "{name:?}"
            );
            let words = format!("{field} {name:?} cannot be part of a URL");
            assert!(message.contains(&words), "{message}");
        }
        let (status, reason, _) = world.condition("Ready");
        assert_eq!((status.as_str(), reason.as_str()), ("False", "CannotBeLookedUp"));
    }
    for name in [".", "..", "a/b", "a%b"] {
        let here =
            json!({"namespace": "a", "name": "here", "subject": user("u"), "roleRef": role("Role", name)});
        for validate in [false, true] {
            let world = World::new(json!({"validate": validate, "roleBindings": [here]}));
            assert!(world.ids().is_empty(), "{:?}", world.ids());
            let message = world.condition("Ready").2;
            assert!(message.contains("spec.roleBindings[0].roleRef.name"), "{message}");
        }
    }
}

#[test]
fn undelivered_entry_has_no_stub() {
    let bad = json!({"namespace": "a b", "name": "x", "subject": user("u"), "roleRef": {"kind": "Role"}});
    let world =
        World::new(json!({"validate": true, "roleBindings": [bad, binding("a", "rest", &user("u"))]}));
    assert_eq!(world.ids(), ["RoleBinding a/rest", "ClusterRole view"]);
    admitted(&world);
}

#[test]
fn every_grant_satisfies_its_schema() {
    let crd = NamespaceGrant::crd();
    let schema = crd.spec.versions[0]
        .schema
        .as_ref()
        .unwrap()
        .open_api_v3_schema
        .clone();
    let schema = Schema::compile(&json!(schema)).unwrap();
    let long = "x".repeat(253);
    let names = [
        ".foo",
        "...",
        ".a.b",
        "Team:A",
        "a_b",
        "ä",
        "-a",
        "a.",
        "a@b.c",
        "~",
        long.as_str(),
    ];
    for name in names {
        let entry =
            json!({"namespaceSelector": {}, "name": name, "subject": user("u"), "roleRef": {"kind": "Role"}});
        let world = World::new(json!({"roleBindings": [entry, binding("a", "rest", &user("u"))]}));
        let plan = world.plan();
        let (grants, others): (Vec<_>, Vec<_>) = plan.works[&1]
            .spec
            .workload
            .manifests
            .iter()
            .partition(|manifest| manifest.0["kind"] == "NamespaceGrant");
        assert_eq!(others.len(), 1, "the rest is delivered");
        for grant in &grants {
            let problems = schema.validate(&grant.0, None);
            assert!(problems.is_empty(), "{name}: {problems:?}");
            let own = grant.0["metadata"]["name"].as_str().unwrap();
            assert!(writ_runtime::segment::is_subdomain(own), "{name}: {own}");
        }
        assert_eq!(grants.is_empty(), name.starts_with('.'), "{name}");
        if grants.is_empty() {
            let message = world.condition("Ready").2;
            let words = format!("spec.roleBindings[0].name: is {name:?}; where a namespaceSelector selects");
            assert!(message.contains(&words), "{message}");
        }
    }
    // In a namespace, or where the hub selects, it is a name like any other.
    let mut world = World::new(
        json!({"roleBindings": [{"namespaceSelector": {}, "name": ".foo", "subject": user("u"), "roleRef": {"kind": "Role"}}]}),
    );
    world.selected_by = SelectedBy::Hub;
    world.hub_namespaces = Some(vec![("one".into(), BTreeMap::new())]);
    assert_eq!(world.ids(), ["RoleBinding one/.foo"]);
}

#[test]
fn grant_does_not_keep_a_name_edited_into_the_work() {
    let entry =
        json!({"namespaceSelector": {}, "name": "x", "subject": user("u"), "roleRef": {"kind": "Role"}});
    let mut world = World::new(json!({ "roleBindings": [entry] }));
    let own = world.ids();
    world.reconcile();
    for name in [
        "Team:A",
        "other-abcde-01234567",
        "p-abcde-0123456",
        "p-abcde-ABCDEF01",
    ] {
        world.works.get_mut(&1).unwrap().spec.workload.manifests[0].0["metadata"]["name"] = json!(name);
        assert_eq!(world.ids(), own, "{name}");
    }
}

#[test]
fn built_in_role_for_extensions_is_never_taken() {
    let name = "extension-apiserver-authentication-reader";
    let told = format!("Role kube-system/{name} is built into Kubernetes");
    let adopting = |spec: Value| {
        let mut world = World::new(spec);
        world.permission.metadata.name = Some(name.into());
        world.permission.metadata.annotations =
            Some(BTreeMap::from([("writ.dev/adopt".into(), "true".into())]));
        world
    };
    let here = |namespace: &str| json!({"roles": [{"namespace": namespace, "rules": rules()}]});
    let everywhere = json!({"roles": [{"namespaceSelector": {}, "rules": rules()}]});
    let reference = json!({"roleRefs": [{"kind": "Role", "namespace": "kube-system", "name": name}]});
    for (spec, words) in [
        (here("kube-system"), told.as_str()),
        (reference, told.as_str()),
        (everywhere, "is built into Kubernetes"),
    ] {
        let mut world = adopting(spec);
        let id = object_id("Role", "kube-system", name);
        // Without the label of built-in roles it is still known by its name.
        let role = HubRole {
            rules: Vec::new(),
            built_in: false,
        };
        world.hub_roles.insert(id, role);
        assert!(world.ids().is_empty(), "{:?}", world.ids());
        let (_, reason, message) = world.condition("Ready");
        assert_eq!(reason, "FailedBuildManifestWork");
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(adopting(here("a")).ids(), [format!("Role a/{name}")]);
}

#[test]
fn account_without_its_own_service_account_is_granted_nothing() {
    let spec =
        json!({"roleBindings": [binding("a", "robot", &account("robot")), binding("a", "user", &user("u"))]});
    let mut world = World::new(spec);
    world.accounts.insert("robot".into());
    world.add_on = Some("agents");
    let all = ["RoleBinding a/robot", "RoleBinding a/user"];
    assert_eq!(world.ids(), all, "a new account is not delayed");
    world.reconcile();
    let why =
        "ServiceAccountNotOurs: the ServiceAccount agents/robot exists and was not made for this account";
    world.not_own.insert("robot".into(), why.into());
    assert_eq!(world.ids(), all[1..], "it is revoked");
    for type_ in ["SubjectPresent", "Ready"] {
        let (status, reason, message) = world.condition(type_);
        assert_eq!((status.as_str(), reason.as_str()), ("False", "SubjectNotFound"));
        for words in ["ManagedServiceAccount cluster1/robot ", why] {
            assert!(message.contains(words), "{message}");
        }
    }
    world.not_own.clear();
    assert_eq!(world.ids(), all, "it heals");
    assert_eq!(world.condition("SubjectPresent").0, "True");
}

#[test]
fn account_is_own_unless_the_agent_reports_otherwise() {
    let not_own = |reason: &str| Some(Account::NotOwn(format!("{reason}: words")));
    let said = |type_: &str, status: &str, reason: &str| {
        json!([{"type": type_, "status": status, "reason": reason, "message": "words", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    };
    let present = "AllServiceAccountPresent";
    for (what, conditions, wanted) in [
        ("nothing yet", json!([]), Some(Account::Own)),
        (
            "it is there",
            said(present, "True", "ServiceAccountPresent"),
            Some(Account::Own),
        ),
        (
            "it was not made for the account",
            said(present, "False", "ServiceAccountNotOurs"),
            not_own("ServiceAccountNotOurs"),
        ),
        (
            "it belongs to an add-on",
            said(present, "False", "NameReserved"),
            not_own("NameReserved"),
        ),
        (
            "it could not be made",
            said(present, "False", "ServiceAccountMissing"),
            Some(Account::Own),
        ),
        (
            "another condition",
            said("TokenReported", "False", "ServiceAccountNotOurs"),
            Some(Account::Own),
        ),
    ] {
        let mut account: ManagedServiceAccount = serde_json::from_value(json!({
            "apiVersion": "authentication.open-cluster-management.io/v1beta1", "kind": "ManagedServiceAccount",
            "metadata": {"name": "robot", "namespace": "cluster1", "generation": 2}, "spec": {"rotation": {}},
            "status": {"conditions": conditions}}))
        .unwrap();
        assert_eq!(observe::account(&account), wanted, "{what}");
        let going = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
        account.metadata.deletion_timestamp = Some(going);
        assert_eq!(observe::account(&account), None, "{what}, and it goes");
    }
}

//! Tables: the verdict about works, by the RBAC of the cluster.

#![expect(
    clippy::needless_pass_by_value,
    reason = "a literal object reads better without a borrow"
)]

mod attacks;
mod edits;
mod limits;
mod openshift;

use std::collections::{BTreeSet, HashMap};

use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use writ_api::work::{ExecutorServiceAccount, ManifestWorkSpec};
use writ_authz::{Budget, ResourceAttributes};

use super::{
    evaluate::evaluate,
    lookup::{Comparisons, Evaluation, EvaluationInput},
    model::{AccessQuestion, AgentIdentity},
    rbac_index::{RbacIndex, RbacObject},
};
use crate::{
    options::{Authorizers, ExecutorGranularity},
    work::{
        model::{PlannedManifest, Refused, Verdict},
        plan,
    },
};

const RBAC: &str = "rbac.authorization.k8s.io";
const DEFINITIONS: &str = "apiextensions.k8s.io";
const OPENSHIFT: &str = "authorization.openshift.io";
const PROJECTS: &str = "project.openshift.io";

pub fn account(namespace: &str, name: &str) -> ExecutorServiceAccount {
    ExecutorServiceAccount {
        namespace: namespace.into(),
        name: name.into(),
    }
}

pub fn agent() -> AgentIdentity {
    let agent = account("agent-system", "writ-agent");
    AgentIdentity::new(&agent.namespace, &agent.user(), &agent.groups())
}

pub fn items(spec: Value) -> Vec<PlannedManifest> {
    let spec: ManifestWorkSpec = serde_json::from_value(spec).unwrap();
    let served = [
        ("", "v1", "ConfigMap", "configmaps", true),
        ("", "v1", "Namespace", "namespaces", false),
        ("", "v1", "Secret", "secrets", true),
        (RBAC, "v1", "Role", "roles", true),
        (RBAC, "v1", "RoleBinding", "rolebindings", true),
        (RBAC, "v1", "ClusterRole", "clusterroles", false),
        (RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", false),
        ("writ.dev", "v1alpha1", "NamespaceGrant", "namespacegrants", false),
        (
            DEFINITIONS,
            "v1",
            "CustomResourceDefinition",
            "customresourcedefinitions",
            false,
        ),
        (OPENSHIFT, "v1", "Role", "roles", true),
        (OPENSHIFT, "v1", "RoleBinding", "rolebindings", true),
        (OPENSHIFT, "v1", "ClusterRole", "clusterroles", false),
        (
            OPENSHIFT,
            "v1",
            "ClusterRoleBinding",
            "clusterrolebindings",
            false,
        ),
        (
            OPENSHIFT,
            "v1",
            "RoleBindingRestriction",
            "rolebindingrestrictions",
            true,
        ),
        (PROJECTS, "v1", "Project", "projects", false),
        (PROJECTS, "v1", "ProjectRequest", "projectrequests", false),
    ];
    let kinds = served
        .into_iter()
        .map(|(group, version, kind, plural, namespaced)| {
            let gvk = GroupVersionKind::gvk(group, version, kind);
            let kind = writ_controller::ServedKind {
                resource: kube::core::ApiResource::from_gvk_with_plural(&gvk, plural),
                namespaced,
            };
            (gvk, Ok(Some(kind.into())))
        })
        .collect();
    plan::manifests(&spec, &kinds)
}

pub fn manifests(manifests: Value) -> Vec<PlannedManifest> {
    items(json!({"workload": {"manifests": manifests}}))
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "shop", "name": name}})
}

/// A Role and a RoleBinding in `shop` that grant these rules to account `shop/a`.
pub fn granting(rules: Value) -> RbacIndex {
    let mut rbac = RbacIndex::default();
    for object in [
        json!({"kind": "Role", "metadata": {"name": "r", "namespace": "shop"}, "rules": rules}),
        json!({"kind": "RoleBinding", "metadata": {"name": "r", "namespace": "shop"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}]}),
    ] {
        put(&mut rbac, object);
    }
    rbac
}

pub fn put(rbac: &mut RbacIndex, object: Value) {
    let object: RbacObject = match object["kind"].as_str().unwrap() {
        "Role" => RbacObject::Role(serde_json::from_value(object).unwrap()),
        "ClusterRole" => RbacObject::ClusterRole(serde_json::from_value(object).unwrap()),
        "RoleBinding" => RbacObject::RoleBinding(serde_json::from_value(object).unwrap()),
        _ => RbacObject::ClusterRoleBinding(serde_json::from_value(object).unwrap()),
    };
    rbac.put(&object);
}

pub struct Case<'a> {
    pub executor: ExecutorServiceAccount,
    items: &'a [PlannedManifest],
    rbac: &'a RbacIndex,
    pub granularity: ExecutorGranularity,
    pub authorizers: Authorizers,
    pub budget: Budget,
}

impl<'a> Case<'a> {
    pub fn new(items: &'a [PlannedManifest], rbac: &'a RbacIndex) -> Self {
        Self {
            executor: account("shop", "a"),
            items,
            rbac,
            granularity: ExecutorGranularity::Work,
            authorizers: Authorizers::Rbac,
            budget: Budget::default(),
        }
    }

    /// The verdict of a server that decides by the same RBAC, and all that was asked.
    pub fn run(&self) -> (Verdict, BTreeSet<AccessQuestion>) {
        let mut answers = HashMap::new();
        let mut asked = BTreeSet::new();
        let mut comparisons = Comparisons {
            budget: self.budget.clone(),
            ..Comparisons::default()
        };
        loop {
            let input = EvaluationInput {
                executor: &self.executor,
                agent: &agent(),
                manifests: self.items,
                rbac: self.rbac,
                answers: &answers,
                authorizers: self.authorizers,
                granularity: self.granularity,
            };
            match evaluate(&input, &mut comparisons) {
                Evaluation::Verdict(verdict) => return (verdict, asked),
                Evaluation::Ask(questions) => {
                    for question in questions {
                        let attributes: ResourceAttributes<'_> = question.attributes();
                        let allowed = self
                            .rbac
                            .index()
                            .allows(&self.executor.user(), &self.executor.groups(), &attributes.into())
                            .allowed();
                        assert!(asked.insert(question.clone()), "{question:?} is asked once");
                        answers.insert(question, allowed);
                    }
                }
            }
        }
    }
}

pub const ALL: [&str; 5] = ["create", "update", "patch", "get", "delete"];

#[test]
fn grant_for_all_names_needs_five_questions_for_any_number_of_objects() {
    let rbac = granting(json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ALL}]));
    let many: Vec<Value> = (0..1000).map(|n| config_map(&format!("m{n}"))).collect();
    let items = manifests(json!(many));
    let (verdict, asked) = Case::new(&items, &rbac).run();
    assert_eq!(verdict, Verdict::default());
    assert_eq!(asked.len(), 5);
    assert!(asked.iter().all(|question| question.name.is_empty()));
    // Another account, whose name begins the same, is refused without a question.
    let mut other = Case::new(&items, &rbac);
    other.executor = account("shop", "ab");
    let (verdict, asked) = other.run();
    assert_eq!(verdict.refused.len(), 1000);
    assert!(asked.is_empty());
    let message = verdict.refusal.unwrap();
    assert!(
        message.len() < 32 * 1024
            && message.contains("may not create configmaps in namespace shop: 1000 (m0, ")
    );
    assert!(message.contains("and 990 more"), "{message}");
}

#[test]
fn grant_for_single_names_is_asked_by_name() {
    let rbac = granting(
        json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ALL, "resourceNames": ["x"]}]),
    );
    let items = manifests(json!([config_map("x"), config_map("y")]));
    let (verdict, asked) = Case::new(&items, &rbac).run();
    assert_eq!(asked.len(), 5);
    assert!(matches!(verdict.refusal_of(0), Some(Refused::HeldBack(_))));
    assert!(
        matches!(verdict.refusal_of(1), Some(Refused::Denied(message)) if message.contains("may not create, update"))
    );
    let mut case = Case::new(&items, &rbac);
    case.granularity = ExecutorGranularity::Manifest;
    let (verdict, _) = case.run();
    assert!(verdict.refusal_of(0).is_none() && verdict.refusal_of(1).is_some());
    // Where others decide too, only exact questions count.
    let mut case = Case::new(&items, &rbac);
    case.authorizers = Authorizers::Other;
    let (verdict, asked) = case.run();
    assert_eq!(asked.len(), 10);
    assert!(asked.iter().all(|question| !question.name.is_empty()));
    assert!(verdict.refusal_of(1).is_some());
}

#[test]
fn needed_verbs_depend_on_strategy_and_delete_option() {
    let strategy = |type_: &str, delete: &str| {
        items(json!({
            "workload": {"manifests": [config_map("x")]},
            "deleteOption": {"propagationPolicy": delete},
            "manifestConfigs": [{"resourceIdentifier": {"resource": "configmaps", "namespace": "*", "name": "*"},
                "updateStrategy": {"type": type_}}],
        }))
    };
    for (type_, delete, needed) in [
        ("Update", "Foreground", &ALL[..]),
        ("Update", "Orphan", &ALL[..4]),
        ("ServerSideApply", "Foreground", &ALL[..]),
        ("CreateOnly", "Foreground", &["create", "get", "delete"][..]),
        ("CreateOnly", "Orphan", &["create", "get"][..]),
        ("ReadOnly", "Foreground", &["get"][..]),
    ] {
        let items = strategy(type_, delete);
        let allowed = |verbs: &[&str]| {
            let rbac = granting(json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": verbs}]));
            Case::new(&items, &rbac).run().0.refusal.is_none()
        };
        assert!(allowed(needed), "{type_} {delete}");
        for missing in needed {
            let rest: Vec<&str> = needed.iter().filter(|verb| *verb != missing).copied().collect();
            assert!(!allowed(&rest), "{type_} {delete} without {missing}");
        }
    }
}

#[test]
fn lagging_server_leaves_the_verdict_unsettled() {
    let rbac = granting(json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ALL}]));
    let items = manifests(json!([config_map("x"), config_map("y")]));
    let executor = account("shop", "a");
    let answers = ALL
        .iter()
        .map(|verb| {
            let Ok(target) = &items[0].target else { panic!() };
            (
                AccessQuestion::about(verb, target).for_all_names(),
                *verb != "patch",
            )
        })
        .collect();
    let input = EvaluationInput {
        executor: &executor,
        agent: &agent(),
        manifests: &items,
        rbac: &rbac,
        answers: &answers,
        authorizers: Authorizers::Rbac,
        granularity: ExecutorGranularity::Work,
    };
    let evaluation = evaluate(&input, &mut Comparisons::default());
    let Evaluation::Verdict(verdict) = evaluation else {
        panic!("{evaluation:?}")
    };
    assert!(verdict.unsettled);
    assert_eq!(verdict.refused.len(), 2);
}

pub fn rbac_rules(extra: Value) -> Value {
    let mut rules = vec![json!({"apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"], "verbs": ALL})];
    rules.extend(extra.as_array().unwrap().iter().cloned());
    json!(rules)
}

pub fn role(name: &str, verbs: &[&str]) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"namespace": "shop", "name": name},
        "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": verbs}]})
}

pub fn binding(name: &str, role: &str) -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"namespace": "shop", "name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role},
        "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}]})
}

#[test]
fn work_that_grants_more_than_its_executor_holds_is_refused() {
    let plain = granting(rbac_rules(json!([])));
    let reader = granting(rbac_rules(
        json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]),
    ));
    let escalates = granting(rbac_rules(json!([{"apiGroups": ["rbac.authorization.k8s.io"],
        "resources": ["roles"], "verbs": ["escalate", "bind"]}])));
    let refused =
        |rbac: &RbacIndex, objects: Value| Case::new(&manifests(objects), rbac).run().0.refusal.is_some();
    // A Role with more than the executor holds, and a Role with what it holds.
    assert!(refused(&plain, json!([role("x", &["get"])])));
    assert!(!refused(&reader, json!([role("x", &["get"])])));
    assert!(refused(&reader, json!([role("x", &["get", "list"])])));
    assert!(!refused(&escalates, json!([role("x", &["*"])])));
    // A Role and its binding in one work.
    assert!(refused(&reader, json!([role("x", &["list"]), binding("x", "x")])));
    assert!(!refused(&reader, json!([role("x", &["get"]), binding("x", "x")])));
    // A binding to a role that does not exist, and to a role with more than the executor holds.
    assert!(refused(&reader, json!([binding("x", "missing")])));
    let mut richer = granting(rbac_rules(json!([])));
    put(&mut richer, {
        let mut rich = role("rich", &["*"]);
        rich["kind"] = json!("Role");
        rich
    });
    assert!(refused(&richer, json!([binding("x", "rich")])));
    // The role that the executor itself holds cannot be widened to hold what it grants.
    let mut own = role("r", &["*"]);
    own["rules"]
        .as_array_mut()
        .unwrap()
        .extend(rbac_rules(json!([])).as_array().unwrap().clone());
    assert!(refused(&plain, json!([own, binding("x", "r")])));
    // An aggregated ClusterRole can come to hold any rule.
    let aggregated = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "agg"},
        "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let mut cluster_wide = RbacIndex::default();
    put(
        &mut cluster_wide,
        json!({"kind": "ClusterRole", "metadata": {"name": "w"}, "rules": rbac_rules(json!([]))}),
    );
    put(
        &mut cluster_wide,
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": "w"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "w"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}]}),
    );
    assert!(refused(&cluster_wide, json!([aggregated])));
}

#[test]
fn namespace_grant_must_be_held_in_all_namespaces() {
    let grant = json!({"apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "metadata": {"name": "g"},
        "spec": {"namespaceSelector": {"matchLabels": {"team": "a"}}, "name": "g",
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}});
    let with = |rules: Value| {
        let mut rbac = RbacIndex::default();
        put(
            &mut rbac,
            json!({"kind": "ClusterRole", "metadata": {"name": "w"}, "rules": rules}),
        );
        put(
            &mut rbac,
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": "w"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "w"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}]}),
        );
        let items = manifests(json!([grant]));
        Case::new(&items, &rbac).run().0.refusal
    };
    let write = json!({"apiGroups": ["writ.dev"], "resources": ["namespacegrants"], "verbs": ALL});
    let read = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]});
    assert!(with(json!([write])).unwrap().contains("escalation"));
    assert_eq!(with(json!([write, read])), None);
    // Held in one namespace only is not enough.
    let mut rbac = granting(json!([read]));
    put(
        &mut rbac,
        json!({"kind": "ClusterRole", "metadata": {"name": "w"}, "rules": [write]}),
    );
    put(
        &mut rbac,
        json!({"kind": "ClusterRoleBinding", "metadata": {"name": "w"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "w"},
        "subjects": [{"kind": "ServiceAccount", "namespace": "shop", "name": "a"}]}),
    );
    let items = manifests(json!([grant]));
    assert!(Case::new(&items, &rbac).run().0.refusal.is_some());
}

#[test]
fn agents_own_objects_are_refused() {
    let mut rbac = RbacIndex::default();
    put(
        &mut rbac,
        json!({"kind": "ClusterRole", "metadata": {"name": "all"},
        "rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}, {"nonResourceURLs": ["*"], "verbs": ["*"]}]}),
    );
    for (name, subject) in [
        (
            "mighty",
            json!({"kind": "ServiceAccount", "namespace": "shop", "name": "a"}),
        ),
        (
            "agents",
            json!({"kind": "ServiceAccount", "namespace": "agent-system", "name": "writ-agent"}),
        ),
    ] {
        put(
            &mut rbac,
            json!({"kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
            "subjects": [subject]}),
        );
    }
    put(
        &mut rbac,
        json!({"kind": "RoleBinding", "metadata": {"name": "agents-local", "namespace": "kube-system"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "namespace": "agent-system", "name": "writ-agent"}]}),
    );
    rbac.set_own_labels("agent-system", [("team".to_owned(), "agents".to_owned())].into());
    let refused = |object: Value| {
        let items = manifests(json!([object]));
        Case::new(&items, &rbac).run().0.refusal
    };
    let grant = |selector: Value, name: &str, subject: &str| {
        json!({"apiVersion": "writ.dev/v1alpha1", "kind": "NamespaceGrant", "metadata": {"name": "g"},
            "spec": {"namespaceSelector": selector, "name": name,
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"},
                "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": subject}]}})
    };
    let shop = json!({"matchLabels": {"team": "shop"}});
    let cluster_binding = |name: &str, subject: Value| {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "all"}, "subjects": [subject]})
    };
    let someone = json!({"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "dave"});
    assert_eq!(refused(config_map("fine")), None);
    assert_eq!(refused(cluster_binding("free", someone.clone())), None);
    assert_eq!(refused(grant(shop.clone(), "g", "dave")), None);
    let not_own = json!({"matchExpressions": [
        {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["agent-system"]}]});
    assert_eq!(refused(grant(not_own, "g", "dave")), None);
    for object in [
        // A selector that selects the agent's namespace: every one, its name, a label of it.
        grant(json!({}), "g", "dave"),
        grant(
            json!({"matchLabels": {"kubernetes.io/metadata.name": "agent-system"}}),
            "g",
            "dave",
        ),
        grant(json!({"matchLabels": {"team": "agents"}}), "g", "dave"),
        grant(
            json!({"matchExpressions": [{"key": "team", "operator": "Sounds", "values": ["like"]}]}),
            "g",
            "dave",
        ),
        grant(shop.clone(), "agents-local", "dave"),
        grant(shop, "g", "system:serviceaccount:agent-system:writ-agent"),
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "agent-system", "name": "x"}}),
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "agent-system"}}),
        cluster_binding("agents", someone),
        cluster_binding(
            "new",
            json!({"kind": "ServiceAccount", "namespace": "agent-system", "name": "writ-agent"}),
        ),
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "all"}, "rules": []}),
    ] {
        assert!(refused(object.clone()).is_some(), "{object}");
    }
}

#[test]
fn manifest_that_cannot_be_mapped_refuses_the_revision() {
    let rbac = granting(json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ALL}]));
    let toy =
        json!({"apiVersion": "toys.io/v1", "kind": "Toy", "metadata": {"namespace": "shop", "name": "t"}});
    let items = manifests(json!([config_map("x"), toy]));
    let (verdict, _) = Case::new(&items, &rbac).run();
    assert!(matches!(verdict.refusal_of(0), Some(Refused::HeldBack(_))));
    assert!(verdict.refusal.unwrap().contains("Toy"));
}

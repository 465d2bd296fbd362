//! Property: an edit of RBAC that changes an answer about an account affects that account. Otherwise a kept answer would be
//! stale.

use proptest::prelude::*;
use serde_json::{Value, json};
use writ_api::work::ExecutorServiceAccount;
use writ_authz::ResourceAttributes;

use crate::work::gate::rbac_index::{RbacIndex, RbacObject};

const NAMESPACES: [&str; 2] = ["shop", "other"];
const ROLES: [&str; 2] = ["r0", "r1"];

#[derive(Clone, Debug)]
enum Edit {
    Put(Value),
    Remove(Value),
}

fn rules() -> impl Strategy<Value = Value> {
    let rule = (
        prop::sample::subsequence(vec!["get", "create", "*"], 0..=2),
        prop::sample::select(vec!["configmaps", "secrets", "*"]),
        prop::option::of(prop::sample::select(vec!["one", "two"])),
    );
    prop::collection::vec(rule, 0..3).prop_map(|rules| {
        let rules = rules.into_iter().map(|(verbs, resource, name)| {
            json!({"apiGroups": [""], "resources": [resource], "verbs": verbs,
                "resourceNames": name.into_iter().collect::<Vec<_>>()})
        });
        rules.collect()
    })
}

fn subjects() -> impl Strategy<Value = Value> {
    let group = "rbac.authorization.k8s.io";
    let subject = prop::sample::select(vec![
        json!({"kind": "ServiceAccount", "name": "a", "namespace": "shop"}),
        json!({"kind": "ServiceAccount", "name": "a", "namespace": "other"}),
        json!({"kind": "ServiceAccount", "name": "a"}),
        json!({"kind": "ServiceAccount", "name": "ab", "namespace": "shop"}),
        json!({"kind": "User", "apiGroup": group, "name": "system:serviceaccount:shop:a"}),
        json!({"kind": "User", "apiGroup": group, "name": "system:serviceaccount:shop:ab"}),
        json!({"kind": "Group", "apiGroup": group, "name": "system:serviceaccounts"}),
        json!({"kind": "Group", "apiGroup": group, "name": "system:serviceaccounts:shop"}),
        json!({"kind": "Group", "apiGroup": group, "name": "system:authenticated"}),
        json!({"kind": "Group", "apiGroup": group, "name": "others"}),
    ]);
    prop::collection::vec(subject, 0..3).prop_map(Value::from)
}

fn object() -> impl Strategy<Value = Value> {
    let role_ref = (
        prop::sample::select(vec!["Role", "ClusterRole"]),
        prop::sample::select(ROLES.to_vec()),
    );
    (
        prop::sample::select(vec!["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"]),
        prop::sample::select(NAMESPACES.to_vec()),
        prop::sample::select(ROLES.to_vec()),
        rules(),
        subjects(),
        role_ref,
    )
        .prop_map(|(kind, namespace, name, rules, subjects, (role_kind, role))| {
            let role_kind = if kind == "ClusterRoleBinding" {
                "ClusterRole"
            } else {
                role_kind
            };
            let metadata = if kind.starts_with("Cluster") {
                json!({"name": name})
            } else {
                json!({"name": name, "namespace": namespace})
            };
            if kind.ends_with("Binding") {
                json!({"kind": kind, "metadata": metadata, "subjects": subjects,
                    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}})
            } else {
                json!({"kind": kind, "metadata": metadata, "rules": rules})
            }
        })
}

fn edits() -> impl Strategy<Value = Vec<Edit>> {
    let edit = prop_oneof![3 => object().prop_map(Edit::Put), 1 => object().prop_map(Edit::Remove)];
    prop::collection::vec(edit, 1..30)
}

fn read(object: &Value) -> RbacObject {
    let object = object.clone();
    match object["kind"].as_str().unwrap() {
        "Role" => RbacObject::Role(serde_json::from_value(object).unwrap()),
        "ClusterRole" => RbacObject::ClusterRole(serde_json::from_value(object).unwrap()),
        "RoleBinding" => RbacObject::RoleBinding(serde_json::from_value(object).unwrap()),
        _ => RbacObject::ClusterRoleBinding(serde_json::from_value(object).unwrap()),
    }
}

/// Every answer that could be kept about an account.
fn answers(rbac: &RbacIndex, account: &ExecutorServiceAccount) -> Vec<bool> {
    let (user, groups) = (account.user(), account.groups());
    let mut answers = Vec::new();
    for verb in ["get", "create", "delete"] {
        for resource in ["configmaps", "secrets"] {
            for namespace in ["", "shop", "other", "third"] {
                for name in ["", "one", "two"] {
                    let attributes = ResourceAttributes::new(verb, "", resource)
                        .in_namespace(namespace)
                        .named(name);
                    answers.push(rbac.index().allows(&user, &groups, &attributes.into()).allowed());
                }
            }
        }
    }
    answers
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn edit_that_changes_an_answer_affects_the_account(edits in edits()) {
        let accounts: Vec<ExecutorServiceAccount> = [("shop", "a"), ("other", "a"), ("shop", "ab"), ("other", "b")]
            .map(|(namespace, name)| ExecutorServiceAccount { namespace: namespace.into(), name: name.into() })
            .into();
        let mut rbac = RbacIndex::default();
        for edit in &edits {
            let before: Vec<_> = accounts.iter().map(|account| answers(&rbac, account)).collect();
            let affected = match edit {
                Edit::Put(object) => rbac.put(&read(object)),
                Edit::Remove(object) => rbac.remove(&read(object).id()),
            };
            for (account, before) in accounts.iter().zip(before) {
                if answers(&rbac, account) != before {
                    prop_assert!(affected.include(account), "{account:?} is not affected by {edit:?}");
                }
            }
        }
    }
}

//! ClusterPermissions: only a spec that could never work is denied. A permission that waits for a cluster, an account or
//! a role is stored and gets a condition.

use std::future::ready;

use futures::FutureExt as _;
use kube::{ResourceExt as _, core::ObjectMeta};
use writ_api::rbac::{ClusterPermission, cluster_permission::ClusterPermissionSpec};
use writ_process::admission::{
    Decision, Operation, Request, Rule, SPEC_CHANGES, Webhook, parse_spec, spec_of, spec_unchanged,
};

use crate::{admission::context::AdmissionContext, cluster_permission::spec};

/// How many problems an answer names.
const MAX_PROBLEMS: usize = 10;

const NAME: &str = "clusterpermissionvalidators.admission.rbac.open-cluster-management.io";

/// Decides about permissions.
pub const WEBHOOK: Webhook<AdmissionContext> = Webhook {
    name: NAME,
    configuration: NAME,
    path: "/validate-rbac-open-cluster-management-io-v1alpha1-clusterpermission",
    mutating: false,
    rule: Rule {
        group: "rbac.open-cluster-management.io",
        version: "v1alpha1",
        resources: &["clusterpermissions"],
        operations: &[Operation::Create, Operation::Update],
        scope: "*",
    },
    only_if: Some(SPEC_CHANGES),
    handler: |_, request| ready(Ok(decide(request))).boxed(),
};

fn decide(request: Request) -> Decision {
    if spec_unchanged(&request) {
        return Decision::ALLOW;
    }
    let name = request.object.as_ref().map(kube::ResourceExt::name_any);
    match parse_spec(spec_of(request.object.as_ref())) {
        Ok(spec) => check(name.unwrap_or(request.name), spec),
        Err(refusal) => refusal,
    }
}

/// Decides about a permission of this name and spec.
fn check(name: String, spec: ClusterPermissionSpec) -> Decision {
    let permission = ClusterPermission {
        metadata: ObjectMeta {
            name: Some(name),
            ..ObjectMeta::default()
        },
        spec,
        status: None,
    };
    let problems = spec::problems(&permission);
    if problems.is_empty() {
        return Decision::ALLOW;
    }
    Decision::invalid(format!(
        "ClusterPermission {} could never work: {}",
        permission.name_any(),
        spec::summary(&problems, MAX_PROBLEMS)
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(name: &str, spec: Value) -> Decision {
        check(name.into(), serde_json::from_value(spec).unwrap())
    }

    fn user() -> Value {
        json!({"kind": "User", "name": "u", "apiGroup": "rbac.authorization.k8s.io"})
    }

    #[test]
    fn spec_that_waits_for_something_is_stored() {
        let stored = [
            json!({}),
            json!({"roleBindings": []}),
            json!({"roleBindings": [
                {"namespace": "a", "roleRef": {"kind": "Role"}, "subject": user()},
                {"namespace": "a", "roleRef": {"kind": "Role"}, "subject": user()}]}),
            json!({"clusterRoleBinding": {"subject": {"kind": "ManagedServiceAccount", "name": "absent",
                "apiGroup": "authentication.open-cluster-management.io"}}}),
            json!({"roleRefs": [{"kind": "ClusterRole", "name": "absent"}, {"kind": "ClusterRole", "name": "cluster-admin"}]}),
            json!({"roles": [{"namespaceSelector": {}, "rules": []}]}),
            json!({"clusterRoleBinding": {"subject": {"kind": "ServiceAccount", "name": "a.b-c", "namespace": "d"}}}),
            json!({"clusterRoleBinding": {"subject": {"kind": "User", "name": "Any_Name@example.com"}}}),
            // The name of a role that is only referred to is not part of a URL.
            json!({"clusterRoleBinding": {"roleRef": {"kind": "ClusterRole", "name": "a b?"}, "subject": user()}}),
        ];
        for spec in stored {
            assert_eq!(answer("p", spec.clone()), Decision::ALLOW, "{spec}");
        }
    }

    #[test]
    fn spec_that_could_never_work_is_denied_with_its_field() {
        let refused = [
            (
                json!({"roles": [{"namespace": "a", "namespaceSelector": {}, "rules": []}]}),
                "spec.roles[0]: both Role Namespace and NamespaceSelector",
            ),
            (
                json!({"roleBindings": [{"namespace": "a", "roleRef": {"kind": "Role", "apiGroup": "rbac.authorization.k8s.io"}, "subject": user()}]}),
                "spec.roleBindings[0].roleRef.name",
            ),
            (
                json!({"clusterRoleBindings": [{"subjects": []}]}),
                "spec.clusterRoleBindings[0].subjects: is empty",
            ),
            (
                json!({"clusterRoleBinding": {"name": "a/b", "subject": user()}}),
                "spec.clusterRoleBinding.name",
            ),
            (
                json!({"clusterRoleBinding": {"name": "a b", "subject": user()}}),
                "spec.clusterRoleBinding.name: the name \"a b\" cannot be part of a URL",
            ),
            (
                json!({"roleBindings": [{"namespace": "a", "name": "a?b", "roleRef": {"kind": "Role"}, "subject": user()}]}),
                "spec.roleBindings[0].name",
            ),
            (
                json!({"roleRefs": [{"kind": "ClusterRole", "name": "a#b"}]}),
                "spec.roleRefs[0].name",
            ),
            (
                json!({"clusterRoleBinding": {"roleRef": {"kind": "ClusterRole", "name": "a/b"}, "subject": user()}}),
                "spec.clusterRoleBinding.roleRef.name",
            ),
            (
                json!({"clusterRoleBinding": {"subject": {"kind": "Robot", "name": "x"}}}),
                "spec.clusterRoleBinding.subject.kind",
            ),
            (
                json!({"clusterRoleBinding": {"roleRef": {"kind": "Role", "name": "x"}, "subject": user()}}),
                "a ClusterRoleBinding binds a ClusterRole",
            ),
            (
                json!({"clusterRoleBinding": {"subject": {"kind": "ServiceAccount", "name": "x"}}}),
                "needs its namespace",
            ),
            (
                json!({"roles": [{"namespace": "Not_Legal", "rules": []}]}),
                "spec.roles[0].namespace",
            ),
            (
                json!({"clusterRoleBinding": {"subject": {"kind": "ServiceAccount", "name": "Bad_Name", "namespace": "a"}}}),
                "spec.clusterRoleBinding.subject.name: is \"Bad_Name\"",
            ),
            (
                json!({"clusterRoleBinding": {"subject": {"kind": "ServiceAccount", "name": "good", "namespace": "Not_Legal"}}}),
                "spec.clusterRoleBinding.subject.namespace",
            ),
            (
                json!({"clusterRoleBinding": {"subject": {"kind": "ManagedServiceAccount", "name": "a..b", "apiGroup": "authentication.open-cluster-management.io"}}}),
                "spec.clusterRoleBinding.subject.name",
            ),
            (
                json!({"roleRefs": [{"kind": "Rolle", "name": "x"}]}),
                "spec.roleRefs[0].kind",
            ),
        ];
        for (spec, words) in refused {
            let Decision::Deny { code: 400, message } = answer("p", spec.clone()) else {
                panic!("{spec} was allowed")
            };
            assert!(message.contains(words), "{spec}: {message}");
        }
        let Decision::Deny { code: 400, message } = answer(&"n".repeat(183), json!({})) else {
            panic!()
        };
        assert!(message.contains("metadata.name: has 183 characters"), "{message}");
        assert_eq!(answer(&"n".repeat(182), json!({})), Decision::ALLOW);
    }
}

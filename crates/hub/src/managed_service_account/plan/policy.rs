//! The admission policy on the Secrets that agents write.

use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use serde_json::json;
use writ_controller::Error;

use crate::managed_service_account::model::POLICY;

/// The policy: a cluster's agent writes only Opaque Secrets that belong to an account of that name, so that it can
/// never obtain a token of the hub through a Secret of the type `kubernetes.io/service-account-token`.
///
/// It has no parameters: a policy whose parameters are missing refuses the Secrets of every user, before it evaluates its
/// match conditions.
pub fn policy() -> Result<(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding), Error> {
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": POLICY },
        "spec": {
            "failurePolicy": "Fail",
            // The defaults are spelled out, because the stored policy is compared field by field.
            "matchConstraints": {
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "resources": ["secrets"],
                    "operations": ["CREATE", "UPDATE"], "scope": "Namespaced",
                }],
                "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
            },
            "matchConditions": [{
                "name": "by-an-agent",
                "expression": "(has(request.userInfo.groups) && \
                    ('system:open-cluster-management:' + request.namespace in request.userInfo.groups || \
                    'open-cluster-management:' + request.namespace in request.userInfo.groups)) || \
                    request.userInfo.username == 'system:serviceaccount:' + request.namespace + ':managed-cluster-agent' || \
                    request.userInfo.username == 'system:serviceaccount:' + request.namespace + \
                    ':managed-serviceaccount-agent' || \
                    request.userInfo.username == 'system:open-cluster-management:cluster:' + request.namespace + \
                    ':addon:managed-serviceaccount:agent:addon-agent'",
            }],
            "validations": [
                {
                    // The Role names the Secrets of the accounts: the right to update one includes the right to create it.
                    "expression": "authorizer.group('').resource('secrets').namespace(request.namespace)\
                        .name(object.metadata.name).check('update').allowed()",
                    "message": "there is no ManagedServiceAccount of that name, or the hub has not seen it yet",
                    "reason": "Forbidden",
                },
                {
                    "expression": "object.type == 'Opaque'",
                    "message": "the Secret of a ManagedServiceAccount must have the type Opaque",
                    "reason": "Forbidden",
                },
                {
                    "expression": "!has(object.metadata.annotations) || \
                        !object.metadata.annotations.exists(key, key.startsWith('kubernetes.io/service-account.'))",
                    "message": "the Secret of a ManagedServiceAccount must not name a ServiceAccount of the hub",
                    "reason": "Forbidden",
                },
                {
                    "expression": "has(object.metadata.ownerReferences) && \
                        object.metadata.ownerReferences.size() == 1 && object.metadata.ownerReferences.all(o, \
                        o.apiVersion.startsWith('authentication.open-cluster-management.io/') && \
                        o.kind == 'ManagedServiceAccount' && o.name == object.metadata.name)",
                    "message": "the Secret must be owned by the ManagedServiceAccount of its name, and by nothing else",
                    "reason": "Forbidden",
                },
            ],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": POLICY },
        "spec": {
            "policyName": POLICY,
            "validationActions": ["Deny"],
        },
    });
    let read = |error: serde_json::Error| Error::Invalid(format!("the policy cannot be written: {error}"));
    Ok((
        serde_json::from_value(policy).map_err(read)?,
        serde_json::from_value(binding).map_err(read)?,
    ))
}

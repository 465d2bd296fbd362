//! What a user loses where an installed definition is older than ours and prunes a field.

/// The definition, the field, and the feature that is off without it.
pub const FEATURES: &[(&str, &str, &str)] = &[
    (
        "clusterpermissions.rbac.open-cluster-management.io",
        "spec.roleRefs",
        "roles of the hub, delivered with a permission",
    ),
    (
        "clusterpermissions.rbac.open-cluster-management.io",
        "spec.clusterRoleBindings",
        "several cluster role bindings in a permission",
    ),
    (
        "clusterpermissions.rbac.open-cluster-management.io",
        "spec.clusterRoleBinding.subjects",
        "several subjects in a binding",
    ),
    (
        "clusterpermissions.rbac.open-cluster-management.io",
        "spec.validate",
        "the check that the roles of a permission exist",
    ),
    (
        "managedclusters.cluster.open-cluster-management.io",
        "status.managedNamespaces",
        "the namespaces that a cluster reports for its sets",
    ),
    (
        "managedclustersets.cluster.open-cluster-management.io",
        "spec.exclusiveKey",
        "sets with exclusive keys",
    ),
    (
        "managedserviceaccounts.authentication.open-cluster-management.io",
        "spec.audiences",
        "tokens for other audiences",
    ),
    (
        "managedserviceaccounts.authentication.open-cluster-management.io",
        "status.secretDigest",
        "the check of a token against what its agent wrote",
    ),
    (
        "managedserviceaccounts.authentication.open-cluster-management.io",
        "spec.ttlSecondsAfterCreation",
        "accounts that end by themselves",
    ),
    (
        "manifestworks.work.open-cluster-management.io",
        "spec.executor",
        "the executor of a work: every work is applied with the agent's rights",
    ),
    (
        "manifestworks.work.open-cluster-management.io",
        "spec.manifestConfigs[].conditionRules",
        "conditions of a work's objects",
    ),
    (
        "manifestworks.work.open-cluster-management.io",
        "spec.manifestConfigs[].updateStrategy.serverSideApply.ignoreFields",
        "fields of others that a work leaves alone",
    ),
    (
        "manifestworks.work.open-cluster-management.io",
        "spec.deleteOption.ttlSecondsAfterFinished",
        "works that end when they are complete",
    ),
    (
        "placements.cluster.open-cluster-management.io",
        "spec.decisionStrategy",
        "decision groups",
    ),
    (
        "placements.cluster.open-cluster-management.io",
        "spec.tolerations",
        "placement on clusters with taints",
    ),
    (
        "rootsyncs.configsync.gke.io",
        "spec.override.roleRefs",
        "custom role bindings of a sync: without them it is cluster-admin",
    ),
];

#[cfg(test)]
mod tests {
    use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
        JSONSchemaProps, JSONSchemaPropsOrArray,
    };

    use super::*;

    fn find<'a>(mut at: &'a JSONSchemaProps, path: &str) -> Option<&'a JSONSchemaProps> {
        for part in path.split('.') {
            at = at.properties.as_ref()?.get(part.trim_end_matches("[]"))?;
            if part.ends_with("[]") {
                let Some(JSONSchemaPropsOrArray::Schema(items)) = &at.items else {
                    return None;
                };
                at = items;
            }
        }
        Some(at)
    }

    #[test]
    fn every_feature_is_a_field_of_ours() {
        for (name, field, feature) in FEATURES {
            let crd = crate::crds()
                .iter()
                .find(|crd| crd.metadata.name.as_deref() == Some(name))
                .unwrap_or_else(|| panic!("{name}"));
            let known = crd.spec.versions.iter().any(|version| {
                let schema = version
                    .schema
                    .as_ref()
                    .and_then(|schema| schema.open_api_v3_schema.as_ref());
                schema.is_some_and(|schema| find(schema, field).is_some())
            });
            assert!(known, "{feature}: {name} has no {field}");
        }
    }
}

use serde_json::json;

use super::*;

#[test]
fn both_kinds_are_served_in_two_versions_with_one_stored() {
    for crd in crds() {
        let versions: Vec<_> = crd
            .spec
            .versions
            .iter()
            .map(|v| (v.name.as_str(), v.served, v.storage))
            .collect();
        assert_eq!(versions, [("v1beta1", true, true), ("v1alpha1", true, false)]);
        assert!(crd.spec.versions.iter().all(|v| v.subresources.is_some()));
    }
}

#[test]
fn the_seeds_example_is_read_whole() {
    let sync: RootSync = serde_json::from_value(json!({
        "apiVersion": "configsync.gke.io/v1beta1", "kind": "RootSync",
        "metadata": {"name": "my-root-sync", "namespace": "config-management-system"},
        "spec": {"overrides": {"roleRefs": [
            {"kind": "ClusterRole", "name": "my-cluster-role"},
            {"kind": "ClusterRole", "name": "my-tenant-role", "namespace": "my-ns"},
            {"kind": "Role", "name": "my-role", "namespace": "my-ns"},
        ]}}
    }))
    .unwrap();
    assert_eq!(sync.spec.source_type, SourceType::Git);
    assert_eq!(sync.spec.overrides.unwrap().role_refs.unwrap().len(), 3);
}

#[test]
fn a_reposync_is_always_unstructured() {
    let spec = RepoSyncSpec::default();
    assert_eq!(
        RootSyncSpec::from(spec).source_format.as_deref(),
        Some("unstructured")
    );
}

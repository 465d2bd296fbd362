use kube::core::object::HasSpec;
use serde_json::{Value, json};

use super::{managed_cluster_set::SelectorType, *};

fn schema_of(kind: &str, version: usize) -> Value {
    let crd = crds().into_iter().find(|c| c.spec.names.kind == kind).unwrap();
    serde_json::to_value(&crd.spec.versions[version]).unwrap()["schema"]["openAPIV3Schema"].clone()
}

#[test]
fn a_cluster_has_the_defaults_of_upstream() {
    let cluster = schema_of("ManagedCluster", 0);
    assert_eq!(
        cluster["properties"]["spec"]["properties"]["leaseDurationSeconds"]["default"],
        60
    );
    assert_eq!(
        cluster["properties"]["spec"]["required"],
        Value::Null,
        "every field of the spec is optional"
    );
}

#[test]
fn sets_have_one_schema_in_three_versions() {
    let crd = crds()
        .into_iter()
        .find(|c| c.spec.names.kind == "ManagedClusterSet")
        .unwrap();
    let names: Vec<_> = crd
        .spec
        .versions
        .iter()
        .map(|v| (v.name.as_str(), v.storage, v.served))
        .collect();
    assert_eq!(
        names,
        [
            ("v1beta2", true, true),
            ("v1beta1", false, true),
            ("v1alpha1", false, true)
        ]
    );
    assert_eq!(
        schema_of("ManagedClusterSet", 0),
        schema_of("ManagedClusterSet", 2)
    );
    let spec = &schema_of("ManagedClusterSet", 0)["properties"]["spec"];
    assert_eq!(
        spec["default"],
        json!({"clusterSelector": {"selectorType": "ExclusiveClusterSetLabel"}})
    );
    assert!(
        spec["x-kubernetes-validations"][0]["rule"]
            .as_str()
            .unwrap()
            .contains("oldSelf")
    );
}

#[test]
fn the_key_of_a_set() {
    let set = |spec: Value| -> ManagedClusterSet {
        serde_json::from_value(json!({
            "apiVersion": "cluster.open-cluster-management.io/v1alpha1",
            "kind": "ManagedClusterSet",
            "metadata": {"name": "apac"},
            "spec": spec,
        }))
        .unwrap()
    };
    let selector =
        json!({"selectorType": "LabelSelector", "labelSelector": {"matchLabels": {"region": "apac"}}});
    for (spec, key) in [
        (json!({}), Some(CLUSTER_SET_LABEL)),
        (json!({"exclusiveKey": ""}), Some(CLUSTER_SET_LABEL)),
        (json!({"exclusiveKey": "region"}), Some("region")),
        (
            json!({"exclusiveKey": "region", "clusterSelector": selector}),
            Some("region"),
        ),
        (
            json!({"exclusiveKey": CLUSTER_SET_LABEL}),
            Some(CLUSTER_SET_LABEL),
        ),
        (json!({"clusterSelector": selector}), None),
        (
            json!({"clusterSelector": {"selectorType": "LegacyClusterSetLabel"}}),
            Some(CLUSTER_SET_LABEL),
        ),
    ] {
        assert_eq!(set(spec.clone()).spec().key(), key, "{spec}");
    }
    assert_eq!(
        set(json!({"clusterSelector": {}}))
            .spec
            .cluster_selector
            .selector_type,
        SelectorType::ExclusiveClusterSetLabel
    );
}

#[test]
fn one_odd_value_does_not_break_an_object() {
    let cluster: ManagedCluster = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": "c1"},
        "spec": {"hubAcceptsClient": true, "taints": [{"key": "a", "effect": "NoSelect", "timeAdded": null}]},
        "status": {"capacity": {"cpu": 4, "memory": "16Gi", "large": 5_000_000_000_i64, "half": 0.5}, "clusterClaims": [{"name": "id.k8s.io", "value": "x"}]},
    }))
    .unwrap();
    let capacity = cluster.status.unwrap().capacity;
    assert_eq!(
        serde_json::to_value(capacity).unwrap(),
        json!({"cpu": 4, "memory": "16Gi", "large": 5_000_000_000_i64, "half": 0.5})
    );
    let decision: PlacementDecision = serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "PlacementDecision",
        "metadata": {"name": "p-decision-1", "namespace": "ns"},
        "status": {"decisions": [{"clusterName": "c1", "reason": ""}]},
    }))
    .unwrap();
    assert_eq!(decision.status.unwrap().decisions[0].cluster_name, "c1");
}

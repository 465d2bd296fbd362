//! The definitions accept what upstream's accept, and say the same.

use serde_json::{Value, json};

use super::*;

fn schema(crd: &CustomResourceDefinition) -> Value {
    serde_json::to_value(crd).unwrap()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
        .clone()
}

#[test]
fn the_schema_keeps_defaults_enums_and_embedded_objects() {
    let work = schema(&ManifestWork::crd());
    let spec = &work["spec"]["properties"];
    let manifest = &spec["workload"]["properties"]["manifests"]["items"];
    assert_eq!(manifest["x-kubernetes-embedded-resource"], json!(true));
    assert_eq!(manifest["x-kubernetes-preserve-unknown-fields"], json!(true));
    assert_eq!(manifest["type"], json!("object"));
    let policy = &spec["deleteOption"]["properties"]["propagationPolicy"];
    assert_eq!(policy["default"], json!("Foreground"));
    assert_eq!(
        policy["enum"],
        json!(["Foreground", "Orphan", "SelectivelyOrphan"])
    );
    let config = &spec["manifestConfigs"]["items"]["properties"];
    let strategy = &config["updateStrategy"]["properties"];
    assert_eq!(strategy["type"]["default"], json!("Update"));
    assert_eq!(
        strategy["serverSideApply"]["properties"]["fieldManager"]["default"],
        json!("work-agent")
    );
    assert_eq!(
        strategy["serverSideApply"]["properties"]["fieldManager"]["pattern"],
        json!("^work-agent")
    );
    let rules = &config["conditionRules"];
    assert_eq!(rules["x-kubernetes-list-map-keys"], json!(["condition"]));
    assert_eq!(
        rules["items"]["x-kubernetes-validations"][0]["rule"],
        json!("self.type != 'CEL' || self.condition != \"\"")
    );
    assert!(spec["executor"].get("required").is_none());
    let account = &spec["executor"]["properties"]["subject"]["properties"]["serviceAccount"]["properties"];
    assert_eq!(account["name"]["maxLength"], json!(253));
}

#[test]
fn an_upstream_work_is_read_and_written_unchanged() {
    let text = json!({
        "apiVersion": "work.open-cluster-management.io/v1",
        "kind": "ManifestWork",
        "metadata": {"name": "web", "namespace": "cluster1"},
        "spec": {
            "workload": {"manifests": [{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}]},
            "deleteOption": {
                "propagationPolicy": "SelectivelyOrphan",
                "selectivelyOrphans": {"orphaningRules": [{"resource": "configmaps", "name": "a"}]},
                "ttlSecondsAfterFinished": 0,
            },
            "manifestConfigs": [{
                "resourceIdentifier": {"resource": "configmaps", "name": "*"},
                "updateStrategy": {"type": "ServerSideApply", "serverSideApply": {
                    "force": true, "fieldManager": "work-agent-a",
                    "ignoreFields": [{"condition": "OnSpokeChange", "jqPathExpressions": [".data.a"]}],
                }},
                "feedbackRules": [{"type": "JSONPaths", "jsonPaths": [{"name": "a", "path": ".data.a"}]}],
                "conditionRules": [{"condition": "Complete", "type": "CEL", "celExpressions": ["true"]}],
                "feedbackScrapeType": "Watch",
            }],
            "executor": {},
        },
    });
    let work: ManifestWork = serde_json::from_value(text.clone()).unwrap();
    assert_eq!(serde_json::to_value(&work).unwrap(), text);
    assert!(work.spec.executor.unwrap().service_account().is_err());
}

#[test]
fn a_replica_set_without_a_strategy_rolls_out_to_all() {
    let set: ManifestWorkReplicaSetSpec = serde_json::from_value(json!({
        "manifestWorkTemplate": {"workload": {}},
        "placementRefs": [{"name": "all"}],
    }))
    .unwrap();
    assert_eq!(set.placement_refs[0].rollout_strategy, RolloutStrategy::default());
    let schema = schema(&ManifestWorkReplicaSet::crd());
    let strategy = &schema["spec"]["properties"]["placementRefs"]["items"]["properties"]["rolloutStrategy"];
    assert_eq!(strategy["default"]["type"], json!("All"));
    assert_eq!(
        strategy["properties"]["progressive"]["properties"]["maxFailures"]["x-kubernetes-int-or-string"],
        json!(true)
    );
}

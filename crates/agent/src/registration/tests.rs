use std::collections::BTreeMap;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::config::{AuthInfo, Kubeconfig};
use serde_json::{Value, json};
use writ_api::cluster::{ClusterClaim, ManagedCluster};
use writ_controller::{Error, renewal};

use super::{
    api_health,
    identity::{self, Lifetime},
    model::Facts,
    plan,
    store::{Kept, PendingRequest, Store},
};

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn claim(name: &str, value: &str, labels: Value) -> ClusterClaim {
    serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1alpha1",
        "kind": "ClusterClaim",
        "metadata": {"name": name, "labels": labels},
        "spec": {"value": value},
    }))
    .unwrap()
}

#[test]
fn claims_are_sorted_bounded_and_hidden_on_request() {
    let mut found: Vec<_> = (0..30)
        .map(|n| claim(&format!("custom{n:02}.example.com"), "x", json!({})))
        .collect();
    found.push(claim("id.k8s.io", "uid-1", json!({})));
    found.push(claim(
        "a-secret",
        "x",
        json!({"open-cluster-management.io/spoke-only": ""}),
    ));
    found.push(claim("agent.writ.dev", "forged", json!({})));
    let claims = plan::claims(found.iter(), &["registration".into(), "work".into()], "agents");
    assert_eq!(claims.len(), 23);
    assert_eq!(
        (claims[0].name.as_str(), claims[0].value.as_str()),
        ("agent.writ.dev", "registration,work")
    );
    assert_eq!(
        (claims[1].name.as_str(), claims[1].value.as_str()),
        ("namespace.agent.writ.dev", "agents")
    );
    assert_eq!(claims[2].name, "id.k8s.io");
    assert_eq!(claims[3].name, "custom00.example.com");
    assert!(!claims.iter().any(|c| c.name == "a-secret"));
}

fn node(cpu: &str, memory: &str, cordoned: bool) -> Node {
    serde_json::from_value(json!({
        "metadata": {"name": "n"},
        "spec": {"unschedulable": cordoned},
        "status": {"capacity": {"cpu": cpu, "memory": memory}, "allocatable": {"cpu": cpu, "memory": memory, "odd": "?"}},
    }))
    .unwrap()
}

#[test]
fn node_resources_are_added_up() {
    let nodes = [
        node("4", "16Gi", false),
        node("3500m", "8Gi", false),
        node("2", "1Gi", true),
    ];
    let sums = serde_json::to_value(plan::resources(nodes.iter()).capacity).unwrap();
    assert_eq!(sums, json!({"cpu": "9500m", "memory": "25Gi"}));
    let sums = serde_json::to_value(plan::resources(nodes.iter()).allocatable).unwrap();
    assert_eq!(sums, json!({"cpu": "7500m", "memory": "24Gi"}));
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn cluster(status: Value) -> ManagedCluster {
    serde_json::from_value(json!({
        "apiVersion": "cluster.open-cluster-management.io/v1",
        "kind": "ManagedCluster",
        "metadata": {"name": "c1", "resourceVersion": "7"},
        "spec": {"hubAcceptsClient": true},
        "status": status,
    }))
    .unwrap()
}

#[test]
fn status_that_is_reported_already_is_not_written() {
    let now = Timestamp::UNIX_EPOCH;
    let facts = Facts {
        version: Some("v1.36.3".into()),
        labels: Some(Err("user cannot".into())),
        ..Facts::default()
    };
    let others = json!({"capacity": {"theirs": "1"}, "conditions": [
        {"type": "HubAcceptedManagedCluster", "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}]});
    let patch = plan::status_patch(&cluster(others), &facts, now).unwrap();
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    assert_eq!(patch["status"]["capacity"], json!({"theirs": "1"}));
    let conditions: BTreeMap<&str, &str> = patch["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["type"].as_str().unwrap(), c["status"].as_str().unwrap()))
        .collect();
    assert_eq!(
        conditions,
        BTreeMap::from([
            ("HubAcceptedManagedCluster", "True"),
            ("ManagedClusterJoined", "True"),
            ("ManagedClusterConditionAvailable", "True"),
            ("ClusterLabelsApplied", "False"),
        ])
    );
    let written = cluster(patch["status"].clone());
    assert_eq!(
        plan::status_patch(&written, &facts, Timestamp::from_second(99).unwrap()),
        None
    );
    let down = Facts {
        unhealthy: Some("status code: 500, ask /livez: etcd failed".into()),
        ..facts
    };
    let patch = plan::status_patch(&written, &down, now).unwrap();
    assert_eq!(
        patch["status"]["conditions"][2]["reason"],
        "ManagedClusterKubeAPIServerUnavailable"
    );
    assert_eq!(
        patch["status"]["conditions"][2]["message"],
        "The kube-apiserver is not ok, status code: 500, ask /livez: etcd failed"
    );
}

/// What nodes do not have any more is not left to be allocated; what others say of the capacity stays.
#[test]
fn allocatable_resource_that_is_gone_is_removed() {
    let gpu = |cpu: &str| json!({"cpu": cpu, "nvidia.com/gpu": "4"});
    let there = cluster(json!({"capacity": gpu("8"), "allocatable": gpu("8")}));
    let facts = Facts {
        resources: plan::resources([node("4", "16Gi", false)].iter()),
        ..Facts::default()
    };
    let patch = plan::status_patch(&there, &facts, Timestamp::UNIX_EPOCH).unwrap();
    assert_eq!(
        patch["status"]["allocatable"],
        json!({"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": null})
    );
    assert_eq!(
        patch["status"]["capacity"],
        json!({"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "4"})
    );
}

#[tokio::test]
async fn api_health_falls_back_to_healthz() {
    for (livez, healthz, well) in [
        (200, 500, true),
        (500, 200, false),
        (403, 200, true),
        (404, 200, true),
        (404, 500, false),
        (404, 404, false),
    ] {
        let server = tower::service_fn(move |request: http::Request<kube::client::Body>| async move {
            let code = match request.uri().path() {
                "/livez" => livez,
                "/healthz" => healthz,
                // That it tells its version does not make it well.
                _ => 200,
            };
            let answer = http::Response::builder().status(code);
            Ok::<_, std::convert::Infallible>(answer.body(kube::client::Body::empty()).unwrap())
        });
        let client = kube::Client::new(server, "default");
        assert_eq!(api_health::ask(&client).await.is_ok(), well, "{livez} {healthz}");
    }
}

#[test]
fn managed_namespaces_are_created_marked_and_released() {
    let asked = serde_json::from_value::<Vec<_>>(json!([
        {"clusterSet": "a", "name": "new"}, {"clusterSet": "a", "name": "there"},
        {"clusterSet": "b", "name": "there"}, {"clusterSet": "b", "name": "again"},
    ]))
    .unwrap();
    let marked = BTreeMap::from([
        ("there".to_owned(), true),
        ("again".to_owned(), false),
        ("dropped".to_owned(), true),
        ("long-dropped".to_owned(), false),
    ]);
    let marked = marked.iter().map(|(name, asked)| (name.as_str(), *asked));
    let changes = plan::namespace_changes(&asked, marked);
    assert_eq!(Vec::from_iter(changes.apply), ["again", "new"]);
    assert_eq!(Vec::from_iter(changes.release), ["dropped"]);

    let facts = Facts {
        namespaces: BTreeMap::from([
            ("new".to_owned(), Err("namespaces is forbidden".to_owned())),
            ("there".to_owned(), Ok(())),
        ]),
        ..Facts::default()
    };
    let now = Timestamp::UNIX_EPOCH;
    let patch = plan::status_patch(&cluster(json!({"managedNamespaces": asked})), &facts, now).unwrap();
    let said: Vec<_> = patch["status"]["managedNamespaces"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n["conditions"][0]["reason"].as_str().unwrap_or_default())
        .collect();
    assert_eq!(
        said,
        ["NamespaceApplyFailed", "NamespaceApplied", "NamespaceApplied", ""]
    );
    let written = cluster(patch["status"].clone());
    assert_eq!(plan::status_patch(&written, &facts, now), None);
    // Whatever else is reported: that list is the hub's, and is left alone.
    let down = Facts {
        unhealthy: Some("status code: 500, ask /livez: etcd failed".into()),
        ..facts
    };
    let patch = plan::status_patch(&written, &down, now).unwrap();
    assert!(patch["status"].get("managedNamespaces").is_none());
}

/// Tools read these words, so they are upstream's to the letter.
#[test]
fn renewal_condition_has_upstreams_words() {
    let life = Lifetime {
        from: Timestamp::from_second(0).unwrap(),
        until: Timestamp::from_second(86_400).unwrap(),
    };
    let good = plan::renewal(Ok(Some(life)));
    assert_eq!(
        (good.reason.as_str(), good.message.as_str()),
        (
            "ClientCertificateUpdated",
            "client certificate rotated starting from 1970-01-01 00:00:00 +0000 UTC to 1970-01-02 00:00:00 +0000 UTC"
        )
    );
    let bad = plan::renewal(Err(&Error::Invalid("no signer".into())));
    assert_eq!(
        (bad.reason.as_str(), bad.message.as_str()),
        (
            "ClientCertificateUpdateFailed",
            "Failed to rotated client certificate no signer"
        )
    );
}

#[test]
fn token_of_an_agent_outlasts_a_day_without_the_hub() {
    let at = |second| Timestamp::from_second(second).unwrap();
    let life = Lifetime {
        from: at(1_000),
        until: at(2_000),
    };
    // However late a token is renewed, more than a day of it is left.
    let ends = at(super::join::TOKEN_SECONDS);
    for cluster in 0..1000 {
        let left = ends.duration_since(renewal::renew_at(at(0), ends, &format!("c{cluster}")));
        assert!(left.as_hours() > 24, "{left}");
    }
    let payload = URL_SAFE_NO_PAD.encode(r#"{"sub": "u", "iat": 1000, "exp": 2000}"#);
    assert_eq!(identity::token(&format!("h.{payload}.s")), Some(life));
    assert_eq!(identity::token("nonsense"), None);
}

#[test]
fn agent_request_names_the_agent_of_its_cluster() {
    let key = identity::new_key().unwrap();
    let request = identity::request("c1", "abc", &key).unwrap();
    assert_eq!(request.metadata.generate_name.as_deref(), Some("c1-"));
    assert_eq!(request.spec.signer_name, "kubernetes.io/kube-apiserver-client");
    let pem = String::from_utf8(request.spec.request.0).unwrap();
    assert!(pem.starts_with("-----BEGIN CERTIFICATE REQUEST-----"));
}

#[tokio::test]
async fn file_store_keeps_identity_and_pending_request() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hub.kubeconfig");
    let store = Store::File(path.clone());
    assert!(store.load().await.unwrap().kubeconfig.is_none());
    let pending = PendingRequest {
        name: "c1-x".into(),
        key: "KEY".into(),
    };
    let kept = Kept {
        pending: Some(pending),
        agent: Some("abc".into()),
        ..Kept::default()
    };
    store.save("c1", &kept).await.unwrap();
    let loaded = store.load().await.unwrap();
    assert_eq!(loaded.pending.unwrap().name, "c1-x");
    assert_eq!(loaded.agent.as_deref(), Some("abc"));

    let bootstrap: Kubeconfig = serde_json::from_value(json!({
        "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://hub"}}], "users": [],
    }))
    .unwrap();
    let auth = AuthInfo {
        client_certificate_data: Some("Q0VSVA==".into()),
        client_key_data: Some("S0VZ".to_owned().into()),
        ..AuthInfo::default()
    };
    let kept = Kept {
        kubeconfig: Some(identity::kubeconfig(&bootstrap, auth).unwrap()),
        agent: Some("abc".into()),
        pending: None,
    };
    store.save("c1", &kept).await.unwrap();
    let loaded = store.load().await.unwrap();
    assert!(loaded.pending.is_none());
    let config = loaded.kubeconfig.unwrap();
    assert_eq!(
        config.clusters[0].cluster.as_ref().unwrap().server.as_deref(),
        Some("https://hub")
    );
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

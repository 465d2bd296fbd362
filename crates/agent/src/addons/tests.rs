use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::config::Cluster;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use writ_api::addon::ManagedClusterAddOn;

use super::plan::{Registration, registration};
use crate::registration::identity;

const USER: &str = "system:open-cluster-management:cluster:c1:addon:managed-serviceaccount:agent:addon-agent";
const GROUP: &str = "system:open-cluster-management:cluster:c1:addon:managed-serviceaccount";

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn addon(status: Value) -> ManagedClusterAddOn {
    serde_json::from_value(json!({
        "apiVersion": "addon.open-cluster-management.io/v1alpha1", "kind": "ManagedClusterAddOn",
        "metadata": {"name": "managed-serviceaccount", "namespace": "c1"}, "spec": {}, "status": status,
    }))
    .unwrap()
}

#[expect(clippy::needless_pass_by_value, reason = "reads better with json! in place")]
fn asked(subject: Value) -> Value {
    let signer = "kubernetes.io/kube-apiserver-client";
    json!({"namespace": "there", "registrations": [
        {"signerName": "example.com/other", "subject": {"user": "root", "groups": []}},
        {"signerName": signer, "subject": subject}]})
}

fn wanted() -> Registration {
    Registration {
        namespace: "there".into(),
        user: USER.into(),
        groups: vec![GROUP.into()],
    }
}

#[test]
fn a_registration_is_what_the_status_says() {
    let right = addon(asked(json!({"user": USER, "groups": [GROUP]})));
    assert_eq!(registration(Some(&right)), Some(wanted()));
    assert_eq!(registration(None), None);
    for nothing in [
        json!({}),
        json!({"namespace": "there", "registrations": []}),
        asked(json!({"user": "", "groups": []})),
    ] {
        assert_eq!(registration(Some(&addon(nothing.clone()))), None, "{nothing}");
    }
    let mut nowhere = asked(json!({"user": USER, "groups": [GROUP]}));
    nowhere["namespace"] = json!("");
    let namespace = registration(Some(&addon(nowhere))).unwrap().namespace;
    assert_eq!(namespace, "open-cluster-management-agent-addon");
}

fn hub(server: &str) -> Cluster {
    serde_json::from_value(json!({"server": server, "certificate-authority-data": "Y2E="})).unwrap()
}

/// A certificate of a user for a key, as a signer would make it.
fn signed(user: &str, groups: &[&str], key: &KeyPair) -> String {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, user);
    for group in groups {
        params.distinguished_name.push(DnType::OrganizationName, *group);
    }
    params.self_signed(key).unwrap().pem()
}

#[test]
fn a_secret_is_good_only_with_all_that_the_addon_needs() {
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let here = hub("https://hub");
    let secret =
        |certificate: &str, key: &KeyPair| wanted().secret(&here, certificate, &key.serialize_pem()).unwrap();
    let certificate = signed(USER, &[GROUP], &key);
    let good = secret(&certificate, &key);
    assert!(wanted().life(&here, Some(&good)).is_some());
    assert!(wanted().life(&here, None).is_none());
    assert!(
        wanted().life(&hub("https://elsewhere"), Some(&good)).is_none(),
        "the hub has moved"
    );
    let moved = Registration {
        user: "another".into(),
        ..wanted()
    };
    assert!(
        moved.life(&here, Some(&good)).is_none(),
        "another user is asked for"
    );
    for (what, bad) in [
        ("another key", secret(&certificate, &other)),
        ("another user", secret(&signed("root", &[GROUP], &key), &key)),
        ("no group", secret(&signed(USER, &[], &key), &key)),
        (
            "a group more",
            secret(&signed(USER, &[GROUP, "more"], &key), &key),
        ),
        ("no certificate", secret("nonsense", &key)),
    ] {
        assert!(wanted().life(&here, Some(&bad)).is_none(), "{what}");
    }
    for field in ["kubeconfig", "tls.crt", "tls.key"] {
        for change in [None, Some(ByteString(b"edited".to_vec()))] {
            let mut bad: Secret = good.clone();
            let data = bad.data.as_mut().unwrap();
            match change {
                Some(value) => data.insert(field.into(), value),
                None => data.remove(field),
            };
            assert!(wanted().life(&here, Some(&bad)).is_none(), "{field}");
        }
    }
}

#[test]
fn a_request_is_named_as_upstreams() {
    let key = identity::new_key().unwrap();
    let request = wanted().request("c1", &key).unwrap();
    assert_eq!(
        request.metadata.generate_name.as_deref(),
        Some("addon-c1-managed-serviceaccount-")
    );
    let labels = request.metadata.labels.unwrap();
    assert_eq!(
        labels
            .get("open-cluster-management.io/addon-name")
            .map(String::as_str),
        Some("managed-serviceaccount")
    );
    assert_eq!(
        labels
            .get("open-cluster-management.io/cluster-name")
            .map(String::as_str),
        Some("c1")
    );
}

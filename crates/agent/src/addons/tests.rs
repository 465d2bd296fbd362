use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::config::Cluster;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde_json::{Value, json};
use writ_api::addon::ManagedClusterAddOn;

use super::{
    model::{Given, Proof, Registration},
    plan::registration,
};
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
        proof: Proof::Certificate {
            groups: vec![GROUP.into()],
        },
    }
}

#[test]
fn registration_follows_the_status_of_the_add_on() {
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

const ACCOUNT: &str = "system:serviceaccount:c1:managed-serviceaccount-agent";

fn by_token(uid: &str) -> Registration {
    Registration {
        user: ACCOUNT.into(),
        proof: Proof::Token { uid: uid.into() },
        ..wanted()
    }
}

#[test]
fn token_registration_waits_for_the_account() {
    let status = |user: &str, ready: &str, message: &str| {
        let mut status = asked(json!({ "user": user }));
        status["kubeClientDriver"] = json!("token");
        status["conditions"] = json!([{"type": "TokenInfrastructureReady", "status": ready, "reason": "r",
            "message": message, "lastTransitionTime": "1970-01-01T00:00:00Z"}]);
        registration(Some(&addon(status)))
    };
    let there = "ServiceAccount c1/managed-serviceaccount-agent (UID: u1) is ready";
    assert_eq!(status(ACCOUNT, "True", there), Some(by_token("u1")));
    assert_eq!(status(ACCOUNT, "False", there), None);
    assert_eq!(status(ACCOUNT, "True", "it is ready"), None);
    assert_eq!(status(ACCOUNT, "True", "(UID: )"), None);
    // Of no other account.
    for other in [USER, "system:serviceaccount:c2:managed-serviceaccount-agent"] {
        assert_eq!(status(other, "True", there), None, "{other}");
    }
}

/// A token as a server writes it, as far as it is read here.
fn token(user: &str, uid: &str) -> String {
    let claims =
        json!({"sub": user, "iat": 100, "exp": 3700, "kubernetes.io": {"serviceaccount": {"uid": uid}}});
    format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string()))
}

#[test]
fn secret_with_a_token_is_good_only_for_its_account() {
    let here = hub("https://hub");
    let secret = |token: String| by_token("u1").secret(&here, &Given::Token(token)).unwrap();
    let good = secret(token(ACCOUNT, "u1"));
    let life = by_token("u1").life(&here, Some(&good)).unwrap();
    assert_eq!(life.until.duration_since(life.from).as_secs(), 3600);
    let data = good.data.clone().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["kubeconfig", "token"]);
    let config = String::from_utf8(data["kubeconfig"].0.clone()).unwrap();
    assert!(
        config.contains("\"tokenFile\": \"token\"") && !config.contains("h."),
        "{config}"
    );
    let anew = by_token("u2");
    assert!(
        anew.life(&here, Some(&good)).is_none(),
        "the account was made anew"
    );
    assert!(
        wanted().life(&here, Some(&good)).is_none(),
        "a certificate is asked for"
    );
    for bad in [
        token(ACCOUNT, "u2"),
        token("system:serviceaccount:c1:default", "u1"),
        "nonsense".into(),
    ] {
        assert!(
            by_token("u1").life(&here, Some(&secret(bad.clone()))).is_none(),
            "{bad}"
        );
    }
    let elsewhere = hub("https://elsewhere");
    assert!(by_token("u1").life(&elsewhere, Some(&good)).is_none());
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
fn secret_is_good_only_with_everything_the_add_on_needs() {
    let (key, other) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
    let here = hub("https://hub");
    let secret = |certificate: &str, key: &KeyPair| {
        let given = Given::Certificate {
            certificate: certificate.into(),
            key: key.serialize_pem(),
        };
        wanted().secret(&here, &given).unwrap()
    };
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
fn certificate_request_is_named_as_upstreams() {
    let key = identity::new_key().unwrap();
    let request = wanted().request("c1", &[GROUP.into()], &key).unwrap();
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

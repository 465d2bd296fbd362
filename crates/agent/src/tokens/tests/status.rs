//! What is written: the status and the Secret.

use serde_json::json;
use writ_controller::condition;

use super::{
    super::{
        model::{Address, Cluster, Report},
        plan::{secret, service_account, status, token as plan},
    },
    CLUSTER, account, at, settings,
};

#[test]
fn each_new_token_changes_the_refresh_time() {
    let mut account = super::account(&json!({}));
    let good = |refreshed| Report::Good {
        expires: at(1000),
        digest: "d".into(),
        refreshed,
        authenticates: None,
        previous: None,
        keys: None,
    };
    let first = status::status(&account, &good(Some(at(50))), at(50));
    assert!(condition::is_true(&first.conditions, "SecretCreated"));
    assert!(condition::is_true(&first.conditions, "AllServiceAccountPresent"));
    assert_eq!(first.conditions[0].observed_generation, Some(3));
    account.status = Some(first.clone());
    let left = Report::Good {
        expires: at(1000),
        digest: "d".into(),
        refreshed: None,
        authenticates: None,
        previous: Some("read the ServiceAccount before/a: forbidden".into()),
        keys: None,
    };
    let said = status::status(&account, &left, at(60)).conditions;
    let said = condition::find(&said, "FormerServiceAccountGone").unwrap();
    assert_eq!(
        (said.status.as_str(), said.reason.as_str()),
        ("False", "FormerServiceAccountLeft")
    );
    assert!(said.message.contains("before/a"), "{}", said.message);
    let same_second = status::status(&account, &good(Some(at(50))), at(50));
    assert_ne!(same_second.token_secret_ref, first.token_secret_ref);
    account.status = Some(same_second.clone());
    assert_eq!(
        status::status(&account, &good(None), at(900)),
        same_second,
        "nothing new, nothing written"
    );
    // The report of the next token failed; the one after that makes up for it.
    let next = Report::Good {
        expires: at(2000),
        digest: "e".into(),
        refreshed: None,
        authenticates: None,
        previous: None,
        keys: None,
    };
    let made_up = status::status(&account, &next, at(900));
    assert_ne!(made_up.token_secret_ref, same_second.token_secret_ref);
    let failed = status::status(
        &account,
        &Report::Failed {
            present: true,
            message: "no".into(),
        },
        at(950),
    );
    assert_eq!(failed.token_secret_ref, same_second.token_secret_ref);
    assert!(!condition::is_true(&failed.conditions, "TokenReported"));
}

#[test]
fn failure_keeps_the_report_of_a_foreign_service_account() {
    let failed = Report::Failed {
        present: false,
        message: "no answer".into(),
    };
    for (said, wanted) in [
        ("ServiceAccountNotOurs", "ServiceAccountNotOurs"),
        ("NameReserved", "NameReserved"),
        ("ServiceAccountTerminating", "ServiceAccountMissing"),
    ] {
        let before = json!({"status": {"conditions": [{
            "type": "AllServiceAccountPresent", "status": "False", "reason": said, "message": "words",
            "lastTransitionTime": "1970-01-01T00:00:00Z",
        }]}});
        let status = status::status(&account(&before), &failed, at(50));
        let present = condition::find(&status.conditions, "AllServiceAccountPresent").unwrap();
        assert_eq!(
            (present.status.as_str(), present.reason.as_str()),
            ("False", wanted)
        );
        let token = condition::find(&status.conditions, "TokenReported").unwrap();
        assert_eq!(token.message, "no answer");
    }
}

#[test]
fn withdrawn_token_is_removed_from_the_status() {
    let taken = service_account::taken_by_an_add_on("a", &settings());
    let reported = account(&json!({"status": {
        "tokenSecretRef": {"name": "a", "lastRefreshTimestamp": "1970-01-01T00:00:00Z"},
        "expirationTimestamp": "1970-01-01T00:00:00Z", "secretDigest": "d",
    }}));
    let said = status::status(&reported, &Report::Refused(taken), at(50));
    assert_eq!(
        (
            said.token_secret_ref,
            said.expiration_timestamp,
            said.secret_digest
        ),
        (None, None, None)
    );
    for type_ in ["AllServiceAccountPresent", "SecretCreated", "TokenReported"] {
        let said = condition::find(&said.conditions, type_).unwrap();
        assert_eq!(
            (said.status.as_str(), said.reason.as_str()),
            ("False", "NameReserved")
        );
    }
}

#[test]
fn optional_keys_hold_kubeconfig_and_argocd_cluster() {
    let with_keys = account(
        &json!({"metadata": {"annotations": {"authentication.writ.dev/secret-keys": "kubeconfig, argocd"}}}),
    );
    let wish = plan::wish(&with_keys, &settings()).unwrap();
    let secret = secret::wanted(&with_keys, &wish, &CLUSTER, b"tok", None);
    let data = secret.data.unwrap();
    let text = |key: &str| String::from_utf8(data[key].0.clone()).unwrap();
    assert_eq!((text("name"), text("server")), ("c1".into(), "https://c1".into()));
    let config: serde_json::Value = serde_json::from_str(&text("config")).unwrap();
    assert_eq!(config["bearerToken"], "tok");
    let config: serde_json::Value = serde_json::from_str(&text("kubeconfig")).unwrap();
    assert_eq!(config["users"][0]["user"]["token"], "tok");
    assert_eq!(config["clusters"][0]["cluster"]["server"], "https://c1");
    // Behind a balancer with a CA of its own these keys hold that one; what clients in the cluster use stays.
    let external = Address {
        url: "https://c1.example".into(),
        ca: Some(b"EXT".to_vec()),
    };
    let cluster = Cluster {
        address: Some(&external),
        ..CLUSTER.clone()
    };
    let data = secret::wanted(&with_keys, &wish, &cluster, b"tok", None)
        .data
        .unwrap();
    let read = |key: &str| -> serde_json::Value { serde_json::from_slice(&data[key].0).unwrap() };
    assert_eq!(read("config")["tlsClientConfig"]["caData"], "RVhU");
    assert_eq!(
        read("kubeconfig")["clusters"][0]["cluster"]["certificate-authority-data"],
        "RVhU"
    );
    assert_eq!(data["ca.crt"].0, b"CA");
    // What cannot be written is said.
    let missing = |keys: &str, address: Option<&Address>| {
        let keys = json!({"metadata": {"annotations": {"authentication.writ.dev/secret-keys": keys}}});
        let wish = plan::wish(&account(&keys), &settings()).unwrap();
        plan::keys_missing(&wish, address).map(|missing| missing.reason)
    };
    assert_eq!(missing("kubeconfig, argocd,", Some(&external)), None);
    assert_eq!(missing("", None), None);
    assert_eq!(missing("argocd", None), Some("AddressUnknown"));
    assert_eq!(missing("kubeconfig,argo", Some(&external)), Some("UnknownKey"));
}

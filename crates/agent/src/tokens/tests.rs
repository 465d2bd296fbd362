//! Tables against the plan.

use std::sync::LazyLock;

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{
    ByteString,
    api::{
        core::v1::{Secret, ServiceAccount},
        rbac::v1::Role,
    },
};
use serde_json::json;
use writ_api::authentication::{KEY_CA, KEY_TOKEN, ManagedServiceAccount, digest};

use super::{
    model::{Address, Cluster, Facts, Settings, Verdict},
    plan::{role, secret, service_account as own, token as plan},
};
use crate::token_claims::{self, Claims};

mod previous_service_account;
mod service_account;
mod status;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn settings() -> Settings {
    Settings {
        cluster: "c1".into(),
        namespace: "agents".into(),
        reserved: vec!["writ-agent".into()],
        url: Some("https://c1".into()),
        ..Settings::default()
    }
}

fn account(change: &serde_json::Value) -> ManagedServiceAccount {
    let mut object = json!({
        "apiVersion": "authentication.open-cluster-management.io/v1beta1",
        "kind": "ManagedServiceAccount",
        "metadata": { "name": "a", "namespace": "c1", "uid": "u1", "generation": 3 },
        "spec": { "rotation": { "validity": "1000s" } },
    });
    json_patch::merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn service_account(change: &serde_json::Value) -> ServiceAccount {
    let mut object = serde_json::to_value(own::wanted(&account(&json!({})), &settings())).unwrap();
    json_patch::merge(&mut object, &json!({ "metadata": { "uid": "s1" } }));
    json_patch::merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn token(subject: &str, issued: i64, expires: i64, uid: &str) -> Vec<u8> {
    let claims = json!({
        "sub": subject, "iat": issued, "exp": expires, "aud": ["api"],
        "kubernetes.io": { "serviceaccount": { "uid": uid } },
    });
    format!("h.{}.s", URL_SAFE_NO_PAD.encode(claims.to_string())).into_bytes()
}

static ADDRESS: LazyLock<Address> = LazyLock::new(|| Address {
    url: "https://c1".into(),
    ca: None,
});

static CLUSTER: LazyLock<Cluster<'static>> = LazyLock::new(|| Cluster {
    name: "c1",
    ca: b"CA",
    address: Some(&ADDRESS),
});

/// Judges, at second 100, a Secret whose token was issued at second 0 for 1000 s.
fn judge(account: &ManagedServiceAccount, change: impl FnOnce(&mut Secret), now: i64) -> Verdict {
    let wish = plan::wish(account, &settings()).unwrap();
    let token = token("system:serviceaccount:agents:a", 0, 1000, "s1");
    let original = self::account(&json!({}));
    let first = plan::wish(&original, &settings()).unwrap();
    let mut secret = secret::wanted(&original, &first, &CLUSTER, &token, Some((at(1000), at(0))));
    change(&mut secret);
    let facts = Facts {
        account,
        wish: &wish,
        uid: "s1",
        cluster: CLUSTER.clone(),
        namespace: "agents",
        now: at(now),
    };
    plan::judge(Some(&secret), &facts)
}

#[test]
fn invalid_account_is_refused_with_its_field() {
    let wish = plan::wish(&account(&json!({})), &settings()).unwrap();
    assert_eq!(
        (wish.validity.as_secs(), wish.rotate, wish.adopt),
        (1000, true, false)
    );
    let cases = [
        (
            json!({"spec": {"rotation": {"validity": "30d"}}}),
            "TokenReported",
            "InvalidValidity",
            "\"30d\"",
        ),
        (
            json!({"spec": {"rotation": {"validity": "1s"}}}),
            "TokenReported",
            "InvalidValidity",
            "10m0s",
        ),
        (
            json!({"spec": {"audiences": ["x", ""]}}),
            "TokenReported",
            "InvalidAudience",
            "spec.audiences[1]",
        ),
        (
            json!({"spec": {"audiences": ["x", "x"]}}),
            "TokenReported",
            "InvalidAudience",
            "twice",
        ),
        (
            json!({"metadata": {"name": "writ-agent"}}),
            "AllServiceAccountPresent",
            "NameReserved",
            "another name",
        ),
    ];
    for (change, condition, reason, part) in cases {
        let refusal = plan::wish(&account(&change), &settings()).unwrap_err();
        assert_eq!(
            (refusal.condition, refusal.reason),
            (condition, reason),
            "{change}"
        );
        assert!(refusal.message.contains(part), "{}", refusal.message);
    }
    // Rotation is always on in this group, unless the hub says that the account comes from the other one.
    let off = json!({"spec": {"rotation": {"enabled": false}}});
    assert!(plan::wish(&account(&off), &settings()).unwrap().rotate);
    let off = json!({"metadata": {"annotations": {"authentication.writ.dev/rotation": "disabled"}}});
    assert!(!plan::wish(&account(&off), &settings()).unwrap().rotate);
}

#[test]
fn secret_is_judged_good_repaired_renewed_or_foreign() {
    let plain = account(&json!({}));
    let nothing = |_: &mut Secret| {};
    let data = |secret: &mut Secret, key: &str, value: &[u8]| {
        secret
            .data
            .get_or_insert_default()
            .insert(key.into(), ByteString(value.to_vec()));
    };
    let name = |verdict: Verdict| match verdict {
        Verdict::Good(_) => "good".to_owned(),
        Verdict::Repair(_) => "repair".to_owned(),
        Verdict::Renew(why) => why.to_owned(),
        Verdict::Malformed => "malformed".to_owned(),
        Verdict::NotOurs => "not ours".to_owned(),
    };
    let at_100 = |change: &dyn Fn(&mut Secret)| name(judge(&plain, change, 100));

    assert_eq!(at_100(&nothing), "good");
    assert_eq!(at_100(&|s| data(s, "theirs", b"x")), "good");
    assert_eq!(
        at_100(&|s| {
            s.metadata.annotations = None;
        }),
        "good"
    );
    assert_eq!(at_100(&|s| data(s, KEY_CA, b"evil")), "repair");
    assert_eq!(at_100(&|s| s.metadata.labels = None), "repair");
    assert_eq!(at_100(&|s| s.metadata.owner_references = None), "repair");
    assert_eq!(at_100(&|s| data(s, KEY_TOKEN, b"")), "malformed");
    assert_eq!(at_100(&|s| data(s, KEY_TOKEN, b"no token")), "malformed");
    assert_eq!(at_100(&|s| s.data = None), "malformed");
    assert_eq!(
        at_100(&|s| s.type_ = Some("kubernetes.io/tls".into())),
        "the Secret cannot be changed"
    );
    assert_eq!(
        at_100(&|s| s.immutable = Some(true)),
        "the Secret cannot be changed"
    );
    assert_eq!(
        at_100(&|s| data(s, KEY_TOKEN, &token("system:serviceaccount:old:a", 0, 1000, "s1"))),
        "the token is another account's"
    );
    assert_eq!(
        at_100(&|s| data(
            s,
            KEY_TOKEN,
            &token("system:serviceaccount:agents:a", 0, 1000, "s0")
        )),
        "the ServiceAccount is a new one"
    );
    assert_eq!(
        at_100(&|s| {
            s.metadata.labels = None;
            s.metadata.owner_references = None;
        }),
        "not ours"
    );
    // One that was reported before stays ours without its marks.
    let reported = account(&json!({"status": {
        "tokenSecretRef": {"name": "a", "lastRefreshTimestamp": "1970-01-01T00:00:00Z"},
        "conditions": [{"type": "SecretCreated", "status": "True", "reason": "SecretCreated", "message": "",
            "lastTransitionTime": "1970-01-01T00:00:00Z"}],
    }}));
    let stripped = |s: &mut Secret| {
        s.metadata.labels = None;
        s.metadata.owner_references = None;
    };
    assert_eq!(name(judge(&reported, stripped, 100)), "repair");

    // As it was reported, with a CA that is not the cluster's: the cluster has another one since.
    let before = |s: &mut Secret| data(s, KEY_CA, b"CA of before");
    let token = token("system:serviceaccount:agents:a", 0, 1000, "s1");
    let of_before = Cluster {
        ca: b"CA of before",
        ..CLUSTER.clone()
    };
    let wish = plan::wish(&plain, &settings()).unwrap();
    let written = secret::wanted(&plain, &wish, &of_before, &token, None);
    let reported = account(&json!({"status": {"secretDigest": digest::of(&written)}}));
    assert_eq!(name(judge(&reported, before, 100)), "the cluster has another CA");

    let longer = account(&json!({"spec": {"rotation": {"validity": "2000s"}}}));
    assert_eq!(
        name(judge(&longer, nothing, 100)),
        "the account asks for another token"
    );
    let audience = account(&json!({"spec": {"audiences": ["foo"]}}));
    assert_eq!(
        name(judge(&audience, nothing, 100)),
        "the account asks for another token"
    );
    let of_upstream = |s: &mut Secret| s.metadata.annotations = None;
    assert_eq!(name(judge(&longer, of_upstream, 100)), "good");
    assert_eq!(
        name(judge(&audience, of_upstream, 100)),
        "the token is for another audience"
    );
    assert_eq!(name(judge(&plain, nothing, 699)), "good");
    assert_eq!(name(judge(&plain, nothing, 800)), "the token is to be renewed");
    let off =
        account(&json!({"metadata": {"annotations": {"authentication.writ.dev/rotation": "disabled"}}}));
    assert_eq!(name(judge(&off, nothing, 999)), "good");
}

#[test]
fn renewals_of_a_fleet_are_spread() {
    let claims = Claims {
        subject: String::new(),
        issued: at(0),
        expires: at(1_000_000),
        audiences: Vec::new(),
        uid: None,
    };
    let mut tenths = [0_u32; 10];
    for index in 0..1000 {
        let mut account = account(&json!({}));
        account.metadata.uid = Some(format!("uid-{index}"));
        let renewed = plan::renew_at(&claims, &account).as_second();
        assert!((700_000..=800_000).contains(&renewed), "{renewed}");
        assert_eq!(
            renewed,
            plan::renew_at(&claims, &account).as_second(),
            "a restart moves nothing"
        );
        tenths[usize::try_from((renewed - 700_000) / 10_001).unwrap()] += 1;
    }
    assert!(
        tenths.iter().all(|count| (50..=200).contains(count)),
        "{tenths:?}"
    );
}

#[test]
fn skew_of_a_few_seconds_is_latency() {
    for (theirs, wanted) in [(96, 0), (105, 0), (110, 10), (40, -60)] {
        assert_eq!(plan::skew(at(theirs), at(100)), SignedDuration::from_secs(wanted));
    }
}

#[test]
fn malformed_token_has_no_claims() {
    for text in ["", "a", "a.b", "a.b.c", "a.e30.c", "a.e30.c.d"] {
        assert_eq!(token_claims::read(text.as_bytes()), None, "{text:?}");
    }
    let read = token_claims::read(&token("system:serviceaccount:n:a", 1, 2, "u")).unwrap();
    assert_eq!(token_claims::namespace_of(&read.subject), Some("n"));
    assert_eq!(
        read.expires.duration_since(read.issued),
        SignedDuration::from_secs(1)
    );
}

#[test]
fn role_names_the_writable_secrets() {
    let role =
        |rules: serde_json::Value| -> Role { serde_json::from_value(json!({"rules": rules})).unwrap() };
    let create = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["create"]});
    let named = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "update"], "resourceNames": ["a", "b"]});
    let any = json!({"apiGroups": [""], "resources": ["secrets"], "verbs": ["update"]});
    let other = json!({"apiGroups": [""], "resources": ["configmaps"], "verbs": ["update"]});
    let ours = role::writable_secrets(&role(json!([create, named, other]))).unwrap();
    assert_eq!(ours.into_iter().collect::<Vec<_>>(), ["a", "b"]);
    assert!(role::writable_secrets(&role(json!([create]))).unwrap().is_empty());
    assert_eq!(role::writable_secrets(&role(json!([named, any]))), None);
}

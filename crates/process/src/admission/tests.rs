//! The framework, with handlers that decide what each test needs.

use std::{
    future::ready,
    sync::{Arc, Mutex},
};

use futures::{FutureExt, future::BoxFuture};
use http_body_util::BodyExt as _;
use k8s_openapi::api::{authentication::v1::UserInfo, core::v1::Service};
use serde_json::{Value, json};
use tower::ServiceExt as _;
use writ_controller::Error;

use super::*;

type Decide = fn(&Request) -> Result<Decision, Error>;

const TABLE: &[Webhook<Decide>] = &[
    Webhook {
        name: "first.example.com",
        configuration: "shared",
        path: "/first",
        mutating: false,
        rule: Rule {
            group: "example.com",
            version: "v1",
            resources: &["toys"],
            operations: &[Operation::Create, Operation::Update],
            scope: "Namespaced",
        },
        only_if: Some(SPEC_CHANGES),
        handler: |decide, request| ready(decide(&request)).boxed(),
    },
    Webhook {
        name: "second.example.com",
        configuration: "shared",
        path: "/second",
        mutating: false,
        rule: Rule {
            group: "example.com",
            version: "*",
            resources: &["toys", "games"],
            operations: &[Operation::Delete],
            scope: "*",
        },
        only_if: None,
        handler: |decide, request| ready(decide(&request)).boxed(),
    },
    Webhook {
        name: "third.example.com",
        configuration: "shared",
        path: "/third",
        mutating: true,
        rule: Rule {
            group: "example.com",
            version: "*",
            resources: &["toys"],
            operations: &[Operation::Create],
            scope: "*",
        },
        only_if: None,
        handler: |decide, request| ready(decide(&request)).boxed(),
    },
];

/// Allows the verbs that it lists and remembers what it was asked; an unknown verb `fail` is an error.
#[derive(Default)]
struct Verbs {
    allowed: &'static [&'static str],
    asked: Mutex<Vec<(Option<String>, Access)>>,
}

impl Authorizer for Verbs {
    fn is_allowed<'a>(
        &'a self,
        user: &'a UserInfo,
        access: &'a Access,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        self.asked
            .lock()
            .unwrap()
            .push((user.username.clone(), access.clone()));
        ready(match access.verb {
            "fail" => Err(Error::io("ask", "no answer")),
            verb => Ok(self.allowed.contains(&verb)),
        })
        .boxed()
    }
}

fn access(verb: &'static str) -> Access {
    Access {
        verb,
        group: "example.com",
        resource: "toys",
        ..Access::default()
    }
}

async fn answer(decide: Decide, verbs: &Arc<Verbs>) -> Value {
    let authorizer: Arc<dyn Authorizer> = verbs.clone();
    let body = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "u", "name": "n", "operation": "CREATE", "userInfo": {"username": "alice"}, "dryRun": false,
        "kind": {"group": "", "version": "", "kind": ""}, "resource": {"group": "", "version": "", "resource": ""},
        "object": {"apiVersion": "example.com/v1", "kind": "Toy", "metadata": {"name": "n"}, "spec": {"a": 1}},
    }});
    let request = http::Request::post("/first")
        .header("content-type", "application/json")
        .body(axum::body::Body::from(body.to_string()))
        .unwrap();
    let answer = router(TABLE, &decide, &authorizer)
        .oneshot(request)
        .await
        .unwrap();
    let bytes = answer.into_body().collect().await.unwrap().to_bytes();
    let review: Value = serde_json::from_slice(&bytes).unwrap();
    review["response"].clone()
}

#[test]
fn configurations_group_webhooks_by_configuration_and_fail_closed() {
    let found = configurations(TABLE);
    let names = |hooks: Vec<String>| hooks.join(",");
    let [validating] = &found.validating[..] else {
        panic!("{found:?}")
    };
    let [mutating] = &found.mutating[..] else {
        panic!("{found:?}")
    };
    assert_eq!(validating.metadata.name.as_deref(), Some("shared"));
    assert_eq!(mutating.metadata.name.as_deref(), Some("shared"));
    let hooks = validating.webhooks.clone().unwrap();
    assert_eq!(
        names(hooks.iter().map(|hook| hook.name.clone()).collect()),
        "first.example.com,second.example.com"
    );
    for hook in &hooks {
        assert_eq!(hook.failure_policy.as_deref(), Some("Fail"));
    }
    let first = serde_json::to_value(&hooks[0]).unwrap();
    assert_eq!(
        first["rules"],
        json!([{"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["toys"],
            "operations": ["CREATE", "UPDATE"], "scope": "Namespaced"}])
    );
    assert_eq!(first["matchConditions"][0]["name"], "the-spec-changes");
    assert_eq!(first["clientConfig"]["service"]["path"], "/first");
    let third = serde_json::to_value(&mutating.webhooks).unwrap();
    assert_eq!(third[0]["reinvocationPolicy"], "IfNeeded");
    assert_eq!(third[0]["failurePolicy"], "Fail");
}

#[tokio::test]
async fn denied_request_carries_code_reason_and_message() {
    let verbs = Arc::new(Verbs::default());
    for (decide, code, reason, message) in [
        (
            (|_| Ok(Decision::invalid("bad"))) as Decide,
            400,
            "BadRequest",
            "bad",
        ),
        (|_| Ok(Decision::forbidden("no")), 403, "Forbidden", "no"),
        (
            |_| Err(Error::Invalid("unreadable".into())),
            400,
            "BadRequest",
            "unreadable",
        ),
        (
            |_| Err(Error::io("read", "no answer")),
            500,
            "InternalError",
            "could not be checked",
        ),
    ] {
        let response = answer(decide, &verbs).await;
        assert_eq!(response["allowed"], false, "{response}");
        assert_eq!(response["status"]["code"], code, "{response}");
        assert_eq!(response["status"]["reason"], reason, "{response}");
        let said = response["status"]["message"].as_str().unwrap();
        assert!(said.contains(message), "{response}");
    }
}

#[tokio::test]
async fn requirement_is_met_by_any_of_its_rights() {
    let decide: Decide = |_| {
        Ok(Decision::require(vec![Requirement {
            any_of: vec![access("a"), access("b"), access("fail")],
            refusal: "needs a or b".into(),
        }]))
    };
    let verbs = Arc::new(Verbs {
        allowed: &["b"],
        ..Verbs::default()
    });
    assert_eq!(answer(decide, &verbs).await["allowed"], true);
    // Asked as the requester, and no further than needed.
    let asked = verbs.asked.lock().unwrap().clone();
    assert_eq!(
        asked,
        [
            (Some("alice".into()), access("a")),
            (Some("alice".into()), access("b"))
        ]
    );
}

#[tokio::test]
async fn requirement_not_met_denies_with_its_refusal() {
    let decide: Decide = |_| {
        Ok(Decision::require(vec![
            Requirement::one(access("a"), "needs a"),
            Requirement::one(access("b"), "needs b"),
        ]))
    };
    let verbs = Arc::new(Verbs {
        allowed: &["a"],
        ..Verbs::default()
    });
    let response = answer(decide, &verbs).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 403);
    assert_eq!(response["status"]["message"], "needs b");
}

#[tokio::test]
async fn authorizer_without_answer_denies() {
    let decide: Decide = |_| {
        Ok(Decision::require(vec![Requirement::one(
            access("fail"),
            "needs it",
        )]))
    };
    let response = answer(decide, &Arc::new(Verbs::default())).await;
    assert_eq!(response["allowed"], false);
    assert_eq!(response["status"]["code"], 500);
}

#[tokio::test]
async fn allowed_request_carries_warnings_and_patch() {
    let decide: Decide = |_| {
        Ok(Decision::Allow {
            requirements: Vec::new(),
            warnings: vec!["careful".into()],
            patch: Some(patch_between(&json!({"a": 1}), &json!({"a": 2}))?),
        })
    };
    let verbs = Arc::new(Verbs::default());
    let response = answer(decide, &verbs).await;
    assert_eq!(response["allowed"], true);
    assert_eq!(response["warnings"], json!(["careful"]));
    assert_eq!(response["patchType"], "JSONPatch");
    // An empty patch is none.
    let same: Decide = |_| Ok(Decision::patched(patch_between(&json!({}), &json!({}))?));
    assert_eq!(answer(same, &verbs).await["patch"], Value::Null);
}

#[test]
fn access_review_names_the_whole_requester_and_the_subresource() {
    let user = UserInfo {
        username: Some("alice".into()),
        uid: Some("1".into()),
        groups: Some(vec!["team".into()]),
        extra: Some([("k".to_owned(), vec!["v".to_owned()])].into()),
    };
    let access = Access {
        verb: "create",
        group: "example.com",
        resource: "toys/share",
        name: Some("ball".into()),
        namespace: None,
    };
    let spec = access.review(&user);
    assert_eq!(
        (spec.user, spec.uid, spec.groups, spec.extra),
        (user.username, user.uid, user.groups, user.extra)
    );
    let asked = spec.resource_attributes.unwrap();
    assert_eq!(asked.resource.as_deref(), Some("toys"));
    assert_eq!(asked.subresource.as_deref(), Some("share"));
    assert_eq!(access.to_string(), "create toys/share.example.com \"ball\"");
}

#[test]
fn status_that_cannot_be_read_is_left_out() {
    let request = |new: Value| -> Request {
        serde_json::from_value(
            json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
            "uid": "u", "name": "n", "operation": "CREATE", "userInfo": {}, "dryRun": false,
            "kind": {"group": "", "version": "", "kind": ""},
            "resource": {"group": "", "version": "", "resource": ""}, "object": new}),
        )
        .unwrap()
    };
    let map = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "n"}, "spec": {}});
    let mut unreadable_status = map.clone();
    unreadable_status["status"] = json!({"loadBalancer": "many"});
    let mut unreadable_spec = map;
    unreadable_spec["spec"] = json!({"ports": 3});
    let read = OldAndNew::<Service>::of(&request(unreadable_status)).unwrap();
    assert!(read.new.is_some() && read.old.is_none());
    assert!(matches!(
        OldAndNew::<Service>::of(&request(unreadable_spec)),
        Err(Error::Invalid(_))
    ));
}

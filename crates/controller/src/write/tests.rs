use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Client, client::Body};
use serde_json::json;

use super::*;

#[test]
fn difference_leaves_what_others_added() {
    let current = json!({"metadata": {"labels": {"a": "1", "theirs": "x"}}, "data": {"k": "v"}, "list": [1]});
    assert_eq!(
        difference(
            &current,
            &json!({"metadata": {"labels": {"a": "1"}}, "list": [1]})
        ),
        None
    );
    assert_eq!(
        difference(
            &current,
            &json!({"metadata": {"labels": {"a": "2"}}, "list": [1, 2]})
        ),
        Some(json!({"metadata": {"labels": {"a": "2"}}, "list": [1, 2]}))
    );
    assert_eq!(difference(&json!({}), &json!({"a": null})), None);
}

#[tokio::test]
async fn write_with_unreadable_answer_succeeds() {
    use k8s_openapi::api::apps::v1::Deployment;

    let server = tower::service_fn(|_: http::Request<Body>| async {
        let answer = json!({"metadata": {"name": "d"}, "status": {"replicas": 5_000_000_000_i64}});
        Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(answer.to_string().into_bytes())))
    });
    let api: Api<Deployment> = Api::default_namespaced(Client::new(server, "default"));
    assert!(api.get("d").await.is_err(), "a reader needs the answer");
    let mut wanted = Deployment::default();
    wanted.metadata.name = Some("d".into());
    let current = wanted.clone();
    assert_eq!(
        ensure(&api, None, &wanted, "test").await.unwrap(),
        Outcome::Created
    );
    wanted.metadata.labels = Some([("a".to_owned(), "b".to_owned())].into());
    let changed = ensure(&api, Some(&current), &wanted, "test").await.unwrap();
    assert_eq!(changed, Outcome::Changed);
    assert!(
        ensure_status(&api, &current, &json!({"replicas": 1}), "test")
            .await
            .unwrap()
    );
    delete(&api, "d", None).await.unwrap();
}

#[test]
fn replacement_removes_what_is_not_wanted() {
    let have = json!({"a": 1, "b": {"c": 2, "d": 3}});
    assert_eq!(replacement(&have, &have), None);
    assert_eq!(
        replacement(&have, &json!({"b": {"c": 2}})),
        Some(json!({"a": null, "b": {"d": null}}))
    );
}

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A server that gives these answers in turn, and what it was asked: method and body.
fn server(answers: impl IntoIterator<Item = (u16, Value)>) -> (Api<ConfigMap>, Asked) {
    let asked = Asked::default();
    let answers: Vec<(u16, Value)> = answers.into_iter().collect();
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    let log = asked.clone();
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (log, answers) = (log.clone(), answers.clone());
        async move {
            let method = request.method().to_string();
            let body = request.into_body().collect_bytes().await.unwrap();
            log.lock()
                .unwrap()
                .push((method, serde_json::from_slice(&body).unwrap_or_default()));
            let (code, mut answer) = answers.lock().unwrap().next().unwrap_or((409, json!({})));
            if code >= 400 {
                answer = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code,
                    "message": "no", "reason": "", "metadata": {}});
            }
            let mut answer = http::Response::new(Body::from(answer.to_string().into_bytes()));
            *answer.status_mut() = http::StatusCode::from_u16(code).unwrap();
            Ok::<_, std::convert::Infallible>(answer)
        }
    });
    (Api::namespaced(Client::new(service, "ns"), "ns"), asked)
}

fn methods(asked: &Asked) -> Vec<String> {
    asked
        .lock()
        .unwrap()
        .iter()
        .map(|(method, _)| method.clone())
        .collect()
}

fn map(uid: &str, data: &Value) -> ConfigMap {
    serde_json::from_value(json!({
        "metadata": {"name": "a", "namespace": "ns", "uid": uid, "resourceVersion": "1"}, "data": data,
    }))
    .unwrap()
}

fn wanted(data: &Value) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "ns"}, "data": data})).unwrap()
}

#[tokio::test]
async fn unchanged_object_takes_no_request() {
    let (api, asked) = server([]);
    let done = ensure(
        &api,
        Some(&map("1", &json!({"a": "1", "b": "2"}))),
        &wanted(&json!({"a": "1"})),
        "m",
    )
    .await;
    assert_eq!(done.unwrap(), Outcome::Unchanged);
    assert!(methods(&asked).is_empty());
}

#[tokio::test]
async fn exact_fields_lose_what_is_not_wanted() {
    let (api, asked) = server([(200, json!({"metadata": {}}))]);
    let mut current = map("1", &json!({"a": "1", "b": "2"}));
    current.metadata.annotations =
        Some([("writ.dev/x".into(), "1".into()), ("theirs".into(), "1".into())].into());
    let exact = ["/data", "/metadata/annotations/writ.dev~1x"];
    let ensure = Ensure::new(&api, "m").exact(&exact);
    ensure
        .run(Some(&current), &wanted(&json!({"a": "1"})))
        .await
        .unwrap();
    let (_, patch) = asked.lock().unwrap()[0].clone();
    assert_eq!(
        patch,
        json!({"metadata": {"uid": "1", "annotations": {"writ.dev/x": null}}, "data": {"b": null}})
    );
}

#[tokio::test]
async fn object_that_the_view_did_not_show_is_adopted_only_if_allowed() {
    let live = serde_json::to_value(map("7", &json!({"a": "0"}))).unwrap();
    let answers = || [(409, json!({})), (200, live.clone()), (200, live.clone())];
    let wanted = wanted(&json!({"a": "1"}));
    let (api, asked) = server(answers());
    let conflict = ensure(&api, None, &wanted, "m").await.unwrap_err();
    assert!(conflict.is_code(409));
    assert_eq!(methods(&asked), ["POST"]);
    let (api, asked) = server(answers());
    assert_eq!(
        Ensure::new(&api, "m")
            .adopt(&|_| true)
            .run(None, &wanted)
            .await
            .unwrap(),
        Outcome::Changed
    );
    assert_eq!(methods(&asked), ["POST", "GET", "PATCH"]);
    assert_eq!(asked.lock().unwrap()[2].1["metadata"]["uid"], "7");
    let (api, asked) = server(answers());
    let refused = Ensure::new(&api, "m")
        .adopt(&|_| false)
        .run(None, &wanted)
        .await
        .unwrap_err();
    assert_eq!(refused.reason(), "Invalid");
    assert_eq!(methods(&asked), ["POST", "GET"]);
    // Others are always faster.
    let (api, _) = server((0..20).map(|turn| (if turn % 2 == 0 { 409 } else { 200 }, live.clone())));
    let busy = Ensure::new(&api, "m")
        .adopt(&|_| true)
        .run(None, &wanted)
        .await
        .unwrap_err();
    assert_eq!(busy.reason(), "Busy");
}

#[tokio::test]
async fn immutable_difference_deletes_what_was_seen_and_creates_anew() {
    let done = || (200, json!({"metadata": {}}));
    let (api, asked) = server([done(), done()]);
    let ensure = Ensure::new(&api, "m").recreate_if(&|_| true);
    ensure
        .run(Some(&map("1", &json!({}))), &wanted(&json!({})))
        .await
        .unwrap();
    assert_eq!(methods(&asked), ["DELETE", "POST"]);
    assert_eq!(
        asked.lock().unwrap()[0].1["preconditions"],
        json!({"uid": "1", "resourceVersion": "1"})
    );
}

#[tokio::test]
async fn replaced_object_keeps_what_others_wrote_meanwhile() {
    let live = |uid: &str| {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata",
            "metadata": {"name": "a", "uid": uid, "resourceVersion": "2", "annotations": {"theirs": "1"}}})
    };
    let seen = || map("1", &json!({"a": "1"}));
    let amend = |meta: &mut ObjectMeta| meta.owner_references = Some(Vec::new());
    let (api, asked) = server([(409, json!({})), (200, live("1")), (200, live("1"))]);
    replace(&api, seen(), amend, "m").await.unwrap();
    assert_eq!(methods(&asked), ["PUT", "GET", "PUT"]);
    let (_, last) = asked.lock().unwrap()[2].clone();
    assert_eq!(last["metadata"]["annotations"], json!({"theirs": "1"}));
    assert_eq!(last["metadata"]["ownerReferences"], json!([]));
    // An object that was made anew is not touched.
    let (api, asked) = server([(409, json!({})), (200, live("2"))]);
    replace(&api, seen(), amend, "m").await.unwrap();
    assert_eq!(methods(&asked), ["PUT", "GET"]);
    // It ends.
    let (api, asked) = server((0..20).map(|turn| (if turn % 2 == 0 { 409 } else { 200 }, live("1"))));
    assert!(replace(&api, seen(), amend, "m").await.unwrap_err().is_code(409));
    assert_eq!(methods(&asked).len(), 2 * MAX_CONFLICTS + 1);
}

#[tokio::test]
async fn finalizer_is_written_with_the_version_that_was_seen() {
    let (api, asked) = server([(200, json!({"metadata": {}})), (404, json!({}))]);
    let mut seen = map("1", &json!({}));
    seen.metadata.finalizers = Some(vec!["theirs".into()]);
    assert!(!set_finalizer(&api, &seen, "ours", false, "m").await.unwrap());
    assert!(set_finalizer(&api, &seen, "ours", true, "m").await.unwrap());
    let (_, patch) = asked.lock().unwrap()[0].clone();
    assert_eq!(
        patch,
        json!({"metadata": {"uid": "1", "resourceVersion": "1", "finalizers": ["theirs", "ours"]}})
    );
    seen.metadata.finalizers = Some(vec!["theirs".into(), "ours".into()]);
    assert!(
        !set_finalizer(&api, &seen, "ours", false, "m").await.unwrap(),
        "it is gone"
    );
}
